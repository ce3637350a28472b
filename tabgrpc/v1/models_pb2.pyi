from google.longrunning import operations_pb2 as _operations_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Task(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_UNSPECIFIED: _ClassVar[Task]
    TASK_CLASSIFICATION: _ClassVar[Task]
    TASK_REGRESSION: _ClassVar[Task]

class Output(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTPUT_UNSPECIFIED: _ClassVar[Output]
    OUTPUT_LOGITS: _ClassVar[Output]
    OUTPUT_VARIANCE: _ClassVar[Output]
    OUTPUT_MODE: _ClassVar[Output]
    OUTPUT_RAW_QUANTILES: _ClassVar[Output]
    OUTPUT_EMBEDDINGS: _ClassVar[Output]
TASK_UNSPECIFIED: Task
TASK_CLASSIFICATION: Task
TASK_REGRESSION: Task
OUTPUT_UNSPECIFIED: Output
OUTPUT_LOGITS: Output
OUTPUT_VARIANCE: Output
OUTPUT_MODE: Output
OUTPUT_RAW_QUANTILES: Output
OUTPUT_EMBEDDINGS: Output

class FitOptions(_message.Message):
    __slots__ = ("target", "task", "drop", "checkpoint", "n_estimators", "random_state", "dtype", "placement", "softmax_temperature", "norm_methods", "feat_shuffle_method", "class_shuffle_method", "outlier_threshold", "average_probabilities", "no_download", "node_temperature", "save", "kv_limit_bytes", "training_rows", "resume")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    N_ESTIMATORS_FIELD_NUMBER: _ClassVar[int]
    RANDOM_STATE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    NORM_METHODS_FIELD_NUMBER: _ClassVar[int]
    FEAT_SHUFFLE_METHOD_FIELD_NUMBER: _ClassVar[int]
    CLASS_SHUFFLE_METHOD_FIELD_NUMBER: _ClassVar[int]
    OUTLIER_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    NO_DOWNLOAD_FIELD_NUMBER: _ClassVar[int]
    NODE_TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    KV_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRAINING_ROWS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    target: str
    task: Task
    drop: _containers.RepeatedScalarFieldContainer[str]
    checkpoint: str
    n_estimators: int
    random_state: int
    dtype: str
    placement: str
    softmax_temperature: float
    norm_methods: _containers.RepeatedScalarFieldContainer[str]
    feat_shuffle_method: str
    class_shuffle_method: str
    outlier_threshold: float
    average_probabilities: bool
    no_download: bool
    node_temperature: float
    save: str
    kv_limit_bytes: int
    training_rows: bool
    resume: bool
    def __init__(self, target: _Optional[str] = ..., task: _Optional[_Union[Task, str]] = ..., drop: _Optional[_Iterable[str]] = ..., checkpoint: _Optional[str] = ..., n_estimators: _Optional[int] = ..., random_state: _Optional[int] = ..., dtype: _Optional[str] = ..., placement: _Optional[str] = ..., softmax_temperature: _Optional[float] = ..., norm_methods: _Optional[_Iterable[str]] = ..., feat_shuffle_method: _Optional[str] = ..., class_shuffle_method: _Optional[str] = ..., outlier_threshold: _Optional[float] = ..., average_probabilities: _Optional[bool] = ..., no_download: _Optional[bool] = ..., node_temperature: _Optional[float] = ..., save: _Optional[str] = ..., kv_limit_bytes: _Optional[int] = ..., training_rows: _Optional[bool] = ..., resume: _Optional[bool] = ...) -> None: ...

class Draws(_message.Message):
    __slots__ = ("count", "seed")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    count: int
    seed: int
    def __init__(self, count: _Optional[int] = ..., seed: _Optional[int] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "task", "rows", "features", "classes", "members", "context_bytes", "checkpoint", "policy", "placement", "warnings", "class_counts", "feature_kinds", "saved", "stored_bytes", "reveals", "loaded", "pinned", "tiers", "fault", "written_by")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    CLASS_COUNTS_FIELD_NUMBER: _ClassVar[int]
    FEATURE_KINDS_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    REVEALS_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BY_FIELD_NUMBER: _ClassVar[int]
    name: str
    task: Task
    rows: int
    features: _containers.RepeatedScalarFieldContainer[str]
    classes: _containers.RepeatedScalarFieldContainer[str]
    members: int
    context_bytes: int
    checkpoint: str
    policy: str
    placement: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    class_counts: _containers.RepeatedScalarFieldContainer[int]
    feature_kinds: _containers.RepeatedScalarFieldContainer[str]
    saved: str
    stored_bytes: int
    reveals: _containers.RepeatedScalarFieldContainer[str]
    loaded: bool
    pinned: bool
    tiers: _containers.RepeatedCompositeFieldContainer[TierBytes]
    fault: str
    written_by: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., task: _Optional[_Union[Task, str]] = ..., rows: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., classes: _Optional[_Iterable[str]] = ..., members: _Optional[int] = ..., context_bytes: _Optional[int] = ..., checkpoint: _Optional[str] = ..., policy: _Optional[str] = ..., placement: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., class_counts: _Optional[_Iterable[int]] = ..., feature_kinds: _Optional[_Iterable[str]] = ..., saved: _Optional[str] = ..., stored_bytes: _Optional[int] = ..., reveals: _Optional[_Iterable[str]] = ..., loaded: _Optional[bool] = ..., pinned: _Optional[bool] = ..., tiers: _Optional[_Iterable[_Union[TierBytes, _Mapping]]] = ..., fault: _Optional[str] = ..., written_by: _Optional[_Iterable[str]] = ...) -> None: ...

class TierBytes(_message.Message):
    __slots__ = ("tier", "bytes")
    TIER_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    tier: str
    bytes: int
    def __init__(self, tier: _Optional[str] = ..., bytes: _Optional[int] = ...) -> None: ...

class CreateModelRequest(_message.Message):
    __slots__ = ("model", "table", "options", "request_id")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    model: str
    table: str
    options: FitOptions
    request_id: str
    def __init__(self, model: _Optional[str] = ..., table: _Optional[str] = ..., options: _Optional[_Union[FitOptions, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class CreateModelResponse(_message.Message):
    __slots__ = ("operation",)
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    operation: _operations_pb2.Operation
    def __init__(self, operation: _Optional[_Union[_operations_pb2.Operation, _Mapping]] = ...) -> None: ...

class FitProgress(_message.Message):
    __slots__ = ("stage", "done", "total", "rows")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    stage: str
    done: int
    total: int
    rows: int
    def __init__(self, stage: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class GetOperationRequest(_message.Message):
    __slots__ = ("name", "wait_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    wait_seconds: float
    def __init__(self, name: _Optional[str] = ..., wait_seconds: _Optional[float] = ...) -> None: ...

class GetOperationResponse(_message.Message):
    __slots__ = ("operation",)
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    operation: _operations_pb2.Operation
    def __init__(self, operation: _Optional[_Union[_operations_pb2.Operation, _Mapping]] = ...) -> None: ...

class CancelOperationRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class CancelOperationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PlanModelRequest(_message.Message):
    __slots__ = ("table", "options")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    table: str
    options: FitOptions
    def __init__(self, table: _Optional[str] = ..., options: _Optional[_Union[FitOptions, _Mapping]] = ...) -> None: ...

class PlanModelResponse(_message.Message):
    __slots__ = ("rows", "features", "members", "placement", "resident_bytes", "peak_bytes", "fit_seconds", "why", "checkpoint", "task", "workers", "tier", "classes", "class_counts", "warnings", "save", "stored_bytes", "load_seconds", "predict_seconds", "contexts")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    FIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    CLASS_COUNTS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOAD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PREDICT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    features: int
    members: int
    placement: str
    resident_bytes: int
    peak_bytes: int
    fit_seconds: float
    why: str
    checkpoint: str
    task: Task
    workers: int
    tier: str
    classes: _containers.RepeatedScalarFieldContainer[str]
    class_counts: _containers.RepeatedScalarFieldContainer[int]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    save: str
    stored_bytes: int
    load_seconds: float
    predict_seconds: float
    contexts: int
    def __init__(self, rows: _Optional[int] = ..., features: _Optional[int] = ..., members: _Optional[int] = ..., placement: _Optional[str] = ..., resident_bytes: _Optional[int] = ..., peak_bytes: _Optional[int] = ..., fit_seconds: _Optional[float] = ..., why: _Optional[str] = ..., checkpoint: _Optional[str] = ..., task: _Optional[_Union[Task, str]] = ..., workers: _Optional[int] = ..., tier: _Optional[str] = ..., classes: _Optional[_Iterable[str]] = ..., class_counts: _Optional[_Iterable[int]] = ..., warnings: _Optional[_Iterable[str]] = ..., save: _Optional[str] = ..., stored_bytes: _Optional[int] = ..., load_seconds: _Optional[float] = ..., predict_seconds: _Optional[float] = ..., contexts: _Optional[int] = ...) -> None: ...

class LoadModelRequest(_message.Message):
    __slots__ = ("model", "directory", "strict_bits")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    STRICT_BITS_FIELD_NUMBER: _ClassVar[int]
    model: str
    directory: str
    strict_bits: bool
    def __init__(self, model: _Optional[str] = ..., directory: _Optional[str] = ..., strict_bits: _Optional[bool] = ...) -> None: ...

class LoadModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: Model
    def __init__(self, model: _Optional[_Union[Model, _Mapping]] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: Model
    def __init__(self, model: _Optional[_Union[Model, _Mapping]] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models", "next_page_token")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    next_page_token: str
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteModelResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PinModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class PinModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: Model
    def __init__(self, model: _Optional[_Union[Model, _Mapping]] = ...) -> None: ...

class UnpinModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class UnpinModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: Model
    def __init__(self, model: _Optional[_Union[Model, _Mapping]] = ...) -> None: ...

class VerifyModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class VerifyModelResponse(_message.Message):
    __slots__ = ("path", "size", "fault")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    path: str
    size: int
    fault: str
    def __init__(self, path: _Optional[str] = ..., size: _Optional[int] = ..., fault: _Optional[str] = ...) -> None: ...

class ExportModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ExportedFile(_message.Message):
    __slots__ = ("path", "size", "sha256")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    path: str
    size: int
    sha256: str
    def __init__(self, path: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class ExportedPiece(_message.Message):
    __slots__ = ("offset", "data", "checksum")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    checksum: int
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., checksum: _Optional[int] = ...) -> None: ...

class ExportModelResponse(_message.Message):
    __slots__ = ("file", "piece")
    FILE_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    file: ExportedFile
    piece: ExportedPiece
    def __init__(self, file: _Optional[_Union[ExportedFile, _Mapping]] = ..., piece: _Optional[_Union[ExportedPiece, _Mapping]] = ...) -> None: ...

class FloatRows(_message.Message):
    __slots__ = ("values", "rows")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    rows: int
    def __init__(self, values: _Optional[_Iterable[float]] = ..., rows: _Optional[int] = ...) -> None: ...

class PredictRequest(_message.Message):
    __slots__ = ("model", "arrow", "floats", "quantiles", "first_row", "outputs", "draws")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    FLOATS_FIELD_NUMBER: _ClassVar[int]
    QUANTILES_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    model: str
    arrow: bytes
    floats: FloatRows
    quantiles: _containers.RepeatedScalarFieldContainer[float]
    first_row: int
    outputs: _containers.RepeatedScalarFieldContainer[Output]
    draws: Draws
    def __init__(self, model: _Optional[str] = ..., arrow: _Optional[bytes] = ..., floats: _Optional[_Union[FloatRows, _Mapping]] = ..., quantiles: _Optional[_Iterable[float]] = ..., first_row: _Optional[int] = ..., outputs: _Optional[_Iterable[_Union[Output, str]]] = ..., draws: _Optional[_Union[Draws, _Mapping]] = ...) -> None: ...

class PredictResponse(_message.Message):
    __slots__ = ("arrow",)
    ARROW_FIELD_NUMBER: _ClassVar[int]
    arrow: bytes
    def __init__(self, arrow: _Optional[bytes] = ...) -> None: ...

class StreamPredictRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: PredictRequest
    def __init__(self, request: _Optional[_Union[PredictRequest, _Mapping]] = ...) -> None: ...

class StreamPredictResponse(_message.Message):
    __slots__ = ("response",)
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    response: PredictResponse
    def __init__(self, response: _Optional[_Union[PredictResponse, _Mapping]] = ...) -> None: ...

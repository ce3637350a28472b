from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Saved(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SAVED_UNSPECIFIED: _ClassVar[Saved]
    SAVED_KV: _ClassVar[Saved]
    SAVED_VECTORS: _ClassVar[Saved]
    SAVED_NOTHING: _ClassVar[Saved]

class FitStageKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FIT_STAGE_KIND_UNSPECIFIED: _ClassVar[FitStageKind]
    FIT_STAGE_KIND_COLUMN: _ClassVar[FitStageKind]
    FIT_STAGE_KIND_COLUMN_END: _ClassVar[FitStageKind]
    FIT_STAGE_KIND_ROWS: _ClassVar[FitStageKind]
    FIT_STAGE_KIND_ICL: _ClassVar[FitStageKind]
    FIT_STAGE_KIND_HELD: _ClassVar[FitStageKind]
    FIT_STAGE_KIND_INDUCING: _ClassVar[FitStageKind]
    FIT_STAGE_KIND_TAKE_INDUCING: _ClassVar[FitStageKind]
    FIT_STAGE_KIND_SPREAD: _ClassVar[FitStageKind]
    FIT_STAGE_KIND_NODE: _ClassVar[FitStageKind]

class TileStepKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TILE_STEP_KIND_UNSPECIFIED: _ClassVar[TileStepKind]
    TILE_STEP_KIND_OPEN: _ClassVar[TileStepKind]
    TILE_STEP_KIND_ATTEND: _ClassVar[TileStepKind]
    TILE_STEP_KIND_ADVANCE: _ClassVar[TileStepKind]
SAVED_UNSPECIFIED: Saved
SAVED_KV: Saved
SAVED_VECTORS: Saved
SAVED_NOTHING: Saved
FIT_STAGE_KIND_UNSPECIFIED: FitStageKind
FIT_STAGE_KIND_COLUMN: FitStageKind
FIT_STAGE_KIND_COLUMN_END: FitStageKind
FIT_STAGE_KIND_ROWS: FitStageKind
FIT_STAGE_KIND_ICL: FitStageKind
FIT_STAGE_KIND_HELD: FitStageKind
FIT_STAGE_KIND_INDUCING: FitStageKind
FIT_STAGE_KIND_TAKE_INDUCING: FitStageKind
FIT_STAGE_KIND_SPREAD: FitStageKind
FIT_STAGE_KIND_NODE: FitStageKind
TILE_STEP_KIND_UNSPECIFIED: TileStepKind
TILE_STEP_KIND_OPEN: TileStepKind
TILE_STEP_KIND_ATTEND: TileStepKind
TILE_STEP_KIND_ADVANCE: TileStepKind

class Frame(_message.Message):
    __slots__ = ("manifest", "chunk", "commit")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    manifest: Manifest
    chunk: Chunk
    commit: Commit
    def __init__(self, manifest: _Optional[_Union[Manifest, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("arrays",)
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    arrays: _containers.RepeatedCompositeFieldContainer[ArraySpec]
    def __init__(self, arrays: _Optional[_Iterable[_Union[ArraySpec, _Mapping]]] = ...) -> None: ...

class ArraySpec(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("offset", "data", "checksum")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    checksum: int
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., checksum: _Optional[int] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("size",)
    SIZE_FIELD_NUMBER: _ClassVar[int]
    size: int
    def __init__(self, size: _Optional[int] = ...) -> None: ...

class Parcel(_message.Message):
    __slots__ = ("manifest", "data", "checksum")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    manifest: Manifest
    data: bytes
    checksum: int
    def __init__(self, manifest: _Optional[_Union[Manifest, _Mapping]] = ..., data: _Optional[bytes] = ..., checksum: _Optional[int] = ...) -> None: ...

class ShardRef(_message.Message):
    __slots__ = ("model_version", "epoch", "incarnation")
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    model_version: str
    epoch: int
    incarnation: str
    def __init__(self, model_version: _Optional[str] = ..., epoch: _Optional[int] = ..., incarnation: _Optional[str] = ...) -> None: ...

class BlockRun(_message.Message):
    __slots__ = ("start", "stop")
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    start: int
    stop: int
    def __init__(self, start: _Optional[int] = ..., stop: _Optional[int] = ...) -> None: ...

class MemberShard(_message.Message):
    __slots__ = ("member", "runs", "class_counts")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    CLASS_COUNTS_FIELD_NUMBER: _ClassVar[int]
    member: int
    runs: _containers.RepeatedCompositeFieldContainer[BlockRun]
    class_counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, member: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[BlockRun, _Mapping]]] = ..., class_counts: _Optional[_Iterable[int]] = ...) -> None: ...

class GetWorkerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetWorkerResponse(_message.Message):
    __slots__ = ("incarnation", "device", "policy_json", "memory_budget", "memory_used", "queued", "pid", "threads", "model_versions", "memory_fixed", "tiers", "models", "stalled_seconds", "streamed_bytes")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    POLICY_JSON_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BUDGET_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIXED_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    STALLED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STREAMED_BYTES_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    device: str
    policy_json: str
    memory_budget: int
    memory_used: int
    queued: int
    pid: int
    threads: int
    model_versions: _containers.RepeatedScalarFieldContainer[str]
    memory_fixed: int
    tiers: _containers.RepeatedCompositeFieldContainer[TierBytes]
    models: _containers.RepeatedCompositeFieldContainer[ModelUsage]
    stalled_seconds: float
    streamed_bytes: int
    def __init__(self, incarnation: _Optional[str] = ..., device: _Optional[str] = ..., policy_json: _Optional[str] = ..., memory_budget: _Optional[int] = ..., memory_used: _Optional[int] = ..., queued: _Optional[int] = ..., pid: _Optional[int] = ..., threads: _Optional[int] = ..., model_versions: _Optional[_Iterable[str]] = ..., memory_fixed: _Optional[int] = ..., tiers: _Optional[_Iterable[_Union[TierBytes, _Mapping]]] = ..., models: _Optional[_Iterable[_Union[ModelUsage, _Mapping]]] = ..., stalled_seconds: _Optional[float] = ..., streamed_bytes: _Optional[int] = ...) -> None: ...

class TierBytes(_message.Message):
    __slots__ = ("tier", "bytes")
    TIER_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    tier: str
    bytes: int
    def __init__(self, tier: _Optional[str] = ..., bytes: _Optional[int] = ...) -> None: ...

class ModelUsage(_message.Message):
    __slots__ = ("model_version", "pinned", "tiers")
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    model_version: str
    pinned: bool
    tiers: _containers.RepeatedCompositeFieldContainer[TierBytes]
    def __init__(self, model_version: _Optional[str] = ..., pinned: _Optional[bool] = ..., tiers: _Optional[_Iterable[_Union[TierBytes, _Mapping]]] = ...) -> None: ...

class ModelSpec(_message.Message):
    __slots__ = ("checkpoint", "checkpoint_sha256", "checkpoint_kind", "dtype", "geometry_json", "features", "store", "keep_vectors")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_SHA256_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_KIND_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    GEOMETRY_JSON_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    KEEP_VECTORS_FIELD_NUMBER: _ClassVar[int]
    checkpoint: str
    checkpoint_sha256: str
    checkpoint_kind: str
    dtype: str
    geometry_json: str
    features: int
    store: bool
    keep_vectors: bool
    def __init__(self, checkpoint: _Optional[str] = ..., checkpoint_sha256: _Optional[str] = ..., checkpoint_kind: _Optional[str] = ..., dtype: _Optional[str] = ..., geometry_json: _Optional[str] = ..., features: _Optional[int] = ..., store: _Optional[bool] = ..., keep_vectors: _Optional[bool] = ...) -> None: ...

class StageFolder(_message.Message):
    __slots__ = ("directory", "folder")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    directory: str
    folder: str
    def __init__(self, directory: _Optional[str] = ..., folder: _Optional[str] = ...) -> None: ...

class FinishedStage(_message.Message):
    __slots__ = ("member", "column_blocks", "layers", "files")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    COLUMN_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    member: int
    column_blocks: int
    layers: int
    files: _containers.RepeatedCompositeFieldContainer[StoredFile]
    def __init__(self, member: _Optional[int] = ..., column_blocks: _Optional[int] = ..., layers: _Optional[int] = ..., files: _Optional[_Iterable[_Union[StoredFile, _Mapping]]] = ...) -> None: ...

class OpenShardsRequest(_message.Message):
    __slots__ = ("ref", "spec", "shards", "frame", "peak_bytes", "keep_fitted")
    REF_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEEP_FITTED_FIELD_NUMBER: _ClassVar[int]
    ref: ShardRef
    spec: ModelSpec
    shards: _containers.RepeatedCompositeFieldContainer[MemberShard]
    frame: Frame
    peak_bytes: int
    keep_fitted: bool
    def __init__(self, ref: _Optional[_Union[ShardRef, _Mapping]] = ..., spec: _Optional[_Union[ModelSpec, _Mapping]] = ..., shards: _Optional[_Iterable[_Union[MemberShard, _Mapping]]] = ..., frame: _Optional[_Union[Frame, _Mapping]] = ..., peak_bytes: _Optional[int] = ..., keep_fitted: _Optional[bool] = ...) -> None: ...

class OpenShardsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FitMembersRequest(_message.Message):
    __slots__ = ("ref", "members", "stages")
    REF_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    ref: ShardRef
    members: _containers.RepeatedScalarFieldContainer[int]
    stages: StageFolder
    def __init__(self, ref: _Optional[_Union[ShardRef, _Mapping]] = ..., members: _Optional[_Iterable[int]] = ..., stages: _Optional[_Union[StageFolder, _Mapping]] = ...) -> None: ...

class FitMembersResponse(_message.Message):
    __slots__ = ("stage", "done", "total", "finished")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    stage: str
    done: int
    total: int
    finished: FinishedStage
    def __init__(self, stage: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., finished: _Optional[_Union[FinishedStage, _Mapping]] = ...) -> None: ...

class FitStageRequest(_message.Message):
    __slots__ = ("ref", "member", "kind", "layer", "frame", "part", "stages", "keeps_column")
    REF_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    KEEPS_COLUMN_FIELD_NUMBER: _ClassVar[int]
    ref: ShardRef
    member: int
    kind: FitStageKind
    layer: int
    frame: Frame
    part: int
    stages: StageFolder
    keeps_column: bool
    def __init__(self, ref: _Optional[_Union[ShardRef, _Mapping]] = ..., member: _Optional[int] = ..., kind: _Optional[_Union[FitStageKind, str]] = ..., layer: _Optional[int] = ..., frame: _Optional[_Union[Frame, _Mapping]] = ..., part: _Optional[int] = ..., stages: _Optional[_Union[StageFolder, _Mapping]] = ..., keeps_column: _Optional[bool] = ...) -> None: ...

class FitStageResponse(_message.Message):
    __slots__ = ("frame", "finished")
    FRAME_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    frame: Frame
    finished: FinishedStage
    def __init__(self, frame: _Optional[_Union[Frame, _Mapping]] = ..., finished: _Optional[_Union[FinishedStage, _Mapping]] = ...) -> None: ...

class Head(_message.Message):
    __slots__ = ("levels", "variance", "quantiles", "embeddings")
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_FIELD_NUMBER: _ClassVar[int]
    QUANTILES_FIELD_NUMBER: _ClassVar[int]
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    levels: _containers.RepeatedScalarFieldContainer[float]
    variance: bool
    quantiles: bool
    embeddings: bool
    def __init__(self, levels: _Optional[_Iterable[float]] = ..., variance: _Optional[bool] = ..., quantiles: _Optional[bool] = ..., embeddings: _Optional[bool] = ...) -> None: ...

class PredictTileRequest(_message.Message):
    __slots__ = ("ref", "members", "parcel", "head")
    REF_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PARCEL_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    ref: ShardRef
    members: _containers.RepeatedScalarFieldContainer[int]
    parcel: Parcel
    head: Head
    def __init__(self, ref: _Optional[_Union[ShardRef, _Mapping]] = ..., members: _Optional[_Iterable[int]] = ..., parcel: _Optional[_Union[Parcel, _Mapping]] = ..., head: _Optional[_Union[Head, _Mapping]] = ...) -> None: ...

class PredictTileResponse(_message.Message):
    __slots__ = ("parcel",)
    PARCEL_FIELD_NUMBER: _ClassVar[int]
    parcel: Parcel
    def __init__(self, parcel: _Optional[_Union[Parcel, _Mapping]] = ...) -> None: ...

class TileStepRequest(_message.Message):
    __slots__ = ("ref", "members", "kind", "layer", "parcel", "head")
    REF_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    PARCEL_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    ref: ShardRef
    members: _containers.RepeatedScalarFieldContainer[int]
    kind: TileStepKind
    layer: int
    parcel: Parcel
    head: Head
    def __init__(self, ref: _Optional[_Union[ShardRef, _Mapping]] = ..., members: _Optional[_Iterable[int]] = ..., kind: _Optional[_Union[TileStepKind, str]] = ..., layer: _Optional[int] = ..., parcel: _Optional[_Union[Parcel, _Mapping]] = ..., head: _Optional[_Union[Head, _Mapping]] = ...) -> None: ...

class TileStepResponse(_message.Message):
    __slots__ = ("parcel",)
    PARCEL_FIELD_NUMBER: _ClassVar[int]
    parcel: Parcel
    def __init__(self, parcel: _Optional[_Union[Parcel, _Mapping]] = ...) -> None: ...

class SaveShardsRequest(_message.Message):
    __slots__ = ("ref", "directory", "column_members", "folder", "saved")
    REF_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    COLUMN_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    ref: ShardRef
    directory: str
    column_members: _containers.RepeatedScalarFieldContainer[int]
    folder: str
    saved: Saved
    def __init__(self, ref: _Optional[_Union[ShardRef, _Mapping]] = ..., directory: _Optional[str] = ..., column_members: _Optional[_Iterable[int]] = ..., folder: _Optional[str] = ..., saved: _Optional[_Union[Saved, str]] = ...) -> None: ...

class StoredFile(_message.Message):
    __slots__ = ("path", "size", "sha256")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    path: str
    size: int
    sha256: str
    def __init__(self, path: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class SaveShardsResponse(_message.Message):
    __slots__ = ("files",)
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[StoredFile]
    def __init__(self, files: _Optional[_Iterable[_Union[StoredFile, _Mapping]]] = ...) -> None: ...

class ResumeShardsRequest(_message.Message):
    __slots__ = ("ref", "stages", "reached")
    REF_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    ref: ShardRef
    stages: StageFolder
    reached: _containers.RepeatedCompositeFieldContainer[FinishedStage]
    def __init__(self, ref: _Optional[_Union[ShardRef, _Mapping]] = ..., stages: _Optional[_Union[StageFolder, _Mapping]] = ..., reached: _Optional[_Iterable[_Union[FinishedStage, _Mapping]]] = ...) -> None: ...

class ResumeShardsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LoadShardsRequest(_message.Message):
    __slots__ = ("ref", "spec", "shards", "directory", "files", "folder", "saved")
    REF_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    ref: ShardRef
    spec: ModelSpec
    shards: _containers.RepeatedCompositeFieldContainer[MemberShard]
    directory: str
    files: _containers.RepeatedCompositeFieldContainer[StoredFile]
    folder: str
    saved: Saved
    def __init__(self, ref: _Optional[_Union[ShardRef, _Mapping]] = ..., spec: _Optional[_Union[ModelSpec, _Mapping]] = ..., shards: _Optional[_Iterable[_Union[MemberShard, _Mapping]]] = ..., directory: _Optional[str] = ..., files: _Optional[_Iterable[_Union[StoredFile, _Mapping]]] = ..., folder: _Optional[str] = ..., saved: _Optional[_Union[Saved, str]] = ...) -> None: ...

class LoadShardsResponse(_message.Message):
    __slots__ = ("unfinished",)
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    unfinished: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, unfinished: _Optional[_Iterable[int]] = ...) -> None: ...

class PinShardsRequest(_message.Message):
    __slots__ = ("ref", "pinned")
    REF_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    ref: ShardRef
    pinned: bool
    def __init__(self, ref: _Optional[_Union[ShardRef, _Mapping]] = ..., pinned: _Optional[bool] = ...) -> None: ...

class PinShardsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DropShardsRequest(_message.Message):
    __slots__ = ("model_version",)
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    model_version: str
    def __init__(self, model_version: _Optional[str] = ...) -> None: ...

class DropShardsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_STATE_UNSPECIFIED: _ClassVar[WorkerState]
    WORKER_STATE_SERVING: _ClassVar[WorkerState]
    WORKER_STATE_LOST: _ClassVar[WorkerState]
WORKER_STATE_UNSPECIFIED: WorkerState
WORKER_STATE_SERVING: WorkerState
WORKER_STATE_LOST: WorkerState

class GetPoolRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Worker(_message.Message):
    __slots__ = ("incarnation", "device", "state", "pid", "memory_budget", "memory_used", "reason", "queued", "stalled_seconds", "streamed_bytes")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BUDGET_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    STALLED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STREAMED_BYTES_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    device: str
    state: WorkerState
    pid: int
    memory_budget: int
    memory_used: int
    reason: str
    queued: int
    stalled_seconds: float
    streamed_bytes: int
    def __init__(self, incarnation: _Optional[str] = ..., device: _Optional[str] = ..., state: _Optional[_Union[WorkerState, str]] = ..., pid: _Optional[int] = ..., memory_budget: _Optional[int] = ..., memory_used: _Optional[int] = ..., reason: _Optional[str] = ..., queued: _Optional[int] = ..., stalled_seconds: _Optional[float] = ..., streamed_bytes: _Optional[int] = ...) -> None: ...

class Ownership(_message.Message):
    __slots__ = ("model_version", "epoch", "members", "exchange")
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    model_version: str
    epoch: int
    members: _containers.RepeatedCompositeFieldContainer[MemberOwners]
    exchange: str
    def __init__(self, model_version: _Optional[str] = ..., epoch: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberOwners, _Mapping]]] = ..., exchange: _Optional[str] = ...) -> None: ...

class MemberOwners(_message.Message):
    __slots__ = ("owners",)
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    owners: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, owners: _Optional[_Iterable[str]] = ...) -> None: ...

class GetPoolResponse(_message.Message):
    __slots__ = ("workers", "ownership", "version", "policy")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    ownership: _containers.RepeatedCompositeFieldContainer[Ownership]
    version: str
    policy: str
    def __init__(self, workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., ownership: _Optional[_Iterable[_Union[Ownership, _Mapping]]] = ..., version: _Optional[str] = ..., policy: _Optional[str] = ...) -> None: ...

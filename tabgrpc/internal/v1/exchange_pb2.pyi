from tabgrpc.internal.v1 import shards_pb2 as _shards_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetPeerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPeerResponse(_message.Message):
    __slots__ = ("machine", "backend", "trusted_host", "accelerator")
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_HOST_FIELD_NUMBER: _ClassVar[int]
    ACCELERATOR_FIELD_NUMBER: _ClassVar[int]
    machine: str
    backend: str
    trusted_host: str
    accelerator: str
    def __init__(self, machine: _Optional[str] = ..., backend: _Optional[str] = ..., trusted_host: _Optional[str] = ..., accelerator: _Optional[str] = ...) -> None: ...

class OpenGroupRequest(_message.Message):
    __slots__ = ("ref", "group", "trusted_network")
    REF_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_NETWORK_FIELD_NUMBER: _ClassVar[int]
    ref: _shards_pb2.ShardRef
    group: str
    trusted_network: bool
    def __init__(self, ref: _Optional[_Union[_shards_pb2.ShardRef, _Mapping]] = ..., group: _Optional[str] = ..., trusted_network: _Optional[bool] = ...) -> None: ...

class OpenGroupResponse(_message.Message):
    __slots__ = ("host", "port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class JoinGroupRequest(_message.Message):
    __slots__ = ("ref", "group", "rank", "size", "host", "port", "trusted_network", "join_seconds", "collective_seconds", "members")
    REF_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_NETWORK_FIELD_NUMBER: _ClassVar[int]
    JOIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    ref: _shards_pb2.ShardRef
    group: str
    rank: int
    size: int
    host: str
    port: int
    trusted_network: bool
    join_seconds: float
    collective_seconds: float
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    def __init__(self, ref: _Optional[_Union[_shards_pb2.ShardRef, _Mapping]] = ..., group: _Optional[str] = ..., rank: _Optional[int] = ..., size: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., trusted_network: _Optional[bool] = ..., join_seconds: _Optional[float] = ..., collective_seconds: _Optional[float] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("shards",)
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[_shards_pb2.MemberShard]
    def __init__(self, shards: _Optional[_Iterable[_Union[_shards_pb2.MemberShard, _Mapping]]] = ...) -> None: ...

class JoinGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LeaveGroupRequest(_message.Message):
    __slots__ = ("group", "model_version")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    group: str
    model_version: str
    def __init__(self, group: _Optional[str] = ..., model_version: _Optional[str] = ...) -> None: ...

class LeaveGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Exchanged(_message.Message):
    __slots__ = ("bytes", "seconds_waiting", "collectives")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_WAITING_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    seconds_waiting: float
    collectives: int
    def __init__(self, bytes: _Optional[int] = ..., seconds_waiting: _Optional[float] = ..., collectives: _Optional[int] = ...) -> None: ...

class FitSharedRequest(_message.Message):
    __slots__ = ("ref", "group", "turn", "members", "at_once")
    REF_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    ref: _shards_pb2.ShardRef
    group: str
    turn: int
    members: _containers.RepeatedScalarFieldContainer[int]
    at_once: int
    def __init__(self, ref: _Optional[_Union[_shards_pb2.ShardRef, _Mapping]] = ..., group: _Optional[str] = ..., turn: _Optional[int] = ..., members: _Optional[_Iterable[int]] = ..., at_once: _Optional[int] = ...) -> None: ...

class FitSharedResponse(_message.Message):
    __slots__ = ("stage", "done", "total", "exchanged")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    EXCHANGED_FIELD_NUMBER: _ClassVar[int]
    stage: str
    done: int
    total: int
    exchanged: Exchanged
    def __init__(self, stage: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., exchanged: _Optional[_Union[Exchanged, _Mapping]] = ...) -> None: ...

class PredictRoundRequest(_message.Message):
    __slots__ = ("ref", "group", "turn", "members", "tiles", "parcel", "head")
    REF_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    TILES_FIELD_NUMBER: _ClassVar[int]
    PARCEL_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    ref: _shards_pb2.ShardRef
    group: str
    turn: int
    members: _containers.RepeatedScalarFieldContainer[int]
    tiles: int
    parcel: _shards_pb2.Parcel
    head: _shards_pb2.Head
    def __init__(self, ref: _Optional[_Union[_shards_pb2.ShardRef, _Mapping]] = ..., group: _Optional[str] = ..., turn: _Optional[int] = ..., members: _Optional[_Iterable[int]] = ..., tiles: _Optional[int] = ..., parcel: _Optional[_Union[_shards_pb2.Parcel, _Mapping]] = ..., head: _Optional[_Union[_shards_pb2.Head, _Mapping]] = ...) -> None: ...

class PredictRoundResponse(_message.Message):
    __slots__ = ("parcel", "not_finite", "exchanged")
    PARCEL_FIELD_NUMBER: _ClassVar[int]
    NOT_FINITE_FIELD_NUMBER: _ClassVar[int]
    EXCHANGED_FIELD_NUMBER: _ClassVar[int]
    parcel: _shards_pb2.Parcel
    not_finite: _containers.RepeatedScalarFieldContainer[int]
    exchanged: Exchanged
    def __init__(self, parcel: _Optional[_Union[_shards_pb2.Parcel, _Mapping]] = ..., not_finite: _Optional[_Iterable[int]] = ..., exchanged: _Optional[_Union[Exchanged, _Mapping]] = ...) -> None: ...

class GetProgressRequest(_message.Message):
    __slots__ = ("ref", "member")
    REF_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    ref: _shards_pb2.ShardRef
    member: int
    def __init__(self, ref: _Optional[_Union[_shards_pb2.ShardRef, _Mapping]] = ..., member: _Optional[int] = ...) -> None: ...

class GetProgressResponse(_message.Message):
    __slots__ = ("column_blocks", "kv_layers", "layer")
    COLUMN_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    KV_LAYERS_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    column_blocks: int
    kv_layers: int
    layer: int
    def __init__(self, column_blocks: _Optional[int] = ..., kv_layers: _Optional[int] = ..., layer: _Optional[int] = ...) -> None: ...

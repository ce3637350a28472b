"""Errors as status codes with google.rpc.ErrorInfo, and back. Reasons travel as data; nobody parses messages."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

DOMAIN = "tabgrpc"
_MESSAGE_BYTES, _DETAIL_BYTES = 1500, 200  # a message goes twice, once with three bytes for each that isn't plain
logger = logging.getLogger("tabgrpc")


class ServiceError(Exception):
    """An error that a caller may see. ``code`` is a grpc.StatusCode, ``reason`` a constant in capitals, ``details`` strings."""

    code = grpc.StatusCode.INTERNAL
    reason = "INTERNAL"

    def __init__(self, message: str, **details: str) -> None:
        super().__init__(message)
        self.details = details


class InvalidArgument(ServiceError, ValueError):
    """Bad shape, dtype, column, value: the caller's mistake, named."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "INVALID_ARGUMENT"


class NotFound(ServiceError, KeyError):
    """No such table, model or operation."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "NOT_FOUND"

    def __str__(self) -> str:
        return str(self.args[0])


class AlreadyExists(ServiceError):
    """The name is taken."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "ALREADY_EXISTS"


class NotReady(ServiceError):
    """Not fitted, a stage out of order, another checkpoint or policy."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "NOT_READY"


class StaleEpoch(ServiceError):
    """The call is of another ownership map, or meant for another worker process."""

    code = grpc.StatusCode.ABORTED
    reason = "STALE_EPOCH"


class OutOfMemory(ServiceError, MemoryError):
    """An allocation failed, or would. Halving the query tiles in flight can help."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "OUT_OF_MEMORY"


class QueueFull(ServiceError):
    """Too much waits already. Trying again later, at the same size, can help."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "QUEUE_FULL"


class Unavailable(ServiceError, ConnectionError):
    """Draining, dead or not there yet."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "UNAVAILABLE"


class Cancelled(ServiceError):
    """Given up by the caller."""

    code = grpc.StatusCode.CANCELLED
    reason = "CANCELLED"


class DeadlineExceeded(ServiceError, TimeoutError):
    """The caller's time is over."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    reason = "DEADLINE_EXCEEDED"


class InternalError(ServiceError):
    """A fault of tabgrpc. The text is an id to be found in the log of the process that failed, never the exception's own."""


_CLASSES: tuple[type[ServiceError], ...] = (
    InvalidArgument,
    NotFound,
    AlreadyExists,
    NotReady,
    StaleEpoch,
    OutOfMemory,
    QueueFull,
    Unavailable,
    Cancelled,
    DeadlineExceeded,
    InternalError,
)


def to_status(error: ServiceError) -> status_pb2.Status:
    """google.rpc.Status with ErrorInfo. Both travel as metadata, which gRPC caps at 8 KiB: long texts are cut."""
    info = any_pb2.Any()
    details = {name: _cut(text, _DETAIL_BYTES) for name, text in error.details.items()}
    info.Pack(error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=details))
    return status_pb2.Status(code=error.code.value[0], message=_cut(str(error), _MESSAGE_BYTES), details=[info])


def _cut(text: str, limit: int) -> str:
    """The text, or its beginning and an ellipsis, of at most so many bytes."""
    data = text.encode(errors="replace")
    return text if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "…"


def from_status(status: status_pb2.Status) -> ServiceError:
    """The exception of a google.rpc.Status: by ErrorInfo's reason, else by code."""
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        if detail.Unpack(info) and info.domain == DOMAIN:
            for each in _CLASSES:
                if each.reason == info.reason:
                    return each(status.message, **dict(info.metadata))
    for each in _CLASSES:
        if each.code.value[0] == status.code and each.code != grpc.StatusCode.RESOURCE_EXHAUSTED:
            return each(status.message)
    return InternalError(f"{code_pb2.Code.Name(status.code)}: {status.message}")


def from_rpc_error(error: grpc.RpcError) -> ServiceError:
    """The exception behind a failed call."""
    status = rpc_status.from_call(error)
    if status is not None:
        return from_status(status)
    return from_status(status_pb2.Status(code=error.code().value[0], message=error.details() or ""))


def known(error: Exception) -> ServiceError:
    """The error itself if a caller may see it; anything unexpected is logged under an id and becomes an InternalError with that id."""
    if isinstance(error, ServiceError):
        return error
    identity = uuid.uuid4().hex[:12]
    logger.error("internal error %s", identity, exc_info=error)
    return InternalError(f"internal error {identity}; the log of the process that failed has more")


def abort(context: grpc.ServicerContext, error: Exception) -> NoReturn:
    """Ends a call with an error."""
    context.abort_with_status(rpc_status.to_status(to_status(known(error))))
    raise AssertionError("abort_with_status returns never")


def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """A unary handler whose exceptions become statuses."""

    def handler(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except Exception as error:  # everything that a handler raises must reach the caller as a status
            abort(context, error)

    return handler


def guarded_stream(method: Callable[..., Any]) -> Callable[..., Any]:
    """A streaming handler whose exceptions become statuses."""

    def handler(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            yield from method(self, request, context)
        except Exception as error:  # as above
            abort(context, error)

    return handler

"""Calls to workers: arrays in, arrays out, errors as exceptions, all of them with a deadline and able to be given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np

from tabgrpc.wire.codec import CodecError, arrays, frames, pack, unpack
from tabgrpc.wire.errors import Cancelled, DeadlineExceeded, Unavailable, from_rpc_error

_DAY = 86_400.0


class Scope:
    """What one caller's work may take: a deadline, and a way to give it all up. Passed down to every call made for it."""

    def __init__(self, seconds: float | None = None) -> None:
        """seconds: until the deadline, at most a day; None is a day. (gRPC tells of no deadline as of one in the far future.)"""
        self._end = time.monotonic() + (_DAY if seconds is None else min(seconds, _DAY))
        self._calls: set[grpc.Call] = set()
        self._tied: list[Scope] = []
        self._lock = threading.Lock()
        self._cancelled = False

    def remaining(self) -> float:
        """Seconds left. Raises Cancelled or DeadlineExceeded when there are none."""
        if self._cancelled:
            raise Cancelled("given up by the caller")
        left = self._end - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded("the caller's time is over")
        return left

    @property
    def over(self) -> bool:
        """Whether there is no time left, or nobody wants it any more."""
        return self._cancelled or time.monotonic() >= self._end

    def cancel(self) -> None:
        """Gives up: calls in flight are cancelled, and no more are made."""
        with self._lock:
            self._cancelled = True
            calls = list(self._calls)
            tied = list(self._tied)
        for call in calls:
            call.cancel()
        for scope in tied:
            scope.cancel()

    @contextmanager
    def tied(self, seconds: float | None = None) -> Iterator[Scope]:
        """A scope within this one: given up with it, or alone."""
        inner = Scope(self.remaining() if seconds is None else min(seconds, self.remaining()))
        with self._lock:
            self._tied.append(inner)
        try:
            if self._cancelled:
                inner.cancel()
            yield inner
        finally:
            with self._lock:
                self._tied.remove(inner)

    def __enter__(self) -> Scope:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def watch(self, call: grpc.Call) -> None:
        """Counts a call in until it ends."""
        with self._lock:
            self._calls.add(call)
        if not call.add_callback(lambda: self._forget(call)):
            self._forget(call)
        if self._cancelled:
            call.cancel()

    def _forget(self, call: grpc.Call) -> None:
        with self._lock:
            self._calls.discard(call)


def unary(method: Callable[..., Any], request: Any, scope: Scope, most: float = _DAY) -> Any:
    """A call without arrays. ``most``: seconds that it may take at the most."""
    with _translated(scope):
        call = method.future(request, timeout=min(scope.remaining(), most))  # type: ignore[attr-defined]
        scope.watch(call)
        return call.result()


def stream(method: Callable[..., Any], request: Any, scope: Scope) -> Iterator[Any]:
    """A call that answers with a stream of messages without arrays."""
    with _translated(scope):
        call = method(request, timeout=scope.remaining())
        scope.watch(call)
        yield from call


def exchange(
    method: Callable[..., Any], first: Any, sent: Mapping[str, np.ndarray], scope: Scope
) -> tuple[dict[str, np.ndarray], list[Any]]:
    """A call with arrays both ways, and the messages that follow them. first: the header message; frames follow in messages of its type."""
    with _translated(scope):
        call = method(_requests(first, sent), timeout=scope.remaining())
        scope.watch(call)
        return arrays(response.frame for response in call), list(call)


def parcel(method: Callable[..., Any], request: Any, sent: Mapping[str, np.ndarray], scope: Scope) -> dict[str, np.ndarray]:
    """A call with a few arrays both ways, in one message each. request: all but its parcel, which is filled in."""
    request.parcel.CopyFrom(pack(sent))
    with _translated(scope):
        call = method.future(request, timeout=scope.remaining())  # type: ignore[attr-defined]
        scope.watch(call)
        return unpack(call.result().parcel)


def upload(method: Callable[..., Any], first: Any, sent: Mapping[str, np.ndarray], scope: Scope) -> Any:
    """A call with arrays one way."""
    with _translated(scope):
        call = method.future(_requests(first, sent), timeout=scope.remaining())  # type: ignore[attr-defined]
        scope.watch(call)
        return call.result()


@contextmanager
def _translated(scope: Scope) -> Iterator[None]:
    """gRPC's errors as ours. A call that was cancelled while its caller still wants it was on a lost worker's channel."""
    try:
        yield
    except grpc.RpcError as error:
        known = from_rpc_error(error)
        raise known if scope.over or not isinstance(known, Cancelled) else Unavailable("the worker is lost") from None
    except grpc.FutureCancelledError:
        raise (Cancelled("given up by the caller") if scope.over else Unavailable("the worker is lost")) from None
    except CodecError as error:
        raise Unavailable(f"an answer came damaged: {error}") from error
    except ValueError as error:
        if "hannel" in str(error):  # grpcio's way to say that the worker's channel was closed, since the worker is lost
            raise Unavailable("the worker is lost") from None
        raise


def _requests(first: Any, sent: Mapping[str, np.ndarray]) -> Iterator[Any]:
    yield first
    for frame in frames(sent):
        yield type(first)(frame=frame)

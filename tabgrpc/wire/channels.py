"""Channel and server arguments, in one place: a misspelt one is ignored in silence, so nothing else spells them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import grpc

MAX_MESSAGE_BYTES = 16 << 20
MAX_SOCKET_PATH = 100

_COMMON = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # without it a frozen peer goes unnoticed for a minute
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
CLIENT_OPTIONS = (*_COMMON, ("grpc.enable_retries", 0))  # retries are ours: the library's stop near 256 KiB
SERVER_OPTIONS = (
    *_COMMON,
    ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share it
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
)


class AddressInUse(OSError):
    """Somebody serves there already."""


def connect(address: str) -> grpc.Channel:
    """A channel to ``host:port`` or ``unix:/path``."""
    return grpc.insecure_channel(address, options=CLIENT_OPTIONS)


def bind(server: grpc.Server, address: str) -> str:
    """Binds a server to ``host:port`` (port 0 picks one) or ``unix:/path``; returns the real address.

    Raises AddressInUse. A unix path that exists is refused: gRPC would take it over from a living server without an error.
    """
    if address.startswith("unix:"):
        path = Path(address.removeprefix("unix:"))
        if len(str(path)) > MAX_SOCKET_PATH:
            raise OSError(f"socket path {path} is longer than {MAX_SOCKET_PATH} characters")
        if path.exists():
            raise AddressInUse(f"{address} is in use or was left behind")
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise AddressInUse(f"cannot bind {address}: the port is in use or not ours") from error
    if port == 0:
        raise AddressInUse(f"cannot bind {address}: the port is in use or not ours")
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"


def private_directory() -> Path:
    """A new directory of mode 0700 for unix sockets, short enough for their paths."""
    root = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    if len(root) > MAX_SOCKET_PATH - 40 or not os.access(root, os.W_OK):
        root = "/tmp"
    return Path(tempfile.mkdtemp(prefix="tabgrpc-", dir=root))

"""Binding: an address that is taken is an error, never a server that hides another."""

from __future__ import annotations

import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tabgrpc.wire.channels import MAX_SOCKET_PATH, SERVER_OPTIONS, AddressInUse, bind, private_directory


@pytest.fixture
def servers():
    """Makes servers and stops them."""
    made = []

    def make() -> grpc.Server:
        made.append(grpc.server(ThreadPoolExecutor(1), options=SERVER_OPTIONS))
        return made[-1]

    yield make
    for server in made:
        server.stop(0).wait(10)


def test_port_0_picks_one_that_can_be_reached(servers):
    server = servers()
    host, _, port = bind(server, "127.0.0.1:0").rpartition(":")
    server.start()
    assert host == "127.0.0.1"
    with socket.create_connection((host, int(port)), timeout=10):
        pass


def test_a_port_in_use_is_refused(servers):
    """By a server of ours, where SO_REUSEPORT would share it in silence, and by a stranger."""
    first = servers()
    address = bind(first, "127.0.0.1:0")
    first.start()
    with pytest.raises(AddressInUse, match=address):
        bind(servers(), address)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = f"127.0.0.1:{stranger.getsockname()[1]}"
        with pytest.raises(AddressInUse, match=taken):
            bind(servers(), taken)


def test_a_unix_path_that_exists_is_refused(servers, tmp_path):
    """grpc would take it over from a living server without an error."""
    path = tmp_path / "s"
    server = servers()
    assert bind(server, f"unix:{path}") == f"unix:{path}"
    server.start()
    with pytest.raises(AddressInUse, match="in use or was left behind"):
        bind(servers(), f"unix:{path}")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))  # the first one still serves
    (tmp_path / "file").write_text("")
    with pytest.raises(AddressInUse):
        bind(servers(), f"unix:{tmp_path}/file")


def test_a_long_socket_path_is_refused_by_length(servers, tmp_path):
    """The system's own limit is near 108 bytes, and its message names no number."""
    with pytest.raises(OSError, match=f"longer than {MAX_SOCKET_PATH} characters"):
        bind(servers(), f"unix:{tmp_path}/{'x' * MAX_SOCKET_PATH}")


def test_the_directory_of_sockets_is_ours_alone_and_short(monkeypatch, tmp_path):
    made = []
    for root in (tmp_path, "/" + "x" * 90, "/nonexistent"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(root))
        made.append(private_directory())
    try:
        for path in made:
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
            assert len(str(path)) <= MAX_SOCKET_PATH - 20
        assert len(set(made)) == 3
        assert Path(made[1]).parent == Path("/tmp")
    finally:
        for path in made:
            path.rmdir()

"""Files that are whole or not there: written beside, synced, renamed; read back against size and digest."""

from __future__ import annotations

import hashlib
import os
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

Data = bytes | bytearray | memoryview
PIECE_BYTES = 4 << 20
"""Read and hashed at once where a file isn't wanted whole."""


class DamagedModel(ValueError):
    """A file of a model is missing, cut short or changed. The message names it."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """path: relative to the model's directory, with forward slashes. size in bytes. sha256 in hexadecimal."""

    path: str
    size: int
    sha256: str

    def __post_init__(self) -> None:
        if not (isinstance(self.path, str) and type(self.size) is int and isinstance(self.sha256, str)):
            raise DamagedModel(f"{self.path!r} is not a file's path, size and SHA-256")

    def within(self, directory: Path) -> Path:
        """Where the file is. Raises DamagedModel for a path that leaves the directory, by name or by a link."""
        pure = PurePosixPath(self.path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in self.path:
            raise DamagedModel(f"{self.path!r} is not a path within a model")
        path = directory.joinpath(*pure.parts)
        if path.is_symlink() or not path.resolve().is_relative_to(directory.resolve()):
            raise DamagedModel(f"{path} is a link out of the model")
        return path


def write(directory: Path, path: str, data: Data) -> StoredFile:
    """Writes and syncs one file of a model; the parent directories are made. ``sync_folders`` makes its name durable."""
    return write_parts(directory, path, [data])


def write_parts(directory: Path, path: str, parts: Iterable[Data]) -> StoredFile:
    """As ``write``, of pieces one after the other, hashed as they are written."""
    target = StoredFile(path, 0, "").within(directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with _beside(target) as stream:
        for part in parts:
            digest.update(part)
            size += stream.write(part)
    return StoredFile(path, size, digest.hexdigest())


def replace(target: Path, data: bytes) -> None:
    """Puts ``data`` where ``target`` is, atomically and synced."""
    with _beside(target) as stream:
        stream.write(data)
    sync_directory(target.parent)


@contextmanager
def _beside(target: Path) -> Iterator[_Stream]:
    """A file that becomes ``target`` when it is whole and synced; nothing is left of it otherwise."""
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        try:
            yield _Stream(handle)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


class _Stream:
    """A file to append to, unbuffered: the pieces are large."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def write(self, part: Data) -> int:
        """Writes all of it; returns its bytes."""
        rest = memoryview(part).cast("B")
        size = len(rest)
        while rest:
            rest = rest[os.write(self._handle, rest) :]
        return size


def sync_folders(directory: Path, files: Iterable[StoredFile]) -> None:
    """Makes the names of files durable: every folder between them and the model's directory is synced, once."""
    folders = {directory}
    for file in files:
        path = file.within(directory).parent
        while path != directory and path not in folders:
            folders.add(path)
            path = path.parent
    for folder in sorted(folders, reverse=True):  # a folder before the one that names it
        sync_directory(folder)


def sync_directory(directory: Path) -> None:
    """Makes renames in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(directory: Path, file: StoredFile) -> memoryview:
    """The bytes of a file, checked, in memory of their own. Raises DamagedModel naming the file."""
    with opened(directory, file) as (handle, path):
        data = bytearray(file.size)
        view, digest, at = memoryview(data), hashlib.sha256(), 0
        while at < len(view):
            count = os.readv(handle, [view[at : at + PIECE_BYTES]])
            if not count:
                raise DamagedModel(f"{path} has {at} bytes instead of {file.size}")
            digest.update(view[at : at + count])
            at += count
    if digest.hexdigest() != file.sha256:
        raise DamagedModel(f"{path} is damaged: its SHA-256 differs from the manifest's")
    return view


def pieces(directory: Path, file: StoredFile, size: int = PIECE_BYTES) -> Iterator[bytes]:
    """The bytes of a file in pieces of ``size``; the digest is checked at the end. Raises DamagedModel naming the file."""
    with opened(directory, file) as (handle, path):
        digest, at = hashlib.sha256(), 0
        while at < file.size:
            data = os.pread(handle, min(size, file.size - at), at)
            if not data:
                raise DamagedModel(f"{path} has {at} bytes instead of {file.size}")
            digest.update(data)
            at += len(data)
            yield data
    if digest.hexdigest() != file.sha256:
        raise DamagedModel(f"{path} is damaged: its SHA-256 differs from the manifest's")


def check(directory: Path, file: StoredFile) -> None:
    """Reads a file against its digest, in little memory. Raises DamagedModel naming the file."""
    for _ in pieces(directory, file):
        pass


@contextmanager
def opened(directory: Path, file: StoredFile) -> Iterator[tuple[int, Path]]:
    """A descriptor of a file whose size is right, and its path. Links, pipes and devices are refused, and not waited for."""
    path = file.within(directory)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise DamagedModel(f"{path} can't be read: {error.strerror}") from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise DamagedModel(f"{path} can't be read: it is not a plain file")
        if status.st_size != file.size:
            raise DamagedModel(f"{path} has {status.st_size} bytes instead of {file.size}")
        yield handle, path
    finally:
        os.close(handle)

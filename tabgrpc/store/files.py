"""Files that are whole or not there: written beside, synced, renamed; read back against size and digest."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


class DamagedModel(ValueError):
    """A file of a model is missing, cut short or changed. The message names it."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """path: relative to the model's directory, with forward slashes. size in bytes. sha256 in hexadecimal."""

    path: str
    size: int
    sha256: str

    def __post_init__(self) -> None:
        if not (isinstance(self.path, str) and isinstance(self.size, int) and isinstance(self.sha256, str)):
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


def write(directory: Path, path: str, data: bytes) -> StoredFile:
    """Writes and syncs one file of a model; the parent directories are made."""
    file = StoredFile(path, len(data), hashlib.sha256(data).hexdigest())
    target = file.within(directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    replace(target, data)
    return file


def replace(target: Path, data: bytes) -> None:
    """Puts ``data`` where ``target`` is, atomically and synced."""
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
    sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    """Makes renames in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(directory: Path, file: StoredFile) -> bytes:
    """The bytes of a file, checked. Raises DamagedModel naming the file."""
    path = file.within(directory)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedModel(f"{path} can't be read: {error.strerror}") from error
    if len(data) != file.size:
        raise DamagedModel(f"{path} has {len(data)} bytes instead of {file.size}")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise DamagedModel(f"{path} is damaged: its SHA-256 differs from the manifest's")
    return data

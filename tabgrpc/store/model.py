"""A model's directory: ``manifest.json`` and the tile files it lists. The manifest is replaced atomically, the files never change."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from tabgrpc.core.geometry import MAX_CHUNKS, Geometry
from tabgrpc.core.policy import NumericPolicy
from tabgrpc.store.files import DamagedModel, StoredFile, check, opened, read, replace, sync_folders, write

FORMAT = 1
MANIFEST = "manifest.json"
SAVES = ("kv", "repr", "data")
"""What of the context a model keeps on disk: the layers' K/V, the rows' vectors, or the encoded rows alone."""
RESUME = "resume"
"""Folder in a model's directory for what a fit that isn't finished has finished so far."""
_MOST = {"rows": 1 << 40, "features": 1 << 20, "members": 1024, "version": 1 << 40}
_MOST_MANIFEST_BYTES = 256 << 20
_FOLDER = re.compile(r"v[0-9]+-[0-9a-f]{8}")
_BEGUN = re.compile(rf"\.{re.escape(MANIFEST)}\.[0-9a-f]{{8}}\.tmp")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class UnknownFormat(ValueError):
    """The directory was written by another version of tabgrpc, or isn't a model at all."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a model is, all but its numbers.

    version: counts up with every refit. folder: where this version's files are. members_file: preprocessing and members, plain arrays.
    checkpoint: name, kind and sha256 of the weights. policy: what it was computed with, libraries included. save: one of SAVES, what
    ``files`` hold. data_files: the encoded training rows, if they are kept. written_with: versions of what read and prepared the table.
    context_bytes: what all workers hold of it together when it is loaded.
    """

    version: int
    folder: str
    task: str
    rows: int
    schema: str
    geometry: Geometry
    policy: NumericPolicy
    checkpoint: Mapping[str, str]
    temperature: float
    average_probabilities: bool
    features: int
    members: int
    class_counts: tuple[int, ...]
    warnings: tuple[str, ...]
    written_by: str
    members_file: StoredFile
    files: tuple[StoredFile, ...] = field(default=())
    node_temperature: float = 0.9
    save: str = "kv"
    data_files: tuple[StoredFile, ...] = ()
    written_with: Mapping[str, str] = field(default_factory=dict)
    context_bytes: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError for what no fit writes: a manifest is data of a stranger, and sizes in it are allocated later."""
        for name, most in _MOST.items():
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise ValueError(f"{name} is {value!r}, not a whole number from 1 to {most}")
        if any(type(value) is not int for value in self.geometry.as_dict().values()):
            raise ValueError("the geometry's sizes are whole numbers")
        if self.geometry.rows != self.rows or self.geometry.chunks > MAX_CHUNKS or self.geometry.tile > 1 << 16:
            raise ValueError(f"no geometry of {self.rows} rows: {self.geometry}")
        if not isinstance(self.folder, str) or not _FOLDER.fullmatch(self.folder):
            raise ValueError(f"folder {self.folder!r} is not a version's")
        if self.save not in SAVES:
            raise ValueError(f"save is {self.save!r}, not one of {', '.join(SAVES)}")
        if self.task not in ("classification", "regression") or not isinstance(self.schema, str):
            raise ValueError(f"task is {self.task!r}, and the schema a text")
        if type(self.temperature) not in (int, float) or not self.temperature > 0:
            raise ValueError(f"temperature {self.temperature!r} is not positive")
        if missing := {"name", "kind", "sha256"} - set(self.checkpoint):
            raise ValueError(f"the checkpoint's {', '.join(sorted(missing))} is missing")

    @property
    def all_files(self) -> tuple[StoredFile, ...]:
        """Every file of this version."""
        return (self.members_file, *self.files, *self.data_files)

    @property
    def stored_bytes(self) -> int:
        """Bytes of every file of this version."""
        return sum(file.size for file in self.all_files)

    def to_json(self) -> str:
        """Readable JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str, where: str) -> Manifest:
        """Raises UnknownFormat, naming both formats, before anything else is looked at; DamagedModel for a manifest that isn't whole."""
        try:
            values: dict[str, Any] = json.loads(text)
            found = values.pop("format")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise UnknownFormat(f"{where} is not a manifest of tabgrpc") from error
        if found != FORMAT:
            raise UnknownFormat(f"{where} has format {found!r}, this version of tabgrpc reads format {FORMAT}")
        try:
            values["geometry"] = Geometry(**values["geometry"])
            values["policy"] = NumericPolicy.from_dict(values["policy"])
            values["members_file"] = StoredFile(**values["members_file"])
            for name in ("files", "data_files"):
                if name in values:
                    values[name] = tuple(StoredFile(**each) for each in values[name])
            values["class_counts"] = tuple(values["class_counts"])
            values["warnings"] = tuple(values["warnings"])
            return cls(**values)
        except (TypeError, KeyError, ValueError, AttributeError, RecursionError) as error:
            raise DamagedModel(f"{where} is damaged: {error}") from error


class BeingWritten(RuntimeError):
    """Somebody else writes a version of the model."""


def check_name(name: str) -> str:
    """The name if a model may have it. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a model's name has letters, digits, '.', '_' and '-', and starts with a letter or digit; {name!r} has not")
    return name


class ModelDirectory:
    """One model's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def manifest(self) -> Manifest:
        """The current version's. Raises DamagedModel if there is none."""
        where = self.path / MANIFEST
        try:
            size = where.lstat().st_size
            if size > _MOST_MANIFEST_BYTES:
                raise DamagedModel(f"{where} has {size:,} bytes, no manifest has more than {_MOST_MANIFEST_BYTES:,}")
            with opened(self.path, StoredFile(MANIFEST, size, "")) as (handle, _):
                text = os.pread(handle, size, 0).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise DamagedModel(f"{self.path} is not a model: {MANIFEST} can't be read") from error
        return Manifest.from_json(text, str(where))

    def verify(self) -> Iterator[tuple[StoredFile, str]]:
        """Reads every file of the current version against its digest: each with what is wrong with it, "" if nothing is.

        Raises DamagedModel, UnknownFormat if the manifest can't be read.
        """
        for file in self.manifest().all_files:
            try:
                check(self.path, file)
            except DamagedModel as error:
                yield file, str(error)
            else:
                yield file, ""

    def next_version(self) -> int:
        """The number of the version to be written next. Raises DamagedModel, UnknownFormat rather than write over what it can't read."""
        return self.manifest().version + 1 if (self.path / MANIFEST).exists() else 1

    @contextmanager
    def writing(self) -> Iterator[tuple[int, str]]:
        """A new version's number and folder, for this writer alone; if it isn't committed, nothing of it is left.

        Raises BeingWritten while another process or thread writes a version of the model.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise BeingWritten(f"{self.path} is being written by another fit") from error
            version = self.next_version()
            folder = self.new_folder(version)
            try:
                yield version, folder
            except BaseException:
                self.discard(folder)
                raise
        finally:
            os.close(handle)

    def new_folder(self, version: int) -> str:
        """A folder for a version's files, made now; nothing of an older version is touched."""
        folder = f"v{version}-{uuid.uuid4().hex[:8]}"
        (self.path / folder).mkdir(parents=True)
        return folder

    def write_members(self, folder: str, arrays: Mapping[str, np.ndarray]) -> StoredFile:
        """Writes preprocessing and members."""
        contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        return write(self.path, f"{folder}/members.safetensors", safetensors.numpy.save(contiguous))

    def read_members(self, file: StoredFile) -> dict[str, np.ndarray]:
        """Reads them back, checked."""
        try:
            return safetensors.numpy.load(bytes(read(self.path, file)))
        except SafetensorError as error:
            raise DamagedModel(f"{file.path} is not a safetensors file") from error

    def commit(self, manifest: Manifest) -> None:
        """Makes a version the current one, then removes the other versions' folders and what an unfinished fit left."""
        sync_folders(self.path, manifest.all_files)
        replace(self.path / MANIFEST, manifest.to_json().encode())
        for other in self.path.iterdir():
            if _FOLDER.fullmatch(other.name) and other.is_dir() and not other.is_symlink() and other.name != manifest.folder:
                shutil.rmtree(other, ignore_errors=True)
            elif _BEGUN.fullmatch(other.name):  # by a writer that was killed: this one has the lock
                other.unlink(missing_ok=True)
        shutil.rmtree(self.path / RESUME, ignore_errors=True)

    def discard(self, folder: str) -> None:
        """Removes a version that wasn't committed, and the directory if that was all."""
        shutil.rmtree(self.path / folder, ignore_errors=True)
        with suppress(OSError):
            self.path.rmdir()

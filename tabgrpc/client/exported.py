"""A model's files as a pool sends them, into a folder that is whole or not there."""

from __future__ import annotations

import os
import shutil
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

from tabgrpc.store.files import DamagedModel, StoredFile, replace, sync_directory, sync_folders, write_parts
from tabgrpc.store.model import MANIFEST, Manifest
from tabgrpc.v1 import models_pb2 as pb


def receive(parts: Iterator[pb.ExportModelResponse], destination: Path) -> Path:
    """Writes the files beside ``destination``, checks them, and renames the folder. Raises FileExistsError, DamagedModel.

    What a pool sends is data of a stranger: paths stay within the folder, and every file must be what the manifest says.
    """
    if destination.exists() or destination.is_symlink():
        raise FileExistsError(f"{destination} is there already")
    beside = destination.with_name(f".{destination.name}.{uuid.uuid4().hex[:8]}.tmp")
    beside.mkdir()
    try:
        found, manifest = _files(parts, beside)
        if sorted(found, key=lambda file: file.path) != sorted(manifest.all_files, key=lambda file: file.path):
            raise DamagedModel(f"the files that came for {destination} are not those of its manifest")
        sync_folders(beside, found)
        replace(beside / MANIFEST, manifest.to_json().encode())
        os.rename(beside, destination)
        sync_directory(destination.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return destination


def _files(parts: Iterator[pb.ExportModelResponse], directory: Path) -> tuple[list[StoredFile], Manifest]:
    found: list[StoredFile] = []
    head = next(parts, None)
    while head is not None:
        if head.WhichOneof("part") != "file":
            raise DamagedModel("a piece came without its file")
        about = head.file
        following: list[pb.ExportModelResponse] = []
        data = _pieces(parts, about, following)
        if about.path == MANIFEST:
            return found, Manifest.from_json(b"".join(data).decode(errors="replace"), MANIFEST)
        file = write_parts(directory, about.path, data)
        if file != StoredFile(about.path, about.size, about.sha256):
            raise DamagedModel(f"{about.path} came damaged")
        found.append(file)
        head = following[0] if following else None
    raise DamagedModel(f"{MANIFEST} did not come")


def _pieces(parts: Iterator[pb.ExportModelResponse], file: pb.ExportedFile, following: list[pb.ExportModelResponse]) -> Iterator[bytes]:
    """The bytes of a file; what comes after them is put into ``following``."""
    at = 0
    while at < file.size:
        part = next(parts, None)
        if part is None or part.WhichOneof("part") != "piece":
            raise DamagedModel(f"{file.path} was cut short on its way")
        piece = part.piece
        if piece.offset != at or not piece.data or at + len(piece.data) > file.size or zlib.crc32(piece.data) != piece.checksum:
            raise DamagedModel(f"{file.path} came damaged")
        at += len(piece.data)
        yield piece.data
    if (part := next(parts, None)) is not None:
        following.append(part)

"""The tile files of a fitted model: K/V of one member's chunk, all layers in one file, and one file of its inducing K/V.

Nothing in a file depends on how many workers there were: a chunk is a chunk whoever owned it. safetensors only; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from tabgrpc.store import files
from tabgrpc.store.files import DamagedModel, Data, StoredFile
from tabgrpc.store.layout import Place, header, header_bytes, places

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_HASHED_BYTES = 1 << 20


def save(directory: Path, path: str, tensors: Mapping[str, Tensor]) -> StoredFile:
    """Writes one tile file; the tensors' bytes lie in their order. They may be on any device."""
    return files.write_parts(directory, path, _parts(tensors))


def _parts(tensors: Mapping[str, Tensor]) -> Iterator[Data]:
    yield header({name: (_NAMES[tensor.dtype], tensor.shape) for name, tensor in tensors.items()})
    for tensor in tensors.values():
        if tensor.numel():
            data = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
            for at in range(0, len(data), _HASHED_BYTES):  # hashed and written while it is in the processor's cache
                yield data[at : at + _HASHED_BYTES]


def load(directory: Path, file: StoredFile) -> dict[str, Tensor]:
    """Reads one tile file, checked first: tensors over the file's bytes, which lie in memory of their own. Raises DamagedModel."""
    data = files.read(directory, file)
    return {name: _tensor(data[at.start : at.stop], at) for name, at in places(data, file.size, str(directory / file.path)).items()}


def _tensor(data: memoryview, place: Place) -> Tensor:
    """A tensor over some bytes, wherever they lie: to be copied before it is computed with, as a product's bits may follow alignment."""
    if not len(data):
        return torch.empty(place.shape, dtype=_DTYPES[place.dtype])
    return torch.frombuffer(data, dtype=torch.uint8).view(_DTYPES[place.dtype]).view(place.shape)


def scan(directory: Path, file: StoredFile) -> dict[str, tuple[Place, int]]:
    """Reads one tile file against its digest in little memory: each tensor's place, and the CRC-32 of its bytes.

    What was checked once can then be read piece by piece, and each piece checked alone. Raises DamagedModel.
    """
    found = {}
    with files.opened(directory, file) as (handle, path):
        digest = hashlib.sha256()
        head = os.pread(handle, header_bytes(os.pread(handle, 8, 0), file.size, str(path)), 0)
        digest.update(head)
        for name, place in places(head, file.size, str(path)).items():  # one after the other, to the end of the file
            checksum = 0
            for at in range(place.start, place.stop, _HASHED_BYTES):
                data = os.pread(handle, min(_HASHED_BYTES, place.stop - at), at)
                digest.update(data)
                checksum = zlib.crc32(data, checksum)
            found[name] = place, checksum
    if digest.hexdigest() != file.sha256:
        raise DamagedModel(f"{path} is damaged: its SHA-256 differs from the manifest's")
    return found


def layout(handle: int, file: StoredFile, where: str) -> dict[str, Place]:
    """Where the tensors of an open tile file lie. Raises DamagedModel."""
    head = os.pread(handle, header_bytes(os.pread(handle, 8, 0), file.size, where), 0)
    return places(head, os.fstat(handle).st_size, where)


def dtype_of(place: Place) -> torch.dtype:
    """A tensor's type."""
    return _DTYPES[place.dtype]

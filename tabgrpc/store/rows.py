"""The encoded training rows of a model, where they are kept: plain numbers, in files of bounded size. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tabgrpc.store.files import DamagedModel, Data, StoredFile, read, write_parts
from tabgrpc.store.layout import header, places
from tabgrpc.store.paths import data_path

_PART_BYTES = 64 << 20
_DTYPES = {"F64": np.float64, "I64": np.int64}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}


def save(directory: Path, folder: str, x: np.ndarray, y: np.ndarray) -> tuple[StoredFile, ...]:
    """x: (rows, F) float64. y: (rows,) int64 class codes or float64 values."""
    step = max(1, _PART_BYTES // (8 * (x.shape[1] + 1)))
    files = []
    for part, start in enumerate(range(0, len(x), step)):
        arrays = {"x": np.ascontiguousarray(x[start : start + step]), "y": np.ascontiguousarray(y[start : start + step])}
        head = header({name: (_NAMES[array.dtype], array.shape) for name, array in arrays.items()})
        parts: list[Data] = [head, *(array.reshape(-1).view(np.uint8).data for array in arrays.values())]
        files.append(write_parts(directory, data_path(folder, part), parts))
    return tuple(files)


def load(directory: Path, files: Sequence[StoredFile], rows: int, width: int, target: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows that ``save`` wrote. width: F. target: "I64" or "F64". Raises DamagedModel for anything else."""
    if sum(file.size for file in files) < rows * (width + 1) * 8:  # before the memory is asked for
        raise DamagedModel(f"{directory} keeps fewer training rows than the {rows:,} that its manifest tells of")
    x, y = np.empty((rows, width)), np.empty(rows, _DTYPES[target])
    at = 0
    for file in files:
        data, where = read(directory, file), str(directory / file.path)
        found = places(data, file.size, where)
        if found.keys() != {"x", "y"}:
            raise DamagedModel(f"{where} holds {sorted(found)}, not x and y")
        count = found["y"].shape[0] if found["y"].shape else 0
        if found["x"].shape != (count, width) or found["y"].shape != (count,) or at + count > rows:
            raise DamagedModel(f"{where} has rows of another table: {found['x'].shape}, {found['y'].shape}")
        if (found["x"].dtype, found["y"].dtype) != ("F64", target):
            raise DamagedModel(f"{where} has rows of type {found['x'].dtype}, targets of type {found['y'].dtype}")
        x[at : at + count] = np.frombuffer(data[found["x"].start : found["x"].stop], np.float64).reshape(count, width)
        y[at : at + count] = np.frombuffer(data[found["y"].start : found["y"].stop], _DTYPES[target])
        at += count
    if at != rows:
        raise DamagedModel(f"{directory} keeps {at:,} training rows, its manifest tells of {rows:,}")
    return x, y

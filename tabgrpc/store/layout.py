"""Where each tensor of a safetensors file lies, read from its header without trusting it, and such headers written.

The format is safetensors' (eight bytes of length, a JSON header, the numbers), so any reader of it can open a model's files. Ours says
the place of every tensor, so that a run of them can be read without the rest, and checks all it says before anything is allocated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tabgrpc.store.files import DamagedModel

DTYPES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}
"""Bytes of a number, by safetensors' name of its type."""
MAX_HEADER_BYTES = 32 << 20
MAX_DIMENSIONS = 8


@dataclass(frozen=True, slots=True)
class Place:
    """One tensor: its type, its sizes, and where its bytes start and stop in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def header(tensors: Mapping[str, tuple[str, Sequence[int]]]) -> bytes:
    """The header of a file with these tensors ((type, sizes) by name), whose bytes follow in the same order."""
    entries, at = {}, 0
    for name, (dtype, shape) in tensors.items():
        stop = at + DTYPES[dtype] * math.prod(shape)
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, stop]}
        at = stop
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def header_bytes(start: bytes | memoryview, size: int, where: str) -> int:
    """Bytes of length and header, from the first eight bytes of a file of ``size`` bytes. Raises DamagedModel."""
    length = int.from_bytes(start[:8], "little")
    if len(start) < 8 or length > min(MAX_HEADER_BYTES, size - 8):
        raise DamagedModel(f"{where} is not a safetensors file: its header doesn't fit it")
    return 8 + length


def places(data: bytes | memoryview, size: int, where: str) -> dict[str, Place]:
    """The tensors of a file of ``size`` bytes that starts with ``data``, in the order of their bytes.

    Raises DamagedModel if they are not what the header says, overlap, leave gaps, or are of another size than the file.
    """
    begin = header_bytes(data, size, where)
    try:
        entries = json.loads(bytes(data[8:begin]))
        found = {}
        for name, entry in entries.items():
            if name == "__metadata__":
                continue
            dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
            numbers = (*shape, start, stop)
            if dtype not in DTYPES or len(shape) > MAX_DIMENSIONS or any(type(n) is not int or n < 0 for n in numbers):
                raise ValueError(f"{name!r} is no tensor")
            if stop - start != DTYPES[dtype] * math.prod(shape):
                raise ValueError(f"{name!r} says {dtype} {shape} and has {stop - start} bytes")
            found[name] = Place(dtype, tuple(shape), begin + start, begin + stop)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedModel(f"{where} is not a safetensors file: {str(error)[:200]}") from error
    ordered = dict(sorted(found.items(), key=lambda item: (item[1].start, item[1].stop)))
    at = begin
    for name, place in ordered.items():
        if place.start != at:
            raise DamagedModel(f"{where} is not a safetensors file: {name!r} starts at {place.start}, not at {at}")
        at = place.stop
    if at != size:
        raise DamagedModel(f"{where} is not a safetensors file: {size} bytes, {at} of them described")
    return ordered

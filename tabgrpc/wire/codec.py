"""Named arrays on the wire: any number of bytes as a stream of frames (manifest, checksummed chunks, commit), a few as one parcel.

Nothing is handed out before all of it was there and checked.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from tabgrpc.internal.v1.shards_pb2 import ArraySpec, Chunk, Commit, Frame, Manifest, Parcel

CHUNK_BYTES = 1 << 20
PARCEL_BYTES = 8 << 20
MAX_STREAM_BYTES = 1 << 40
MAX_DIMENSIONS = 16
_DTYPES = frozenset({"float16", "float32", "float64", "int16", "int32", "int64", "uint16", "uint8", "bool"})


class CodecError(ValueError):
    """A stream of frames that is cut short, out of order, damaged or larger than it said."""


def frames(arrays: Mapping[str, np.ndarray]) -> Iterator[Frame]:
    """The frames of some arrays. The arrays must not change before the last frame was taken."""
    manifest, views = _flat(arrays)
    yield Frame(manifest=manifest)
    offset = 0
    for view in views:
        for start in range(0, len(view), CHUNK_BYTES):
            data = bytes(view[start : start + CHUNK_BYTES])
            yield Frame(chunk=Chunk(offset=offset, data=data, checksum=zlib.crc32(data)))
            offset += len(data)
    yield Frame(commit=Commit(size=offset))


def arrays(stream: Iterable[Frame], limit: int = MAX_STREAM_BYTES) -> dict[str, np.ndarray]:
    """The arrays of a stream of frames, writable. Raises CodecError; ``limit`` bounds the bytes that a stream may announce."""
    iterator = iter(stream)
    first = next(iterator, None)
    if first is None or first.WhichOneof("part") != "manifest":
        raise CodecError("a stream of arrays starts with its manifest")
    specs, sizes = _layout(first.manifest)
    total = sum(sizes)
    if total > limit:
        raise CodecError(f"a stream announces {total} bytes, more than the limit of {limit}")
    try:
        buffer = np.empty(total, np.uint8)
    except MemoryError as error:
        raise CodecError(f"a stream announces {total} bytes, more than there is memory for") from error
    received = 0
    for frame in iterator:
        part = frame.WhichOneof("part")
        if part == "commit":
            if received != total or frame.commit.size != total:
                raise CodecError(f"a stream announced {total} bytes and committed {frame.commit.size} after {received}")
            return _cut(buffer, specs, sizes)
        if part != "chunk":
            raise CodecError(f"unexpected {part or 'empty frame'} in a stream of arrays")
        data = frame.chunk.data
        if frame.chunk.offset != received or received + len(data) > total:
            raise CodecError(f"chunk at {frame.chunk.offset} of {len(data)} bytes where {received} of {total} were received")
        if zlib.crc32(data) != frame.chunk.checksum:
            raise CodecError(f"chunk at {received} is damaged: its checksum differs")
        buffer[received : received + len(data)] = np.frombuffer(data, np.uint8)
        received += len(data)
    raise CodecError(f"a stream of arrays ended after {received} of {total} bytes, without a commit")


def pack(arrays: Mapping[str, np.ndarray]) -> Parcel:
    """Some arrays as one message. Raises CodecError if they are too large for one."""
    manifest, views = _flat(arrays)
    data = b"".join(views)
    if len(data) > PARCEL_BYTES:
        raise CodecError(f"{len(data)} bytes don't fit a parcel of {PARCEL_BYTES}")
    return Parcel(manifest=manifest, data=data, checksum=zlib.crc32(data))


def unpack(parcel: Parcel) -> dict[str, np.ndarray]:
    """The arrays of a parcel, writable. Raises CodecError."""
    specs, sizes = _layout(parcel.manifest)
    if sum(sizes) != len(parcel.data):
        raise CodecError(f"a parcel announces {sum(sizes)} bytes and has {len(parcel.data)}")
    if zlib.crc32(parcel.data) != parcel.checksum:
        raise CodecError("a parcel is damaged: its checksum differs")
    return _cut(np.frombuffer(bytearray(parcel.data), np.uint8), specs, sizes)


_Specs = list[tuple[str, np.dtype, tuple[int, ...]]]


def _flat(arrays: Mapping[str, np.ndarray]) -> tuple[Manifest, list[memoryview]]:
    flat = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in arrays.items()}
    specs = [ArraySpec(name=name, dtype=array.dtype.name, shape=arrays[name].shape) for name, array in flat.items()]
    views = [memoryview(array.reshape(-1).view(np.uint8).data) if array.size else memoryview(b"") for array in flat.values()]
    return Manifest(arrays=specs), views


def _layout(manifest: Manifest) -> tuple[_Specs, list[int]]:
    specs = [(spec.name, _dtype(spec), _shape(spec)) for spec in manifest.arrays]
    return specs, [dtype.itemsize * int(np.prod(shape, dtype=np.int64)) for _, dtype, shape in specs]


def _dtype(spec: ArraySpec) -> np.dtype:
    if spec.dtype not in _DTYPES:
        raise CodecError(f"array {spec.name!r} has dtype {spec.dtype!r}, which is not sent")
    return np.dtype(spec.dtype)


def _shape(spec: ArraySpec) -> tuple[int, ...]:
    if any(size < 0 for size in spec.shape):
        raise CodecError(f"array {spec.name!r} has a negative size")
    product = 1
    for size in spec.shape:
        product *= max(size, 1)  # Python's integers: no overflow to slip through, nor behind a size of 0
    if product > MAX_STREAM_BYTES or len(spec.shape) > MAX_DIMENSIONS:
        raise CodecError(f"array {spec.name!r} is too large")
    return tuple(spec.shape)


def _cut(buffer: np.ndarray, specs: _Specs, sizes: list[int]) -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {}
    start = 0
    for (name, dtype, shape), size in zip(specs, sizes, strict=True):
        if name in out:
            raise CodecError(f"two arrays are named {name!r}")
        piece = buffer[start : start + size]
        if start % dtype.itemsize:
            piece = piece.copy()  # an array of wider items after an odd number of narrow ones
        out[name] = piece.view(dtype).reshape(shape)
        start += size
    return out

"""K/V that aren't in the memory that computes: in host memory or in files, and streamed from there in canonical order.

A model's files are its lowest tier: spilling it writes nothing that is there already. What was read once and checked against its digest is
checked again by CRC-32, tensor by tensor, each time that it is streamed: a file that changes under a running pool is an error.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import Run
from tabgrpc.store.files import DamagedModel
from tabgrpc.store.layout import Place
from tabgrpc_workers.kernels import KVRun
from tabgrpc_workers.movers import Mover

PIECE_BYTES = 32 << 20
"""K and V moved at once. Two pieces are in memory at a time: one that is computed with, one on its way."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive blocks of one run at one layer."""

    layer: int
    run: int
    blocks: range


class Away(Protocol):
    """Where a shard's K/V are.

    head_sizes: heads, their width and the numbers' type. host_bytes: of them in host memory. disk_bytes: of them in files only.
    """

    tier: str
    layers: int
    head_sizes: tuple[int, int, torch.dtype]
    host_bytes: int
    disk_bytes: int

    def pieces(self, layer: int) -> list[Piece]:
        """A layer in pieces, in the order of its blocks."""

    def read(self, piece: Piece) -> KVRun:
        """A piece in host memory. Raises DamagedModel."""


def cut(geometry: Geometry, run: int, blocks: range, layer: int, block_bytes: int) -> Iterator[Piece]:
    """A run in pieces of at most PIECE_BYTES, but of whole blocks; a table's short last block is a piece of its own."""
    size = max(1, PIECE_BYTES // max(block_bytes, 1))
    full = sum(len(geometry.block_rows(block)) == geometry.block for block in blocks)
    for at in range(0, full, size):
        yield Piece(layer, run, blocks[at : min(at + size, full)])
    if full < len(blocks):
        yield Piece(layer, run, blocks[full:])


class InHost:
    """K/V in host memory, of a worker that computes elsewhere."""

    tier = "host"
    disk_bytes = 0

    def __init__(self, geometry: Geometry, kv: list[list[KVRun]]) -> None:
        """kv: by layer, in host memory."""
        self._geometry, self._kv = geometry, kv
        self.layers = len(kv)
        self.head_sizes = kv[0][0].k.shape[1], kv[0][0].k.shape[3], kv[0][0].k.dtype
        self.host_bytes = sum(run.nbytes for layer in kv for run in layer)

    def pieces(self, layer: int) -> list[Piece]:
        found: list[Piece] = []
        for at, run in enumerate(self._kv[layer]):
            blocks = range(run.start, run.start + run.k.shape[0] + (run.tail is not None))
            each = 2 * run.k[0].numel() * run.k.element_size() if len(run.k) else 0
            found += cut(self._geometry, at, blocks, layer, each)
        return found

    def read(self, piece: Piece) -> KVRun:
        run = self._kv[piece.layer][piece.run]
        first = piece.blocks.start - run.start
        if first == run.k.shape[0]:
            return KVRun(piece.blocks.start, run.k[:0], run.v[:0], run.tail)
        return KVRun(piece.blocks.start, run.k[first : first + len(piece.blocks)], run.v[first : first + len(piece.blocks)], None)


@dataclass(frozen=True, slots=True)
class Spot:
    """One tensor's bytes in an open file, and their CRC-32."""

    handle: int
    where: str
    place: Place
    checksum: int


class OnDisk:
    """K/V in a model's tile files. The files are held open: a version that a newer one replaced can still be read to its end."""

    tier = "disk"
    host_bytes = 0

    def __init__(
        self, geometry: Geometry, runs: tuple[Run, ...], layers: int, dtype: torch.dtype, spots: dict[str, Spot], handles: list[int]
    ) -> None:
        """spots: by tensor's name, "k/<layer>/<block>" and so on, of all owned blocks. handles: to be closed in the end."""
        self._geometry, self._runs, self._dtype, self._spots, self._handles = geometry, runs, dtype, spots, handles
        self.layers = layers
        heads, _, width = spots[f"k/0/{runs[0].start}"].place.shape
        self.head_sizes = heads, width, dtype
        self.disk_bytes = sum(spot.place.stop - spot.place.start for spot in spots.values())

    def pieces(self, layer: int) -> list[Piece]:
        found: list[Piece] = []
        for at, run in enumerate(self._runs):
            place = self._spots[f"k/{layer}/{run.start}"].place
            found += cut(self._geometry, at, range(run.start, run.stop), layer, 2 * (place.stop - place.start))
        return found

    def read(self, piece: Piece) -> KVRun:
        shape = self._spots[f"k/{piece.layer}/{piece.blocks.start}"].place.shape
        k, v = (torch.empty(len(piece.blocks), *shape, dtype=self._dtype) for _ in range(2))
        for at, block in enumerate(piece.blocks):
            for name, into in (("k", k), ("v", v)):
                _read(self._spots[f"{name}/{piece.layer}/{block}"], into[at], f"{name}/{piece.layer}/{block}")
        if shape[1] == self._geometry.block:
            return KVRun(piece.blocks.start, k, v, None)
        none = torch.empty(0, shape[0], self._geometry.block, shape[2], dtype=self._dtype)
        return KVRun(piece.blocks.start, none, none, (k[0], v[0]))

    def __del__(self) -> None:  # not before the last query that reads from it has ended
        for handle in self._handles:
            os.close(handle)


def _read(spot: Spot, into: Tensor, name: str) -> None:
    data = memoryview(into.view(-1).view(torch.uint8).numpy().data)
    at = 0
    while at < len(data):
        count = os.preadv(spot.handle, [data[at:]], spot.place.start + at)
        if not count:
            raise DamagedModel(f"{spot.where} was cut short while it was in use: {name} is missing")
        at += count
    if zlib.crc32(data) != spot.checksum:
        raise DamagedModel(f"{spot.where} changed while it was in use: {name} differs from what was read before")


def checksum(tensor: Tensor) -> int:
    """CRC-32 of a tensor's bytes, as they are in a file."""
    return zlib.crc32(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


def open_file(path: Path) -> int:
    """A descriptor to be kept. Raises DamagedModel."""
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise DamagedModel(f"{path} can't be read: {error.strerror}") from error


class Meter:
    """What streaming has cost. Any thread may add."""

    def __init__(self) -> None:
        self.stalled_seconds, self.streamed_bytes = 0.0, 0
        self._lock = threading.Lock()

    def add(self, stalled: float, streamed: int) -> None:
        with self._lock:
            self.stalled_seconds += stalled
            self.streamed_bytes += streamed


def stream(away: Away, layers: Iterable[int], mover: Mover, readers: Executor, meter: Meter) -> Generator[tuple[int, KVRun], None, None]:
    """The pieces of some layers, in canonical order, where they are computed with; the next one is on its way meanwhile.

    The seconds that the caller waits for a piece are counted.
    """
    pieces = (piece for layer in layers for piece in away.pieces(layer))

    def fetch(piece: Piece) -> tuple[int, KVRun]:
        return piece.layer, mover.to_device(away.read(piece))

    first = next(pieces, None)
    coming = None if first is None else readers.submit(fetch, first)
    try:
        while coming is not None:
            began = time.perf_counter()
            layer, run = coming.result()
            mover.arrived(run)
            meter.add(time.perf_counter() - began, run.nbytes)
            following = next(pieces, None)
            coming = None if following is None else readers.submit(fetch, following)
            yield layer, run
            del run
    finally:
        if coming is not None:
            coming.cancel()

"""Who owns which chunks of which member, for one model version and one epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tabgrpc.core.geometry import Geometry

PLACEMENTS = ("auto", "rows", "members")


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive blocks of one member, ``start`` up to ``stop``, owned by one worker."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class OwnershipMap:
    """owners[member][chunk] is a worker's incarnation. A data call of another epoch is refused by the workers."""

    epoch: int
    owners: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if self.epoch < 1:
            raise ValueError(f"epochs count from 1, not {self.epoch}")
        if not self.owners or any(not chunks for chunks in self.owners):
            raise ValueError("every member has at least one chunk, and every chunk an owner")

    @property
    def workers(self) -> tuple[str, ...]:
        """Everybody who owns something, in order of first appearance."""
        return tuple(dict.fromkeys(owner for chunks in self.owners for owner in chunks))

    def owners_of(self, member: int) -> tuple[str, ...]:
        """The owners of a member's chunks, in chunk order, each once."""
        return tuple(dict.fromkeys(self.owners[member]))

    def runs(self, member: int, worker: str, geometry: Geometry) -> tuple[Run, ...]:
        """The runs of blocks of a member that a worker owns, maximal and in order."""
        runs: list[Run] = []
        for chunk, owner in enumerate(self.owners[member]):
            if owner != worker:
                continue
            blocks = geometry.chunk_blocks(chunk)
            if runs and runs[-1].stop == blocks.start:
                runs[-1] = Run(runs[-1].start, blocks.stop)
            else:
                runs.append(Run(blocks.start, blocks.stop))
        return tuple(runs)


def split_evenly(count: int, parts: int) -> list[range]:
    """``count`` things in ``parts`` consecutive shares that differ by at most one; the first shares are the larger ones."""
    base, extra = divmod(count, parts)
    shares, start = [], 0
    for part in range(parts):
        stop = start + base + (part < extra)
        shares.append(range(start, stop))
        start = stop
    return shares


def by_rows(epoch: int, members: int, chunks: int, workers: Sequence[str]) -> OwnershipMap:
    """Every member's rows divided over all workers. With fewer chunks than workers some own nothing."""
    owners: list[str] = []
    for worker, share in zip(workers, split_evenly(chunks, len(workers)), strict=True):
        owners += [worker] * len(share)
    return OwnershipMap(epoch, (tuple(owners),) * members)


def by_members(epoch: int, members: int, chunks: int, workers: Sequence[str]) -> OwnershipMap:
    """Whole members on workers: nothing is exchanged."""
    owners: list[tuple[str, ...]] = []
    for worker, share in zip(workers, split_evenly(members, len(workers)), strict=True):
        owners += [(worker,) * chunks] * len(share)
    return OwnershipMap(epoch, tuple(owners))

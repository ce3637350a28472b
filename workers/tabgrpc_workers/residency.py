"""Which models' K/V are in which kind of memory, under byte budgets. Least recently used go first, pinned ones never.

Models go down by tiers (a GPU's memory, host memory, files) when room is needed, and up again when they are used: at once where there is
room, else only in the place of models that were not used since this one's last use, so that two models that take turns don't chase each
other. Wherever its K/V are, a model answers, with the same bits.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tabgrpc.wire.errors import OutOfMemory
from tabgrpc_workers import storage
from tabgrpc_workers.away import Away, InHost, Meter, stream
from tabgrpc_workers.device import Task, finished
from tabgrpc_workers.kernels import KVRun
from tabgrpc_workers.movers import CpuMover, Mover
from tabgrpc_workers.shard import ModelShards, Shard

_READERS = 2


@dataclass(slots=True)
class _Record:
    """Of one model version. reserved: bytes set aside until it is complete. moving: whether they are for another epoch of one that is
    complete, so that they count beside it. used, before: turns of its last two uses.
    """

    pinned: bool = False
    reserved: int = 0
    moving: bool = False
    used: int = 0
    before: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes by tier. fixed: of the first tier what can't be made room of: pinned, or being fitted."""

    tiers: dict[str, int]
    fixed: int


@dataclass
class Residency:
    """The tiers of one worker. budget: bytes of the memory that computes; host_budget: of host memory, where that is another one.

    spill: folder for K/V of models that aren't saved by them. Decisions are made on the device thread, as its tasks.
    """

    budget: int
    spill: Path
    host_budget: int = 0
    mover: Mover = field(default_factory=CpuMover)
    meter: Meter = field(default_factory=Meter)

    def __post_init__(self) -> None:
        self._models: dict[str, ModelShards] = {}
        self._records: dict[str, _Record] = {}
        self._turns = itertools.count(1)
        self._lock = threading.RLock()
        self._readers = ThreadPoolExecutor(_READERS, "stream")

    # --- what there is ---

    def put(self, model: ModelShards) -> None:
        """A model is there, perhaps under another epoch than before."""
        with self._lock:
            self._models[model.model_version] = model
            self._record(model.model_version).moving = False

    def drop(self, model_version: str) -> None:
        """A model is gone."""
        with self._lock:
            self._models.pop(model_version, None)
            self._records.pop(model_version, None)

    def usage(self) -> Usage:
        """Bytes in use."""
        with self._lock:
            models = list(self._models.values())
            tiers = dict.fromkeys(self.mover.tiers, 0)
            tiers[self.mover.tiers[0]] = self.used
            for model in models:
                for away in (shard.away for shard in model.shards.values() if shard.away is not None):
                    tiers["host"] += away.host_bytes
                    tiers["disk"] += away.disk_bytes
            return Usage(tiers, self.used - sum(_movable(model) for model in self._candidates()))

    def of(self, model: ModelShards) -> dict[str, int]:
        """Bytes of one model by tier."""
        tiers = dict.fromkeys(self.mover.tiers, 0)
        tiers[self.mover.tiers[0]] += model.nbytes
        for away in (shard.away for shard in model.shards.values() if shard.away is not None):
            tiers["host"] += away.host_bytes
            tiers["disk"] += away.disk_bytes
        return tiers

    def held(self, model_version: str) -> int:
        """Bytes of the first tier that a model version has, under whatever epoch."""
        with self._lock:
            model = self._models.get(model_version)
            return 0 if model is None else model.nbytes

    @property
    def used(self) -> int:
        """Bytes of the first tier, with what is set aside."""
        with self._lock:
            names = {*self._models, *self._records}
            return sum(self._taken(name) for name in names)

    def _taken(self, name: str) -> int:
        model, record = self._models.get(name), self._records.get(name)
        held = 0 if model is None else model.nbytes
        if model is not None and model.complete and not (record is not None and record.moving):
            return held
        return max(held, record.reserved if record is not None else 0)

    def _record(self, name: str) -> _Record:
        return self._records.setdefault(name, _Record())

    def _candidates(self) -> list[ModelShards]:
        """Models that could give up their place, the least recently used first."""
        found = [
            model
            for name, model in self._models.items()
            if model.complete and not self._record(name).pinned and _movable(model)
        ]
        return sorted(found, key=lambda model: self._record(model.model_version).used)

    # --- room ---

    def reserve(self, name: str, wanted: int) -> Task[None]:
        """Sets bytes of the first tier aside for all shards of a model together, those that it holds already included, evicting ahead.

        Raises OutOfMemory, naming the bytes wanted and had, before anything is evicted or allocated.
        """
        with self._lock:
            room = self.budget - self.used + self._taken(name)
            if wanted > room + sum(_movable(model) for model in self._candidates() if model.model_version != name):
                fixed = self.used - self._taken(name) - sum(_movable(model) for model in self._candidates())
                raise OutOfMemory(
                    f"shards of {wanted:,} bytes don't fit: {max(self.budget - max(fixed, 0), 0):,} of {self.budget:,} bytes can be had, "
                    f"{max(fixed, 0):,} are pinned or in a fit"
                )
        yield from self._evict(wanted, name, None)
        with self._lock:
            known, record = self._models.get(name), self._record(name)
            record.reserved, record.moving = wanted, known is not None and known.complete

    def settle(self, name: str) -> None:
        """What was set aside isn't needed any more; of a model that is complete it counts no longer anyway."""
        with self._lock:
            if name in self._records:
                self._records[name].reserved, self._records[name].moving = 0, False
                if name not in self._models:
                    self._records.pop(name)

    def fits(self, name: str, wanted: int) -> bool:
        """Whether ``reserve`` would do."""
        with self._lock:
            room = self.budget - self.used + self._taken(name)
            return wanted <= room + sum(_movable(model) for model in self._candidates() if model.model_version != name)

    def _evict(self, wanted: int, name: str, older_than: int | None) -> Task[bool]:
        """Moves models down until so many bytes are free; whether they are. older_than: only models used before that turn."""
        while True:
            with self._lock:
                if wanted <= self.budget - self.used + self._taken(name):
                    return True
                candidates = [
                    model
                    for model in self._candidates()
                    if model.model_version != name and (older_than is None or self._record(model.model_version).used < older_than)
                ]
            if not candidates:
                return False
            yield from self.demote(candidates[0])

    # --- moving: a shard at once, so that no other task of the device ever finds one half moved ---

    def demote(self, model: ModelShards) -> Task[None]:
        """Moves a model's K/V one tier down: to host memory where that is another tier and has room, else to files."""
        wanted = _movable(model)
        host = len(self.mover.tiers) == 3 and wanted <= self.host_budget - self.usage().tiers["host"]
        for shard in list(model.shards.values()):
            if shard.kv:
                if host:
                    away: Away = InHost(model.geometry, [[self.mover.to_host(run) for run in layer] for layer in shard.kv])
                else:
                    away = finished(storage.to_disk(model, shard, self.spill))
                shard.captured.clear()  # it holds on to the K/V
                shard.away, shard.kv = away, []
            yield

    def promote(self, model: ModelShards) -> Task[None]:
        """Moves a model's K/V to where they are computed with. Queries that still read them from where they were go on doing so."""
        for shard in list(model.shards.values()):
            if shard.away is not None:
                kv = [finished(self.layer(model, shard, layer)) for layer in range(shard.away.layers)]
                shard.kv, shard.away = kv, None
            yield

    def layer(self, model: ModelShards, shard: Shard, layer: int) -> Task[list[KVRun]]:
        """One layer of a shard, whole, wherever it is."""
        if shard.away is None:
            return shard.kv[layer]
        runs: list[KVRun] = []
        for _, piece in self.stream(shard, range(layer, layer + 1)):
            runs = storage.joined(model.geometry, shard.runs, runs, piece)
            yield
        return runs

    def stream(self, shard: Shard, layers: range) -> Generator[tuple[int, KVRun], None, None]:
        """The pieces of some layers of a shard that is away, in canonical order."""
        assert shard.away is not None
        return stream(shard.away, layers, self.mover, self._readers, self.meter)

    # --- use ---

    def touch(self, model: ModelShards) -> Task[None]:
        """A model is about to be used: it comes up if there is room, or if those in its place weren't used since its last use."""
        with self._lock:
            record = self._record(model.model_version)
            record.before, record.used = record.used, next(self._turns)
            wanted = sum(shard.away.host_bytes + shard.away.disk_bytes for shard in model.shards.values() if shard.away is not None)
        if wanted and (yield from self._evict(wanted + model.nbytes, model.model_version, record.before)):
            yield from self.promote(model)

    def pin(self, model: ModelShards, pinned: bool) -> Task[None]:
        """Keeps a model in the first tier whatever else comes, or no longer. Raises OutOfMemory if it doesn't fit beside what is pinned."""
        if pinned:
            wanted = model.nbytes + sum(s.away.host_bytes + s.away.disk_bytes for s in model.shards.values() if s.away is not None)
            yield from self.reserve(model.model_version, wanted)
            try:
                yield from self.promote(model)
            finally:
                self.settle(model.model_version)
        with self._lock:
            self._record(model.model_version).pinned = pinned

    def pinned(self, model_version: str) -> bool:
        """Whether a model is pinned."""
        with self._lock:
            return model_version in self._records and self._records[model_version].pinned


def _movable(model: ModelShards) -> int:
    """Bytes of K/V in the first tier that can leave it. Inducing K/V are small and stay, and so do members with a tree of classes."""
    return sum(run.nbytes for shard in model.shards.values() if not shard.tree for layer in shard.kv for run in layer)

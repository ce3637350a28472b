"""Query rows through a model: cut into tiles, striped over home workers, reduced along the tree, aggregated over members.

A tile that breaks because a worker was lost is tried again, alone, when the model's shards are whole again; none of the others notices.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from tabgrpc.backbones.aggregate import class_logits, class_probabilities, embeddings, regression
from tabgrpc.backbones.hierarchy import aggregated
from tabgrpc.core import stripes
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.head import Head
from tabgrpc.core.plan import BackboneShape
from tabgrpc.core.reduction import complete
from tabgrpc.internal.v1 import shards_pb2 as pb
from tabgrpc.scheduler.calls import Scope, parcel
from tabgrpc.scheduler.fit import Arrays
from tabgrpc.scheduler.groups import Group, GroupLost
from tabgrpc.scheduler.models import Model, Placement
from tabgrpc.scheduler.partials import unpack
from tabgrpc.scheduler.rounds import Rounds
from tabgrpc.scheduler.tree_tile import through
from tabgrpc.scheduler.workers import Worker, WorkerPool
from tabgrpc.wire.codec import PARCEL_BYTES
from tabgrpc.wire.errors import OutOfMemory, QueueFull, StaleEpoch, Unavailable

MAX_ATTEMPTS = 12
_AGAIN = (Unavailable, StaleEpoch, OutOfMemory, QueueFull)


class _ContextTooLarge(OutOfMemory):
    """Out of memory with a single tile in flight: trying again can't help."""


class Predictor:
    """Runs query tiles of all models; a bounded number of them at once."""

    def __init__(self, pool: WorkerPool) -> None:
        """Tiles in flight are four for each of the pool's workers."""
        workers = pool.size
        self._pool = pool
        self._flight = _Flight(4 * workers)
        self._tiles = ThreadPoolExecutor(4 * workers, "tile")
        self._calls = ThreadPoolExecutor(16 * workers, "call")
        self._turn = itertools.count()
        self._rounds: dict[Group, Rounds] = {}
        self._lock = threading.Lock()

    def predict(self, model: Model, shape: BackboneShape, rows: np.ndarray, head: Head, scope: Scope) -> np.ndarray:
        """rows: (n, F) encoded features. Float64: class probabilities, then logits (n, 2 K); or what ``aggregate.regression`` gives for
        ``head``; or the rows' vectors (n, D)."""
        dtype = np.float64 if model.manifest.policy.dtype == "float64" else np.float32
        tile = model.manifest.geometry.tile
        seen = [array.astype(dtype) for _, array in model.members.transform_all(rows)]

        def one(part: range) -> np.ndarray:
            padded = [stripes.pad(array[part.start : part.stop], tile) for array in seen]
            return self._tile(model, shape, padded, head, scope)[: len(part)]

        answers: list[Future[np.ndarray]] = [self._tiles.submit(one, part) for part in stripes.tiles(len(rows), tile)]
        try:
            return np.concatenate([answer.result() for answer in answers])
        finally:
            for answer in answers:
                answer.cancel()

    def _tile(self, model: Model, shape: BackboneShape, x: list[np.ndarray], head: Head, scope: Scope) -> np.ndarray:
        """One padded tile, x[member]: (tile, F'), with retries."""
        attempts = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, _AGAIN) and not isinstance(error, _ContextTooLarge)),
            stop=stop_after_attempt(MAX_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.02, max=1.0),
            reraise=True,
        )
        for attempt in attempts:
            with attempt:
                scope.remaining()
                placement = model.placement
                if model.broken:
                    raise Unavailable(f"{model.version_name} can't be served: {model.broken}")
                try:
                    with self._flight.one(scope) as limit:
                        outputs = _Tile(self, model, placement, shape, head, scope, next(self._turn)).run(x)
                except (Unavailable, StaleEpoch):
                    serving = self._pool.serving()
                    if any(all(worker is not each for each in serving) for worker in placement.workers.values()):
                        model.wait_past(placement.map.epoch, scope)
                    raise
                except OutOfMemory as error:
                    if limit == 1:  # this tile was alone: fewer at once can't help
                        raise _ContextTooLarge(
                            f"the context of {model.version_name} does not fit beside one query tile: {error}; add workers, take fewer "
                            "members, or make room for it"
                        ) from error
                    self._flight.halve(limit)
                    raise
                return self._aggregate(model, head, outputs)
        raise AssertionError("Retrying ends by returning or raising")

    @staticmethod
    def _aggregate(model: Model, head: Head, outputs: list[np.ndarray]) -> np.ndarray:
        members, manifest = model.members, model.manifest
        if head.embeddings:
            return embeddings(outputs)
        if manifest.task == "regression":
            return regression(outputs, members.y_mean, members.y_scale, head)
        shuffles = [member.class_shuffle for member in members if member.class_shuffle is not None]
        if any(model.trees):
            return aggregated(
                outputs, shuffles, model.trees, manifest.temperature, manifest.node_temperature, manifest.average_probabilities
            )
        probabilities = class_probabilities(outputs, shuffles, manifest.temperature, manifest.average_probabilities)
        return np.concatenate([probabilities, class_logits(outputs, shuffles)], axis=1)

    def close(self) -> None:
        """No more tiles."""
        self._tiles.shutdown(wait=False, cancel_futures=True)
        self._calls.shutdown(wait=False, cancel_futures=True)

    def rounds(self, shards_name: str, placement: Placement, owners: tuple[str, ...], geometry: Geometry) -> Rounds | None:
        """Where tiles of these owners' members are computed by collectives; None where that can't be, or not yet."""
        group = self._pool.groups.ready(shards_name, placement, owners, geometry)
        if group is None:
            return None
        with self._lock:
            if group not in self._rounds:
                self._rounds = {each: rounds for each, rounds in self._rounds.items() if not each.lost}
                self._rounds[group] = Rounds(self._pool.groups, group)
            return self._rounds[group]  # if it is lost by now, what is asked of it fails at once

    def everywhere(self, calls: Sequence[tuple[object, ...]]) -> Iterator[Arrays]:
        """(method, request, arrays, scope) each, at once; the answers in order."""
        futures = [self._calls.submit(parcel, *call) for call in calls]  # type: ignore[arg-type]
        for future in futures:
            yield future.result()


def _parcels(members: list[int], each: int) -> list[list[int]]:
    """Members in groups whose arrays, ``each`` bytes a member, fit one message with room to spare."""
    size = max(1, PARCEL_BYTES // 2 // each)
    return [members[at : at + size] for at in range(0, len(members), size)]


class _Flight:
    """Tiles in flight, a limit that an out-of-memory error halves for good."""

    def __init__(self, limit: int) -> None:
        self._limit, self._count = limit, 0
        self._changed = threading.Condition()

    def halve(self, seen: int) -> None:
        """Halves the limit that the failed tile saw; the others that failed with it change nothing more."""
        with self._changed:
            if self._limit == seen:
                self._limit = max(1, seen // 2)

    @contextmanager
    def one(self, scope: Scope) -> Iterator[int]:
        """A place in flight, waited for inside the caller's time; the limit at that moment."""
        with self._changed:
            while self._count >= self._limit:
                self._changed.wait(min(scope.remaining(), 0.5))
            self._count += 1
            limit = self._limit
        try:
            yield limit
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify()


class _Tile:
    """One attempt at one tile on one placement."""

    def __init__(
        self,
        predictor: Predictor,
        model: Model,
        placement: Placement,
        shape: BackboneShape,
        head: Head,
        scope: Scope,
        turn: int,
    ) -> None:
        self._predictor, self._model, self._placement, self._shape = predictor, model, placement, shape
        self._head, self._scope, self._turn = head, scope, turn
        self._asked = pb.Head(levels=head.levels, variance=head.variance, quantiles=head.quantiles, embeddings=head.embeddings)

    def run(self, x: list[np.ndarray]) -> list[np.ndarray]:
        """Each member's outputs, in member order."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for member in range(len(x)):
            groups.setdefault(self._placement.map.owners_of(member), []).append(member)
        outputs: Arrays = {}
        each = max(x[0].nbytes, self._outputs_nbytes(x[0]))
        alone = [(owners[0], part) for owners, members in groups.items() if len(owners) == 1 for part in _parcels(members, each)]
        calls = []
        for name, members in alone:
            worker = self._placement.workers[name]
            request = pb.PredictTileRequest(
                ref=self._placement.ref(self._model.shards_name, worker), members=members, head=self._asked
            )
            calls.append((worker.stub.PredictTile, request, {f"x/{m}": x[m] for m in members}, self._scope))
        for answer in self._predictor.everywhere(calls):
            outputs |= answer
        for owners, members in groups.items():
            if len(owners) > 1 and self._model.trees[members[0]]:
                at_once = max(1, PARCEL_BYTES // 2 // self._largest(owners, members[0], x[0]))
                for member in members:
                    outputs |= through(self, owners, member, x[member], at_once)
            elif len(owners) > 1:
                largest = self._largest(owners, members[0], x[0])
                for part in _parcels(members, largest):
                    outputs |= self._shared(owners, part, x)
        return [outputs[f"out/{member}"] for member in range(len(x))]

    def _outputs_nbytes(self, x: np.ndarray) -> int:
        """Bytes of a member's outputs, at the most."""
        config = self._model.checkpoint.config
        nodes = max(len(tree) for tree in self._model.trees)
        width = max(int(config.get("max_classes", 10)) * max(nodes, 1), self._head.fixed)
        if self._head.quantiles:
            width += int(config.get("num_quantiles", 999))
        return x.shape[0] * max(width, self._shape.icl * self._head.embeddings) * x.itemsize

    def _largest(self, owners: tuple[str, ...], member: int, x: np.ndarray) -> int:
        """Bytes of the largest message about one member: its hidden rows, queries and root, or an owner's subtrees."""
        geometry = self._model.manifest.geometry
        vector = x.shape[0] * 2 * self._shape.icl * x.itemsize  # twice: sums and peaks come with each head's vector
        subtrees = 1
        for name in owners:
            runs = self._placement.map.runs(member, name, geometry)
            subtrees = max(subtrees, sum(min(len(run), 2 * geometry.blocks.bit_length()) for run in runs))
        return max(x.nbytes + max(3, subtrees) * vector, self._outputs_nbytes(x))

    def _shared(self, owners: tuple[str, ...], members: list[int], x: list[np.ndarray]) -> Arrays:
        """Members whose rows several workers own: the home worker computes the tile's vectors, all owners attend, layer by layer."""
        exchanged = self._exchanged(owners, members, x)
        if exchanged is not None:
            return exchanged
        home = self._placement.workers[stripes.home(self._turn, owners)]
        workers = [self._placement.workers[name] for name in owners]
        state = self._step(home, members, pb.TILE_STEP_KIND_OPEN, 0, {f"x/{m}": x[m] for m in members})
        if self._head.embeddings:
            return {f"out/{m}": state[f"hidden/{m}"] for m in members}
        for layer in range(self._shape.icl_layers):
            queries = {f"q/{m}": state[f"q/{m}"] for m in members}
            calls = [self._call(worker, members, pb.TILE_STEP_KIND_ATTEND, layer, queries) for worker in workers]
            parts = list(self._predictor.everywhere(calls))
            sent: Arrays = {f"hidden/{m}": state[f"hidden/{m}"] for m in members}
            for m in members:
                root = complete((n for part in parts for n in unpack(part, f"/{m}")), self._model.manifest.geometry.blocks)
                sent |= {f"acc/{m}": root.acc, f"sum/{m}": root.sum, f"peak/{m}": root.peak}
            state = self._step(home, members, pb.TILE_STEP_KIND_ADVANCE, layer, sent)
        return state

    def _exchanged(self, owners: tuple[str, ...], members: list[int], x: list[np.ndarray]) -> Arrays | None:
        """The same by collectives, if the owners have a group and it lasts. A row's vectors need no exchange."""
        geometry = self._model.manifest.geometry
        rounds = None
        if not self._head.embeddings:
            rounds = self._predictor.rounds(self._model.shards_name, self._placement, owners, geometry)
        if rounds is None:
            return None
        each = max(x[0].nbytes, self._outputs_nbytes(x[0]))
        try:
            return rounds.ask(tuple(members), {m: x[m] for m in members}, self._asked, each, self._scope)
        except GroupLost:
            return None

    def _call(
        self, worker: Worker, members: list[int], kind: pb.TileStepKind, layer: int, sent: Arrays
    ) -> tuple[object, pb.TileStepRequest, Arrays, Scope]:
        request = pb.TileStepRequest(
            ref=self._placement.ref(self._model.shards_name, worker), members=members, kind=kind, layer=layer, head=self._asked
        )
        return worker.stub.TileStep, request, sent, self._scope

    def _step(self, worker: Worker, members: list[int], kind: pb.TileStepKind, layer: int, sent: Arrays) -> Arrays:
        return next(self._predictor.everywhere([self._call(worker, members, kind, layer, sent)]))

"""The fit of a member with a tree of classes over several owners: the nodes' chunks go with the table's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from tabgrpc.core.classes import bases, class_tree, ownership
from tabgrpc.core.reduction import complete
from tabgrpc.internal.v1 import shards_pb2 as pb
from tabgrpc.scheduler.partials import unpack

if TYPE_CHECKING:
    from tabgrpc.scheduler.fit import Fit

Arrays = dict[str, np.ndarray]


class TreeMember:
    """The fit of a member with a tree whose rows several workers own."""

    def __init__(self, fit: Fit, member: int, counts: Sequence[int], labels: np.ndarray) -> None:
        """counts: rows of each label. labels: (rows,), as the member is shown them."""
        self._fit, self._member, self._labels = fit, member, labels
        placement = fit._placement
        self._tree = class_tree(counts, fit._shape.max_classes)
        self._owners = {name: placement.workers[name] for name in placement.map.owners_of(member)}
        self._nodes = ownership(self._tree, fit._geometry, placement.map.owners[member])

    def run(self) -> None:
        """All stages; whoever owns part of something waits for the others."""
        fit, blocks = self._fit, self._fit._geometry.blocks
        names = list(self._owners)
        with ThreadPoolExecutor(len(names)) as threads:

            def everywhere(kind: pb.FitStageKind, part: int, layer: int, sent: Mapping[str, Arrays]) -> dict[str, Arrays]:
                calls = {
                    name: threads.submit(fit.stage, self._owners[name], self._member, kind, layer, arrays, part)
                    for name, arrays in sent.items()
                }
                return {name: call.result() for name, call in calls.items()}

            nothing: dict[str, Arrays] = {name: {} for name in names}
            for digit in range(len(bases(self._tree[0].stop, fit._shape.max_classes))):
                for layer in range(fit._shape.column_blocks):
                    parts = everywhere(pb.FIT_STAGE_KIND_COLUMN, digit, layer, nothing)
                    root = complete((node for part in parts.values() for node in unpack(part, "")), blocks)
                    whole = {"acc": root.acc, "sum": root.sum, "peak": root.peak}
                    everywhere(pb.FIT_STAGE_KIND_COLUMN_END, digit, layer, dict.fromkeys(names, whole))
                    fit._count("column", blocks)
            vectors = self._vectors(everywhere(pb.FIT_STAGE_KIND_ROWS, 0, 0, nothing))
            fit._count("row", blocks)
            for number in range(len(self._tree)):
                self._node(number, vectors, everywhere)

    def _vectors(self, parts: Mapping[str, Arrays]) -> np.ndarray:
        """All rows' vectors (rows, D), in the table's order."""
        pieces = {int(name.removeprefix("hidden/")): array for part in parts.values() for name, array in part.items()}
        return np.concatenate([pieces[start] for start in sorted(pieces)])

    def _node(self, number: int, vectors: np.ndarray, everywhere: Callable[..., dict[str, Arrays]]) -> None:
        """Gives a node its rows, then layer after layer: alone where one worker owns it, else with the others' K/V."""
        fit, node = self._fit, self._tree[number]
        geometry = fit._geometry.of_rows(node.rows)
        rows = node.of(self._labels)
        targets = node.targets(self._labels[rows]).astype(vectors.dtype)
        owners = self._nodes.owners_of(number)
        sent: dict[str, Arrays] = {}
        for name in owners:
            sent[name] = {}
            for run in self._nodes.runs(number, name, geometry):
                part = slice(run.start * geometry.block, min(run.stop * geometry.block, geometry.rows))
                sent[name] |= {f"hidden/{run.start}": vectors[rows[part]], f"y/{run.start}": targets[part]}
        kv = everywhere(pb.FIT_STAGE_KIND_SPREAD, number, 0, sent)
        layers = fit._shape.icl_layers - 1
        if len(owners) == 1:
            everywhere(pb.FIT_STAGE_KIND_NODE, number, 0, {owners[0]: {}})
            fit._count("icl", geometry.blocks * layers)
            return
        for layer in range(layers):
            foreign = {
                own: {name: array for other, part in kv.items() if other != own for name, array in part.items()} for own in owners
            }
            kv = everywhere(pb.FIT_STAGE_KIND_ICL, number, layer, foreign)
            fit._count("icl", geometry.blocks)

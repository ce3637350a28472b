"""A pool in one process: real shards, real device threads, and the scheduler's relay through frames and numpy, but no sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from tabgrpc_workers import fit, query
from tabgrpc_workers.device import FIT, PREDICT, Device, Task
from tabgrpc_workers.kernels import KVRun
from tabgrpc_workers.shard import ModelShards, Shard, run_rows
from torch import Tensor

from tabgrpc.backbones.tabicl import TabICLBackbone
from tabgrpc.checkpoints import load_checkpoint
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.head import Head
from tabgrpc.core.ownership import OwnershipMap, by_rows
from tabgrpc.core.reduction import Node, Partial, complete
from tabgrpc.wire.codec import arrays, frames

LEVELS = (0.1, 0.5, 0.975)
TASKS = {"classifier": "classification", "regressor": "regression"}


@lru_cache(maxsize=8)
def weights(kind: str, randomised: bool) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(config, state) of the packaged mini checkpoint, or of the same network with every parameter perturbed.

    Perturbed ones have no zero-initialised part left (residual projections, the query MLPs of the scalable softmax), which would hide
    a fault in what it multiplies. Much larger perturbations make a network that amplifies rounding itself a thousandfold, upstream too.
    """
    checkpoint = load_checkpoint("mini", TASKS[kind])
    state = checkpoint.state_dict()
    if randomised:
        generator = torch.Generator().manual_seed(7)
        state = {
            name: t + torch.randn(t.shape, generator=generator) * (0.05 if t.ndim < 2 else 0.1 / t.shape[-1] ** 0.5)
            for name, t in sorted(state.items())  # a file gives them in no order
        }
    return checkpoint.config, state


@lru_cache(maxsize=16)
def backbone(kind: str, randomised: bool = True, dtype: torch.dtype = torch.float32) -> TabICLBackbone:
    config, state = weights(kind, randomised)
    return TabICLBackbone(config, state, dtype)


def table(kind: str, rows: int, features: int, queries: int = 64, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """(x, y, queries) like prepared inputs: numbers of size one, some ties, classes or a standardised target."""
    generator = torch.Generator().manual_seed(1000 * rows + features)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    x[:, 0] = x[:, 0].round()
    if kind == "classifier":
        y = (torch.rand(rows, generator=generator, dtype=torch.float64) * 3).floor()
    else:
        y = x.sum(1) + torch.randn(rows, generator=generator, dtype=torch.float64)
    return x.to(dtype), y.to(dtype), torch.randn(queries, features, generator=generator, dtype=torch.float64).to(dtype)


def relayed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Through the codec, as between processes: laid out plainly, other memory."""
    return {name: torch.from_numpy(array) for name, array in arrays(frames({n: t.numpy() for n, t in tensors.items()})).items()}


def relayed_node(node: Node) -> Node:
    """To numpy, where the scheduler reduces."""
    parts = arrays(frames({name: getattr(node.partial, name).numpy() for name in ("acc", "sum", "peak")}))
    return Node(node.level, node.index, Partial(parts["acc"], parts["sum"], parts["peak"]))


def root(nodes: Sequence[Node], total: int) -> Partial:
    """The scheduler's reduction, in numpy, as a tensor again. Subtrees arrive in no order."""
    whole = complete((relayed_node(node) for node in reversed(nodes)), total)
    return Partial(*(torch.from_numpy(np.array(part)) for part in (whole.acc, whole.sum, whole.peak)))


def relayed_run(run: KVRun) -> KVRun:
    parts = {"k": run.k, "v": run.v} | ({} if run.tail is None else {"kt": run.tail[0], "vt": run.tail[1]})
    got = relayed(parts)
    return KVRun(run.start, got["k"], got["v"], (got["kt"], got["vt"]) if "kt" in got else None)


def no_progress(_stage: str) -> None:
    pass


class Pool:
    """Owners of one member's rows, each with its own device thread."""

    def __init__(
        self,
        net: TabICLBackbone,
        x: Tensor,
        y: Tensor,
        owners: int = 1,
        store: bool = True,
        threads: int = 1,
        ownership: OwnershipMap | None = None,
    ) -> None:
        self.geometry = Geometry.of(x.shape[0], net.groups(x.shape[1]))
        names = [str(at) for at in range(owners)]
        self.map = ownership or by_rows(1, 1, self.geometry.chunks, names)
        self.models: list[ModelShards] = []
        self.devices: list[Device] = []
        for name in self.map.owners_of(0):
            runs = self.map.runs(0, name, self.geometry)
            shard = Shard(0, runs)
            model = ModelShards("models/m/versions/1", 1, net, self.geometry, x.shape[1], store, {0: shard})
            rows = {run.start: slice(run_rows(self.geometry, run).start, run_rows(self.geometry, run).stop) for run in runs}
            fit.open_shard(model, shard, {at: x[part] for at, part in rows.items()}, {at: y[part] for at, part in rows.items()})
            self.models.append(model)
            self.devices.append(Device(threads))

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for device in self.devices:
            device.close()

    def everywhere(self, task: Callable[[int, ModelShards, Shard, Device], Task[Any]], urgency: int = FIT) -> list[Any]:
        """A task on every owner, one after the other; the results in order."""
        return [
            device.run(task(at, model, model.shards[0], device), urgency)
            for at, (model, device) in enumerate(zip(self.models, self.devices, strict=True))
        ]

    def column(self, block: int) -> None:
        """One column block: partials of all owners, reduced, and its end on all owners."""
        nodes = self.everywhere(lambda _, model, shard, device: fit.column(model, shard, device, block, no_progress))
        whole = root([node for part in nodes for node in part], self.geometry.blocks)
        self.column_end(block, whole)

    def column_end(self, block: int, whole: Partial) -> None:
        def end(_: int, model: ModelShards, shard: Shard, device: Device) -> Task[None]:
            fit.column_end(model, shard, block, whole)
            yield

        self.everywhere(end)

    def rows(self) -> None:
        self.everywhere(lambda _, model, shard, device: fit.rows(model, shard, device, no_progress))

    def icl(self, layer: int) -> None:
        held = [[relayed_run(run) for run in model.shards[0].kv[layer]] for model in self.models]

        def task(at: int, model: ModelShards, shard: Shard, device: Device) -> Task[None]:
            foreign = [run for other, runs in enumerate(held) if other != at for run in runs]
            return fit.icl(model, shard, device, layer, foreign, no_progress)

        self.everywhere(task)

    def fit(self) -> Pool:
        """All stages, as the scheduler drives them; ``member``, as one owner does, where there is one."""
        if len(self.models) == 1:
            self.everywhere(lambda _, model, shard, device: fit.member(model, shard, device, no_progress))
            return self
        shape = self.models[0].backbone.shape
        for block in range(shape.column_blocks):
            self.column(block)
        self.rows()
        for layer in range(shape.icl_layers - 1):
            self.icl(layer)
        return self

    def predict(self, x: Tensor, levels: Sequence[float] = ()) -> Tensor:
        """One full tile (tile, F) to outputs (tile, O); its home is the last owner."""
        home, device = self.models[-1], self.devices[-1]
        if len(self.models) == 1:
            return device.run(query.tile(home, home.shards[0], x, Head(tuple(levels))), PREDICT).clone()

        def step(function: Callable[[], Any]) -> Task[Any]:
            yield
            return function()

        net, blocks, rows = home.backbone, self.geometry.blocks, self.geometry.rows
        hidden = device.run(query.vectors(home, home.shards[0], x), PREDICT)
        for layer in range(net.shape.icl_layers):
            q = relayed({"q": device.run(step(lambda h=hidden, at=layer: net.icl_queries(at, h, rows)), PREDICT)})["q"]
            nodes: list[Node] = []
            for model, each in zip(self.models, self.devices, strict=True):
                nodes += each.run(step(lambda m=model, at=layer, q=q: query.attention(m, m.shards[0], at, q)), PREDICT)
            whole = root(nodes, blocks)
            hidden = relayed({"h": device.run(step(lambda h=hidden, at=layer, w=whole: query.end(home, at, h, w)), PREDICT)})["h"]
        return device.run(step(lambda: net.head(hidden, Head(tuple(levels)))), PREDICT).clone()

    def held(self) -> list[Tensor]:
        """Everything that a fitted member consists of, in the order of its blocks: inducing K/V, then K/V of each layer and block."""
        shards = [model.shards[0] for model in self.models]
        out = [t for kv in shards[0].inducing for t in (kv.k, kv.v)]
        for layer in range(len(shards[0].kv)):
            blocks: dict[int, tuple[Tensor, Tensor]] = {}
            for run in (run for shard in shards for run in shard.kv[layer]):
                blocks |= {run.start + at: (run.k[at], run.v[at]) for at in range(run.k.shape[0])}
                if run.tail is not None:
                    blocks[run.start + run.k.shape[0]] = run.tail
            assert sorted(blocks) == list(range(self.geometry.blocks))
            out += [t for at in sorted(blocks) for t in blocks[at]]
        return out


def identical(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    """Bit for bit."""
    return len(left) == len(right) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes()
        for a, b in zip(left, right, strict=True)
    )

"""More classes than the network tells apart, against upstream TabICL 2.2.0 without a cache, on the same prepared inputs and weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from inprocess import backbone, identical
from tabgrpc_workers import fit, nodes
from tabgrpc_workers.device import FIT, PREDICT, Device
from tabgrpc_workers.shard import ModelShards, Shard
from tabicl._model.layers import OneHotAndLinear
from test_parity import QUERIES, TOLERANCE, network, without_amp
from torch import Tensor

from tabgrpc.backbones.hierarchy import as_logits, chained
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.head import Head
from tabgrpc.core.ownership import Run


@pytest.fixture
def one_hot_keeps_the_dtype(monkeypatch):
    """The one line of upstream that is patched, see test_parity.py."""

    def forward(self: OneHotAndLinear, src: torch.Tensor) -> torch.Tensor:
        return F.linear(F.one_hot(src.long(), self.num_classes).to(self.weight.dtype), self.weight, self.bias)

    monkeypatch.setattr(OneHotAndLinear, "forward", forward)


def table(rows: int, features: int, classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """(x, y, queries): labels in no order, all of them there, unevenly often, that x says something about."""
    generator = torch.Generator().manual_seed(rows + classes)
    y = torch.cat([torch.arange(classes), (torch.rand(rows - classes, generator=generator) ** 2 * classes).long()])
    y = y[torch.randperm(rows, generator=generator)].to(dtype)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    x[:, 0] += 4 * y / classes
    return x.to(dtype), y, torch.randn(QUERIES, features, generator=generator, dtype=torch.float64).to(dtype)


def upstream(dtype: torch.dtype, x: Tensor, y: Tensor, queries: Tensor) -> Tensor:
    net, config = network("classifier", True, dtype), without_amp()
    config.ICL_CONFIG.update({"offload": False})  # upstream asks for it here and only its estimators give it
    with torch.inference_mode():
        whole = torch.cat([x, queries])[None]
        return net(whole, y[None], return_logits=True, inference_config=config)[0]


def fitted(dtype: torch.dtype, x: Tensor, y: Tensor, device: Device, store: bool = True) -> tuple[ModelShards, Shard]:
    net = backbone("classifier", True, dtype)
    geometry = Geometry.of(x.shape[0], net.groups(x.shape[1]))
    counts = torch.bincount(y.long()).tolist()
    shard = nodes.prepared(0, (Run(0, geometry.blocks),), geometry, counts, net.shape.max_classes)
    model = ModelShards("models/m/versions/1", 1, net, geometry, x.shape[1], store, {0: shard})
    fit.open_shard(model, shard, {0: x}, {0: y})
    nodes.open_digits(model, shard)
    steps: list[str] = []
    device.run(nodes.member(model, shard, device, steps.append), FIT)
    assert len(steps) - steps.count("done") == nodes.units(model, shard)
    return model, shard


def ours(dtype: torch.dtype, x: Tensor, y: Tensor, queries: Tensor, temperature: float = 0.9) -> np.ndarray:
    device = Device()
    try:
        model, shard = fitted(dtype, x, y, device)
        outputs = device.run(nodes.tile(model, shard, queries, Head()), PREDICT).numpy()
    finally:
        device.close()
    return as_logits(chained(outputs, shard.tree, temperature), temperature)


def difference(dtype: torch.dtype, rows: int, features: int, classes: int, change: Callable[[Tensor], Tensor] = lambda y: y) -> float:
    """Largest, of the output's scale, between ours on changed labels and upstream's."""
    x, y, queries = table(rows, features, classes, dtype)
    want = upstream(dtype, x, y, queries).double().numpy()
    got = ours(dtype, x, change(y), queries)
    assert got.shape == want.shape == (QUERIES, classes)
    assert want.std(0).max() > 1e-3 * abs(want).max(), "outputs that are all alike would show nothing"
    return float(abs(got - want).max() / abs(want).max())


@pytest.mark.parametrize(("rows", "features", "classes"), [(300, 4, 11), (200, 3, 12), (260, 1, 26), (404, 3, 101)])
def test_classes_are_upstreams(rows, features, classes):
    """Catches any digit, group, row list, target or count that isn't upstream's, with one and with two levels of groups.

    5e-5, the contract's number for float32: both sides round in another order; the logarithm of small probabilities is upstream's too.
    """
    assert difference(torch.float32, rows, features, classes) <= TOLERANCE[torch.float32]


@pytest.mark.usefixtures("one_hot_keeps_the_dtype")
def test_in_float64_only_upstreams_own_float32_is_left():
    """Upstream's group probabilities are float32 whatever the network's dtype is, hence 1e-6 here, not 1e-12."""
    assert difference(torch.float64, 200, 3, 12) <= 1e-6


def test_other_labels_are_another_answer():
    """The negative control: two labels swapped in the context show far above the tolerance."""

    def swapped(y: Tensor) -> Tensor:
        return torch.where(y == 0, 7, torch.where(y == 7, 0, y))

    assert difference(torch.float32, 200, 3, 12, swapped) > 100 * TOLERANCE[torch.float32]


def test_cells_computed_again_give_the_same_bits():
    """With and without stored embeddings; catches a digit's cells taken for another's."""
    x, y, _ = table(300, 4, 26, torch.float32)
    device = Device()
    try:
        held = []
        for store in (True, False):
            model, shard = fitted(torch.float32, x, y, device, store)
            runs = [run for node in shard.contexts().values() for layer in node.kv for run in layer]
            held.append([t for run in runs for t in (run.k, run.v, *(run.tail or ()))])
            assert shard.data == []
            assert model.nbytes == shard.nbytes > sum(t.numel() * 4 for t in held[-1])
    finally:
        device.close()
    assert identical(*held)


def test_the_temperature_is_honoured_at_every_node():
    """Upstream's nodes are always at 0.9. Catches a temperature that is left out at the root or at the leaves."""
    x, y, queries = table(200, 3, 12, torch.float32)
    device = Device()
    try:
        model, shard = fitted(torch.float32, x, y, device)
        outputs = device.run(nodes.tile(model, shard, queries, Head()), PREDICT).double()
    finally:
        device.close()
    root, first, second = outputs.split(10, dim=1)
    for temperature in (0.5, 0.9, 3.0):
        groups, left, right = (F.softmax(part[:, :size] / temperature, 1) for part, size in ((root, 2), (first, 6), (second, 6)))
        want = torch.cat([left * groups[:, :1], right * groups[:, 1:]], 1).numpy()
        got = chained(outputs.numpy(), shard.tree, temperature)
        assert abs(got - want).max() < 1e-14
        assert abs(got.sum(1) - 1).max() < 1e-12

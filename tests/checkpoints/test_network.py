"""The training network is upstream's, the prior is finite and of the right form, and a run can be gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tabicl._model.tabicl import TabICL

from tools.pretrain.losses import class_loss, quantile_loss
from tools.pretrain.network import Network, NetworkConfig
from tools.pretrain.optimizer import Optimizer
from tools.pretrain.prior import draw
from tools.pretrain.prior.chance import standard
from tools.pretrain.prior.columns import relevance
from tools.pretrain.prior.functions import FAMILIES
from tools.pretrain.prior.inputs import features
from tools.pretrain.prior.prepare import prepare
from tools.pretrain.state import Progress, load_state, save_state

SMALL = {"embed_dim": 16, "col_nhead": 2, "row_nhead": 2, "icl_nhead": 2, "icl_num_blocks": 2, "col_num_inds": 4}
CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", [{}, {"max_classes": 0, "num_quantiles": 9}])
def test_training_forward_is_upstreams(kind: dict[str, int]) -> None:
    torch.manual_seed(0)
    network = Network(NetworkConfig(**SMALL, **kind))
    for p in network.parameters():
        if p.requires_grad:  # zero-initialised parts would hide a difference
            p.data += 0.1 * torch.randn_like(p)
    peer = TabICL(**network.config.upstream()).train()
    peer.load_state_dict(network.state_dict(), strict=True)
    X, y = torch.randn(3, 30, 5), torch.randint(0, 4, (3, 20)).float()
    with torch.no_grad():
        ours, theirs = network(X, y), peer(X, y)
    # Same operations in another order (CLS columns left out): float32 rounding, no more.
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 2, 7, 40])
def test_every_family_is_finite_and_shaped(columns: int) -> None:
    torch.manual_seed(columns)
    for family in FAMILIES:
        for outputs in (1, 3):
            X = features(3, 40, columns, CPU)
            t = standard(family(X, relevance(X), outputs))
            assert t.shape == (3, 40, outputs) and torch.isfinite(t).all(), family.__name__


@pytest.mark.parametrize("classifier", [True, False])
def test_drawn_tables_are_what_the_network_is_fed(classifier: bool) -> None:
    torch.manual_seed(1)
    for rows, columns in ((40, 1), (64, 6), (48, 33)):
        n = rows * 3 // 4
        batch = draw(12, rows, columns, n, classifier=classifier, most=1.0, device=CPU)
        assert batch.X.shape == (12, rows, columns) and batch.X.dtype == torch.float32
        assert torch.isfinite(batch.X).all() and torch.isfinite(batch.y).all()
        if classifier:
            for y, classes in zip(batch.y[:, :n], batch.classes, strict=True):
                assert y.unique().tolist() == list(range(int(classes)))  # no class is skipped
        else:
            assert batch.y[:, :n].mean(1).abs().max() < 0.6  # clamping may move it, never far


def test_preparation_sees_the_context_only() -> None:
    torch.manual_seed(2)
    X = torch.randn(2, 50, 4).exp()
    other = X.clone()
    other[:, 40:] *= 100  # the query rows
    for power in (False, True):
        assert torch.equal(prepare(X, 40, power)[:, :40], prepare(other, 40, power)[:, :40])


def test_a_resumed_run_takes_the_same_steps(tmp_path: Path) -> None:
    def step(network: Network, optimizer: Optimizer) -> float:
        batch = draw(4, 32, 3, 24, classifier=True, most=0.5, device=CPU, groups=2)
        loss, _ = class_loss(network(batch.X, batch.y[:, :24]), batch)
        loss.backward()
        optimizer.step(0.1)
        return loss.item()

    torch.manual_seed(3)
    network = Network(NetworkConfig(**SMALL))
    optimizer = Optimizer(network)
    for _ in range(3):
        step(network, optimizer)
    save_state(tmp_path / "state", network, optimizer, Progress(3, 12, 1.0))
    on = [step(network, optimizer) for _ in range(3)]
    again = Network(NetworkConfig(**SMALL))
    fresh = Optimizer(again)
    assert load_state(tmp_path / "state", again, fresh) == Progress(3, 12, 1.0)
    # The generators are restored exactly, the weights to half precision: same tables, losses a little apart.
    assert [step(again, fresh) for _ in range(3)] == pytest.approx(on, abs=5e-3)


def test_pinball_loss_is_least_at_the_quantiles() -> None:
    torch.manual_seed(4)
    batch = draw(8, 200, 2, 100, classifier=False, most=0.0, device=CPU, groups=2)
    level = torch.arange(1, 10) / 10
    y = batch.y[:, 100:]
    best = torch.quantile(y, level, dim=1).T[:, None].expand(-1, 100, -1)
    least, _ = quantile_loss(best, batch)
    for shift in (-0.2, 0.2):
        worse, _ = quantile_loss(best + shift, batch)
        assert worse > least

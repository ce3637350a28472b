"""Stages that ended half-way, or are asked again too late."""

from __future__ import annotations

import pytest
from inprocess import Pool, backbone, identical, no_progress, table
from tabgrpc_workers import fit
from tabgrpc_workers.device import FIT

from tabgrpc.wire.errors import Cancelled, NotReady


class Gone:
    """A caller who leaves after so many steps of its task."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left >= 0


@pytest.mark.parametrize("owners", [1, 2])
def test_a_stage_that_was_given_up_anywhere_can_be_asked_again(owners):
    """The deadline of a call passes between any two quanta. Catches a shard that is left between two layers for good."""
    net = backbone("classifier")
    x, y, asked = table("classifier", 300, 3)
    with Pool(net, x, y, owners).fit() as plain, Pool(net, x, y, owners) as pool:

        def given_up_everywhere(task) -> None:
            """Runs a stage on each owner, given up after 0, 1, 2, ... steps, until it ends."""
            for at, (model, device) in enumerate(zip(pool.models, pool.devices, strict=True)):
                for steps in range(100):
                    try:
                        device.run(task(at, model, model.shards[0], device), FIT, Gone(steps))
                        break
                    except Cancelled:
                        continue
                else:
                    pytest.fail("never ends")

        for block in range(net.shape.column_blocks):
            given_up_everywhere(lambda _, model, shard, device, block=block: fit.column(model, shard, device, block, no_progress))
            pool.column(block)
        given_up_everywhere(lambda _, model, shard, device: fit.rows(model, shard, device, no_progress))
        for layer in range(net.shape.icl_layers - 1):
            held = [list(model.shards[0].kv[layer]) for model in pool.models]

            def stage(at, model, shard, device, layer=layer, held=held):
                foreign = [run for other, runs in enumerate(held) if other != at for run in runs]
                return fit.icl(model, shard, device, layer, foreign, no_progress)

            given_up_everywhere(stage)
        assert identical(pool.held(), plain.held())
        assert identical([pool.predict(asked)], [plain.predict(asked)])


def test_a_late_repetition_does_not_touch_a_fitted_shard():
    """A call that the network delivers after the fit. Catches K/V emptied, inducing K/V cut short: silent wrong answers."""
    net = backbone("classifier")
    x, y, asked = table("classifier", 300, 3)
    with Pool(net, x, y, 2).fit() as pool:
        held, answer = [t.clone() for t in pool.held()], pool.predict(asked)
        for late in (lambda: pool.column(0), pool.rows):
            with pytest.raises(NotReady, match="fitted already"):
                late()
        with Pool(net, x, y) as other:
            nodes = other.everywhere(lambda _, model, shard, device: fit.column(model, shard, device, 0, no_progress))[0]
            with pytest.raises(NotReady, match="fitted already"):
                pool.column_end(0, nodes[0].partial)
        pool.icl(net.shape.icl_layers - 2)  # the last stage again: nothing to do
        with pytest.raises(NotReady, match="at ICL layer"):
            pool.icl(0)
        assert identical(pool.held(), held)
        assert identical([pool.predict(asked)], [answer])

"""Case A17: more classes than the network tells apart, with the K/V kept. Real processes, real sockets, ``==``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tables import numbers, options, random_checkpoint

from tabgrpc import LocalPool

pytestmark = pytest.mark.timeout(600)

FEATURES = 4
CLASSES = {11: 300, 12: 150, 26: 150, 101: 303}  # 11: of several blocks in each node, so that nodes have several owners


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(random_checkpoint(tmp_path_factory.mktemp("checkpoint") / "classifier", "classifier"))


def arrays(classes: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, 4) numbers and (rows,) labels, all of them there."""
    rng = np.random.default_rng(classes)
    y = rng.permutation(np.concatenate([np.arange(classes), rng.integers(classes, size=rows - classes)]))
    x = rng.normal(size=(rows, FEATURES))
    x[:, 0] += 4 * y / classes
    return x, y


def frame(x: np.ndarray, y: np.ndarray | None = None) -> pa.Table:
    columns = {f"f{i}": x[:, i] for i in range(FEATURES)}
    return pa.table(columns if y is None else columns | {"y": y})


def asked() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(70, FEATURES))


def answers(pool: LocalPool, checkpoint: str, placement: str, which: Sequence[int] = tuple(CLASSES)) -> dict[int, np.ndarray]:
    found = {}
    for classes in which:
        rows = CLASSES[classes]
        table = pool.client.upload(frame(*arrays(classes, rows)))
        wanted = options("classification", checkpoint=checkpoint, n_estimators=2, placement=placement)
        fitted = pool.client.fit(f"m{classes}-{placement}", table, wanted)
        assert len(fitted.classes) == classes
        answer = pool.client.predict(f"m{classes}-{placement}", frame(asked()))
        found[classes] = numbers(answer)
        assert found[classes].shape == (70, classes)
        assert abs(found[classes].sum(axis=1) - 1).max() < 1e-6
        labels = [int(name.removeprefix("proba_")) for name in answer.column_names[1:]]
        assert answer["prediction"].to_pylist() == [labels[at] for at in found[classes].argmax(axis=1)]
    return found


@pytest.mark.parametrize(
    "matrix",
    [
        {(2, "rows"): (11, 12, 101), (3, "rows"): (11, 26), (3, "members"): (12, 101)},
        pytest.param({(n, each): tuple(CLASSES) for n in (2, 3, 5) for each in ("rows", "members")}, marks=pytest.mark.slow),
    ],
    ids=["some", "all"],
)
def test_a17_bits_do_not_depend_on_workers_or_placement_or_reload(
    matrix: dict[tuple[int, str], tuple[int, ...]], checkpoint: str, tmp_path: Path
) -> None:
    """Catches a node whose count, blocks or order of rows follow the shards, and files that miss a node or a digit."""
    store = tmp_path / "store"
    with LocalPool(1, store=store) as pool:
        reference = answers(pool, checkpoint, "rows")
    for workers in sorted({workers for workers, _ in matrix}):
        with LocalPool(workers, store=store) as pool:
            pool.client.load("m101-rows", strict_bits=True)  # written by fewer workers
            assert np.array_equal(numbers(pool.client.predict("m101-rows", frame(asked()))), reference[101])
            for (count, placement), which in matrix.items():
                if count == workers:
                    for classes, found in answers(pool, checkpoint, placement, which).items():
                        assert np.array_equal(found, reference[classes]), f"{classes} classes on {workers} workers by {placement}"
            parts = [numbers(pool.client.predict("m11-rows", frame(asked()[at : at + 7]))) for at in range(0, 70, 35)]
            assert np.array_equal(np.concatenate(parts), reference[11][[*range(7), *range(35, 42)]])


def test_a17_as_upstreams_estimator_without_cache(checkpoint: str, tmp_path: Path) -> None:
    """The whole way: preprocessing, class shuffles, trees, averages, at another temperature and with averaged probabilities.

    5e-5 of probabilities, the contract's number for float32. TabICL's nodes are at 0.9 whatever it is told: ``node_temperature`` does that,
    and without it the temperature counts at the nodes too, which must show.
    """
    from tabicl import TabICLClassifier

    from tabgrpc.checkpoints import load_checkpoint
    from tabgrpc.checkpoints.convert import convert

    path = convert(load_checkpoint(checkpoint), tmp_path / "upstream.ckpt")
    x, y = arrays(26, 150)
    with LocalPool(2) as pool:
        table = pool.client.upload(frame(x, y))

        def ours(**more: object) -> np.ndarray:
            pool.client.fit("m", table, options("classification", checkpoint=checkpoint, n_estimators=2, **more))
            return numbers(pool.client.predict("m", frame(asked())))

        for average_logits in (False, True):
            model = TabICLClassifier(
                n_estimators=2, model_path=path, device="cpu", random_state=0, softmax_temperature=0.6, average_logits=average_logits
            )
            want = model.fit(x, y).predict_proba(asked())
            more = {"softmax_temperature": 0.6, "average_probabilities": not average_logits}
            got = ours(node_temperature=0.9, **more)
            assert want.std() > 1e-3, "probabilities that are all alike would show nothing"
            assert abs(got - want).max() <= 5e-5
        assert abs(ours(**more) - want).max() > 1e-3

"""Members to one answer: upstream's averages, row by row. Case B01: a row's answer doesn't depend on its batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tabicl import TabICLClassifier

from tabgrpc.backbones.aggregate import class_probabilities, regression
from tabgrpc.core.head import Head

sizes = {"rows": st.integers(1, 70), "members": st.integers(1, 9), "seed": st.integers(0, 2**32 - 1)}


def draw(rows: int, members: int, seed: int, width: int) -> tuple[list[np.ndarray], np.random.Generator]:
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(rows, width)) * 5).astype(np.float32) for _ in range(members)], rng


@given(**sizes, classes=st.integers(2, 10), temperature=st.sampled_from([0.9, 1.0, 0.5]))
def test_classes_are_averaged_as_upstream_does(rows, members, seed, classes, temperature):
    """Logits undone, averaged, one softmax. Upstream's own softmax; it averages in float32, hence 1e-6 of probabilities of at most 1.

    Catches an average of probabilities, a shuffle applied instead of undone, a temperature applied twice.
    """
    logits, rng = draw(rows, members, seed, 10)
    shuffles = [rng.permutation(classes) for _ in range(members)]
    got = class_probabilities(logits, shuffles, temperature)
    average = np.mean([member[:, shuffle] for member, shuffle in zip(logits, shuffles, strict=True)], axis=0)
    want = TabICLClassifier.softmax(average, axis=-1, temperature=temperature)
    assert got.shape == (rows, classes)
    assert abs(got - want).max() <= 1e-6
    assert abs(got.sum(1) - 1).max() <= 1e-12


@given(**sizes, outputs=st.integers(1, 5))
def test_regression_is_averaged_in_the_targets_units(rows, members, seed, outputs):
    values, rng = draw(rows, members, seed, outputs)
    mean, scale = float(rng.normal() * 100), float(rng.random() + 0.1)
    got = regression(values, mean, scale, Head(levels=(0.5,) * (outputs - 1)))
    want = np.mean([member.astype(np.float64) * scale + mean for member in values], axis=0)
    assert abs(got - want).max() <= 1e-6 * max(abs(mean), 1)


@given(**sizes, data=st.data())
def test_b01_a_rows_answer_does_not_depend_on_the_others(rows, members, seed, data):
    """Catches numpy's sums, which pick their order by the shape and the strides."""
    at = data.draw(st.integers(0, rows - 1))
    logits, rng = draw(rows, members, seed, 10)
    shuffles = [rng.permutation(9) for _ in range(members)]
    head = Head((0.5,), variance=True, quantiles=True)
    functions = (
        lambda v: class_probabilities(v, shuffles, 0.9),
        lambda v: class_probabilities(v, shuffles, 0.9, average_probabilities=True),
        lambda v: regression(v, 3.0, 2.0, head),
    )
    for function in functions:
        whole = function(logits)
        assert (function([member[at : at + 1] for member in logits])[0] == whole[at]).all()
        assert (function([member[::-1] for member in logits])[rows - 1 - at] == whole[at]).all()
        assert (function([np.asfortranarray(member) for member in logits])[at] == whole[at]).all()
        padded = [np.concatenate([member[at : at + 1]] * 64) for member in logits]
        assert (function(padded) == whole[at]).all()


@pytest.mark.parametrize("extreme", [1e30, 700.0, -1e30])
def test_large_logits_give_probabilities(extreme):
    """Catches exp without its maximum taken off."""
    logits = np.zeros((4, 3), np.float32)
    logits[:, 1] = extreme
    got = class_probabilities([logits], [np.arange(3)], 0.9)
    assert np.isfinite(got).all()
    assert (got.argmax(1) == (1 if extreme > 0 else 0)).all()

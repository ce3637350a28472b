"""Models that earlier versions wrote: one of each state of the format is kept, and read for ever. Never written anew.

``format-1-first`` is from before a model said how it is kept; ``format-1`` has its training rows too. Both were fitted on the packaged
checkpoint; ``answers.json`` has what they predicted then, float64 in hexadecimal.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tables import numbers

from tabgrpc import LocalPool
from tabgrpc.store.model import ModelDirectory

GOLDEN = Path(__file__).parent / "golden"


def asked() -> pa.Table:
    x = np.random.default_rng(6).normal(size=(5, 3))
    return pa.table({f"f{i}": x[:, i] for i in range(3)})


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir()))
def test_an_old_model_answers_as_it_did(pair: LocalPool, name: str) -> None:
    """To the bit where this machine computes as the one that fitted it; elsewhere to float32's accuracy."""
    shutil.copytree(GOLDEN / name, pair.store / name)
    try:
        model = pair.client.load(name)
        answers = numbers(pair.client.predict(name, asked()))
        columns = json.loads((GOLDEN / name / "answers.json").read_text())
        before = np.array([[float.fromhex(value) for value in column] for column in columns]).T
        assert answers == pytest.approx(before, abs=5e-5)
        if model.policy == pair.client.pool().policy:
            assert np.array_equal(answers, before)
        assert not [fault for _, fault in ModelDirectory(pair.store / name).verify() if fault]
    finally:
        pair.client.delete(name)
    assert model.saved == "kv"

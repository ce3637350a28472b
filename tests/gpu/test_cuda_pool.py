"""Worker processes that share one GPU, over gRPC: the bits of one worker."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tabgrpc import LocalPool
from tabgrpc.v1 import models_pb2

ROWS, FEATURES = 20_000, 9


def frame(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, FEATURES))
    columns = {f"f{i}": x[:, i] for i in range(FEATURES)}
    return pa.table(columns | {"y": np.where(x[:, 0] + x[:, 1] * x[:, 2] > 0, "yes", "no")})


def answers(workers: int, dtype: str, placement: str, store: Path, fresh: bool = True) -> np.ndarray:
    with LocalPool(workers, device="cuda", store=store) as pool:
        if fresh:
            sent = pool.client.upload(frame(ROWS, 0))
            options = models_pb2.FitOptions(target="y", checkpoint="mini", n_estimators=4, dtype=dtype, placement=placement)
            pool.client.fit("m", sent, options)
        else:
            pool.client.load("m")
        answer = pool.client.predict("m", frame(150, 1).drop_columns(["y"]))
        return np.column_stack([column for column in answer.columns if pa.types.is_floating(column.type)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_two_and_three_workers_on_one_gpu_equal_one(dtype: str, tmp_path: Path) -> None:
    """Rows over two and three owners, members over two, and a reload by another number of workers."""
    one = answers(1, dtype, "rows", tmp_path / "one")
    assert one.std() > 0.01
    assert np.array_equal(answers(2, dtype, "rows", tmp_path / "two"), one)
    assert np.array_equal(answers(3, dtype, "rows", tmp_path / "three"), one)
    assert np.array_equal(answers(2, dtype, "members", tmp_path / "members"), one)
    assert np.array_equal(answers(3, dtype, "", tmp_path / "one", fresh=False), one)
    assert json.loads((tmp_path / "one" / "m" / "manifest.json").read_text())

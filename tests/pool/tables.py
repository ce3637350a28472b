"""Tables and checkpoints for the pool's tests, made from seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tabgrpc.v1 import models_pb2 as pb

FEATURES = 6


def table(rows: int, task: str, seed: int = 0) -> pa.Table:
    """(rows, 6) numbers and a target "y": three classes, or a number."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, FEATURES))
    score = x[:, 0] + x[:, 1] * x[:, 2]
    y = np.array(["low", "mid", "high"])[np.digitize(score, [-0.5, 0.5])] if task == "classification" else 40 + 7 * score
    return pa.table({f"f{i}": x[:, i] for i in range(FEATURES)} | {"y": y})


def queries(rows: int, seed: int = 1) -> pa.Table:
    """(rows, 6) numbers, without a target."""
    x = np.random.default_rng(seed).normal(size=(rows, FEATURES))
    return pa.table({f"f{i}": x[:, i] for i in range(FEATURES)})


def numbers(answer: pa.Table) -> np.ndarray:
    """All numeric columns of an answer, (rows, columns)."""
    return np.column_stack([column for column in answer.columns if pa.types.is_floating(column.type)])


def options(task: str, **more: Any) -> pb.FitOptions:
    """Fit options for ``table``, on the packaged checkpoint unless told otherwise."""
    kinds = {"classification": pb.TASK_CLASSIFICATION, "regression": pb.TASK_REGRESSION}
    return pb.FitOptions(**{"target": "y", "task": kinds[task], "checkpoint": "mini", **more})


def random_checkpoint(path: Path, kind: str, seed: int = 0) -> Path:
    """A small network with every parameter random: no projection is zero, so no residual branch can hide a fault."""
    import torch

    from tabgrpc.backbones.network import TabICL
    from tabgrpc.checkpoints import save_checkpoint

    config: Mapping[str, Any] = {
        "max_classes": 10 if kind == "classifier" else 0,
        "num_quantiles": 99,
        "embed_dim": 32,
        "col_num_blocks": 3,
        "col_nhead": 4,
        "col_num_inds": 16,
        "row_num_blocks": 3,
        "row_nhead": 4,
        "icl_num_blocks": 5,
        "icl_nhead": 4,
        "row_rope_interleaved": False,
        "zero_init": False,
    }
    torch.manual_seed(seed)
    net = TabICL(**config)
    for name, parameter in net.named_parameters():
        if "freqs" not in name:
            parameter.data.add_(torch.randn_like(parameter) * 0.08)
    return save_checkpoint(path, kind, config, net.state_dict()).path


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Waits for a condition. Raises TimeoutError saying what for."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(0.02)

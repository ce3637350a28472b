"""`tabgrpc bench` where there is no GPU: what it plans, and what it says of a mistake."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from cli_support import Ended

from tabgrpc.cli.bench import most_rows


def test_a_dry_run_needs_no_gpu(here: Callable[..., Ended]) -> None:
    """One line for each number of GPUs; seconds and bytes fall with it, and what fits on none is said with its bytes."""
    ended = here("bench", "gpu", "--dry-run", "--shape", "2097152x500", "--shape", "1048576x100x8", "--memory", "132G")
    assert ended.code == 0, ended.err
    first = re.findall(r"fit +([\d.]+) s.* ([\d.]+) held", ended.out.split("1,048,576")[0])
    assert len(first) == 4
    seconds, held = zip(*[(float(a), float(b)) for a, b in first], strict=True)
    assert list(seconds) == sorted(seconds, reverse=True)
    assert list(held) == sorted(held, reverse=True)
    assert "215,039,868,928 bytes" in ended.out.split("1,048,576")[1]


def test_capacity_grows_with_gpus_and_memory() -> None:
    """The edge is one of the plan: a little more memory, a little more rows; never fewer with more GPUs."""
    rows = [most_rows(100, "float16", count, 132 << 30) for count in (1, 2, 4)]
    assert rows[0] < rows[1] < rows[2]
    assert most_rows(100, "float16", 1, 66 << 30) == pytest.approx(rows[0] / 2, rel=0.05)
    assert most_rows(100, "float32", 1, 132 << 30) < rows[0]


@pytest.mark.parametrize("shape", ["262144", "0x5", "axb", "1x2x3x4"])
def test_a_shape_that_is_none(here: Callable[..., Ended], shape: str) -> None:
    ended = here("bench", "gpu", "--dry-run", "--shape", shape)
    assert ended.code == 2
    assert "ROWSxFEATURES" in ended.err


def test_without_a_gpu_it_says_so(here: Callable[..., Ended]) -> None:
    """The run's own words reach the user: no traceback, the pool's exit code."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    ended = here("bench", "gpu", "--shape", "100x4")
    assert ended.code == 3
    assert "can't be had" in ended.err

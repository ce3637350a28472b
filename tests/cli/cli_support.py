"""The command line as processes of their own, and the tables that it is given."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

LIMIT_SECONDS = 120.0


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """Without TABGRPC_* variables of whoever runs the tests, and without any network."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TABGRPC_")}
    return {**kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **more}


def start(*words: object, cwd: Path, **more: str) -> subprocess.Popen[str]:
    """`tabgrpc WORDS` as a process."""
    line = [sys.executable, "-m", "tabgrpc", *map(str, words)]
    return subprocess.Popen(
        line, cwd=cwd, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def tabgrpc(*words: object, cwd: Path, stdin: bytes | None = None, **more: str) -> Ended:
    """Runs `tabgrpc WORDS` as a process to its end."""
    line = [sys.executable, "-m", "tabgrpc", *map(str, words)]
    done = subprocess.run(
        line, cwd=cwd, env=environment(**more), input=stdin, capture_output=True, timeout=LIMIT_SECONDS, check=False
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def write_csv(path: Path, header: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def customers(rows: int, seed: int) -> tuple[list[str], list[list[object]]]:
    """A table with an id, three numbers, a text column and a target that two of them decide."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(rows, 3)).round(3)
    plans = rng.choice(["basic", "NA", "pro"], rows)
    leaves = np.where(numbers[:, 0] + (plans == "pro") > 0.3, "stays", "leaves")
    header = ["id", "age", "spend", "calls", "plan", "churn"]
    return header, [[f"c{i}", *map(float, numbers[i]), str(plans[i]), str(leaves[i])] for i in range(rows)]


@dataclass(frozen=True)
class Served:
    """A `tabgrpc serve` of two workers that runs."""

    address: str
    process: subprocess.Popen[str]


def serve(cwd: Path, *words: object) -> Served:
    """Starts `tabgrpc serve` on a free port and waits until it says where."""
    process = start(
        "serve", "--bind", "127.0.0.1:0", "--workers", 2, "--store", "store", *words, cwd=cwd, TABGRPC_QUIET="1"
    )
    assert process.stdout is not None
    line = process.stdout.readline().split()
    if line[:2] != ["serving", "on"]:
        process.kill()
        _, err = process.communicate(timeout=LIMIT_SECONDS)
        pytest.fail(f"tabgrpc serve said {line}: {err}")
    return Served(line[2], process)

"""`tabgrpc demo`, whole; `make demo` runs the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_support import tabgrpc


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    ended = tabgrpc("demo", "--dir", tmp_path / "kept", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "Checkpoint: mini " in ended.out
    digests = re.findall(r"\d workers? +([0-9a-f]{64})", ended.out)
    assert len(digests) == 3
    assert len(set(digests)) == 1
    assert "Identical." in ended.out
    ours, upstream = (float(found) for found in re.findall(r"(?:2 workers|one process) +(0\.\d+)", ended.out))
    assert abs(ours - upstream) < 0.01
    assert float(re.findall(r"differ by at most (\S+)", ended.out)[0]) < 5e-5
    assert (tmp_path / "kept" / "predictions-3.csv").is_file()

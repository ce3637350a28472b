"""Generated code is what the protos say, and loads under more than the one runtime it was generated with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = sorted(path for path in (ROOT / "tabgrpc").rglob("*_pb2*.py"))


def test_regenerating_gives_the_same():
    """Catches a proto that was edited without its code, and code that was edited by hand."""
    pytest.importorskip("grpc_tools")
    command = [sys.executable, "-m", "tools.generate_protos", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_no_check_of_the_runtimes_version(path):
    """Each release of protobuf refuses code of a newer one by such a check, though the code itself would do."""
    text = path.read_text()
    for word in ("ValidateProtobufRuntimeVersion", "runtime_version", "GRPC_GENERATED_VERSION", "_registered_method="):
        assert word not in text


def test_there_is_generated_code():
    assert {path.name for path in GENERATED} >= {"models_pb2.py", "tables_pb2_grpc.py", "pool_pb2.py", "shards_pb2_grpc.py"}

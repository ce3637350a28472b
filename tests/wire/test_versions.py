"""The generated code under the protobuf and grpcio versions of two years. Slow: it installs them, each into a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSIONS = [
    {"protobuf": "5.29.5", "googleapis-common-protos": "1.66.0", "grpcio": "1.68.1"},
    {"protobuf": "6.33.0", "googleapis-common-protos": "1.72.0", "grpcio": "1.76.0"},
]
_SCRIPT = """
import google.protobuf, grpc
from google.longrunning import operations_pb2
from tabgrpc.internal.v1 import shards_pb2_grpc
from tabgrpc.v1 import models_pb2, models_pb2_grpc, pool_pb2_grpc, tables_pb2_grpc
from tabgrpc.wire import channels, codec, errors
operation = operations_pb2.Operation()
operation.response.Pack(models_pb2.Model(name="kept"))
model = models_pb2.Model()
operation.response.Unpack(model)
assert isinstance(errors.from_status(errors.to_status(errors.StaleEpoch("text"))), errors.StaleEpoch)
print(google.protobuf.__version__, grpc.__version__, model.name)
"""


@pytest.mark.slow
@pytest.mark.parametrize("versions", VERSIONS, ids=lambda versions: f"protobuf-{versions['protobuf']}")
def test_generated_code_loads_with_older_libraries(versions: dict[str, str], tmp_path: Path) -> None:
    """Catches a generator's check of its own version, and code that only a newer library has."""
    grpcio = versions["grpcio"]
    wanted = [f"{name}=={version}" for name, version in versions.items()]
    wanted += [f"grpcio-status=={grpcio}", f"grpcio-health-checking=={grpcio}"]
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path), *wanted]
    subprocess.run(install, check=True, timeout=250)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", _SCRIPT]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.split() == [versions["protobuf"], grpcio, "kept"]

"""No call of another ownership map, or meant for another process, gets through."""

from __future__ import annotations

import json

import pytest
from tabgrpc_workers.device import finished
from tabgrpc_workers.models import Models

from tabgrpc.checkpoints import load_checkpoint
from tabgrpc.core.geometry import Geometry
from tabgrpc.internal.v1 import shards_pb2 as pb
from tabgrpc.wire.errors import InvalidArgument, NotReady, OutOfMemory, StaleEpoch

NAME = "models/m/versions/1"
CHECKPOINT = load_checkpoint("mini", "classification")
SPEC = pb.ModelSpec(
    checkpoint=str(CHECKPOINT.path),
    checkpoint_sha256=CHECKPOINT.sha256,
    dtype="float32",
    geometry_json=json.dumps(Geometry.of(300, 4).as_dict()),
    features=4,
    store=True,
)
SHARDS = [pb.MemberShard(member=0, runs=[pb.BlockRun(start=0, stop=3)])]


def ref(models: Models, epoch: int, incarnation: str = "") -> pb.ShardRef:
    return pb.ShardRef(model_version=NAME, epoch=epoch, incarnation=incarnation or models.incarnation)


def test_stale_epochs_and_other_processes_are_refused() -> None:
    """Catches a late call of an old map that would put its partial into a new reduction."""
    models = Models(1 << 30)
    models.put(models.prepare(ref(models, 2), SPEC, SHARDS))
    assert models.get(ref(models, 2)).epoch == 2
    for epoch in (1, 3):
        with pytest.raises(StaleEpoch, match="epoch"):
            models.get(ref(models, epoch))
    with pytest.raises(StaleEpoch, match="worker"):
        models.get(ref(models, 2, "somebody-else"))
    with pytest.raises(StaleEpoch):
        models.prepare(ref(models, 1), SPEC, SHARDS)
    with pytest.raises(StaleEpoch):
        models.prepare(ref(models, 3, "somebody-else"), SPEC, SHARDS)
    models.drop(NAME)
    with pytest.raises(NotReady, match="not on this worker"):
        models.get(ref(models, 2))


def test_a_worker_checks_what_it_is_told() -> None:
    """Another checkpoint, an impossible geometry, runs outside of it, a dtype it doesn't compute."""
    models = Models(1 << 30)
    broken = [
        (NotReady, "SHA-256", {"checkpoint_sha256": "0" * 64}),
        (NotReady, "No such file", {"checkpoint": "/nowhere/mini.json"}),
        (InvalidArgument, "not a geometry", {"geometry_json": "{}"}),
        (InvalidArgument, "not a geometry", {"geometry_json": "["}),
        (InvalidArgument, "float16", {"dtype": "float16"}),
    ]
    for error, match, change in broken:
        spec = pb.ModelSpec()
        spec.CopyFrom(SPEC)
        for name, value in change.items():
            setattr(spec, name, value)
        with pytest.raises(error, match=match):
            models.prepare(ref(models, 1), spec, SHARDS)
    with pytest.raises(InvalidArgument, match="runs outside"):
        models.prepare(ref(models, 1), SPEC, [pb.MemberShard(member=0, runs=[pb.BlockRun(start=0, stop=4)])])
    with pytest.raises(OutOfMemory, match="1,000,000,000,000"):
        finished(models.residency.reserve("m", 10**12))

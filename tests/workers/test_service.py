"""The shard service over a real socket: what a scheduler gets for extremes, for nonsense and for bytes of a stranger. B08 and E03."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import torch
from inprocess import table
from tabgrpc_workers.device import Device
from tabgrpc_workers.models import Models
from tabgrpc_workers.policy import cpu_policy
from tabgrpc_workers.service import ShardService

from tabgrpc.checkpoints import load_checkpoint
from tabgrpc.core.geometry import Geometry
from tabgrpc.internal.v1 import shards_pb2 as pb
from tabgrpc.internal.v1.shards_pb2_grpc import ShardServiceStub, add_ShardServiceServicer_to_server
from tabgrpc.wire.channels import SERVER_OPTIONS, bind, connect
from tabgrpc.wire.codec import frames, pack, unpack
from tabgrpc.wire.errors import InternalError, InvalidArgument, NotReady, ServiceError, StaleEpoch, Unavailable, from_rpc_error

NAME, ROWS, FEATURES, TIMEOUT = "models/m/versions/1", 150, 3, 60
GEOMETRY = Geometry.of(ROWS, FEATURES)
CHECKPOINT = load_checkpoint("mini", "classification")
SPEC = pb.ModelSpec(
    checkpoint=str(CHECKPOINT.path),
    checkpoint_sha256=CHECKPOINT.sha256,
    checkpoint_kind="classifier",
    dtype="float32",
    geometry_json=json.dumps(GEOMETRY.as_dict()),
    features=FEATURES,
    store=True,
)
SHARDS = [pb.MemberShard(member=0, runs=[pb.BlockRun(start=0, stop=GEOMETRY.blocks)])]
X, Y, ASKED = (tensor.numpy() for tensor in table("classifier", ROWS, FEATURES, GEOMETRY.tile))


class Worker:
    """A service with its stub."""

    def __init__(self, service: ShardService, stub: ShardServiceStub) -> None:
        self.service, self.stub = service, stub

    def ref(self, epoch: int = 1) -> pb.ShardRef:
        return pb.ShardRef(model_version=NAME, epoch=epoch, incarnation=self.service.models.incarnation)

    def open(self, x: np.ndarray = X, y: np.ndarray = Y) -> None:
        rows = {"x/0/0": x, "y/0/0": y}
        first = pb.OpenShardsRequest(ref=self.ref(), spec=SPEC, shards=SHARDS)
        stream = [first, *(pb.OpenShardsRequest(frame=frame) for frame in frames(rows))]
        self.stub.OpenShards(iter(stream), timeout=TIMEOUT)

    def fit(self) -> list[pb.FitMembersResponse]:
        return list(self.stub.FitMembers(pb.FitMembersRequest(ref=self.ref(), members=[0]), timeout=TIMEOUT))

    def predict(self, x: np.ndarray = ASKED, epoch: int = 1) -> np.ndarray:
        request = pb.PredictTileRequest(ref=self.ref(epoch), members=[0], parcel=pack({"x/0": x}))
        return unpack(self.stub.PredictTile(request, timeout=TIMEOUT).parcel)["out/0"]


@pytest.fixture
def worker(tmp_path) -> Iterator[Worker]:
    service = ShardService(Models(1 << 30), Device(), cpu_policy())
    server = grpc.server(ThreadPoolExecutor(4), options=SERVER_OPTIONS)
    add_ShardServiceServicer_to_server(service, server)
    address = bind(server, f"unix:{tmp_path}/s")
    server.start()
    with connect(address) as channel:
        yield Worker(service, ShardServiceStub(channel))
    server.stop(0).wait(10)
    service.device.close()


def failing(call: Callable[[], object]) -> ServiceError:
    with pytest.raises(grpc.RpcError) as failed:
        call()
    return from_rpc_error(failed.value)


def test_a_fit_counts_to_its_total_and_a_repetition_is_free(worker):
    """Progress that stops short of its total, or goes back, makes a bar that lies."""
    worker.open()
    answers = worker.fit()
    done = [answer.done for answer in answers]
    assert done == sorted(done)
    assert done[-1] == answers[-1].total == GEOMETRY.blocks * (CHECKPOINT.config["col_num_blocks"] + CHECKPOINT.config["icl_num_blocks"])
    before = worker.predict()
    assert len(worker.fit()) == 1
    assert (worker.predict() == before).all()


@pytest.mark.parametrize("factor", [1e5, 1e30, 3e38, -3e38, np.nan])
def test_b08_extreme_keys_are_an_error_or_finite_and_never_nan(worker, factor):
    """K so large that scores, or lse, overflow even float32. Catches a NaN, and a NaN turned into a plausible number, in an answer."""
    worker.open()
    worker.fit()
    with torch.inference_mode():
        for run in worker.service.models.get(worker.ref()).shards[0].kv[1]:
            run.k.mul_(factor)
            for keys in (run.tail or ())[:1]:
                keys.mul_(factor)
    try:
        answer = worker.predict()
    except grpc.RpcError as error:
        found = from_rpc_error(error)
    else:
        assert np.isfinite(answer).all()
        assert abs(factor) < 1e38, "scores that overflow can't give an answer"
        return
    assert isinstance(found, (NotReady, InternalError))
    assert "not finite" in str(found) or isinstance(found, InternalError)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((GEOMETRY.tile, FEATURES + 1), np.float32), f"a query tile is {GEOMETRY.tile} x {FEATURES}"),
        (np.zeros((1, FEATURES), np.float32), f"a query tile is {GEOMETRY.tile} x {FEATURES}"),
        (np.zeros(0, np.float32), f"a query tile is {GEOMETRY.tile} x {FEATURES}"),
    ],
    ids=["features", "rows", "empty"],
)
def test_a_tile_of_another_shape_is_named(worker, x, message):
    worker.open()
    worker.fit()
    error = failing(lambda: worker.predict(x))
    assert type(error) is InvalidArgument
    assert message in str(error)


def test_rows_of_another_shape_are_refused_and_nothing_is_kept(worker):
    for x, y in ((X[:-1], Y), (X, Y[:-1]), (X[:, :-1], Y)):
        error = failing(lambda x=x, y=y: worker.open(x, y))
        assert type(error) is InvalidArgument
        assert "blocks 0 to 2 need 150 x 3 features" in str(error)
    assert worker.service.models.names() == []


def test_calls_out_of_order_and_of_another_epoch(worker):
    """Not fitted, not there, stale: each has its own code, and none reaches the device."""
    assert type(failing(worker.predict)) is NotReady
    worker.open()
    assert "not fitted" in str(failing(worker.predict))
    worker.fit()
    assert type(failing(lambda: worker.predict(epoch=2))) is StaleEpoch
    worker.service.draining = True
    assert type(failing(worker.predict)) is Unavailable


def test_e03_pickles_on_the_socket_do_nothing(worker, tmp_path):
    """In every field that takes bytes: the caller gets INVALID_ARGUMENT and nothing runs."""
    owned = tmp_path / "PWNED"

    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(owned),)

    data = pickle.dumps(Hostile())
    worker.open()
    worker.fit()
    spec = pb.ArraySpec(name="x/0", dtype="object", shape=[1])
    parcel = pb.Parcel(manifest=pb.Manifest(arrays=[spec]), data=data)
    request = pb.PredictTileRequest(ref=worker.ref(), members=[0], parcel=parcel)
    assert type(failing(lambda: worker.stub.PredictTile(request, timeout=TIMEOUT))) is InvalidArgument
    first = pb.OpenShardsRequest(ref=worker.ref(2), spec=SPEC, shards=SHARDS)
    stream = [first, pb.OpenShardsRequest(frame=pb.Frame(chunk=pb.Chunk(data=data)))]
    assert type(failing(lambda: worker.stub.OpenShards(iter(stream), timeout=TIMEOUT))) is InvalidArgument
    assert not owned.exists()


def test_a_torn_upload_leaves_the_model_as_it_was(worker):
    """The stream ends before its commit: the old epoch still answers."""
    worker.open()
    worker.fit()
    before = worker.predict()
    cut = list(frames({"x/0/0": X, "y/0/0": Y}))[:-1]
    stream = [pb.OpenShardsRequest(ref=worker.ref(2), spec=SPEC, shards=SHARDS), *(pb.OpenShardsRequest(frame=frame) for frame in cut)]
    error = failing(lambda: worker.stub.OpenShards(iter(stream), timeout=TIMEOUT))
    assert type(error) is InvalidArgument
    assert "without a commit" in str(error)
    assert (worker.predict() == before).all()

"""Who may be in a group, where it may meet, and which path is taken at all."""

from __future__ import annotations

import itertools
import time

import pytest
import torch
from tabgrpc_workers.exchange import LOOPBACK
from tabgrpc_workers.groups import Groups

from tabgrpc.internal.v1 import exchange_pb2 as pb
from tabgrpc.internal.v1 import shards_pb2
from tabgrpc.scheduler import groups as scheduling
from tabgrpc.wire.errors import InvalidArgument, NotReady, Unavailable

REF = shards_pb2.ShardRef(model_version="models/m/versions/1@f", epoch=1, incarnation="x")


def request(name: str, host: str, port: int, **more: object) -> pb.JoinGroupRequest:
    described = {"rank": 0, "size": 1, "join_seconds": 20.0, "collective_seconds": 20.0, "members": [pb.GroupMember()], **more}
    return pb.JoinGroupRequest(ref=REF, group=name, host=host, port=port, **described)


@pytest.fixture
def groups() -> Groups:
    return Groups(torch.device("cpu"))


def test_no_other_interface_without_being_told(groups: Groups) -> None:
    """Collectives have no authentication: neither listening nor connecting beyond the loopback interface on a caller's word alone."""
    with pytest.raises(InvalidArgument, match="trusted network"):
        groups.open("g", "m", trusted=True)
    with pytest.raises(InvalidArgument, match="trusted network"):
        groups.join(request("g", "10.1.2.3", 29_500, trusted_network=True))
    with pytest.raises(InvalidArgument, match="not the loopback"):
        groups.join(request("g", "10.1.2.3", 29_500))


def test_a_trusted_network_is_used_where_it_was_named() -> None:
    """The address that the worker was started with, and no other; here another one of the loopback network."""
    told = Groups(torch.device("cpu"), trusted_host="127.0.0.2")
    assert told.open("g", "m", trusted=True).host == "127.0.0.2"
    assert told.open("h", "m", trusted=False).host == LOOPBACK


def test_a_group_is_found_under_its_own_epoch_until_it_is_left(groups: Groups) -> None:
    """A call of another epoch, or after the group was left, gets an error and not another group's collectives."""
    meeting = groups.open("g", REF.model_version, trusted=False)
    groups.join(request("g", meeting.host, meeting.port))
    found = groups.get("g", REF.model_version, 1)
    with pytest.raises(NotReady, match="epoch 1"):
        groups.get("g", REF.model_version, 2)
    with pytest.raises(InvalidArgument, match="joined already"):
        groups.join(request("g", meeting.host, meeting.port))
    groups.leave(model_version="another")
    assert not found.reason
    groups.leave(model_version=REF.model_version)
    with pytest.raises(Unavailable, match="was left"):
        found.gather(torch.zeros(1))
    with pytest.raises(Unavailable, match="not in group g"):
        groups.get("g", REF.model_version, 1)


def test_nonsense_is_refused(groups: Groups) -> None:
    for more in ({"rank": 1}, {"size": 0}, {"members": []}, {"size": 2}):
        with pytest.raises(InvalidArgument, match="rank"):
            groups.join(request("g", LOOPBACK, 1, **more))


def test_a_rendezvous_that_is_not_there_is_an_error(groups: Groups) -> None:
    """Within the seconds given."""
    with pytest.raises(Unavailable, match="can't be joined"):
        groups.join(request("g", LOOPBACK, 1, join_seconds=1.0))


def test_the_choices_of_a_path() -> None:
    with pytest.raises(ValueError, match="'sometimes' is none of auto, grpc, collective"):
        scheduling.Groups("sometimes")


def test_a_place_where_groups_break_waits_longer_each_time() -> None:
    """Catches a pool that makes and breaks a group for every tile."""
    place = scheduling._Place()
    ends = []
    for _ in range(4):
        place.wait_longer()
        ends.append(place.again - time.monotonic())
    assert all(later > 1.5 * sooner for sooner, later in itertools.pairwise(ends))

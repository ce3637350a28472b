"""The groups that this worker is a member of, and rendezvous that it has opened for others."""

from __future__ import annotations

import threading

import torch

from tabgrpc.core.ownership import Run
from tabgrpc.internal.v1 import exchange_pb2 as pb
from tabgrpc.wire.errors import InvalidArgument, NotReady, Unavailable
from tabgrpc_workers.exchange import LOOPBACK, Group, Rendezvous


class Groups:
    """Groups by name. One that is aborted stays known until it is left, so that calls for it fail with its reason."""

    def __init__(self, device: torch.device, trusted_host: str = "") -> None:
        """trusted_host: address of this worker on a network that is trusted; without it groups meet on the loopback interface only."""
        self.device, self.trusted_host = device, trusted_host
        self._groups: dict[str, Group] = {}
        self._open: dict[str, tuple[str, Rendezvous]] = {}
        self._lock = threading.Lock()

    def open(self, name: str, model_version: str, trusted: bool) -> Rendezvous:
        """A rendezvous, kept until the group is left. Raises InvalidArgument for a network that this worker was not told to trust."""
        try:
            rendezvous = Rendezvous(self._host(trusted))
        except (RuntimeError, OSError) as error:
            raise Unavailable(f"no rendezvous: {error}") from error
        with self._lock:
            self._open[name] = (model_version, rendezvous)
        return rendezvous

    def join(self, request: pb.JoinGroupRequest) -> None:
        """Joins a group; blocks until everybody is there. Raises Unavailable, InvalidArgument."""
        if not 0 <= request.rank < request.size or len(request.members) != request.size:
            raise InvalidArgument(f"rank {request.rank} of {request.size}, with {len(request.members)} members described")
        host = self._host(request.trusted_network)
        if not request.trusted_network and request.host != LOOPBACK:
            raise InvalidArgument(f"{request.host} is not the loopback interface, and the network was not said to be trusted")
        runs = [
            {shard.member: tuple(Run(run.start, run.stop) for run in shard.runs) for shard in member.shards} for member in request.members
        ]
        ref = request.ref
        group = Group(request.group, ref.model_version, ref.epoch, request.rank, runs, request.collective_seconds, self.device)
        with self._lock:
            if request.group in self._groups:
                raise InvalidArgument(f"group {request.group} was joined already")
            self._groups[request.group] = group
        with group.breaking():
            group.connect((request.host, request.port), host, request.join_seconds)

    def get(self, name: str, model_version: str, epoch: int) -> Group:
        """A group that was joined. Raises Unavailable if it was left, NotReady if it is for something else."""
        with self._lock:
            group = self._groups.get(name)
        if group is None:
            raise Unavailable(f"this worker is not in group {name}")
        if (group.model_version, group.epoch) != (model_version, epoch):
            raise NotReady(f"group {name} is for epoch {group.epoch} of {group.model_version}")
        return group

    def leave(self, name: str = "", model_version: str = "") -> None:
        """Aborts and forgets a group, or all of a model version."""

        def meant(each: str, version: str) -> bool:
            return each == name if name else version == model_version

        with self._lock:
            left = [group for group in self._groups.values() if meant(group.name, group.model_version)]
            for group in left:
                del self._groups[group.name]
            for each in [each for each, (version, _) in self._open.items() if meant(each, version)]:
                del self._open[each]
        for group in left:
            group.abort(f"group {group.name} was left")

    def _host(self, trusted: bool) -> str:
        if trusted and not self.trusted_host:
            raise InvalidArgument("this worker was not told of a trusted network")
        return self.trusted_host if trusted else LOOPBACK

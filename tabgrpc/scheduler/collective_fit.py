"""Fitting shared members through a group: one call to each owner, start to end. The scheduler counts progress and carries no K/V."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from tabgrpc.internal.v1 import exchange_pb2 as pb
from tabgrpc.scheduler.calls import Scope, stream
from tabgrpc.scheduler.groups import Group, Groups
from tabgrpc.scheduler.workers import Worker
from tabgrpc.wire.errors import ServiceError

logger = logging.getLogger("tabgrpc")


class CollectiveFit:
    """One job of a group."""

    def __init__(self, groups: Groups, group: Group, scope: Scope, count: Callable[[str, int], None]) -> None:
        """count: called with a stage and the units done of it, by any worker."""
        self._groups, self._group, self._scope, self._count = groups, group, scope, count

    def run(self, members: list[int], at_once: int) -> bool:
        """Fits members. False if the group broke, whatever the reason: what is wrong with the fit itself shows over gRPC too.

        Raises what ``scope`` raises; a fit that was given up leaves the group whole.
        """
        group, turn = self._group, self._group.take_turn()

        def one(worker: Worker) -> pb.Exchanged:
            request = pb.FitSharedRequest(
                ref=group.placement.ref(group.shards_name, worker), group=group.name, turn=turn, members=members, at_once=at_once
            )
            before, exchanged = 0, pb.Exchanged()
            for answer in stream(group.stub(worker).FitShared, request, self._scope):
                if answer.done > before:
                    self._count(answer.stage, answer.done - before)
                before, exchanged = answer.done, answer.exchanged
            return exchanged

        with ThreadPoolExecutor(len(group.workers)) as threads:
            calls: list[Future[pb.Exchanged]] = [threads.submit(one, worker) for worker in group.workers]
            wait(calls, return_when=FIRST_EXCEPTION)
            errors = [error for call in calls if call.done() and (error := call.exception()) is not None]
            if not errors:
                group.count(call.result() for call in calls)
                return True
            self._scope.remaining()
            if not isinstance(errors[0], ServiceError):
                raise errors[0]
            self._groups.lose(group, f"a fit: {errors[0]}")  # the others wait for one that has stopped
        return False

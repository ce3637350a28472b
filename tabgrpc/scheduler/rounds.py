"""Query tiles through a group, in rounds: what waits when a round begins goes with it, whoever asked for it."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np

from tabgrpc.internal.v1 import exchange_pb2 as pb
from tabgrpc.internal.v1 import shards_pb2
from tabgrpc.scheduler.calls import Scope, unary
from tabgrpc.scheduler.groups import Group, GroupLost, Groups
from tabgrpc.wire.codec import PARCEL_BYTES, CodecError, pack, unpack
from tabgrpc.wire.errors import ServiceError

Arrays = dict[str, np.ndarray]

ROUNDS_IN_FLIGHT = 2
"""Of one group: while the workers compute one, the next one is on its way to them."""
TILES_A_WORKER = 4
_ROUND_SECONDS = 600.0
_LOOK_SECONDS = 0.2


@dataclass(eq=False)
class _Asked:
    """A tile that somebody waits for. x[member]: (tile, F); each: bytes of the larger of a member's inputs and outputs."""

    members: tuple[int, ...]
    x: dict[int, np.ndarray]
    head: shards_pb2.Head
    each: int
    scope: Scope
    answer: Future[Arrays] = field(default_factory=Future)

    def goes_with(self, other: _Asked) -> bool:
        return self.members == other.members and self.head == other.head


class Rounds:
    """The tiles of one group. Ends with it."""

    def __init__(self, groups: Groups, group: Group) -> None:
        self._groups, self._group = groups, group
        self._waiting: deque[_Asked] = deque()
        self._changed = threading.Condition()
        self._calls = ThreadPoolExecutor(ROUNDS_IN_FLIGHT * len(group.workers), "round-call")
        group.on_loss.append(self._end)
        for turn in range(ROUNDS_IN_FLIGHT):
            threading.Thread(target=self._serve, name=f"rounds-{turn}", daemon=True).start()

    def ask(self, members: tuple[int, ...], x: dict[int, np.ndarray], head: shards_pb2.Head, each: int, scope: Scope) -> Arrays:
        """One padded tile through some members: "out/<member>" (tile, O). Raises GroupLost, and what ``scope`` raises.

        A tile whose outputs are not finite raises GroupLost too: over gRPC it gets the error that says so.
        """
        asked = _Asked(members, x, head, each, scope)
        with self._changed:
            if self._group.lost:
                raise GroupLost(self._group.lost)
            self._waiting.append(asked)
            self._changed.notify()
        while not wait([asked.answer], min(scope.remaining(), _LOOK_SECONDS)).done:
            pass
        return asked.answer.result()

    def _end(self) -> None:
        with self._changed:
            waiting, self._waiting = list(self._waiting), deque()
            self._changed.notify_all()
        for asked in waiting:
            asked.answer.set_exception(GroupLost(self._group.lost))
        self._calls.shutdown(wait=False)

    def _serve(self) -> None:
        """Round after round. A place among all groups' rounds is taken before a turn is: turns must not wait for one another's places."""
        while not self._group.lost:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._group.lost, _LOOK_SECONDS)
                if not self._waiting:
                    continue
            with self._groups.rounds:
                taken, turn = self._take()
                if taken:
                    self._run(taken, turn)

    def _take(self) -> tuple[list[_Asked], int]:
        """The tiles of the next round, as many as fit, and its turn."""
        with self._changed:
            taken: list[_Asked] = []
            left: deque[_Asked] = deque()
            size = len(self._group.workers)
            while self._waiting:
                asked = self._waiting.popleft()
                if asked.scope.over:
                    continue  # its caller has stopped waiting
                most = max(1, PARCEL_BYTES // 2 // (asked.each * len(asked.members)))
                if (not taken or taken[0].goes_with(asked)) and len(taken) < size * min(most, TILES_A_WORKER):
                    taken.append(asked)
                else:
                    left.append(asked)
            self._waiting = left
            return taken, self._group.take_turn() if taken else -1

    def _run(self, taken: list[_Asked], turn: int) -> None:
        group, size = self._group, len(self._group.workers)

        def one(rank: int) -> pb.PredictRoundResponse:
            x = {f"x/{m}/{tile}": taken[tile].x[m] for tile in range(rank, len(taken), size) for m in taken[0].members}
            request = pb.PredictRoundRequest(
                ref=group.placement.ref(group.shards_name, group.workers[rank]),
                group=group.name,
                turn=turn,
                members=taken[0].members,
                tiles=len(taken),
                parcel=pack(x),
                head=taken[0].head,
            )
            return unary(group.stub(group.workers[rank]).PredictRound, request, Scope(_ROUND_SECONDS))

        answers: list[Future[pb.PredictRoundResponse]] = []
        try:
            answers = [self._calls.submit(one, rank) for rank in range(size)]
            wait(answers, return_when=FIRST_EXCEPTION)
            found = [answer.result() for answer in answers if answer.done()]
            arrays: Arrays = {}
            for answer in found:
                arrays |= unpack(answer.parcel)
        except (ServiceError, CodecError, RuntimeError) as error:  # RuntimeError: the threads are closed, the group was lost meanwhile
            self._groups.lose(group, f"round {turn}: {error}")
            for asked in taken:
                asked.answer.set_exception(GroupLost(str(error)))
            return
        group.count(answer.exchanged for answer in found)
        bad = {tile for answer in found for tile in answer.not_finite}
        for tile, asked in enumerate(taken):
            if tile in bad:
                asked.answer.set_exception(GroupLost("outputs are not finite"))
            else:
                asked.answer.set_result({f"out/{m}": arrays[f"out/{m}/{tile}"] for m in asked.members})

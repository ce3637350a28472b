"""Collectives of one group, and what happens when a member doesn't take part."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from members import everywhere, group_of
from tabgrpc_workers.device import FIT, PREDICT, Device, Task
from tabgrpc_workers.exchange import Group, Pending
from tabgrpc_workers.inturn import Step, in_turn
from torch import Tensor

from tabgrpc.wire.errors import Cancelled, Unavailable


@pytest.fixture(scope="module")
def devices() -> Iterator[list[Device]]:
    devices = [Device() for _ in range(3)]
    yield devices
    for device in devices:
        device.close()


def result(pending: Pending) -> Task[Tensor]:
    yield from pending.until()
    return pending.result()


def test_gather_and_swap_move_what_they_say(devices: list[Device]) -> None:
    """By rank, shapes kept; uneven shares of an all-to-all, nothing at all among them. Catches sizes or ranks mixed up."""
    groups = group_of(3)
    sizes = [[2, 0, 3], [1, 1, 0], [0, 4, 0]]  # [from][to]

    def task(rank: int) -> Task[tuple[Tensor, Tensor]]:
        everyones = yield from result(groups[rank].gather(torch.full((2, 5), float(rank))))
        sent = torch.cat([torch.full((count,), 10.0 * rank + to) for to, count in enumerate(sizes[rank])])
        received = yield from result(groups[rank].swap(sent, sizes[rank], [row[rank] for row in sizes]))
        return everyones.clone(), received.clone()

    for rank, (everyones, received) in enumerate(everywhere(devices, task)):
        assert torch.equal(everyones, torch.arange(3.0)[:, None, None].expand(3, 2, 5))
        assert received.tolist() == [10.0 * origin + rank for origin in range(3) for _ in range(sizes[origin][rank])]


def test_groups_in_any_order_never_wait_for_each_other(devices: list[Device]) -> None:
    """Tasks of two groups queued the other way round on two workers. Catches a device thread that waits for another worker."""
    one, other = group_of(2), group_of(2)
    started = threading.Barrier(2)

    def first(rank: int) -> Task[None]:
        started.wait(10)  # both queues are filled before either begins
        yield

    def exchange(group: list[Group], rank: int) -> Task[float]:
        received = yield from result(group[rank].gather(torch.tensor([float(rank)])))
        return float(received.sum())

    with ThreadPoolExecutor(6) as threads:
        calls = [threads.submit(devices[rank].run, first(rank), PREDICT) for rank in range(2)]
        for rank, order in enumerate(((one, other), (other, one))):
            calls += [threads.submit(devices[rank].run, exchange(group, rank), FIT) for group in order]
        assert [call.result(20) for call in calls[2:]] == [1.0] * 4


def test_a_thread_that_waits_itself_would_deadlock(devices: list[Device]) -> None:
    """The negative control of the test before: the same two groups, waited for without yielding, run into their time limit."""
    one, other = group_of(2, seconds=1.0), group_of(2, seconds=1.0)

    def stubborn(groups: tuple[list[Group], list[Group]], rank: int) -> Task[None]:
        for group in groups:
            pending = group[rank].gather(torch.zeros(1))
            while not pending.ready():
                time.sleep(0.001)
            pending.result()
        yield

    with pytest.raises(Unavailable, match="not done after 1 s"):
        everywhere(devices[:2], lambda rank: stubborn(((one, other), (other, one))[rank], rank))


def test_a_silent_member_costs_the_time_limit_and_nothing_else(devices: list[Device]) -> None:
    """The one who waits gets an error, its device has served others meanwhile, and letting go of the group holds nobody up."""
    alone, silent = group_of(2, seconds=1.5)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(devices[0].run, result(alone.gather(torch.zeros(4))), PREDICT)
        began = time.monotonic()
        assert devices[0].run(at_once("other work"), FIT) == "other work"  # less urgent, and done all the same
        assert time.monotonic() - began < 1.0
        with pytest.raises(Unavailable, match="not done after 2 s|failed"):  # ours, or the library's own limit
            waiting.result(20)
        assert time.monotonic() - began >= 1.0
    began = time.monotonic()
    assert devices[0].run(at_once("more work"), FIT) == "more work"
    assert time.monotonic() - began < 1.0
    with pytest.raises(Unavailable):
        alone.gather(torch.zeros(1))
    silent.abort("the test is over")


def test_leaving_wakes_who_waits(devices: list[Device]) -> None:
    """A scheduler that learns of a loss tells the others; none waits for the time limit."""
    alone, silent = group_of(2, seconds=60.0)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(devices[0].run, result(alone.gather(torch.zeros(4))), FIT)
        began = time.monotonic()
        alone.abort("the group was left")
        with pytest.raises(Unavailable, match="was left"):
            waiting.result(20)
        assert time.monotonic() - began < 5.0
    assert devices[0].run(at_once("more work"), FIT) == "more work"
    silent.abort("the test is over")


def test_jobs_run_in_the_order_of_their_turns(devices: list[Device]) -> None:
    """Asked in another order on every worker. Catches a job that exchanges with another job's collectives."""
    groups = group_of(2)

    def job(rank: int, turn: int) -> Task[list[float]]:
        yield from groups[rank].begin(turn)
        received = yield from result(groups[rank].gather(torch.tensor([10.0 * turn + rank])))
        groups[rank].end()
        return received.flatten().tolist()

    with ThreadPoolExecutor(6) as threads:
        calls = {
            (rank, turn): threads.submit(devices[rank].run, job(rank, turn), PREDICT)
            for rank, order in enumerate(((2, 0, 1), (1, 2, 0)))
            for turn in order
        }
        for (_, turn), call in calls.items():
            assert call.result(20) == [10.0 * turn, 10.0 * turn + 1]
    with pytest.raises(Unavailable, match="job 1 while it is the turn of 3"):
        devices[0].run(job(0, 1), PREDICT)


def at_once(value: str) -> Task[str]:
    yield
    return value


# --- several tasks in turn ---


class Slow:
    """A collective that is ready after some looks, without a library."""

    def __init__(self, log: list[tuple[int, int]], task: int, step: int, looks: int) -> None:
        log.append((task, step))
        self._looks = looks

    def ready(self) -> bool:
        self._looks -= 1
        return self._looks < 0


def pending(log: list[tuple[int, int]], task: int, step: int, looks: int) -> Pending:
    class Held(Slow, Pending):
        def until(self) -> Task[None]:
            while not self.ready():
                yield None

        def result(self) -> Tensor:
            return torch.zeros(0)

    return Held(log, task, step, looks)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 4), max_size=6), st.integers(1, 3), st.randoms(use_true_random=False), st.randoms(use_true_random=False))
def test_the_order_of_collectives_does_not_follow_readiness(steps: list[int], at_once: int, one: object, other: object) -> None:
    """Two workers with the same tasks and any speeds start the same collectives in the same order. Catches "take what is ready"."""
    logs: list[list[tuple[int, int]]] = []
    for speeds in (one, other):
        log: list[tuple[int, int]] = []

        def task(number: int, count: int, log: list[tuple[int, int]] = log, speeds: object = speeds) -> Step:
            for step in range(count):
                for _ in range(speeds.randrange(3)):  # type: ignore[attr-defined]
                    yield None
                yield pending(log, number, step, speeds.randrange(4))  # type: ignore[attr-defined]

        for _ in in_turn((task(number, count) for number, count in enumerate(steps)), at_once):
            pass
        logs.append(log)
    assert logs[0] == logs[1]
    assert sorted(logs[0]) == [(number, step) for number, count in enumerate(steps) for step in range(count)]


def test_two_tasks_overlap() -> None:
    """The second task's collective is started before the first one's is waited for. Catches turns taken one after the other."""
    log: list[tuple[int, int]] = []

    def task(number: int) -> Step:
        for step in range(2):
            yield pending(log, number, step, 3)

    for _ in in_turn((task(number) for number in range(2)), 2):
        pass
    assert log == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_who_gives_up_leaves_no_collective_behind(devices: list[Device]) -> None:
    """A task that all workers give up at the same place: the group goes on with the next job. Catches a collective left half-way."""
    groups = group_of(2)

    def task(rank: int, number: int) -> Step:
        for step in range(4):
            started = groups[rank].gather(torch.tensor([100.0 * number + step]))
            yield started
            assert started.result().tolist() == [[100.0 * number + step]] * 2
            if (number, step) == (0, 2):
                raise Cancelled("the caller gave up")

    def job(rank: int) -> Task[float]:
        with pytest.raises(Cancelled):
            yield from in_turn([task(rank, 0), task(rank, 1)], 2)
        received = yield from result(groups[rank].gather(torch.tensor([7.0])))
        return float(received.sum())

    assert everywhere(devices[:2], job) == [14.0, 14.0]

"""Streams worked on ahead of their answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from tabgrpc.scheduler.ahead import ahead


def test_answers_keep_the_order_and_the_depth() -> None:
    """Catches an answer that overtakes another, and more work at once than was allowed."""
    lock, running, most = threading.Lock(), 0, 0
    gates = {item: threading.Event() for item in range(20)}

    def work(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if item % 2:  # odd ones open the gate of the even one before them: it ends first
            gates[item - 1].set()
        else:
            assert gates[item].wait(10)
        with lock:
            running -= 1
        return item

    assert list(ahead(range(20), work, 3)) == list(range(20))
    assert 2 <= most <= 3


def test_a_caller_who_waits_for_an_answer_before_the_next_request_gets_it() -> None:
    """Catches a reader that holds answers back until more requests come: a deadlock for interactive callers."""
    sent: Queue[int | None] = Queue()
    answers = ahead(iter(sent.get, None), lambda item: item * 2, 3)
    for item in range(5):
        sent.put(item)
        assert next(answers) == item * 2
    sent.put(None)
    assert list(answers) == []


def test_errors_come_in_their_place() -> None:
    """Answers before the failing one are not lost."""

    def items() -> Iterator[int]:
        yield from range(3)
        raise ValueError("the caller's table broke")

    answers = ahead(items(), lambda item: item, 2)
    assert [next(answers) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="table broke"):
        next(answers)

    def work(item: int) -> int:
        if item == 2:
            raise KeyError(item)
        return item

    answers = ahead(range(10), work, 4)
    assert [next(answers), next(answers)] == [0, 1]
    with pytest.raises(KeyError):
        next(answers)


def test_a_caller_who_leaves_stops_the_reader() -> None:
    """No thread waits for room that never comes."""
    before = threading.active_count()
    answers = ahead(range(1_000_000), lambda item: item, 2)
    assert next(answers) == 0
    answers.close()  # type: ignore[attr-defined]
    for thread in threading.enumerate():
        if thread.name.startswith("ahead"):
            thread.join(10)
    assert threading.active_count() <= before

"""The device thread: who goes first, who stops, and whose error it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tabgrpc_workers import device as module
from tabgrpc_workers.device import FIT, PREDICT, Device, Task

from tabgrpc.wire.errors import Cancelled, OutOfMemory, QueueFull, Unavailable


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


def endless(started: threading.Event, stop: threading.Event) -> Task[str]:
    """A fit that goes on until it is told."""
    while not stop.is_set():
        started.set()
        yield
    return "fitted"


def at_once(value: str) -> Task[str]:
    yield
    return value


def test_a_predict_overtakes_a_fit_at_its_next_quantum(device: Device) -> None:
    """Small predicts must not wait for the end of a large fit."""
    started, stop = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        fit = threads.submit(device.run, endless(started, stop), FIT)
        assert started.wait(10)
        assert device.run(at_once("answer"), PREDICT) == "answer"
        assert not fit.done()
        stop.set()
        assert fit.result(10) == "fitted"


def test_work_that_nobody_wants_stops(device: Device) -> None:
    """A caller who has gone frees the device at the next quantum (case D13)."""
    started, never = threading.Event(), threading.Event()
    with pytest.raises(Cancelled):
        device.run(endless(started, never), FIT, wanted=lambda: not started.is_set())
    assert device.run(at_once("next"), FIT) == "next"
    assert device.waiting == 0


def test_an_error_is_its_callers_alone(device: Device) -> None:
    """One task's failure never fails another's, and the thread goes on."""

    def broken() -> Task[str]:
        yield
        raise torch.OutOfMemoryError("no room")

    with ThreadPoolExecutor(4) as threads:
        work = [threads.submit(device.run, broken() if turn % 2 else at_once(str(turn)), PREDICT) for turn in range(20)]
        for turn, future in enumerate(work):
            if turn % 2:
                with pytest.raises(OutOfMemory, match="no room"):
                    future.result(10)
            else:
                assert future.result(10) == str(turn)


def test_the_queue_has_an_end(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls beyond it are refused at once, not kept without bound."""
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    started, stop = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        fit = threads.submit(device.run, endless(started, stop), FIT)
        assert started.wait(10)
        with pytest.raises(QueueFull):
            device.run(at_once("late"), PREDICT)
        stop.set()
        assert fit.result(10) == "fitted"


def test_closing_answers_whoever_waits() -> None:
    """Nobody waits for a thread that has ended."""
    device = Device()
    started, never = threading.Event(), threading.Event()
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(device.run, endless(started, never), FIT) for _ in range(2)]
        assert started.wait(10)
        device.close()
        for future in waiting:
            with pytest.raises(Unavailable):
                future.result(10)
    with pytest.raises(Unavailable):
        device.run(at_once("too late"), PREDICT)


def test_quanta_side_by_side_keep_their_order_and_one_thread_each() -> None:
    """Each quantum computes with one intra-op thread and without gradients, whatever thread it is on."""
    device = Device(threads=3)

    def look(item: int) -> tuple[int, int, bool]:
        return item, torch.get_num_threads(), torch.is_inference_mode_enabled()

    def task() -> Task[list[tuple[int, int, bool]]]:
        found = []
        for each in device.map(look, range(10)):
            found.append(each)
            yield
        return found

    try:
        assert device.run(task(), FIT) == [(item, 1, True) for item in range(10)]
    finally:
        device.close()

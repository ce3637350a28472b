"""The device thread: the only one that computes. Others enqueue; it takes one step of the most urgent task at a time.

A task is a generator that yields between quanta, so that a predict needn't wait for the end of a fit, a cancelled call stops at the next
quantum, and memory errors surface where the work was. On a CPU worker with several threads the quanta of one step run side by side.

A task that must wait for other workers never waits on this thread: it yields a function that says whether the wait is over, and is left
out until then. Whatever other workers wait for here can therefore go on, and no two workers can wait for each other's queues.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from tabgrpc.wire.errors import Cancelled, OutOfMemory, QueueFull, Unavailable
from tabgrpc_workers.machines import CpuMachine, Machine

T = TypeVar("T")
Ready = Callable[[], bool]
"""Whether what a task waits for is there. Cheap, asked often, never raises."""
Task = Generator[Any, None, T]
"""Yields None between quanta, or Ready."""

PREDICT, LOAD, FIT = 0, 1, 2
"""How urgent a task is: a load repairs what callers wait for, a fit can go on a quantum later."""
MAX_WAITING = 256
_LOOK_SECONDS = (5e-5, 1e-3)
"""How soon the thread looks again when all tasks wait for others: at first, and at last."""


@dataclass(order=True)
class _Entry:
    urgency: int
    turn: int
    task: Task[Any] = field(compare=False)
    result: Future[Any] = field(compare=False)
    wanted: Callable[[], bool] = field(compare=False)
    until: Ready | None = field(compare=False, default=None)


class Device:
    """A queue of tasks and the thread that runs them."""

    def __init__(self, threads: int = 1, machine: Machine | None = None) -> None:
        """threads: quanta computed at once, on a CPU. machine: what is computed on, None is the CPU."""
        self.threads = threads
        self._machine = machine or CpuMachine()
        self._quanta = ThreadPoolExecutor(threads, "quantum", torch.set_num_threads, (1,)) if threads > 1 else None
        self._heap: list[_Entry] = []
        self._turns = itertools.count()
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="device", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Tasks not finished."""
        with self._wake:
            return len(self._heap)

    def run(self, task: Task[T], urgency: int, wanted: Callable[[], bool] = lambda: True) -> T:
        """Runs a task and waits for its result. ``wanted`` is asked between quanta; when it says no, Cancelled is raised."""
        result: Future[T] = Future()
        with self._wake:
            if self._closed:
                raise Unavailable("this worker is shutting down")
            if len(self._heap) >= MAX_WAITING:
                raise QueueFull(f"{MAX_WAITING} tasks wait for this device already")
            heapq.heappush(self._heap, _Entry(urgency, next(self._turns), task, result, wanted))
            self._wake.notify()
        return result.result()

    def map(self, function: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
        """``function`` of each item, in order; from a task only. Items are taken ``threads`` at a time."""
        if self._quanta is None:
            yield from map(function, items)
            return
        iterator = iter(items)
        while batch := list(itertools.islice(iterator, self.threads)):
            yield from self._quanta.map(torch.inference_mode()(function), batch)

    def close(self) -> None:
        """Stops after the current quantum; whoever waits gets Unavailable."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(timeout=60)

    def _loop(self) -> None:
        self._machine.enter()
        with torch.inference_mode():
            while True:
                with self._wake:
                    entry = self._next()
                    if entry is None:
                        for entry in self._heap:
                            entry.result.set_exception(Unavailable("this worker is shutting down"))
                        return
                if self._step(entry):
                    with self._wake:
                        self._heap.remove(entry)
                        heapq.heapify(self._heap)

    def _next(self) -> _Entry | None:
        """Waits for the most urgent task that doesn't wait itself, holding the lock but while it waits; None when closed."""
        pause, last = _LOOK_SECONDS
        while not self._closed:
            for entry in sorted(self._heap):
                if entry.until is None or entry.until():
                    return entry
            self._wake.wait(pause if self._heap else None)
            pause = min(2 * pause, last)
        return None

    def _step(self, entry: _Entry) -> bool:
        """One step of a task; True when it has ended, one way or the other."""
        exhausted = ""
        try:
            if not entry.wanted():
                entry.task.close()
                raise Cancelled("the caller gave up")
            entry.until = next(entry.task)
        except StopIteration as end:
            entry.result.set_result(end.value)
            return True
        except torch.OutOfMemoryError as error:  # before RuntimeError, which it is too
            exhausted = str(error).splitlines()[0]
        except BaseException as error:  # whatever it was belongs to the one who waits, not to this thread
            entry.result.set_exception(error)
            return True
        if exhausted:  # outside the except block, whose traceback would keep the tensors alive
            entry.task.close()
            self._machine.release()
            entry.result.set_exception(OutOfMemory(exhausted))
        return bool(exhausted)


def finished(task: Task[T]) -> T:
    """Runs a task to its end at once, from another one."""
    while True:
        try:
            next(task)
        except StopIteration as end:
            return end.value

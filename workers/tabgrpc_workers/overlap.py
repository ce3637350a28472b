"""Members on one device side by side: each on a thread of its own, a step at a time, so that a more urgent task still gets in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from tabgrpc_workers.device import Device, Task

T = TypeVar("T")


class Quanta(Protocol):
    """Where a task's quanta are computed."""

    def map(self, function: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
        """``function`` of each item, in order."""


class Inline:
    """On the thread that asks: what a member that shares the device with others is given, in the place of all its threads."""

    def map(self, function: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
        return map(function, items)


def together(starts: Sequence[Callable[[Quanta], Task[T]]], device: Device, at_once: int) -> Task[list[T]]:
    """Runs tasks, at most ``at_once`` of them side by side; their results in order.

    A small member has fewer quanta than a device has threads, so that cutting its work would leave some idle; whole members fill them. With
    one thread, or nothing to run beside, tasks follow one another with all of the device each. No bit depends on it: what a quantum
    computes is the same on any thread.
    """
    count = min(at_once, device.threads, len(starts))
    if count < 2:
        alone = []
        for start in starts:
            alone.append((yield from start(device)))
        return alone
    waiting = list(enumerate(starts))
    running: dict[int, Task[T]] = {}
    results: dict[int, T] = {}
    try:
        while waiting or running:
            while waiting and len(running) < count:
                number, start = waiting.pop(0)
                running[number] = start(Inline())
            for number, ended, result in list(device.map(_step, running.items())):
                if ended:
                    results[number] = result
                    del running[number]
            yield
    finally:
        for task in running.values():
            task.close()
    return [results[number] for number in range(len(starts))]


def _step(item: tuple[int, Task[T]]) -> tuple[int, bool, Any]:
    number, task = item
    try:
        next(task)
    except StopIteration as end:
        return number, True, end.value
    return number, False, None

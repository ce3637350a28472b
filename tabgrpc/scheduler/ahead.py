"""Work on a stream ahead of its answers: the next requests start while the first one is still computed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def ahead(items: Iterable[T], work: Callable[[T], R], depth: int) -> Iterator[R]:
    """``work`` of each item, in order, at most ``depth`` of them at once.

    Items are taken by a thread of their own, so an answer is given as soon as it is there, also to a caller who waits for it before it
    sends more. What ``items`` or ``work`` raises is raised in its place in the order.
    """
    answers: list[Future[R]] = []
    changed = threading.Condition()
    over = False

    def take(threads: ThreadPoolExecutor) -> None:
        nonlocal over
        try:
            for item in items:
                with changed:
                    changed.wait_for(lambda: len(answers) < depth or over)
                    if over:
                        return
                    answers.append(threads.submit(work, item))
                    changed.notify_all()
        except Exception as error:  # it belongs to whoever takes the answers
            failed: Future[R] = Future()
            failed.set_exception(error)
            with changed:
                answers.append(failed)
        finally:
            with changed:
                over = True
                changed.notify_all()

    threads = ThreadPoolExecutor(depth + 1, "ahead")
    try:
        threads.submit(take, threads)
        while True:
            with changed:
                changed.wait_for(lambda: answers or over)
                if not answers:
                    return
                first = answers[0]
            result = first.result()
            with changed:
                answers.pop(0)
                changed.notify_all()
            yield result
    finally:
        with changed:
            over = True
            changed.notify_all()
        threads.shutdown(wait=False, cancel_futures=True)

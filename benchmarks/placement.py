"""Placements against each other: whole members on workers, rows of every member over all workers, and what the plan chooses.

    python -m benchmarks placement [--runs 3]

Each shape is fitted and asked in turn under both placements on one pool. What counts is a fit and a predict of as many rows as a caller
might ask at once; the smallest of the runs, since a busy machine only ever adds. Answers are compared with ``==``.
"""

from __future__ import annotations

import json
import time

import numpy as np
import pyarrow as pa

from benchmarks.overhead import table
from tabgrpc import LocalPool
from tabgrpc.v1.models_pb2 import TASK_CLASSIFICATION, FitOptions

SHAPES = (
    (100, 5, 1),
    (100, 5, 8),
    (500, 15, 1),
    (500, 15, 3),
    (500, 15, 8),
    (300, 100, 2),
    (1000, 10, 1),
    (1000, 30, 5),
    (2000, 20, 1),
    (2000, 20, 3),
    (4000, 8, 1),
    (4000, 8, 3),
    (6000, 5, 5),
)
"""Rows, features, members."""
PLACEMENTS = ("rows", "members")
QUERIES = 256
LIMIT = 1.10


def run(runs: int, workers: int, lines: str = "") -> None:
    """Prints each shape's seconds, the plan's, and the choice. lines: a file to add the figures to, as JSON lines."""
    print(f"placement: mini, float32, {workers} workers of one thread, fit + predict of {QUERIES} rows, best of {runs}, interleaved")
    worst = 0.0
    with LocalPool(workers) as pool:
        for rows, features, members in SHAPES:
            x, y = table(rows, features, 0)
            asked, _ = table(QUERIES, features, 1)
            names = [f"f{i}" for i in range(features)]
            questions = pa.table(list(asked.T), names=names)
            sent = pool.client.upload(pa.table([*x.T, y], names=[*names, "y"]))
            found: dict[str, list[tuple[float, float]]] = {each: [] for each in PLACEMENTS}
            answers = []

            def options(placement: str, members: int = members) -> FitOptions:
                return FitOptions(target="y", task=TASK_CLASSIFICATION, checkpoint="mini", n_estimators=members, placement=placement)

            for number in range(runs + 1):  # the first one warms up
                for placement in PLACEMENTS if number % 2 else PLACEMENTS[::-1]:
                    start = time.perf_counter()
                    pool.client.fit("m", sent, options(placement))
                    fitted = time.perf_counter()
                    got = pool.client.predict("m", questions)
                    end = time.perf_counter()
                    answers.append(np.column_stack([got["proba_0"], got["proba_1"]]))
                    if number:
                        found[placement].append((fitted - start, end - fitted))
            if not all(np.array_equal(each, answers[0]) for each in answers):
                raise AssertionError("placements give other bits")
            seconds = {each: min(fit + predict for fit, predict in times) for each, times in found.items()}
            plans = {each: pool.client.plan(sent, options(each)) for each in PLACEMENTS}
            chosen = pool.client.plan(sent, options("auto")).placement
            ratio = seconds[chosen] / min(seconds.values())
            worst = max(worst, ratio)
            shown = "  ".join(f"{each} {seconds[each]:6.2f} (planned fit {plans[each].fit_seconds:6.2f})" for each in PLACEMENTS)
            print(f"  {rows:5} x {features:3}, {members} members: {shown}  chosen {chosen:7} {ratio:.2f}", flush=True)
            if lines:
                with open(lines, "a") as file:
                    record = {"shape": [rows, features, members], "workers": workers, **found}
                    file.write(json.dumps(record) + "\n")
            pool.client.drop_table(sent)
    verdict = "ok" if worst <= LIMIT else "MISSED"
    print(f"  the chosen placement takes at most {worst:.2f} times the other's seconds (limit {LIMIT}) {verdict}", flush=True)

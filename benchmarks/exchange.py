"""gRPC relay against collectives: the same fits and predicts over rows that two workers share, in turn on the same pool.

    python -m benchmarks.exchange [--runs 3] [--rows 4096] [--features 20] [--members 2] [--queries 512]

Only ratios within one run say something: the machine's load is part of both sides. CPU seconds, of the scheduler's process and of the
workers, say what the exchange itself costs, whatever else runs. Answers are compared with ``==``.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.overhead import table
from tabgrpc import LocalPool
from tabgrpc.v1.models_pb2 import TASK_CLASSIFICATION, FitOptions

PATHS = ("grpc", "collective")
BATCHES = (8, 64, 512)


def run(runs: int, rows: int, features: int, members: int, queries: int, workers: int) -> None:
    """Prints medians with their spread, and the ratios."""
    x, y = table(rows, features, 0)
    asked, _ = table(queries, features, 1)
    names = [f"f{i}" for i in range(features)]
    questions = pa.table(list(asked.T), names=names)
    found: dict[tuple[str, str], list[float]] = {}
    answers: list[np.ndarray] = []
    with LocalPool(workers) as pool:
        groups = pool._server.scheduler.pool.groups
        sent = pool.client.upload(pa.table([*x.T, y], names=[*names, "y"]))
        options = FitOptions(target="y", task=TASK_CLASSIFICATION, checkpoint="mini", n_estimators=members, placement="rows")
        for number in range(runs + 1):  # the first one warms up
            for path in PATHS if number % 2 else PATHS[::-1]:
                groups.exchange = path
                name = f"{path}-{number}"
                seconds: dict[str, float] = {}

                def spent(what: str, begun: np.ndarray, each: float, seconds: dict[str, float] = seconds) -> None:
                    for kind, value in zip(("", ", scheduler's CPU", ", workers' CPU"), (clocks(pool) - begun) / each, strict=True):
                        seconds[what + kind] = float(value)

                begun = clocks(pool)
                pool.client.fit(name, sent, options)
                spent("fit", begun, 1)
                for batch in BATCHES:
                    parts = [questions.slice(at, batch) for at in range(0, min(queries, 16 * batch), batch)]
                    begun = clocks(pool)
                    got = [pool.client.predict(name, part) for part in parts]
                    spent(f"predict by {batch}", begun, sum(part.num_rows for part in parts) / 1e3)
                answers.append(np.column_stack([got[-1]["proba_0"], got[-1]["proba_1"]]))
                if number:
                    for what, value in seconds.items():
                        found.setdefault((what, path), []).append(value)
                    for group in groups.find(pool._server.scheduler.models.get(f"models/{name}").shards_name):
                        print(f"# {name}: {group.exchanged}", flush=True)
                pool.client.delete(name)
    if not all(np.array_equal(answer, answers[0]) for answer in answers):
        raise SystemExit("the two paths give other bits")
    print(f"{rows} x {features}, {members} members, {workers} workers, mini, float32, {runs} runs each in turn; s a fit, ms a query row")
    for what in sorted({what for what, _ in found}):
        grpc, collective = (found[what, path] for path in PATHS)
        ratio = statistics.median(collective) / statistics.median(grpc)
        print(f"  {what:32} grpc {_spread(grpc)}  collective {_spread(collective)}  ratio {ratio:.2f}")


def clocks(pool: LocalPool) -> np.ndarray:
    """Seconds: the wall's, this process's CPU (client and scheduler), the workers' CPU."""
    times = [psutil.Process(worker.pid).cpu_times() for worker in pool._server.scheduler.pool.serving()]
    return np.array([time.perf_counter(), time.process_time(), sum(each.user + each.system for each in times)])


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):8.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exchange")
    for name, default in (("runs", 3), ("rows", 4096), ("features", 20), ("members", 2), ("queries", 512), ("workers", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    run(**vars(parser.parse_args()))

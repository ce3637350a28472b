"""``python -m benchmarks [overhead|models|classes|placement] [--runs N]``: prints what it ran on, then each benchmark."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import version

from benchmarks import classes, models, overhead, placement


def main() -> None:
    """Runs all benchmarks, or one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("which", nargs="?", default="all", choices=["all", "overhead", "models", "classes", "placement"])
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each side, interleaved")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--features", type=int, default=30)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=512, help="of K/V in the benchmark of models")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N, for the benchmark of models")
    options = parser.parse_args()
    names = ", ".join(f"{name} {version(name)}" for name in ("tabgrpc", "torch", "tabicl", "grpcio", "numpy"))
    print(f"# {platform.machine()}, {_processor()}, Python {platform.python_version()}, {names}", flush=True)
    runs, which = options.runs, options.which
    if which in ("all", "overhead"):
        overhead.run(runs, options.rows, options.features, options.members, options.queries)
    if which in ("all", "models"):
        models.run(runs, options.megabytes, options.device)
    if which in ("all", "classes"):
        classes.run(runs)
    if which in ("all", "placement"):
        placement.run(runs, workers=2)


def _processor() -> str:
    with open("/proc/cpuinfo") as lines:
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(models)} x {models[0]}" if models else "unknown processor"


if __name__ == "__main__":
    main()

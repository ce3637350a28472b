"""`tabgrpc bench`: what a GPU makes of a shape, and how many rows it takes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from tabgrpc.cli.errors import Mistake, PoolFailure
from tabgrpc.cli.worker import bytes_of
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.plan import BackboneShape, PlanError, plan, typical

app = typer.Typer(help="Measure a GPU: shapes, and the most rows it takes.", no_args_is_help=True)

SHAPES = ("262144x500", "65536x100", "2000x20")
V2 = BackboneShape(embed=128, icl=512, inducing=128, cls=4, column_blocks=3, row_blocks=3, icl_layers=12)


@dataclass(frozen=True)
class Shape:
    rows: int
    features: int
    members: int = 1

    @classmethod
    def of(cls, text: str) -> Shape:
        """ "262144x500" or "1048576x100x8". Raises Mistake."""
        found = re.fullmatch(r"(\d+)x(\d+)(?:x(\d+))?", text.replace(",", ""))
        if not found or min(sizes := [int(part) for part in found.groups("1")]) < 1:
            raise Mistake(f"--shape {text!r} is not ROWSxFEATURES or ROWSxFEATURESxMEMBERS")
        return cls(*sizes)

    def __str__(self) -> str:
        return f"{self.rows:,} x {self.features}" + (f", {self.members} members" if self.members > 1 else "")


ShapeOption = Annotated[
    list[str] | None, typer.Option("--shape", envvar="TABGRPC_SHAPE", metavar="ROWSxFEATURES[xMEMBERS]", help="May be repeated.")
]
DtypeOption = Annotated[str, typer.Option(envvar="TABGRPC_DTYPE", help="float16, bfloat16 or float32.")]
MemoryOption = Annotated[str, typer.Option(envvar="TABGRPC_MEMORY", metavar="BYTES", help="Memory of a GPU that the plan may use.")]


@app.command(name="gpu")
def gpu(
    shape: ShapeOption = None,
    dtype: DtypeOption = "float16",
    runs: Annotated[
        int, typer.Option(min=1, envvar="TABGRPC_RUNS", help="Independent runs of each shape, each in a process of its own.")
    ] = 1,
    repeats: Annotated[
        int, typer.Option(min=0, envvar="TABGRPC_REPEATS", help="Timed fits in a run; 0 warms on a small table and times one.")
    ] = 3,
    upstream: Annotated[
        bool, typer.Option("--upstream", envvar="TABGRPC_UPSTREAM", help="tabicl on the same card, and the error against its float32.")
    ] = False,
    results: Annotated[Path | None, typer.Option(envvar="TABGRPC_RESULTS", help="JSON lines are appended here.")] = None,
    plot: Annotated[
        Path | None, typer.Option(envvar="TABGRPC_PLOT", help="Draw seconds over rows to this file (needs matplotlib).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", envvar="TABGRPC_DRY_RUN", help="The plan's figures for 1, 2, 4 and 8 GPUs, without one.")
    ] = False,
    memory: MemoryOption = "132G",
) -> None:
    """Fit and predict prepared features on this machine's first GPU: seconds, bytes, TFLOP/s, against ceilings measured in the same run."""
    shapes = [Shape.of(text) for text in shape or SHAPES]
    if dry_run:
        for each in shapes:
            print("\n".join(planned(each, dtype, bytes_of(memory))))
        return
    found: list[dict[str, Any]] = []
    for each in shapes:
        mine = [measured(each, dtype, repeats, upstream) for _ in range(runs)]
        found += mine
        if results is not None:
            with results.open("a") as lines:
                lines.writelines(json.dumps(result) + "\n" for result in mine)
        print("\n".join(described(each, mine)), flush=True)
    if plot is not None:
        draw(found, plot)


@app.command(name="capacity")
def capacity(
    features: Annotated[int, typer.Option(min=1, envvar="TABGRPC_FEATURES", help="Features of the table.")] = 500,
    dtype: DtypeOption = "float16",
    memory: MemoryOption = "132G",
) -> None:
    """The most context rows that fit, by plan, on 1, 2, 4 and 8 GPUs."""
    for count in (1, 2, 4, 8):
        rows = most_rows(features, dtype, count, bytes_of(memory))
        if not rows:
            print(f"{count} GPU{'s' if count > 1 else ' '}  not one block of rows fits")
            continue
        print(f"{count} GPU{'s' if count > 1 else ' '}  {rows:>12,} rows x {features}, {dtype}")


def planned(shape: Shape, dtype: str, memory: int) -> Iterator[str]:
    """Lines of the dry run."""
    yield f"{shape}, {dtype}, by plan:"
    geometry = Geometry.of(shape.rows, shape.features, "cuda")
    for count in (1, 2, 4, 8):
        try:
            best = plan(geometry, V2, shape.members, typical("cuda", count, memory, 0), dtype)
        except PlanError as error:
            yield f"  {count}  {error}"
            continue
        peak, held = best.peak_bytes / 2**30, best.resident_bytes / 2**30
        yield f"  {count}  fit {best.fit_seconds:9.1f} s, {peak:6.1f} GiB a GPU at the peak, {held:6.1f} held, by {best.placement}"


def most_rows(features: int, dtype: str, count: int, memory: int) -> int:
    """The edge of the plan, to one canonical block."""

    def fits(rows: int) -> bool:
        try:
            plan(Geometry.of(rows, features, "cuda"), V2, 1, typical("cuda", count, memory, 0), dtype, "rows")
        except PlanError:
            return False
        return True

    if not fits(1):
        return 0
    low, high = 1, 1 << 32
    while high - low > 1024:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def measured(shape: Shape, dtype: str, repeats: int, upstream: bool) -> dict[str, Any]:
    """One run in a process of its own. Raises PoolFailure with what it said."""
    command = [sys.executable, "-m", "tabgrpc_workers.bench", "--rows", str(shape.rows), "--features", str(shape.features)]
    command += ["--members", str(shape.members), "--dtype", dtype, "--repeats", str(repeats)] + ["--upstream"] * upstream
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise PoolFailure(f"the run of {shape} failed: {said[-1]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"at": datetime.now(UTC).isoformat(timespec="seconds"), **result}


def described(shape: Shape, found: list[dict[str, Any]]) -> Iterator[str]:
    """Medians over the runs, with the least and the most."""

    def spread(values: list[float], unit: str = "s", digits: int = 3) -> str:
        return f"{median(values):.{digits}f} {unit} ({min(values):.{digits}f} to {max(values):.{digits}f})"

    first = found[0]
    yield f"{shape}, {first['dtype']}, {first['device']}, torch {first['torch']}, {len(found)} runs"
    if "first_fit_s" in first:
        yield f"  first fit   {spread([each['first_fit_s'] for each in found])}"
    yield f"  fit         {spread([seconds for each in found for seconds in each['fits_s']])}, {first['fit_tflops']:.0f} TFLOP/s"
    if first["stages_s"]:
        yield "  stages      " + ", ".join(f"{name} {seconds:.3f} s" for name, seconds in first["stages_s"].items())
    for batch in first["predict_s"]:
        rate = first["predict_tbps"].get(batch)
        moved = f", {rate:.2f} TB/s of K/V" if rate else ""
        yield f"  512 by {batch:>4} {spread([each['predict_s'][batch] for each in found], digits=4)}{moved}"
    yield f"  peak        {first['peak_allocated'] / 2**30:.2f} GiB allocated, {first['peak_reserved'] / 2**30:.2f} reserved"
    for name, value in first.get("tiers", {}).items():
        yield f"  in {name:<8} {value / 2**30:.1f} GiB"
    ceilings = first["ceilings"]
    yield (
        f"  ceilings    matrix product {ceilings['matmul_tflops']:.0f} TFLOP/s, cuDNN attention {ceilings['attention_tflops']:.0f}, "
        f"copy {ceilings['copy_tbps']:.2f} TB/s"
    )
    yield f"  bits equal over batch sizes: {first['batches_equal']}"
    if "error" in first:
        own, theirs = first["error"], first["upstream_half_error"]["frobenius"]
        yield f"  error against upstream float32: {own['frobenius']:.2e} (upstream's half {theirs:.2e}), {own['max']:.2e} at most"
    for name in ("upstream_half", "upstream_float32"):
        it = first.get(name)
        if isinstance(it, str):
            yield f"  {name:<17} {it}"
        elif it:
            peak = it["peak_allocated"] / 2**30
            yield f"  {name:<17} fit {it['fit_s']:.3f} s, 512 at once {it['predict_512_s']:.4f} s, {peak:.2f} GiB"


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Fit seconds over rows, one line for each number of features. Raises Mistake where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Mistake("--plot needs matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(7, 4.5))
    axes = figure.add_subplot(xscale="log", yscale="log", xlabel="context rows", ylabel="seconds")
    for features in sorted({each["features"] for each in found}):
        mine = sorted((each["rows"], each["fit_s"], each["predict_s"]["512"]) for each in found if each["features"] == features)
        rows = [row for row, _, _ in mine]
        axes.plot(rows, [fit for _, fit, _ in mine], "o-", label=f"fit, {features} features")
        axes.plot(rows, [predict for _, _, predict in mine], "x--", label=f"512 predictions, {features} features")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150, bbox_inches="tight")

"""What a fit of some size would cost on this machine and how its members would be placed, without a table or a worker."""

from __future__ import annotations

import re
from typing import Any

from tabgrpc import machine
from tabgrpc.cli.errors import Mistake
from tabgrpc.cli.progress import bytes_text, seconds_text

_SIZE = re.compile(r"([1-9][0-9]{0,11})x([1-9][0-9]{0,6})")
_CUDA_SHARE = 0.8


def planned(
    size: str, members: int, classes: int, workers: int | None, devices: list[dict[str, Any]], checkpoint: str
) -> dict[str, Any]:
    """size: "ROWSxFEATURES" after encoding. classes: equally often, 0 for regression. workers: None is one a GPU, or two on a CPU.

    Raises Mistake for a size that is none, and when nothing fits.
    """
    from tabgrpc.backbones.shapes import shape_of
    from tabgrpc.checkpoints import load_checkpoint
    from tabgrpc.core.classes import contexts
    from tabgrpc.core.geometry import Geometry
    from tabgrpc.core.plan import PlanError, plan, typical

    found = _SIZE.fullmatch(size)
    if found is None:
        raise Mistake(f"--plan takes ROWSxFEATURES, such as 50000x30, not {size!r}")
    rows, features = int(found[1]), int(found[2])
    if classes > rows:
        raise Mistake(f"{classes} classes need as many rows at least, not {rows}")
    gpus = [device["memory"] for device in devices if device["kind"] == "cuda"]
    kind = "cuda" if gpus else "cpu"
    count = workers or len(gpus) or 2
    free = machine.memory()
    memory = int(min(gpus) * _CUDA_SHARE) if gpus else (free.free // 2 // count if free else 1 << 62)
    shape = shape_of(load_checkpoint(checkpoint).config)
    counts = [rows // classes + (at < rows % classes) for at in range(classes)]
    pool = typical(kind, count, memory, 0 if gpus else int(machine.cores()))
    dtype = "float16" if gpus else "float32"
    try:
        geometry = Geometry.of(rows, features, kind)
        chosen = plan(geometry, shape, members, pool, dtype, parts=contexts(rows, counts, shape.max_classes))
    except PlanError as error:
        raise Mistake(str(error)) from error
    return {
        "rows": rows,
        "features": features,
        "members": members,
        "classes": classes,
        "workers": count,
        "device": kind,
        "dtype": dtype,
        "placement": chosen.placement,
        "contexts": chosen.contexts,
        "resident_bytes": chosen.resident_bytes,
        "peak_bytes": chosen.peak_bytes,
        "budget_bytes": memory,
        "fit_seconds": chosen.fit_seconds,
        "predict_seconds": chosen.predict_seconds,
        "why": chosen.why,
    }


def lines_of(plan: dict[str, Any]) -> list[str]:
    """For people."""
    nodes = f" of {plan['contexts']} contexts each" if plan["contexts"] > 1 else ""
    return [
        f"plan        {plan['rows']:,} x {plan['features']:,}, {plan['members']} members{nodes}, on {plan['workers']} workers "
        f"({plan['device']}, {plan['dtype']}), divided by {plan['why']}",
        f"cost        {bytes_text(plan['resident_bytes'])} a worker for good, {bytes_text(plan['peak_bytes'])} at the peak of "
        f"{bytes_text(plan['budget_bytes'])}; fit about {seconds_text(plan['fit_seconds'])}, "
        f"a predict of 256 rows about {seconds_text(plan['predict_seconds'])}",
    ]

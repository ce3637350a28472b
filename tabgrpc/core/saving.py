"""How a model is kept on disk, in TabICL's words, and what each way costs: bytes there, and seconds when it is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.plan import DTYPE_BYTES, BackboneShape, Workers

CHOICES = ("auto", "kv", "repr", "data")
KV_LIMIT_BYTES = 32 << 30
"""Beyond it ``auto`` keeps the rows' vectors instead of their K/V."""
READ_BYTES_PER_SECOND = 1e9
"""Read and checked by one worker, roughly."""


@dataclass(frozen=True, slots=True)
class Saving:
    """kind: "kv" (loads at once), "repr" (24 times smaller in TabICL v2, but loading repeats the n x n ICL stage) or "data" (loading
    repeats the whole fit). stored_bytes: of the context's files. load_seconds: estimated, on the workers it was planned for."""

    kind: str
    stored_bytes: int
    load_seconds: float


def icl_flops(shape: BackboneShape, rows: int) -> float:
    """Floating-point operations of the ICL stage over one member's context."""
    d = shape.icl
    return 2.0 * rows * shape.icl_layers * ((4 + 2 * shape.ff_factor) * d * d + 2 * rows * d)


def saving(
    choice: str,
    geometry: Geometry,
    shape: BackboneShape,
    members: int,
    workers: Workers,
    dtype: str,
    encoded: int,
    training_rows: bool = False,
    limit: int = 0,
) -> Saving:
    """What a choice means for a table. encoded: features before members. limit: bytes of K/V beyond which ``auto`` takes "repr", 0 is
    KV_LIMIT_BYTES. Raises ValueError for another choice."""
    if choice not in CHOICES:
        raise ValueError(f"save is {choice!r}, not one of {', '.join(CHOICES)}")
    item, rows = DTYPE_BYTES[dtype], geometry.rows
    columns = members * shape.column_bytes(geometry.groups, item)
    kv = members * shape.context_bytes(rows, item)
    if choice == "auto":
        choice = "kv" if kv <= (limit or KV_LIMIT_BYTES) else "repr"
    data = rows * (encoded + 1) * 8 if training_rows or choice == "data" else 0
    stored = {"kv": columns + kv, "repr": columns + members * rows * shape.icl * item, "data": 0}[choice] + data
    repeated = {"kv": 0.0, "repr": icl_flops(shape, rows), "data": shape.fit_flops(rows, geometry.groups)}[choice]
    speed = workers.count * workers.flops
    return Saving(choice, stored, members * repeated / speed + stored / workers.count / READ_BYTES_PER_SECOND)

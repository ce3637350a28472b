"""What a fit will cost, and where its members go: bytes, seconds and placement, from shapes and budgets alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import PLACEMENTS, OwnershipMap, by_members, by_rows

DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
RELAY_BYTES_PER_SECOND = 4e8
"""What the portable path moves through the scheduler, both ways counted once (measured on loopback, one core)."""


class PlanError(ValueError):
    """Nothing fits. Names the stage, the bytes wanted and the bytes there are."""


@dataclass(frozen=True, slots=True)
class BackboneShape:
    """Sizes of a backbone that cost depends on. embed: E of a cell, icl: D of a row, inducing: I, cls: tokens a row.

    max_classes: classes that one context tells apart, 0 for a regressor.
    """

    embed: int
    icl: int
    inducing: int
    cls: int
    column_blocks: int
    row_blocks: int
    icl_layers: int
    ff_factor: int = 2
    max_classes: int = 10

    def fit_flops(self, rows: int, groups: int) -> float:
        """Floating-point operations to fit one member."""
        e, d, f = self.embed, self.icl, self.ff_factor
        cell = self.column_blocks * (2 * e * e + (2 + 2 * f) * e * e + 4 * self.inducing * e)
        row = (groups + self.cls) * self.row_blocks * ((4 + 2 * f) * e * e + 2 * (groups + self.cls) * e)
        icl = self.icl_layers * ((4 + 2 * f) * d * d + 2 * rows * d)
        return 2.0 * rows * (groups * cell + row + icl)

    def query_flops(self, rows: int, groups: int) -> float:
        """Floating-point operations of one member for one query row."""
        return self.fit_flops(rows, groups) / rows

    def context_bytes(self, rows: int, itemsize: int) -> int:
        """K/V of the ICL layers held for good, one member."""
        return rows * self.icl_layers * 2 * self.icl * itemsize

    def column_bytes(self, groups: int, itemsize: int) -> int:
        """The blocks' inducing K/V, held by every owner, one member."""
        return self.column_blocks * groups * self.inducing * 2 * self.embed * itemsize

    def layer_bytes(self, rows: int, itemsize: int) -> int:
        """K/V of one ICL layer over all rows."""
        return rows * 2 * self.icl * itemsize


@dataclass(frozen=True, slots=True)
class Plan:
    """The choice, and what it was made from. Bytes are per worker, seconds for the whole fit; a choice never changes a bit.

    placement: "rows" or "members". store: keep the cells' embeddings between column blocks instead of computing them again.
    """

    placement: str
    store: bool
    resident_bytes: int
    peak_bytes: int
    fit_seconds: float
    query_seconds: float
    why: str

    def ownership(self, epoch: int, members: int, geometry: Geometry, workers: Sequence[str]) -> OwnershipMap:
        """The map that this plan means."""
        assign = by_members if self.placement == "members" else by_rows
        return assign(epoch, members, geometry.chunks, workers)


@dataclass(frozen=True, slots=True)
class Workers:
    """What there is to plan for. memory: byte budget of each worker. flops: measured or assumed rate of one worker."""

    count: int
    memory: int
    flops: float = 3e10

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("a pool needs at least one worker")


def plan(
    geometry: Geometry, shape: BackboneShape, members: int, workers: Workers, dtype: str, placement: str = "auto"
) -> Plan:
    """The faster of the placements that fit. Raises PlanError, naming stage and bytes, when none does."""
    if placement not in PLACEMENTS:
        raise ValueError(f"placement {placement!r} is none of {', '.join(PLACEMENTS)}")
    wanted = ("rows", "members") if placement == "auto" else (placement,)
    candidates = [_candidate(geometry, shape, members, workers, dtype, each) for each in wanted]
    fitting = [each for each in candidates if each.peak_bytes <= workers.memory]
    if not fitting:
        least = min(candidates, key=lambda each: each.peak_bytes)
        raise PlanError(
            f"the context doesn't fit: fitting {geometry.rows} rows x {geometry.groups} features with {members} members needs "
            f"{least.peak_bytes:,} bytes a worker and there are {workers.memory:,}; add workers or take fewer members"
        )
    return min(fitting, key=lambda each: each.fit_seconds)


def _candidate(
    geometry: Geometry, shape: BackboneShape, members: int, workers: Workers, dtype: str, placement: str
) -> Plan:
    item = DTYPE_BYTES[dtype]
    rows, groups = geometry.rows, geometry.groups
    if placement == "members":
        held = -(-members // workers.count)
        own_rows, share, exchanged = rows, held / members, 0
    else:
        held = members
        own_chunks = -(-geometry.chunks // workers.count)
        own_rows = min(rows, own_chunks * geometry.blocks_per_chunk * geometry.block)
        share = own_rows / rows
        alone = min(workers.count, geometry.chunks) == 1
        per_member = (shape.icl_layers - 1) * shape.layer_bytes(rows, item) + shape.column_bytes(groups, item)
        exchanged = 0 if alone else members * per_member * 2
    features = own_rows * groups * 4 * held
    resident = held * (shape.context_bytes(own_rows, item) + shape.column_bytes(groups, item)) + features
    transient = own_rows * shape.icl * item + 2 * shape.layer_bytes(rows, item)
    embeddings = own_rows * groups * shape.embed * item
    store = resident + transient + embeddings <= workers.memory
    compute = members * shape.fit_flops(rows, groups) * share / workers.flops
    if not store:  # the column stage runs 1 + 2 + ... times instead of once a block
        compute *= 1.5
    seconds = compute + exchanged / RELAY_BYTES_PER_SECOND
    return Plan(
        placement=placement,
        store=store,
        resident_bytes=resident,
        peak_bytes=resident + transient + (embeddings if store else 0),
        fit_seconds=seconds,
        query_seconds=members * shape.query_flops(rows, groups) * share / workers.flops,
        why=f"{placement}: {compute:.1f} s of compute on the busiest of {workers.count}, {exchanged:,} bytes exchanged",
    )

"""What a fit will cost, and where its members go: bytes, seconds and placement, from shapes and budgets alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tabgrpc.core.classes import Contexts
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import PLACEMENTS, OwnershipMap, by_members, by_rows

DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


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

    def column_flops(self, rows: int, groups: int) -> float:
        """Floating-point operations of one member's column stage, for one digit of its labels."""
        e, f = self.embed, self.ff_factor
        return 2.0 * rows * groups * self.column_blocks * (2 * e * e + (2 + 2 * f) * e * e + 4 * self.inducing * e)

    def row_flops(self, rows: int, groups: int) -> float:
        """Those of its row interaction."""
        e, f, tokens = self.embed, self.ff_factor, groups + self.cls
        return 2.0 * rows * tokens * self.row_blocks * ((4 + 2 * f) * e * e + 2 * tokens * e)

    def icl_flops(self, rows: int, context: int) -> float:
        """Those of ``rows`` rows through the ICL layers of a context of ``context`` rows."""
        d, f = self.icl, self.ff_factor
        return 2.0 * rows * self.icl_layers * ((4 + 2 * f) * d * d + 2 * context * d)

    def fit_flops(self, rows: int, groups: int) -> float:
        """Floating-point operations to fit one member without a tree of classes."""
        return self.column_flops(rows, groups) + self.row_flops(rows, groups) + self.icl_flops(rows, rows)

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
class Costs:
    """What a kind of device does with its rate, and what an exchange costs beside it.

    column, row, icl: share of the rate that a stage reaches. setup: seconds until a model's owners can exchange. stage: seconds
    of a stage of a fit over several owners, besides its work. step: of a step of a query tile through a member. relay: bytes a second.
    """

    column: float = 1.0
    row: float = 1.0
    icl: float = 1.0
    setup: float = 0.2
    stage: float = 0.01
    step: float = 0.001
    relay: float = 4e8


CPU_COSTS = Costs(column=0.7, row=0.27, icl=0.8)
"""Of 3e10 operations a second: measured with ``mini``, one thread, by the thread's own clock (docs/notes.md)."""
GPU_COSTS = Costs(column=0.37, row=0.28, icl=1.04, setup=1.0, stage=0.002, step=0.0003, relay=5e10)
"""Of 4.6e14 operations a second: one H200 in half precision (docs/notes.md). What an exchange costs there is assumed, not yet measured."""
MARGIN = 1.1
"""What dividing rows must promise over whole members, which depend on nobody: an exchange waits for the slower one of its owners."""
QUERIES = 256
"""Query rows of the predict that a placement is chosen for, besides the fit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The choice, and what it was made from. Bytes are per worker, seconds for the whole fit; a choice never changes a bit.

    placement: "rows" or "members". store: keep the cells' embeddings between column blocks instead of computing them again. query_seconds:
    of one row. predict_seconds: of ``QUERIES`` rows at once. contexts: of each member, one but for trees of classes.
    """

    placement: str
    store: bool
    resident_bytes: int
    peak_bytes: int
    fit_seconds: float
    query_seconds: float
    predict_seconds: float
    contexts: int
    why: str

    @property
    def seconds(self) -> float:
        """What a placement is chosen by: a fit and a predict."""
        return self.fit_seconds + self.predict_seconds

    def ownership(self, epoch: int, members: int, geometry: Geometry, workers: Sequence[str]) -> OwnershipMap:
        """The map that this plan means."""
        assign = by_members if self.placement == "members" else by_rows
        return assign(epoch, members, geometry.chunks, workers)


@dataclass(frozen=True, slots=True)
class Workers:
    """What there is to plan for. memory: byte budget of each worker. flops: measured or assumed rate of one worker. cores: that all of
    them share, 0 if each has its own.
    """

    count: int
    memory: int
    flops: float = 3e10
    costs: Costs = Costs()
    cores: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("a pool needs at least one worker")


def typical(kind: str, count: int, memory: int, cores: int) -> Workers:
    """Workers of a kind ("cpu" or "cuda") as they usually are. memory: of each, bytes. cores: that all of them share, 0 for their own."""
    rates = {"cpu": (3e10, CPU_COSTS), "cuda": (4.6e14, GPU_COSTS)}
    flops, costs = rates[kind]
    return Workers(count, memory, flops, costs, cores)


def plan(
    geometry: Geometry,
    shape: BackboneShape,
    members: int,
    workers: Workers,
    dtype: str,
    placement: str = "auto",
    parts: Contexts | None = None,
) -> Plan:
    """The faster of the placements that fit. parts: what a member consists of, None is one context.

    Raises PlanError, naming stage and bytes, when none fits.
    """
    if placement not in PLACEMENTS:
        raise ValueError(f"placement {placement!r} is none of {', '.join(PLACEMENTS)}")
    whole = parts or Contexts((geometry.rows,))
    candidates = [_candidate(geometry, shape, members, workers, dtype, each, whole) for each in ("members", "rows")]
    wanted = [each for each in candidates if placement in ("auto", each.placement)]
    fitting = [each for each in wanted if each.peak_bytes <= workers.memory]
    if not fitting:
        least = min(wanted, key=lambda each: each.peak_bytes)
        nodes = f" in {len(whole.rows)} contexts each" if len(whole.rows) > 1 else ""
        raise PlanError(
            f"the context doesn't fit: fitting {geometry.rows} rows x {geometry.groups} features with {members} members{nodes} needs "
            f"{least.peak_bytes:,} bytes a worker and there are {workers.memory:,}; add workers or take fewer members"
        )
    chosen = min(fitting, key=lambda each: each.seconds * (1 if each.placement == "members" else MARGIN))
    (other,) = (each for each in candidates if each is not chosen)
    return replace(chosen, why=f"{chosen.why}; {_against(chosen, other, workers)}")


def _against(chosen: Plan, other: Plan, workers: Workers) -> str:
    if other.peak_bytes > workers.memory:
        return f"by {other.placement} it needs {other.peak_bytes:,} bytes a worker, which there are not"
    if workers.count == 1:
        return "on one worker both are the same"
    return f"by {other.placement} a fit and a predict would take {other.seconds:.1f} s, so {chosen.seconds:.1f} s"


def _candidate(
    geometry: Geometry, shape: BackboneShape, members: int, workers: Workers, dtype: str, placement: str, parts: Contexts
) -> Plan:
    item, costs = DTYPE_BYTES[dtype], workers.costs
    rows, groups = geometry.rows, geometry.groups
    chunks = -(-geometry.chunks // workers.count)
    own_rows = rows if placement == "members" else min(rows, chunks * geometry.blocks_per_chunk * geometry.block)
    held = -(-members // workers.count) if placement == "members" else members
    shared = placement == "rows" and min(workers.count, geometry.chunks) > 1
    own_contexts = own_rows + -(-sum(parts.rows[1:]) * own_rows // rows)
    # bytes
    features = own_rows * groups * 4 * held
    resident = held * (shape.context_bytes(own_contexts, item) + parts.digits * shape.column_bytes(groups, item)) + features
    vectors = own_rows * shape.icl * item * (2 if len(parts.rows) > 1 else 1)
    transient = vectors + 2 * shape.layer_bytes(rows, item)
    embeddings = own_rows * groups * shape.embed * item * parts.digits
    store = resident + transient + embeddings <= workers.memory
    # seconds: of the busiest worker, or of all the work on the cores that the workers share
    column, row = shape.column_flops(rows, groups) / costs.column, shape.row_flops(rows, groups) / costs.row
    icl = sum(shape.icl_flops(n, n) for n in parts.rows) / costs.icl
    one = (parts.digits * column * (1.0 if store else 1.5) + row + icl) / workers.flops  # not stored: cells are computed 1 + 2 + ... times
    asked = (parts.digits * column + row) / rows + sum(shape.icl_flops(1, n) for n in parts.rows) / costs.icl
    share = held / members * (own_rows / rows)
    if workers.cores:
        share = max(share, 1 / workers.cores)
    compute = members * one * share
    query = members * asked * share / workers.flops
    layers = shape.icl_layers
    rounds = setup = moved = 0.0
    if shared:
        setup = costs.setup
        rounds = members * (2 * parts.digits * shape.column_blocks + 1 + len(parts.rows) * (layers - 1))
        layer_bytes = sum(shape.layer_bytes(n, item) for n in parts.rows)
        moved = members * 2 * ((layers - 1) * layer_bytes + parts.digits * shape.column_bytes(groups, item))
    exchange = setup + rounds * costs.stage + moved / costs.relay
    tiles = -(-QUERIES // geometry.tile)
    steps = tiles * members * (2 * layers + 1) * len(parts.rows) if shared else 0
    exchanged = f"{exchange:.1f} s of exchange ({moved:,.0f} bytes)" if shared else "nothing exchanged"
    return Plan(
        placement=placement,
        store=store,
        resident_bytes=resident,
        peak_bytes=resident + transient + (embeddings if store else 0),
        fit_seconds=compute + exchange,
        query_seconds=query,
        predict_seconds=tiles * geometry.tile * query + steps * costs.step,
        contexts=len(parts.rows),
        why=f"{placement}: {compute:.1f} s of compute on the busiest of {workers.count}, {exchanged}",
    )

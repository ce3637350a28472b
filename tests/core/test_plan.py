"""The plan: a pure function of shapes and budgets that says why nothing fits."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabgrpc.core.classes import contexts
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.plan import DTYPE_BYTES, MARGIN, BackboneShape, PlanError, Workers, plan, typical

V2 = BackboneShape(embed=128, icl=512, inducing=128, cls=4, column_blocks=3, row_blocks=3, icl_layers=12)
MINI = BackboneShape(embed=64, icl=256, inducing=32, cls=4, column_blocks=2, row_blocks=3, icl_layers=6)
GIB = 1 << 30
cases = {
    "rows": st.integers(1, 400_000),
    "groups": st.integers(1, 300),
    "members": st.integers(1, 16),
    "count": st.integers(1, 16),
}


def needed(geometry: Geometry, members: int, count: int, dtype: str = "float32", placement: str = "auto") -> int:
    """The bytes that the error names."""
    with pytest.raises(PlanError) as error:
        plan(geometry, V2, members, Workers(count, 0), dtype, placement)
    wanted, had = re.search(r"needs ([\d,]+) bytes a worker and there are ([\d,]+);", str(error.value)).groups()
    assert int(had.replace(",", "")) == 0
    return int(wanted.replace(",", ""))


@given(**cases)
def test_the_error_names_the_bytes_that_would_do(rows, groups, members, count):
    """Catches an error whose number isn't the one that decides."""
    geometry = Geometry.of(rows, groups)
    wanted = needed(geometry, members, count)
    found = plan(geometry, V2, members, Workers(count, wanted), "float32")
    assert found.peak_bytes <= wanted
    assert found.resident_bytes <= found.peak_bytes
    with pytest.raises(PlanError, match=re.escape(f"{wanted:,} bytes a worker and there are {wanted - 1:,}")) as error:
        plan(geometry, V2, members, Workers(count, wanted - 1), "float32")
    assert f"{rows} rows x {groups} features with {members} members" in str(error.value)


@given(**cases, memory=st.integers(1, 64 * GIB))
def test_a_plan_is_pure_and_more_memory_never_makes_it_slower(rows, groups, members, count, memory):
    geometry = Geometry.of(rows, groups)
    try:
        found = plan(geometry, V2, members, Workers(count, memory), "float32")
    except PlanError:
        return
    assert found == plan(geometry, V2, members, Workers(count, memory), "float32")
    assert found.peak_bytes <= memory
    assert plan(geometry, V2, members, Workers(count, 2 * memory), "float32").seconds <= MARGIN * found.seconds


@given(**cases, dtype=st.sampled_from(sorted(DTYPE_BYTES)))
def test_bytes_grow_with_the_work(rows, groups, members, count, dtype):
    """Catches a term with a wrong sign, or one that forgets rows, features, members or the dtype."""
    least = needed(Geometry.of(rows, groups), members, count, dtype)
    assert needed(Geometry.of(rows, groups + 1), members, count, dtype) >= least
    assert needed(Geometry.of(rows, groups), members + 1, count, dtype) >= least
    assert needed(Geometry.of(4 * rows, groups), members, count, dtype) >= least
    assert needed(Geometry.of(rows, groups), members, count, "float64") >= least
    by_members = needed(Geometry.of(rows, groups), members, count, dtype, "members")
    assert needed(Geometry.of(rows, groups), members, count + 1, dtype, "members") <= by_members


def test_members_are_placed_whole_when_they_divide_and_rows_when_they_do_not():
    """Eight members on two workers need no exchange; one member on four workers only gains by its rows."""
    geometry = Geometry.of(4096, 30)
    assert plan(geometry, V2, 8, Workers(2, 64 * GIB), "float32").placement == "members"
    assert plan(geometry, V2, 1, Workers(4, 64 * GIB), "float32").placement == "rows"
    for placement in ("rows", "members"):
        assert plan(geometry, V2, 8, Workers(2, 64 * GIB), "float32", placement).placement == placement
    with pytest.raises(ValueError, match="'columns' is none of"):
        plan(geometry, V2, 8, Workers(2, GIB), "float32", "columns")


def test_rows_are_divided_where_no_member_fits_one_worker():
    """The table that is too large for one device is what the pool is for."""
    geometry = Geometry.of(262_144, 100)
    rows = needed(geometry, 2, 8, placement="rows")
    assert rows < needed(geometry, 2, 8, placement="members")
    assert plan(geometry, V2, 2, Workers(8, rows), "float32").placement == "rows"


def test_embeddings_are_kept_only_where_they_fit():
    geometry = Geometry.of(4096, 30)
    roomy = plan(geometry, V2, 1, Workers(1, 64 * GIB), "float32")
    tight = plan(geometry, V2, 1, Workers(1, roomy.peak_bytes - 1), "float32")
    assert roomy.store
    assert not tight.store
    assert tight.peak_bytes < roomy.peak_bytes
    assert tight.fit_seconds > roomy.fit_seconds


@pytest.mark.parametrize("placement", ["rows", "members"])
def test_the_map_is_the_plans(placement):
    geometry = Geometry.of(4096, 30)
    found = plan(geometry, V2, 8, Workers(2, 64 * GIB), "float32", placement)
    ownership = found.ownership(7, 8, geometry, ["a", "b"])
    assert ownership.epoch == 7
    assert len(ownership.owners) == 8
    assert all(len(ownership.owners_of(member)) == (1 if placement == "members" else 2) for member in range(8))


def test_a_pool_has_workers():
    with pytest.raises(ValueError, match="at least one worker"):
        Workers(0, GIB)


def test_bytes_of_a_context_row_are_the_designs():
    """24,576 bytes of K/V a row and member in half, of TabICL v2."""
    assert V2.context_bytes(1, 2) == 24_576
    assert replace(V2, icl_layers=6).context_bytes(1, 2) == 12_288


def test_a_tree_of_classes_counts_its_nodes_and_digits():
    """No surprise in memory: 300 classes are a root, ten groups of 30 and thirty of ten; three levels hold every row's K/V."""
    geometry = Geometry.of(30_000, 20)
    one = plan(geometry, V2, 8, Workers(2, 64 * GIB), "float32")
    parts = contexts(30_000, [100] * 300, 10)
    tree = plan(geometry, V2, 8, Workers(2, 64 * GIB), "float32", parts=parts)
    assert (len(parts.rows), parts.digits, sum(parts.rows)) == (41, 3, 90_000)
    assert (one.contexts, tree.contexts) == (1, 41)
    held = 4 * (V2.context_bytes(90_000, 4) + 3 * V2.column_bytes(20, 4))
    assert tree.resident_bytes == held + 4 * 30_000 * 20 * 4
    assert one.fit_seconds < tree.fit_seconds < 3 * one.fit_seconds
    with pytest.raises(PlanError, match="8 members in 41 contexts each needs"):
        plan(geometry, V2, 8, Workers(2, GIB), "float32", parts=parts)


@pytest.mark.parametrize(
    ("rows", "members", "wanted"), [(100, 8, "members"), (500, 1, "members"), (200_000, 1, "rows"), (20_000, 8, "members")]
)
def test_small_tables_are_not_spread_row_by_row(rows, members, wanted):
    """The exchange has a price of its own: worth it where one worker would compute for long while the other is idle."""
    found = plan(Geometry.of(rows, 15), MINI, members, typical("cpu", 2, 64 * GIB, 0), "float32")
    assert found.placement == wanted
    other = {"rows": "members", "members": "rows"}[wanted]
    forced = plan(Geometry.of(rows, 15), MINI, members, typical("cpu", 2, 64 * GIB, 0), "float32", other)
    assert found.seconds <= MARGIN * forced.seconds
    assert f"by {other} a fit and a predict would take {forced.seconds:.1f} s" in found.why


def test_why_says_what_does_not_fit():
    geometry = Geometry.of(262_144, 100)
    rows = needed(geometry, 2, 8, placement="rows")
    assert "by members it needs" in plan(geometry, V2, 2, Workers(8, rows), "float32").why
    assert "both are the same" in plan(geometry, V2, 2, Workers(1, 1 << 50), "float32").why

"""A frame's columns on the way to a pool: what is read there is what the schema would have read here, whatever holds the cells."""

from __future__ import annotations

import datetime
import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tabgrpc.data import Schema, UserError
from tabgrpc.data.arrow import arrow_column
from tabgrpc.data.errors import UserTypeError
from tabgrpc.data.frames import frame_of
from tabgrpc.data.target import labels_of

N = 12
Y = [0, 1] * (N // 2)
DAYS = [datetime.date(2020, 1, 31) + datetime.timedelta(days=40 * i) for i in range(N)]
TIMES = [datetime.datetime(2021, 3, 1, 5, 6, 7, 250_000) + datetime.timedelta(hours=37 * i) for i in range(N)]
CLOCK = [datetime.time(i, 2 * i, 3 * i, 1000 * i) for i in range(N)]
TOKYO = datetime.timezone(datetime.timedelta(hours=9))


def objects(values: list[Any]) -> pd.Series[Any]:
    return pd.Series(values, dtype=object)


def holed(values: list[Any]) -> list[Any]:
    """With three ways of missing."""
    return [None, values[1], np.nan, values[3], pd.NA, *values[5:]]


def encoded(column: Any) -> np.ndarray[Any, Any]:
    """As a schema of this column alone reads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = column if isinstance(column, pa.Table) else pd.DataFrame({"c": column})
        return Schema.fit(table, Y).encode(table)


def sent(column: Any) -> np.ndarray[Any, Any]:
    """As the pool reads it."""
    arrow, _ = arrow_column(frame_of(pd.DataFrame({"c": column})), "c")
    return encoded(pa.table({"c": arrow}))


KINDS: dict[str, Any] = {
    **{kind: np.arange(N).astype(kind) for kind in ("f2", "f4", "f8", "g", ">f8", "i1", "u1", "i8", "u8", ">i4")},
    **{kind: np.arange(N).astype(kind) for kind in ("?", "m8[s]", "m8[D]", "M8[D]")},
    **{kind: pd.array([None, *range(1, N)], dtype=kind) for kind in ("Int8", "UInt64", "Float32", "Int64")},
    "boolean": pd.array([True, None, False] * 4, dtype="boolean"),
    "ids": 2**62 + np.arange(N),
    "ids with holes": pd.array([None, *range(2**62, 2**62 + N - 1)], dtype="Int64"),
    "ids beyond 64 bits": objects([2**70 + i for i in range(N)]),
    "text": objects(holed(list("abcdabcdabcd"))),
    "text as string": pd.array(["b", None, "a"] * 4, dtype="string"),
    "bytes": objects([b"b", b"a", None] * 4),
    "category": pd.Categorical(["b", None, "a"] * 4, categories=["b", "a", "never"]),
    "category of numbers": pd.Categorical([10, 9, 1.5] * 4),
    "category of large numbers": pd.Categorical([2**60, 2**60 + 1, 5] * 4),
    "category of dates": pd.Categorical(pd.to_datetime(["2020-01-01", "2019-01-01", "2021-01-01"] * 4)),
    "category of booleans": pd.Categorical([True, False] * 6),
    "intervals": pd.cut(np.arange(N), 3),
    "periods": pd.period_range("2020-01", periods=N, freq="M"),
    "dates": objects(holed(DAYS)),
    "datetimes": objects(holed(TIMES)),
    "first and last days": objects([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), *DAYS[2:]]),
    "dates of several kinds": objects([DAYS[0], TIMES[1], pd.Timestamp(TIMES[2]), np.datetime64("2021-05-05"), None, *TIMES[5:]]),
    "zones": objects([TIMES[0].replace(tzinfo=TOKYO), TIMES[1].replace(tzinfo=datetime.UTC), *TIMES[2:]]),
    "one zone": pd.Series(pd.to_datetime(TIMES)).dt.tz_localize("Asia/Tokyo"),
    "durations": objects([datetime.timedelta(days=1), pd.Timedelta("1ms"), np.timedelta64(3, "h"), *map(datetime.timedelta, range(9))]),
    "nanoseconds": pd.to_timedelta(np.arange(N), unit="ns"),
    "times": objects(holed(CLOCK)),
    "times with zones": objects([each.replace(tzinfo=TOKYO) for each in CLOCK]),
    "decimals": objects([Decimal(i) / 7 for i in range(N)]),
    "mixed": objects([1, "1", True, None, 2.5, np.float32(2)] * 2),
    "nothing": objects([None] * N),
    "arrow decimals": pd.Series([Decimal(i) / 8 for i in range(N)], dtype=pd.ArrowDtype(pa.decimal128(9, 4))),
    "arrow times": pd.Series(CLOCK, dtype=pd.ArrowDtype(pa.time64("us"))),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_pool_reads_what_the_schema_reads(kind: str) -> None:
    """Catches a kind that is turned into another one, rounded, reordered or refused on its way."""
    want = encoded(KINDS[kind])
    assert np.array_equal(sent(KINDS[kind]), want)
    assert np.isfinite(want).all()
    assert np.ptp(want, axis=0).max() > 0 or kind == "nothing", "a column that is all alike would show nothing"


SAME: dict[str, tuple[Any, Any]] = {
    "dates of several kinds": (KINDS["dates of several kinds"], pd.to_datetime([pd.Timestamp(t) for t in KINDS["dates of several kinds"]])),
    "zones": (KINDS["zones"], pd.to_datetime([t.astimezone(datetime.UTC).replace(tzinfo=None) if t.tzinfo else t for t in KINDS["zones"]])),
    "times with zones": (KINDS["times with zones"], objects(CLOCK)),
    "times": (KINDS["arrow times"], objects(CLOCK)),
    "first and last days": (KINDS["first and last days"], pd.Series(KINDS["first and last days"], dtype=pd.ArrowDtype(pa.date32()))),
    "bytes": (KINDS["bytes"], objects(["b", "a", None] * 4)),
    "Arrow's bytes": (pd.Series([b"b", b"a", None] * 4, dtype=pd.ArrowDtype(pa.binary())), objects(["b", "a", None] * 4)),
    "Arrow's bytes of one width": (pd.Series([b"b", b"a"] * 6, dtype=pd.ArrowDtype(pa.binary(1))), objects(["b", "a"] * 6)),
}


@pytest.mark.parametrize("kind", SAME)
def test_the_same_cells_are_the_same_numbers(kind: str) -> None:
    left, right = SAME[kind]
    assert np.array_equal(encoded(left), encoded(right))


def test_masked_arrays_hide_what_is_masked() -> None:
    """What lies below a mask is nobody's number: missing among features, refused as a target."""
    values = np.arange(2.0 * N).reshape(N, 2)
    masked = np.ma.masked_array(values.copy(), np.zeros_like(values, bool))
    masked[3, 1] = np.ma.masked
    masked.data[3, 1] = 1e6
    plain = values.copy()
    plain[3, 1] = np.nan
    for array in (masked, masked.astype("i8")):
        assert np.array_equal(Schema.fit(array, Y).encode(array), Schema.fit(plain, Y).encode(plain))
    assert np.array_equal(Schema.fit(values, Y).encode(np.ma.masked_array(values)), values)
    with pytest.raises(UserError, match="1 missing value, the first in row 5"):
        labels_of(np.ma.masked_array(Y, np.arange(N) == 4), "y")


def test_targets_of_every_make() -> None:
    """Byte orders and widths that Arrow doesn't take, and whole numbers that no label can hold."""
    for kind in ("<i4", ">i4", ">f8", ">u2", "g"):
        labels = labels_of(np.array(Y, kind), "y")
        assert labels.tolist() == Y and labels.dtype.isnative
        assert pa.array(labels).to_pylist() == Y
    with pytest.raises(UserError, match="64 bits"):
        labels_of([10**30 + i for i in range(N)], "y")


def test_messages_count_rows_over_a_whole_table() -> None:
    part = pd.DataFrame({"c": objects(["a", (1, 2)])})
    frame = frame_of(part)
    with pytest.raises(UserTypeError, match=r"'c', row 2: .*tuple"):
        frame.cells("c")
    with pytest.raises(UserTypeError, match=r"'c', row 1002: .*tuple"):
        type(frame)(frame.columns, frame.rows, frame.named, first_row=1001).cells("c")


def test_text_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="'c' has text that isn't Unicode"):
        encoded(objects(["a", "\ud800"] * (N // 2)))


@pytest.mark.parametrize("one", [pd.Series([1.0, 2.0]), np.ones(3), [1.0, 2.0], pa.array([1.0])], ids=lambda one: type(one).__name__)
def test_one_column_is_not_a_table(one: Any) -> None:
    with pytest.raises(UserError, match="Expected 2D array, got 1D array"):
        frame_of(one)

"""One column in the one internal form, whatever frame, array or table it came from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabgrpc.data.errors import UserError, UserTypeError

Kind = Literal["numeric", "categorical", "boolean", "datetime", "timedelta", "empty"]
FloatArray = np.ndarray[Any, np.dtype[np.float64]]
#: Whole numbers beyond this aren't all different as float64.
EXACT_INTEGER = 2**53


@dataclass(frozen=True)
class Cells:
    """A column's cells.

    values, by kind: numeric: float64 (n,), NaN where missing. timedelta: float64 (n,) seconds, NaN where missing.
    datetime: datetime64[us] (n,) in UTC or without a zone, NaT where missing. categorical and boolean: Arrow string
    (n,), null where missing, each cell the `key` of its value. empty: float64 (n,), all NaN.
    numbers: whether a categorical column's keys are of numbers, ordered as numbers.
    note: what was converted on the way, for a warning; empty if nothing.
    """

    kind: Kind
    values: Any
    numbers: bool = False
    note: str = ""

    def __len__(self) -> int:
        return len(self.values)


def key(value: object) -> str:
    """The text by which a categorical value is known: 1, 1.0 and "1" are the same category, True and "True" too."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating, Decimal)):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < 1e16 else repr(number)
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="backslashreplace")
    return str(value)


def from_arrow(column: pa.ChunkedArray | pa.Array, name: str) -> Cells:
    """An Arrow column as cells. Raises `UserError` for lists, structs and the like, naming the column."""
    column = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column, kind = (
            pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type),
            kind.storage_type,
        )
    if column.null_count == len(column) and len(column):
        return empty(len(column))
    if pa.types.is_dictionary(kind):
        return _from_dictionary(column, name)
    if pa.types.is_boolean(kind):
        return Cells("boolean", pc.if_else(column, "True", "False").combine_chunks())
    if pa.types.is_integer(kind):
        return _from_integers(column)
    if pa.types.is_floating(kind):
        return Cells("numeric", _floats(column))
    if pa.types.is_decimal(kind):
        # by their text: Arrow's own cast is an ulp off the nearest float64 for some
        return Cells("numeric", _floats(column.cast(pa.string())), note="decimals read as float64")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return Cells("categorical", _strings(column))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        table = _one(column.dictionary_encode())  # text as pandas' columns of bytes are, and parquet files of old writers
        texts = pa.array([key(value) for value in table.dictionary.to_pylist()], pa.string())
        return Cells("categorical", texts.take(table.indices))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        instants = column.cast(pa.timestamp("us", kind.tz if pa.types.is_timestamp(kind) else None), safe=False)
        return Cells(
            "datetime", instants.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy().view("datetime64[us]")
        )
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        ticks = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.float64(), safe=False)
        return Cells("timedelta", _floats(ticks) / {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit])
    if pa.types.is_null(kind):
        return empty(len(column))
    raise UserError(f"column {name!r} has values of type {kind}, which can't be used: flatten or drop it")


def empty(rows: int) -> Cells:
    """A column with nothing in it."""
    return Cells("empty", np.full(rows, np.nan))


def _floats(column: pa.ChunkedArray) -> FloatArray:
    values = column.cast(pa.float64(), safe=False).to_numpy()
    return np.ascontiguousarray(values, dtype=np.float64)


def _strings(column: pa.ChunkedArray) -> pa.Array:
    """As one Arrow array; an empty text is a category like any other."""
    return _one(column.cast(pa.large_string() if column.nbytes > 1 << 30 else pa.string()))


def _one(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _from_integers(column: pa.ChunkedArray) -> Cells:
    """Numbers, unless float64 would merge some of them: then ids, ordered as numbers (case X5)."""
    bounds = pc.min_max(column).as_py()
    if max(abs(bounds["min"] or 0), abs(bounds["max"] or 0)) > EXACT_INTEGER:
        return Cells(
            "categorical", _strings(column), numbers=True, note="whole numbers beyond 2^53 kept as ids, not as numbers"
        )
    return Cells("numeric", _floats(column))


def _from_dictionary(column: pa.ChunkedArray, name: str) -> Cells:
    """A categorical column stays one, whatever its values are."""
    column = column.unify_dictionaries()
    first = column.chunks[0] if column.chunks else pa.array([], column.type)
    values = first.dictionary.to_pylist()
    keys = pa.array([None if _is_nan(value) else key(value) for value in values], pa.string())
    cells = pa.chunked_array([keys.take(chunk.indices) for chunk in column.chunks], pa.string())
    numbers = all(isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) for value in values)
    return Cells("categorical", _one(cells), numbers=numbers and len(values) > 0)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def from_numpy(values: np.ndarray[Any, Any], name: str) -> Cells:
    """A 1-D NumPy column of any dtype but object. Raises `UserTypeError` for complex numbers."""
    if values.dtype.kind == "c":
        raise UserTypeError(f"Complex data not supported: column {name!r}")
    if values.dtype.kind == "f":
        return Cells("numeric", np.ascontiguousarray(values, dtype=np.float64))
    return from_arrow(pa.array(values.astype(values.dtype.newbyteorder("="), copy=False)), name)

"""Any frame's columns as Arrow, for the way to a pool: what the pool reads there is what the schema would have read here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tabgrpc.data.cells import Cells
from tabgrpc.data.frames import Frame


def arrow_column(frame: Frame, name: str) -> tuple[pa.Array | pa.ChunkedArray, str]:
    """A column of n cells as Arrow, and what was converted on the way (empty if nothing). Plain types keep their width.

    Raises `UserError`, `UserTypeError` for cells that no schema takes.
    """
    column = frame.columns[name]
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column, ""
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biufm":
        return _plain(column.to_numpy() if isinstance(column, pd.Series) else column), ""
    if isinstance(dtype, pd.ArrowDtype):
        return pa.chunked_array(pa.array(column)), ""
    if isinstance(dtype, pd.api.extensions.ExtensionDtype) and dtype.kind in "biuf" and hasattr(dtype, "numpy_dtype"):
        return pa.array(column), ""
    cells = frame.cells(name)
    return _of_cells(cells, isinstance(dtype, pd.CategoricalDtype)), cells.note


def _plain(values: np.ndarray[Any, Any]) -> pa.Array:
    """Numbers, booleans and durations of any NumPy width and byte order; NaN stays NaN, which a schema takes for missing too."""
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        values = values.astype(np.float64)
    if values.dtype.kind == "m" and np.datetime_data(values.dtype)[0] not in ("s", "ms", "us", "ns"):
        values = values.astype("timedelta64[us]")
    return pa.array(values.astype(values.dtype.newbyteorder("="), copy=False))


def _of_cells(cells: Cells, repeated: bool) -> pa.Array:
    match cells.kind:
        case "empty":
            return pa.nulls(len(cells))
        case "boolean":
            return pc.equal(cells.values, "True")
        case "datetime":
            return pa.array(cells.values)
        case "timedelta":
            return _durations(np.asarray(cells.values))
        case "categorical" if cells.numbers:
            return _numbers(cells.values)
        case "categorical":
            return cells.values.dictionary_encode() if repeated else cells.values
    return pa.array(np.asarray(cells.values))


def _durations(seconds: np.ndarray[Any, Any]) -> pa.Array:
    """(n,) float64 seconds, NaN where missing; in nanoseconds if microseconds would round one."""
    missing = np.isnan(seconds)
    for unit, scale in (("us", 1e6), ("ns", 1e9)):
        ticks = np.round(np.where(missing, 0.0, seconds) * scale)
        if unit == "ns" or (ticks / scale == np.where(missing, 0.0, seconds)).all():
            return pa.array(ticks.astype(np.int64), mask=missing).cast(pa.duration(unit))
    raise AssertionError("the loop ends by returning")


def _numbers(keys: pa.Array) -> pa.Array:
    """Categories that are numbers stay numbers, so that they are ordered as such; each is read back as the same key."""
    table = keys.dictionary_encode()
    texts = table.dictionary.to_pylist()
    try:
        values = pa.array([int(text) for text in texts], pa.int64())
    except (ValueError, OverflowError, pa.ArrowInvalid):
        values = pa.array([float(text) for text in texts], pa.float64())
    return pa.DictionaryArray.from_arrays(table.indices, values)

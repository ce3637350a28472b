"""Any table a user may hold, as named columns of cells: pandas, pyarrow, NumPy, lists, whatever offers Arrow."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tabgrpc.data import cells
from tabgrpc.data.cells import Cells, key
from tabgrpc.data.dialect import check_unique
from tabgrpc.data.errors import UserError, UserTypeError, counted


@dataclass(frozen=True)
class Frame:
    """Named columns of one length. named: False if the names are only positions ("0", "1", ...) of an array. first_row: the number of the
    first row, for messages in a part of a larger table."""

    columns: dict[str, Any]
    rows: int
    named: bool
    first_row: int = 1

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def cells(self, name: str) -> Cells:
        """The column in the internal form; made when asked, so that one column's copy is held at a time."""
        column = self.columns[name]
        if isinstance(column, pd.Series):
            return from_series(column, name, self.first_row)
        if isinstance(column, np.ndarray):
            return from_array(column, name)
        return cells.from_arrow(column, name)


def frame_of(data: Any) -> Frame:
    """A frame over `data`, which isn't copied.

    data: pyarrow Table or RecordBatch, pandas DataFrame, a mapping of columns, any object with the Arrow C stream
    interface, or an (n, F) array-like of numbers. Raises `UserError` for duplicate or mixed names, other shapes and
    text in an array, `UserTypeError` for sparse matrices.
    """
    if isinstance(data, Frame):
        return data
    if isinstance(data, (pa.Table, pa.RecordBatch)):
        return _from_columns(data.schema.names, data.columns, data.num_rows)
    if hasattr(data, "tocsr"):
        raise UserTypeError("Sparse input is not supported: convert it to a dense array first, e.g. with X.toarray()")
    if isinstance(data, Mapping):
        data = pd.DataFrame(data)
    if isinstance(data, pd.DataFrame):
        names = _names(data.columns)
        sparse = [name for name, dtype in zip(names, data.dtypes, strict=True) if isinstance(dtype, pd.SparseDtype)]
        if sparse:
            raise UserTypeError(
                f"column {sparse[0]!r} is sparse, which isn't supported: make it dense first (.sparse.to_dense())"
            )
        return _from_columns(names, [data.iloc[:, place] for place in range(data.shape[1])], len(data))
    if hasattr(data, "__arrow_c_stream__") and not isinstance(data, pd.Series):
        return frame_of(pa.table(data))
    return _from_array(data)


def _names(labels: Any) -> list[str]:
    """Column labels as text; all text or none of it, so that 1 and "1" can't meet."""
    texts = sum(isinstance(label, str) for label in labels)
    if 0 < texts < len(labels):
        raise UserTypeError(
            "column names must be all text or all numbers, these are mixed: rename them, e.g. X.columns.astype(str)"
        )
    return [key(label) for label in labels]


def _from_columns(names: Sequence[str], columns: Sequence[Any], rows: int) -> Frame:
    check_unique(list(names), "table")
    return Frame(dict(zip(names, columns, strict=True)), rows, named=True)


def _from_array(data: Any) -> Frame:
    values = np.asanyarray(data)
    if isinstance(values, np.ma.MaskedArray):  # what is masked is missing, whatever lies below the mask
        values = np.where(np.ma.getmaskarray(values), np.nan, np.ma.getdata(values)) if np.ma.is_masked(values) else values.data
    values = np.asarray(values)
    if values.ndim != 2:
        raise UserError(f"Expected 2D array, got {values.ndim}D array instead. Reshape your data to (rows, columns)")
    if values.dtype.kind == "c":
        raise UserTypeError("Complex data not supported")
    if values.dtype.kind in "OSU":
        values = _numbers(values)
    columns = {str(place): values[:, place] for place in range(values.shape[1])}
    return Frame(columns, len(values), named=False)


def _numbers(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of objects or text as float64, None as missing. Raises as scikit-learn does: TypeError for what is no
    number."""
    try:
        return (np.where(pd.isna(values), np.nan, values) if values.dtype.kind == "O" else values).astype(np.float64)
    except (ValueError, TypeError) as error:
        kind = UserTypeError if isinstance(error, TypeError) else UserError
        raise kind(
            f"an array must hold numbers ({error}); give text and categories as a pandas DataFrame or Arrow table"
        ) from None


def from_array(values: np.ndarray[Any, Any], name: str) -> Cells:
    """A 1-D NumPy column."""
    if values.dtype.kind in "OSU":
        return from_series(pd.Series(values, dtype=object), name)
    if values.dtype.kind in "Mm":
        return _instants(values)
    return cells.from_numpy(values, name)


def from_series(series: pd.Series[Any], name: str, first_row: int = 1) -> Cells:
    """A pandas column of any dtype: the nullable, NumPy, Arrow and object ones of the same values give the same
    cells. first_row: the number of its first row, for messages."""
    dtype = series.dtype
    if isinstance(dtype, pd.ArrowDtype):
        return cells.from_arrow(pa.chunked_array(pa.array(series)), name)
    if isinstance(dtype, pd.CategoricalDtype):
        return _categorical(series)
    if isinstance(dtype, pd.PeriodDtype):
        return from_series(series.dt.to_timestamp(), name)
    if isinstance(dtype, pd.DatetimeTZDtype):
        return _instants(series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
    if isinstance(dtype, pd.IntervalDtype):
        return Cells("categorical", _texts(series, series.isna().to_numpy()))
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return from_array(series.to_numpy(), name)
    if isinstance(dtype, pd.StringDtype):
        missing = series.isna().to_numpy()
        return cells.empty(len(series)) if missing.all() and len(series) else Cells("categorical", _strings(series, name))
    if pd.api.types.is_extension_array_dtype(dtype) and not pd.api.types.is_object_dtype(dtype):
        return cells.from_arrow(pa.array(series), name)
    return _objects(series, name, first_row)


def _instants(values: np.ndarray[Any, Any]) -> Cells:
    if values.dtype.kind == "m":
        seconds = values.astype("timedelta64[ns]" if "ns" in values.dtype.str else "timedelta64[us]")
        scale = 1e9 if "ns" in values.dtype.str else 1e6
        return Cells("timedelta", np.where(np.isnat(values), np.nan, seconds.astype(np.int64) / scale))
    return Cells("datetime", values.astype("datetime64[us]"))


def _categorical(series: pd.Series[Any]) -> Cells:
    """By its values, the missing ones null; the order of an ordered dtype isn't used, as upstream doesn't."""
    values = series.cat.categories
    keys = pa.array([key(value) for value in values], pa.string())
    codes = series.cat.codes.to_numpy()
    if (codes < 0).all() and len(codes):
        return cells.empty(len(codes))
    numbers = pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(values.dtype)
    return Cells("categorical", keys.take(pa.array(codes, mask=codes < 0)), numbers=numbers)


def _strings(series: pd.Series[Any], name: str) -> pa.Array:
    """A column of text and missing values, the fast way."""
    try:
        strings = pa.array(series, pa.string(), from_pandas=True)
    except UnicodeEncodeError as error:  # half of a pair of surrogates, from a file that was decoded carelessly
        raise UserError(f"column {name!r} has text that isn't Unicode: {error}") from None
    return strings.combine_chunks() if isinstance(strings, pa.ChunkedArray) else strings


def _texts(series: pd.Series[Any], missing: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array([None if gone else key(value) for value, gone in zip(series, missing, strict=True)], pa.string())


def _objects(series: pd.Series[Any], name: str, first_row: int = 1) -> Cells:
    """Python objects by what they are; None, NaN, NaT and pd.NA are the same missing value (cases A06, X7)."""
    missing = series.isna().to_numpy()
    if missing.all():
        return cells.empty(len(series))
    kind = pd.api.types.infer_dtype(series[~missing], skipna=True)
    if kind == "string":
        return Cells("categorical", _strings(series, name))
    if kind == "boolean":
        return Cells("boolean", _texts(series, missing))
    if kind == "integer":
        return cells.from_arrow(_integers(series, missing), name)
    if kind in ("floating", "mixed-integer-float", "decimal"):
        note = "decimals read as float64" if kind == "decimal" else ""
        return Cells("numeric", _float_objects(series, missing), note=note)
    if kind in ("datetime", "datetime64", "date"):
        return _times(series, missing)
    if kind in ("timedelta", "timedelta64"):
        return _instants(pd.to_timedelta(series.where(~missing)).to_numpy())
    if kind == "time":
        return Cells("timedelta", np.array([np.nan if gone else _of_day(time) for time, gone in zip(series, missing, strict=True)]))
    if kind == "mixed" and all(isinstance(value, (datetime.date, np.datetime64)) for value in series[~missing]):
        return _times(series, missing)
    return _mixed(series, missing, name, first_row)


def _times(series: pd.Series[Any], missing: np.ndarray[Any, Any]) -> Cells:
    """Dates, datetimes and timestamps, also of several kinds and zones; those without a zone are taken for UTC."""
    return _instants(pd.to_datetime(series.where(~missing), utc=True).dt.tz_localize(None).to_numpy())


def _of_day(time: datetime.time) -> float:
    """A time of day in seconds; its zone, if any, doesn't count, since there is no date."""
    return time.hour * 3600 + time.minute * 60 + time.second + time.microsecond / 1e6


def _integers(series: pd.Series[Any], missing: np.ndarray[Any, Any]) -> pa.Array:
    values = [None if gone else int(value) for value, gone in zip(series, missing, strict=True)]
    try:
        return pa.array(values, pa.int64())
    except (OverflowError, pa.ArrowInvalid):  # beyond int64: ids for certain
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _float_objects(series: pd.Series[Any], missing: np.ndarray[Any, Any]) -> cells.FloatArray:
    return np.array([np.nan if gone else float(value) for value, gone in zip(series, missing, strict=True)], np.float64)


def _mixed(series: pd.Series[Any], missing: np.ndarray[Any, Any], name: str, first_row: int) -> Cells:
    """Text, numbers and booleans in one column: categories by their text. Anything else is refused, naming the
    first."""
    for row, (value, gone) in enumerate(zip(series, missing, strict=True), first_row):
        if not gone and not isinstance(value, (str, bytes, bool, int, float, Decimal, np.generic)):
            kind = type(value).__name__
            raise UserTypeError(f"column {name!r}, row {row}: argument must be a string or a number, not {kind}")
        if isinstance(value, (complex, np.complexfloating)):
            raise UserTypeError(f"Complex data not supported: column {name!r}, row {row}")
    values = series[~missing]
    if all(isinstance(value, (int, float, Decimal, np.number)) and not isinstance(value, bool) for value in values):
        return Cells("numeric", _float_objects(series, missing), note="decimals read as float64")
    note = f"{counted(len({type(value) for value in values}), 'type')} of values in one column read as text"
    return Cells("categorical", _texts(series, missing), note=note)

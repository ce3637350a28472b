"""One column of a schema, and its cells as numbers: ordinal codes, means for the missing, the parts of a date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabgrpc.data.cells import Cells, FloatArray, Kind, key
from tabgrpc.data.errors import UserError, counted
from tabgrpc.data.inference import ColumnType, convert

#: What a datetime becomes; `seconds` counts from 1970-01-01, so that order and distance are kept too.
DATE_PARTS = ("year", "month", "day", "weekday", "hour", "minute", "second", "seconds")
#: Numbers beyond this are refused like infinities: their squares overflow, so no mean or deviation of the column
#: exists.
LARGEST = 1e150


@dataclass(frozen=True)
class Column:
    """A feature as the model knows it.

    name: the user's name. kind: what its cells are. categories: of categorical and boolean columns, the keys seen at
    fit in encoded order (code = place). fills: what replaces a missing cell, one number for each encoded feature
    (categories: -1). numbers: whether the categories are numbers. useless: why the column tells nothing ("constant",
    "all missing", "another text in every row"), or empty.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    fills: tuple[float, ...] = (0.0,)
    numbers: bool = False
    useless: str = ""

    @property
    def encoded_first(self) -> bool:
        """Whether it stands before the numbers in the encoded matrix, where upstream puts categories (case A13)."""
        return self.kind in ("categorical", "boolean")

    @property
    def fill(self) -> float:
        """The first encoded feature's fill."""
        return self.fills[0]

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The names of its encoded features: its own, or `name.year` and so on."""
        return tuple(f"{self.name}.{part}" for part in DATE_PARTS) if self.kind == "datetime" else (self.name,)

    @classmethod
    def fit(cls, name: str, cells: Cells) -> Column:
        """What is learnt from the training cells. Raises `UserError` for infinite numbers."""
        if cells.kind in ("categorical", "boolean"):
            return cls._fit_categories(name, cells)
        values = _parts(cells.values) if cells.kind == "datetime" else np.asarray(cells.values)[:, None]
        if cells.kind != "empty":
            check_finite(values[:, 0], name)
        known = ~np.isnan(values[:, 0])
        if not known.any():
            return cls(name, "empty", useless="all missing")
        fills = tuple(_mean(np.ascontiguousarray(part[known])) for part in values.T)
        constant = bool((np.nanmin(values, axis=0) == np.nanmax(values, axis=0)).all())  # the mean fills the rest
        return cls(name, cells.kind, fills=fills, useless="constant" if constant else "")

    @classmethod
    def _fit_categories(cls, name: str, cells: Cells) -> Column:
        found = [value for value in pc.unique(cells.values).to_pylist() if value is not None]
        if not found:
            return cls(name, "empty", useless="all missing")
        missing = cells.values.null_count > 0
        useless = "constant" if len(found) == 1 and not missing else ""
        if cells.kind == "categorical" and len(found) == len(cells) > 1:
            useless = "another text in every row"
        order = sorted(found, key=_as_number) if cells.numbers else sorted(found)
        return cls(name, cells.kind, tuple(order), fills=(-1.0,), numbers=cells.numbers, useless=useless)

    def encode(self, cells: Cells, first_row: int = 1) -> FloatArray:
        """(n,) cells of any kind as (n, len(fills)) float64 without NaN.

        first_row: the number of the first cell's row, for messages. Raises `UserError` naming column and row for
        cells that the model can't take: text among numbers, infinities, dates where there were none.
        """
        if self.kind == "empty":
            return np.zeros((len(cells), 1))
        if self.encoded_first:
            return self._codes(cells, first_row)[:, None]
        if self.kind == "datetime":
            values = _parts(self._instants(cells, first_row))
        else:
            values = self._floats(cells, first_row)[:, None]
            check_finite(values[:, 0], self.name, first_row)
        return np.where(np.isnan(values), np.asarray(self.fills), values)

    def _codes(self, cells: Cells, first_row: int) -> FloatArray:
        """The place among the categories; -1 for missing and for what wasn't there at fit."""
        keys = cells.values
        if cells.kind in ("numeric", "empty"):
            keys = _number_keys(cells.values, boolean=self.kind == "boolean")
        elif cells.kind in ("datetime", "timedelta"):
            raise self._misfit(cells, "categories")
        if self.kind == "boolean":
            keys = pc.utf8_capitalize(pc.utf8_trim_whitespace(keys))
            keys = pc.if_else(pc.equal(keys, ""), None, keys)
            self._refuse(
                pc.invert(pc.is_in(keys, pa.array(["True", "False", None]))), cells, first_row, "true or false"
            )
        elif cells.kind == "categorical" and self.numbers and not cells.numbers:
            keys = _canonical(keys)
        codes = pc.index_in(keys, pa.array(self.categories, keys.type), skip_nulls=True)
        return np.asarray(codes.fill_null(-1), dtype=np.float64)

    def _floats(self, cells: Cells, first_row: int) -> FloatArray:
        if cells.kind in (self.kind, "empty"):
            return np.asarray(cells.values, dtype=np.float64)
        if self.kind == "numeric" and cells.kind == "boolean":
            return np.asarray(pc.equal(cells.values, "True").cast(pa.float64()).fill_null(np.nan), dtype=np.float64)
        if self.kind == "numeric" and cells.kind == "categorical":  # a text column of a later batch or another file
            numbers = convert(cells.values, ColumnType("number"), self.name, first_row=first_row)
            return np.asarray(numbers.fill_null(np.nan), dtype=np.float64)
        raise self._misfit(cells, "numbers" if self.kind == "numeric" else "durations")

    def _instants(self, cells: Cells, first_row: int) -> Any:
        if cells.kind == "datetime":
            return cells.values
        if cells.kind == "empty":
            return np.full(len(cells), np.datetime64("NaT", "us"))
        if cells.kind != "categorical":
            raise self._misfit(cells, "dates or times")
        zoned = pc.match_substring_regex(cells.values, r"(Z|[+-]\d{2}:?\d{2})$")
        plain = convert(pc.if_else(zoned, None, cells.values), ColumnType("datetime"), self.name, first_row=first_row)
        utc = convert(pc.if_else(zoned, cells.values, None), ColumnType("datetime_utc"), self.name, first_row=first_row)
        ticks = pc.coalesce(plain.cast(pa.int64()), utc.cast(pa.int64())).fill_null(np.iinfo(np.int64).min)
        return np.asarray(ticks).view("datetime64[us]")

    def _misfit(self, cells: Cells, wanted: str) -> UserError:
        given = {"numeric": "numbers", "boolean": "booleans", "datetime": "dates or times", "timedelta": "durations"}
        return UserError(
            f"column {self.name!r} holds {given.get(cells.kind, 'text')}, the model was fitted on {wanted}"
        )

    def _refuse(self, misfits: pa.Array, cells: Cells, first_row: int, wanted: str) -> None:
        place = pc.index(misfits, True).as_py()
        if place >= 0:
            value = cells.values[place]
            shown = value.as_py() if isinstance(value, pa.Scalar) else value.item()
            raise UserError(f"column {self.name!r}, row {first_row + place}: {shown!r} isn't {wanted}")


def check_finite(values: FloatArray, name: str, first_row: int = 1, what: str = "column") -> None:
    """The policy for infinities, at fit and at predict: `UserError` with column, count and first row. NaN is missing,
    and passes."""
    bad = np.abs(values) > LARGEST
    if bad.any():
        count, row = counted(int(bad.sum()), "value"), first_row + int(bad.argmax())
        raise UserError(f"{what} {name!r} has {count} that are infinity or beyond {LARGEST:g}, the first in row {row}")


def _mean(values: FloatArray) -> float:
    return float(np.mean(values))


def _as_number(text: str) -> float | int:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _number_keys(values: FloatArray, *, boolean: bool) -> pa.Array:
    """Numbers as category keys; 0 and 1 as False and True where the model has booleans."""
    unique, places = np.unique(values, return_inverse=True)
    names = [None if np.isnan(value) else key(value) for value in unique.tolist()]
    if boolean:
        names = [{"0": "False", "1": "True"}.get(name, name) if name is not None else None for name in names]
    return pa.array(names, pa.string()).take(pa.array(places.ravel()))


def _canonical(keys: pa.Array) -> pa.Array:
    """Text of numbers, as read from a CSV file, as the keys of those numbers: `1.0` is `1`. Other text stays as it
    is."""
    table = keys.dictionary_encode()
    names = []
    for text in table.dictionary.to_pylist():
        try:
            names.append(key(_as_number(text.strip())))
        except ValueError:
            names.append(text)
    return pa.array(names, pa.string()).take(table.indices)


def _parts(instants: Any) -> FloatArray:
    """(n,) datetime64[us] as (n, 8) float64, NaN where NaT: `DATE_PARTS`, weekday from Monday = 0."""
    days, months, years = (instants.astype(f"datetime64[{unit}]") for unit in "DMY")
    ticks = instants.astype(np.int64)
    of_day = (instants - days).astype(np.int64) // 1_000_000
    whole = np.stack(
        [
            years.astype(np.int64) + 1970,
            months.astype(np.int64) % 12 + 1,
            (days - months.astype("datetime64[D]")).astype(np.int64) + 1,
            (days.astype(np.int64) + 3) % 7,  # 1970-01-01 was a Thursday
            of_day // 3600,
            of_day // 60 % 60,
            of_day % 60,
        ],
        axis=1,
    )
    parts = np.concatenate([whole.astype(np.float64), (ticks / 1e6)[:, None]], axis=1)
    parts[np.isnat(instants)] = np.nan
    return np.asarray(parts, dtype=np.float64)

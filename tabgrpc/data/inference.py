"""What a column of CSV text is, decided over all of its cells, and its conversion to an Arrow type.

A column is text if one cell says so: `abc` in row 1,000,000 makes all of it text. Numbers that wouldn't survive as
float64 (leading zeros as in `00501`, whole numbers beyond 2^53) are ids and stay text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from tabgrpc.data.errors import UserError

#: Cells that mean "missing" in a column of numbers, booleans or dates. In a column of text, and in the target, only the
#: empty field is missing: there `NA` may be a region and `None` a class.
MISSING_TOKENS = (
    *("NA", "N/A", "n/a", "na", "#N/A", "#NA", "<NA>", "NaN", "nan", "NAN", "-nan", "-NaN"),
    *("NULL", "null", "Null", "None", "none", "NONE", "?", "."),
)
TextKind = Literal["empty", "integer", "number", "boolean", "datetime", "datetime_utc", "text"]

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_COMMA_NUMBER = r"^[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?$"
_INFINITE = r"^[+-]?(inf|Inf|INF|infinity|Infinity)$"
_INTEGER = r"^[+-]?\d+$"
_ID = r"^(0\d+|[+-]?\d{16,})$"  # the long ones are looked at again: 2^53 has 16 digits
_BOOLEAN = r"^(true|false|True|False|TRUE|FALSE)$"
_DATE = r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?$"
_DATE_UTC = r"^\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:?\d{2})$"
_ARROW: dict[TextKind, pa.DataType] = {
    "empty": pa.null(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "datetime": pa.timestamp("us"),
    "datetime_utc": pa.timestamp("us", "UTC"),
    "text": pa.string(),
}


@dataclass(frozen=True)
class ColumnType:
    """A CSV column's type: `decimal_comma` says that its numbers have decimal commas, `why_text` why numbers stay
    text."""

    kind: TextKind
    decimal_comma: bool = False
    why_text: str = ""
    tokens: tuple[str, ...] = ()

    @property
    def arrow(self) -> pa.DataType:
        return _ARROW[self.kind]


@dataclass
class ColumnGuess:
    """What is still possible for one column after the cells seen so far. Feed every batch to `see`, then ask
    `result`."""

    target: bool = False
    comma_allowed: bool = False
    comma_only: bool = False
    missing: tuple[str, ...] = MISSING_TOKENS
    possible: set[str] = field(
        default_factory=lambda: {"integer", "number", "comma", "boolean", "datetime", "datetime_utc"}
    )
    seen: bool = False
    why_text: str = ""
    tokens: set[str] = field(default_factory=set)

    def see(self, cells: pa.Array) -> None:
        """Narrows by one batch of text cells (null: the empty field)."""
        if not self.possible and (self.seen or self.why_text):
            return
        cells = pc.drop_null(pc.utf8_trim_whitespace(cells))
        if not self.target:
            found = pc.is_in(cells, pa.array(self.missing, pa.string()))
            if pc.any(found).as_py():
                self.tokens.update(pc.unique(cells.filter(found)).to_pylist())
                cells = cells.filter(pc.invert(found))
        if len(cells) == 0:
            return
        self.seen = True
        if self.target:  # labels come back as they were written: only plain numbers are converted
            self.possible -= {"boolean", "datetime", "datetime_utc"}
        if not ("integer" in self.possible and self._holds("integer", cells)):  # what is an integer is also a number
            self.possible -= {"integer"} | {kind for kind in ("number", "comma") if not self._holds(kind, cells)}
        self.possible -= {kind for kind in ("boolean", "datetime", "datetime_utc") if not self._holds(kind, cells)}
        if self.possible & {"integer", "number", "comma"}:
            self._find_ids(cells)

    def _holds(self, kind: str, cells: pa.Array) -> bool:
        if (
            kind not in self.possible
            or (kind == "comma" and not self.comma_allowed)
            or (kind == "number" and self.comma_only)
        ):
            return False
        if kind == "number" and not self.target:
            try:  # several times faster than the pattern, and right when it succeeds: `nan` was taken out before
                pc.cast(cells, pa.float64())
                return True
            except pa.ArrowInvalid:
                pass
        pattern = {
            "integer": _INTEGER,
            "number": _NUMBER if self.target else f"{_NUMBER}|{_INFINITE}",
            "comma": _COMMA_NUMBER if self.target else f"{_COMMA_NUMBER}|{_INFINITE}",
            "boolean": _BOOLEAN,
            "datetime": _DATE,
            "datetime_utc": _DATE_UTC,
        }[kind]
        if not pc.all(pc.match_substring_regex(cells, pattern)).as_py():
            return False
        if kind.startswith("datetime"):
            try:  # a pattern doesn't know that 2024-02-31 isn't a day
                pc.cast(cells, _ARROW[kind])  # type: ignore[index]
            except pa.ArrowInvalid:
                return False
        return True

    def _find_ids(self, cells: pa.Array) -> None:
        suspects = cells.filter(pc.match_substring_regex(cells, _ID))
        if len(suspects) == 0:
            return
        zeros = pc.any(pc.starts_with(suspects, "0")).as_py()
        if zeros or any(abs(int(cell)) > 2**53 for cell in suspects.to_pylist()):
            self.possible.clear()
            self.why_text = "leading zeros" if zeros else "whole numbers beyond 2^53"

    def result(self) -> ColumnType:
        """The type after the last cell: the narrowest that all cells fit."""
        tokens = tuple(sorted(self.tokens))
        if not self.seen:  # nothing but missing: a column of `NA` alone is text, an empty one has no type
            return ColumnType("text" if tokens else "empty")
        for kind in ("boolean", "datetime", "datetime_utc", "integer", "number"):
            if kind in self.possible:
                return ColumnType(kind, tokens=tokens)
        if "comma" in self.possible:
            return ColumnType("number", decimal_comma=True, tokens=tokens)
        return ColumnType("text", why_text=self.why_text)


def convert(
    cells: pa.Array, to: ColumnType, name: str, *, first_row: int = 1, missing: tuple[str, ...] = MISSING_TOKENS
) -> pa.Array:
    """Text cells (null: the empty field) as `to.arrow`. Raises `UserError` naming column, row and value of a misfit."""
    if to.kind == "text":
        return cells
    if to.kind == "empty":
        return pa.nulls(len(cells))
    if to.kind in ("integer", "number") and not to.decimal_comma:
        try:  # what nearly every column is; Arrow would take hex for an integer, so those went to text before
            return _without_nan(pc.cast(cells, to.arrow))
        except pa.ArrowInvalid:
            pass
    text = pc.utf8_trim_whitespace(cells)
    text = pc.if_else(pc.is_in(text, pa.array(missing, pa.string())), None, text)
    text = pc.if_else(pc.equal(text, ""), None, text)
    if to.decimal_comma:
        text = pc.replace_substring(text, ",", ".")
    if to.kind in ("integer", "number"):
        text = pc.replace_substring_regex(text, r"^\+", "")
        misfits = pc.invert(pc.match_substring_regex(text, f"{_NUMBER}|{_INFINITE}"))
    elif to.kind == "boolean":
        text = pc.utf8_lower(text)
        misfits = pc.invert(pc.is_in(text, pa.array(["true", "false"]), skip_nulls=True))
        misfits = pc.and_(misfits, pc.is_valid(text))
    else:
        misfits = pc.invert(pc.match_substring_regex(text, _DATE if to.kind == "datetime" else _DATE_UTC))
    where = pc.index(misfits, True).as_py()
    if where >= 0:
        wanted = {"boolean": "true or false", "integer": "a whole number", "number": "a number"}.get(
            to.kind, "an ISO date or time"
        )
        raise UserError(f"column {name!r}, row {first_row + where}: {cells[where].as_py()!r} isn't {wanted}")
    try:
        return _without_nan(pc.cast(text, to.arrow))
    except pa.ArrowInvalid as error:
        raise UserError(f"column {name!r}, rows {first_row} to {first_row + len(cells) - 1}: {error}") from None


def _without_nan(values: pa.Array) -> pa.Array:
    """Arrow reads the text `nan` as a number; here it is missing."""
    return pc.if_else(pc.is_nan(values), None, values) if pa.types.is_floating(values.type) else values

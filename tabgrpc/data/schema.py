"""A model's schema: its columns, its target, and any later table as the numbers that the model was fitted on.

The encoded matrix has the categories and booleans first and everything else after them, each in the user's order:
upstream's order, on which the bits of feature shuffles depend. Whatever a user sees is in the user's order and by the
user's names.

Where upstream (TabICL 2.2.0 with pandas 3) isn't followed, because it isn't right: booleans are used (it drops them),
dates and durations are expanded (dropped), None and pd.NA are missing like NaN (a category; an error), objects that
are numbers and Decimals are numbers (categories, so that unseen ones are all alike), whole numbers beyond 2^53 are
ids (merged), columns of float32 are averaged in float64, and integer names are names (places)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa

from tabgrpc.data.cells import FloatArray
from tabgrpc.data.encoding import DATE_PARTS, Column
from tabgrpc.data.errors import DataWarning, UserError, counted, listed, unknown_column
from tabgrpc.data.frames import Frame, frame_of
from tabgrpc.data.target import (
    Label,
    Task,
    check_numbers_in_text,
    class_codes,
    classes_of,
    dtype_name,
    labels_of,
    task_of,
)

HIGH_CARDINALITY = 40  # upstream's threshold for its warning


@dataclass(frozen=True)
class Schema:
    """What fit learnt about a table.

    columns: the features, in the user's order. target: the target's name, None if it was an array without one. task:
    "classification" or "regression". classes: the labels in class order, empty for regression. label_dtype: the NumPy
    dtype in which labels come back ("str", "object", "int64", ...). named: False if the features were an array's
    positions. rows: how many training rows. dropped: columns left out on request.
    """

    columns: tuple[Column, ...]
    target: str | None
    task: Task
    classes: tuple[Label, ...] = ()
    label_dtype: str = "float64"
    named: bool = True
    rows: int = 0
    dropped: tuple[str, ...] = ()

    @classmethod
    def fit(cls, data: Any, target: Any, task: str = "auto", drop: Iterable[str] = ()) -> Schema:
        """The schema of a training table.

        data: pyarrow Table, pandas DataFrame, NumPy array, ... (`frame_of`). target: a column's name, or (n,) values.
        task: "auto" decides by `task_of`. drop: columns to leave out. One warning for each kind of conversion, naming
        the columns. Raises `UserError`, and `UserTypeError` for sparse and complex data.
        """
        frame = frame_of(data)
        if task not in ("auto", "classification", "regression"):
            raise UserError(f"task must be auto, classification or regression, not {task!r}")
        if isinstance(target, str) and target not in frame.columns:
            raise unknown_column(target, frame.names)
        name, values = (target, frame.columns[target]) if isinstance(target, str) else (_name_of(target, frame), target)
        drop = tuple(drop)
        for unwanted in drop:
            if unwanted not in frame.columns:
                raise unknown_column(unwanted, frame.names, what="column to drop")
        if name is not None and name in drop:
            raise UserError(f"column {name!r} is the target and can't be dropped")
        if frame.rows == 0:
            raise UserError(f"no rows: Found array with 0 sample(s) {_short(0, len(frame.columns))}")
        labels = labels_of(values, name or "y")
        if len(labels) != frame.rows:
            raise UserError(f"Found input variables with inconsistent numbers of samples: {[frame.rows, len(labels)]}")
        features = [column for column in frame.columns if column != name and column not in drop]
        if not features:
            gone = f": {listed(drop)} dropped" if drop else ""
            raise UserError(f"no column is left to predict from{gone}: 0 feature(s) {_short(frame.rows, 0)}")
        columns = _fit_columns(frame, features)
        check_numbers_in_text(labels, name or "y", task)
        chosen: Task = task_of(labels) if task == "auto" else task  # type: ignore[assignment]
        classes = classes_of(labels) if chosen == "classification" else ()
        return cls(columns, name, chosen, classes, dtype_name(labels), frame.named, frame.rows, drop)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features' names, in the user's order."""
        return tuple(column.name for column in self.columns)

    @property
    def encoded_columns(self) -> tuple[Column, ...]:
        """The columns in the encoded order."""
        return tuple(sorted(self.columns, key=lambda column: not column.encoded_first))

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """(F,) a name for each encoded feature; a date has several."""
        return tuple(name for column in self.encoded_columns for name in column.encoded_names)

    @property
    def encoded_sources(self) -> tuple[str, ...]:
        """(F,) the user's column behind each encoded feature."""
        return tuple(column.name for column in self.encoded_columns for _ in column.fills)

    @property
    def width(self) -> int:
        """F, the number of encoded features."""
        return sum(len(column.fills) for column in self.columns)

    def encode(self, data: Any, first_row: int = 1) -> FloatArray:
        """(n, F) float64 without NaN, columns found by name in any order; the target and unknown columns aren't used.

        first_row: the number of the table's first row, for messages in a batch of a larger one. A row's numbers never
        depend on the other rows. Raises `UserError` for missing columns and for cells that the model can't take,
        naming column and row.
        """
        frame = frame_of(data)
        names = self._names_in(frame)
        out = np.empty((frame.rows, self.width), np.float64)
        at = 0
        for column in self.encoded_columns:
            out[:, at : at + len(column.fills)] = column.encode(frame.cells(names[column.name]), first_row)
            at += len(column.fills)
        return out

    def _names_in(self, frame: Frame) -> dict[str, str]:
        """For each feature its name in `frame`: the same, or the place where one of the two has no names."""
        wanted = self.feature_names
        if not frame.named or not (self.named or set(wanted) <= set(frame.names)):
            if len(frame.columns) != len(wanted):
                raise UserError(
                    f"X has {len(frame.columns)} features, but the model is expecting {len(wanted)} features as input"
                )
            return dict(zip(wanted, frame.names, strict=True))
        missing = [name for name in wanted if name not in frame.columns]
        if missing:
            raise UserError(f"{counted(len(missing), 'column')} of the model missing in the table: {listed(missing)}")
        known = {*wanted, *self.dropped, self.target}
        extra = [name for name in frame.names if name not in known]
        if extra:
            warnings.warn(
                f"columns that the model doesn't know are ignored: {listed(extra)}", DataWarning, stacklevel=3
            )
        return {name: name for name in wanted}

    def encode_target(self, data: Any) -> np.ndarray[Any, Any]:
        """(n,) int64 class codes, or float64 values for regression.

        data: a table that has the target's column, or (n,) target values. Raises `UserError` for missing, infinite,
        unknown labels.
        """
        name = self.target or "y"
        if isinstance(data, (pa.Table, pa.RecordBatch, pd.DataFrame)) and self.target in frame_of(data).columns:
            data = frame_of(data).columns[self.target]
        labels = labels_of(data, name)
        if self.task == "classification":
            return class_codes(labels, self.classes, name)
        check_numbers_in_text(labels, name, "regression")
        return labels.astype(np.float64)

    def decode(self, codes: Any) -> np.ndarray[Any, Any]:
        """(n,) class codes as labels of the type that they had at fit."""
        labels = np.array(self.classes, dtype=None if self.label_dtype == "str" else self.label_dtype)
        return np.asarray(labels[np.asarray(codes, dtype=np.int64)])

    def to_json(self) -> str:
        """Plain JSON; floats as hexadecimal text, so that they come back to the bit."""
        fields = asdict(self)
        for column in fields["columns"]:
            column["fills"] = [fill.hex() for fill in column["fills"]]
        fields["classes"] = [{"float": label.hex()} if isinstance(label, float) else label for label in self.classes]
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The schema that `to_json` wrote. Raises ValueError for any other text."""
        try:
            fields = json.loads(text)
            for column in fields["columns"]:
                column["fills"] = tuple(float.fromhex(fill) for fill in column["fills"])
                column["categories"] = tuple(column["categories"])
            fields["columns"] = tuple(Column(**column) for column in fields["columns"])
            fields["classes"] = tuple(
                float.fromhex(label["float"]) if isinstance(label, dict) else label for label in fields["classes"]
            )
            fields["dropped"] = tuple(fields["dropped"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a schema: {error}") from None


def check_trainable(schema: Schema) -> None:
    """The strict check of the command line: `UserError` for one class, and where no column tells anything, with the
    reasons."""
    if schema.task == "classification" and len(schema.classes) < 2:
        raise UserError(
            f"target {schema.target or 'y'!r} has one class, {schema.classes[0]!r}: there is nothing to tell apart"
        )
    if all(column.useless for column in schema.columns):
        reasons = "; ".join(f"{column.name!r}: {column.useless}" for column in schema.columns[:10])
        raise UserError(f"no column is left to predict from: {reasons}")


def _short(rows: int, columns: int) -> str:
    """scikit-learn's words for an array without rows or columns; its estimator checks look for them."""
    return f"(shape=({rows}, {columns})) while a minimum of 1 is required."


def _name_of(target: Any, frame: Frame) -> str | None:
    """A Series' name, unless a feature has it too."""
    name = getattr(target, "name", None)
    return str(name) if name is not None and str(name) not in frame.columns else None


def _fit_columns(frame: Frame, names: Sequence[str]) -> tuple[Column, ...]:
    columns: list[Column] = []
    notes: dict[str, list[str]] = {}
    for name in names:
        cells = frame.cells(name)
        columns.append(Column.fit(name, cells))
        if cells.note:
            notes.setdefault(cells.note, []).append(name)
    for column in columns:
        if column.useless:
            notes.setdefault(f"{column.useless}, no help for predicting", []).append(column.name)
        if column.kind == "categorical" and len(column.categories) > HIGH_CARDINALITY and not column.numbers:
            notes.setdefault(f"more than {HIGH_CARDINALITY} categories, encoded by their order only", []).append(
                column.name
            )
        if column.kind == "datetime":
            notes.setdefault(f"expanded to {', '.join(DATE_PARTS)}", []).append(column.name)
    for note, which in notes.items():
        warnings.warn(f"{counted(len(which), 'column')} {listed(which)}: {note}", DataWarning, stacklevel=3)
    return tuple(columns)

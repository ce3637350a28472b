"""A table's features as an estimator knows them: by name where there are names, by place where there are none."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import pandas as pd
import pyarrow as pa

from tabgrpc.data import DataWarning, UserError
from tabgrpc.data.arrow import arrow_column
from tabgrpc.data.errors import counted, listed
from tabgrpc.data.frames import Frame, frame_of

SLICE_ROWS = 1 << 16  # converted at once; whole tiles of any usual size


@dataclass(frozen=True)
class Features:
    """The features that a model was fitted on.

    names: as text, in the user's order. named: False for an array's places. text: whether the names were text, which is what scikit-learn
    calls feature names. target: the target's name in the table that was sent.
    """

    names: tuple[str, ...]
    named: bool
    text: bool
    target: str

    @classmethod
    def of(cls, X: Any, frame: Frame, y: Any) -> Self:
        """Of a training table. The target has its own name, unless it has none or a feature has it."""
        wanted = getattr(y, "name", None)
        target = str(wanted) if wanted is not None and str(wanted) not in frame.columns else "target"
        while target in frame.columns:
            target += "_"
        return cls(tuple(frame.names), frame.named, frame.named and _text_names(X), target)

    def match(self, X: Any, frame: Frame, who: str) -> dict[str, str]:
        """For each feature its column in a table to predict. Raises `UserError` for missing ones; others are ignored with a warning."""
        if not frame.named or not (self.named or set(self.names) <= set(frame.names)):
            if len(frame.columns) != len(self.names):
                raise UserError(f"X has {len(frame.columns)} features, but {who} is expecting {len(self.names)} features as input")
            if not frame.named and self.text:
                warnings.warn(f"X does not have valid feature names, but {who} was fitted with feature names", UserWarning, stacklevel=4)
            if frame.named and _text_names(X):
                warnings.warn(f"X has feature names, but {who} was fitted without feature names", UserWarning, stacklevel=4)
            return dict(zip(self.names, frame.names, strict=True))
        if missing := [name for name in self.names if name not in frame.columns]:
            raise UserError(f"{counted(len(missing), 'column')} of the model missing in the table: {listed(missing)}")
        if extra := [name for name in frame.names if name not in {*self.names, self.target}]:
            warnings.warn(f"columns that the model doesn't know are ignored: {listed(extra)}", DataWarning, stacklevel=4)
        return {name: name for name in self.names}


def training_table(frame: Frame, features: Features, target: pa.Array) -> tuple[pa.Table, list[str]]:
    """The features and the target as Arrow, and a line for each kind of conversion on the way."""
    columns: dict[str, Any] = {}
    notes: dict[str, list[str]] = {}
    for name in features.names:
        columns[name], note = arrow_column(frame, name)
        if note:
            notes.setdefault(note, []).append(name)
    lines = [f"{counted(len(which), 'column')} {listed(which)}: {note}" for note, which in notes.items()]
    return pa.table(columns | {features.target: target}), lines


def query_tables(X: Any, columns: dict[str, str]) -> Iterator[pa.Table]:
    """A table to predict, some rows at a time, with the model's names. One table without rows if it has none."""
    rows = frame_of(X).rows
    for start in range(0, max(rows, 1), SLICE_ROWS):
        part = replace(frame_of(_rows_of(X, start, start + SLICE_ROWS) if rows > SLICE_ROWS else X), first_row=start + 1)
        yield pa.table({name: arrow_column(part, given)[0] for name, given in columns.items()})


def _rows_of(X: Any, start: int, stop: int) -> Any:
    if isinstance(X, pd.DataFrame):
        return X.iloc[start:stop]
    if isinstance(X, (pa.Table, pa.RecordBatch)):
        return X.slice(start, stop - start)
    if isinstance(X, Frame):
        return Frame({name: column[start:stop] for name, column in X.columns.items()}, min(stop, X.rows) - start, X.named)
    raise TypeError(f"{type(X).__name__} was not made a frame before it was cut")


def _text_names(X: Any) -> bool:
    """Whether column names were given as text, not as numbers."""
    columns = getattr(X, "columns", None)
    return not isinstance(X, pd.DataFrame) or columns is None or all(isinstance(name, str) for name in columns)

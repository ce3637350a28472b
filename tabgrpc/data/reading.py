"""Tables from .csv, .tsv, .parquet and .arrow files and standard input, whole or in batches of rows.

Policies, the same for every kind of file:
- The target's text is never taken for missing: only the empty field is (`NA`, `None` and `null` are labels).
- In columns of numbers, booleans and dates `inference.MISSING_TOKENS` are missing too; in columns of text only the
empty field.
- Whatever can't be read without guessing (a row longer than the header, another encoding) is a `UserError`, never a
shift."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tabgrpc.data.csvfile import CsvFile, CsvOptions
from tabgrpc.data.dialect import check_unique
from tabgrpc.data.errors import DataWarning, UserError, listed, unknown_column
from tabgrpc.data.inference import MISSING_TOKENS, ColumnType
from tabgrpc.data.sources import Source, opened

if TYPE_CHECKING:
    from tabgrpc.data.schema import Schema

PathLike = str | os.PathLike[str]
BATCH_ROWS = 65_536


def read_table(
    path: PathLike,
    *,
    target: str | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    decimal: str = ".",
    missing: tuple[str, ...] = MISSING_TOKENS,
    schema: Schema | None = None,
) -> pa.Table:
    """The whole table, columns in the file's order, one chunk or more a column.

    path: a .csv, .tsv, .parquet or .arrow file, or "-" (standard input: CSV, an Arrow stream or file, or Parquet, by
    its first bytes).
    target: the column to predict, read as text unless all of it is plain numbers; must be there.
    encoding, delimiter, decimal: of CSV; the delimiter is found from the file where None; with another delimiter than
        the comma, columns with decimal commas are found too.
    missing: the cells that mean "missing" in CSV columns that aren't text, besides the empty field.
    schema: a fitted schema: its columns are converted to its types instead of being inferred, any other column stays
    text. Raises `UserError` for anything that can't be read, no rows, duplicate names, and a target that isn't there.
    """
    options = CsvOptions(encoding, delimiter, decimal, missing)
    with opened(path) as source:
        batches = list(_batches(source, target, options, schema))
    return pa.Table.from_batches(batches)


def iter_batches(
    path: PathLike,
    *,
    target: str | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    decimal: str = ".",
    missing: tuple[str, ...] = MISSING_TOKENS,
    schema: Schema | None = None,
    rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The table in its order as batches of exactly `rows` rows (the last one smaller), in constant memory.

    Arguments and errors as in `read_table`; without `schema`, a CSV file is read once more before, for its types. An
    error in a late row is raised when its batch is asked for.
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1, not {rows}")
    options = CsvOptions(encoding, delimiter, decimal, missing)
    with opened(path) as source:
        yield from _rebatched(_batches(source, target, options, schema), rows)


def _batches(
    source: Source, target: str | None, options: CsvOptions, schema: Schema | None
) -> Iterator[pa.RecordBatch]:
    """The file's own batches, empty ones left out, its names checked. Raises `UserError` if there is no row at all."""
    if source.kind == "csv":
        batches = _csv_batches(source, target, options, schema)
    elif source.kind == "parquet":
        batches = _parquet_batches(source, target)
    else:
        batches = _arrow_batches(source, target)
    empty = True
    try:
        for batch in batches:
            if batch.num_rows:
                empty = False
                yield batch
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, OSError) as error:
        raise UserError(f"{source.where}: can't be read as {source.kind}: {error}") from None
    if empty:
        raise UserError(f"{source.where}: the table has no rows")


def _csv_batches(
    source: Source, target: str | None, options: CsvOptions, schema: Schema | None
) -> Iterator[pa.RecordBatch]:
    if source.where.lower().endswith(".tsv") and options.delimiter is None:
        options = CsvOptions(options.encoding, "\t", options.decimal, options.missing)
    single = schema is not None and len(schema.columns) == 1
    file = CsvFile(source.file, source.where, options, single=single)
    _check_names(list(file.names), target, source.where)
    if schema is None:
        types = file.infer(target)
    else:
        comma = options.decimal == "," or file.dialect.may_use_comma
        numbers = [column.name for column in schema.columns if column.kind == "numeric"]
        types = {name: ColumnType("number", decimal_comma=comma) for name in numbers}
    return file.batches(types)


def _parquet_batches(source: Source, target: str | None) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(source.file)
    names = list(file.schema_arrow.names)
    _check_names(names, target, source.where)
    keep = _without_index(names, source.where)
    for batch in file.iter_batches(batch_size=BATCH_ROWS):
        yield batch.select(keep)


def _arrow_batches(source: Source, target: str | None) -> Iterator[pa.RecordBatch]:
    source.file.seek(0)
    is_file = source.file.read(6) == b"ARROW1"
    source.file.seek(0)
    if is_file:
        reader = pa.ipc.open_file(source.file)
        batches = (reader.get_batch(place) for place in range(reader.num_record_batches))
    else:
        reader = pa.ipc.open_stream(source.file)
        batches = iter(reader)
    names = list(reader.schema.names)
    _check_names(names, target, source.where)
    keep = _without_index(names, source.where)
    for batch in batches:
        yield batch.select(keep)


def _check_names(names: list[str], target: str | None, where: str) -> None:
    check_unique(names, where)
    if target is not None and target not in names:
        raise unknown_column(target, names, where=where)


def _without_index(names: list[str], where: str) -> list[str]:
    """Without the columns in which pandas stores a frame's index: they hold row labels, not data."""
    index = [name for name in names if name.startswith("__index_level_")]
    if index:
        warnings.warn(f"{where}: the pandas index {listed(index)} is ignored", DataWarning, stacklevel=2)
    return [name for name in names if name not in index]


def _rebatched(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of `rows`."""
    waiting: list[pa.RecordBatch] = []
    have = 0
    for batch in batches:
        while have + batch.num_rows >= rows:
            need = rows - have
            yield _joined([*waiting, batch.slice(0, need)])
            waiting, have, batch = [], 0, batch.slice(need)
        if batch.num_rows:
            waiting.append(batch)
            have += batch.num_rows
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]

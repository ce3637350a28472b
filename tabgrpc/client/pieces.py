"""Tables as what goes over the wire: Arrow streams, and pieces of tables that fit a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

_REQUEST_BYTES = 1 << 20
_ANSWER_BYTES = 4 << 20
_DICTIONARY_BYTES = 1 << 16


def as_table(table: Any) -> pa.Table:
    """A pyarrow Table of a table, a record batch or a pandas DataFrame."""
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    return pa.Table.from_pandas(table, preserve_index=False)


def parts(table: pa.Table, width: int) -> Iterator[pa.Table]:
    """A table in pieces of about a megabyte, whose answers have some megabytes, and of whole query tiles of any usual size. Where rows
    differ much in length, the long ones go in smaller pieces."""
    rows = int(_REQUEST_BYTES * max(table.num_rows, 1) / max(table.nbytes, 1))
    rows = max(1, min(rows, _ANSWER_BYTES // (8 * max(width, 1))))
    if rows > 256:
        rows = rows // 256 * 256
    if not table.num_rows:
        yield table
    for start in range(0, table.num_rows, rows):
        yield from _bounded(table.slice(start, rows))


def _bounded(part: pa.Table) -> Iterator[pa.Table]:
    """A piece of a table, in halves until none is too large for a message."""
    part = _own_dictionaries(part)
    if part.nbytes <= _ANSWER_BYTES or part.num_rows < 2:
        yield part
        return
    middle = part.num_rows // 2
    yield from _bounded(part.slice(0, middle))
    yield from _bounded(part.slice(middle))


def _own_dictionaries(part: pa.Table) -> pa.Table:
    """Dictionaries with the values of these rows only: a slice keeps its table's, and every message would carry all of it."""
    for place, column in enumerate(part.columns):
        if pa.types.is_dictionary(column.type) and column.nbytes > _DICTIONARY_BYTES:
            own = column.cast(column.type.value_type).dictionary_encode()
            part = part.set_column(place, part.schema.names[place], own)
    return part


def stream_bytes(table: pa.Table) -> memoryview:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())

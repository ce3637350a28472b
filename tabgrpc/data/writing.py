"""Tables to .csv, .tsv, .parquet and .arrow files or standard output, in batches; a file appears whole or not at
all."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import secrets
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from tabgrpc.data.errors import UserError
from tabgrpc.data.sources import kind_of

PathLike = str | os.PathLike[str]


def write_table(table: pa.Table, path: PathLike) -> None:
    """Writes one table to `path` (or "-": CSV to standard output). Raises `UserError` if it can't be written there."""
    with TableWriter(path, schema=table.schema) as writer:
        writer.write(table)


class TableWriter:
    """Writes batches to a temporary neighbour of `path` and renames it at the end, so that nothing half-written is
    left.

    `-` is CSV to standard output. What isn't a regular file (a device, a pipe) is written directly. `schema`: the
    table's, needed only if no batch may come. Rows keep the order in which they were written.
    """

    def __init__(self, path: PathLike, *, schema: pa.Schema | None = None) -> None:
        self._path = path
        self._schema = schema
        self._kind = "csv" if str(path) == "-" else kind_of(path)
        self._delimiter = "\t" if str(path).lower().endswith(".tsv") else ","
        self._temporary: Path | None = None
        self._sink: IO[bytes] | None = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        if str(self._path) == "-":
            self._sink = sys.stdout.buffer
            return self
        final = Path(os.path.realpath(self._path))  # through links, so that a link stays one
        if final.is_dir():
            raise UserError(f"{self._path}: is a directory")
        try:
            if final.exists() and not final.is_file():
                self._sink = open(final, "wb")
            else:
                name = f".{final.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
                self._temporary = final.with_name(name)
                self._sink = open(self._temporary, "xb")
        except OSError as error:
            self._temporary = None
            raise UserError(f"{self._path}: can't be written: {error.strerror or error}") from None
        return self

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Appends rows; every batch must have the first one's columns and types."""
        assert self._sink is not None, "TableWriter is used outside its with block"
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        try:
            if self._schema is None:
                self._schema = table.schema
            self._open()
            if self._kind == "csv":
                self._write_csv(table.cast(self._schema))
            else:
                self._writer.write_table(table.cast(self._schema))
        except OSError as error:
            raise UserError(f"{self._path}: can't be written: {error.strerror or error}") from None

    def _open(self) -> None:
        """Writes the header before the first batch."""
        if self._writer is not None or self._schema is None:
            return
        if self._kind == "parquet":
            self._writer = pq.ParquetWriter(self._sink, self._schema)
        elif self._kind == "arrow":
            self._writer = pa.ipc.new_file(self._sink, self._schema)
        else:
            self._writer = self._sink
            header = io.StringIO()
            csv.writer(header, delimiter=self._delimiter, lineterminator="\n").writerow(self._schema.names)
            self._sink.write(header.getvalue().encode())  # type: ignore[union-attr]

    def _write_csv(self, table: pa.Table) -> None:
        """pyarrow quotes all text or none; here only a batch with a cell that needs it is quoted."""
        special = f'[{self._delimiter}"\r\n]'
        quoted = any(
            pc.any(pc.match_substring_regex(column.cast(pa.string()), special)).as_py()
            for column in table.columns
            if pa.types.is_string(column.type)
            or pa.types.is_large_string(column.type)
            or pa.types.is_dictionary(column.type)
        )
        options = pacsv.WriteOptions(
            include_header=False, delimiter=self._delimiter, quoting_style="needed" if quoted else "none"
        )
        pacsv.write_csv(table, self._sink, options)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        except OSError as failed:
            raise UserError(f"{self._path}: can't be written: {failed.strerror or failed}") from None
        finally:
            if self._temporary is not None:
                if self._kind != "csv" and self._writer is not None:
                    with contextlib.suppress(OSError, pa.ArrowException):  # so that its finaliser writes no more
                        self._writer.close()
                if self._sink is not None:
                    self._sink.close()
                self._temporary.unlink(missing_ok=True)

    def _finish(self) -> None:
        assert self._sink is not None
        self._open()
        if self._kind != "csv" and self._writer is not None:
            self._writer.close()
        self._sink.flush()
        if self._temporary is not None:
            os.fsync(self._sink.fileno())
            self._sink.close()
            os.replace(self._temporary, os.path.realpath(self._path))
            self._temporary = None
        elif str(self._path) != "-":
            self._sink.close()

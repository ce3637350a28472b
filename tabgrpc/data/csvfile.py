"""CSV files through pyarrow: read as text twice, once to find each column's type over all its cells, once to convert.

pyarrow's own inference looks at the first block only, turns `NA` into missing whatever the column, and `00501` into
501; so every cell is read as text and typed in `inference.py`. Memory is one block at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pacsv

from tabgrpc.data import dialect
from tabgrpc.data.errors import DataWarning, UserError, counted, listed
from tabgrpc.data.inference import MISSING_TOKENS, ColumnGuess, ColumnType, convert

BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class CsvOptions:
    """What a caller may say about a CSV file; None: found from the file."""

    encoding: str = "utf-8"
    delimiter: str | None = None
    decimal: str = "."
    missing: tuple[str, ...] = MISSING_TOKENS

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise UserError(f"the decimal mark must be '.' or ',', not {self.decimal!r}")
        if self.decimal == "," and self.delimiter == ",":
            raise UserError("the comma can't be both the delimiter and the decimal mark")


class CsvFile:
    """One CSV file: its dialect, and its rows as Arrow batches, as often as asked."""

    def __init__(self, file: IO[bytes], where: str, options: CsvOptions, *, single: bool = False) -> None:
        file.seek(0)
        self._file, self._where, self._options = file, where, options
        self.dialect = dialect.detect(
            file.read(dialect.SAMPLE_BYTES),
            where,
            encoding=options.encoding,
            delimiter=options.delimiter,
            single=single,
        )

    @property
    def names(self) -> tuple[str, ...]:
        return self.dialect.names

    def text_batches(self) -> Iterator[pa.RecordBatch]:
        """The file's blocks, every column as text, the empty field null. Raises `UserError` naming the row at fault."""
        self._file.seek(0)
        bad: list[Any] = []

        def refuse(row: Any) -> str:
            bad.append(row)
            return "error"

        try:
            reader = pacsv.open_csv(
                pa.PythonFile(self._file, mode="r") if not isinstance(self._file, pa.NativeFile) else self._file,
                read_options=pacsv.ReadOptions(
                    use_threads=False,  # row numbers in errors exist without threads only
                    block_size=BLOCK_BYTES,
                    encoding=self._options.encoding,
                ),
                parse_options=pacsv.ParseOptions(
                    delimiter=self.dialect.delimiter,
                    newlines_in_values=True,
                    invalid_row_handler=refuse,
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types={name: pa.string() for name in self.dialect.raw_names},
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
            for batch in reader:
                yield pa.RecordBatch.from_arrays(batch.columns, names=list(self.names))
        except UnicodeError:
            raise dialect.wrong_encoding(self._where, self._options.encoding) from None
        except pa.ArrowInvalid as error:
            raise self._told(error, bad) from None

    def _told(self, error: pa.ArrowInvalid, bad: list[Any]) -> UserError:
        text = str(error)
        if bad:
            row = bad[0]
            found, expected = counted(row.actual_columns, "field"), row.expected_columns
            at = f"row {row.number - 1}" if row.number else "a row"
            comma = (
                " (a delimiter at the end of the line?)"
                if row.text.rstrip("\r\n").endswith(self.dialect.delimiter)
                else ""
            )
            return UserError(f"{self._where}: {at} has {found}, the header has {expected}{comma}")
        if "UTF8" in text:
            return dialect.wrong_encoding(self._where, self._options.encoding)
        if "straddling" in text or "Empty CSV" in text:  # the sample wasn't empty, so the parser found no end of a row
            return UserError(
                f"{self._where}: a quoted field never ends, or a row is longer than {BLOCK_BYTES >> 20} MiB"
            )
        return UserError(f"{self._where}: {text}")

    def infer(self, target: str | None = None) -> dict[str, ColumnType]:
        """The type of every column over the whole file; one warning for each kind of conversion, naming the columns."""
        comma_only = self._options.decimal == ","
        guesses = {
            name: ColumnGuess(
                target=name == target,
                comma_allowed=comma_only or self.dialect.may_use_comma,
                comma_only=comma_only,
                missing=self._options.missing,
            )
            for name in self.names
        }
        for batch in self.text_batches():
            for name, cells in zip(self.names, batch.columns, strict=True):
                guesses[name].see(cells)
        types = {name: guess.result() for name, guess in guesses.items()}
        self._warn(types)
        return types

    def _warn(self, types: Mapping[str, ColumnType]) -> None:
        for why in dict.fromkeys(kind.why_text for kind in types.values() if kind.why_text):
            ids = [name for name, kind in types.items() if kind.why_text == why]
            warnings.warn(
                f"{self._where}: {why} in {listed(ids)}: kept as text, not as numbers", DataWarning, stacklevel=4
            )
        tokens = {name: kind.tokens for name, kind in types.items() if kind.tokens and kind.kind != "text"}
        if tokens:
            what = listed(sorted({token for found in tokens.values() for token in found}))
            warnings.warn(f"{self._where}: {what} read as missing in {listed(tokens)}", DataWarning, stacklevel=4)

    def batches(self, types: Mapping[str, ColumnType]) -> Iterator[pa.RecordBatch]:
        """The file's blocks with every column as `types` says; a column it doesn't name stays text."""
        text = ColumnType("text")
        first_row = 1
        for batch in self.text_batches():
            columns = []
            for name, cells in zip(self.names, batch.columns, strict=True):
                try:
                    columns.append(
                        convert(cells, types.get(name, text), name, first_row=first_row, missing=self._options.missing)
                    )
                except UserError as error:
                    raise UserError(f"{self._where}: {error}") from None
            first_row += batch.num_rows
            yield pa.RecordBatch.from_arrays(columns, names=list(self.names))

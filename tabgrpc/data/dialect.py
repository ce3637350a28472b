"""How a CSV file is written: encoding, delimiter, header. Found from its first bytes, quote-aware, or refused in one
line."""

from __future__ import annotations

import codecs
import csv
import io
import warnings
from collections import Counter
from dataclasses import dataclass

from tabgrpc.data.errors import DataWarning, UserError, listed

SAMPLE_BYTES = 1 << 20
DELIMITERS = (",", ";", "\t", "|")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Dialect:
    """The file's writing: `raw_names` as the header has them, `names` trimmed and unique, in the file's order."""

    encoding: str
    delimiter: str
    raw_names: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def may_use_comma(self) -> bool:
        """Whether `1,5` can be a number here: where the comma isn't the delimiter."""
        return self.delimiter != ","


def detect(
    sample: bytes, where: str, *, encoding: str = "utf-8", delimiter: str | None = None, single: bool = False
) -> Dialect:
    """The dialect of a CSV file that begins with `sample` (at most `SAMPLE_BYTES`, shorter only if that is all of it).

    single: whether one column is enough, as in a table to predict for a model of one feature. Raises `UserError` for
    an empty file, another encoding, a single column, and duplicate names.
    """
    text = _decoded(sample, where, encoding)
    if not text.strip():
        raise UserError(f"{where}: the file is empty")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise UserError(f"{where}: the delimiter must be one character, not {delimiter!r}")
    whole = len(sample) < SAMPLE_BYTES
    chosen = delimiter if delimiter is not None else _best_delimiter(text, whole)
    header = _records(text, chosen, whole)[0]
    if len(header) < 2 and not single:
        how = f"with delimiter {chosen!r}" if delimiter else "with any of comma, semicolon, tab and bar between fields"
        raise UserError(
            f"{where}: only one column, {header[0].strip()!r}, {how}; "
            "a table needs a target and a feature (see --delimiter)"
        )
    names = _trimmed(header, where)
    return Dialect(encoding, chosen, tuple(header), names)


def _decoded(sample: bytes, where: str, encoding: str) -> str:
    """The sample as text without its byte order mark, cut at whole characters."""
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
    except LookupError:
        raise UserError(f"{where}: unknown encoding {encoding!r} (see --encoding)") from None
    utf8 = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")
    if utf8 and (sample.startswith(_UTF16) or sample[:400].count(0) > len(sample[:400]) // 4):
        raise UserError(f"{where}: the file is UTF-16, not UTF-8: give its encoding (--encoding utf-16)")
    try:
        text = decoder.decode(sample, final=len(sample) < SAMPLE_BYTES)
    except UnicodeError:
        raise wrong_encoding(where, encoding) from None
    return text.removeprefix("\ufeff")


def wrong_encoding(where: str, encoding: str) -> UserError:
    """The error for bytes that aren't text in `encoding`."""
    return UserError(
        f"{where}: the file isn't {encoding} text: give its encoding (--encoding latin-1, cp1252 or utf-16)"
    )


def _records(text: str, delimiter: str, whole: bool) -> list[list[str]]:
    """The first records of the sample, blank lines left out; the last one too unless the sample is the whole file."""
    rows: list[list[str]] = []
    lines = io.StringIO(text, newline="")
    try:
        for row in csv.reader(lines, delimiter=delimiter):
            if row:
                rows.append(row)
            if len(rows) > 500:
                return rows
    except csv.Error:  # a field over the module's limit: what was read so far decides
        return rows or [[text[:40]]]
    return rows if whole or len(rows) == 1 else rows[:-1]


def _best_delimiter(text: str, whole: bool) -> str:
    """The delimiter under which most records have the header's number of fields, at least two; then the most fields."""
    best, best_score = ",", (0.0, 1)
    for delimiter in DELIMITERS:
        widths = [len(row) for row in _records(text, delimiter, whole)]
        if widths[0] < 2:
            continue
        score = (sum(width == widths[0] for width in widths) / len(widths), widths[0])
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _trimmed(header: list[str], where: str) -> tuple[str, ...]:
    """Names without the spaces around them; unnamed columns get pandas' `Unnamed: 0`; the same name twice is
    refused."""
    names = []
    for place, raw in enumerate(header):
        name = raw.strip()
        if not name:
            name = f"Unnamed: {place}"
            warnings.warn(f"{where}: column {place + 1} has no name, it is called {name!r}", DataWarning, stacklevel=2)
        names.append(name)
    check_unique(names, where)
    return tuple(names)


def check_unique(names: list[str], where: str) -> None:
    """Raises `UserError` naming every column name that occurs twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"{where}: duplicate column names: {listed(twice)}")

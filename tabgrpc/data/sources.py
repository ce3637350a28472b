"""Where a table comes from: a path or `-` (standard input), and what kind of file that is."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from tabgrpc.data.errors import UserError

Kind = Literal["csv", "parquet", "arrow"]
KINDS: dict[str, Kind] = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".arrow": "arrow"}


@dataclass(frozen=True)
class Source:
    """An open, seekable table file: `where` is what messages call it."""

    where: str
    kind: Kind
    file: IO[bytes]


def kind_of(path: str | os.PathLike[str]) -> Kind:
    """The kind that a path's extension says. Raises `UserError` for an unknown one."""
    suffix = Path(path).suffix.lower()
    if suffix not in KINDS:
        raise UserError(f"{path}: unknown extension {suffix!r}; use .csv, .tsv, .parquet or .arrow")
    return KINDS[suffix]


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Source]:
    """Opens a table file. Standard input is copied to an unnamed temporary file first, as a table is read twice.

    Raises `UserError` for a missing file, a directory, a file that may not be read, and an unknown extension.
    """
    if str(path) == "-":
        with tempfile.TemporaryFile() as spool:
            shutil.copyfileobj(sys.stdin.buffer, spool)
            spool.seek(0)
            yield Source("standard input", _kind_of_bytes(spool.read(8)), spool)
        return
    if Path(path).is_dir():
        raise UserError(f"{path}: is a directory, not a table")
    if not Path(path).exists():
        raise UserError(f"{path}: no such file")
    kind = kind_of(path)
    try:
        file = open(path, "rb")  # noqa: SIM115 (closed below; the except must not cover the caller's block)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    with file:
        yield Source(str(path), kind, file)


def _kind_of_bytes(magic: bytes) -> Kind:
    """By the first 8 bytes: an Arrow stream starts with 0xFFFFFFFF, an Arrow file and Parquet with their names."""
    if magic.startswith((b"\xff\xff\xff\xff", b"ARROW1")):
        return "arrow"
    return "parquet" if magic.startswith(b"PAR1") else "csv"

"""Tables in pieces: none larger than a message, whatever the rows hold, and together the table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tabgrpc.client.pieces import parts, stream_bytes
from tabgrpc.wire.channels import MAX_MESSAGE_BYTES

LONG = 40_000
TABLES = {
    "numbers": pa.table({"a": np.arange(300_000.0), "b": np.arange(300_000)}),
    "long categories": pa.table({"k": pa.array([f"{i}" + "x" * LONG for i in range(600)]).dictionary_encode(), "a": np.arange(600.0)}),
    "few long texts": pa.table({"k": ["a"] * 3000 + ["x" * 100 * LONG] * 6, "a": np.arange(3006.0)}),
    "no rows": pa.table({"k": pa.array([], pa.string()), "a": pa.array([], pa.float64())}),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_piece_fits_a_message(name: str) -> None:
    """Catches a slice that carries the whole table's dictionary, and rows of average length that aren't."""
    table = TABLES[name]
    pieces = list(parts(table, 3))
    assert max(len(stream_bytes(piece)) for piece in pieces) < MAX_MESSAGE_BYTES // 2
    assert sum(len(stream_bytes(piece)) for piece in pieces) < 1.1 * table.nbytes + 4096 * len(pieces)
    assert [row for piece in pieces for row in piece.column("a").to_pylist()] == table.column("a").to_pylist()
    if "k" in table.column_names:
        assert [text for piece in pieces for text in piece.column("k").to_pylist()] == table.column("k").to_pylist()


def test_wide_answers_come_in_fewer_rows_each() -> None:
    pieces = list(parts(TABLES["numbers"], 1000))
    assert max(piece.num_rows for piece in pieces) * 1000 * 8 <= MAX_MESSAGE_BYTES // 2

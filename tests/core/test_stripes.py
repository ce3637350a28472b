"""Query rows cut into tiles of one shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabgrpc.core.stripes import home, pad, tiles


@given(rows=st.integers(0, 1000), tile=st.integers(1, 130))
def test_tiles_cover_the_rows_once_and_all_but_the_last_are_full(rows, tile):
    """Catches a row answered twice or never, and a shape that depends on the batch."""
    parts = list(tiles(rows, tile))
    assert [row for part in parts for row in part] == list(range(rows))
    assert all(len(part) == tile for part in parts[:-1])


@given(rows=st.integers(1, 64), tile=st.integers(1, 64))
def test_padding_repeats_an_ordinary_row(rows, tile):
    """Catches padding with zeros or NaN, which would take other paths than data, and a change of the rows themselves."""
    x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    if rows > tile:
        with pytest.raises(ValueError, match=f"{rows} rows don't fit a tile of {tile}"):
            pad(x, tile)
        return
    padded = pad(x, tile)
    assert padded.shape == (tile, 3)
    assert padded.dtype == x.dtype
    assert (padded[:rows] == x).all()
    assert (padded[rows:] == x[0]).all()


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="0 rows"):
        pad(np.empty((0, 3)), 64)


@given(workers=st.integers(1, 64))
def test_homes_go_round(workers):
    """Catches a worker that is nobody's home while another has two tiles more."""
    names = [str(at) for at in range(workers)]
    assert [home(tile, names) for tile in range(2 * workers)] == names + names

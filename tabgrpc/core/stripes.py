"""Query rows cut into tiles of one fixed shape, and the tiles' home workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def tiles(rows: int, tile: int) -> Iterator[range]:
    """The query rows of each tile; the last one is padded by ``pad``."""
    for start in range(0, rows, tile):
        yield range(start, min(start + tile, rows))


def pad(rows: np.ndarray, tile: int) -> np.ndarray:
    """(r, F) with r <= tile to (tile, F): the first row is repeated, so that padding is as ordinary as the data."""
    missing = tile - rows.shape[0]
    if missing < 0 or not rows.shape[0]:
        raise ValueError(f"{rows.shape[0]} rows don't fit a tile of {tile}")
    return rows if missing == 0 else np.concatenate([rows, np.broadcast_to(rows[:1], (missing, *rows.shape[1:]))])


def home(tile: int, workers: Sequence[str]) -> str:
    """The worker that computes a tile's own vectors, round robin."""
    return workers[tile % len(workers)]

"""Which shapes a run draws: small tables first, then wider and longer ones, at about as many cells a step."""

from __future__ import annotations

from dataclasses import dataclass

from tools.pretrain.prior.chance import choose, uniform

WIDTHS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 30, 36, 48, 64, 80, 100]


@dataclass(frozen=True)
class Size:
    """B tables of T rows, the first n of them context, and H columns."""

    B: int
    T: int
    H: int
    n: int


def draw_size(progress: float, cells: int) -> Size:
    """progress: 0..1 through the curriculum; cells: B * T * (H + 4) aimed at."""
    if progress < 0.3:
        T, widest = choose([128, 256], [1, 1]), 8
    elif progress < 1.0:
        T, widest = choose([128, 256, 512], [1, 2, 2]), 20
    else:
        T, widest = choose([128, 256, 512, 1024, 2048], [1, 2, 3, 2.5, 0.5]), 100
    widths = [w for w in WIDTHS if w <= widest]
    H = choose(widths, [0.3 if w == 1 else 1.0 if w > 3 else 0.7 for w in widths])
    # Attention over a row's columns is one launch over B * T rows, and 65,535 is a grid's limit.
    B = max(4, min(65535 // T, cells // (T * (H + 4)), 512) // 4 * 4)
    lowest = 0.25 if T <= 256 else 0.5
    n = max(16, int(T * uniform(lowest, 0.9)) // 8 * 8)
    return Size(B, T, H, n)

"""Bits of answers."""

from __future__ import annotations

from typing import Any

import numpy as np


def same(left: Any, right: Any) -> bool:
    """Bit for bit: the same numbers reach the same network."""
    return bool(np.array_equal(left, right))

"""Partials among the arrays of a call, by name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tabgrpc.core.reduction import Node, Partial


def unpack(arrays: Mapping[str, np.ndarray], suffix: str) -> list[Node]:
    """Subtrees of "acc<suffix>/<level>/<index>" and so on."""
    prefix = f"acc{suffix}/"
    nodes = []
    for name in arrays:
        if name.startswith(prefix):
            level, index = name.removeprefix(prefix).split("/")
            at = f"{suffix}/{level}/{index}"
            nodes.append(Node(int(level), int(index), Partial(*(arrays[f"{part}{at}"] for part in ("acc", "sum", "peak")))))
    return nodes

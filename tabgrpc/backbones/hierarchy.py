"""The nodes' outputs of a tree of class groups to one member's classes, in numpy and float64. Needs no torch: the scheduler does it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tabgrpc.backbones.aggregate import class_logits, class_probabilities
from tabgrpc.core.classes import Tree

_LEAST = 1e-6
"""Added to a probability before its logarithm, as TabICL does."""


def chained(outputs: np.ndarray, tree: Tree, temperature: float) -> np.ndarray:
    """Outputs (tile, nodes x width), node by node, to probabilities (tile, labels), float64.

    By the chain rule: a label's is its leaf's softmax times those of the groups that it is in, each at ``temperature``.
    """
    width = outputs.shape[1] // len(tree)
    found = np.zeros((outputs.shape[0], tree[0].stop))
    reached: dict[int, np.ndarray] = {0: np.ones(outputs.shape[0])}
    for number, node in enumerate(tree):  # parents come before their children
        here = outputs[:, number * width : number * width + len(node.sizes)].astype(np.float64) / temperature
        weights = np.exp(here - here.max(axis=1, keepdims=True))
        total = weights[:, 0].copy()
        for column in range(1, weights.shape[1]):  # numpy's own sum picks its order by the shape
            total += weights[:, column]
        shares = weights / total[:, None] * reached[number][:, None]
        if not node.children:
            found[:, node.start : node.stop] = shares
        for group, child in enumerate(node.children):
            reached[child] = shares[:, group]
    return found


def as_logits(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities (tile, labels) as the logits that members are averaged by; a softmax at ``temperature`` undoes it but for 1e-6."""
    return temperature * np.log(probabilities + _LEAST)


def aggregated(
    outputs: Sequence[np.ndarray],
    shuffles: Sequence[np.ndarray],
    trees: Sequence[Tree],
    temperature: float,
    node_temperature: float,
    average_probabilities: bool = False,
) -> np.ndarray:
    """Members' outputs (tile, nodes x width), each undone by its class shuffle (K,), to probabilities, then logits: (tile, 2 K), float64.

    temperature: of the members' average, as without a tree. node_temperature: of the nodes; TabICL 2.2.0 has 0.9 there whatever it is told.
    """
    found = [chained(each, tree, node_temperature) for each, tree in zip(outputs, trees, strict=True)]
    logits = [as_logits(each, temperature) for each in found]
    if not average_probabilities:
        probabilities = class_probabilities(logits, shuffles, temperature)
    else:
        probabilities = class_logits(found, shuffles)  # an average, whatever of
        total = probabilities[:, 0].copy()
        for column in range(1, probabilities.shape[1]):
            total += probabilities[:, column]
        probabilities = probabilities / total[:, None]
    return np.concatenate([probabilities, class_logits(logits, shuffles)], axis=1)

"""Members' outputs to one answer, in numpy and float64, in member order. Needs no torch: the scheduler does it.

Works on whole padded tiles, row by row, so that a row's answer is the same whatever it came with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def class_probabilities(logits: Sequence[np.ndarray], class_shuffles: Sequence[np.ndarray], temperature: float) -> np.ndarray:
    """Members' logits (tile, >= K), each undone by its class shuffle (K,), averaged, to probabilities (tile, K), float64.

    As TabICL averages: logits first, then one softmax at ``temperature``.
    """
    total = np.zeros((logits[0].shape[0], len(class_shuffles[0])))
    for member, shuffle in zip(logits, class_shuffles, strict=True):
        total += member.astype(np.float64)[:, shuffle]
    scaled = total / len(logits) / temperature
    weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    # one addition after the other: numpy's own sum picks its order by the shape
    norm = weights[:, 0].copy()
    for column in range(1, weights.shape[1]):
        norm += weights[:, column]
    return weights / norm[:, None]


def regression(outputs: Sequence[np.ndarray], mean: float, scale: float) -> np.ndarray:
    """Members' outputs (tile, 1 + quantiles) of the standardised target, averaged in the target's units, float64."""
    total = np.zeros(outputs[0].shape)
    for member in outputs:
        total += member.astype(np.float64) * scale + mean
    return total / len(outputs)

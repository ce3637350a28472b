"""Members' outputs to one answer, in numpy and float64, in member order. Needs no torch: the scheduler does it.

Works row by row and adds one column after the other (numpy's own sum picks its order by the shape), so that a row's answer is the same
whatever it came with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tabgrpc.backbones.quantiles import tails
from tabgrpc.core.head import Head


def class_probabilities(
    logits: Sequence[np.ndarray], class_shuffles: Sequence[np.ndarray], temperature: float, average_probabilities: bool = False
) -> np.ndarray:
    """Members' logits (tile, >= K), each undone by its class shuffle (K,), to probabilities (tile, K), float64.

    As TabICL averages: logits first, then one softmax at ``temperature``; or a softmax of each member, then their mean.
    """
    if not average_probabilities:
        return _softmax(class_logits(logits, class_shuffles), temperature)
    total = np.zeros((logits[0].shape[0], len(class_shuffles[0])))
    for member, shuffle in zip(logits, class_shuffles, strict=True):
        total += _softmax(member.astype(np.float64)[:, shuffle], temperature)
    return total / _row_sums(total)[:, None]


def class_logits(logits: Sequence[np.ndarray], class_shuffles: Sequence[np.ndarray]) -> np.ndarray:
    """Members' logits (tile, >= K), each undone by its class shuffle (K,), averaged: (tile, K), float64."""
    total = np.zeros((logits[0].shape[0], len(class_shuffles[0])))
    for member, shuffle in zip(logits, class_shuffles, strict=True):
        total += member.astype(np.float64)[:, shuffle]
    return total / len(logits)


def _softmax(logits: np.ndarray, temperature: float) -> np.ndarray:
    scaled = logits / temperature
    weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return weights / _row_sums(weights)[:, None]


def _row_sums(values: np.ndarray) -> np.ndarray:
    total = values[:, 0].copy()
    for column in range(1, values.shape[1]):
        total += values[:, column]
    return total


def regression(outputs: Sequence[np.ndarray], mean: float, scale: float, head: Head) -> np.ndarray:
    """Members' outputs (tile, columns of ``head``) of the standardised target, averaged in the target's unit, float64.

    A variance goes by the scale squared; nothing is added to it (upstream gives it in no unit). Where the network's own quantiles were
    asked for, two columns follow them: the scales of the exponential tails below and above (``quantiles.tails``).
    """
    total: np.ndarray | float = 0.0
    at = head.fixed - 1
    for member in outputs:
        values = member.astype(np.float64)
        shown = values * scale + mean
        if head.variance:
            shown[:, at] = values[:, at] * scale**2
        if head.quantiles:
            shown = np.concatenate([shown, tails(values[:, head.fixed :]) * scale], axis=1)
        total = total + shown
    return np.asarray(total / len(outputs))


def embeddings(outputs: Sequence[np.ndarray]) -> np.ndarray:
    """Members' row vectors (tile, D), averaged, float64."""
    total = np.zeros(outputs[0].shape)
    for member in outputs:
        total += member.astype(np.float64)
    return total / len(outputs)

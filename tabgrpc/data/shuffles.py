"""The ensemble's permutations: the same as upstream's `Shuffler` and `EnsembleGenerator` for the same seed, without
building n x n squares.

Upstream takes a random Latin square of n features (n^2 numbers, a recursion of depth n: 8 s at 1,500 features) and
uses a few of its rows. Its square, before rows and columns are shuffled, is a circulant of the drawn symbols: with
s_0 the last symbol left and s_1, s_2, ... those inserted while the recursion returns,

    square[i][j] = s[n - 1 - (j - i) mod n].

By induction: size m inserts s_{m-1} on the diagonal of the square of size m - 1 whose row 0 was appended again, which
turns (j - i) mod (m - 1) into (j - i) mod m. So a row is made in O(n), from the same random draws."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

IntArray = np.ndarray[Any, np.dtype[np.int64]]
METHODS = ("none", "shift", "random", "latin")
MOST_LATIN = 4000  # upstream's limit; above it, "latin" is "random"


@dataclass(frozen=True)
class Permutations:
    """A list of permutations of `range(n)` that are made when asked for: `count` of them, `make(k)` the k-th."""

    count: int
    make: Callable[[int], IntArray]


def permutations(n: int, method: str, seed: int | None, n_estimators: int) -> Permutations:
    """Upstream's `Shuffler(n, method, random_state=seed).shuffle(n_estimators)`.

    n: at least 1. method: none, shift (all circular shifts), random (n_estimators of them) or latin (n of them).
    """
    if method not in METHODS:
        raise ValueError(f"unknown shuffle method {method!r}: use one of {', '.join(METHODS)}")
    rng = random.Random(seed)
    identity = list(range(n))
    if method == "none" or n_estimators == 1:
        return _listed([identity])
    if method == "shift":
        return Permutations(n, lambda k: np.roll(np.arange(n, dtype=np.int64), k))
    if method == "latin" and n <= MOST_LATIN:
        return _latin(n, rng)
    if n <= 5:
        every = [list(order) for order in itertools.permutations(identity)]
        return _listed(rng.sample(every, min(n_estimators, len(every))))
    return _listed([rng.sample(identity, n) for _ in range(n_estimators)])


def _listed(orders: Sequence[Sequence[int]]) -> Permutations:
    return Permutations(len(orders), lambda k: np.array(orders[k], dtype=np.int64))


def _latin(n: int, rng: random.Random) -> Permutations:
    left = list(range(n))
    drawn = []
    while len(left) > 1:
        symbol = rng.choice(left)
        left.remove(symbol)
        drawn.append(symbol)
    symbols = np.array([left[0], *reversed(drawn)], dtype=np.int64)
    rows, columns = list(range(n)), list(range(n))
    rng.shuffle(rows)
    rng.shuffle(columns)
    row_order = np.array(rows, dtype=np.int64)
    return Permutations(n, lambda k: symbols[n - 1 - (columns[k] - row_order) % n])


@dataclass(frozen=True)
class Draw:
    """One member's draw: its normalisation and permutations; class_shuffle is None for regression."""

    norm_method: str
    feature_shuffle: IntArray
    class_shuffle: IntArray | None


def draws(
    n_features: int,
    n_classes: int | None,
    *,
    n_estimators: int,
    norm_methods: Sequence[str],
    feat_shuffle_method: str,
    class_shuffle_method: str,
    seed: int | None,
) -> list[Draw]:
    """Upstream's ensemble, in our order: grouped by normalisation, in the order in which `norm_methods` names them.

    Upstream groups by `list(set(...))`, whose order hangs on PYTHONHASHSEED (case B06). There may be fewer than
    n_estimators where there aren't as many different ones. n_classes: None for regression.
    """
    features = permutations(n_features, feat_shuffle_method, seed, n_estimators)
    classes = permutations(n_classes, class_shuffle_method, seed, n_estimators) if n_classes is not None else None
    per_feature = classes.count if classes is not None else 1
    pairs = list(range(features.count * per_feature))  # itertools.product(features, classes), by place
    random.Random(seed).shuffle(pairs)
    chosen = list(itertools.islice(itertools.product(pairs, norm_methods), n_estimators))
    made = []
    for method in dict.fromkeys(norm_methods):
        for pair, drawn in chosen:
            if drawn == method:
                class_shuffle = classes.make(pair % per_feature) if classes is not None else None
                made.append(Draw(method, features.make(pair // per_feature), class_shuffle))
    return made

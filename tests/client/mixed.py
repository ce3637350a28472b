"""Tables of mixed kinds, made from seeds: what upstream reads rightly, so that both must agree."""

from __future__ import annotations

import numpy as np
import pandas as pd

ROWS, QUERIES = 60, 20


def _numbers(rng: np.random.Generator, n: int) -> dict[str, object]:
    return {"a": rng.normal(size=n), "b": rng.normal(size=n) * 100 + 7, "c": rng.integers(0, 5, n)}


def _text(rng: np.random.Generator, n: int) -> dict[str, object]:
    return {"city": rng.choice(["Rome", "Oslo", "Lima"], n), "size": rng.choice(["S", "M", "L", "XL"], n)}


def _missing(values: np.ndarray, rng: np.random.Generator, share: float = 0.2) -> np.ndarray:
    return np.where(rng.random(len(values)) < share, np.nan, values)


TABLES = {
    "numbers": _numbers,
    "array": lambda rng, n: rng.normal(size=(n, 5)),
    "array with holes": lambda rng, n: _missing(rng.normal(size=n * 4), rng).reshape(n, 4),
    "text": _text,
    "text and numbers": lambda rng, n: {**_text(rng, n), **_numbers(rng, n)},
    "categories": lambda rng, n: {
        "k": pd.Categorical(rng.choice(["x", "y", "z"], n)),
        "level": pd.Categorical(rng.integers(0, 4, n)),
        "a": rng.normal(size=n),
    },
    "holes everywhere": lambda rng, n: {
        "a": _missing(rng.normal(size=n), rng),
        "s": np.where(rng.random(n) < 0.2, np.nan, rng.choice(["u", "v"], n).astype(object)),
        "c": pd.Categorical(np.where(rng.random(n) < 0.2, None, rng.choice(["p", "q"], n).astype(object))),
    },
    "widths": lambda rng, n: {
        **{kind: (rng.normal(size=n) * 50).astype(kind) for kind in ("f2", "f8", "i1", "i2", "i4", "i8")},
        **{kind: rng.integers(0, 200, n).astype(kind) for kind in ("u1", "u2", "u4", "u8")},
    },
    "nullable": lambda rng, n: {
        "i": pd.array(np.where(rng.random(n) < 0.1, None, rng.integers(0, 9, n).astype(object)), dtype="Int64"),
        "f": pd.array(_missing(rng.normal(size=n), rng), dtype="Float64"),
        "a": rng.normal(size=n),
    },
    "tails and constants": lambda rng, n: {
        "t": rng.standard_t(1.2, n),
        "e": np.exp(rng.normal(size=n) * 2),
        "one": np.ones(n),
        "a": rng.normal(size=n),
    },
    "far from zero": lambda rng, n: {"year": rng.integers(1950, 2010, n), "big": 1e6 + rng.normal(size=n), "a": rng.normal(size=n)},
    "wide": lambda rng, n: rng.normal(size=(n, 20)),
    "unseen": lambda rng, n: {"s": np.array([f"k{i % 7 + 6 * (i >= ROWS)}" for i in range(n)]), "a": rng.normal(size=n)},
}


def table(name: str, seed: int = 0) -> tuple[object, np.ndarray, np.ndarray, object]:
    """(X, class labels, numbers, query rows) of a table."""
    rng = np.random.default_rng([seed, *name.encode()])
    made = TABLES[name](rng, ROWS + QUERIES)
    whole = made if isinstance(made, np.ndarray) else pd.DataFrame(made)
    first = np.nan_to_num(np.asarray(whole[:, 0] if isinstance(whole, np.ndarray) else pd.factorize(whole.iloc[:, 0])[0], dtype=np.float64))
    score = first / (first.std() or 1.0) + rng.normal(size=len(first))
    labels = np.array(["low", "mid", "high"])[np.digitize(score, [-0.5, 0.5])]
    cut = slice(0, ROWS), slice(ROWS, None)
    parts = [whole[part] if isinstance(whole, np.ndarray) else whole.iloc[part].reset_index(drop=True) for part in cut]
    return parts[0], labels[:ROWS], (40 + 7 * score)[:ROWS], parts[1]

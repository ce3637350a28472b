"""The ensemble's members in plain arrays: what upstream's EnsembleGenerator yields, storable without pickle.

Their order is fixed: by normalisation, in the order that fit was given ("none" then "power" unless told otherwise),
then as drawn. It is the order in which members are summed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tabgrpc.data.shuffles import IntArray
from tabgrpc.data.transforms import PARAMETERS, FloatArray, Transform

_COMMON = ("mean", "scale", "lower", "upper")


@dataclass(frozen=True)
class Member:
    """One member: its place in the order, its normalisation, and its permutations.

    feature_shuffle: int64 (F',), the kept feature at each place. class_shuffle: int64 (classes,), the label that each
    class is shown as (None for regression): member outputs are put back by `out[..., class_shuffle]`.
    """

    index: int
    norm_method: str
    feature_shuffle: IntArray
    class_shuffle: IntArray | None


@dataclass(frozen=True)
class Members:
    """All members of a fitted model.

    members: in their order. transforms: one for each normalisation in use. keep: bool (F,), the encoded features that
    weren't constant in training; F' of them. y_mean, y_scale: the regression target is shown as (y - y_mean) /
    y_scale; 0 and 1 for classification.
    """

    members: tuple[Member, ...]
    transforms: Mapping[str, Transform]
    keep: np.ndarray[Any, np.dtype[np.bool_]]
    y_mean: float = 0.0
    y_scale: float = 1.0

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    def __getitem__(self, index: int) -> Member:
        return self.members[index]

    @property
    def n_features(self) -> int:
        """F', the features that a member sees."""
        return int(self.keep.sum())

    def normalised(self, X: FloatArray, method: str) -> FloatArray:
        """(n, F) encoded features -> (n, F') float64 by one normalisation, in the encoded order."""
        if X.ndim != 2 or X.shape[1] != len(self.keep):
            raise ValueError(f"expected (rows, {len(self.keep)}) encoded features, got {X.shape}")
        return self.transforms[method](np.asarray(X, dtype=np.float64)[:, self.keep])

    def transform(self, X: FloatArray, member: Member | int) -> FloatArray:
        """(n, F) encoded features -> (n, F') float64 as `member` sees them. Context and query rows alike; each row
        for itself."""
        chosen = self.members[member] if isinstance(member, int) else member
        return np.take(self.normalised(X, chosen.norm_method), chosen.feature_shuffle, axis=1)

    def transform_all(self, X: FloatArray) -> Iterator[tuple[Member, FloatArray]]:
        """Every member with its (n, F') float64, in member order; each normalisation is computed once."""
        method, normalised = "", np.empty((0, 0))
        for member in self.members:
            if member.norm_method != method:  # members of one normalisation are neighbours
                method, normalised = member.norm_method, self.normalised(X, member.norm_method)
            yield member, np.take(normalised, member.feature_shuffle, axis=1)

    def train_targets(self, y: np.ndarray[Any, Any], member: Member | int) -> np.ndarray[Any, Any]:
        """(n,) int64 class codes or float64 values -> the labels that `member` is shown: int64, or float64
        standardised."""
        chosen = self.members[member] if isinstance(member, int) else member
        if chosen.class_shuffle is not None:
            return np.asarray(chosen.class_shuffle[np.asarray(y, dtype=np.int64)])
        return np.asarray((np.asarray(y, dtype=np.float64) - self.y_mean) / self.y_scale)

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Everything as named numeric arrays, for safetensors; `members` is a JSON text in bytes (uint8)."""
        used = list(self.transforms)
        first = self.members[0]
        arrays: dict[str, np.ndarray[Any, Any]] = {
            "members": np.frombuffer(
                json.dumps([member.norm_method for member in self.members]).encode(), np.uint8
            ).copy(),
            "keep": self.keep,
            "target": np.array([self.y_mean, self.y_scale], np.float64),
            "feature_shuffles": np.stack([member.feature_shuffle for member in self.members]),
        }
        if first.class_shuffle is not None:
            arrays["class_shuffles"] = np.stack(
                [member.class_shuffle for member in self.members if member.class_shuffle is not None]
            )
        for method in used:
            transform = self.transforms[method]
            named = {name: getattr(transform, name) for name in _COMMON} | dict(transform.parameters)
            arrays |= {f"{method}.{name}": np.ascontiguousarray(array) for name, array in named.items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Self:
        """The members that `to_arrays` gave. Raises ValueError for anything else."""
        try:
            methods = json.loads(arrays["members"].tobytes())
            classes = arrays["class_shuffles"] if "class_shuffles" in arrays else [None] * len(methods)
            members = tuple(
                Member(index, method, features, class_shuffle)
                for index, (method, features, class_shuffle) in enumerate(
                    zip(methods, arrays["feature_shuffles"], classes, strict=True)
                )
            )
            transforms = {
                method: Transform(
                    method,
                    **{name: arrays[f"{method}.{name}"] for name in _COMMON},
                    parameters={name: arrays[f"{method}.{name}"] for name in PARAMETERS[method]},
                )
                for method in dict.fromkeys(methods)
            }
            y_mean, y_scale = arrays["target"].tolist()
            return cls(members, transforms, arrays["keep"].astype(bool), y_mean, y_scale)
        except KeyError as error:
            raise ValueError(f"not the arrays of an ensemble: {error} is missing") from None

    def check(self, width: int, classes: int) -> None:
        """That these numbers, read from a file, can be applied to ``width`` encoded features and ``classes`` classes (0: regression).

        Raises ValueError for what no fit gives: it would fail, or answer something else, at a query.
        """
        count = self.n_features
        if self.keep.shape != (width,) or not count:
            raise ValueError(f"an ensemble over {self.keep.shape} features, the schema has {width}")
        for member in self.members:
            for shuffle, size in ((member.feature_shuffle, count), (member.class_shuffle, classes)):
                if (shuffle is None) != (size == 0):
                    raise ValueError(f"member {member.index} has a shuffle too many or too few")
                if shuffle is not None and (shuffle.dtype.kind not in "iu" or not np.array_equal(np.sort(shuffle), np.arange(size))):
                    raise ValueError(f"member {member.index} has a shuffle that is no order of {size}")
        for method, transform in self.transforms.items():
            for name, array in {**{name: getattr(transform, name) for name in _COMMON}, **transform.parameters}.items():
                levels = len(transform.parameters.get("references", ()))
                shape = {"quantiles": (levels, count), "references": (levels,)}.get(name, (count,))
                if array.dtype.kind != "f" or array.shape != shape:
                    raise ValueError(f"normalisation {method} has {name} of {array.dtype} {array.shape}, not {shape}")

"""How `tabgrpc fit` makes the ensemble's members and averages them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tabgrpc.cli.errors import Mistake

if TYPE_CHECKING:
    from tabgrpc.v1 import models_pb2


class Shuffle(StrEnum):
    """How members see features or classes in other orders."""

    none = "none"
    shift = "shift"
    random = "random"
    latin = "latin"


Members = Annotated[int, typer.Option(min=1, max=1024, envvar="TABGRPC_N_ESTIMATORS", help="Members of the ensemble.")]
RandomState = Annotated[int, typer.Option(min=0, envvar="TABGRPC_RANDOM_STATE", help="Seed of the members' shuffles.")]
NormMethods = Annotated[
    str,
    typer.Option(
        envvar="TABGRPC_NORM_METHODS",
        metavar="NAME,...",
        help="Normalisations that members take turns with: none, power, quantile, quantile_rtdl, robust.",
    ),
]
FeatureShuffle = Annotated[
    Shuffle, typer.Option("--feat-shuffle-method", envvar="TABGRPC_FEAT_SHUFFLE_METHOD", help="How members see features in other orders.")
]
ClassShuffle = Annotated[
    Shuffle, typer.Option("--class-shuffle-method", envvar="TABGRPC_CLASS_SHUFFLE_METHOD", help="How members see classes in other orders.")
]
OutlierThreshold = Annotated[
    float,
    typer.Option(
        min=1e-6, envvar="TABGRPC_OUTLIER_THRESHOLD", help="Standard deviations beyond which values grow by their logarithm only."
    ),
]
Temperature = Annotated[
    float, typer.Option(min=1e-6, envvar="TABGRPC_SOFTMAX_TEMPERATURE", help="Of a classification: temperature of the softmax.")
]
AverageProbabilities = Annotated[
    bool,
    typer.Option(
        "--average-probabilities",
        envvar="TABGRPC_AVERAGE_PROBABILITIES",
        help="Of a classification: average the members' probabilities, not their logits.",
    ),
]


@dataclass(frozen=True)
class Ensemble:
    """What the command line says about the members; the defaults are TabICL's."""

    n_estimators: int = 8
    random_state: int = 0
    norm_methods: tuple[str, ...] = ("none", "power")
    feat_shuffle_method: str = "latin"
    class_shuffle_method: str = "shift"
    outlier_threshold: float = 4.0
    softmax_temperature: float = 0.9
    average_probabilities: bool = False

    def into(self, options: models_pb2.FitOptions) -> models_pb2.FitOptions:
        """The options, with these; what is at its default is left to the pool's."""
        plain = Ensemble()
        options.n_estimators, options.random_state = self.n_estimators, self.random_state
        for name in ("feat_shuffle_method", "class_shuffle_method", "outlier_threshold", "softmax_temperature", "average_probabilities"):
            if getattr(self, name) != getattr(plain, name):
                setattr(options, name, getattr(self, name))
        if self.norm_methods != plain.norm_methods:
            options.norm_methods.extend(self.norm_methods)
        return options


def methods_of(text: str) -> tuple[str, ...]:
    """ "none,power" as names. Raises Mistake for others than there are."""
    from tabgrpc.data.transforms import NORM_METHODS

    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names or ("",):
        if name not in NORM_METHODS:
            raise Mistake(f"--norm-methods: {name!r} is none of {', '.join(NORM_METHODS)}")
    return names

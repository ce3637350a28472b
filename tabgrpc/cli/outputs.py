"""What `tabgrpc predict` writes of each row besides the prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tabgrpc.cli.errors import Mistake

if TYPE_CHECKING:
    from tabgrpc.v1 import models_pb2

Proba = Annotated[bool, typer.Option("--proba", envvar="TABGRPC_PROBA", help="Also proba_<class> for each class.")]
Logits = Annotated[
    bool, typer.Option("--logits", envvar="TABGRPC_LOGITS", help="Also logit_<class> for each class: before temperature and softmax.")
]
Quantiles = Annotated[
    str | None,
    typer.Option(envvar="TABGRPC_QUANTILES", metavar="Q,Q,...", help="Of a regression: q<level> for each level, such as 0.1,0.5,0.9."),
]
Variance = Annotated[
    bool, typer.Option("--variance", envvar="TABGRPC_VARIANCE", help="Of a regression: also variance, in the target's unit squared.")
]
Mode = Annotated[
    bool, typer.Option("--mode", envvar="TABGRPC_MODE", help="Of a regression: also mode, the middle of the narrowest tenth.")
]
Draws = Annotated[
    int,
    typer.Option(min=0, max=10_000, envvar="TABGRPC_DRAWS", metavar="N", help="Of a regression: also draw_0 and so on, N random numbers."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, envvar="TABGRPC_SEED", help="Of --draws.")]
Embeddings = Annotated[
    bool, typer.Option("--embeddings", envvar="TABGRPC_EMBEDDINGS", help="The row's vector, embedding_0 and so on, and nothing else.")
]


@dataclass(frozen=True)
class Outputs:
    """What is asked of each row. levels: of quantiles, in (0, 1)."""

    proba: bool = False
    logits: bool = False
    levels: tuple[float, ...] = ()
    variance: bool = False
    mode: bool = False
    draws: int = 0
    seed: int = 0
    embeddings: bool = False

    def check(self, model: str, task: str) -> None:
        """Raises Mistake for what a model of this task doesn't have."""
        of_classes = {"--proba": self.proba, "--logits": self.logits}
        of_numbers = {"--quantiles": self.levels, "--variance": self.variance, "--mode": self.mode, "--draws": self.draws}
        if self.embeddings and (others := [name for name, asked in (of_classes | of_numbers).items() if asked]):
            raise Mistake(f"--embeddings goes alone, not with {others[0]}")
        wrong, article = (of_numbers, "a regression") if task == "classification" else (of_classes, "a classification")
        for name, asked in wrong.items():
            if asked:
                raise Mistake(f"{name}: {model} is a {task} model; {name.removeprefix('--')} is of {article}")

    def request(self) -> models_pb2.PredictRequest:
        """As the service takes it."""
        from tabgrpc.v1 import models_pb2 as pb

        kinds = {
            pb.OUTPUT_LOGITS: self.logits,
            pb.OUTPUT_VARIANCE: self.variance,
            pb.OUTPUT_MODE: self.mode,
            pb.OUTPUT_EMBEDDINGS: self.embeddings,
        }
        draws = pb.Draws(count=self.draws, seed=self.seed) if self.draws else None
        return pb.PredictRequest(quantiles=self.levels, outputs=[kind for kind, asked in kinds.items() if asked], draws=draws)

    def answers(self, name: str) -> bool:
        """Whether a column of the pool's answer goes to OUT."""
        return self.proba or not name.startswith("proba_")


def levels_of(text: str | None) -> tuple[float, ...]:
    """ "0.1,0.9" as numbers. Raises Mistake for anything outside (0, 1)."""
    levels = []
    for part in (text or "").split(","):
        if not part.strip():
            continue
        try:
            level = float(part)
        except ValueError:
            level = -1.0
        if not 0.0 < level < 1.0:
            raise Mistake(f"--quantiles: {part.strip()!r} is not a number between 0 and 1")
        levels.append(level)
    return tuple(levels)

"""One run of pretraining, a few minutes long; several add up.

    python -m tools.pretrain.train --kind classifier --seconds 540 --out OUT [--resume STATE] [--warm-start STATE]

The rate is constant after a short warm-up and, with --decay S, falls to zero over the run's last S seconds. The state
before the fall is what a later run resumes, the weights after it are what ships.

Writes OUT/state.{safetensors,json} (to resume), with --decay OUT/decayed (the state after the fall) and OUT/final (a
checkpoint pair), and OUT/curve.jsonl (steps, seconds, loss, its baseline, progress scores).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from tools.pretrain.kernels import choose_attention
from tools.pretrain.losses import class_loss, quantile_loss
from tools.pretrain.network import Network, NetworkConfig
from tools.pretrain.optimizer import Optimizer
from tools.pretrain.prior import Batch, draw
from tools.pretrain.progress import scores
from tools.pretrain.sizes import draw_size
from tools.pretrain.state import Progress, load_state, load_weights, save_state

DRAWN_AT_ONCE = 8  # steps that share one drawing of tables: launches are shared too
CURRICULUM_SECONDS = 220.0  # until the widest shapes come
QUIET_SECONDS = 150.0  # until the prior's whole noise comes


class Run:
    """The loop and what it keeps: network, optimizer, progress, the clock and the files."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.out = args, Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.classifier = args.kind == "classifier"
        config = NetworkConfig() if self.classifier else NetworkConfig(max_classes=0, num_quantiles=args.quantiles)
        torch.manual_seed(args.seed)
        self.network = Network(config).to(self.device)
        self.optimizer = Optimizer(self.network, args.muon_lr, args.adam_lr)
        self.progress = Progress()
        if args.resume:
            self.progress = load_state(Path(args.resume), self.network, self.optimizer)
        elif args.warm_start:
            load_weights(Path(args.warm_start), self.network)
        self.head_start = args.head_start if args.warm_start else 0.0  # a trained trunk needs no small tables first
        self.before = self.progress.seconds
        self.started = time.monotonic()
        self.loss_sum = torch.zeros(2, device=self.device)
        self.loss_count = 0
        self.reported = 0.0
        if args.compile:
            self.network.compile_blocks()

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def factor(self, step: int) -> float:
        """The rate's factor: warm-up in steps, decay in seconds."""
        left = self.args.seconds - self.elapsed()
        falling = left / self.args.decay if self.args.decay else 1.0
        return max(0.0, min(1.0, (step + 1) / self.args.warm_up, falling))

    def batches(self) -> list[Batch]:
        age = self.progress.seconds + self.head_start
        size = draw_size(age / CURRICULUM_SECONDS, self.args.cells)
        drawn = draw(
            size.B * DRAWN_AT_ONCE,
            size.T,
            size.H,
            size.n,
            classifier=self.classifier,
            most=min(1.0, 0.1 + age / QUIET_SECONDS),
            device=self.device,
        )
        return drawn.split(size.B)

    def step(self, batch: Batch, step: int) -> None:
        with torch.autocast(self.device.type, torch.bfloat16):
            out = self.network(batch.X, batch.y[:, : batch.n])
        loss, baseline = (class_loss if self.classifier else quantile_loss)(out, batch)
        loss.backward()
        self.optimizer.step(self.factor(step))
        self.loss_sum += torch.nan_to_num(torch.stack([loss.detach(), baseline]))
        self.loss_count += 1

    def report(self) -> None:
        loss, baseline = (self.loss_sum / max(1, self.loss_count)).tolist()
        # The compiled blocks are graphs with gradients; without them each would be compiled once more.
        with torch.autocast(self.device.type, torch.bfloat16), torch.compiler.set_stance("force_eager"):
            named = scores(self.network, self.classifier, self.device)
        p = self.progress
        line = {"steps": p.steps, "tables": p.tables, "seconds": round(p.seconds), "loss": round(loss, 4)}
        line |= {"ms": round(1e3 * (self.elapsed() - self.reported) / max(1, self.loss_count), 1)}
        self.reported = self.elapsed()
        line |= {"baseline": round(baseline, 4), "factor": round(self.factor(10**6), 3), **named}
        print(json.dumps(line), flush=True)
        with (self.out / "curve.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.loss_sum.zero_()
        self.loss_count = 0

    def save(self, name: str = "state") -> None:
        save_state(self.out / name, self.network, self.optimizer, self.progress)

    def train(self) -> None:
        args, step, saved, falling = self.args, 0, 0.0, False
        while self.elapsed() < args.seconds:
            if args.decay and not falling and self.elapsed() > args.seconds - args.decay:
                self.report()
                self.save()
                falling = True
            for batch in self.batches():
                self.step(batch, step)
                step += 1
                self.progress.steps += 1
                self.progress.tables += batch.X.shape[0]
                self.progress.seconds = self.before + self.elapsed()
                if step == 1:
                    print(f"first step after {self.elapsed():.1f} s", flush=True)
            if self.elapsed() - self.reported > args.report_every:
                self.report()
            if self.elapsed() - saved > args.save_every:
                saved = self.elapsed()
                self.save("decayed" if falling else "state")  # a run cut short leaves its latest weights
        self.report()
        if args.decay:
            self.ship()
        else:
            self.save()

    def ship(self) -> None:
        from tabgrpc.checkpoints import save_checkpoint

        self.save("decayed")
        p = self.progress
        meta = {
            "recipe": "tools/pretrain, synthetic tables only",
            "steps": p.steps,
            "tables": p.tables,
            "seconds": round(p.seconds),
            "licence": "Apache-2.0",
        }
        config = self.network.config.upstream()
        print(save_checkpoint(self.out / "final", self.args.kind, config, self.network.state_dict(), meta))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.pretrain.train", description=__doc__.split("\n")[0])
    parser.add_argument("--kind", choices=("classifier", "regressor"), required=True)
    parser.add_argument("--seconds", type=float, required=True, help="length of this run, compilation included")
    parser.add_argument("--out", required=True)
    parser.add_argument("--resume", help="state (without suffix) of a run to go on with")
    parser.add_argument("--warm-start", help="state or checkpoint (without suffix) whose fitting weights to start from")
    parser.add_argument("--head-start", type=float, default=150.0, help="seconds of the curriculum a warm start skips")
    parser.add_argument("--decay", type=float, default=0.0, help="seconds over which the rate falls to zero at the end")
    parser.add_argument("--warm-up", type=int, default=150, help="steps")
    parser.add_argument("--muon-lr", type=float, default=3e-3)
    parser.add_argument("--adam-lr", type=float, default=2e-3)
    parser.add_argument("--cells", type=int, default=1_000_000, help="tables x rows x columns of a step")
    parser.add_argument("--quantiles", type=int, default=199)
    parser.add_argument("--report-every", type=float, default=30.0)
    parser.add_argument("--save-every", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    choose_attention()
    Run(args).train()


if __name__ == "__main__":
    main()

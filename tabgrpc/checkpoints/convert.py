"""Convert a checkpoint to upstream TabICL's format, so that upstream is the peer for parity.

    python -m tabgrpc.checkpoints.convert SRC DST.ckpt [--task classification|regression]

`tabicl.TabICLClassifier(model_path="DST.ckpt")` (or the regressor) then loads it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tabgrpc.checkpoints.checkpoint import Checkpoint, CheckpointError, load_checkpoint


def convert(source: Checkpoint, target: str | Path) -> Path:
    """Write `source` as {"config", "state_dict"} in float32 to `target` and return its path."""
    import torch

    target = Path(target)
    torch.save({"config": source.config, "state_dict": source.state_dict()}, target)
    return target


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tabgrpc.checkpoints.convert", description=__doc__.split("\n")[0])
    parser.add_argument("source", help="mini, a .json or .safetensors, or the folder of a pair")
    parser.add_argument("target", help="the .ckpt file to write")
    parser.add_argument("--task", choices=("classification", "regression"), help="needed for mini")
    args = parser.parse_args(argv)
    try:
        source = load_checkpoint(args.source, task=args.task)
        print(f"{convert(source, args.target)}: {source.kind} {source.name}, sha256 of the source {source.sha256}")
    except (CheckpointError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

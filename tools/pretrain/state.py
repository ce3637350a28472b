"""A run's state on disk: weights, optimizer, random generators and counters, so that short runs add up.

NAME.safetensors holds half-precision weights, Muon's momentum in 8 bits with a scale per row, AdamW's moments in
bfloat16 and the generators' bytes; NAME.json the counters. Half precision rounds far below one step's change, the
momentum is renewed within twenty steps, and a state so small can lie in the repository.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tools.pretrain.network import Network
from tools.pretrain.optimizer import Optimizer


@dataclass
class Progress:
    """steps: optimizer steps; tables: tables seen; seconds: training time; all of the whole run so far."""

    steps: int = 0
    tables: int = 0
    seconds: float = 0.0


def save_state(stem: Path, network: Network, optimizer: Optimizer, progress: Progress) -> None:
    tensors = {f"weight.{n}": t.half() for n, t in network.state_dict().items()}
    for name, tensor in optimizer.state().items():
        tensors |= pack(name, tensor) if name.startswith("momentum.") else {name: tensor.bfloat16()}
    tensors["generator.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["generator.cuda"] = torch.cuda.get_rng_state()
    tensors = {n: t.detach().cpu().contiguous() for n, t in tensors.items()}
    stem.parent.mkdir(parents=True, exist_ok=True)
    partial = stem.with_suffix(".partial")  # a run cut short while writing leaves the last whole state
    save_file(tensors, partial)
    partial.replace(stem.with_suffix(".safetensors"))
    record = {"progress": asdict(progress), "adam_steps": optimizer.count, "config": network.config.upstream()}
    stem.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def pack(name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """A matrix as int8 and its rows' scales."""
    scale = tensor.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
    return {name: torch.round(tensor / scale).to(torch.int8), f"{name}.scale": scale}


def load_state(stem: Path, network: Network, optimizer: Optimizer) -> Progress:
    record = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
    tensors = load_file(stem.with_suffix(".safetensors"))
    network.load_state_dict({n.removeprefix("weight."): t for n, t in tensors.items() if n.startswith("weight.")})
    for name in [n for n in tensors if n.startswith("momentum.") and not n.endswith(".scale")]:
        tensors[name] = tensors[name].float() * tensors[f"{name}.scale"].float()
    optimizer.load(tensors, record["adam_steps"])
    torch.set_rng_state(tensors["generator.cpu"])
    if torch.cuda.is_available() and "generator.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["generator.cuda"])
    return Progress(**record["progress"])


def load_weights(stem: Path, network: Network) -> None:
    """Start from another run's weights: those of the same name and shape, so that a head may differ."""
    tensors = load_file(stem.with_suffix(".safetensors"))
    found = {n.removeprefix("weight."): t for n, t in tensors.items()}
    own = network.state_dict()
    fitting = {n: t for n, t in found.items() if n in own and own[n].shape == t.shape}
    if not fitting:
        raise ValueError(f"{stem}: no tensor fits the network")
    network.load_state_dict(fitting, strict=False)
    print(f"{stem}: {len(fitting)} of {len(own)} tensors taken")

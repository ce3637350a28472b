"""What a worker computes on: the CPU or one CUDA device. Chosen once at start; everything that differs by it is behind this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from tabgrpc.backbones.tabicl import TabICLBackbone
from tabgrpc.core.policy import NumericPolicy
from tabgrpc.machine import free_memory
from tabgrpc_workers.policy import cpu_policy
from tabgrpc_workers.recipes import CpuRecipe, Recipe


class Machine(Protocol):
    """A device: what it computes with, and how much it holds."""

    kind: str
    name: str
    device: torch.device
    dtypes: Mapping[str, torch.dtype]

    def enter(self) -> None:
        """Makes the calling thread one that computes here."""

    def policy(self) -> NumericPolicy:
        """The numeric policy, with a canary computed now. From a thread that has entered."""

    def recipe(self, config: Mapping[str, Any], state: Mapping[str, Tensor], dtype: torch.dtype) -> Recipe:
        """A checkpoint here. Raises UnsupportedCheckpoint."""

    def free_memory(self) -> int:
        """Bytes that may still be taken."""

    def release(self) -> None:
        """Gives cached blocks back, after an allocation failed."""


class CpuMachine:
    """This process's share of the machine; one intra-op thread."""

    kind = name = "cpu"
    device = torch.device("cpu")
    dtypes: Mapping[str, torch.dtype] = {"float32": torch.float32, "float64": torch.float64}

    def enter(self) -> None:
        torch.set_num_threads(1)

    def policy(self) -> NumericPolicy:
        return cpu_policy()

    def recipe(self, config: Mapping[str, Any], state: Mapping[str, Tensor], dtype: torch.dtype) -> Recipe:
        return CpuRecipe(TabICLBackbone(config, state, dtype))

    def free_memory(self) -> int:
        """The machine's free bytes, or its control group's if they are less."""
        return free_memory()

    def release(self) -> None:
        """The allocator keeps nothing back here."""


def machine(device: str) -> Machine:
    """ "cpu", "cuda" or "cuda:N". Raises RuntimeError, saying what is missing, where CUDA can't be had."""
    if device == "cpu":
        return CpuMachine()
    if not torch.cuda.is_available():
        built = "this torch is built without CUDA" if torch.version.cuda is None else "no CUDA device is visible"
        raise RuntimeError(f"device {device!r} can't be had: {built}")
    from tabgrpc_workers.cuda.machine import CudaMachine

    return CudaMachine(device)

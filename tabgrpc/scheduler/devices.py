"""Which devices local workers get. Asks the system, not torch: a scheduler imports none."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CPU_WORKERS = 2


def gpus(environment: Mapping[str, str] = os.environ, dev: Path = Path("/dev")) -> int:
    """CUDA devices that this process's children would see: CUDA_VISIBLE_DEVICES, else the driver's device files."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    present = sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in dev.iterdir()) if dev.is_dir() else 0
    if visible is None:
        return present
    return min(present, len([name for name in visible.split(",") if name.strip() and name.strip() != "-1"]))


def chosen(device: str, environment: Mapping[str, str] = os.environ, dev: Path = Path("/dev")) -> str:
    """ "auto" as "cuda" where there is a GPU and a torch that can use it, else "cpu"; anything else as it is."""
    if device != "auto":
        return device
    try:
        built = "+cpu" not in version("torch")
    except PackageNotFoundError:
        built = False
    return "cuda" if built and gpus(environment, dev) else "cpu"


def of_slot(device: str, slot: int, environment: Mapping[str, str] = os.environ, dev: Path = Path("/dev")) -> str:
    """The device of a local worker: slots go round the GPUs."""
    if device != "cuda":
        return device
    return f"cuda:{slot % max(1, gpus(environment, dev))}"


def sharing(device: str, spawned: int, environment: Mapping[str, str] = os.environ, dev: Path = Path("/dev")) -> int:
    """How many of ``spawned`` local workers share one device's memory, at the most."""
    return -(-spawned // max(1, gpus(environment, dev))) if device == "cuda" else spawned


def workers(device: str, environment: Mapping[str, str] = os.environ, dev: Path = Path("/dev")) -> int:
    """How many local workers there are if nobody says: one a GPU, or two on a CPU."""
    return max(1, gpus(environment, dev)) if device.startswith("cuda") else CPU_WORKERS

"""`tabgrpc doctor`: what this machine has, what it lacks, and what that costs."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
from typing import Annotated, Any

import typer

from tabgrpc import machine
from tabgrpc.cli import accelerators, options, planning
from tabgrpc.cli.errors import PoolFailure
from tabgrpc.cli.planning import planned
from tabgrpc.cli.progress import bytes_text

PACKAGES = (
    "tabgrpc",
    "torch",
    "tabicl",
    "grpcio",
    "protobuf",
    "numpy",
    "pandas",
    "pyarrow",
    "scikit-learn",
    "safetensors",
)
SMALL_MEMORY = 2 << 30


def doctor(
    plan: Annotated[
        str | None,
        typer.Option(metavar="ROWSxFEATURES", envvar="TABGRPC_PLAN", help="Also say what a fit of this size would cost here, and why so."),
    ] = None,
    members: Annotated[int, typer.Option(min=1, max=1024, envvar="TABGRPC_N_ESTIMATORS", help="Of the plan: members.")] = 8,
    classes: Annotated[int, typer.Option(min=0, envvar="TABGRPC_CLASSES", help="Of the plan: classes, 0 for regression.")] = 2,
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Say what this machine has, what it lacks and what that costs. Exit code 3 if a local pool can't run here."""
    found = examine()
    if plan is not None:
        task = "classification" if classes else "regression"
        if task not in found["checkpoints"]:
            raise PoolFailure(f"there is no checkpoint for {task} to plan with")
        found["plan"] = planned(plan, members, classes, workers, found["devices"], found["checkpoints"][task]["path"])
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        for line in lines_of(found):
            print(line)
    broken = [note["missing"] for note in found["notes"] if note["fatal"]]
    if broken:
        raise PoolFailure(f"a local pool can't run here: {'; '.join(broken)}")


def examine() -> dict[str, Any]:
    """All that doctor tells. notes: {"missing", "cost", "fatal"} each."""
    notes: list[dict[str, Any]] = []

    def note(missing: str, cost: str, *, fatal: bool = False) -> None:
        notes.append({"missing": missing, "cost": cost, "fatal": fatal})

    versions = {name: version_of(name) for name in PACKAGES}
    for name in PACKAGES[1:]:
        if versions[name] is None:
            note(f"the package {name}", "install it with pip", fatal=True)
    devices, torch_says = devices_of()
    if torch_says:
        note(torch_says, "workers compute with torch", fatal=True)
    elif not any(device["kind"] == "cuda" for device in devices):
        note("a GPU that torch can use", "large tables take long on a CPU")
    memory = machine.memory()
    if memory is None:
        note("/proc/meminfo", "plans can't check the memory of this machine")
    elif memory.free < SMALL_MEMORY:
        note(f"free memory: {bytes_text(memory.free)}", "only small tables fit; a worker takes about 0.5 GiB by itself")
    cores = machine.cores()
    if cores < 2:
        note("a second core", "two local workers share one core; use --workers 1")
    checkpoints = checkpoints_of(note)
    problem = sockets_problem()
    if problem:
        note(problem, "a local pool's sockets need it", fatal=True)
    return {
        "versions": {"python": platform.python_version(), **versions},
        "platform": platform.platform(),
        "processor": machine.processor(),
        "cores": cores,
        "memory": None
        if memory is None
        else {"total": memory.total, "free": memory.free, "limited_by_control_group": memory.limited},
        "devices": devices,
        "gpus": {} if torch_says else accelerators.examine(note),
        "checkpoints": checkpoints,
        "notes": notes,
    }


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        if package == "tabgrpc":  # run from its folder
            from tabgrpc import __version__

            return __version__
        return None


def devices_of() -> tuple[list[dict[str, Any]], str]:
    """What torch can compute on, and why it can't be loaded if so."""
    try:
        import torch
    except (ImportError, OSError) as error:  # a broken library is an OSError
        return [], f"torch can't be loaded ({error})"
    devices: list[dict[str, Any]] = [{"kind": "cpu", "name": torch.backends.cpu.get_cpu_capability()}]
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            devices.append({"kind": "cuda", "index": index, "name": about.name, "memory": about.total_memory})
    return devices, ""


def checkpoints_of(note: Any) -> dict[str, dict[str, str]]:
    """For each task the checkpoint that `auto` would take; looks in the cache only, never at the network."""
    from tabgrpc.checkpoints.checkpoint import Checkpoint, CheckpointError, load_checkpoint
    from tabgrpc.checkpoints.resolve import find_upstream

    found: dict[str, dict[str, str]] = {}
    for task in ("classification", "regression"):
        path, why = find_upstream(task, download=False)
        try:
            known: Checkpoint = load_checkpoint(path if path is not None else "mini", task)
        except CheckpointError as error:
            note(f"a checkpoint for {task} ({error})", "nothing can be fitted", fatal=True)
            continue
        name = "tabicl-v2" if path is not None else "mini"
        found[task] = {"name": name, "sha256": known.sha256, "path": str(known.path)}
        if path is None:
            note(
                f"TabICL v2 for {task}: it {why}", "auto tries to download it, else takes mini, which is less accurate"
            )
    return found


def sockets_problem() -> str:
    """Why a local pool could not make its unix sockets, empty if it could."""
    from tabgrpc.wire.channels import private_directory

    if sys.platform == "win32":
        return "unix sockets (use WSL2)"
    try:
        private_directory().rmdir()
    except OSError as error:
        return f"a folder for sockets ({error})"
    return ""


def lines_of(found: dict[str, Any]) -> list[str]:
    """The findings for people."""
    versions = ", ".join(f"{name} {version or 'missing'}" for name, version in found["versions"].items())
    memory = found["memory"]
    limit = " (limited by the control group)" if memory and memory["limited_by_control_group"] else ""
    lines = [
        f"versions    {versions}",
        f"machine     {found['platform']}, {found['processor']}",
        f"cores       {found['cores']:g}",
        f"memory      {bytes_text(memory['free'])} free of {bytes_text(memory['total'])}{limit}"
        if memory
        else "memory      unknown",
    ]
    for device in found["devices"]:
        name = f"{device['kind']}:{device['index']}" if "index" in device else device["kind"]
        size = f", {bytes_text(device['memory'])}" if "memory" in device else ""
        lines.append(f"device      {name} {device['name']}{size}")
    lines += accelerators.lines_of(found["gpus"], bytes_text)
    for task, known in found["checkpoints"].items():
        lines.append(f"checkpoint  {task}: {known['name']}, sha256 {known['sha256'][:16]}, {known['path']}")
    lines += [
        f"{'error' if note['fatal'] else 'note':11} missing: {note['missing']}. {note['cost']}."
        for note in found["notes"]
    ]
    if "plan" in found:
        lines += planning.lines_of(found["plan"])
    return lines

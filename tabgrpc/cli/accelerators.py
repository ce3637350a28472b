"""What `tabgrpc doctor` tells of GPUs: memory, links, kernels and how workers would exchange, and what is missing at what cost."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import Any

Note = Callable[[str, str], None]
LEAST_CAPABILITY = (8, 0)


def examine(note: Note) -> dict[str, Any]:
    """Of the visible CUDA devices; empty where there are none or torch can't use them. note: called with (what is missing, its cost)."""
    import torch

    if not torch.cuda.is_available():
        return {}
    count = torch.cuda.device_count()
    devices = [_device(index) for index in range(count)]
    peers = [[a == b or torch.cuda.can_device_access_peer(a, b) for b in range(count)] for a in range(count)]
    if len({device["name"] for device in devices}) > 1:
        note("GPUs of one kind: " + ", ".join(device["name"] for device in devices), "a pool takes only those that compute the same bits")
    for device in devices:
        if tuple(device["capability"]) < LEAST_CAPABILITY:
            note(f"tensor cores of compute capability 8.0 on {device['name']}", "its kernels don't run there; use --device cpu")
    if count > 1 and not all(all(row) for row in peers):
        note("peer access between some GPUs", "exchanges go through host memory, several times slower")
    return {
        "devices": devices,
        "peer_access": peers,
        "links": _links() if count > 1 else [],
        "exchange": _exchange(count, all(all(row) for row in peers), note),
        "kernels": _kernels(note),
    }


def _device(index: int) -> dict[str, Any]:
    import torch

    about = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    return {
        "index": index,
        "name": about.name,
        "capability": [about.major, about.minor],
        "multiprocessors": about.multi_processor_count,
        "memory_free": free,
        "memory_total": total,
    }


def _links() -> list[str]:
    """Lines of the driver's own matrix of links; empty where it can't be asked."""
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        asked = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return []
    return [line.rstrip() for line in asked.stdout.splitlines() if line.startswith(("\t", "GPU", " "))]


def _exchange(count: int, peers: bool, note: Note) -> dict[str, Any]:
    """How workers on these GPUs would move K/V: what NCCL would take by the links there are."""
    import torch

    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        if count > 1:
            note("NCCL in this torch", "GPUs exchange K/V over gRPC through host memory, tens of times slower")
        return {"backend": "grpc", "transport": "gRPC through host memory"}
    version = ".".join(str(part) for part in torch.cuda.nccl.version())
    if count < 2:
        transport = "none: one GPU exchanges nothing"
    else:
        transport = "P2P (NVLink or PCIe)" if peers else "SHM (host memory)"
    return {"backend": "nccl", "version": version, "transport": transport}


def _kernels(note: Note) -> dict[str, str]:
    """What computes each stage."""
    import torch

    try:
        import triton
    except ImportError:
        note("Triton", "no worker starts on a GPU without it; it comes with torch's CUDA wheels")
        return {}
    cudnn = torch.backends.cudnn.version()
    if cudnn is None:
        note("cuDNN", "no fit runs on a GPU in half precision without it; it comes with torch's CUDA wheels")
    return {
        "column, row, predict": f"Triton {triton.__version__}",
        "fit's attention in half": f"cuDNN {cudnn}",
        "fit's attention in float32": f"Triton {triton.__version__}",
    }


def lines_of(found: dict[str, Any], bytes_text: Callable[[int], str]) -> list[str]:
    """The findings for people."""
    if not found:
        return []
    lines = []
    for device in found["devices"]:
        major, minor = device["capability"]
        size = f"{bytes_text(device['memory_free'])} free of {bytes_text(device['memory_total'])}"
        lines.append(f"gpu {device['index']:<7} {device['name']}, sm_{major}{minor}, {device['multiprocessors']} multiprocessors, {size}")
    if len(found["devices"]) > 1:
        for index, row in enumerate(found["peer_access"]):
            lines.append(f"peers {index:<5} " + " ".join("yes" if access else "no " for access in row))
        lines += [f"links       {line}" for line in found["links"]]
    exchange = found["exchange"]
    lines.append(f"exchange    {exchange['backend']} {exchange.get('version', '')}: {exchange['transport']}")
    lines += [f"kernels     {stage}: {kernel}" for stage, kernel in found["kernels"].items()]
    return lines

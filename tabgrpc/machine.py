"""What this machine gives a process: cores, memory and devices, with the limits of its control group."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")
UNLIMITED = 1 << 60  # version 1 says "no limit" with a number near 2^63


@dataclass(frozen=True)
class Memory:
    """Bytes. total: the machine's, or its control group's limit where `limited`. free: what may still be taken."""

    total: int
    free: int
    limited: bool


def memory(proc: Path = PROC, cgroups: Path = CGROUPS) -> Memory | None:
    """Memory of this process; None where the system doesn't say (no Linux)."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except OSError:
        return None
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
    total, free = sizes["MemTotal"], sizes.get("MemAvailable", sizes["MemFree"])
    limited = False
    for folder in _folders(proc, cgroups, "memory"):
        for most, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            limit, taken = _number(folder / most), _number(folder / used)
            if limit is not None and limit < min(total, UNLIMITED):
                total, limited = limit, True
                free = min(free, max(0, limit - (taken or 0)))
    return Memory(total, free, limited)


def free_memory() -> int:
    """Bytes that this process may still take; half of the pages that are there where the system doesn't say."""
    found = memory()
    return found.free if found is not None else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def cores(proc: Path = PROC, cgroups: Path = CGROUPS) -> float:
    """Cores that this process may use: its affinity, or its control group's quota where that is less."""
    count = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    for folder in _folders(proc, cgroups, "cpu"):
        quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        try:
            words = (folder / "cpu.max").read_text().split()
        except OSError:
            words = []
        if len(words) == 2 and words[0] != "max":
            quota, period = int(words[0]), int(words[1])
        if quota and period and quota > 0:
            count = min(count, quota / period)
    return count


def processor() -> str:
    """The processor's name, as far as the system tells."""
    try:
        for line in (PROC / "cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _folders(proc: Path, cgroups: Path, controller: str) -> list[Path]:
    """The control group's folders and all above them, of version 2 and of a version 1 controller."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number != "0" and controller not in controllers.split(","):
            continue
        root = cgroups if number == "0" else cgroups / controller
        inner = root / path.lstrip("/")
        found += [folder for folder in (inner, *inner.parents) if folder.is_relative_to(root) and folder.is_dir()]
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such file, or the word "max"
        return None

"""The architecture's arrows: who may import whom, and what stays free of torch. Parsed, so that imports within functions count too."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"tabgrpc.v1", "tabgrpc.internal"}
# Package: what of ours it may import, besides itself. Generated code is free to all.
ARROWS = {
    "tabgrpc.core": set(),
    "tabgrpc.checkpoints": {"tabgrpc.core"},
    "tabgrpc.backbones": {"tabgrpc.core", "tabgrpc.data", "tabgrpc.checkpoints"},
    "tabgrpc.data": {"tabgrpc.core"},
    "tabgrpc.store": {"tabgrpc.core"},
    "tabgrpc.wire": {"tabgrpc.core"},
}
# What nobody there may import, whatever else is allowed.
FORBIDDEN = {
    "tabgrpc": {"tabgrpc_workers"},
    "tabgrpc.core": {"grpc", "torch", "google", "pathlib", "os", "time", "threading", "io"},
    "tabgrpc_workers": {"tabgrpc.scheduler", "tabgrpc.client", "tabgrpc.cli", "tabgrpc.data"},
}


def modules() -> dict[str, Path]:
    """Every module of ours by name, but generated ones."""
    found = {}
    for base, package in ((ROOT, "tabgrpc"), (ROOT / "workers", "tabgrpc_workers")):
        for path in sorted((base / package).rglob("*.py")):
            if not path.stem.endswith(("_pb2", "_pb2_grpc")):
                parts = path.relative_to(base).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str, path: Path) -> set[str]:
    """Dotted names that a module imports anywhere in it, but what only the type checker sees."""
    found: set[str] = set()
    tree = ast.parse(path.read_text(), str(path))
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for inner in block.body
        for node in ast.walk(inner)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
                base = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def own(name: str) -> bool:
    return within(name, "tabgrpc") or within(name, "tabgrpc_workers")


def test_the_parser_sees_the_modules():
    """Catches a test that passes because it looks at nothing."""
    assert len(MODULES) > 50
    assert "tabgrpc.core.geometry" in imports("tabgrpc.core.plan", MODULES["tabgrpc.core.plan"])
    assert "tabgrpc.core.reduction.Tree" in imports("tabgrpc_workers.kernels", MODULES["tabgrpc_workers.kernels"])


@pytest.mark.parametrize("name", MODULES)
def test_arrows(name):
    found = {each for each in imports(name, MODULES[name]) if not any(within(each, package) for package in GENERATED)}
    for package, allowed in ARROWS.items():
        if within(name, package):
            astray = {each for each in found if own(each) and each != "tabgrpc" and not any(within(each, a) for a in {package, *allowed})}
            astray -= {f"tabgrpc.{each}" for each in ("__version__",)}
            assert not astray, f"{name} imports {sorted(astray)}"
    for package, refused in FORBIDDEN.items():
        if within(name, package):
            astray = {each for each in found if any(within(each, r) for r in refused)}
            assert not astray, f"{name} imports {sorted(astray)}"


def test_only_the_backbone_touches_tabicl():
    """Its private modules are pinned, and one place is to change when the pin does."""
    users = {name for name, path in MODULES.items() if any(within(each, "tabicl") for each in imports(name, path))}
    private = {name for name in users if any(within(each, "tabicl._model") for each in imports(name, MODULES[name]))}
    assert private
    assert all(within(name, "tabgrpc.backbones") for name in private), sorted(private)


@pytest.mark.parametrize("module", ["tabgrpc.client", "tabgrpc.cli.app", "tabgrpc.wire.errors", "tabgrpc.wire.codec", "tabgrpc.store"])
def test_importing_it_brings_no_torch(module):
    """`tabgrpc --help`, the client and the health probe start without the seconds and the memory of torch."""
    code = f"import sys, {module}; print(sorted(m for m in ('torch', 'tabicl', 'sklearn') if m in sys.modules))"
    path = os.pathsep.join([str(ROOT), str(ROOT / "workers")])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert "torch" not in done.stdout

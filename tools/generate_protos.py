"""Writes the Python code of proto/ into the package; ``--check`` only says whether it is up to date.

    python -m tools.generate_protos [--check]

The lines that tie generated code to the generator's own version are left out: the code itself uses only what protobuf and grpcio have
offered for years, and tests load it under old and new versions.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"


def generate(into: Path) -> list[Path]:
    """Generates every proto into ``into``; returns the paths written, relative to it."""
    import google.longrunning
    import grpc_tools
    from grpc_tools import protoc

    site = Path(google.longrunning.__path__[0]).parent.parent
    includes = [PROTO, Path(grpc_tools.__file__).parent / "_proto", into / "include", site]
    operations = into / "include/google/longrunning/operations.proto"  # the package ships it under another file name
    operations.parent.mkdir(parents=True)
    operations.write_text((site / "google/longrunning/operations_proto.proto").read_text())
    sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    arguments = [f"-I{path}" for path in includes]
    outputs = [f"--python_out={into}", f"--pyi_out={into}", f"--grpc_python_out={into}"]
    if protoc.main(["protoc", *arguments, *outputs, *sources]):
        raise SystemExit("protoc failed")
    written = sorted(path.relative_to(into) for path in into.rglob("*_pb2*.py*"))
    for path in written:
        file = into / path
        file.write_text(_untie(file.read_text()))
    return written


def _untie(text: str) -> str:
    """Generated code without its checks of the runtime's version."""
    text = re.sub(r"^# Protobuf Python Version:.*\n", "", text, flags=re.M)
    text = re.sub(r"^from google\.protobuf import runtime_version as _runtime_version\n", "", text, flags=re.M)
    text = re.sub(r"^_runtime_version\.ValidateProtobufRuntimeVersion\((?:.|\n)*?^\)\n", "", text, flags=re.M)
    text = re.sub(r"^import warnings\n", "", text, flags=re.M)
    text = re.sub(r"^GRPC_GENERATED_VERSION(?:.|\n)*?^    \)\n\n?", "", text, flags=re.M)
    return re.sub(r",?\s*_registered_method=True", "", text)


def main() -> None:
    """Regenerates, or compares."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder)
        written = generate(into)
        if "--check" in sys.argv:
            stale = [str(p) for p in written if not (ROOT / p).exists() or (ROOT / p).read_text() != (into / p).read_text()]
            if stale:
                raise SystemExit(f"generated code is stale, run python -m tools.generate_protos: {', '.join(stale)}")
            return
        for path in written:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text((into / path).read_text())


if __name__ == "__main__":
    main()

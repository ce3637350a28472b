"""The numeric policy: everything outside a table that decides the bits."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

DTYPES = ("float32", "float64", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class NumericPolicy:
    """dtype: of stored and residual values. device: "cpu" or "cuda". hardware: instruction set or GPU name. recipe: "eager" or
    "compiled", with its digest. libraries: those that compute, with versions, sorted. canary: digest of tiles computed at start-up.
    """

    dtype: str
    device: str
    hardware: str
    recipe: str
    libraries: tuple[tuple[str, str], ...]
    canary: str

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype {self.dtype!r} is none of {', '.join(DTYPES)}")

    def digest(self) -> str:
        """Equal digests mean equal bits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def differences(self, other: NumericPolicy) -> list[str]:
        """The fields in which two policies differ, as ``name: mine != theirs``."""
        mine, theirs = asdict(self), asdict(other)
        return [f"{name}: {mine[name]} != {theirs[name]}" for name in mine if mine[name] != theirs[name]]

    @classmethod
    def from_dict(cls, values: dict[str, object]) -> NumericPolicy:
        libraries = tuple(sorted((str(k), str(v)) for k, v in values["libraries"]))  # type: ignore[attr-defined]
        return cls(**{**values, "libraries": libraries})  # type: ignore[arg-type]

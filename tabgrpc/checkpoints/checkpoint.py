"""A checkpoint: which network it is (kind, constructor arguments) and where its weights lie, checked before use.

Two forms are read. Ours is a pair of files, NAME.safetensors and NAME.json. Upstream TabICL's is one `.ckpt` file,
which is read with `torch.load(..., weights_only=True)` only, so that no object of another class is ever built.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

FORMAT = 1
KINDS = {"classification": "classifier", "regression": "regressor"}
PACKAGED = Path(__file__).parent


class CheckpointError(ValueError):
    """A checkpoint that can't be used. The message is one line and names the file."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose format and hash were checked when it was made.

    name: what was asked for or the file's stem. kind: "classifier" or "regressor". config: the network's constructor
    arguments. path: the file that holds the weights. sha256: that file's, 64 hex digits.
    """

    name: str
    kind: str
    config: dict[str, Any]
    path: Path
    sha256: str

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights by parameter name, float32, on the CPU. Raises CheckpointError if the file changed since."""
        data = _read(self.path)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise CheckpointError(f"{self.path}: the file changed after it was loaded (sha256 differs)")
        tensors = _upstream(self.path)["state_dict"] if self.path.suffix == ".ckpt" else _tensors(self.path, data)
        return {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()}


def load_checkpoint(path_or_name: str | Path, task: str | None = None) -> Checkpoint:
    """Find a checkpoint and check its format, hash and, where `task` is given, its kind.

    path_or_name: "mini" (the packaged pair; needs `task`), a .json or .safetensors of a pair, the folder that holds
    one, or an upstream .ckpt. task: "classification" or "regression". Raises CheckpointError.
    """
    if task is not None and task not in KINDS:
        raise CheckpointError(f"{path_or_name}: task must be classification or regression, not {task!r}")
    if str(path_or_name) == "mini":
        if task is None:
            raise CheckpointError("mini: say which task, classification or regression")
        found = _load_pair(PACKAGED / f"mini-{KINDS[task]}.json", name="mini")
    else:
        path = Path(path_or_name)
        if path.is_dir():
            path = _only_pair(path, task)
        if path.suffix == ".ckpt":
            found = _load_upstream(path)
        elif path.suffix in (".json", ".safetensors"):
            found = _load_pair(path.with_suffix(".json"), name=path.stem)
        else:
            raise CheckpointError(f"{path}: not a checkpoint (.json, .safetensors, .ckpt, or the folder of a pair)")
    if task is not None and found.kind != KINDS[task]:
        raise CheckpointError(f"{found.path}: holds a {found.kind}, but the task is {task}")
    return found


def save_checkpoint(
    path: str | Path,
    kind: str,
    config: Mapping[str, Any],
    state_dict: Mapping[str, torch.Tensor],
    meta: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Write the pair PATH.safetensors (float16) and PATH.json, and read it back.

    path: with or without a suffix of the pair. meta: what else the JSON says (recipe, steps, licence). Raises
    CheckpointError for another kind, a config that is not JSON, or a weight that float16 can't hold.
    """
    import torch
    from safetensors.torch import save

    path = Path(path)
    stem = path.with_suffix("") if path.suffix in (".json", ".safetensors") else path
    if kind not in KINDS.values():
        raise CheckpointError(f"{stem}: kind must be classifier or regressor, not {kind!r}")
    halves = {n: t.detach().cpu().half().contiguous() for n, t in state_dict.items()}
    for tensor_name, tensor in halves.items():
        if not torch.isfinite(tensor).all():
            raise CheckpointError(f"{stem}: {tensor_name} is not finite in float16")
    data = save(halves)
    digest = hashlib.sha256(data).hexdigest()
    record = {"format": FORMAT, "kind": kind, "config": dict(config), "sha256": digest, **dict(meta or {})}
    try:
        text = json.dumps(record, indent=1) + "\n"
    except TypeError as error:
        raise CheckpointError(f"{stem}: config and meta must be plain JSON values ({error})") from error
    weights, about = stem.with_name(stem.name + ".safetensors"), stem.with_name(stem.name + ".json")
    weights.write_bytes(data)
    about.write_text(text, encoding="utf-8")
    return _load_pair(about, name=stem.name)


def _load_pair(about: Path, name: str) -> Checkpoint:
    """Read and check NAME.json, and the hash of the weights beside it."""
    try:
        record = json.loads(_read(about))
    except ValueError as error:
        raise CheckpointError(f"{about}: not JSON ({error})") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        got = record.get("format") if isinstance(record, dict) else type(record).__name__
        raise CheckpointError(f"{about}: format {got!r} is not {FORMAT}, the one this version reads")
    kind, config, digest = record.get("kind"), record.get("config"), record.get("sha256")
    if kind not in KINDS.values() or not isinstance(config, dict) or not isinstance(digest, str):
        raise CheckpointError(f"{about}: kind, config or sha256 is missing or wrong")
    if kind != _kind_of(config, about):
        raise CheckpointError(f"{about}: says {kind}, but its config is a {_kind_of(config, about)}'s")
    weights = about.with_suffix(".safetensors")
    if hashlib.sha256(_read(weights)).hexdigest() != digest:
        raise CheckpointError(f"{weights}: sha256 is not the one in {about.name}")
    return Checkpoint(name=name, kind=kind, config=config, path=weights, sha256=digest)


def _load_upstream(path: Path) -> Checkpoint:
    """Read upstream's {"config", "state_dict"} file; its hash is taken from the file, as none is stated."""
    config = dict(_upstream(path)["config"])
    digest = hashlib.sha256(_read(path)).hexdigest()
    return Checkpoint(name=path.stem, kind=_kind_of(config, path), config=config, path=path, sha256=digest)


def _upstream(path: Path) -> dict[str, Any]:
    import pickle

    import torch

    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        # weights_only is what keeps this from running code: a file that needs more is refused, never retried.
        record = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, OSError) as error:
        raise CheckpointError(f"{path}: not a weights-only checkpoint ({type(error).__name__})") from error
    if not isinstance(record, dict) or not {"config", "state_dict"} <= record.keys():
        raise CheckpointError(f"{path}: config or state_dict is missing")
    return record


def _tensors(path: Path, data: bytes) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(data)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not safetensors ({error})") from error


def _kind_of(config: Mapping[str, Any], path: Path) -> str:
    """The kind by upstream's rule: max_classes 0 is a regressor, absent means 10."""
    classes = config.get("max_classes", 10)
    if not isinstance(classes, int) or classes < 0:
        raise CheckpointError(f"{path}: max_classes must be a count, not {classes!r}")
    return "classifier" if classes else "regressor"


def _only_pair(folder: Path, task: str | None) -> Path:
    """The folder's one pair, or the one whose name says the task's kind."""
    pairs = sorted(p for p in folder.glob("*.json") if p.with_suffix(".safetensors").is_file())
    if task is not None and len(pairs) > 1:
        pairs = [p for p in pairs if KINDS[task] in p.stem]
    if len(pairs) != 1:
        raise CheckpointError(f"{folder}: holds {len(pairs)} checkpoints to choose from, name one")
    return pairs[0]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or 'not readable'}") from error

"""The tile files of a fitted model: K/V of one member's chunk, all layers in one file, and one file of its inducing K/V.

Nothing in a file depends on how many workers there were: a chunk is a chunk whoever owned it. safetensors only; nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from tabgrpc.store.files import DamagedModel, StoredFile, read, write


def chunk_path(folder: str, member: int, chunk: int, node: int = 0) -> str:
    """File of a chunk's K/V: tensors "k/<layer>/<block>", "v/<layer>/<block>", each (H, rows, d). node: of a tree of classes, else 0."""
    where = f"node-{node:03d}-" if node else ""
    return f"{folder}/member-{member:03d}/{where}chunk-{chunk:03d}.safetensors"


def column_path(folder: str, member: int, digit: int = 0) -> str:
    """File of a member's inducing K/V: tensors "k/<block>", "v/<block>", each (G, H, I, d). digit: of labels that have several, else 0."""
    where = f"-{digit}" if digit else ""
    return f"{folder}/member-{member:03d}/column{where}.safetensors"


def save(directory: Path, path: str, tensors: Mapping[str, Tensor]) -> StoredFile:
    """Writes one tile file."""
    return write(directory, path, safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}))


def load(directory: Path, file: StoredFile) -> dict[str, Tensor]:
    """Reads one tile file, checked first. Raises DamagedModel."""
    try:
        return safetensors.torch.load(read(directory, file))
    except SafetensorError as error:
        raise DamagedModel(f"{file.path} is not a safetensors file") from error

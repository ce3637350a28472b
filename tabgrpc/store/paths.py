"""Names of a model's files, relative to its directory. ``folder``: of one version, or of an unfinished fit."""

from __future__ import annotations

from collections.abc import Iterator

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.plan import BackboneShape


def chunk_path(folder: str, member: int, chunk: int, node: int = 0) -> str:
    """File of a chunk's K/V: tensors "k/<layer>/<block>", "v/<layer>/<block>", each (H, rows, d); a layer's K, then its V, lie together.

    node: of a tree of classes, else 0.
    """
    where = f"node-{node:03d}-" if node else ""
    return f"{folder}/member-{member:03d}/{where}chunk-{chunk:03d}.safetensors"


def column_path(folder: str, member: int, digit: int = 0) -> str:
    """File of a member's inducing K/V: tensors "k/<block>", "v/<block>", each (G, H, I, d). digit: of labels that have several, else 0."""
    where = f"-{digit}" if digit else ""
    return f"{folder}/member-{member:03d}/column{where}.safetensors"


def rows_path(folder: str, member: int, chunk: int) -> str:
    """File of a chunk's row vectors as they enter ICL layer 0: tensors "hidden/<block>", each (rows, D)."""
    return f"{folder}/member-{member:03d}/rows-{chunk:03d}.safetensors"


def stage_path(folder: str, member: int, blocks: int) -> str:
    """File of an unfinished fit: as ``column_path``, of the first ``blocks`` column blocks."""
    return f"{folder}/member-{member:03d}/column-{blocks:02d}.safetensors"


def layer_path(folder: str, member: int, layer: int, chunk: int) -> str:
    """File of an unfinished fit: as ``rows_path``, of the vectors that enter ICL layer ``layer``."""
    return f"{folder}/member-{member:03d}/layer-{layer:02d}/rows-{chunk:03d}.safetensors"


def data_path(folder: str, part: int) -> str:
    """File of some of the encoded training rows: tensors "x" (rows, F) float64 and "y" (rows,)."""
    return f"{folder}/data-{part:04d}.safetensors"


def expected(save: str, folder: str, geometry: Geometry, shape: BackboneShape, members: int, itemsize: int) -> Iterator[tuple[str, int]]:
    """The files of a model that is saved so, and the bytes of each one's numbers; the training rows apart."""
    if save == "data":
        return
    for member in range(members):
        yield column_path(folder, member), shape.column_bytes(geometry.groups, itemsize)
        for chunk in range(geometry.chunks):
            blocks = geometry.chunk_blocks(chunk)
            rows = geometry.block_rows(blocks[-1]).stop - geometry.block_rows(blocks[0]).start
            if save == "kv":
                yield chunk_path(folder, member, chunk), shape.context_bytes(rows, itemsize)
            else:
                yield rows_path(folder, member, chunk), rows * shape.icl * itemsize

"""Tensors on the wire, on the worker's side: streams and parcels to named tensors, and what a shard holds to names and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tabgrpc.backbones.protocol import InducingKV
from tabgrpc.core.reduction import Node, Partial
from tabgrpc.internal.v1 import shards_pb2 as pb
from tabgrpc.wire.codec import MAX_STREAM_BYTES, CodecError, arrays, unpack
from tabgrpc.wire.errors import InvalidArgument, NotReady
from tabgrpc_workers.kernels import KVRun
from tabgrpc_workers.shard import ModelShards, finite

Tensors = dict[str, Tensor]


def received(requests: Iterator[Any]) -> tuple[Any, Tensors]:
    """The first message of a stream, and the tensors of its frames."""
    first = first_of(requests)
    return first, tensors_of(first, requests, MAX_STREAM_BYTES)


def first_of(requests: Iterator[Any]) -> Any:
    first = next(requests, None)
    if first is None:
        raise InvalidArgument("an empty stream")
    return first


def tensors_of(first: Any, requests: Iterator[Any], limit: int) -> Tensors:
    """The tensors of a stream's frames, of at most ``limit`` bytes."""

    def parts() -> Iterator[pb.Frame]:
        if first.HasField("frame"):
            yield first.frame
        for request in requests:
            yield request.frame

    try:
        return {name: torch.from_numpy(array) for name, array in arrays(parts(), limit).items()}
    except CodecError as error:
        raise InvalidArgument(str(error)) from error


def unpacked(parcel: pb.Parcel) -> Tensors:
    try:
        return {name: torch.from_numpy(array) for name, array in unpack(parcel).items()}
    except CodecError as error:
        raise InvalidArgument(str(error)) from error


def plain(tensors: Tensors) -> dict[str, np.ndarray]:
    """To numpy, from any device. numpy knows no bfloat16: those travel as the int16 of the same bits, which nothing else is."""
    found = {}
    for name, tensor in tensors.items():
        here = tensor.cpu()
        found[name] = (here.view(torch.int16) if here.dtype == torch.bfloat16 else here).numpy()
    return found


def placed(tensors: Tensors, device: torch.device) -> Tensors:
    """Received tensors on a device; see ``plain``."""
    return {
        name: (tensor.view(torch.bfloat16) if tensor.dtype == torch.int16 else tensor).to(device) for name, tensor in tensors.items()
    }


def packed_nodes(nodes: Iterable[Node], suffix: str) -> Tensors:
    """Subtrees as "acc<suffix>/<level>/<index>" and so on."""
    out: Tensors = {}
    for node in nodes:
        for name in ("acc", "sum", "peak"):
            out[f"{name}{suffix}/{node.level}/{node.index}"] = getattr(node.partial, name)
    return out


def partial_of(tensors: Tensors, suffix: str) -> Partial:
    return Partial(*(get(tensors, f"{name}{suffix}") for name in ("acc", "sum", "peak")))


def kv_tensors(runs: Iterable[KVRun]) -> Tensors:
    """K/V runs as "k/<start>", "v/<start>" and, for a table's short last block, "kt/<start>", "vt/<start>"."""
    out: Tensors = {}
    for run in runs:
        out |= {f"k/{run.start}": run.k, f"v/{run.start}": run.v}
        if run.tail is not None:
            out |= {f"kt/{run.start}": run.tail[0], f"vt/{run.start}": run.tail[1]}
    return out


def kv_runs(tensors: Tensors) -> list[KVRun]:
    starts = [int(name.removeprefix("k/")) for name in tensors if name.startswith("k/")]
    runs = []
    for start in starts:
        tail = (tensors[f"kt/{start}"], get(tensors, f"vt/{start}")) if f"kt/{start}" in tensors else None
        runs.append(KVRun(start, tensors[f"k/{start}"], get(tensors, f"v/{start}"), tail))
    return runs


def inducing_tensors(inducing: Iterable[InducingKV]) -> Tensors:
    """Inducing K/V as "k/<block>", "v/<block>"."""
    return {f"{name}/{block}": getattr(kv, name) for block, kv in enumerate(inducing) for name in ("k", "v")}


def inducing_of(tensors: Tensors, blocks: int) -> list[InducingKV]:
    return [InducingKV(get(tensors, f"k/{block}"), get(tensors, f"v/{block}")) for block in range(blocks)]


def get(tensors: Tensors, name: str) -> Tensor:
    if name not in tensors:
        raise InvalidArgument(f"array {name!r} is missing")
    return tensors[name]


def tile_rows(model: ModelShards, tensors: Tensors, member: int) -> Tensor:
    """The query rows that a member is asked about, (tile, F)."""
    x = get(tensors, f"x/{member}")
    if tuple(x.shape) != (model.geometry.tile, model.features):
        raise InvalidArgument(f"a query tile is {model.geometry.tile} x {model.features}, not {tuple(x.shape)}")
    return x.to(model.backbone.dtype)


def checked(outputs: Tensor, member: int) -> Tensor:
    """Never a NaN, never a silent uniform: outputs that aren't finite are an error."""
    if not finite([outputs]):
        raise NotReady(f"member {member} gave outputs that are not finite; try dtype float64, or check for extreme values")
    return outputs

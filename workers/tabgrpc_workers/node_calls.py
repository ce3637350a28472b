"""What a worker answers about members with a tree of classes: the same stages and steps, of a digit or of a node."""

from __future__ import annotations

from torch import Tensor

from tabgrpc.core.head import Head
from tabgrpc.core.ownership import Run
from tabgrpc.internal.v1 import shards_pb2 as pb
from tabgrpc.wire.errors import InvalidArgument, NotReady
from tabgrpc_workers import fit, nodes, query
from tabgrpc_workers.arrays import Tensors, checked, get, kv_runs, kv_tensors, packed_nodes, partial_of, tile_rows
from tabgrpc_workers.device import Task
from tabgrpc_workers.overlap import Quanta
from tabgrpc_workers.shard import ModelShards, Shard


def stage(
    model: ModelShards, shard: Shard, kind: pb.FitStageKind, part: int, layer: int, tensors: Tensors, device: Quanta
) -> Task[Tensors]:
    """A stage of FitStage."""
    shape = model.backbone.shape
    match kind:
        case pb.FIT_STAGE_KIND_COLUMN if layer < shape.column_blocks and part < len(shard.digits):
            return packed_nodes((yield from fit.column(model, shard.digits[part], device, layer, _ignore)), "")
        case pb.FIT_STAGE_KIND_COLUMN_END if layer < shape.column_blocks and part < len(shard.digits):
            fit.column_end(model, shard.digits[part], layer, partial_of(tensors, ""))
            return {}
        case pb.FIT_STAGE_KIND_ROWS:
            yield from fit.rows(model, shard, device, _ignore)
            return {f"hidden/{data.run.start}": data.hidden for data in shard.data if data.hidden is not None}
        case pb.FIT_STAGE_KIND_SPREAD:
            vectors, targets = (_by_start(tensors, name) for name in ("hidden/", "y/"))
            yield from nodes.spread(model, shard, part, vectors, targets, device)
            return kv_tensors(nodes.context(shard, part).kv[0])
        case pb.FIT_STAGE_KIND_ICL if layer < shape.icl_layers - 1:
            node = nodes.context(shard, part)
            yield from fit.icl(model.of(node), node, device, layer, kv_runs(tensors), _ignore)
            return {} if layer + 2 == shape.icl_layers else kv_tensors(node.kv[layer + 1])
        case pb.FIT_STAGE_KIND_NODE:
            node = nodes.context(shard, part)
            if node.runs != (Run(0, model.of(node).geometry.blocks),):
                raise NotReady(f"node {part} of member {shard.member} has other owners too")
            yield from nodes.layers(model, node, device, _ignore)
            return {}
    raise InvalidArgument(f"no stage {kind} of part {part} at layer {layer}")


def step(model: ModelShards, shard: Shard, kind: pb.TileStepKind, layer: int, tensors: Tensors, asked: Head) -> Task[Tensors]:
    """A step of TileStep: of the nodes whose arrays came, one after the other."""
    member, backbone = shard.member, model.backbone
    out: Tensors = {}
    match kind:
        case pb.TILE_STEP_KIND_OPEN:
            vectors = tensors.get(f"hidden/{member}")
            if vectors is None:
                vectors = yield from query.vectors(model, shard, tile_rows(model, tensors, member))
            out[f"hidden/{member}"] = vectors
            for number in get(tensors, f"nodes/{member}").tolist():
                out[f"q/{member}.{number}"] = _queries(model, shard, number, 0, vectors)
                yield
        case pb.TILE_STEP_KIND_ATTEND:
            for number, q in _named(tensors, f"q/{member}.").items():
                node = nodes.context(shard, number)
                out |= packed_nodes(query.attention(model.of(node), node, layer, q), f"/{member}.{number}")
                yield
        case pb.TILE_STEP_KIND_ADVANCE:
            for number, hidden in _named(tensors, f"hidden/{member}.").items():
                after = query.end(model, layer, hidden, partial_of(tensors, f"/{member}.{number}"))
                if layer + 1 == backbone.shape.icl_layers:
                    out[f"out/{member}.{number}"] = checked(backbone.head(after, asked), member)
                else:
                    out[f"hidden/{member}.{number}"] = after
                    out[f"q/{member}.{number}"] = _queries(model, shard, number, layer + 1, after)
                yield
        case _:
            raise InvalidArgument(f"no step {kind}")
    return out


def _queries(model: ModelShards, shard: Shard, number: int, layer: int, hidden: Tensor) -> Tensor:
    if not 0 <= number < len(shard.tree):
        raise InvalidArgument(f"member {shard.member} has no node {number}")
    return model.backbone.icl_queries(layer, hidden, shard.tree[number].rows)


def _named(tensors: Tensors, prefix: str) -> dict[int, Tensor]:
    """Arrays by the number at the end of their names."""
    try:
        return {int(name.removeprefix(prefix)): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    except ValueError:
        raise InvalidArgument(f"arrays {prefix}<number> are wanted") from None


def _by_start(tensors: Tensors, prefix: str) -> dict[int, Tensor]:
    return {start: get(tensors, f"{prefix}{start}") for start in _named(tensors, prefix)}


def _ignore(_stage: str) -> None:
    """Stages of a shared fit are counted by the scheduler."""

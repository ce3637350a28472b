"""What the backbone refuses, and that sizes are known without a weight."""

from __future__ import annotations

import inspect

import pytest
import torch
from inprocess import backbone, weights
from tabicl._model.tabicl import TabICL

from tabgrpc.backbones.shapes import shape_of
from tabgrpc.backbones.tabicl import TabICLBackbone, UnsupportedCheckpoint


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"norm_first": False}, "norm_first=False"),
        ({"col_affine": True}, "col_affine=True"),
        ({"col_target_aware": False}, "col_target_aware=False"),
        ({"activation": "relu"}, "activation='relu'"),
        ({"col_feature_group": "valid"}, "groups features"),
        ({"col_feature_group": False}, "groups features"),
        ({"future_part": 3}, "future_part"),
    ],
    ids=str,
)
def test_another_network_is_refused_naming_the_part(change, part):
    """Catches wrong numbers, or an obscure error, from a checkpoint that this code doesn't compute."""
    config, state = weights("classifier", False)
    with pytest.raises(UnsupportedCheckpoint, match=part):
        TabICLBackbone({**config, **change}, state)


@pytest.mark.parametrize("change", ["missing", "another shape", "unknown"])
def test_weights_of_another_network_are_refused_naming_one(change):
    config, state = weights("classifier", False)
    name = "icl_predictor.ln.weight"
    other = {
        "missing": {k: v for k, v in state.items() if k != name},
        "another shape": {**state, name: torch.ones(3)},
        "unknown": {**state, "extra": torch.ones(3)},
    }[change]
    with pytest.raises(UnsupportedCheckpoint, match="extra" if change == "unknown" else name):
        TabICLBackbone(config, other)


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
@pytest.mark.parametrize("change", [{}, {"col_num_inds": 5, "ff_factor": 3, "row_num_cls": 2, "icl_num_blocks": 3, "row_num_blocks": 1}])
def test_shape_of_is_what_the_built_network_has(kind, change):
    """Plans are made from it. Catches a default or a factor that isn't the network's."""
    config = {**weights(kind, False)[0], **change}
    net = TabICL(**config)
    shape = shape_of(config)
    inducing = net.col_embedder.tf_col.blocks[0].ind_vectors
    assert (shape.inducing, shape.embed) == tuple(inducing.shape)
    assert shape.column_blocks == len(net.col_embedder.tf_col.blocks)
    assert shape.row_blocks == len(net.row_interactor.tf_row.blocks)
    assert shape.icl_layers == len(net.icl_predictor.tf_icl.blocks)
    assert shape.cls == net.row_interactor.cls_tokens.shape[0]
    assert shape.icl == net.icl_predictor.ln.weight.shape[0]
    assert shape.ff_factor * shape.embed == net.col_embedder.tf_col.blocks[0].multihead_attn1.linear1.out_features


def test_defaults_are_upstreams():
    """A checkpoint's config may leave them out."""
    names = {
        "embed": "embed_dim",
        "inducing": "col_num_inds",
        "cls": "row_num_cls",
        "column_blocks": "col_num_blocks",
        "row_blocks": "row_num_blocks",
        "icl_layers": "icl_num_blocks",
        "ff_factor": "ff_factor",
    }
    arguments = inspect.signature(TabICL).parameters
    shape = shape_of({})
    assert {ours: getattr(shape, ours) for ours in names} == {ours: arguments[theirs].default for ours, theirs in names.items()}
    assert shape.icl == shape.embed * shape.cls


def test_a_backbone_leaves_the_given_weights_alone():
    """They may be shared with another dtype's. Also catches weights that are moved or require gradients."""
    config, state = weights("classifier", True)
    before = {name: tensor.clone() for name, tensor in state.items()}
    net = TabICLBackbone(config, state, torch.float64)
    assert net.embed(torch.zeros(2, 3, dtype=torch.float64), None, range(3)).dtype == torch.float64
    assert all((state[name] == tensor).all() and state[name].dtype == tensor.dtype for name, tensor in before.items())


def test_stages_are_pure_between_threads():
    """Upstream keeps per-call state on the module (case B02); here a stage leaves nothing behind that another call could see."""
    net = backbone("classifier")
    x, y = torch.randn(9, 3), torch.zeros(9)
    first = net.rows(net.embed(x, y, range(3)))
    net.rows(net.embed(torch.randn(40, 5), None, range(5)))
    assert (net.rows(net.embed(x, y, range(3))) == first).all()


def test_a_chunk_of_features_is_a_slice_of_the_whole():
    """Groups wrap round the table's features, not round the chunk's."""
    net = backbone("regressor")
    x, y = torch.randn(16, 7), torch.randn(16)
    whole = net.embed(x, y, range(7))
    for groups in (range(3), range(3, 6), range(6, 7)):
        # another number of columns is another product, so not the same bits
        assert torch.allclose(net.embed(x, y, groups), whole[groups.start : groups.stop], atol=1e-5)

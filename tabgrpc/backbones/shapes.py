"""Sizes of a backbone from its checkpoint's config, without loading a weight. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tabgrpc.core.plan import BackboneShape


def shape_of(config: Mapping[str, Any]) -> BackboneShape:
    """config: TabICL's constructor arguments; those left out have TabICL's defaults."""
    embed = int(config.get("embed_dim", 128))
    cls = int(config.get("row_num_cls", 4))
    return BackboneShape(
        embed=embed,
        icl=embed * cls,
        inducing=int(config.get("col_num_inds", 128)),
        cls=cls,
        column_blocks=int(config.get("col_num_blocks", 3)),
        row_blocks=int(config.get("row_num_blocks", 3)),
        icl_layers=int(config.get("icl_num_blocks", 12)),
        ff_factor=int(config.get("ff_factor", 2)),
        max_classes=int(config.get("max_classes", 10)),
    )

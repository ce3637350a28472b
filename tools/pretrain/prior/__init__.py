"""The prior: synthetic tables, made in batches on the device they are trained on.
`draw` makes a batch of prepared tables; the other files make its ingredients."""

from tools.pretrain.prior.tables import Batch, draw

__all__ = ["Batch", "draw"]

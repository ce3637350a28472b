"""What is minimised on the query rows, and the score of a model that ignores the features, to compare with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.pretrain.prior import Batch


def levels(count: int, device: torch.device) -> Tensor:
    """The quantile levels of upstream's head: i / (count + 1), i = 1..count."""
    return torch.arange(1, count + 1, device=device) / (count + 1)


def class_loss(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Cross-entropy over the classes of the context. logits: (B, queries, 10) -> (loss, loss of the class shares)."""
    y, known = batch.y[:, batch.n :].long(), batch.known[:, batch.n :]
    absent = torch.arange(logits.shape[-1], device=logits.device) >= batch.classes[:, None]
    logits = logits.float().masked_fill(absent[:, None], -1e4)
    target = torch.where(known, y, torch.full_like(y, -100)).flatten()
    loss = F.cross_entropy(logits.flatten(0, 1), target, ignore_index=-100)
    with torch.no_grad():
        share = F.one_hot(batch.y[:, : batch.n].long(), logits.shape[-1]).float().mean(1) + 1e-3
        prior = torch.log(share / share.sum(1, keepdim=True))[:, None].expand_as(logits)
        baseline = F.cross_entropy(prior.flatten(0, 1), target, ignore_index=-100)
    return loss, baseline


def quantile_loss(quantiles: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Pinball loss. quantiles: (B, queries, Q) -> (loss, loss of the standard normal's quantiles)."""
    level = levels(quantiles.shape[-1], quantiles.device)
    y = batch.y[:, batch.n :, None]
    normal = torch.erfinv(2 * level - 1) * 2**0.5
    return pinball(y - quantiles.float(), level), pinball(y - normal, level)


def pinball(error: Tensor, level: Tensor) -> Tensor:
    return torch.maximum(level * error, (level - 1) * error).mean() * 2

"""How columns look in a table: categories as codes, warped and rounded values, columns of noise."""

from __future__ import annotations

import torch
from torch import Tensor

from tools.pretrain.prior.chance import choose, coin, fair, integer, spread, standard


def categorise(X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Turn some columns into categories. X: (b, T, H) -> what is observed, what acts on the target, which columns.

    Observed are the codes in an arbitrary or the natural order; what acts is an effect per level, so that the order
    of the codes may mean nothing.
    """
    b, T, H = X.shape
    levels = choose([2, 2, 3, 4, 6, 10])
    chosen = fair(X, 0.5, b, 1, 1) * (torch.rand(b, 1, H, device=X.device) < torch.rand(b, 1, 1, device=X.device))
    chosen = chosen.float()
    cuts = torch.randn(b, 1, H, levels - 1, device=X.device) * (0.8 if levels > 2 else 0.5)
    level = torch.zeros(b, T, H, dtype=torch.long, device=X.device)
    for i in range(levels - 1):
        level = level + (cuts[..., i] < X)
    effect = torch.randn(b, 1, H, levels, device=X.device) * 1.2
    natural = torch.arange(levels, device=X.device).float().expand(b, 1, H, levels)
    ordered = fair(X, 0.4, b, 1, H, 1)
    effect = ordered * (natural - levels / 2) + (1 - ordered) * effect
    acts = effect.expand(-1, T, -1, -1).gather(3, level[..., None])[..., 0]
    code = torch.rand(b, 1, H, levels, device=X.device).argsort(-1).float()
    code = ordered * natural + (1 - ordered) * code
    seen = code.expand(-1, T, -1, -1).gather(3, level[..., None])[..., 0]
    return chosen * seen + (1 - chosen) * X, chosen * standard(acts) + (1 - chosen) * X, chosen


def warp(X: Tensor, fixed: Tensor) -> Tensor:
    """Give columns other marginals, monotonely, and round some. fixed: (b, 1, H), 1 where a column stays as it is."""
    b, T, H = X.shape
    kind = torch.rand(b, 1, H, device=X.device) + fixed
    plain = torch.rand(b, 1, 1, device=X.device) < 0.35  # tables without any warp
    kind = torch.where(plain, torch.ones_like(kind), kind)
    scale = spread(X, 0.3, 1.5, b, 1, H)
    clipped = X.clamp(-4, 4)
    Y = torch.where(kind < 0.14, torch.exp(clipped * scale), X)
    power = torch.sign(X) * (X.abs() + 1e-6) ** (2 * scale)
    Y = torch.where((kind >= 0.14) & (kind < 0.22), power, Y)
    Y = torch.where((kind >= 0.22) & (kind < 0.30), torch.sigmoid(2 * scale * X), Y)
    Y = torch.where((kind >= 0.30) & (kind < 0.36), torch.relu(X - 0.7 + scale * 0.5), Y)
    step = spread(X, 0.05, 1.0, b, 1, H)
    Y = torch.where((kind >= 0.36) & (kind < 0.48), torch.round(X / step) * step, Y)
    return Y


def relevance(X: Tensor) -> Tensor:
    """Weights (b, H) of columns in the target: some tables use all, some few, at least one; 0 is noise."""
    b, _, H = X.shape
    share = torch.rand(b, 1, device=X.device)
    if coin(0.4):
        share = torch.ones_like(share)
    elif H > 12 and coin(0.6):
        share = share * 12 / H
    order = torch.rand(b, H, device=X.device).argsort(1).float()
    used = (order < (share * H).clamp(min=min(H, integer(1, 3)))).float()
    return used * (spread(X, 0.2, 1.0, b, H) if coin(0.5) else torch.ones_like(used))


def distract(X: Tensor) -> Tensor:
    """Replace a random share of columns by noise or by copies of others with noise, at least two columns stay."""
    b, T, H = X.shape
    share = torch.rand(b, 1, 1, device=X.device) * fair(X, 0.5, b, 1, 1) * 0.8
    lost = torch.rand(b, 1, H, device=X.device) < share
    lost[:, :, :2] = False
    copies = X[:, :, torch.rand(H, device=X.device).argsort()]
    noise = torch.randn_like(X)
    other = torch.where(torch.rand(b, 1, H, device=X.device) < 0.3, standard(copies) + 0.3 * noise, noise)
    return torch.where(lost, other, X)

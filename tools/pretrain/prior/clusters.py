"""Tables whose features follow from the class: clusters in a latent space, seen through a linear or bent map.

This is how make_classification, flowers and digit images come about, the other direction from functions.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tools.pretrain.prior.chance import choose, coin, fair, integer, spread, standard, uniform
from tools.pretrain.prior.inputs import activate


def clusters(b: int, T: int, H: int, groups: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of clusters -> features X (b, T, H), the group (b, T) in 0..groups-1, a value (b, T) for regression.

    Each group owns one to four clusters; clusters differ in centre and, often, in shape.
    """
    each = choose([1, 1, 2, 3, 4]) if groups <= 6 else choose([1, 1, 2])
    count = groups * each
    rank = integer(max(1, min(H, 2)), max(1, min(H, 24)))
    apart = spread(torch.empty(0, device=device), 0.5, 3.5, b, 1, 1)
    if coin(0.4):
        centres = torch.sign(torch.randn(b, count, rank, device=device))  # corners of a cube
    else:
        centres = torch.randn(b, count, rank, device=device)
    centres = centres * apart / (rank**0.25 if coin(0.5) else 1.0)
    at = torch.randint(0, count, (b, T), device=device)
    if coin(0.4):
        at = (at.float() * torch.rand(b, T, device=device) ** uniform(0, 1)).long()  # some clusters are rare
    latent = torch.randn(b, T, rank, device=device)
    if coin(0.6):
        shapes = torch.randn(b, count, rank, rank, device=device) / rank**0.5
        if coin(0.5):
            shapes = shapes[:, :1].expand(-1, count, -1, -1)
        latent = by_cluster(latent, shapes, at) * uniform(0.6, 1.4)
    elif coin(0.5):
        width = spread(latent, 0.3, 1.5, b, count, 1)
        latent = latent * width.gather(1, at[..., None])
    latent = latent + centres.gather(1, at[..., None].expand(-1, -1, rank))
    return observe(latent, H), at // each, effect(latent, at, count)


def by_cluster(latent: Tensor, shapes: Tensor, at: Tensor) -> Tensor:
    """latent (b, T, r) times the matrix of its cluster; shapes: (b, P, r, r), at: (b, T)."""
    out = torch.zeros_like(latent)
    for i in range(shapes.shape[1]):  # a loop over clusters keeps memory at one product
        out = out + torch.bmm(latent, shapes[:, i]) * (at == i)[..., None]
    return out


def observe(latent: Tensor, H: int) -> Tensor:
    """Map latent columns (b, T, r) to H features: themselves first or mixed, then bent, noisy, or cut at zero."""
    b, T, rank = latent.shape
    weights = torch.randn(b, rank, H, device=latent.device) / rank**0.5
    if coin(0.4):
        weights = weights * fair(latent, 0.4, b, rank, H)
    if coin(0.5):
        keep = min(rank, H)
        weights[:, :, :keep] = torch.eye(rank, device=latent.device)[:, :keep]
    X = torch.bmm(latent, weights)
    style = choose(["plain", "bent", "pixels"], [5, 2, 2])
    if style == "bent":
        X = activate(standard(X) * 1.5 + torch.randn(b, 1, H, device=latent.device))
    X = standard(X) + spread(X, 0.01, 0.7, b, 1, 1) * torch.randn_like(X)
    if style == "pixels":  # dark borders, few grey levels
        X = torch.relu(X + torch.randn(b, 1, H, device=latent.device) - 0.3)
        X = torch.round(X.clamp(max=3) * 5) / 5
    return X


def effect(latent: Tensor, at: Tensor, count: int) -> Tensor:
    """A value per row: its cluster's level plus a linear effect of its latent place. (b, T)."""
    b, _, rank = latent.shape
    level = torch.randn(b, count, device=latent.device).gather(1, at)
    slope = torch.bmm(latent, torch.randn(b, rank, 1, device=latent.device))[..., 0]
    return level + spread(latent, 0.05, 2.0, b, 1) * standard(slope)

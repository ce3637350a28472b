"""Where feature values come from when the target is a function of them: four families of inputs.

Each returns standardised columns (b, T, H). Sizes: b tables of one group, T rows, H columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tools.pretrain.prior.chance import choose, coin, fair, integer, spread, standard

ACTIVATIONS = {
    "identity": lambda x: x,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sine": torch.sin,
    "abs": torch.abs,
    "square": lambda x: x.clamp(-4, 4).square(),
    "bump": lambda x: torch.exp(-x.square()),
    "step": lambda x: torch.tanh(8 * x),
    "softplus": torch.nn.functional.softplus,
    "cube": lambda x: x.clamp(-3, 3) ** 3 / 3,
}


def activate(x: Tensor) -> Tensor:
    """Three activations, chosen anew, each over a third of the last axis."""
    parts = x.chunk(3, -1)
    return torch.cat([ACTIVATIONS[choose(list(ACTIVATIONS))](part) for part in parts], -1)


def independent(b: int, T: int, H: int, device: torch.device) -> Tensor:
    """Columns of one marginal each, mixed linearly in half the groups."""
    kind = choose(["normal", "uniform", "mixture", "heavy"], [4, 3, 2, 1])
    if kind == "uniform":
        X = torch.rand(b, T, H, device=device) * 3.46 - 1.73
    else:
        X = torch.randn(b, T, H, device=device)
    if kind == "mixture":
        modes = torch.randn(b, 1, H, 4, device=device) * 2
        at = torch.randint(0, 4, (b, T, H, 1), device=device)
        X = 0.4 * X + modes.expand(-1, T, -1, -1).gather(3, at)[..., 0]
    if kind == "heavy":
        X = X / (torch.rand(b, T, 1, device=device) + 0.1)
    if coin(0.4):
        X = torch.bmm(X, mixing(X, H))
    return standard(X)


def mixing(like: Tensor, H: int) -> Tensor:
    """A random mixing matrix (b, H, H) between the identity and a dense one."""
    b = like.shape[0]
    dense = torch.randn(b, H, H, device=like.device) / H**0.5
    return torch.eye(H, device=like.device) + spread(like, 0.1, 3.0, b, 1, 1) * dense


def factors(b: int, T: int, H: int, device: torch.device) -> Tensor:
    """Few latent factors behind many columns, as in measured data where columns repeat one another."""
    rank = integer(1, max(1, min(H, 12)))
    Z = torch.randn(b, T, rank, device=device) if coin(0.6) else torch.rand(b, T, rank, device=device) * 3.46 - 1.73
    loadings = torch.randn(b, rank, H, device=device) * fair(Z, 0.6, b, rank, H)
    X = torch.bmm(Z, loadings) / rank**0.5
    if coin(0.4):
        X = activate(X * 1.5 + torch.randn(b, 1, H, device=device))
    return standard(standard(X) + spread(X, 0.02, 1.0, b, 1, H) * torch.randn_like(X))


def clustered(b: int, T: int, H: int, device: torch.device) -> Tensor:
    """Rows around a few centres, each with its own width."""
    count = integer(2, 10)
    centres = torch.randn(b, count, H, device=device)
    widths = spread(centres, 0.1, 1.0, b, count, 1)
    at = torch.randint(0, count, (b, T, 1), device=device)
    X = centres.gather(1, at.expand(-1, -1, H)) + widths.gather(1, at) * torch.randn(b, T, H, device=device)
    return standard(X)


def causal(b: int, T: int, H: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """A structural causal model over a random layered graph -> H observed nodes, and 12 other nodes for targets.

    Returns X (b, T, H) and others (b, T, 12), both standardised: others may be causes, effects or both.
    """
    layers, width = integer(2, 4), max(6, min(H + 4, integer(H // 3 + 4, H + 8)))
    nodes = [independent(b, T, width, device) if coin(0.7) else clustered(b, T, width, device)]
    loudness = spread(nodes[0], 0.01, 0.5, b, 1, 1)
    for _ in range(layers):
        parents = fair(nodes[0], min(1.0, 3.0 / width) if coin(0.6) else 0.6, b, width, width)
        weights = torch.randn(b, width, width, device=device) * parents
        mixed = standard(torch.bmm(nodes[-1], weights) + 0.3 * nodes[integer(0, len(nodes) - 1)])
        value = activate(mixed * spread(mixed, 0.5, 3.0, b, 1, width) + torch.randn(b, 1, width, device=device))
        nodes.append(standard(standard(value) + loudness * torch.randn_like(value)))
    pool = torch.cat(nodes, 2)
    order = torch.rand(b, pool.shape[2], device=device).argsort(1)
    while order.shape[1] < H + 12:  # a wide table repeats nodes
        order = torch.cat([order, torch.rand(b, pool.shape[2], device=device).argsort(1)], 1)
    shuffled = pool.gather(2, order[:, None, : H + 12].expand(-1, T, -1))
    return shuffled[..., :H], shuffled[..., H:]


def features(b: int, T: int, H: int, device: torch.device) -> Tensor:
    """One of the families, by weight."""
    family = choose(["independent", "factors", "clustered", "causal"], [5, 2, 1, 2])
    if family == "causal":
        return causal(b, T, H, device)[0]
    return {"independent": independent, "factors": factors, "clustered": clustered}[family](b, T, H, device)

"""Targets as clear functions of the observed features: what a model must be able to recognise in context.

Each family takes Z (b, T, H), standardised columns, weights w (b, H) with irrelevant columns at 0, and K, and returns
(b, T, K): K different functions of the family for every table. Scales are free; callers standardise.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tools.pretrain.prior.chance import choose, coin, fair, integer, pick, spread, standard, take, uniform
from tools.pretrain.prior.inputs import activate


def weighted(Z: Tensor, w: Tensor) -> Tensor:
    """Columns times weights, of length about 1 per row whatever the number of relevant columns."""
    return Z * (w / (w.square().sum(1, keepdim=True).sqrt() + 1e-6))[:, None]


def mix(parts: Tensor, K: int) -> Tensor:
    """K random combinations of parts (b, T, J)."""
    return torch.bmm(parts, torch.randn(parts.shape[0], parts.shape[2], K, device=parts.device))


def linear(Z: Tensor, w: Tensor, K: int) -> Tensor:
    return mix(weighted(Z, w), K)


def quadratic(Z: Tensor, w: Tensor, K: int) -> Tensor:
    """Radial (equal signs) or general quadratic forms around a centre, some with cross terms."""
    b, T, H = Z.shape
    if coin(0.5):
        w = (w > 0).float()  # a sphere in all relevant columns
    centre = torch.randn(b, 1, H, device=Z.device) * uniform(0.1, 1.2) * fair(Z, 0.5, b, 1, 1)
    shifted = weighted(Z - centre, w)
    signs = torch.randn(b, H, K, device=Z.device)
    radial = fair(Z, 0.5, b, 1, K)
    t = torch.bmm(shifted.square(), radial + (1 - radial) * signs)
    if coin(0.3):
        t = standard(t) + mix(torch.bmm(shifted, torch.randn(b, H, 4, device=Z.device)).square(), K) * uniform(0.1, 1)
    return t


def network(Z: Tensor, w: Tensor, K: int) -> Tensor:
    """A random multi-layer perceptron without noise."""
    b, _, H = Z.shape
    width = choose([8, 16, 32, 64])
    x = torch.bmm(weighted(Z, w), torch.randn(b, H, width, device=Z.device)) * spread(Z, 0.7, 4.0, b, 1, 1)
    for _ in range(integer(0, 2)):
        x = activate(x + torch.randn(b, 1, width, device=Z.device))
        x = torch.bmm(standard(x), torch.randn(b, width, width, device=Z.device)) / width**0.5
    return mix(activate(x + torch.randn(b, 1, width, device=Z.device)), K)


def trees(Z: Tensor, w: Tensor, K: int) -> Tensor:
    """Sums of oblivious trees: every split is on a column, at a value that occurs in it."""
    b, T, H = Z.shape
    depth = integer(1, 5)
    count = choose([1, 2, 4, 8, 16, 32]) if depth > 1 else choose([2, 8, 24])
    columns = pick(w, count * depth)
    values = take(Z, columns)
    rows = torch.randint(0, T, (b, 1, count * depth), device=Z.device)
    above = (values > values.gather(1, rows)).long().unflatten(2, (count, depth))
    leaf = (above * 2 ** torch.arange(depth, device=Z.device)).sum(3)
    leaf = leaf + torch.arange(count, device=Z.device) * 2**depth
    heights = torch.randn(b, count * 2**depth, K, device=Z.device)
    found = heights.gather(1, leaf.flatten(1)[..., None].expand(-1, -1, K))
    return found.unflatten(1, (T, count)).sum(2)


def oblique(Z: Tensor, w: Tensor, K: int) -> Tensor:
    """Steps across a few random directions, each one changing what the next ones add."""
    b, T, H = Z.shape
    t = torch.zeros(b, T, K, device=Z.device)
    for _ in range(integer(2, 6)):
        direction = torch.randn(b, H, 1, device=Z.device) * fair(Z, 0.5, b, H, 1)
        side = standard(torch.bmm(weighted(Z, w), direction)) > torch.randn(b, 1, 1, device=Z.device) * 0.7
        side = side.float()
        t = t * (1 + 0.7 * side * torch.randn(b, 1, K, device=Z.device)) + side * torch.randn(b, 1, K, device=Z.device)
    return t


def prototypes(Z: Tensor, w: Tensor, K: int) -> Tensor:
    """The nearest of a few rows decides, sharply or softly."""
    b, T, _ = Z.shape
    count = min(T, choose([2, 4, 6, 10, 16, 30]))
    X = weighted(Z, (w > 0).float() if coin(0.5) else w)
    centres = X[:, :count] + 0.1 * torch.randn_like(X[:, :count])
    distance = torch.cdist(X, centres).square()
    sharp = spread(Z, 0.01, 0.5, b, 1, 1) * distance.mean((1, 2), keepdim=True)
    near = torch.softmax(-distance / (sharp + 1e-6), -1)
    return mix(near, K)


def products(Z: Tensor, w: Tensor, K: int) -> Tensor:
    """Products of two or three columns, or of their signs: interactions and parities."""
    b, T, _ = Z.shape
    count, order = choose([1, 1, 2, 4, 8]), choose([2, 2, 3])
    factor = take(Z, pick((w > 0).float() if coin(0.5) else w, count * order))
    factor = factor - torch.randn(b, 1, count * order, device=Z.device) * uniform(0, 0.7)
    shape = choose(["raw", "sign", "soft"])
    if shape == "sign":
        factor = torch.sign(factor)
    elif shape == "soft":
        factor = torch.tanh(2 * factor)
    return mix(factor.unflatten(2, (count, order)).prod(3), K)


def waves(Z: Tensor, w: Tensor, K: int) -> Tensor:
    """Random Fourier features: draws from a Gaussian process with a length scale per table and column."""
    b, _, H = Z.shape
    count = 64
    frequency = torch.randn(b, H, count, device=Z.device)
    if coin(0.3):
        frequency = frequency / (torch.rand(b, 1, count, device=Z.device) + 0.2)
    angle = torch.bmm(weighted(Z, w), frequency) * spread(Z, 0.4, 6.0, b, 1, 1)
    return mix(torch.cos(angle + torch.rand(b, 1, count, device=Z.device) * 6.2832), K)


def additive(Z: Tensor, w: Tensor, K: int) -> Tensor:
    """One curve a column, summed: waves, steps and hinges."""
    b, T, H = Z.shape
    shape = choose(["waves", "steps", "hinges"])
    total = torch.zeros_like(Z)
    for _ in range(3):
        at = torch.randn(b, 1, H, device=Z.device)
        if shape == "waves":
            part = torch.sin(Z * spread(Z, 0.5, 4.0, b, 1, H) + 3 * at)
        elif shape == "steps":
            part = (at < Z).float()
        else:
            part = torch.relu((Z - at) * torch.sign(torch.randn(b, 1, H, device=Z.device)))
        total = total + part * torch.randn(b, 1, H, device=Z.device)
    return mix(weighted(total, w), K)


PAIRS = {
    "product": lambda u, v: u * v,
    "sine of product": lambda u, v: torch.sin(1.5 * u * v),
    "norm": lambda u, v: torch.sqrt(u.square() + v.square() + 1e-6),
    "angle": lambda u, v: torch.atan(u / (v.abs() + 0.1)),
    "ratio": lambda u, v: u / (0.5 + v.abs()),
    "larger": lambda u, v: torch.maximum(u, v),
    "gap": lambda u, v: (u - v).abs(),
    "square": lambda u, v: (u - 0.5 * torch.sign(v)).square(),
    "gate": lambda u, v: u * (v > 0.3).float(),
    "line": lambda u, v: u + 0.5 * v,
}


def formula(Z: Tensor, w: Tensor, K: int) -> Tensor:
    """Sums of a few named operations on pairs of columns, as in hand-written benchmark formulas."""
    terms = []
    for _ in range(integer(1, 5)):
        u, v = take(Z, pick(w, 2)).unbind(2)
        terms.append(PAIRS[choose(list(PAIRS))](u, v))
    return mix(standard(torch.stack(terms, 2)), K)


FAMILIES = {
    linear: 1.0,
    quadratic: 1.6,
    network: 2.0,
    trees: 2.0,
    oblique: 0.7,
    prototypes: 1.0,
    products: 1.0,
    waves: 1.5,
    additive: 1.0,
    formula: 1.2,
}


def target(Z: Tensor, w: Tensor, K: int) -> Tensor:
    """A family's function, or the sum of two, standardised: (b, T, K)."""
    families, chances = list(FAMILIES), list(FAMILIES.values())
    t = standard(choose(families, chances)(Z, w, K))
    if coin(0.3):
        other = standard(choose(families, chances)(Z, w, K))
        t = standard(t + spread(Z, 0.2, 1.5, Z.shape[0], 1, 1) * other)
    return t

"""Whole tables: a batch is made of groups, and each group draws its own family, warps, classes and preparation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tools.pretrain.prior.chance import choose, coin, integer, spread, standard
from tools.pretrain.prior.clusters import clusters
from tools.pretrain.prior.columns import categorise, distract, relevance, warp
from tools.pretrain.prior.functions import target
from tools.pretrain.prior.inputs import causal, features
from tools.pretrain.prior.labels import flip, from_scores, values
from tools.pretrain.prior.prepare import prepare

SOURCES = {"function": 6.0, "clusters": 2.5, "causal": 1.5}


@dataclass(frozen=True)
class Batch:
    """Prepared tables of one shape. The first n rows are context.

    X: (B, T, H) float32. y: (B, T) float32, class indices or values standardised by the context. classes: (B,) int64,
    how many classes the context holds (0 for regression). known: (B, T) bool, False for a class the context lacks.
    """

    X: Tensor
    y: Tensor
    n: int
    classes: Tensor
    known: Tensor

    def split(self, size: int) -> list[Batch]:
        """Batches of `size` tables."""
        parts = zip(*(t.split(size) for t in (self.X, self.y, self.classes, self.known)), strict=True)
        return [Batch(X, y, self.n, classes, known) for X, y, classes, known in parts]


def draw(B: int, T: int, H: int, n: int, *, classifier: bool, most: float, device: torch.device, groups: int = 16) -> Batch:
    """Draw B tables in `groups` groups, shuffled. most: 0..1, how much of the prior's noise is used."""
    size = -(-B // min(groups, B))
    parts = []
    for start in range(0, B, size):
        b = min(size, B - start)
        C = choose(range(2, 11), [9, 4, 3, 2, 1.5, 1, 1, 1, 2]) if classifier else 0
        X, y = raw(b, T, H, C, most, device)
        X = X[:, :, torch.rand(H, device=device).argsort()]
        parts.append((prepare(X, n, power=coin(0.5)), y))
    order = torch.rand(B, device=device).argsort()
    X, y = (torch.cat([p[i] for p in parts])[order] for i in (0, 1))
    if classifier:
        return relabel(X, y, n)
    context = y[:, :n]
    y = (y - context.mean(1, keepdim=True)) / (context.std(1, keepdim=True, unbiased=False) + 1e-6)
    none = torch.zeros(B, dtype=torch.long, device=device)
    return Batch(X, y.clamp(-10, 10), n, none, torch.ones_like(y, dtype=torch.bool))


def raw(b: int, T: int, H: int, C: int, most: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Features (b, T, H) as measured and the target (b, T): classes 0..C-1, or values where C is 0."""
    source = choose(list(SOURCES), list(SOURCES.values()))
    if source == "clusters":
        X, group, value = clusters(b, T, H, C or integer(2, 8), device)
        y = flip(group, C, most) if C else values(standard(value), most)
        X = distract(standard(X))
        seen, fixed = X, torch.zeros(b, 1, H, device=device)
    elif source == "causal":
        X, others = causal(b, T, H, device)
        scores = others[..., :C] if C and coin(0.3) else others[..., :1]
        y = flip(from_scores(scores, C, most), C, most) if C else values(scores[..., 0], most)
        seen, _, fixed = categorise(distract(X))
    else:
        X = features(b, T, H, device)
        seen, acts, fixed = categorise(X) if coin(0.5) else (X, X, torch.zeros(b, 1, H, device=device))
        scores = target(acts, relevance(X), C if C and coin(0.5 if C > 2 else 0.15) else 1)
        y = flip(from_scores(scores, C, most), C, most) if C else values(scores[..., 0], most)
        if coin(0.2):  # features measured with an error
            seen = seen + (1 - fixed) * spread(X, 0.03, 0.6, b, 1, 1) * most * torch.randn_like(X)
    return (warp(seen, fixed) if coin(0.7) else seen), y


def relabel(X: Tensor, y: Tensor, n: int) -> Batch:
    """Number the classes of each context 0, 1, ... without gaps, as a label encoder does. y: (B, T) in 0..9."""
    present = torch.zeros(y.shape[0], 10, device=y.device).scatter_(1, y[:, :n], 1.0)
    number = (present.cumsum(1) - 1).clamp(min=0)
    known = present.gather(1, y) > 0
    return Batch(X, number.gather(1, y), n, present.sum(1).long(), known)

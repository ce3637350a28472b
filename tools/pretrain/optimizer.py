"""Muon on the hidden matrices, AdamW on the rest, in few launches: matrices of one shape are stacked.

Muon (Jordan et al. 2024) steps along the orthogonalised momentum; its size is matched to AdamW's root mean square by
0.2 * sqrt(max(rows, columns)) (Liu et al. 2025), so that both halves share one learning rate scale.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def orthogonalise(G: Tensor) -> Tensor:
    """Five quintic Newton-Schulz steps towards U V^T. G: (N, rows <= columns) stacked, any dtype -> bfloat16."""
    X = G.bfloat16()
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        A = X @ X.mT
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return X


class Optimizer:
    """Steps all parameters of a network that take gradients; state is a dict of tensors by name."""

    def __init__(self, network: nn.Module, muon_lr: float = 3e-3, adam_lr: float = 2e-3, decay: float = 0.01) -> None:
        self.muon_lr, self.adam_lr, self.decay = muon_lr, adam_lr, decay
        named = [(n, p) for n, p in network.named_parameters() if p.requires_grad]
        self.matrices = [(n, p) for n, p in named if is_hidden(n, p)]
        self.others = [(n, p) for n, p in named if not is_hidden(n, p)]
        device = named[0][1].device
        self.momentum = {n: torch.zeros_like(p) for n, p in self.matrices}
        sizes = [p.numel() for _, p in self.others]
        self.sizes, self.first, self.second = sizes, torch.zeros(sum(sizes), device=device), torch.zeros(sum(sizes), device=device)
        self.count = 0

    @torch.no_grad()
    def step(self, factor: float, clip: float = 1.0) -> Tensor:
        """One step at `factor` times the base rates; gradients are clipped to the norm `clip`, and a step whose
        gradient is not finite counts as a zero gradient. Returns the norm, on the device."""
        pairs = self.matrices + self.others
        norm = torch.stack(torch._foreach_norm([p.grad for _, p in pairs])).norm()
        finite = torch.isfinite(norm)
        scale = torch.where(finite, (clip / (norm + 1e-6)).clamp(max=1.0), torch.zeros_like(norm))
        self._muon(self.muon_lr * factor, scale, finite)
        self._adam(self.adam_lr * factor, scale, finite)
        for _, p in pairs:
            p.grad = None
        return norm

    def _muon(self, lr: float, scale: Tensor, finite: Tensor) -> None:
        momenta = [self.momentum[n] for n, _ in self.matrices]
        grads = [torch.where(finite, p.grad * scale, 0.0) for _, p in self.matrices]
        torch._foreach_lerp_(momenta, grads, 0.05)
        steps = torch._foreach_lerp(grads, momenta, 0.95)  # Nesterov
        stacks: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
        for (name, p), update in zip(self.matrices, steps, strict=True):
            thirds = 3 if name.endswith("in_proj_weight") else 1  # queries, keys and values are matrices of their own
            for weight, part in zip(p.chunk(thirds), update.chunk(thirds), strict=True):
                if part.shape[0] > part.shape[1]:
                    weight, part = weight.mT, part.mT
                stacks.setdefault((part.shape[0], part.shape[1]), []).append((weight, part))
        for (_, columns), members in stacks.items():
            weights = [w for w, _ in members]
            update = orthogonalise(torch.stack([u for _, u in members])).float()
            torch._foreach_mul_(weights, 1 - lr * self.decay)
            torch._foreach_add_(weights, list(update.unbind()), alpha=-lr * 0.2 * columns**0.5)

    def _adam(self, lr: float, scale: Tensor, finite: Tensor) -> None:
        self.count += 1
        grad = torch.cat([p.grad.flatten() for _, p in self.others])
        grad = torch.where(finite, grad * scale, 0.0)
        self.first.lerp_(grad, 0.1)
        self.second.lerp_(grad.square(), 0.02)
        first, second = self.first / (1 - 0.9**self.count), self.second / (1 - 0.98**self.count)
        update = first / (second.sqrt() + 1e-8)
        parts = [u.view_as(p) for u, (_, p) in zip(update.split(self.sizes), self.others, strict=True)]
        torch._foreach_add_([p for _, p in self.others], parts, alpha=-lr)

    def state(self) -> dict[str, Tensor]:
        return {f"momentum.{n}": m for n, m in self.momentum.items()} | {"first": self.first, "second": self.second}

    def load(self, state: dict[str, Tensor], count: int) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
        self.count = count


def is_hidden(name: str, p: nn.Parameter) -> bool:
    """Hidden matrices map features to features; embeddings, tokens, softmax scalers and the last layer are not."""
    outside = ("ind_vectors", "cls_tokens", "y_encoder", "in_linear", "ssmax", "decoder.2")
    return p.ndim == 2 and not any(part in name for part in outside)

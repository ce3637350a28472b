"""Small pieces that several kernels share."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def power_of_two(exponent):  # type: ignore[no-untyped-def]
    """2 ** exponent for integers <= 0 held as floats, exact, 0 below the smallest normal number; as ``tabgrpc.core.reduction`` has it."""
    biased = tl.maximum(tl.minimum(exponent, 0.0), -127.0) + 127.0
    return (biased.to(tl.int32) << 23).to(tl.float32, bitcast=True)


@triton.jit
def gelu(x):  # type: ignore[no-untyped-def]
    """Exact GELU, as torch's default."""
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def tanh(x):  # type: ignore[no-untyped-def]
    """tanh by one exponential; its argument is cut where the result is 1 anyhow."""
    return 1.0 - 2.0 / (1.0 + tl.exp(tl.minimum(tl.maximum(2.0 * x, -40.0), 40.0)))


@triton.jit
def normalised(x, eps, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows (n, WIDTH) in float32 less their mean, over their standard deviation: a layer norm without its affine part."""
    x = x - tl.sum(x, 1)[:, None] / WIDTH
    return x * tl.rsqrt(tl.sum(x * x, 1) / WIDTH + eps)[:, None]


@triton.jit
def rotated(x, cos_ptr, sin_ptr, at, N: tl.constexpr, D: tl.constexpr, INTERLEAVED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rotary embedding of (N, D) heads at positions ``at`` (N,); tables are (positions, D / 2) float32."""
    HALF: tl.constexpr = D // 2
    half = tl.arange(0, HALF)
    cos = tl.load(cos_ptr + at[:, None] * HALF + half[None, :])
    sin = tl.load(sin_ptr + at[:, None] * HALF + half[None, :])
    if INTERLEAVED:
        a, b = tl.split(tl.reshape(x, (N, HALF, 2)))
        return tl.reshape(tl.join(a * cos - b * sin, b * cos + a * sin), (N, D))
    a, b = tl.split(tl.permute(tl.reshape(x, (N, 2, HALF)), (0, 2, 1)))
    return tl.reshape(tl.permute(tl.join(a * cos - b * sin, b * cos + a * sin), (0, 2, 1)), (N, D))

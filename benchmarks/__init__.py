"""Benchmarks against upstream in the same run; ``python -m benchmarks`` prints them."""

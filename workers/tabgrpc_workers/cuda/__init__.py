"""The recipe for CUDA: a few Triton kernels, each of whose programs computes one fixed tile, and cuDNN's attention for the n x n stage.

A program's arithmetic depends on its own tile alone, never on how many programs the launch has: a row's bits are the same in any batch.
"""

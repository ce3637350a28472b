"""Every size that could touch a bit, as a pure function of rows, features, backbone and policy.

A product's shape decides how a kernel sums, so shapes are fixed here once, stored with the model, and never depend on the number of
workers or on free memory. Whoever runs short of memory takes fewer units at once, never smaller ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

MAX_CHUNKS = 256
_CELLS = {"cpu": 4096, "cuda": 4 << 20}  # rows times columns of one column-stage product
_BLOCK = {"cpu": (128, 2048), "cuda": (8192, 32768)}  # fewest and most keys of a canonical block
_QUANTUM = {"cpu": 64, "cuda": 2048}
_TILE = {"cpu": 64, "cuda": 64}


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of one model's work.

    rows: context rows. groups: feature groups of the backbone. block: keys of a canonical K/V block. blocks_per_chunk: a power of two;
    a chunk is what can be owned. quantum: rows of row-wise work at once, divides block. tile: query rows computed together.
    """

    rows: int
    groups: int
    block: int
    blocks_per_chunk: int
    quantum: int
    tile: int
    cells: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.groups < 1:
            raise ValueError(f"a table needs rows and features, not {self.rows} x {self.groups}")
        if small := [name for name, value in asdict(self).items() if value < 1]:
            raise ValueError(f"{', '.join(small)} must be at least 1")
        if self.block % self.quantum or self.blocks_per_chunk & (self.blocks_per_chunk - 1):
            raise ValueError(f"quantum {self.quantum} must divide block {self.block}; blocks per chunk must be a power of two")

    @classmethod
    def of(cls, rows: int, groups: int, device: str = "cpu") -> Geometry:
        """The geometry of a table of ``rows`` x ``groups`` on a kind of device ("cpu" or "cuda")."""
        least, most = _BLOCK[device]
        block = min(max(_power_of_two_from(-(-rows // 16)), least), most)
        blocks = -(-rows // block)
        return cls(
            rows=rows,
            groups=groups,
            block=block,
            blocks_per_chunk=_power_of_two_from(-(-blocks // MAX_CHUNKS)),
            quantum=min(_QUANTUM[device], block),
            tile=_TILE[device],
            cells=_CELLS[device],
        )

    @property
    def blocks(self) -> int:
        """Canonical K/V blocks, the leaves of the reduction tree."""
        return -(-self.rows // self.block)

    @property
    def chunks(self) -> int:
        """Ownership chunks, whole subtrees of the reduction tree."""
        return -(-self.blocks // self.blocks_per_chunk)

    def block_rows(self, block: int) -> range:
        """The context rows of a block; the last block may be short."""
        return range(block * self.block, min((block + 1) * self.block, self.rows))

    def chunk_blocks(self, chunk: int) -> range:
        """The blocks of a chunk."""
        return range(chunk * self.blocks_per_chunk, min((chunk + 1) * self.blocks_per_chunk, self.blocks))

    def quanta(self, rows: range) -> Iterator[range]:
        """A block's rows in quanta; the last may be short."""
        for start in range(rows.start, rows.stop, self.quantum):
            yield range(start, min(start + self.quantum, rows.stop))

    def feature_chunks(self, rows: int) -> Iterator[range]:
        """Feature groups cut so that one column-stage product has at most ``cells`` rows."""
        width = max(1, self.cells // max(rows, 1))
        for start in range(0, self.groups, width):
            yield range(start, min(start + width, self.groups))

    def of_rows(self, rows: int) -> Geometry:
        """The geometry of a context of ``rows`` of these rows: as fine as this one, cut over its own row list."""
        return replace(self, rows=rows)

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def _power_of_two_from(value: int) -> int:
    """The smallest power of two that is at least ``value``."""
    return 1 << max(value - 1, 0).bit_length()

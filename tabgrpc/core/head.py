"""What is asked of a backbone's head, and which column of its outputs is what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Head:
    """A classifier's outputs are logits, whatever is asked. A regressor's are the mean, then what is named here, in this order.

    levels: of quantiles, in (0, 1). variance: over the network's own quantiles. quantiles: those themselves, ascending. embeddings: the
    rows' vectors instead of all that; the layers after them are left out.
    """

    levels: tuple[float, ...] = ()
    variance: bool = False
    quantiles: bool = False
    embeddings: bool = False

    @property
    def fixed(self) -> int:
        """Columns of a regressor's outputs before the network's own quantiles."""
        return 1 + len(self.levels) + self.variance

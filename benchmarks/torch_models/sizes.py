"""Sizes of the models: small ones for tests, larger ones for benchmarks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """What all models are made of.

    Attributes
    ----------
    layers, width, heads : of a transformer.
    shared_heads : heads of keys and values, where several heads of queries share one.
    length : of the sequence; of an image, patches on a side times patches on a side.
    batch : sequences or images.
    vocabulary : tokens.
    """

    layers: int = 1
    width: int = 32
    heads: int = 4
    shared_heads: int = 2
    length: int = 16
    batch: int = 2
    vocabulary: int = 48

    @property
    def head_width(self) -> int:
        """Features of a head."""
        return self.width // self.heads


TINY = Sizes()
BENCHMARK = Sizes(layers=2, width=256, heads=4, shared_heads=2, length=256, batch=1, vocabulary=2048)

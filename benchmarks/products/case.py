"""A random program with matrix products as data: statements over values whose axes have names, from one seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Extents = Mapping[str, int]
"""By the first letter and the number of an axis, as `k0`."""


@dataclass(frozen=True)
class Statement:
    """One value.

    Attributes
    ----------
    op : "input", or a key of `operations.OPERATIONS`.
    args : positions of earlier statements.
    axes : of the value; of an input in the order in which it is stored.
    over : the axis that a reduction or a product sums along; empty for the others.
    half : whether it is stored in the case's half precision, and else in float32.
    depth : the axis along which products sum an input, so that they are of unit size; empty where that is left open.
    """

    op: str
    args: tuple[int, ...]
    axes: tuple[str, ...]
    over: str = ""
    half: bool = False
    depth: str = ""

    def scale(self, extents: Extents) -> float:
        """Of an input's values."""
        return float(extents[self.depth]) ** -0.5 if self.depth else 1.0

    def __str__(self) -> str:
        given = ", ".join(f"v{k}" for k in self.args)
        along = f" over {self.over}" if self.over else ""
        return f"{self.op}({given}){along} [{', '.join(self.axes)}]{' half' if self.half else ''}"


@dataclass(frozen=True)
class ProductCase:
    """What a seed stands for.

    Attributes
    ----------
    shape_of : the production that it was drawn from.
    statements : in order; an argument comes before what reads it.
    small, large : extents for an oracle, and for a measurement.
    dtype : of what is stored in half precision.
    outputs : positions of statements.
    inputs : the name of the data of the first input, a key of `evaluate.inputs.INPUTS`; further ones are normal.
    """

    seed: int
    shape_of: str
    statements: tuple[Statement, ...]
    small: Extents
    large: Extents
    dtype: str
    outputs: tuple[int, ...]
    inputs: str

    @property
    def products(self) -> list[int]:
        """Positions of the matrix products."""
        return [k for k, statement in enumerate(self.statements) if statement.op == "product"]

    def is_half(self, position: int) -> bool:
        """Whether the operands of a product are both of half precision, or one is and the other is computed."""
        sides = [self.statements[k] for k in self.statements[position].args]
        return any(side.half for side in sides) and all(side.half or side.op != "input" for side in sides)

    def multiplies_matrices(self, position: int, extents: Extents) -> bool:
        """Whether both sides of a product have several rows; else it is one of a matrix and a vector, or of vectors."""
        left, right = (self.statements[k].axes for k in self.statements[position].args)
        own = [[a for a in left if a not in right], [a for a in right if a not in left]]
        return all(any(extents[axis] > 1 for axis in side) for side in own)

    def flops(self, extents: Extents, products: Sequence[int] | None = None) -> int:
        """Of the matrix products, or of some of them."""
        total = 0
        for position in self.products if products is None else products:
            count = 2
            for axis in (*self.statements[position].axes, self.statements[position].over):
                count *= extents[axis]
            total += count
        return total

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.shape_of}, {self.dtype}, data: {self.inputs}"]
        lines += [f"  v{k} = {statement}" for k, statement in enumerate(self.statements)]
        for name, extents in (("small", self.small), ("large", self.large)):
            lines.append(f"  {name}: {', '.join(f'{axis} {size}' for axis, size in extents.items())}")
        return "\n".join([*lines, f"  outputs {', '.join(f'v{k}' for k in self.outputs)}"])

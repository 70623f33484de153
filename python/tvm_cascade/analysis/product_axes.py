"""Which axes the register tiles of a product of operands run over.

A reduction Σ over some axes of factors of which none has all output axes is a product. One output axis runs along the
lanes of a vector, in which some operands lie; along a second one those operands are read again, and others broadcast.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from typing import Generic, TypeVar

Axis = TypeVar("Axis", bound=Hashable)


@dataclass(frozen=True)
class ProductAxes(Generic[Axis]):
    """The axes of a product for one choice of lanes.

    Attributes
    ----------
    along : places of the operands that run along the lanes.
    rows : output axes that some of these operands lack and another operand has, in order.
    """

    along: tuple[int, ...]
    rows: tuple[Axis, ...]


def product_axes(operands: Sequence[Set[Axis]], lanes: Axis, outputs: Sequence[Axis]) -> ProductAxes[Axis] | None:
    """The axes of register tiles; None where the operands leave none for rows.

    Parameters
    ----------
    operands : the axes of each factor that varies along a reduced axis.
    lanes : the output axis along the lanes.
    outputs : output axes that rows of a tile may run over.
    """
    along = [k for k, axes in enumerate(operands) if lanes in axes]
    if not along:
        return None
    shared = frozenset(operands[along[0]]).intersection(*(operands[k] for k in along))
    across = [axes for axes in operands if lanes not in axes]
    rows = tuple(axis for axis in outputs if axis not in shared and any(axis in axes for axes in across))
    return ProductAxes(tuple(along), rows) if rows else None

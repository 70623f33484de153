"""Rows that a table finds: a dimension that counts pages, whose numbers are loaded, and one of the slots of a page.

pages[table[b, l // 16], l % 16, h, d]       page ⌊l/16⌋ of the rows is table[b, ⌊l/16⌋], of 16 slots
pages[table[start[b] + l // 16], h, l % 16, d]
pages[table[b, l], h, d]                     pages of one row
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import dtype_of, loads_of, same, substitute, uses
from tvm_cascade.tile.product.lines import runs_along

NOWHERE = -1
"""The number of a page outside of every tensor."""


class NoPages(Exception):
    """Indices along a variable that are no pages of rows; the message says why."""


@dataclass(frozen=True)
class Pages:
    """The pages of an operand's rows.

    Attributes
    ----------
    dimension : of the tensor, that counts pages; the rows' own dimension where a page is one row.
    size : rows of a page.
    page : a variable that stands for ⌊row / size⌋.
    number : where in the tensor that page is, over the frame's variables and `page`.
    """

    dimension: int
    size: int
    page: tirx.Var
    number: ir.Expr

    def same_numbers(self, other: Pages) -> bool:
        return self.size == other.size and same(self.number, substitute(other.number, {other.page: self.page}))


Numbers = Callable[[Pages, ir.Expr], ir.Expr]
"""(pages, index of a page) -> its number in the tensor."""


def read_pages(indices: Sequence[ir.Expr], row: tirx.Var) -> tuple[int, Pages] | None:
    """The dimension of the slots, and the pages, of indices along a variable; None where none of them reads a table.

    Raises
    ------
    NoPages
        Where they read tables in another way.
    """
    along = [d for d, index in enumerate(indices) if uses(index, [row])]
    found = [d for d in along if loads_of(indices[d])]
    if not found:
        return None
    slots = [d for d in along if d not in found]
    if len(found) > 1 or len(slots) > 1:
        raise NoPages(f"{len(along)} dimensions run along {row.name}; pages take one for numbers and one for slots")
    number = indices[found[0]]
    floats = [load for load in loads_of(number) if not dtype_of(load.source).startswith(("int", "uint"))]
    if floats:
        raise NoPages(f"{floats[0]} is {dtype_of(floats[0].source)}; numbers of pages are integers")
    size = _slots(indices[slots[0]], row) if slots else 1
    page = tirx.Var("page", row.ty)
    over_pages = _over_pages(number, row, size, page)
    if uses(over_pages, [row]):
        raise NoPages(f"{number} is no function of {row.name} // {size}")
    return (slots or found)[0], Pages(found[0], size, page, over_pages)


def _slots(index: ir.Expr, row: tirx.Var) -> int:
    if isinstance(index, prim.FloorMod) and isinstance(index.b, prim.IntImm) and runs_along(index.a, row):
        return int(index.b)
    raise NoPages(f"the slot {index} of a page is no remainder of {row.name}")


def _over_pages(number: ir.Expr, row: tirx.Var, size: int, page: tirx.Var) -> ir.Expr:
    if size == 1:
        return substitute(number, {row: page})

    def replace(node: ir.Expr) -> ir.Expr:
        return page if isinstance(node.b, prim.IntImm) and int(node.b) == size and runs_along(node.a, row) else node

    return tvm_ffi.structural_map(number, (prim.FloorDiv, replace))

"""Matrix operands of a tile program: two dimensions of a tensor are tiled, the others are indexed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import widens, widens_integer
from tvm_cascade.analysis.program import RECENT_PROGRAMS
from tvm_cascade.analysis.tir import dtype_of, loads_of, same, substitute, uses
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.product.lines import Line, View, runs_along

# Rows that a table finds: a dimension that counts pages, whose numbers are loaded, and one of the slots of a page.
#
# pages[table[b, l // 16], l % 16, h, d]       page ⌊l/16⌋ of the rows is table[b, ⌊l/16⌋], of 16 slots
# pages[table[start[b] + l // 16], h, l % 16, d]
# pages[table[b, l], h, d]                     pages of one row


NOWHERE = -1
"""The number of a page outside of every tensor."""


@dataclass(frozen=True)
class Pages:
    """The pages of an operand's rows.

    Attributes
    ----------
    dimension : of the tensor, that counts pages; the rows' own dimension where a page is one row.
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


def _rows_of(text: str, indices: Sequence[ir.Expr], row: tirx.Var) -> tuple[int, Pages | None]:
    """The dimension that runs along a variable, that of slots where a table finds pages of rows; and these pages.

    Unfit where no one dimension does, or tables are read in another way.

    Parameters
    ----------
    text : whose indices they are, in words.
    """
    along = [d for d, index in enumerate(indices) if uses(index, [row])]
    found = [d for d in along if loads_of(indices[d])]
    if not found:
        dimension = View((), tuple(indices)).dimension(row)
        if dimension is None:
            raise Unfit(f"{text}: no one dimension runs along {row.name}")
        return dimension, None
    slots = [d for d in along if d not in found]
    if len(found) > 1 or len(slots) > 1:
        told = f"{len(along)} dimensions run along {row.name}"
        raise Unfit(f"{text}: {told}; pages take one for numbers and one for slots")
    number = indices[found[0]]
    floats = [load for load in loads_of(number) if not dtype_of(load.source).startswith(("int", "uint"))]
    if floats:
        raise Unfit(f"{text}: {floats[0]} is {dtype_of(floats[0].source)}; numbers of pages are integers")
    size = _slots(text, indices[slots[0]], row) if slots else 1
    page = tirx.Var("page", row.ty)
    over_pages = _over_pages(number, row, size, page)
    if uses(over_pages, [row]):
        raise Unfit(f"{text}: {number} is no function of {row.name} // {size}")
    return (slots or found)[0], Pages(found[0], size, page, over_pages)


def _slots(text: str, index: ir.Expr, row: tirx.Var) -> int:
    if isinstance(index, prim.FloorMod) and isinstance(index.b, prim.IntImm) and runs_along(index.a, row):
        return int(index.b)
    raise Unfit(f"{text}: the slot {index} of a page is no remainder of {row.name}")


def _over_pages(number: ir.Expr, row: tirx.Var, size: int, page: tirx.Var) -> ir.Expr:
    if size == 1:
        return substitute(number, {row: page})

    def replace(node: ir.Expr) -> ir.Expr:
        return page if isinstance(node.b, prim.IntImm) and int(node.b) == size and runs_along(node.a, row) else node

    return tvm_ffi.structural_map(number, (prim.FloorDiv, replace))


P = ParamSpec("P")
T = TypeVar("T")

STEP_BYTES = 32
"""Bytes of a row of either operand that one instruction of the tensor cores sums over."""


@dataclass(frozen=True)
class MatrixDtype:
    """A dtype of operands that the tensor cores multiply into float32.

    Attributes
    ----------
    size : bytes of an element.
    partners : the dtypes that the other operand may have.
    implied : weights that meet it are rounded to it even where the program does not say so.
    option : that allows it, as something is lost; empty where nothing is.
    """

    name: str
    size: int
    partners: tuple[str, ...]
    implied: bool
    option: str = ""

    @property
    def step(self) -> int:
        return STEP_BYTES // self.size


_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")

MATRIX_DTYPES: dict[str, MatrixDtype] = {
    "float16": MatrixDtype("f16", 2, ("float16",), True),
    "bfloat16": MatrixDtype("bf16", 2, ("bfloat16",), True),
    "float8_e4m3fn": MatrixDtype("e4m3", 1, _FLOAT8, False, "narrow_sums"),
    "float8_e5m2": MatrixDtype("e5m2", 1, _FLOAT8, False, "narrow_sums"),
    "float32": MatrixDtype("tf32", 4, ("float32",), False, "tf32"),
}

PACKED_DTYPES = tuple(name for name, kind in MATRIX_DTYPES.items() if kind.size <= 2)
"""The dtypes that weights in registers are packed to."""

_LOST = {
    "narrow_sums": "the tensor cores keep about twelve bits of sums of {} products",
    "tf32": "the tensor cores cut {} off after ten bits behind the leading one (TF32)",
}
"""What is lost, by the option that allows it. Measured on an H200, of sums of float8 products, relative: 2^-12.4 of 64,
2^-11.7 of 128, 2^-10.4 of 256. Of TF32 (PTX ISA, wgmma.mma_async): either factor errs by less than 2^-10 of itself,
towards zero, and a sum of products so by less than 2^-9 of the sum of their magnitudes."""

COPY_ALIGNMENT = 16
"""Bytes of which strides of tensors, and places and sizes of what is copied, are multiples in bulk copies of Hopper."""

TRANSPOSED_BYTES = 2
"""Of the elements of operands that may be contiguous across what is summed over: instructions transpose those alone."""

DIMENSIONS = 5
"""Of a tensor, for bulk tensor copies."""

STORED_BYTES = 2
"""Of an element that goes from registers through shared memory to a bulk copy."""


class Unfit(Exception):
    """A program is not of a skeleton's shape; the message says why, in the user's own buffer names."""


def read_once(read: Callable[P, T]) -> Callable[P, T]:
    """A reading of programs that several skeletons start from, with what was found, or refused, of recent ones."""

    @lru_cache(RECENT_PROGRAMS)
    def found(*args: Any, **kwargs: Any) -> T | Unfit:
        try:
            return read(*args, **kwargs)
        except Unfit as unfit:
            return unfit

    @wraps(read)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        outcome = found(*args, **kwargs)  # type: ignore[arg-type]  # all are hashed by identity, or names
        if isinstance(outcome, Unfit):
            raise Unfit(str(outcome))
        return outcome

    return told


@dataclass(frozen=True)
class RowDigit:
    """A dimension of a tensor that rows run along together with others.

    Attributes
    ----------
    stride : rows between neighbours along it.
    is_last : no other digit is outside of it.
    """

    dimension: int
    extent: int
    stride: int
    is_last: bool

    def at(self, row: ir.Expr) -> ir.Expr:
        """Where a row is; one past the end is past the end of the outermost dimension."""
        return row // self.stride if self.is_last else row // self.stride % self.extent

    def count(self, rows: int) -> int:
        """How many places along it so many rows have, from a multiple of them on; 0 where they make up no box."""
        if self.is_last:
            return rows // self.stride if rows % self.stride == 0 else 0
        return self.extent if rows % (self.stride * self.extent) == 0 else 0


@dataclass(frozen=True)
class Along:
    """A dimension of a tensor that a box runs along: how many elements it has of it, and the step between these."""

    dimension: int
    count: int
    step: int


@dataclass(frozen=True)
class Operand:
    """A tensor read or written tile by tile: tensor[…, row, …, column].

    Attributes
    ----------
    shape : of the tensor, or of a view of it; the last dimension is contiguous.
    indices : where it is accessed, in the frame's variables and the column's own.
    row : the dimension that the tile's rows run along, or that of slots where a table finds their pages; None where
        rows are several variables, or none.
    digits : the dimensions of several variables, the innermost first, where bulk copies fetch tiles of such rows.
    pages : where rows are; None where they follow one another.
    box : the dimensions that 64 of its rows at most run along, where these are no one line of the tensor.
    widened : what its elements are converted to on the way to the tensor cores; None where they go as they are.
    """

    buffer: tirx.Var
    shape: tuple[ir.Expr, ...]
    indices: tuple[ir.Expr, ...]
    row: int | None
    pages: Pages | None = None
    widened: str | None = None
    digits: tuple[RowDigit, ...] = ()
    box: tuple[Along, ...] = ()

    @property
    def stored(self) -> str:
        return dtype_of(self.buffer)

    @property
    def dtype(self) -> str:
        """The dtype of its elements as products take them, or as they are stored."""
        return self.widened or self.stored

    @property
    def stored_size(self) -> int:
        return MATRIX_DTYPES[self.stored].size

    @property
    def size(self) -> int:
        """Bytes of an element that the tensor cores take, or that is stored as they take it."""
        return MATRIX_DTYPES[self.dtype].size

    def boxes_rows(self, rows: int) -> bool:
        """Whether one box of a bulk copy holds so many rows, from a multiple of them on."""
        return self.row is not None or (bool(self.digits) and all(digit.count(rows) > 0 for digit in self.digits))

    @property
    def width(self) -> int:
        return int(self.shape[-1])

    @property
    def fixed(self) -> tuple[int, ...]:
        along = (self.row, *(digit.dimension for digit in self.digits))
        if self.pages is not None:
            along = (self.row, self.pages.dimension)
        return tuple(d for d in range(len(self.indices) - 1) if d not in along)

    def __str__(self) -> str:
        return f"{self.buffer.name}[{', '.join(map(str, self.indices))}]"


def read_operand(load: ir.TensorLoad, row: Line | None, column: Line) -> Operand:
    """The operand that a load is, with rows along one variable and contiguous columns along another.

    Unfit where the load is not of this form, or bulk tensor copies cannot fetch it.

    Parameters
    ----------
    row : None of an operand whose rows are read one by one.
    """
    view = View.of(load.source, load.indices).apart(*((column, row) if row else (column,)))
    *outer, last = view.indices
    if not runs_along(last, column.var):
        raise Unfit(f"{load}: the last dimension does not run along {column.var.name}")
    dimension, pages = _rows_of(str(load), outer, row.var) if row else (None, None)
    if any(uses(index, [column.var]) for index in outer):
        raise Unfit(f"{load}: a second dimension runs along {column.var.name}")
    if not isinstance(view.shape[-1], prim.IntImm):
        raise Unfit(f"{load}: the contiguous dimension has a symbolic extent")
    if row and len(outer) >= DIMENSIONS:
        raise Unfit(f"{load}: bulk tensor copies take five dimensions at most")
    return Operand(load.source, view.shape, view.indices, dimension, pages)


def with_digits(operand: Operand, load: ir.TensorLoad, digits: Sequence[Line], column: Line) -> Operand:
    """The operand with its rows as several dimensions, where bulk copies fetch tiles of them; else as it was.

    Parameters
    ----------
    load : the same element, over a variable for each digit of the row.
    digits : lines of these, the innermost first.
    """
    view = View.of(load.source, load.indices).apart(column, *digits)
    found: list[RowDigit] = []
    stride = 1
    for digit in digits:
        dimension, extent = view.dimension(digit.var), digit.extent
        if dimension is None or not isinstance(extent, int):
            return operand
        found.append(RowDigit(dimension, extent, stride, digit is digits[-1]))
        stride *= extent
    in_order = all(one.dimension > other.dimension for one, other in pairwise(found))
    if not found or not in_order or len(view.shape) > DIMENSIONS or not runs_along(view.indices[-1], column.var):
        return operand
    return replace(operand, shape=view.shape, indices=view.indices, digits=tuple(found))


def is_copied(buffer: tirx.Var, width: int) -> bool:
    """Whether TMA can store rows of this many elements of a tensor from shared memory."""
    kind = MATRIX_DTYPES.get(dtype_of(buffer))
    return kind is not None and kind.size == STORED_BYTES and width * STORED_BYTES % COPY_ALIGNMENT == 0


def check_matrix_input(operand: Operand) -> None:
    """Checks that the tensor cores take an operand beside weights in registers, and TMA its rows.

    Unfit where they do not.
    """
    if operand.dtype not in PACKED_DTYPES:
        raise Unfit(f"{operand}: {operand.dtype} is none of {', '.join(PACKED_DTYPES)}")
    if operand.width * operand.stored_size % COPY_ALIGNMENT:
        raise Unfit(
            f"{operand}: rows of {operand.width * operand.stored_size} bytes are no multiple of {COPY_ALIGNMENT}"
        )


def check_partners(one: Operand, other: Operand) -> None:
    """Checks that the tensor cores multiply one operand with another; Unfit where they do not."""
    if other.dtype not in MATRIX_DTYPES[one.dtype].partners:
        raise Unfit(f"{other} is {other.dtype}, {one} is {one.dtype}")


def widened_to(operand: Operand, other: Operand) -> Operand:
    """The operand with elements of 8 bits converted to what it is multiplied with, where that is of 16 bits."""
    return replace(operand, widened=other.stored) if is_widened(operand.stored, other.stored) else operand


def is_widened(stored: str, other: str) -> bool:
    """Whether elements of a dtype are converted to that of what they are multiplied with."""
    own, theirs = MATRIX_DTYPES.get(stored), MATRIX_DTYPES.get(other)
    return own is not None and theirs is not None and (own.size, theirs.size) == (1, 2)


def check_allowed(operand: Operand, options: FuseOptions) -> None:
    """Checks that the tensor cores lose nothing of products of an operand that the options do not allow.

    Unfit where they do.
    """
    option = MATRIX_DTYPES[operand.dtype].option
    if option and not getattr(options, option):
        raise Unfit(f"{operand}: {_LOST[option].format(operand.dtype)}, which the option {option} allows")


def dtypes_text(one: str, other: str) -> str:
    """The dtypes of a product in words."""
    return f"of {one}" if one == other else f"of {one} and {other}"


def plain_value(expression: ir.Expr) -> ir.TensorLoad | None:
    """The load whose value an expression is, up to widening."""
    while isinstance(expression, prim.Cast) and (widens(expression) or widens_integer(expression)):
        expression = expression.value
    return expression if isinstance(expression, ir.TensorLoad) else None

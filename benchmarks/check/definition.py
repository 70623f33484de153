"""Cascades written as text: statements over one row, and the program that they stand for.

    total = sum x; spread = sum (x - total/N)**2; out = spread/N

A statement is a reduction along the row where it begins with the name of one, and a map otherwise: of results a number
for each row, of elements a number for each position. The last statement is the output, or what is named after "->".
Letters that no statement defines are inputs (`LETTERS`); N is the length of a row, j the position.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from tvm import ir, te, tirx

from tvm_cascade.errors import InputError
from tvm_cascade.evaluate.inputs import INPUTS
from tvm_cascade.te import topk

# Hard data for cascades: the named inputs, and offsets, magnitudes and equal rows beside them.


Array = NDArray[np.generic]
Drawn = Callable[[np.random.Generator, tuple[int, ...]], Array]


def _about(offset: float, deviation: float, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return offset + deviation * rng.standard_normal(shape)


def _equal(value: float, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.full(shape, value)


def _infinite_row(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    values = rng.standard_normal(shape)
    values[(0,) * (len(shape) - 1)] = np.inf
    return values


def _named(name: str, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return INPUTS[name](rng, shape, "float32")


HARD: Mapping[str, Drawn] = {
    **{name: partial(_named, name) for name in INPUTS},
    "offset_1e4": partial(_about, -1e4, 1.0),
    "offset_1e6": partial(_about, 1e6, 10.0),
    "magnitude_1e30": partial(_about, 0.0, 1e30),
    "magnitude_1e-30": partial(_about, 0.0, 1e-30),
    "deviation_50": partial(_about, 0.0, 50.0),
    "equal": partial(_equal, 3.25),
    "infinite_row": _infinite_row,
}
"""Data along the last axis, by name."""


@dataclass(frozen=True)
class Letter:
    """What an input is.

    Attributes
    ----------
    per_row, per_position : whether it has a value for each row, for each position.
    drawn : its values, from those of any sign.
    """

    per_row: bool = True
    per_position: bool = True
    drawn: Callable[[Array], Array] = np.asarray


def _weights(values: Array) -> Array:
    finite = np.where(np.isfinite(values), values, 1.0).astype("float64")
    return 0.05 + 0.95 * np.abs(np.sin(finite))


_POSITIVE, _MASK = Letter(drawn=np.abs), Letter(drawn=lambda values: np.greater(values, -0.3))
_OF_ROW, _COLUMN = Letter(per_position=False, drawn=_weights), Letter(per_row=False)

LETTERS: dict[str, Letter] = {
    **dict.fromkeys("xyz", Letter()),
    **dict.fromkeys("pq", _POSITIVE),
    **dict.fromkeys("wu", Letter(drawn=_weights)),
    "k": _MASK,
    **dict.fromkeys("bt", _OF_ROW),
    **dict.fromkeys("gh", _COLUMN),
}
"""x, y, z: any data; p, q: not negative; w, u: between 0.05 and 1; k: 0 or 1; b, t: of a row; g, h: of a column."""

_REDUCERS: dict[str, Callable[..., te.Tensor]] = {
    "sum": te.sum,
    "max": te.max,
    "min": te.min,
    "prod": te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="prod"),
    "all": te.comm_reducer(lambda a, b: tirx.And(a, b), lambda _: tirx.const(True, "bool"), name="all"),
    "any": te.comm_reducer(lambda a, b: tirx.Or(a, b), lambda _: tirx.const(False, "bool"), name="any"),
    "supremum": te.comm_reducer(
        lambda a, b: tirx.Max(a, b), lambda dtype: tirx.const(-math.inf, dtype), name="supremum"
    ),
    "infimum": te.comm_reducer(lambda a, b: tirx.Min(a, b), lambda dtype: tirx.const(math.inf, dtype), name="infimum"),
}
"""Reductions by name: those of TE, and max and min that start at ∓∞ rather than at the dtype's own extreme."""

_FUNCTIONS: dict[str, Callable[..., ir.Expr]] = {
    **{
        name: getattr(tirx, name)
        for name in ("exp", "log", "sqrt", "abs", "tanh", "cos", "sin", "ceil", "exp2", "log2")
    },
    "round": tirx.round,
    "maximum": tirx.Max,
    "minimum": tirx.Min,
}

_OPERATORS: dict[type[ast.AST], Callable[[ir.Expr, ir.Expr], ir.Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Gt: lambda a, b: a > b,
    ast.Lt: lambda a, b: a < b,
    ast.GtE: lambda a, b: a >= b,
    ast.LtE: lambda a, b: a <= b,
    ast.Eq: lambda a, b: tirx.EQ(a, b),
}


@dataclass(frozen=True)
class Definition:
    """One cascade.

    Attributes
    ----------
    name : in the catalogue.
    text : its statements.
    stored : dtype of its inputs; what is computed is float32.
    rows, length : of its program.
    """

    name: str
    text: str
    stored: str = "float32"
    rows: int = 5
    length: int = 37
    source: ClassVar[str] = "catalogue"

    @property
    def shape(self) -> Mapping[str, int]:
        return {"rows": self.rows, "length": self.length}

    def build(self) -> tirx.PrimFunc:
        """The program, on inputs in alphabetical order.

        Raises
        ------
        InputError
            When the text is no such statements.
        """
        return _Reading(self).program()

    def inputs(self, rng: np.random.Generator, kind: str) -> list[Array]:
        """Hard data for the inputs, in order, each as its letter says; what has one value for each row is plain."""
        reading = _Reading(self)
        reading.program()
        drawn = []
        for name, tensor in sorted(reading.inputs.items()):
            shape = tuple(int(extent) for extent in tensor.shape)
            values = HARD[kind if LETTERS[name].per_position else "normal"](rng, shape)
            drawn.append(_stored(LETTERS[name].drawn(values), self.stored))
        return drawn


def _stored(values: Array, dtype: str) -> Array:
    """Values as a dtype stores them: integers are rounded, and stay in range."""
    if np.dtype(dtype).kind == "i":
        limits = np.iinfo(dtype)
        return np.clip(np.rint(np.nan_to_num(4 * values)), limits.min, limits.max).astype(dtype)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


class _Reading:
    """The tensors of a definition, by name."""

    def __init__(self, definition: Definition) -> None:
        self.definition, self.rows, self.length = definition, definition.rows, definition.length
        body, _, asked = definition.text.partition("->")
        self.statements = [tuple(part.strip() for part in s.split("=", 1)) for s in body.split(";") if s.strip()]
        self.asked = [name.strip() for name in asked.split(",") if name.strip()] or [self.statements[-1][0]]
        self.tensors: dict[str, te.Tensor] = {}
        self.inputs: dict[str, te.Tensor] = {}

    def program(self) -> tirx.PrimFunc:
        for statement in self.statements:
            if len(statement) != 2:
                raise InputError("statements `name = expression`", repr(statement[0]), self.definition.name)
            self._define(*statement)
        inputs = [tensor for _, tensor in sorted(self.inputs.items())]
        return te.create_prim_func([*inputs, *(self.tensors[name] for name in self.asked)])

    def _define(self, name: str, text: str) -> None:
        kind, _, rest = text.partition(" ")
        if ranks := re.fullmatch(r"top(\d+)", kind):
            best, where = topk(self._elementwise(f"{name}_of", rest), int(ranks[1]), 1, name=name)
            self.tensors |= {name: best, f"{name}_at": where}
        elif kind in _REDUCERS:
            along = te.reduce_axis((0, self.length), f"along_{name}")
            reducer, tree = _REDUCERS[kind], self._tree(rest)
            self.tensors[name] = te.compute(
                (self.rows,), lambda i: reducer(self._at(tree, i, along), axis=along), name=name
            )
        elif self._varies(self._tree(text)):
            self.tensors[name] = self._elementwise(name, text)
        else:
            tree = self._tree(text)
            self.tensors[name] = te.compute((self.rows,), lambda i: self._at(tree, i, None), name=name)

    def _elementwise(self, name: str, text: str) -> te.Tensor:
        tree = self._tree(text)
        return te.compute((self.rows, self.length), lambda i, j: self._at(tree, i, j), name=name)

    def _tree(self, text: str) -> ast.expr:
        try:
            return ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            raise InputError("an expression", f"{text!r}: {error.msg}", self.definition.name) from error

    def _varies(self, tree: ast.AST) -> bool:
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - self.tensors.keys()
        return any(name == "j" or (name in LETTERS and LETTERS[name].per_position) for name in names)

    def _at(self, node: ast.AST, i: ir.Expr, j: ir.Expr | None) -> ir.Expr:
        """An expression at a position of a row."""
        match node:
            case ast.Constant(value=float(value) | int(value)):
                return tirx.const(float(value), "float32")
            case ast.Name(id=name):
                return self._named(name, i, j)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._at(operand, i, j)
            case ast.BinOp(left=base, op=ast.Pow(), right=power):
                return self._power(self._at(base, i, j), power)
            case (
                ast.BinOp(left=left, op=operator, right=right)
                | ast.Compare(left=left, ops=[operator], comparators=[right])
            ) if type(operator) in _OPERATORS:
                return _OPERATORS[type(operator)](self._at(left, i, j), self._at(right, i, j))
            case ast.IfExp(test=test, body=chosen, orelse=other):
                return tirx.Select(*(self._at(part, i, j) for part in (test, chosen, other)))
            case ast.Call(func=ast.Name(id=name), args=args) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*(self._at(arg, i, j) for arg in args))
        raise InputError("an expression of this language", ast.unparse(node), self.definition.name)

    def _power(self, base: ir.Expr, power: ast.expr) -> ir.Expr:
        """A whole power as a product, as it is written by hand; any other by TE's power."""
        exponent = ast.literal_eval(power)
        if isinstance(exponent, int) and exponent > 0:
            return math.prod([base] * (exponent - 1), start=base)
        return te.power(base, tirx.const(float(exponent), "float32"))

    def _named(self, name: str, i: ir.Expr, j: ir.Expr | None) -> ir.Expr:
        if name == "N":
            return tirx.const(float(self.length), "float32")
        if name == "j" and j is not None:
            return j.astype("float32")
        if name in self.tensors:
            tensor = self.tensors[name]
            return tensor[i, j] if len(tensor.shape) == 2 else tensor[i]
        if name not in LETTERS:
            raise InputError("a result, N, j, or a letter of LETTERS", name, self.definition.name)
        letter = LETTERS[name]
        if name not in self.inputs:
            shape = [self.rows] * letter.per_row + [self.length] * letter.per_position
            self.inputs[name] = te.placeholder(shape, self.definition.stored, name=name)
        index = [i] * letter.per_row + [j] * letter.per_position
        value = self.inputs[name][tuple(index)]
        return value if self.definition.stored == "float32" else value.astype("float32")

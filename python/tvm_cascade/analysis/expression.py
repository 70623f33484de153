"""TIR expressions as SymPy expressions over atoms.

An *atom* is a largest part of an element that reads no earlier result: a load, a scaled and masked score, a whole
producer's value. The algebra sees it as one symbol; the rewrite puts its TIR expression back. Atoms are equal when
their SymPy forms are, so `s * scale + bias` met twice in two shapes is one symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sympy as sp
import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.cascade import POSITION, unlike
from tvm_cascade.algebra.reducer import HIGHEST, LOWEST
from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.tir import CONJUNCTIONS, DISJUNCTIONS, dtype_of, loads_of, same, uses, without_casts
from tvm_cascade.symbolic.elementary import NAMED
from tvm_cascade.symbolic.functions import LN2, LN10, Round, WholePower
from tvm_cascade.symbolic.masks import TRUTH, Condition, choice, is_truth
from tvm_cascade.symbolic.rounding import WHOLE_NUMBERS
from tvm_cascade.symbolic.signs import sign_of, stand_in

Convert = Callable[..., sp.Expr]


def _is_whole(x: sp.Expr) -> bool:
    """Whether it is an integer where it is finite; SymPy asks for an argument of ⌈·⌉ that is finite everywhere."""
    return all(term.is_integer or isinstance(term, (sp.floor, sp.ceiling)) for term in sp.Add.make_args(x))


FUNCTIONS: dict[str, Convert] = {
    **NAMED,
    "exp2": lambda x: WholePower(x) if _is_whole(x) and not x.is_number else sp.exp(sp.expand(x * LN2)),
    "exp10": lambda x: sp.exp(sp.expand(x * LN10)),
    "log2": lambda x: sp.log(x) / LN2,
    "log10": lambda x: sp.log(x) / LN10,
    "sqrt": sp.sqrt,
    "rsqrt": lambda x: 1 / sp.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + sp.exp(-x)),
    "fabs": sp.Abs,
    "pow": sp.Pow,
    "power": sp.Pow,
}
MOST_FACTORS = 16
"""Factors up to which a power is written as products."""

LOGARITHMS = ("log", "log2", "log10")
NUMBER_DIGITS = 30
"""Digits of an irrational number: more than any dtype has."""

WHOLE: dict[str, Convert] = {"floor": sp.floor, "ceil": sp.ceiling}
"""Functions that the algebra knows of a scale alone, as in 2^⌊log₂ absmax⌋; of an element they have no finite rank."""

ARITHMETIC: dict[type, Convert] = {
    prim.Add: lambda a, b: a + b,
    prim.Sub: lambda a, b: a - b,
    prim.Mul: lambda a, b: a * b,
    prim.Div: lambda a, b: a / b,
    prim.Max: sp.Max,
    prim.Min: sp.Min,
}
Chain = tuple[type, type]
SUMS: Chain = (prim.Add, prim.Sub)
PRODUCTS: Chain = (prim.Mul, prim.Div)
"""Operations, each with its inverse."""

RELATIONS: dict[type, Callable[..., sp.Basic]] = {
    prim.LT: sp.Lt,
    prim.LE: sp.Le,
    prim.GT: sp.Gt,
    prim.GE: sp.Ge,
    prim.EQ: sp.Eq,
    prim.NE: sp.Ne,
}
MIRRORED: dict[type, type] = {
    prim.LT: prim.GT,
    prim.LE: prim.GE,
    prim.GT: prim.LT,
    prim.GE: prim.LE,
    prim.EQ: prim.EQ,
    prim.NE: prim.NE,
}
CONNECTIVES: dict[type, Callable[..., sp.Basic]] = {
    **dict.fromkeys(CONJUNCTIONS, sp.And),
    **dict.fromkeys(DISJUNCTIONS, sp.Or),
}
AT_INFINITY: dict[sp.Expr, tuple[sp.Symbol, dict[type, Callable[..., sp.Basic]]]] = {
    sp.oo: (HIGHEST, {prim.EQ: sp.Gt, prim.GE: sp.Gt, prim.NE: sp.Le, prim.LT: sp.Le}),
    -sp.oo: (LOWEST, {prim.EQ: sp.Lt, prim.LE: sp.Lt, prim.NE: sp.Ge, prim.GT: sp.Ge}),
}
"""What a comparison with an infinity is as one with the dtype's own number beside it."""

_FLOAT_ORDER = ("float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32", "float64")


class NotExpressible(Exception):
    """An expression that has no algebraic form; carries the reason."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = Reason(code, detail)


@dataclass(frozen=True)
class Atom:
    """A maximal subexpression of an element that reads no earlier result.

    Attributes
    ----------
    symbol : its SymPy symbol.
    expression : its TIR expression, over the frame's variables.
    varies : whether it depends on the position on the axis.
    indicator : it is a condition; as a number, 1 where it holds and 0 elsewhere.
    """

    symbol: sp.Symbol
    expression: ir.Expr
    varies: bool
    indicator: bool = False


@dataclass(kw_only=True)
class Forms:
    """Expressions in SymPy over leaves: symbols of what has no algebra. What that is, each kind of form says.

    Attributes
    ----------
    sources : what each leaf is.
    """

    sources: dict[sp.Symbol, ir.Expr] = field(default_factory=dict)
    _leaves: dict[object, sp.Symbol] = field(default_factory=dict)

    def form(self, expression: ir.Expr) -> sp.Expr:
        """The SymPy form."""
        kind = type(expression)
        if isinstance(expression, (prim.FloatImm, prim.IntImm)):
            return self.constant(expression)
        if kind in ARITHMETIC and self.computes(expression):
            return ARITHMETIC[kind](self.form(expression.a), self.form(expression.b))
        if isinstance(expression, prim.Cast) and self.passes(expression):
            return self.form(expression.value)
        if name := function_name(expression):
            return applied(name, expression.args, self.form)
        return self.other(expression)

    def constant(self, expression: prim.FloatImm | prim.IntImm) -> sp.Expr:
        return number(expression)

    def computes(self, expression: ir.Expr) -> bool:
        """Whether arithmetic is that of real numbers."""
        return not is_modular(expression)

    def passes(self, cast: prim.Cast) -> bool:
        """Whether a cast has the form of what is cast."""
        return widens(cast)

    def other(self, expression: ir.Expr) -> sp.Expr:
        """The form of all else."""
        return self.leaf(expression)

    def leaf(self, expression: ir.Expr) -> sp.Symbol:
        """The symbol of an expression that is not taken apart."""
        key = tvm_ffi.StructuralKey(expression)  # type: ignore[call-arg]
        if key not in self._leaves:
            self._leaves[key] = self.symbol(expression)
            self.sources[self._leaves[key]] = expression
        return self._leaves[key]

    def symbol(self, expression: ir.Expr) -> sp.Symbol:
        """A new leaf's symbol."""
        facts = self.facts(expression)
        return sp.Symbol(f"_leaf{len(self._leaves)}", real=True, **facts)

    def facts(self, expression: ir.Expr) -> dict[str, bool]:
        """What its dtype tells of a leaf, and both branches of a selection: 1 where kept, 0 elsewhere, is a truth."""
        dtype, selection = dtype_of(expression), selection_of(expression)
        if dtype == "bool":
            return TRUTH
        facts = {"integer": True} if dtype.startswith(("int", "uint")) else {}
        if selection is not None:
            branches = [self.form(branch) for branch in selection[1:]]
            if set(branches) == {sp.S.Zero, sp.S.One}:
                return TRUTH
            facts |= sign_of(sp.Min(*(stand_in(branch, f"b{k}") for k, branch in enumerate(branches))))
        return facts | {"nonnegative": True} if dtype.startswith("uint") else facts


@dataclass
class AtomTable(Forms):
    """All atoms of one cascade, by their SymPy form. `reserved` are names that results have.

    `opposites` has for the symbol of a negated condition that of the condition.
    """

    axis: tuple[tirx.Var, ...]
    reserved: frozenset[str] = frozenset()
    atoms: dict[sp.Expr, Atom] = field(default_factory=dict)
    opposites: dict[sp.Symbol, sp.Symbol] = field(default_factory=dict)

    def copy(self) -> AtomTable:
        maps: Any = {name: dict(found) for name, found in vars(self).items() if isinstance(found, dict)}
        return replace(self, **maps)

    def of(self, expression: ir.Expr) -> sp.Expr:
        """The atom of an expression as a signed symbol; a number for a constant."""
        form = self.form(expression)
        if form.has(sp.nan, sp.zoo):
            raise NotExpressible("intrinsic", str(expression))
        if form.is_number:
            return sp.Integer(0) if form.is_finite and float(form) == 0.0 else form
        if self._is_position(expression):
            form = POSITION
        if form not in self.atoms and -form in self.atoms:
            return -self.atoms[-form].symbol
        return self._intern(form, expression).symbol

    def indicator(self, condition: ir.Expr) -> Atom:
        """The atom of a condition, as the number 1 or 0."""
        return self._intern(self._condition(condition), condition, indicator=True)

    def oppose(self, condition: ir.Expr, opposite: ir.Expr) -> None:
        """Records that one condition is the negation of the other, if both have an atom."""
        atom, other = (self.atoms.get(self._condition(c)) for c in (condition, opposite))
        if atom is not None and other is not None and atom.symbol not in self.opposites:
            self.opposites[other.symbol] = atom.symbol

    def exclusive(self, element: sp.Expr) -> sp.Expr:
        """The element with one condition for both branches of a selection: a·c + b·(not c) as a·c + b·(1 − c)."""
        both = {other: 1 - atom for other, atom in self.opposites.items() if element.has(other) and element.has(atom)}
        return element.xreplace(both)

    def _condition(self, condition: ir.Expr) -> sp.Symbol:
        return sp.Symbol(f"{self.leaf(condition)}_holds", **TRUTH)

    def _intern(self, form: sp.Expr, expression: ir.Expr, indicator: bool = False) -> Atom:
        if form not in self.atoms:
            facts = TRUTH if is_truth(form) else sign_of(form)
            kind = Condition if indicator else sp.Symbol
            symbol = form if form == POSITION else kind(self._name(expression), real=True, **facts)
            self.atoms[form] = Atom(symbol, expression, uses(expression, self.axis), indicator)
        return self.atoms[form]

    def _is_position(self, expression: ir.Expr) -> bool:
        """Whether the expression is the position on the axis, in an integer dtype of whatever width."""
        while isinstance(expression, prim.Cast) and widens_integer(expression):
            expression = expression.value
        return len(self.axis) == 1 and isinstance(expression, ir.Var) and expression.same_as(self.axis[0])

    def _name(self, expression: ir.Expr) -> str:
        """A name of its own; a buffer's is for what is loaded from it, and not for what is computed of that."""
        loads = [] if isinstance(without_casts(expression), ir.TensorLoad) else loads_of(expression)
        taken = {load.source.name for load in loads} | {str(atom.symbol) for atom in self.atoms.values()}
        return unlike(self.name_of(expression), taken | self.reserved)

    @staticmethod
    def name_of(expression: ir.Expr) -> str:
        """The name of an expression: the first buffer that it reads."""
        sources = [load.source.name for load in loads_of(expression)]
        return sources[0] if sources else expression.name if isinstance(expression, ir.Var) else "t"


def number(constant: prim.FloatImm | prim.IntImm) -> sp.Expr:
    """A constant exactly as it is written in its dtype: float32 0.1 is 1/10, and rounds back to the same float32."""
    if isinstance(constant, prim.IntImm):
        return sp.Integer(int(constant))
    value = float(constant)
    if not np.isfinite(value):
        return sp.nan if np.isnan(value) else sp.oo if value > 0 else -sp.oo
    shortest = (
        np.float32(value)
        if dtype_of(constant) != "float64" and np.float64(np.float32(value)) == value
        else np.float64(value)
    )
    return sp.Rational(str(shortest))


def applied(name: str, arguments: Sequence[ir.Expr], read: Callable[[ir.Expr], sp.Expr]) -> sp.Expr:
    """A known function applied; a logarithm's constant is rounded to its dtype, since log 1.001 reads its last digits.

    The logarithm is a number then: SymPy takes exp(x + 4096·log 64) for 64^4096·exp(x), which no float holds.
    """
    if name not in LOGARITHMS:
        return FUNCTIONS[name](*map(read, arguments))
    (argument,) = arguments
    known = float(np.array(float(argument), dtype_of(argument))) if isinstance(argument, prim.FloatImm) else None
    value = FUNCTIONS[name](read(argument) if known is None or not np.isfinite(known) else sp.Rational(known))
    irrational = value.is_number and value.is_real and value.is_finite
    return sp.Rational(str(sp.N(value, NUMBER_DIGITS))) if irrational else value


def compared(kind: type, left: sp.Expr, right: sp.Expr) -> sp.Basic | None:
    """A comparison of two numbers; infinities compare like the dtype's largest finite number.

    Computer algebra has numbers that are real, and so finite: m = −∞ never holds there. None for a comparison with an
    infinity that holds of every number but NaN, or of none.
    """
    if left in AT_INFINITY:
        kind, left, right = MIRRORED[kind], right, left
    if right not in AT_INFINITY:
        return RELATIONS[kind](left, right)
    largest, relations = AT_INFINITY[right]
    return relations[kind](left, largest) if kind in relations else None


def joined(condition: ir.Expr, read: Callable[[ir.Expr], sp.Basic]) -> sp.Basic | None:
    """A condition made of others, of which `read` gives the forms; None of any other expression."""
    kind = type(condition)
    if isinstance(condition, prim.Not):
        return sp.Not(read(condition.a))
    if kind not in CONNECTIVES or dtype_of(condition) != "bool":
        return None
    return CONNECTIVES[kind](read(condition.a), read(condition.b))


def call_name(expression: ir.Expr) -> str:
    """The name of the operator that an expression calls; empty for any other expression."""
    if isinstance(expression, ir.Call) and isinstance(expression.op, ir.Op):
        return str(expression.op.name.split(".")[-1])
    return ""


def function_name(expression: ir.Expr) -> str | None:
    """The known elementary function that an expression calls; None for any other expression."""
    name = call_name(expression)
    return name if name in FUNCTIONS else None


def whole_exponent(expression: ir.Expr) -> int | None:
    """The exponent of a power that is a few products; None of any other expression."""
    exponent = expression.args[1] if call_name(expression) in ("pow", "power") else None
    value = exponent.value if isinstance(exponent, (prim.FloatImm, prim.IntImm)) else 0
    return int(value) if 1 <= abs(value) <= MOST_FACTORS and value == int(value) else None


def is_modular(expression: ir.Expr) -> bool:
    """Whether it is integer arithmetic that rounds or wraps around: quotients, and narrow dtypes."""
    dtype = dtype_of(expression)
    if type(expression) not in ARITHMETIC or not dtype.startswith(("int", "uint")):
        return False
    wraps = dtype.startswith("uint") or dtype in ("int8", "int16")
    return isinstance(expression, prim.Div) or (wraps and isinstance(expression, (prim.Add, prim.Sub, prim.Mul)))


def widens(cast: prim.Cast) -> bool:
    """Whether a cast keeps every value: a float to a wider float (an integer to a float counts as such)."""
    source, target = dtype_of(cast.value), dtype_of(cast)
    if source.startswith(("int", "uint", "bool")) and target in ("float32", "float64"):
        return True
    if source not in _FLOAT_ORDER or target not in _FLOAT_ORDER:
        return False
    lossy = (("bfloat16", "float16"), ("float8_e4m3fn", "float8_e5m2"))
    return _FLOAT_ORDER.index(source) <= _FLOAT_ORDER.index(target) and (source, target) not in lossy


def widens_integer(cast: prim.Cast) -> bool:
    """Whether a cast keeps every value of an integer: in a signed integer dtype."""
    source, dtype = dtype_of(cast.value), dtype_of(cast)
    if not (dtype.startswith("int") and source.startswith(("int", "uint"))):
        return False
    return bool(tvm.DataType(dtype).bits >= tvm.DataType(source).bits + source.startswith("uint"))


class ElementReader:
    """Turns a reduction's element into SymPy over atoms and results.

    Parameters
    ----------
    atoms : the table that the atoms go to.
    result_of : the symbol of a load that reads an earlier result of the cascade; None for any other load.
    powers : x·x beside a result is x² with an atom x, not an atom x·x: a sum may hold x in units of the result.
    """

    def __init__(
        self, atoms: AtomTable, result_of: Callable[[ir.TensorLoad], sp.Symbol | None], powers: bool = False
    ) -> None:
        self.atoms, self.result_of, self.powers = atoms, result_of, powers
        self._holding: list[ir.Expr] = []

    def __call__(self, expression: ir.Expr) -> sp.Expr:
        """The expression in SymPy.

        Raises
        ------
        NotExpressible
            Where an earlier result is an argument of something that has no algebra here.
        """
        if not self.reads_result(expression):
            return self._atom(expression)
        expression = self._selection_outward(expression)
        if isinstance(expression, ir.TensorLoad):
            symbol = self.result_of(expression)
            if symbol is None:
                raise NotExpressible("result_index", str(expression))
            return symbol
        if is_modular(expression):
            raise NotExpressible("integer", f"{expression} in {dtype_of(expression)}, which wraps around or truncates")
        kind = type(expression)
        if (chain := next((kinds for kinds in (SUMS, PRODUCTS) if kind in kinds), None)) is not None:
            return self._collected(expression, chain)
        if kind in ARITHMETIC:
            return ARITHMETIC[kind](self(expression.a), self(expression.b))
        if isinstance(expression, prim.Cast):
            inner = self(expression.value)
            exact = widens(expression) or widens_integer(expression)
            return inner if exact else Round(inner, sp.Symbol(dtype_of(expression)))
        if condition := selection_of(expression):
            return self._selected(*condition)
        if name := function_name(expression):
            return applied(name, expression.args, self)
        if kind in RELATIONS:
            return choice(self.condition(expression), sp.S.One, sp.S.Zero)
        if (name := call_name(expression)) in WHOLE and not uses(expression, self.atoms.axis):
            return WHOLE[name](self(expression.args[0]))
        if name in WHOLE_NUMBERS and uses(expression, self.atoms.axis):
            return Round(self(expression.args[0]), sp.Symbol(WHOLE_NUMBERS[name][0]))
        raise NotExpressible("intrinsic", str(expression))

    def _selection_outward(self, expression: ir.Expr) -> ir.Expr:
        """f(select(c, a, b)) as select(c, f(a), f(b)), where a or b reads an earlier result.

        Out of the argument of a function from any depth: exp(x − select(c, a, b)) too.
        """
        operands = operands_of(expression)
        for k, operand in enumerate(operands):
            if function_name(expression) and self.reads_result(operand):
                operand = self._selection_outward(operand)
            parts = selection_of(operand)
            if parts and self.reads_result(operand) and not self.reads_result(parts[0]):
                branches = [with_operands(expression, [*operands[:k], part, *operands[k + 1 :]]) for part in parts[1:]]
                return prim.Select(parts[0], *branches)
        return expression

    def reads_result(self, expression: ir.Expr) -> bool:
        return any(self.result_of(load) is not None for load in loads_of(expression))

    def _atom(self, expression: ir.Expr) -> sp.Expr:
        # Under a condition, x may be replaced by select(condition, x, ·): they agree where it counts. A number stays.
        for condition in self._holding if not isinstance(expression, (prim.FloatImm, prim.IntImm)) else ():
            for atom in list(self.atoms.atoms.values()):
                parts = selection_of(atom.expression)
                if parts and same(parts[0], condition) and same(parts[1], expression):
                    return atom.symbol
        if isinstance(expression, prim.Mul):
            for constant, rest in ((expression.a, expression.b), (expression.b, expression.a)):
                if isinstance(constant, prim.FloatImm):
                    return number(constant) * self._atom(rest)
        if isinstance(expression, prim.Div) and isinstance(expression.b, prim.FloatImm) and float(expression.b) != 0:
            return self._atom(expression.a) / number(expression.b)
        return self.atoms.of(expression)

    def _collected(self, expression: ir.Expr, chain: Chain) -> sp.Expr:
        """A sum or product whose varying, result-free terms are taken together as one atom.

        A difference in brackets, as y − v in (x − u) − (y − v), is read by itself: x − y has not the digits of either.
        """
        terms, neutral = self._terms(expression, chain), int(chain is PRODUCTS)
        total, alone = sp.Integer(neutral), None
        repeated = _repeated([term for term, inverse in terms if not inverse]) if neutral and self.powers else []
        for term, inverse in terms:
            if self.reads_result(term) or not uses(term, self.atoms.axis):
                total = ARITHMETIC[chain[inverse]](total, self(term))
            elif not inverse and any(same(term, other) for other in repeated):
                total = total * self._atom(term)
            elif alone is None and not inverse:
                alone = term
            else:
                alone = chain[inverse](tirx.const(neutral, dtype_of(term)) if alone is None else alone, term)
        return total if alone is None else ARITHMETIC[chain[0]](total, self._atom(alone))

    def _terms(self, expression: ir.Expr, chain: Chain, inverse: bool = False) -> list[tuple[ir.Expr, bool]]:
        """Terms of a chain of + and − (or · and /), each with whether it is subtracted (or divided by)."""
        if type(expression) not in chain:
            return [(expression, inverse)]
        turned = inverse != isinstance(expression, chain[1])
        alone = chain is SUMS and self.reads_result(expression.b) and uses(expression.b, self.atoms.axis)
        last = [(expression.b, turned)] if alone else self._terms(expression.b, chain, turned)
        return self._terms(expression.a, chain, inverse) + last

    def condition(self, expression: ir.Expr) -> sp.Basic:
        """A condition that reads earlier results, or atoms, in SymPy.

        Raises
        ------
        NotExpressible
            Where it is no comparison of numbers, nor made of such.
        """
        if not self.reads_result(expression):
            return sp.Gt(self.atoms.indicator(expression).symbol, 0)
        if isinstance(expression, ir.TensorLoad):
            return sp.Gt(self(expression), 0)
        if (found := joined(expression, self.condition)) is not None:
            return found
        if isinstance(expression, prim.Cast):
            return sp.Ne(self._whole(expression.value), 0)
        if type(expression) in RELATIONS and dtype_of(expression.a).startswith(("float", "bfloat")):
            if (found := compared(type(expression), self(expression.a), self(expression.b))) is not None:
                return found
        elif type(expression) in RELATIONS and any(isinstance(e, prim.IntImm) for e in (expression.a, expression.b)):
            return RELATIONS[type(expression)](self._whole(expression.a), self._whole(expression.b))
        raise NotExpressible("logical_dependence", str(expression))

    def _whole(self, expression: ir.Expr) -> sp.Expr:
        """A whole number that a condition reads: an integer of whatever width, or a constant."""
        while isinstance(expression, prim.Cast) and widens_integer(expression):
            expression = expression.value
        if not dtype_of(expression).startswith(("int", "uint", "bool")):
            raise NotExpressible("logical_dependence", str(expression))
        return number(expression) if isinstance(expression, prim.IntImm) else self(expression)

    def _selected_by_results(self, condition: ir.Expr, chosen: ir.Expr, other: ir.Expr) -> sp.Expr:
        """Both branches of a selection by results, possibly with further conditions on the position."""
        if uses(condition, self.atoms.axis):
            if isinstance(condition, CONJUNCTIONS):
                return self(prim.Select(condition.a, prim.Select(condition.b, chosen, other), other))
            if isinstance(condition, DISJUNCTIONS):
                return self(prim.Select(condition.a, chosen, prim.Select(condition.b, chosen, other)))
            if isinstance(condition, prim.Not):
                return self(prim.Select(condition.a, other, chosen))
        return choice(self.condition(condition), self(chosen), self(other))

    def _selected(self, condition: ir.Expr, chosen: ir.Expr, other: ir.Expr) -> sp.Expr:
        if self.reads_result(condition):
            return self._selected_by_results(condition, chosen, other)
        total: sp.Expr = sp.Integer(0)
        opposite = condition.a if isinstance(condition, prim.Not) else tirx.Not(condition)
        for holds, branch in ((condition, chosen), (opposite, other)):
            self._holding.append(holds)
            value = self(branch)
            self._holding.pop()
            if not value.is_finite and value.is_number:
                raise NotExpressible("select_on_result", f"{branch} where not {condition}")
            if value != 0:
                total += self.atoms.indicator(holds).symbol * value
        self.atoms.oppose(condition, opposite)
        return total


def operands_of(expression: ir.Expr) -> list[ir.Expr]:
    """The operands of an elementwise operation; none for a load, a constant or a selection."""
    if type(expression) in ARITHMETIC:
        return [expression.a, expression.b]
    if isinstance(expression, prim.Cast):
        return [expression.value]
    return list(expression.args) if function_name(expression) else []


def with_operands(expression: ir.Expr, operands: list[ir.Expr]) -> ir.Expr:
    if type(expression) in ARITHMETIC:
        return type(expression)(*operands)
    if isinstance(expression, prim.Cast):
        return operands[0].astype(dtype_of(expression))
    return ir.Call(expression.op, operands, ret_ty=expression.ty)


def selection_of(expression: ir.Expr) -> tuple[ir.Expr, ir.Expr, ir.Expr] | None:
    """(condition, chosen, other) of a Select or if_then_else; None for any other expression."""
    if isinstance(expression, prim.Select):
        return expression.condition, expression.true_value, expression.false_value
    return tuple(expression.args) if call_name(expression) == "if_then_else" else None


def with_decided(expression: ir.Expr, holds: Callable[[ir.Expr], bool | None]) -> ir.Expr:
    """The expression with what is chosen in the place of selections whose condition holds, or does not."""

    def choose(node: ir.Expr) -> ir.Expr:
        parts = selection_of(node)
        decided = holds(parts[0]) if parts else None
        return node if parts is None or decided is None else parts[1 if decided else 2]

    return tvm_ffi.structural_map(expression, [(ir.Call, choose), (prim.Select, choose)])


def _repeated(terms: list[ir.Expr]) -> list[ir.Expr]:
    """The terms that are there more than once."""
    counts = [sum(same(term, other) for other in terms) for term in terms]
    return [term for term, count in zip(terms, counts, strict=True) if count > 1]

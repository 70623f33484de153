"""Finite-rank separation: F(x, u) = Σ_r G_r(x)·H_r(u), a basis by derivatives, and its shift matrix.

F and its partial derivatives in u span the same finite space as the G_r, and stay small where F stays small:
(x − u)², x − u, 1 rather than x², x, 1. With B(x, c) that basis taken at a reference c, moving the reference is linear:
B(x, c′) = A(c, c′)·B(x, c). A is the compensation term: exp(c − c′) for softmax, the binomial shift for moments.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import mpmath
import sympy as sp
from sympy.polys.matrices import DomainMatrix

from tvm_cascade.algebra.cascade import Round
from tvm_cascade.algebra.sampling import IN_RANGE, as_function, vanishes
from tvm_cascade.algebra.work import cancelled, charge, expanded, factored, simplified, tidied

RANK_LIMIT = 6
"""Components that one reduction's state may have."""

CANDIDATES = 24
"""Derivatives that are looked at in the search for a basis."""

IN_VAIN = 5
"""Derivatives in each direction, one after another of no use, after which the search ends."""

RANK_DIGITS = 100
DEPENDENT = mpmath.mpf(10) ** -60
"""Rows of which elimination leaves less than this, at RANK_DIGITS digits, depend on the others."""

SIGNS = 6
"""Points at which the sign of a minor is looked at before it is written out."""

EXPRESSIONS_COST = 100
"""How much longer elimination takes where entries are no polynomials."""

MINORS = 40
"""Minors of a basis' matrix that are looked at in the search for one that is never zero."""


def strip_rounding(expression: sp.Expr) -> sp.Expr:
    """The expression with every rounding replaced by its argument, roundings of roundings included."""
    while expression.has(Round):
        expression = expression.xreplace({rounded: rounded.args[0] for rounded in expression.atoms(Round)})
    return expression


_WAVES = (sp.sin, sp.cos, sp.sinh, sp.cosh)


def _phases(
    expression: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> tuple[dict[sp.Expr, sp.Expr], dict[sp.Symbol, sp.Expr]] | None:
    """cos(a(x) − u) as cos(p − u), sin(a(x)) as p, and what each p stands for: no angle formula takes a(x) apart."""
    waves: dict[sp.Expr, sp.Expr] = {}
    meaning: dict[sp.Symbol, sp.Expr] = {}
    for wave in expression.atoms(*_WAVES):
        phase, moving = wave.args[0].as_independent(*handles, as_Add=True)
        if moving == 0 and wave.has(*elements):
            waves[wave] = sp.Symbol(f"_phase{len(meaning)}", real=True)
            meaning[waves[wave]] = wave
        elif moving != 0 and phase.has(*elements) and not phase.is_Symbol and not moving.has(*elements):
            symbol = sp.Symbol(f"_phase{len(meaning)}", real=True)
            meaning[symbol] = phase
            waves[wave] = wave.func(symbol + moving)
    return (waves, meaning) if waves else None


def separate(
    expression: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> dict[sp.Expr, sp.Expr] | None:
    """{G(x): H(u)} with expression = Σ G·H, or None where a term mixes the two by this route."""
    trig = expression.has(*_WAVES)
    hints = {"power_exp": True, "power_base": True, "log": True, "mul": True, "multinomial": True, "trig": trig}
    frozen = _frozen_reciprocals(expression, elements, handles)
    elements = [*elements, *(symbol for power, symbol in frozen.items() if power.has(*elements))]
    handles = [*handles, *(symbol for power, symbol in frozen.items() if power.has(*handles))]
    joined = sp.powsimp(expression.xreplace(frozen))
    terms: dict[sp.Expr, sp.Expr] = {}
    for term in sp.Add.make_args(sp.expand(expanded(joined, **hints))):
        generator, weight = sp.Integer(1), sp.Integer(1)
        for factor in sp.Mul.make_args(term):
            if factor.has(*elements):
                if factor.has(*handles):
                    return None
                generator *= factor
            else:
                weight *= factor
        terms[generator] = terms.get(generator, sp.Integer(0)) + weight
    meaning = {symbol: power for power, symbol in frozen.items()}
    simpler = {g.xreplace(meaning): simplified(weight.xreplace(meaning)) for g, weight in terms.items()}
    return {generator: weight for generator, weight in simpler.items() if weight != 0}


def _frozen_reciprocals(
    expression: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> dict[sp.Expr, sp.Symbol]:
    """A symbol for each reciprocal that does not mix the two: exp(x − u)/(x² + 1) expands to 1/(x²·exp(u) + exp(u))."""
    found: dict[sp.Expr, sp.Symbol] = {}
    for power in sorted(expression.atoms(sp.Pow), key=str):
        mixes = power.has(*elements) and power.has(*handles)
        if power.base.is_Add and power.exp.is_negative and power.exp.is_number and not mixes:
            facts = {"positive": True} if power.is_positive else {"real": True}
            found[power] = sp.Dummy(f"reciprocal{len(found)}", **facts)
    return found


@dataclass(frozen=True)
class Basis:
    """Functions B_k(x, u), and their coordinates: B = matrix(u) · generators(x).

    Attributes
    ----------
    pivots : generators in which the matrix can be inverted at every u; None where no such were found.
    parameters : what symbols of the matrix stand for, that are no handles.
    """

    functions: tuple[sp.Expr, ...]
    generators: tuple[sp.Expr, ...]
    matrix: sp.Matrix
    pivots: tuple[int, ...] | None
    parameters: Mapping[sp.Symbol, sp.Expr] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """Number of functions."""
        return len(self.functions)

    def with_elements(self, meaning: dict[sp.Symbol, sp.Expr]) -> Basis:
        """The same basis with symbols in functions and generators written out."""
        functions = tuple(function.xreplace(meaning) for function in self.functions)
        generators = tuple(generator.xreplace(meaning) for generator in self.generators)
        return dataclasses.replace(self, functions=functions, generators=generators)


Row = dict[sp.Expr, sp.Expr]


class _ParametersNamed:
    """Symbols for sums and functions of parameters: (x − u + p)⁴ for (x − u + log s + (log N)/2)⁴, in which p is one.

    Attributes
    ----------
    meaning : what each symbol stands for.
    """

    def __init__(self, varying: Sequence[sp.Symbol]) -> None:
        self.varying = varying
        self.meaning: dict[sp.Symbol, sp.Expr] = {}

    def __call__(self, expression: sp.Expr) -> sp.Expr:
        """The expression over symbols."""
        if not expression.args:
            return expression
        if expression.has(*self.varying):
            if not isinstance(expression, (sp.Add, sp.Mul)):
                return expression.func(*(self(a) if isinstance(a, sp.Expr) else a for a in expression.args))
            fixed, varying = expression.as_independent(*self.varying)
            parts = (self(a) for a in expression.func.make_args(varying))
            return expression.func(self(fixed), *parts)
        if isinstance(expression, sp.Mul) or (isinstance(expression, sp.Pow) and expression.exp.is_Integer):
            return expression.func(*map(self, expression.args))
        return self._symbol(expression) if expression.free_symbols else expression

    def _symbol(self, value: sp.Expr) -> sp.Expr:
        known = next((symbol for symbol, meant in self.meaning.items() if meant == value), None)
        if known is None and value.is_real:
            facts = {"positive": True} if value.is_positive else {"nonnegative": True} if value.is_nonnegative else {}
            known = sp.Symbol(f"_p{len(self.meaning)}", real=True, **facts)
            self.meaning[known] = value
        return value if known is None else known


def basis_by_derivatives(
    function: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> Basis | None:
    """A basis whose first member is the function itself; None where it is not separable. Stops above RANK_LIMIT.

    The derivatives as they come, where they are independent at every u; else those that stay independent are
    preferred: for (x − u)·(x − v), 1 and not x − v after x − u, whose difference vanishes where u meets v.
    """
    named = _ParametersNamed([*elements, *handles])
    over_symbols = named(function)
    if named.meaning:
        over = basis_by_derivatives(over_symbols, elements, handles)
        return (
            None if over is None else dataclasses.replace(over.with_elements(named.meaning), parameters=named.meaning)
        )
    if phases := _phases(function, elements, handles):
        waves, meaning = phases
        over = basis_by_derivatives(function.xreplace(waves), [*elements, *meaning], handles)
        return None if over is None else over.with_elements(meaning)
    row = separate(function, elements, handles)
    if row is None:
        return None
    basis = _derivatives(function, row, elements, handles, cautious=False)
    if basis.pivots is None and basis.rank <= RANK_LIMIT:
        careful = _derivatives(function, row, elements, handles, cautious=True)
        return careful if careful.rank == basis.rank else basis
    return basis


def _derivatives(
    function: sp.Expr, row: Row, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol], cautious: bool
) -> Basis:
    """The function with as many of its derivatives as are independent of those before; `cautious`: at every u."""
    at = {handle: sp.Rational(random.Random(k).randint(30, 97), 31) for k, handle in enumerate(handles)}
    scales = _scales(row, handles)
    chosen = _Rows(at, scales, cautious)
    chosen.take(function, row)
    pending, tried, in_vain = [(function, row)], 0, 0
    while pending and chosen.rank <= RANK_LIMIT and tried < CANDIDATES and in_vain < IN_VAIN * len(handles):
        parent, coordinates = pending.pop(0)
        for handle in handles:
            tried, in_vain = tried + 1, in_vain + 1
            candidate = sp.diff(parent, handle), _differentiated(coordinates, handle)
            if chosen.grows_with(candidate[1]):
                candidate = _reduced(*_without_factor(*candidate, elements), chosen.functions, chosen.rows, elements)
                in_vain = 0 if chosen.take(*candidate) else in_vain
                pending.append(candidate)
    generators = list(row)
    weights = [known.get(g, sp.Integer(0)) for known in chosen.rows for g in generators]
    matrix = sp.Matrix(len(chosen.rows), len(generators), weights)  # in so many words: there may be no generators
    pivots = _invertible_columns(matrix, handles, scales) if chosen.rank <= RANK_LIMIT else None
    return Basis(tuple(chosen.functions), tuple(generators), matrix, pivots)


def _over_references(expression: sp.Expr, handles: Sequence[sp.Symbol], scales: frozenset[sp.Symbol]) -> sp.Expr:
    """The expression over references, which may have a sign that their quantities never have; scales are not zero."""
    facts = {u: {"nonzero": True} if u in scales else {} for u in handles}
    return expression.xreplace({u: sp.Symbol(f"_{u}", real=True, **facts[u]) for u in handles})


def _scales(row: Row, handles: Sequence[sp.Symbol]) -> frozenset[sp.Symbol]:
    """Handles of which a power is a factor of the function: their references never move to zero."""
    weights = list(row.values())
    found = set()
    for handle in handles if weights else ():
        _, power = weights[0].as_independent(handle, as_Add=False)
        plain = power.as_base_exp()[0] == handle and power.as_base_exp()[1].is_number
        if plain and not any(cancelled(weight / power).has(handle) for weight in weights):
            found.add(handle)
    return frozenset(found)


def _invertible_columns(
    matrix: sp.Matrix, handles: Sequence[sp.Symbol], scales: frozenset[sp.Symbol]
) -> tuple[int, ...] | None:
    """Columns in which the matrix can be inverted whatever the references are."""
    signs = _MinorSigns(matrix, handles, scales)
    for columns in itertools.islice(itertools.combinations(range(matrix.cols), matrix.rows), MINORS):
        charge(matrix.rows / 10, "looking for a basis that is independent everywhere")
        if signs.differ(columns):
            continue
        square, names = _over_polynomials(matrix[:, list(columns)])
        minor = square.domain.to_sympy(square.charpoly()[-1])  # the determinant but for its sign, without divisions
        if _over_references(simplified(minor.xreplace(names)), handles, scales).is_nonzero:
            return columns
    return None


class _MinorSigns:
    """Signs of a matrix' minors at random references: one that takes both, or vanishes, need not be written out."""

    def __init__(self, matrix: sp.Matrix, handles: Sequence[sp.Symbol], scales: frozenset[sp.Symbol]) -> None:
        symbols = sorted(matrix.free_symbols, key=str)
        signed = [s for s in symbols if s in handles and s not in scales]
        source = random.Random(17)
        self.points: list[list[list[mpmath.mpf]]] = []
        try:
            evaluate = as_function(symbols, matrix.tolist(), IN_RANGE)
        except (TypeError, ValueError, NotImplementedError):
            return
        for _ in range(SIGNS if matrix.rows > 1 else 0):
            at = [mpmath.mpf(source.uniform(-2 if s in signed else 0.1, 2)) for s in symbols]
            with contextlib.suppress(ArithmeticError, ValueError, TypeError, NameError):
                self.points.append(evaluate(*at))

    def differ(self, columns: Sequence[int]) -> bool:
        """Whether the minor provably vanishes somewhere."""
        found = []
        for rows in self.points:
            with contextlib.suppress(ArithmeticError, ValueError, TypeError):
                found.append(mpmath.sign(determinant(mpmath.matrix([[row[c] for c in columns] for row in rows]))))
        return len({sign for sign in found if sign}) > 1


class _Rows:
    """Independent functions by their coordinates; a cautious choice keeps an echelon form on pivots never zero."""

    def __init__(self, at: dict[sp.Symbol, sp.Rational], scales: frozenset[sp.Symbol], cautious: bool) -> None:
        self.at, self.scales, self.cautious = at, scales, cautious
        self.functions: list[sp.Expr] = []
        self.rows: list[Row] = []
        self._echelon: list[tuple[sp.Expr, Row]] = []

    @property
    def rank(self) -> int:
        return len(self.rows)

    def grows_with(self, row: Row) -> bool:
        """Whether the row is independent of the others at a generic u."""
        generators = list(dict.fromkeys(g for known in (*self.rows, row) for g in known))
        charge(len(generators) * (self.rank + 1) / 10, "looking for a basis")
        return _rank([[self._at_point(known.get(g)) for g in generators] for known in (*self.rows, row)]) > self.rank

    def _at_point(self, weight: sp.Expr | None) -> mpmath.mpc:
        """The weight at a generic point, to RANK_DIGITS digits: exact radicals and exponentials take minutes."""
        if weight is None:
            return mpmath.mpc(0)
        others = sorted(weight.free_symbols - self.at.keys(), key=str)
        point = {s: sp.Rational(random.Random(str(s)).randint(30, 97), 31) for s in others}
        return mpmath.mpmathify(weight.xreplace({**self.at, **point}).evalf(RANK_DIGITS))

    def take(self, function: sp.Expr, row: Row) -> bool:
        """Adds a function; a cautious choice skips one that is independent of the others at some u only."""
        if self.cautious:
            left = self._eliminated(row)
            pivot = next((g for g, weight in left.items() if self._never_zero(weight)), None)
            if pivot is None and self.rows:
                return False
            if pivot is not None:
                self._echelon.append((pivot, left))
        self.functions.append(function)
        self.rows.append(row)
        return True

    def _never_zero(self, weight: sp.Expr) -> bool:
        return bool(_over_references(weight, list(self.at), self.scales).is_nonzero)

    def _eliminated(self, row: Row) -> Row:
        left = dict(row)
        for pivot, known in self._echelon:
            if (ratio := left.get(pivot, sp.Integer(0)) / known[pivot]) != 0:
                left = {g: left.get(g, sp.Integer(0)) - ratio * known.get(g, sp.Integer(0)) for g in {**left, **known}}
                left = {g: w for g, weight in left.items() if g != pivot and (w := simplified(weight)) != 0}
        return left


def _differentiated(row: Row, handle: sp.Symbol) -> Row:
    slopes = {generator: tidied(sp.diff(weight, handle)) for generator, weight in row.items()}
    return {generator: slope for generator, slope in slopes.items() if slope != 0}


def _without_factor(candidate: sp.Expr, row: Row, elements: Sequence[sp.Symbol]) -> tuple[sp.Expr, Row]:
    """The candidate and its coordinates without factors that do not vary along the axis."""
    norm = without_constant_factor(candidate, elements)
    scale = _ratio(candidate, norm)
    if scale == 0 or scale.has(*elements):  # the candidate was rewritten beyond what cancels
        return candidate, row
    return norm, {generator: tidied(weight / scale) for generator, weight in row.items()}


def _ratio(expression: sp.Expr, norm: sp.Expr) -> sp.Expr:
    return simplified(sp.powsimp(expression / norm))


def _reduced(
    candidate: sp.Expr, row: Row, functions: list[sp.Expr], rows: list[Row], elements: Sequence[sp.Symbol]
) -> tuple[sp.Expr, Row]:
    """The candidate less a multiple of an earlier function, where that is simpler: (x − u)·exp, not (2 + x − u)·exp."""
    for function, known in zip(functions, rows, strict=True):
        for generator in row.keys() & known.keys():
            ratio = tidied(row[generator] / known[generator])
            rest = sp.factor_terms(tidied(candidate - ratio * function)) if ratio.is_number else candidate
            if rest != 0 and sp.count_ops(rest) < sp.count_ops(candidate):
                left = {g: tidied(row.get(g, sp.Integer(0)) - ratio * known.get(g, 0)) for g in {**row, **known}}
                return _without_factor(rest, {g: w for g, w in left.items() if w != 0}, elements)
    return candidate, row


def without_constant_factor(expression: sp.Expr, elements: Sequence[sp.Symbol]) -> sp.Expr:
    """The expression without factors that do not vary along the axis; the span stays the same."""
    _, varying = sp.factor_terms(simplified(expression)).as_independent(*elements, as_Add=False)
    return oriented(_at_scale(varying, elements), elements) if varying != 0 else sp.Integer(1)


LARGEST_COEFFICIENT = 16


def _at_scale(expression: sp.Expr, elements: Sequence[sp.Symbol]) -> sp.Expr:
    """1.4427·x − u with u as it is: 14427·x − 10000·u would leave a dtype's range at the first power."""

    def scaled(total: sp.Expr) -> sp.Expr:
        numbers = [term.as_coeff_Mul()[0] for term in total.args if not term.has(*elements)]
        long = any(abs(number) > LARGEST_COEFFICIENT for number in numbers)
        return sp.Add(*(term / abs(numbers[0]) for term in total.args)) if long else total

    bases = {f.as_base_exp()[0] for f in sp.Mul.make_args(expression)}
    return expression.xreplace({base: scaled(base) for base in bases if isinstance(base, sp.Add)})


def oriented(expression: sp.Expr, elements: Sequence[sp.Symbol]) -> sp.Expr:
    """±the expression, signed so that differences read x − c."""

    def falls(part: sp.Expr) -> bool:
        return any(sp.diff(part, e).could_extract_minus_sign() for e in elements if part.has(e))

    def turn(power: sp.Pow) -> sp.Expr:
        return (-power.base) ** power.exp if power.exp.is_even and falls(power.base) else power

    turned = expression.replace(lambda e: isinstance(e, sp.Pow), turn)
    sums = [a for a in sp.Mul.make_args(turned) if isinstance(a, sp.Add)]
    odd = sum(falls(a) for a in sums) % 2 == 1
    return (
        sp.Mul(*(-a if isinstance(a, sp.Add) and falls(a) else a for a in sp.Mul.make_args(turned)))
        if odd or sums
        else turned
    )


@dataclass(frozen=True)
class Step:
    """The symbols of one reference's move: from `old` to `new`, by `step` = new − old."""

    old: sp.Symbol
    new: sp.Symbol
    step: sp.Symbol


def shift_matrix(basis: Basis, at: Sequence[sp.Symbol], moves: Sequence[Step]) -> sp.Matrix | None:
    """A(old, new) with B(x, new) = A·B(x, old), exactly; None where it is singular somewhere or does not check out."""
    at_old = basis.matrix.subs({u: m.old for u, m in zip(at, moves, strict=True)}, simultaneous=True)
    at_new = basis.matrix.subs({u: m.new for u, m in zip(at, moves, strict=True)}, simultaneous=True)
    steps = {m.step: m.new - m.old for m in moves}
    if basis.pivots is None:
        return None
    square = at_old[:, list(basis.pivots)]
    solution = (at_new[:, list(basis.pivots)] * _inverse(square)).applyfunc(lambda e: in_steps(e, moves))
    residue = solution.subs(steps) * at_old - at_new
    charge(sum(map(sp.count_ops, residue)) / 10, "checking how the state moves")
    return solution.xreplace(dict(basis.parameters)) if all(e == 0 or vanishes(e) for e in residue) else None


def _inverse(square: sp.Matrix) -> sp.Matrix:
    """The inverse over the matrix entries' field of fractions, since sp.Matrix.inv swells."""
    over, names = _over_polynomials(square)
    return over.to_field().inv().to_Matrix().applyfunc(lambda e: simplified(e.xreplace(names)))


def _over_polynomials(matrix: sp.Matrix) -> tuple[DomainMatrix, dict[sp.Symbol, sp.Expr]]:
    """The matrix with symbols for roots and functions, and what they stand for: SymPy has no polynomials in those."""
    met = matrix.atoms(sp.Function, sp.Pow) - matrix.atoms(sp.exp)
    named = sorted((e for e in met if not isinstance(e, sp.Pow) or not e.exp.is_integer), key=str)
    names = {e: sp.Dummy(positive=e.is_positive, real=e.is_real) for e in named}
    over = DomainMatrix.from_Matrix(matrix.xreplace(names))
    charge(matrix.rows**2 * (EXPRESSIONS_COST if over.domain.is_EX else 1) / 10, "inverting a matrix")
    return over, {symbol: e for e, symbol in names.items()}


def in_steps(expression: sp.Expr, moves: Sequence[Step]) -> sp.Expr:
    """The expression in Δc where it depends on nothing else: (c′ − c)² does not cancel, c² − 2cc′ + c′² does.

    Where it depends on more, factors c′ − c are the step.
    """
    moved = expression.subs({m.new: m.old + m.step for m in moves}, simultaneous=True)
    moved = sp.powsimp(factored(_cancelling(expanded(sp.powsimp(moved)))))
    best = moved if not moved.has(*(m.old for m in moves)) else sp.powsimp(factored(_cancelling(expression)))
    # Term by term, so that exp(−Δ) − 1 does not become (1 − exp(Δ))·exp(−Δ), whose exp(Δ) overflows.
    best = sp.powsimp(sp.expand(best)) if best.has(sp.exp) else best
    return best.xreplace({sign * (m.new - m.old): sign * m.step for m in moves for sign in (1, -1)})


def _cancelling(expression: sp.Expr) -> sp.Expr:
    """What can be factored: a fraction of polynomials in symbols and exponentials as it is, since that cancels them."""
    return simplified(expression) if expression.atoms(sp.Function) - expression.atoms(sp.exp) else expression


def _rank(rows: list[list[mpmath.mpc]]) -> int:
    """The rank of a matrix of numbers, each row scaled to its largest entry; 0 where some are out of range."""
    with mpmath.workdps(RANK_DIGITS):
        if not all(mpmath.isfinite(value) for row in rows for value in row):
            return 0
        left = [[v / size for v in row] for row in rows if (size := max(map(abs, row), default=0))]
        rank = 0
        for column in range(len(left[0]) if left else 0):
            pivot = max(range(rank, len(left)), key=lambda i: abs(left[i][column]), default=None)
            if pivot is None or abs(left[pivot][column]) < DEPENDENT:
                continue
            left[rank], left[pivot] = left[pivot], left[rank]
            head = left[rank]
            for i in range(rank + 1, len(left)):
                ratio = left[i][column] / head[column]
                left[i] = [v - ratio * h for v, h in zip(left[i], head, strict=True)]
            rank += 1
        return rank


def determinant(matrix: mpmath.matrix) -> mpmath.mpf:
    """The determinant of a real square matrix; mpmath's fails where a column vanishes during elimination."""
    rows = [[matrix[i, j] for j in range(matrix.cols)] for i in range(matrix.rows)]
    total = mpmath.mpf(1)
    while rows:
        pivot = max(range(len(rows)), key=lambda i: abs(rows[i][0]))
        head = rows.pop(pivot)
        if head[0] == 0:
            return mpmath.mpf(0)
        total *= -head[0] if pivot % 2 else head[0]
        rows = [[v - row[0] / head[0] * h for v, h in zip(row[1:], head[1:], strict=True)] for row in rows]
    return total

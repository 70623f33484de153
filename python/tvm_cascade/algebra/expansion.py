"""Exactness by expansion: the state of Σ F(x, u) as the orbit of F under moves of its references.

A sum a(x) + L(u) of F, with elements a and invariants u apart, is a coordinate f. Where references move, f moves by
δ = L(c′) − L(c). F is then a function of coordinates alone, and expanded

    F(f + δ) = Σ_β ψ_β(f)·h_β(δ)        h_β distinct products of powers of δ, exponentials and waves

The ψ_β span the least space that holds F and is closed under every move: the h_β are independent. Their coefficients
are numbers and parameters, so whether they are independent does not depend on where references are. How a basis of
that space moves, ρ(δ), is read off the same expansion.

| F                  | coordinates   | basis                     |
|--------------------|---------------|---------------------------|
| exp(x − u)         | x − u         | exp(f)                    |
| (x − u)²           | x − u         | f², f, 1                  |
| exp(x − u)·(x − v) | x − u, x − v  | exp(f)·g, exp(f)          |
| (x − u)·(y − u)    | x − u, y − u  | f·g, f + g, 1             |
| (x − u)·(x − v)    | x − u         | f·(f + u − v), f, 1       |
| w·sin(x − u)       | x − u         | w·sin f, w·cos f          |
| log(x/u)²          | log(x/u)      | f², f, 1                  |

Sums of the same elements are one coordinate and a difference of invariants, which moves as well. A basis is taken whose
leading coefficients are numbers, so that it is one wherever references are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sympy as sp

from tvm_cascade.symbolic.elementary import SEPARABLE
from tvm_cascade.symbolic.functions import LogRatio
from tvm_cascade.symbolic.separate import RANK_LIMIT, Step
from tvm_cascade.symbolic.work import charge, expanded

Vector = dict[sp.Expr, sp.Expr]
"""A function of coordinates and elements: the coefficient of each product of them."""


@dataclass(frozen=True)
class Expansion:
    """A basis of the orbit of a function, whose first member is the function, and how it moves.

    Attributes
    ----------
    functions : over elements and invariants.
    moving : ρ with B(x, c′) = ρ·B(x, c), over steps of coordinates.
    steps : what its symbols stand for, in invariants and their values after a move.
    moved : for each invariant, the symbol for its value after a move.
    scale : powers of invariants that are a factor of the first function alone; their references are never zero.
    """

    functions: tuple[sp.Expr, ...]
    moving: sp.Matrix
    steps: Mapping[sp.Symbol, sp.Expr]
    moved: Mapping[sp.Symbol, sp.Symbol]
    scale: sp.Expr = sp.S.One

    @property
    def rank(self) -> int:
        """Number of functions."""
        return len(self.functions)

    @property
    def loses_digits(self) -> bool:
        """Whether terms cancel in what a small move adds, as in exp(2·δ) − 2·exp(δ) + 1: no guard sees what is lost."""
        still = dict.fromkeys(self.steps, sp.S.Zero)
        sums = [entry for entry in self.moving if entry.is_Add and entry.xreplace(still) == 0]
        return any(term.xreplace(still) != 0 for entry in sums for term in entry.args)

    def shift(self, at: Sequence[sp.Symbol], moves: Sequence[Step]) -> sp.Matrix:
        """A(old, new) with B(x, new) = A·B(x, old), over the symbols of references."""
        old = {invariant: move.old for invariant, move in zip(at, moves, strict=True)}
        new = {invariant: move.new for invariant, move in zip(at, moves, strict=True)}
        ends = old | {self.moved[u]: m.old + m.step for u, m in zip(at, moves, strict=True) if u in self.moved}
        ratios = old | {self.moved[u]: m.new for u, m in zip(at, moves, strict=True) if u in self.moved}
        steps = {
            delta: step.xreplace(ratios) if isinstance(step, LogRatio) else _difference(step, ends, ratios, moves)
            for delta, step in self.steps.items()
        }
        matrix = self.moving.applyfunc(lambda entry: sp.powsimp(entry.xreplace(steps)))
        for k in range(self.rank) if self.scale != 1 else ():
            matrix[0, k] *= self.scale.xreplace(new)
            matrix[k, 0] /= self.scale.xreplace(old)
        return matrix


def expansion_of(function: sp.Expr, elements: Sequence[sp.Symbol], invariants: Sequence[sp.Symbol]) -> Expansion | None:
    """The orbit of a function of elements and invariants, up to one function more than RANK_LIMIT.

    None where invariants are read otherwise than in coordinates, or coordinates otherwise than as powers, exponentials
    and waves.
    """
    product = sp.factor_terms(function) if function.is_Add else function
    scale = sp.Mul(*(f for f in sp.Mul.make_args(product) if f.has(*invariants) and not f.has(*elements)))
    rest, still = (product if scale != 1 else function) / scale, scale.free_symbols
    if rest.free_symbols & still or not all(_is_never_zero(f, invariants) for f in sp.Mul.make_args(scale)):
        return None
    placed = Coordinates(elements, [invariant for invariant in invariants if invariant not in still])
    for power in sorted(rest.atoms(sp.exp), key=sp.default_sort_key):  # other sums are relative to an exponent's
        placed(power)
    over = placed(rest)
    if over.has(*invariants) or not (placed.parts or still):
        return None
    space = _Space(placed)
    if not space.close(over):
        return None
    functions = (function, *(placed.written(_expression(vector)) for vector in space.vectors[1:]))
    return Expansion(functions, space.moving(), {**placed.steps, **placed.differences}, placed.moved, scale)


def _difference(
    step: sp.Expr, ends: Mapping[sp.Symbol, sp.Expr], ratios: Mapping[sp.Symbol, sp.Expr], moves: Sequence[Step]
) -> sp.Expr:
    """A step over Δc; of 1/c′ − 1/c it is −Δc/(c·c′)."""
    if step.is_polynomial(*ratios):
        return sp.expand(step.xreplace(dict(ends)))
    above, below = sp.fraction(sp.together(step.xreplace(dict(ratios))))
    return sp.factor(above).subs({m.new: m.old + m.step for m in moves}) / below


def _is_never_zero(factor: sp.Expr, invariants: Sequence[sp.Symbol]) -> bool:
    """Whether a factor has an inverse wherever references are: those of invariants that are factors are never zero."""
    over = factor.xreplace({invariant: sp.Dummy(real=True) for invariant in invariants})
    return bool(factor.as_base_exp()[0].is_Symbol or over.is_nonzero)


@dataclass
class _Space:
    """The span of the orbit: vectors, each with an echelon row and that row's coordinates in the vectors.

    Attributes
    ----------
    scale : what the function is of the first vector: parameters alone.
    """

    placed: Coordinates
    vectors: list[Vector] = field(default_factory=list)
    rows: list[tuple[sp.Expr, Vector, dict[int, sp.Expr]]] = field(default_factory=list)
    images: list[dict[sp.Expr, Vector]] = field(default_factory=list)
    scale: sp.Expr = sp.S.One

    def close(self, over: sp.Expr) -> bool:
        """Adds the function and all that moves make of it; whether its expansion is one."""
        own = self._expansion(over, moved=False)
        if own is None or not self._take(own.get(sp.S.One, {})):
            return False
        while len(self.images) < len(self.vectors) <= RANK_LIMIT:
            image = self._expansion(_expression(self.vectors[len(self.images)]), moved=True)
            if image is None:
                return False
            self.images.append(image)
            for vector in sorted(image.values(), key=self._reads_differences):
                if not self._take(vector):
                    return False
        return True

    def moving(self) -> sp.Matrix:
        """ρ, over the steps of coordinates."""
        size = len(self.vectors)
        matrix = sp.zeros(size, size)
        for k, image in enumerate(self.images):
            for moves, vector in image.items():
                for j, weight in self._reduced(vector)[1].items():
                    matrix[k, j] += (
                        weight * moves * (self.scale if k == 0 < j else 1) / (self.scale if j == 0 < k else 1)
                    )
        return matrix.applyfunc(sp.expand)

    def _take(self, vector: Vector) -> bool:
        """Adds a vector that the others do not span; False where that is so at some parameters only."""
        left, used = self._reduced(vector)
        if not left:
            return True
        pivot = min(left, key=lambda m: (self._reads_differences({m: left[m]}), not left[m].is_number, self._rank(m)))
        scale = left[pivot]
        simpler = {m: sp.cancel(weight / scale) for m, weight in left.items()}
        of_references = set(self.placed.differences)
        if not scale.is_number and not all(weight.free_symbols <= of_references for weight in simpler.values()):
            return False
        if not self.vectors:
            self.scale = scale
        if self._reads_differences({sp.S.One: self.scale}):
            return False
        if len(simpler) <= len(vector) or not scale.is_number:
            vector, left, used = simpler, simpler, {}
        own = {len(self.vectors): sp.S.One}
        self.rows.append((pivot, left, {k: -weight for k, weight in used.items()} | own))
        self.vectors.append(vector)
        return True

    def _rank(self, product: sp.Expr) -> tuple[bool, int]:
        """The order in which products are eliminated: exponentials and waves, then high powers before low ones."""
        if product.has(sp.exp, *SEPARABLE):
            return False, -int(sp.count_ops(product))
        return True, -_degree(product, list(self.placed.parts))

    def _reads_differences(self, vector: Vector) -> bool:
        return any(weight.has(*self.placed.differences) for weight in vector.values() if self.placed.differences)

    def _reduced(self, vector: Vector) -> tuple[Vector, dict[int, sp.Expr]]:
        """What is left of a vector beside the others, and its coordinates in them."""
        left, used = dict(vector), dict[int, sp.Expr]()
        for pivot, row, combination in self.rows:
            ratio = left.get(pivot, sp.S.Zero) / row[pivot]
            if ratio == 0:
                continue
            for m, weight in row.items():
                left[m] = sp.expand(left.get(m, sp.S.Zero) - ratio * weight)
            for k, weight in combination.items():
                used[k] = used.get(k, sp.S.Zero) + ratio * weight
        return {m: weight for m, weight in left.items() if weight != 0}, used

    def _expansion(self, over: sp.Expr, moved: bool) -> dict[sp.Expr, Vector] | None:
        """The vector that goes with each product of steps; None where a factor mixes steps and what varies."""
        varying, steps = self.placed.varying, list(self.placed.steps)
        if moved:
            over = over.xreplace({f: f + step for f, step in self.placed.by_step.items()})
        trig = over.has(*SEPARABLE)
        hints = {"power_exp": True, "power_base": True, "mul": True, "multinomial": True, "trig": trig, "log": False}
        apart = [term.as_independent(*varying, *steps, as_Add=False) for term in sp.Add.make_args(over)]
        terms = [(t, fixed) for fixed, moving in apart for t in sp.Add.make_args(expanded(moving, **hints))]
        found: dict[sp.Expr, Vector] = {}
        for term, fixed in terms:  # SymPy multiplies exp(−f)/(a + b) out to 1/(a·exp(f) + b·exp(f))
            parts: dict[str, sp.Expr] = {"varying": sp.S.One, "steps": sp.S.One, "fixed": fixed}
            for factor in sp.Mul.make_args(term):
                varies, moves = factor.has(*varying), factor.has(*steps)
                if (varies and moves) or (varies and not self._is_plain(factor)):
                    return None
                parts["varying" if varies else "steps" if moves else "fixed"] *= factor
            vector = found.setdefault(parts["steps"], {})
            vector[parts["varying"]] = vector.get(parts["varying"], sp.S.Zero) + parts["fixed"]
        charge(len(found), "expanding a move")
        kept = {m: {v: sp.expand(w) for v, w in vector.items() if sp.expand(w) != 0} for m, vector in found.items()}
        ordered = sorted(kept, key=lambda m: (_degree(m, steps), sp.default_sort_key(m)))
        return {m: kept[m] for m in ordered if kept[m]}

    def _is_plain(self, factor: sp.Expr) -> bool:
        """Whether a factor that reads coordinates is a power of one, an exponential or a wave."""
        if not factor.has(*self.placed.parts):
            return True
        base, exponent = factor.as_base_exp()
        if isinstance(factor, sp.exp) or base.is_number:
            return True
        whole = exponent.is_Integer and exponent > 0
        return bool(whole and (base.is_Symbol or isinstance(base, SEPARABLE)))


def _expression(vector: Vector) -> sp.Expr:
    return sp.Add(*(weight * product for product, weight in vector.items()))


def _degree(product: sp.Expr, steps: Sequence[sp.Symbol]) -> int:
    """Total degree of a product of steps, exponentials and waves left out."""
    powers = (factor.as_base_exp() for factor in sp.Mul.make_args(product))
    return int(sum(exponent for base, exponent in powers if base in steps))


# Coordinates: the sums of elements and invariants of which a function is made, and by how much they move.
#
# a(x) + L(u) with elements a and invariants u apart is one, and moves by L(c′) − L(c); so is log(a(x)/|u|).


class Coordinates:
    """Symbols for the coordinates of a function, and for what varies along the axis beside them.

    Attributes
    ----------
    parts : what the symbol of each coordinate stands for.
    beside : what each symbol for elements alone stands for.
    differences : what each symbol for a difference of invariants stands for, between coordinates of the same elements.
    steps : each δ, over invariants and `moved`.
    by_step : by how much coordinates and differences move, over `steps`.
    """

    def __init__(self, elements: Sequence[sp.Symbol], invariants: Sequence[sp.Symbol]) -> None:
        self.elements, self.invariants = list(elements), list(invariants)
        self.moved = {invariant: sp.Symbol(f"_{invariant}_moved", real=True) for invariant in invariants}
        self.parts: dict[sp.Symbol, sp.Expr] = {}
        self.beside: dict[sp.Symbol, sp.Expr] = {}
        self.differences: dict[sp.Symbol, sp.Expr] = {}
        self.steps: dict[sp.Symbol, sp.Expr] = {}
        self.by_step: dict[sp.Symbol, sp.Expr] = {}

    def __call__(self, expression: sp.Expr) -> sp.Expr:
        """The expression over those symbols."""
        if not expression.has(*self.elements) or isinstance(expression, sp.Piecewise):
            return expression
        if not expression.has(*self.invariants):
            return self._beside(expression)
        if isinstance(expression, sp.Add):
            return self._total(expression)
        if isinstance(expression, sp.Mul):
            fixed, varying = expression.as_independent(*self.elements, *self.invariants, as_Add=False)
            still, reading = varying.as_independent(*self.invariants, as_Add=False)
            factors = sp.Mul.make_args(reading)
            return fixed * sp.Mul(*(self._beside(f) for f in sp.Mul.make_args(still)), *map(self, factors))
        if isinstance(expression, sp.log):
            return self._ratio(expression)
        return expression.func(*map(self, expression.args))

    def written(self, expression: sp.Expr) -> sp.Expr:
        """The expression over elements and invariants."""
        return sp.powsimp(expression).xreplace({**self.parts, **self.differences, **self.beside})

    def _total(self, total: sp.Expr) -> sp.Expr:
        """The sum over coordinates; as it is where invariants alone stand in it beside what they multiply."""
        still = [t for t in total.args if not t.has(*self.invariants)]
        moving = [t for t in total.args if t.has(*self.invariants) and not t.has(*self.elements)]
        mixed = [t for t in total.args if t not in (*still, *moving)]
        if not moving:
            return sp.Add(*map(self, total.args))
        if not any(t.has(*self.elements) for t in still):
            return total
        return sp.Add(self._coordinate(sp.Add(*still), sp.Add(*moving)), *map(self, mixed))

    def _coordinate(self, still: sp.Expr, moving: sp.Expr) -> sp.Expr:
        """The symbol of a coordinate, new or known, or a known one of its elements and a difference of invariants."""
        # 1.4427·x − u as it is, since u is of a result's size: 14427·x − 10000·u would leave a dtype's range.
        scale = abs(moving.as_ordered_terms()[0].as_coeff_Mul()[0]) or sp.S.One
        scale = -scale if still.could_extract_minus_sign() else scale
        whole = sp.expand((still + moving) / scale)
        for symbol, part in self.parts.items():
            if part in (whole, -whole):
                return scale * (symbol if part == whole else -symbol)
            own, other = (total.as_independent(*self.elements, as_Add=True)[1] for total in (whole, part))
            ratio = own / (other or sp.nan)
            if ratio.is_number and ratio != 0 and self.by_step[symbol].free_symbols <= set(self.steps):
                return scale * (ratio * symbol + self._difference(sp.expand(whole - ratio * part)))
        symbol = sp.Dummy(f"f{len(self.parts)}", real=True)
        self.parts[symbol], self.by_step[symbol] = whole, self._step(moving / scale)
        return scale * symbol

    def _ratio(self, logarithm: sp.log) -> sp.Expr:
        """The symbol of log(a(x)/|u|), which moves by −log |u′/u|; as it is where invariants are read otherwise."""
        moving = logarithm.args[0].as_independent(*self.invariants, as_Add=False)[1]
        unit = next((u for u in self.invariants if moving == 1 / sp.Abs(u, evaluate=False)), None)
        if unit is None:
            return logarithm
        known = next((symbol for symbol, part in self.parts.items() if part == logarithm), None)
        if known is None:
            known, step = (sp.Dummy(name, real=True) for name in (f"f{len(self.parts)}", f"d{len(self.steps)}"))
            self.parts[known], self.by_step[known] = logarithm, -step
            self.steps[step] = LogRatio(self.moved[unit], unit)
        return known

    def _difference(self, value: sp.Expr) -> sp.Expr:
        known = next((symbol for symbol, part in self.differences.items() if part == value), None)
        if known is None and value.has(*self.invariants):
            known = sp.Dummy(f"r{len(self.differences)}", real=True)
            self.differences[known], self.by_step[known] = value, self._step(value)
        return value if known is None else known

    def _step(self, moving: sp.Expr) -> sp.Expr:
        """δ over symbols: a multiple of an invariant's own step where it is linear in that invariant, as most are."""
        total = sp.S.Zero
        for term in (term for term in sp.Add.make_args(moving) if term.has(*self.invariants)):
            fixed, value = term.as_independent(*self.invariants, as_Add=False)
            known = next((symbol for symbol, step in self.steps.items() if step == self._moves(value)), None)
            if known is None:
                known = sp.Dummy(f"d{len(self.steps)}", real=True)
                self.steps[known] = self._moves(value)
            total += fixed * known
        return total

    def _moves(self, value: sp.Expr) -> sp.Expr:
        return value.xreplace(self.moved) - value

    def _beside(self, expression: sp.Expr) -> sp.Expr:
        """Symbols for the factors that vary; powers of a sum of elements are one symbol."""
        if not expression.has(*self.elements) or expression.is_Symbol:
            return expression
        if isinstance(expression, sp.Mul):
            return sp.Mul(*map(self._beside, expression.args))
        base, exponent = expression.as_base_exp()
        if exponent.is_Integer and exponent > 1 and not isinstance(expression, sp.exp):
            return self._beside(base) ** exponent
        scale, bare = base.primitive() if base.is_Add and exponent.is_Integer else (sp.S.One, base)
        expression = expression if scale == 1 else bare**exponent
        known = next((symbol for symbol, part in self.beside.items() if part == expression), None)
        if known is None:
            known = sp.Dummy(f"e{len(self.beside)}", real=True)
            self.beside[known] = expression
        return scale**exponent * known

    @property
    def varying(self) -> list[sp.Symbol]:
        """The symbols of what varies along the axis."""
        return [*self.parts, *self.beside, *self.elements]

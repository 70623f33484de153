"""Coordinates: the sums of elements and handles of which a function is made, and by how much they move.

a(x) + L(u) with elements a and handles u apart is one, and moves by L(c′) − L(c); so are the residue y − u·x, which
moves by x·(c′ − c), and log(a(x)/|u|).
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from tvm_cascade.symbolic.functions import LogRatio


class Coordinates:
    """Symbols for the coordinates of a function, and for what varies along the axis beside them.

    Attributes
    ----------
    parts : what the symbol of each coordinate stands for.
    beside : what each symbol for elements alone stands for.
    differences : what each symbol for a difference of handles stands for, between coordinates of the same elements.
    steps : each δ, over handles and `moved`.
    by_step : by how much coordinates and differences move, over `steps`.
    """

    def __init__(self, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]) -> None:
        self.elements, self.handles = list(elements), list(handles)
        self.moved = {handle: sp.Symbol(f"_{handle}_moved", real=True) for handle in handles}
        self.parts: dict[sp.Symbol, sp.Expr] = {}
        self.beside: dict[sp.Symbol, sp.Expr] = {}
        self.differences: dict[sp.Symbol, sp.Expr] = {}
        self.steps: dict[sp.Symbol, sp.Expr] = {}
        self.by_step: dict[sp.Symbol, sp.Expr] = {}

    def __call__(self, expression: sp.Expr) -> sp.Expr:
        """The expression over those symbols."""
        if not expression.has(*self.elements) or isinstance(expression, sp.Piecewise):
            return expression
        if not expression.has(*self.handles):
            return self._beside(expression)
        if isinstance(expression, sp.Add):
            return self._total(expression)
        if isinstance(expression, sp.Mul):
            fixed, varying = expression.as_independent(*self.elements, *self.handles, as_Add=False)
            still, reading = varying.as_independent(*self.handles, as_Add=False)
            factors = sp.Mul.make_args(reading)
            return fixed * sp.Mul(*(self._beside(f) for f in sp.Mul.make_args(still)), *map(self, factors))
        if isinstance(expression, sp.log):
            return self._ratio(expression)
        return expression.func(*map(self, expression.args))

    def written(self, expression: sp.Expr) -> sp.Expr:
        """The expression over elements and handles."""
        return sp.powsimp(expression).xreplace({**self.parts, **self.differences, **self.beside})

    def _total(self, total: sp.Expr) -> sp.Expr:
        """The sum over coordinates; as it is where handles alone stand in it beside what they multiply."""
        still = [t for t in total.args if not t.has(*self.handles)]
        moving = [t for t in total.args if t.has(*self.handles) and not t.has(*self.elements)]
        sloped = [t for t in total.args if self._is_slope(t)]
        mixed = [t for t in total.args if t not in (*still, *moving, *sloped)]
        if not moving and not (sloped and still):
            return sp.Add(*map(self, total.args))
        if not sloped and not any(t.has(*self.elements) for t in still):
            return total
        return sp.Add(self._coordinate(sp.Add(*still), sp.Add(*moving), sloped), *map(self, mixed))

    def _is_slope(self, term: sp.Expr) -> bool:
        """Whether it is a product of elements and handles."""
        value, varying = term.as_independent(*self.elements, as_Add=False)
        return bool(value.has(*self.handles) and not varying.has(*self.handles) and varying != 1)

    def _coordinate(self, still: sp.Expr, moving: sp.Expr, sloped: Sequence[sp.Expr]) -> sp.Expr:
        """The symbol of a coordinate, new or known, or a known one of the same elements and a difference of handles."""
        # 1.4427·x − u as it is, since u is of a result's size: 14427·x − 10000·u would leave a dtype's range.
        scale = abs(moving.as_ordered_terms()[0].as_coeff_Mul()[0]) or sp.S.One
        scale = -scale if still.could_extract_minus_sign() else scale
        whole = sp.expand((still + moving + sp.Add(*sloped)) / scale)
        for symbol, part in self.parts.items():
            if part in (whole, -whole):
                return scale * (symbol if part == whole else -symbol)
            own, other = (total.as_independent(*self.elements, as_Add=True)[1] for total in (whole, part))
            ratio = own / (other or sp.nan)
            if ratio.is_number and ratio != 0 and not sloped and self.by_step[symbol].free_symbols <= set(self.steps):
                return scale * (ratio * symbol + self._difference(sp.expand(whole - ratio * part)))
        symbol = sp.Dummy(f"f{len(self.parts)}", real=True)
        along = (term.as_independent(*self.elements, as_Add=False) for term in sloped)
        slopes = (self._step(value / scale) * self._beside(varying) for value, varying in along)
        self.parts[symbol], self.by_step[symbol] = whole, sp.Add(self._step(moving / scale), *slopes)
        return scale * symbol

    def _ratio(self, logarithm: sp.log) -> sp.Expr:
        """The symbol of log(a(x)/|u|), which moves by −log |u′/u|; as it is where handles are read otherwise."""
        moving = logarithm.args[0].as_independent(*self.handles, as_Add=False)[1]
        unit = next((u for u in self.handles if moving == 1 / sp.Abs(u, evaluate=False)), None)
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
        if known is None and value.has(*self.handles):
            known = sp.Dummy(f"r{len(self.differences)}", real=True)
            self.differences[known], self.by_step[known] = value, self._step(value)
        return value if known is None else known

    def _step(self, moving: sp.Expr) -> sp.Expr:
        """δ over symbols: a multiple of a handle's own step where it is linear in that handle, as most are."""
        total = sp.S.Zero
        for term in (term for term in sp.Add.make_args(moving) if term.has(*self.handles)):
            fixed, value = term.as_independent(*self.handles, as_Add=False)
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

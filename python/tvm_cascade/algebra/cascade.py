"""A cascade as data: reductions over one axis, in dependency order, later ones reading earlier results."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, REDUCERS, Reducer
from tvm_cascade.errors import InputError

LENGTH = sp.Symbol("N", positive=True, integer=True)
"""N, the number of positions on the cascade axis."""

COUNT = sp.Symbol("n", positive=True, integer=True)
"""n, the number of positions that a state has folded so far."""

POSITION = sp.Symbol("position", integer=True, nonnegative=True)
"""The position of an element on the cascade axis, as an element itself: the index that an argmax gives."""

OWN_SYMBOLS = (LENGTH, COUNT, POSITION, LOWEST, HIGHEST)
OWN_NAMES = frozenset(map(str, OWN_SYMBOLS))
"""Names of the symbols above, and of the extremes of dtypes; all others that are not a cascade's start with `_`."""


def unlike(name: str, taken: Collection[str]) -> str:
    """A unique name for a symbol of a cascade: the given one, with a number appended where it is taken."""
    base = name.lstrip("_") or "t"
    tried = (base + (f"_{k}" if k else "") for k in itertools.count())
    return next(text for text in tried if text not in taken and text not in OWN_NAMES)


@dataclass(frozen=True)
class Reduction:
    """d = ⊕ over l of F(x[l], earlier results).

    Attributes
    ----------
    result : the symbol d of the value.
    reducer : the monoid ⊕.
    element : F, in element symbols, earlier results and parameters (any other symbol).

    Raises
    ------
    InputError
        When one of them is something else.
    """

    result: sp.Symbol
    reducer: Reducer
    element: sp.Expr

    def __post_init__(self) -> None:
        if not isinstance(self.result, sp.Symbol):
            raise InputError("a symbol of SymPy", repr(self.result), "Reduction(result, …)", 'make one by result("m")')
        if not isinstance(self.reducer, Reducer):
            hint = f"pass one of tvm_cascade.{', '.join(name.upper() for name in REDUCERS)}"
            raise InputError("a reducer", repr(self.reducer), f"Reduction({self.result}, reducer, …)", hint)
        if not isinstance(self.element, sp.Basic):
            hint = 'write it with symbols made by element("x"), and numbers as sympy.Integer(1)'
            raise InputError(
                "an expression of SymPy", repr(self.element), f"Reduction({self.result}, …, element)", hint
            )


@dataclass(frozen=True)
class Cascade:
    """Reductions over one axis, in dependency order.

    Attributes
    ----------
    reductions : each may read the results of those before it.
    elements : the symbols that vary along the axis; other symbols that are no results are constants of a row.

    Raises
    ------
    InputError
        When there is no reduction, or something else than reductions and symbols; when a reduction reads a result
        that is not computed before it, a result is computed twice, or the parts of a tuple are not all there as
        neighbours; when a symbol has a name of the algebra's own.
    """

    reductions: tuple[Reduction, ...]
    elements: tuple[sp.Symbol, ...]

    def __init__(self, reductions: Sequence[Reduction], elements: Sequence[sp.Symbol]) -> None:
        for given, name in ((reductions, "reductions"), (elements, "elements")):
            if not isinstance(given, Iterable) or isinstance(given, str):
                raise InputError(f"a list of {name}", repr(given), f"Cascade({name})", "put it in a list: […]")
            object.__setattr__(self, name, tuple(given))
        if not self.reductions or not all(isinstance(reduction, Reduction) for reduction in self.reductions):
            found = ", ".join(type(part).__name__ for part in self.reductions) or "none"
            raise InputError("reductions, one or more", found, "Cascade(reductions, …)")
        if foreign := [part for part in self.elements if not isinstance(part, sp.Symbol)]:
            hint = 'make one by element("x")'
            raise InputError("symbols of SymPy", repr(foreign[0]), "Cascade(…, elements)", hint)
        every = {reduction.result for reduction in self.reductions}
        if len(every) != len(self.reductions):
            raise InputError("each result to be computed once", "a result that is computed twice", "Cascade")
        seen: set[sp.Symbol] = set()
        for reduction in self.reductions:
            if late := (reduction.element.free_symbols & every) - seen:
                names = ", ".join(sorted(map(str, late)))
                raise InputError(
                    "reductions in dependency order", f"{names} read before computed", str(reduction.result)
                )
            seen.add(reduction.result)
        self._check_names()
        for block in self.blocks:
            whole, parts = block[0].reducer.whole, sorted(reduction.reducer.part for reduction in block)
            if any(r.reducer.whole != whole for r in block) or (whole and parts != list(range(whole.width))):
                raise InputError("every part of a tuple, side by side", f"parts {parts}", str(block[0].result))

    def _check_names(self) -> None:
        """Refuses symbols that would be taken for the algebra's own, which look alike in formulas and in code."""
        read = set().union(*(reduction.element.free_symbols for reduction in self.reductions))
        for symbol in sorted((read | {*self.results, *self.elements}) - {*OWN_SYMBOLS}, key=str):
            if str(symbol) in OWN_NAMES:
                ours = {str(LENGTH): "tvm_cascade.LENGTH", str(POSITION): "tvm_cascade.POSITION"}.get(str(symbol))
                hint = f"another name; or {ours}, if that is meant" if ours else "another name"
                expected = f"names other than {', '.join(sorted(OWN_NAMES))}"
                raise InputError(expected, f"a symbol of your own with the name {symbol}", "Cascade", hint)

    @property
    def blocks(self) -> list[tuple[Reduction, ...]]:
        """The reductions in groups of one tuple each; those of a tuple are adjacent."""
        found: list[tuple[Reduction, ...]] = []
        pending = list(self.reductions)
        while pending:
            whole = pending[0].reducer.whole
            width = 1 if whole is None else whole.width
            found.append(tuple(pending[:width]))
            pending = pending[width:]
        return found

    @property
    def results(self) -> tuple[sp.Symbol, ...]:
        return tuple(reduction.result for reduction in self.reductions)

    def __str__(self) -> str:
        return "\n".join(f"{r.result} = {r.reducer.sign} {r.element}" for r in self.reductions)


def element(names: str, **assumptions: bool) -> tuple[sp.Symbol, ...] | sp.Symbol:
    """Symbols that vary along the axis; real unless said otherwise."""
    return sp.symbols(names, **{"real": True, **assumptions})


def result(names: str) -> tuple[sp.Symbol, ...] | sp.Symbol:
    """Symbols of reduction results."""
    return sp.symbols(names, real=True)

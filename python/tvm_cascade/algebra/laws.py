"""The table of laws: what a reduction that reads earlier results adds to the state, by its reducer."""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.gauge import Handle
from tvm_cascade.algebra.order_law import order_law
from tvm_cascade.algebra.product_law import product_law
from tvm_cascade.algebra.sum_law import sum_law

Law = Callable[[Derivation, Reduction, sp.Expr, list[Handle]], sp.Expr]


def logical_law(derivation: Derivation, reduction: Reduction, element: sp.Expr, used: list[Handle]) -> sp.Expr:
    """A predicate on an earlier result has no finite state."""
    raise derivation.refuse(reduction, "logical_dependence", element)


def no_law(derivation: Derivation, reduction: Reduction, element: sp.Expr, used: list[Handle]) -> sp.Expr:
    """Refuses: no law says how ⊕ commutes with a map."""
    raise derivation.refuse(reduction, "reducer_dependence", element)


LAWS: dict[str, Law] = {
    "sum": sum_law,
    "product": product_law,
    "order": order_law,
    "predicate": logical_law,
    "none": no_law,
}
"""Keys are what a `Reducer.law` may be."""

"""Matrix products as users write them: transposed, batched, ragged, with maps of their elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from tvm import ir, te, tirx

from .emulator.run import Array

Map = Callable[[ir.Expr, Sequence[ir.Expr]], ir.Expr]
"""(element of the product, its indices) -> what is stored, before it is rounded."""


@dataclass(frozen=True)
class Product:
    """out[…, m, n] = map of the sum over k of a[…, m, k] · b[…, k, n].

    Attributes
    ----------
    m, n, k : extents; `batch` before them, of both operands.
    dtypes : of the operands.
    out : dtype of the output.
    sums : dtype that the program sums in.
    a_across, b_across : m, or n, is the operand's contiguous dimension.
    """

    m: int | ir.Expr
    n: int
    k: int
    batch: tuple[int, ...] = ()
    dtypes: tuple[str, str] = ("bfloat16", "bfloat16")
    out: str = "bfloat16"
    sums: str = "float32"
    a_across: bool = False
    b_across: bool = False

    def build(self, mapped: Map | None = None, others: Sequence[te.Tensor] = ()) -> tirx.PrimFunc:
        """The function of the operands, other inputs and the output."""
        m, n, k = self.m, self.n, self.k
        a = te.placeholder((*self.batch, *((k, m) if self.a_across else (m, k))), self.dtypes[0], name="a")
        b = te.placeholder((*self.batch, *((k, n) if self.b_across else (n, k))), self.dtypes[1], name="b")
        d = te.reduce_axis((0, k), "d")

        def element(*at: ir.Expr) -> ir.Expr:
            *rest, i, j = at
            left = a(*rest, *((d, i) if self.a_across else (i, d)))
            right = b(*rest, *((d, j) if self.b_across else (j, d)))
            return te.sum(left.astype(self.sums) * right.astype(self.sums), axis=d)

        product = te.compute((*self.batch, m, n), element, name="product")

        def stored(*at: ir.Expr) -> ir.Expr:
            value = product(*at)
            return (value if mapped is None else mapped(value, at)).astype(self.out)

        return te.create_prim_func([a, b, *others, te.compute(product.shape, stored, name="out")])


def inputs_of(func: tirx.PrimFunc, kind: str = "normal", **extents: int) -> list[Array]:
    """Data for every parameter but the last.

    Parameters
    ----------
    kind : "normal", "large" (near the largest sums of float16), "zeros", or "special" (infinities and NaNs in places).
    extents : of variables, by name.
    """
    rng = np.random.default_rng(0)
    found = []
    for param in list(func.params)[:-1]:
        shape = [extents[str(n)] if str(n) in extents else int(n) for n in param.ty.shape]
        values = rng.standard_normal(shape) * {"large": 40.0, "zeros": 0.0}.get(kind, 1.0)
        if kind == "special":
            flat = values.reshape(-1)
            flat[:: max(1, flat.size // 5)] = np.resize([np.inf, -np.inf, np.nan], len(flat[:: max(1, flat.size // 5)]))
        dtype = str(param.ty.dtype)
        found.append(values.astype(getattr(ml_dtypes, dtype, dtype)))
    return found

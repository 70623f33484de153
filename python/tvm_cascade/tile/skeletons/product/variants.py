"""Kernels for few rows and for many in one function, of which the launch takes the one for the rows that there are."""

from __future__ import annotations

import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.tile.emit import kernel_extent
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.kernel import ProductKernel
from tvm_cascade.tile.skeletons.product.shape import MatrixProduct


def build_variants(shape: MatrixProduct, config: ProductConfig, name: str) -> tirx.PrimFunc:
    """The function of a configuration and of those for fewer rows."""
    func = ProductKernel(shape, config).build(name)
    if config.fewer is None:
        return func
    few = build_variants(shape, config.fewer, name)
    assert config.fewer.most_rows is not None
    is_few = kernel_extent(shape.left.line.extent) <= config.fewer.most_rows
    return func.with_body(tirx.IfThenElse(is_few, _over(few, func), func.body))


def _over(func: tirx.PrimFunc, other: tirx.PrimFunc) -> tirx.Stmt:
    """The body of a function over the parameters of another one, which has the same."""

    def own(var: tirx.Var) -> tirx.Var:
        found = (b for a, b in zip(func.params, other.params, strict=True) if a.same_as(var))
        return next(found, var)

    return tvm_ffi.structural_map(func.body, (ir.Var, own))

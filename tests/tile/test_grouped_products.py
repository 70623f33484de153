"""Products of tiles of rows, each by the matrix that data say, from the row that data say, or by none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import ir, te, tirx

from tvm_cascade.tile.operand import Unfit

from .emulator.run import emulate
from .product_programs import Grouped
from .test_products import CONFIGS, assert_right, emulated, kernel_of

_OPERANDS = (((128, 64), "float16", "x"), ((64, 64), "float16", "w"), ((64,), "int32", "kept"))


@emulated
@pytest.mark.parametrize("config", CONFIGS)
def test_tiles_that_begin_where_data_say_and_some_without_a_sum(config: str) -> None:
    program = Grouped()
    kernel, given = kernel_of(program.build(), CONFIGS[config]), program.inputs()
    assert_right(program.build(), kernel=kernel, length=program.k, inputs=given)
    (found,) = emulate(kernel.func, given)
    assert [bool(np.any(tile)) for tile in found] == [True, True, True, False, True]


def test_a_condition_or_a_start_that_changes_within_a_tile_is_refused() -> None:
    x, w, kept = (te.placeholder(shape, dtype, name=name) for shape, dtype, name in _OPERANDS)
    k = te.reduce_axis((0, 64), "k")

    def product(value: Callable[[ir.Expr, ir.Expr], ir.Expr]) -> tirx.PrimFunc:
        y = te.compute((64, 64), lambda i, j: te.sum(value(i, j), axis=k), "y")
        return te.create_prim_func([x, w, kept, y])

    def masked(i: ir.Expr, j: ir.Expr) -> ir.Expr:
        zero = tirx.const(0, "float32")
        return tirx.if_then_else(kept[i] > 0, x[i, k].astype("float32") * w[j, k].astype("float32"), zero)

    for value, told in (
        (masked, "changes within a tile"),
        (lambda i, j: x[kept[i] + i, k].astype("float32") * w[j, k].astype("float32"), "no one dimension runs along i"),
    ):
        with pytest.raises(Unfit, match=told):
            kernel_of(product(value))

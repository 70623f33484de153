"""Results of a row in place of the loads that read them."""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp
import tvm_ffi
from tvm import ir

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.output import member_at
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.transform.printer import cast
from tvm_cascade.transform.scope import accumulator_dtype


def result_dtype(row: Row, result: sp.Symbol) -> str:
    """The dtype in which a result is computed."""
    return accumulator_dtype(dtype_of(row.group.member_of(result).stage.buffer))


def of_results(row: Row, value: ir.Expr, results: Mapping[sp.Symbol, ir.Expr]) -> ir.Expr:
    """A stored value with results in place of the loads that read them, rounded as their tensors round them."""

    def replace(load: ir.TensorLoad) -> ir.Expr:
        member = member_at(row.group, load)
        return load if member is None else cast(results[member.result], dtype_of(load))

    return tvm_ffi.structural_map(value, (ir.TensorLoad, replace))

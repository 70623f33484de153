"""A random program with products in TE, one block a stage, and data for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx
from tvm.ir import Expr

from benchmarks.products.case import Extents, ProductCase, Statement
from benchmarks.products.operations import EPSILON, MAPS, RANKS, number
from tvm_cascade.driver.arguments import numpy_dtype
from tvm_cascade.evaluate.inputs import INPUTS
from tvm_cascade.te import topk

Array = NDArray[Any]


def program(case: ProductCase, extents: Extents) -> tirx.PrimFunc:
    """The unfused program, named "main"; a product's stage is called `product_` and its position."""
    return _Writer(case, extents).function()


def data(case: ProductCase, extents: Extents, seed: int) -> list[Array]:
    """Inputs of the program, in order."""
    rng, arrays, kind = np.random.default_rng(seed), [], case.inputs
    for statement in case.statements:
        if statement.op == "input":
            shape = tuple(extents[axis] for axis in statement.axes)
            values = np.float32(statement.scale(extents)) * INPUTS[kind](rng, shape, dtype="float32")
            dtype = case.dtype if statement.half else "float32"
            arrays.append(np.ascontiguousarray(values.astype(numpy_dtype(dtype))))
            kind = "normal"
    return arrays


class _Writer:
    def __init__(self, case: ProductCase, extents: Extents) -> None:
        self.case, self.extents = case, extents
        self.values: list[te.Tensor] = []
        self.inputs: list[te.Tensor] = []

    def function(self) -> tirx.PrimFunc:
        for position, statement in enumerate(self.case.statements):
            self.values.append(self._value(position, statement))
        parameters = [*self.inputs, *(self.values[k] for k in self.case.outputs)]
        return te.create_prim_func(parameters).with_attr("global_symbol", "main")

    def _value(self, position: int, statement: Statement) -> te.Tensor:
        op, name = statement.op, f"{statement.op}_{position}"
        if op == "input":
            shape = tuple(self.extents[axis] for axis in statement.axes)
            given = te.placeholder(shape, self.case.dtype if statement.half else "float32", name=f"v{position}")
            self.inputs.append(given)
            return given
        if op == "round":
            return self._stage(statement.axes, lambda at: self._read(statement, 0, at).astype(self.case.dtype), name)
        if op == "product":
            return self._product(statement, name)
        if op == "causal":
            return self._stage(statement.axes, lambda at: self._causal(statement, at), name)
        if op in MAPS:
            return self._stage(
                statement.axes,
                lambda at: MAPS[op].program(*(self._wide(statement, side, at) for side in range(len(statement.args)))),
                name,
            )
        return self._fold(statement, name)

    def _product(self, statement: Statement, name: str) -> te.Tensor:
        k = te.reduce_axis((0, self.extents[statement.over]), statement.over)

        def element(at: dict[str, Any]) -> Expr:
            where = {**at, statement.over: k}
            return te.sum(self._wide(statement, 0, where) * self._wide(statement, 1, where), axis=k)

        return self._stage(statement.axes, element, name)

    def _causal(self, statement: Statement, at: dict[str, Any]) -> Expr:
        """Keys behind the query that the last of them is aligned with are masked."""
        query, key = statement.axes[-2:]
        kept = at[key] <= at[query] + (self.extents[key] - self.extents[query])
        return tirx.if_then_else(kept, self._wide(statement, 0, at), number(float("-inf")))

    def _fold(self, statement: Statement, name: str) -> te.Tensor:
        axis, op = statement.over, statement.op
        source = self.case.statements[statement.args[0]]
        rows = tuple(one for one in source.axes if one != axis)
        size = number(self.extents[axis])

        def x(at: dict[str, Any]) -> Expr:
            return self._wide(statement, 0, at)

        def folded(combine: Any, element: Any, label: str) -> te.Tensor:
            j = te.reduce_axis((0, self.extents[axis]), axis)
            return self._stage(rows, lambda at: combine(element({**at, axis: j}), axis=j), f"{name}_{label}")

        def of(row: te.Tensor, at: dict[str, Any]) -> Expr:
            return row(*(at[one] for one in rows))

        if op == "top4":
            wide = self._stage((*rows, axis), x, f"{name}_keys")
            return topk(wide, RANKS, name=name)[0]
        if op in ("sum", "max"):
            return folded({"sum": te.sum, "max": te.max}[op], x, "row")
        if op == "absmax":
            return folded(te.max, lambda at: te.abs(x(at)), "row")
        if op in ("softmax", "logsumexp"):
            largest = folded(te.max, x, "largest")
            weights = self._stage(source.axes, lambda at: te.exp(x(at) - of(largest, at)), f"{name}_weights")
            total = folded(te.sum, lambda at: weights(*(at[one] for one in source.axes)), "total")
            if op == "logsumexp":
                return self._stage(rows, lambda at: of(largest, at) + te.log(of(total, at)), name)
            return self._stage(
                statement.axes, lambda at: weights(*(at[one] for one in source.axes)) / of(total, at), name
            )
        mean = folded(te.sum, x, "total") if op == "layer_norm" else None

        def offset(at: dict[str, Any]) -> Expr:
            return x(at) if mean is None else x(at) - of(mean, at) / size

        squares = folded(te.sum, lambda at: offset(at) * offset(at), "squares")
        return self._stage(
            statement.axes, lambda at: offset(at) * te.rsqrt(of(squares, at) / size + number(EPSILON)), name
        )

    def _wide(self, statement: Statement, side: int, at: dict[str, Any]) -> Expr:
        return self._read(statement, side, at).astype("float32")

    def _read(self, statement: Statement, side: int, at: dict[str, Any]) -> Expr:
        k = statement.args[side]
        return self.values[k](*(at[axis] for axis in self.case.statements[k].axes))

    def _stage(self, axes: tuple[str, ...], element: Any, name: str) -> te.Tensor:
        shape = tuple(self.extents[axis] for axis in axes)
        return te.compute(
            shape, lambda *at: element(dict(zip(axes, at, strict=True))), name=name, varargs_names=list(axes)
        )

"""A random program with products as eager torch: a composition of library calls in half precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.products.case import ProductCase, Statement
from benchmarks.products.operations import FOLDS, MAPS


def compose(torch: Any, case: ProductCase, inputs: Sequence[Any]) -> list[Any]:
    """The outputs, with their axes in the order of the program's.

    Values keep the dtype of the inputs: products of half precision are rounded to it, as cuBLAS gives them.
    """
    given = iter(inputs)
    values: list[Any] = []
    for statement in case.statements:
        values.append(next(given) if statement.op == "input" else _value(torch, case, statement, values))
    return [values[k] for k in case.outputs]


def _value(torch: Any, case: ProductCase, statement: Statement, values: Sequence[Any]) -> Any:
    args = [values[k] for k in statement.args]
    axes = [case.statements[k].axes for k in statement.args]
    if statement.op == "round":
        return args[0].to(getattr(torch, case.dtype))
    if statement.op == "product":
        return _product(torch, statement, args, axes)
    if statement.op == "causal":
        queries, keys = args[0].shape[-2:]
        kept = torch.ones(queries, keys, dtype=torch.bool, device=args[0].device).tril(keys - queries)
        return args[0].masked_fill(~kept, float("-inf"))
    if statement.op in MAPS:
        aligned = [_aligned(x, own, statement.axes) for x, own in zip(args, axes, strict=True)]
        return MAPS[statement.op].torch(torch, *aligned)
    return FOLDS[statement.op].torch(torch, args[0], axes[0].index(statement.over))


def _aligned(x: Any, own: Sequence[str], axes: Sequence[str]) -> Any:
    """A view with the axes in order, those that it lacks of extent 1."""
    ordered = x.permute([own.index(axis) for axis in axes if axis in own])
    shape = iter(ordered.shape)
    return ordered.reshape([next(shape) if axis in own else 1 for axis in axes])


def _product(torch: Any, statement: Statement, args: Sequence[Any], axes: Sequence[Sequence[str]]) -> Any:
    """One matmul: axes that both sides have are its batch, and further ones of a side its rows or columns."""
    over = statement.over
    sizes: dict[str, int] = {}
    for x, own in zip(args, axes, strict=True):
        sizes |= dict(zip(own, x.shape, strict=True))
    batch = [a for a in axes[0] if a in axes[1] and a != over]
    rows = [a for a in axes[0] if a not in axes[1]]
    columns = [a for a in axes[1] if a not in axes[0]]
    left = args[0].permute([axes[0].index(a) for a in (*batch, *rows, over)])
    right = args[1].permute([axes[1].index(a) for a in (*batch, over, *columns)])
    dtype = torch.promote_types(left.dtype, right.dtype) if left.dtype != right.dtype else left.dtype
    left = left.flatten(len(batch), -2).to(dtype) if rows else left.unsqueeze(-2).to(dtype)
    right = right.flatten(len(batch) + 1).to(dtype) if columns else right.unsqueeze(-1).to(dtype)
    found = (left @ right).reshape([sizes[a] for a in (*batch, *rows, *columns)])
    order = [*batch, *rows, *columns]
    return found.permute([order.index(a) for a in statement.axes])

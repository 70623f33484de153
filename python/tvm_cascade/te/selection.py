"""Top-k as an ordinary reduction, and routers of experts made of it.

TVM's own `topi.topk` is an opaque packed call. This one is a `te.comm_reducer`, compiles with stock TVM, and is
recognised by what it does: order-preserving maps on its keys, such as a softmax before it, are applied to the k values
that it keeps.
"""

from __future__ import annotations

from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, Selection, first, second
from tvm_cascade.algebra.selection_law import selecting
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.errors import InputError
from tvm_cascade.te.rows import Rows, stored
from tvm_cascade.transform.printer import Printer

INDEX = "int32"
MOST = 32
"""Ranks at most. The merge of two sorted tuples is written out, some 2·k² selections. Fused, an element is inserted by
2·k selections, or by a network; unfused, TVM's compaction of buffers takes 2 s at 8, 31 s at 16, minutes at 32.
"""


def topk(x: te.Tensor, k: int, axis: int = -1, largest: bool = True, name: str = "topk") -> tuple[te.Tensor, te.Tensor]:
    """The k best elements along an axis, best first, and where they are.

    Equal elements are ordered by index, the lower one first. Where an axis has fewer than k elements above the dtype's
    lowest value (`tvm.te.min_value`; below its highest, for the smallest k), the remaining values are that value and
    the remaining indices −1; elements masked by −inf count as absent.

    Parameters
    ----------
    x : of any shape and of a float or integer dtype.
    k : number of elements, 1 to 32. A function that is not fused takes TVM minutes to compile from 17 on.
    axis : the axis to search; negative ones count from the last.
    largest : the largest elements; the smallest otherwise.
    name : of the stages.

    Returns
    -------
    values, indices : x's shape with k in place of the axis' extent; x's dtype, and int32.

    Raises
    ------
    InputError
        When x is no tensor, or k or the axis is out of range.

    Examples
    --------
    >>> from tvm import te
    >>> values, indices = topk(te.placeholder((4, 64), "float32", name="x"), k=2)
    >>> [int(n) for n in values.shape], str(indices.dtype)
    ([4, 2], 'int32')
    """
    if not isinstance(x, te.Tensor):
        raise InputError("a te.Tensor", type(x).__name__, "tvm_cascade.te.topk(x, …)")
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MOST:
        hint = "the merge of longer tuples would be analysed and compiled for minutes: for those, sort (tvm.topi.topk)"
        raise InputError(f"an integer from 1 to {MOST}", repr(k), "tvm_cascade.te.topk(k=…)", hint)
    rank = len(x.shape)
    if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < rank:
        raise InputError(f"an axis of a tensor of {rank} dimensions", repr(axis), "tvm_cascade.te.topk(axis=…)")
    axis %= rank
    kept = ranked(x, k, axis, largest, name)

    def at_rank(parts: list[te.Tensor], indices: tuple[Expr, ...]) -> Expr:
        rows, r = (*indices[:axis], *indices[axis + 1 :]), indices[axis]
        value = parts[-1](*rows)
        for position in range(k - 2, -1, -1):
            value = tirx.Select(tirx.EQ(r, position), parts[position](*rows), value)
        return value

    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    values = te.compute(shape, lambda *at: at_rank(kept[0::2], at), name=f"{name}_values")
    indices = te.compute(shape, lambda *at: at_rank(kept[1::2], at), name=f"{name}_indices")
    return values, indices


def ranked(x: te.Tensor, k: int, axis: int, largest: bool, name: str) -> list[te.Tensor]:
    """The parts of `topk`: value and index of each rank, as tensors over the rows; the axis is not negative."""
    dtype = stored(x)
    selection = Selection(k, largest, True, 0, (LOWEST if largest else HIGHEST, -1) * k)
    whole = selecting(selection)
    start = te.min_value(dtype) if largest else te.max_value(dtype)

    def combine(left: tuple[Expr, ...], right: tuple[Expr, ...]) -> tuple[Expr, ...]:
        bindings = {side(p): part for side, tuple_ in ((first, left), (second, right)) for p, part in enumerate(tuple_)}
        return tuple(Printer(bindings, dtype_of(left[p]), {})(whole.combined[p]) for p in range(whole.width))

    reducer = te.comm_reducer(combine, lambda *_types: (start, tirx.const(-1, INDEX)) * k, name=whole.name)
    position = te.reduce_axis((0, x.shape[axis]), "l")

    def element(*rows: Expr) -> tuple[Expr, ...]:
        value = x(*rows[:axis], position, *rows[axis:])
        return (value, position.var.astype(INDEX), *(start, tirx.const(-1, INDEX)) * (k - 1))

    rows = (*x.shape[:axis], *x.shape[axis + 1 :])
    return list(te.compute(rows, lambda *at: reducer(element(*at), axis=position), name=name))


def router(
    logits: te.Tensor, k: int, bias: te.Tensor | None = None, renormalise: bool = True, name: str = "router"
) -> tuple[te.Tensor, te.Tensor]:
    """The k experts of each token by the softmax of its logits, and their weights.

    Parameters
    ----------
    logits : (tokens, experts); they may be the product of the router itself.
    bias : (experts,), added to the scores for the choice alone.
    renormalise : weights are divided by their sum.

    Returns
    -------
    weights, experts : (tokens, k), of the logits' dtype, and int32; best first.
    """
    rows = Rows(logits, -1, f"{name}_scores")
    _, exponentials, sums = rows.softmax()
    choice = scores = rows.map(lambda *at: exponentials(*at) / sums(*rows.row(at)), "shares")
    if bias is not None:
        choice = te.compute(scores.shape, lambda i, e: scores(i, e) + bias(e), name=f"{name}_choice")
    values, experts = topk(choice, k, name=f"{name}_top")

    def weight(i: Expr, r: Expr | int) -> Expr:
        return values(i, r) if bias is None else scores(i, experts(i, r))

    def sum_of(i: Expr) -> Expr:
        return sum((weight(i, r) for r in range(1, k)), weight(i, 0))

    total = te.compute((values.shape[0],), sum_of, name=f"{name}_total") if renormalise else None

    def share(i: Expr, r: Expr) -> Expr:
        own = weight(i, r) if total is None else weight(i, r) / total(i)
        return own.astype(rows.dtype)

    return te.compute(values.shape, share, name=name), experts

"""Products whose rows are folded: routers, losses from logits, norms of a product's rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.te import topk

WIDE = "float32"


def _number(value: float) -> Expr:
    return tirx.const(value, WIDE)


class Logits:
    """x[m, k]·w[n, k] as the element of folds along n.

    Attributes
    ----------
    inputs : of the function.
    """

    def __init__(
        self, m: int, n: int, k: int, dtype: str = "float16", biased: bool = False, scales: Sequence[Expr] = ()
    ) -> None:
        self.m, self.n = m, n
        x, w = te.placeholder((m, k), dtype, name="x"), te.placeholder((n, k), dtype, name="w")
        self.inputs = [x, w]
        d = te.reduce_axis((0, k), "d")

        def product(i: Expr, j: Expr) -> Expr:
            return math.prod(scales, start=x[i, d].astype(WIDE) * w[j, d].astype(WIDE))

        self.at = te.compute((m, n), lambda i, j: te.sum(product(i, j), axis=d), name="logits")
        if biased:
            bias = te.placeholder((n,), dtype, name="bias")
            self.inputs.append(bias)
            plain = self.at
            self.at = te.compute((m, n), lambda i, j: plain[i, j] + bias[j].astype(WIDE), name="biased")

    def fold(self, name: str, reducer: Callable[..., Expr], element: Callable[[Expr, Expr], Expr]) -> te.Tensor:
        """A reduction along a row."""
        j = te.reduce_axis((0, self.n), "j")
        return te.compute((self.m,), lambda i: reducer(element(i, j), axis=j), name=name)

    def largest(self) -> te.Tensor:
        """Of a row."""
        return self.fold("row_max", te.max, lambda i, j: self.at[i, j])

    def total(self, largest: te.Tensor) -> te.Tensor:
        """Of the exponentials of a row, over that of its largest."""
        return self.fold("row_sum", te.sum, lambda i, j: te.exp(self.at[i, j] - largest[i]))

    def build(self, outputs: Sequence[te.Tensor]) -> tirx.PrimFunc:
        """The function of some outputs."""
        return te.create_prim_func([*self.inputs, *outputs])


def router(m: int, n: int, k: int, best: int = 2, biased: bool = False, dtype: str = "float16") -> tirx.PrimFunc:
    """The best of the softmax of a row, renormalised, and where they are."""
    logits = Logits(m, n, k, dtype, biased)
    largest = logits.largest()
    total = logits.total(largest)
    shares = te.compute((m, n), lambda i, j: te.exp(logits.at[i, j] - largest[i]) / total[i], name="shares")
    values, indices = topk(shares, best, name="top")
    first = te.compute((m, best), lambda i, r: values[i, r] / values[i, 0], name="over_the_best")
    ids = te.compute((m, best), lambda i, r: indices[i, r], name="ids")
    return logits.build([first, ids])


def sigmoid_router(m: int, n: int, k: int, best: int = 2) -> tirx.PrimFunc:
    """The best of the sigmoids of a row."""
    logits = Logits(m, n, k)
    scores = te.compute((m, n), lambda i, j: te.sigmoid(logits.at[i, j]), name="scores")
    values, indices = topk(scores, best, name="top")
    kept = te.compute((m, best), lambda i, r: values[i, r], name="kept")
    ids = te.compute((m, best), lambda i, r: indices[i, r], name="ids")
    return logits.build([kept, ids])


def root_softplus_router(m: int, n: int, k: int, best: int = 2) -> tirx.PrimFunc:
    """The best of √log(1 + eˣ) of a row, renormalised."""
    logits = Logits(m, n, k)

    def score(x: Expr) -> Expr:
        return te.sqrt(te.max(x, _number(0.0)) + te.log(_number(1.0) + te.exp(-te.abs(x))))

    scores = te.compute((m, n), lambda i, j: score(logits.at[i, j]), name="scores")
    values, indices = topk(scores, best, name="top")
    return logits.build(_renormalised(lambda i, r: values[i, r], indices, m, best))


def biased_choice_router(m: int, n: int, k: int, best: int = 2) -> tirx.PrimFunc:
    """The sigmoids of a row that are best with a bias, renormalised without it."""
    logits = Logits(m, n, k)
    bias = te.placeholder((n,), WIDE, name="bias")
    logits.inputs.append(bias)
    scores = te.compute((m, n), lambda i, j: te.sigmoid(logits.at[i, j]), name="scores")
    choice = te.compute((m, n), lambda i, j: scores[i, j] + bias[j], name="choice")
    _, indices = topk(choice, best, name="top")
    return logits.build(_renormalised(lambda i, r: scores[i, indices[i, r]], indices, m, best))


def grouped_router(m: int, n: int, k: int, groups: int = 4, kept: int = 2, best: int = 2) -> tirx.PrimFunc:
    """The best sigmoids of the groups of columns whose two best add up to most."""
    logits, size = Logits(m, n, k), n // groups
    scores = te.compute((m, n), lambda i, j: te.sigmoid(logits.at[i, j]), name="scores")
    by_group = te.compute((m, groups, size), lambda i, g, e: scores[i, g * size + e], name="by_group")
    two, _ = topk(by_group, 2, name="two_best")
    group_scores = te.compute((m, groups), lambda i, g: two[i, g, 0] + two[i, g, 1], name="group_scores")
    _, chosen = topk(group_scores, kept, name="top_groups")

    def masked(i: Expr, j: Expr) -> Expr:
        inside = [chosen[i, r].equal(te.floordiv(j, size)) for r in range(kept)]
        return tirx.Select(tirx.any(*inside), scores[i, j], _number(0.0))

    values, indices = topk(te.compute((m, n), masked, name="masked"), best, name="top")
    return logits.build(_renormalised(lambda i, r: values[i, r], indices, m, best))


def _renormalised(
    value: Callable[[Expr, Expr | int], Expr], indices: te.Tensor, m: int, best: int
) -> tuple[te.Tensor, te.Tensor]:
    """The values of the best over their sum, and where they are."""
    total = te.compute((m,), lambda i: sum((value(i, r) for r in range(1, best)), value(i, 0)), name="total")
    weights = te.compute((m, best), lambda i, r: value(i, r) / total[i], name="weights")
    return weights, te.compute((m, best), lambda i, r: indices[i, r], name="ids")


def least(m: int, n: int, k: int, best: int = 3) -> tirx.PrimFunc:
    """The smallest of a row, and where they are."""
    logits = Logits(m, n, k)
    values, indices = topk(logits.at, best, largest=False, name="least")
    kept = te.compute((m, best), lambda i, r: values[i, r], name="kept")
    return logits.build([kept, te.compute((m, best), lambda i, r: indices[i, r], name="ids")])


def argmax(m: int, n: int, k: int) -> tirx.PrimFunc:
    """Where the largest of a row is, the first of equal ones."""
    logits = Logits(m, n, k)
    _, indices = topk(logits.at, 1, name="top")
    return logits.build([te.compute((m,), lambda i: indices[i, 0], name="ids")])


def absmax(m: int, n: int, k: int) -> tirx.PrimFunc:
    """The largest magnitude of a row."""
    logits = Logits(m, n, k)
    return logits.build([logits.fold("largest", te.max, lambda i, j: te.abs(logits.at[i, j]))])


def log_sum_exp(m: int, n: int, k: int) -> tirx.PrimFunc:
    """Of a row."""
    logits = Logits(m, n, k)
    largest = logits.largest()
    total = logits.total(largest)
    return logits.build([te.compute((m,), lambda i: te.log(total[i]) + largest[i], name="lse")])


def softmax(m: int, n: int, k: int) -> tirx.PrimFunc:
    """Of a row, whole."""
    logits = Logits(m, n, k)
    largest = logits.largest()
    total = logits.total(largest)
    return logits.build(
        [te.compute((m, n), lambda i, j: (te.exp(logits.at[i, j] - largest[i]) / total[i]).astype("float16"), name="p")]
    )


def cross_entropy(m: int, n: int, k: int, dtype: str = "bfloat16") -> tirx.PrimFunc:
    """log Σ exp(logits) − logits[label], and the entropy's Σ p·logits."""
    logits = Logits(m, n, k, dtype)
    label = te.placeholder((m,), "int32", name="label")
    logits.inputs.append(label)
    largest = logits.largest()
    total = logits.total(largest)
    picked = logits.fold(
        "picked", te.sum, lambda i, j: te.if_then_else(label[i].equal(j), logits.at[i, j], _number(0.0))
    )
    return logits.build([te.compute((m,), lambda i: te.log(total[i]) + largest[i] - picked[i], name="loss")])


def entropy(m: int, n: int, k: int) -> tirx.PrimFunc:
    """−Σ p·log p of the softmax of a row."""
    logits = Logits(m, n, k)
    largest = logits.largest()
    total = logits.total(largest)
    weighed = logits.fold(
        "weighed", te.sum, lambda i, j: te.exp(logits.at[i, j] - largest[i]) * (logits.at[i, j] - largest[i])
    )
    return logits.build([te.compute((m,), lambda i: te.log(total[i]) - weighed[i] / total[i], name="entropy")])


def gathered_of_map(m: int, n: int, k: int) -> tirx.PrimFunc:
    """The logarithm of a label's share, rounded, of a map of all that nobody else reads; results keep their dimension.

    The largest of each row is asked for too.
    """
    logits = Logits(m, n, k)
    label = te.placeholder((m,), "int32", name="label")
    logits.inputs.append(label)
    j, r = te.reduce_axis((0, n), "j"), te.reduce_axis((0, n), "r")
    largest = te.compute((m, 1), lambda i, u: te.max(logits.at[i, j], axis=j), name="largest")
    total = te.compute((m, 1), lambda i, u: te.sum(te.exp(logits.at[i, r] - largest[i, 0]), axis=r), name="total")

    def share(i: Expr, j: Expr) -> Expr:
        return (logits.at[i, j] - largest[i, 0] - te.log(total[i, 0])).astype("float16")

    shares = te.compute((m, n), share, name="shares")
    loss = te.compute((m, 1), lambda i, u: shares[i, label[i]].astype("float32"), name="loss")
    return logits.build([largest, loss])


def gathered(m: int, n: int, k: int) -> tirx.PrimFunc:
    """The logit of a label, over the largest of its row."""
    logits = Logits(m, n, k)
    label = te.placeholder((m,), "int32", name="label")
    logits.inputs.append(label)
    largest = logits.largest()
    return logits.build([te.compute((m,), lambda i: logits.at[i, label[i]] - largest[i], name="margin")])


def scaled_sums(m: int, n: int, k: int, of_data: bool) -> tirx.PrimFunc:
    """The largest of a row of sums of which every term has a factor: a number, or one that an input has."""
    scale = te.placeholder((1,), WIDE, name="scale")
    logits = Logits(m, n, k, scales=[scale[0] if of_data else _number(0.5)])
    logits.inputs += [scale] if of_data else []
    return logits.build([logits.largest()])


def reversed_rows(m: int, n: int, k: int) -> tirx.PrimFunc:
    """The differences of a row's largest logit and its logits, last one first."""
    logits = Logits(m, n, k)
    largest = logits.largest()
    return logits.build([te.compute((m, n), lambda i, j: largest[i] - logits.at[i, n - 1 - j], name="backwards")])


def two_heads(m: int, n: int, k: int, teacher_k: int, teacher: str = "float16") -> tirx.PrimFunc:
    """Σ p·(log p − log q) of the softmaxes of a teacher's logits and of a student's."""
    own, other = Logits(m, n, k), Logits(m, n, teacher_k, teacher)
    largest, other_largest = own.largest(), other.largest()
    total, other_total = own.total(largest), other.total(other_largest)
    apart = own.fold(
        "apart", te.sum, lambda i, j: te.exp(other.at[i, j] - other_largest[i]) * (other.at[i, j] - own.at[i, j])
    )

    def divergence(i: Expr) -> Expr:
        logs = te.log(total[i]) + largest[i] - te.log(other_total[i]) - other_largest[i]
        return apart[i] / other_total[i] + logs

    own.inputs += other.inputs
    return own.build([te.compute((m,), divergence, name="divergence")])

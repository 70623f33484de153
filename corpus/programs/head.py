"""The head of a language model: a GEMM gives each token's logits, of which a loss, a choice or a statistic is asked.

Logits are asked for by nobody: every program here has one value a token, or a few.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tvm import te, tirx
from tvm.ir import Expr

from corpus.programs.draws import Draw, class_indices, class_indices_or, folded, positive, words
from corpus.programs.program import Builder, Element, Inputs, Precision, Program, Shape, reduced, stage
from corpus.programs.softmax import SoftmaxStages, softmax_stages
from tvm_cascade.te import topk

CROSS_ENTROPY, LOG_SUM_EXP, ENTROPY = "cross_entropy", "log_sum_exp", "entropy"
"""What is computed of the logits of a token: −log p[target]; log Σ exp, of which p is made; −Σ p·log p at
a temperature."""

DIVERGENCE = "divergence"
"""Σ p·(log p − log q), p of a teacher's logits and q of the own ones: two products."""

TRAINING_LOSS = "training_loss"
"""Of capped logits: the cross-entropy against smoothed targets, and a z-loss; 0 where the target is `IGNORED`."""

BEST, SAMPLE, BEST_FEW = "best", "sample", "best_few"
"""The index of the largest logit; one drawn from the softmax; log p of the k largest."""

IGNORED = -100
"""The target of a token that has no loss."""

CAP, SMOOTHED, Z_WEIGHT = 30.0, 0.1, 1e-4
"""Logits end at ± the first; this part of a target is spread over all classes; the weight of (log Σ exp)²."""


class _Logits:
    """x[token, hidden]·w[class, hidden]ᵀ / √hidden: of normal data, that makes the logits normal.

    Attributes
    ----------
    given : the inputs of the program.
    at : the logits; folds are of what this is.
    """

    def __init__(self, shape: Shape, precision: Precision, prefix: str = "") -> None:
        self.precision, self.shape, self.given = precision, shape, Inputs(precision)
        tokens, hidden, self.classes = shape["tokens"], shape["hidden"], shape["classes"]
        self.axes, self.rows = {"token": tokens, "class": self.classes}, {"token": tokens}
        x = self.given({"token": tokens, "k": hidden}, f"{prefix}x")
        w = self.given({"class": self.classes, "k": hidden}, f"{prefix}w", folded(0))
        sums = reduced(te.sum, {**self.axes, "k": hidden}, lambda i, c, k: x(i, k) * w(c, k), f"{prefix}sums")
        self.at = self.map(lambda i, c: sums(i, c) * precision.constant(hidden**-0.5), f"{prefix}logits")

    def map(self, element: Element, name: str) -> te.Tensor:
        """A value for every token and class."""
        return stage(self.axes, element, name)

    def sum(self, element: Element, name: str) -> te.Tensor:
        """A sum over the classes of every token."""
        return reduced(te.sum, self.axes, element, name)

    def softmax(self, suffix: str = "") -> SoftmaxStages:
        return softmax_stages(self.precision, self.at, self.axes, suffix)

    def log_sum(self, parts: SoftmaxStages) -> te.Tensor:
        """log Σ exp of every token, as a stage."""
        return stage(self.rows, parts.log_sum, "log_sum")

    def argument(self, name: str, dtype: str, draw: Draw) -> te.Tensor:
        """A further input with a value for every token."""
        return self.given.stored(self.rows, name, draw, dtype)

    def temperature(self) -> te.Tensor:
        """What the logits of each token are divided by."""
        return self.argument("temperature", self.precision.accumulate, positive)

    def program(self, element: Element, products: int = 1, **further: int) -> Program:
        """The program of one output, with a value for every token, or for each of a few ranks of it."""
        flops = 2 * products * self.shape["tokens"] * self.shape["hidden"] * self.classes
        return self.given.program(stage({**self.rows, **further}, element, "out"), flops=flops)


def _cross_entropy(logits: _Logits) -> Program:
    target = logits.argument("target", "int64", class_indices(logits.classes))
    parts = logits.softmax()
    return logits.program(lambda i: parts.log_sum(i) - logits.at(i, target(i)))


def _entropy(logits: _Logits) -> Program:
    plain, temperature = logits.at, logits.temperature()
    logits.at = logits.map(lambda i, c: plain(i, c) / temperature(i), "tempered")
    parts = logits.softmax()
    weighed = logits.sum(lambda i, c: parts.weights(i, c) * (logits.at(i, c) - parts.row_max(i)), "weighed")
    return logits.program(lambda i: te.log(parts.row_sum(i)) - weighed(i) / parts.row_sum(i))


def _divergence(logits: _Logits) -> Program:
    teacher = _Logits(logits.shape, logits.precision, "teacher_")
    logits.given.arguments += teacher.given.arguments
    own, other = logits.softmax(), teacher.softmax("_of_teacher")
    log_own, log_other = logits.log_sum(own), logits.log_sum(other)
    apart = logits.sum(lambda i, c: other.weights(i, c) * (teacher.at(i, c) - logits.at(i, c)), "apart")
    return logits.program(lambda i: apart(i) / other.row_sum(i) - log_other(i) + log_own(i), products=2)


def _training_loss(logits: _Logits) -> Program:
    target = logits.argument("target", "int64", class_indices_or(IGNORED, logits.classes))
    plain, constant = logits.at, logits.precision.constant
    logits.at = logits.map(lambda i, c: te.tanh(plain(i, c) * constant(1 / CAP)) * constant(CAP), "capped")
    parts = logits.softmax()
    log_sum, total = logits.log_sum(parts), logits.sum(lambda i, c: logits.at(i, c), "total")

    def loss(i: Expr) -> Expr:
        wanted = constant(1 - SMOOTHED) * logits.at(i, te.max(target(i), tirx.const(0, "int64")))
        spread = total(i) * constant(SMOOTHED / logits.classes)
        own = log_sum(i) - wanted - spread + constant(Z_WEIGHT) * log_sum(i) * log_sum(i)
        return tirx.Select(tirx.EQ(target(i), tirx.const(IGNORED, "int64")), constant(0.0), own)

    return logits.program(loss)


def _best(logits: _Logits) -> Program:
    _, indices = topk(logits.at, 1, name="best")
    return logits.program(lambda i: indices(i, 0))


def _best_few(logits: _Logits) -> Program:
    log_sum = logits.log_sum(logits.softmax())
    values, _ = topk(logits.at, logits.shape["ranks"], name="best")
    return logits.program(lambda i, r: values(i, r) - log_sum(i), rank=logits.shape["ranks"])


def _sample(logits: _Logits) -> Program:
    """The largest of logits / temperature + Gumbel noise, which is drawn from their softmax; noise is a hash."""
    seed = logits.argument("seed", "int32", words)
    temperature = logits.temperature()
    constant = logits.precision.constant

    def noisy(i: Expr, c: Expr) -> Expr:
        bits = _mixed(seed(i).astype("uint32") ^ _mixed(c.astype("uint32")))
        uniform = logits.precision.widen(bits >> _word(32 - HASHED_BITS)) + constant(0.5)
        return logits.at(i, c) / temperature(i) - te.log(-te.log(uniform * constant(2.0**-HASHED_BITS)))

    _, indices = topk(logits.map(noisy, "noisy"), 1, name="best")
    return logits.program(lambda i: indices(i, 0))


HASHED_BITS = 23
"""Of uniform noise: with half a step beyond it, float32 has every value."""

MIXING = ((16, 0x7FEB352D), (15, 0x846CA68B))
"""Shifts and factors of a hash of 32 bits: `h ^= h >> 16; h *= …`, and so on (C. Wellons, Hash Prospector, 2018)."""


def _mixed(h: Expr) -> Expr:
    for shift, factor in MIXING:
        h = (h ^ (h >> _word(shift))) * _word(factor)
    return h ^ (h >> _word(MIXING[0][0]))


def _word(value: int) -> Expr:
    return tirx.const(value, "uint32")


_PROGRAMS: Mapping[str, Callable[[_Logits], Program]] = {
    CROSS_ENTROPY: _cross_entropy,
    LOG_SUM_EXP: lambda logits: logits.program(logits.softmax().log_sum),
    ENTROPY: _entropy,
    DIVERGENCE: _divergence,
    TRAINING_LOSS: _training_loss,
    BEST: _best,
    SAMPLE: _sample,
    BEST_FEW: _best_few,
}


def head_of(asked: str, shape: Shape, precision: Precision) -> Program:
    """One of the programs of a head: x[token, hidden], w[class, hidden], … -> out[token] or out[token, rank].

    Results are in the accumulation dtype; indices are int32.
    """
    return _PROGRAMS[asked](_Logits(shape, precision))


def head(asked: str) -> Builder:
    return partial(head_of, asked)

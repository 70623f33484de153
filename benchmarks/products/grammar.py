"""Drawing a random program with products from a seed: productions as data, and the sizes of their axes.

Productions are sentences about matrices: linear layers with what models have before and behind them, chains, gates,
Gram matrices, attentions and linear attentions, and two of them in one function.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from benchmarks.products.case import ProductCase, Statement

Key = TypeVar("Key")

ALIGNED, RAGGED = "aligned", "ragged"
# (small, large) extents of axes, by what they are: depths and columns are contiguous somewhere, and rows may be few.
_SIZES: Mapping[str, Mapping[tuple[int, int], float]] = {
    "rows": {(1, 1): 1, (3, 16): 1, (16, 64): 1, (33, 128): 2, (64, 1000): 1, (97, 2048): 3, (128, 4096): 2},
    ALIGNED: {(8, 64): 1, (16, 128): 2, (40, 320): 1, (64, 512): 2, (72, 1000): 1, (96, 1536): 1, (136, 2048): 2},
    RAGGED: {(17, 129): 1, (50, 501): 1, (102, 1027): 1},
    "batch": {(2, 4): 2, (3, 16): 1},
    "heads": {(2, 8): 2, (4, 16): 1},
    "group": {(1, 1): 1, (2, 4): 1, (4, 8): 1},
    "queries": {(1, 1): 2, (4, 4): 1, (8, 8): 0.5, (40, 512): 2},
    "keys": {(70, 1000): 1, (96, 2048): 2, (130, 4096): 1},
    "features": {(16, 64): 2, (32, 128): 3, (48, 96): 0.5, (64, 256): 0.5},
}
_RAGGED_ODDS = 0.12
_WIDE_ODDS = 0.06
"""Of a product whose operands are float32."""

_LARGEST = 60 * 10**9
"""Operations of the products at large extents; a case with more is drawn again, from the same source."""

_MAPS = ("relu", "silu", "gelu", "tanh", "soft_cap", "halved", "squared", "absolute")
_BEHIND = {"": 5, "softmax": 2, "logsumexp": 1, "absmax": 1, "max": 0.5, "sum": 0.5, "rms_norm": 1, "top4": 1}
_BEFORE = {"": 5, "map": 1.5, "rms_norm": 1.5, "layer_norm": 1, "softmax": 0.5, "gain": 0.7}
_DATA = {
    "normal": 8,
    "ties": 1,
    "rising": 0.7,
    "falling": 0.7,
    "late_spike": 0.7,
    "alternating_sign": 0.5,
    "zeros": 0.4,
}
_DTYPES = {"bfloat16": 3, "float16": 2}


def draw(seed: int) -> ProductCase:
    """The case of a seed, the same for ever as long as the tables are."""
    source = random.Random(seed)
    while True:
        case = _Draw(seed, source).case()
        if case.flops(case.large) <= _LARGEST:
            return case


class _Draw:
    def __init__(self, seed: int, source: random.Random) -> None:
        self.seed, self.source = seed, source
        self.statements: list[Statement] = []
        self.small: dict[str, int] = {}
        self.large: dict[str, int] = {}
        self.outputs: list[int] = []

    def case(self) -> ProductCase:
        name = self.weighted({name: weight for name, (weight, _) in PRODUCTIONS.items()})
        PRODUCTIONS[name][1](self)
        return ProductCase(
            seed=self.seed,
            shape_of=name,
            statements=tuple(self.statements),
            small=dict(self.small),
            large=dict(self.large),
            dtype=self.weighted(_DTYPES),
            outputs=tuple(self.outputs),
            inputs=self.weighted(_DATA),
        )

    def weighted(self, table: Mapping[Key, float]) -> Key:
        return self.source.choices(list(table), list(table.values()))[0]

    def maybe(self, odds: float) -> bool:
        return self.source.random() < odds

    def axis(self, kind: str) -> str:
        """A new axis."""
        if kind == ALIGNED and self.maybe(_RAGGED_ODDS):
            kind = RAGGED
        name = f"{kind[0]}{len(self.small)}"
        self.small[name], self.large[name] = self.weighted(_SIZES[kind])
        return name

    def batch(self) -> tuple[str, ...]:
        """An axis of a batch, or none."""
        return (self.axis("batch"),) if self.maybe(0.25) else ()

    def add(self, op: str, args: Sequence[int], axes: Sequence[str], over: str = "", half: bool = False) -> int:
        """The position of a new statement."""
        self.statements.append(Statement(op, tuple(args), tuple(axes), over, half))
        return len(self.statements) - 1

    def given(self, axes: Sequence[str], depth: str = "", half: bool = True) -> int:
        """An input over the axes, its last two perhaps the other way round; of unit products along the depth."""
        stored = list(axes)
        if len(stored) > 1 and self.maybe(0.3):
            stored[-2:] = stored[:-3:-1]
        self.statements.append(Statement("input", (), tuple(stored), half=half, depth=depth))
        return len(self.statements) - 1

    def axes(self, position: int) -> tuple[str, ...]:
        return self.statements[position].axes

    def rounded(self, position: int) -> int:
        """The value in half precision."""
        return (
            position
            if self.statements[position].half
            else self.add("round", [position], self.axes(position), half=True)
        )

    def product(self, left: int, right: int, over: str) -> int:
        """The product of two values, the axes of the left one first."""
        axes = [a for a in self.axes(left) if a != over]
        axes += [a for a in self.axes(right) if a != over and a not in axes]
        return self.add("product", [left, right], axes, over)

    def mapped(self, position: int, most: int) -> int:
        """The value behind some maps of elements."""
        for _ in range(self.source.randint(0, most)):
            axes = self.axes(position)
            kind = self.source.choice(("unary", "unary", "bias", "residual"))
            if kind == "unary":
                position = self.add(self.source.choice(_MAPS), [position], axes)
            else:
                other = self.given(axes[-1:] if kind == "bias" else axes)
                position = self.add(self.source.choice(("add", "add", "multiply")), [position, other], axes)
        return position

    def before(self, position: int, over: str) -> int:
        """The left operand of a product along an axis behind what models have there."""
        kind = self.weighted(_BEFORE)
        axes = self.axes(position)
        if not kind:
            return position
        if kind == "map":
            return self.rounded(self.add(self.source.choice(_MAPS), [position], axes))
        if kind == "gain":
            return self.rounded(self.add("multiply", [position, self.given([over])], axes))
        normal = self.add(kind, [position], axes, over)
        if self.maybe(0.5):
            normal = self.add("multiply", [normal, self.given([over])], axes)
        return self.rounded(normal)

    def behind(self, position: int) -> None:
        """The output: the value behind maps, perhaps folded along its last axis."""
        position = self.mapped(position, 2)
        *rows, last = self.axes(position)
        kind = self.weighted(_BEHIND)
        if kind == "top4":
            self.small.setdefault("ranks", 4)
            self.large.setdefault("ranks", 4)
            position = self.add(kind, [position], [*rows, "ranks"], last)
        elif kind:
            position = self.add(kind, [position], [*rows, last] if kind in ("softmax", "rms_norm") else rows, last)
        if self.axes(position) and self.maybe(0.7):
            position = self.rounded(position)
        self.outputs.append(position)

    def linear(self) -> int:
        """x·w, with something before perhaps."""
        batch, m, k, n = self.batch(), self.axis("rows"), self.axis(ALIGNED), self.axis(ALIGNED)
        half = not self.maybe(_WIDE_ODDS)
        x = self.given([*batch, m, k], half=half)
        x = self.before(x, k) if half else x
        return self.product(x, self.weight([*batch] if self.maybe(0.5) else [], k, n, half), k)

    def weight(self, batch: Sequence[str], k: str, n: str, half: bool = True) -> int:
        return self.given([*batch, k, n], depth=k, half=half)


def _linear(draw: _Draw) -> None:
    draw.behind(draw.linear())


def _chain(draw: _Draw) -> None:
    """Two or three linear layers, one behind the other."""
    value = draw.linear()
    for _ in range(draw.source.randint(1, 2)):
        value = draw.rounded(draw.mapped(value, 2))
        k = draw.axes(value)[-1]
        value = draw.product(value, draw.weight([], k, draw.axis(ALIGNED)), k)
    draw.behind(value)


def _gated(draw: _Draw) -> None:
    """(act(x·w)·(x·u)), and a layer behind it perhaps."""
    m, k, n = draw.axis("rows"), draw.axis(ALIGNED), draw.axis(ALIGNED)
    x = draw.before(draw.given([m, k]), k)
    gate, up = (draw.product(x, draw.weight([], k, n), k) for _ in range(2))
    gate = draw.add(draw.source.choice(("silu", "gelu", "relu")), [gate], draw.axes(gate))
    value = draw.add("multiply", [gate, up], draw.axes(gate))
    if draw.maybe(0.6):
        value = draw.product(draw.rounded(value), draw.weight([], n, draw.axis(ALIGNED)), n)
    draw.behind(value)


def _gram(draw: _Draw) -> None:
    """Σ over rows of x[row, i]·y[row, j], both stored by rows."""
    rows, i, j = draw.axis("rows"), draw.axis(ALIGNED), draw.axis(ALIGNED)
    x, y = draw.given([rows, i]), draw.given([rows, j])
    value = draw.product(x, y, rows)
    draw.behind(draw.add("halved", [value], draw.axes(value)))


def _attended(draw: _Draw) -> int:
    batch, heads, group = draw.batch(), draw.axis("heads"), draw.axis("group")
    i, j, d = draw.axis("queries"), draw.axis("keys"), draw.axis("features")
    q = draw.given([*batch, heads, group, i, d], depth=d)
    k = draw.given([*batch, heads, j, d])
    value = draw.axis("features") if draw.maybe(0.2) else d
    v = draw.given([*batch, heads, j, value])
    scores = draw.product(q, k, d)
    axes = draw.axes(scores)
    kind = draw.weighted({"": 3, "soft_cap": 1, "bias": 1, "halved": 1})
    if kind == "bias":
        scores = draw.add("add", [scores, draw.given([heads, group, j], half=False)], axes)
    elif kind:
        scores = draw.add(kind, [scores], axes)
    if draw.maybe(0.4) and draw.small[i] <= draw.small[j] and draw.large[i] <= draw.large[j]:
        scores = draw.add("causal", [scores], axes)
    shares = draw.add("softmax", [scores], axes, j)
    shares = draw.rounded(shares) if draw.maybe(0.5) else shares
    return draw.product(shares, v, j)


def _attention(draw: _Draw) -> None:
    out = _attended(draw)
    if draw.maybe(0.7):
        out = draw.rounded(out)
    draw.outputs.append(out)


def _projected(draw: _Draw) -> None:
    """Attention, and a linear layer on each head's result."""
    out = draw.rounded(_attended(draw))
    k = draw.axes(out)[-1]
    draw.behind(draw.product(out, draw.weight([], k, draw.axis(ALIGNED)), k))


def _unnormalised(draw: _Draw) -> None:
    """act(q·kᵀ)·v without a softmax."""
    heads, i, j, d = draw.axis("heads"), draw.axis("queries"), draw.axis("keys"), draw.axis("features")
    q, k, v = draw.given([heads, i, d], depth=d), draw.given([heads, j, d]), draw.given([heads, j, d], depth=j)
    scores = draw.product(q, k, d)
    scores = draw.add(draw.source.choice(("relu", "squared", "tanh")), [scores], draw.axes(scores))
    draw.outputs.append(draw.rounded(draw.product(draw.rounded(scores), v, j)))


def _linear_attention(draw: _Draw) -> None:
    """q·(kᵀ·v), summed along the keys first."""
    heads, i, j, d = draw.axis("heads"), draw.axis("queries"), draw.axis("keys"), draw.axis("features")
    c = draw.axis("features")
    q, k, v = draw.given([heads, i, d], depth=d), draw.given([heads, j, d], depth=j), draw.given([heads, j, c])
    state = draw.rounded(draw.product(k, v, j))
    draw.behind(draw.product(q, state, d))


def _two(draw: _Draw) -> None:
    """Two programs that share nothing."""
    for _ in range(2):
        draw.weighted({_linear: 2.0, _attention: 1.0, _gated: 1.0})(draw)


def _shared(draw: _Draw) -> None:
    """Several layers of one input, each with its own end: what attention makes of its input."""
    m, k = draw.axis("rows"), draw.axis(ALIGNED)
    x = draw.before(draw.given([m, k]), k)
    for _ in range(draw.source.randint(2, 3)):
        draw.behind(draw.product(x, draw.weight([], k, draw.axis(ALIGNED)), k))


PRODUCTIONS: Mapping[str, tuple[float, Callable[[_Draw], None]]] = {
    "linear": (5, _linear),
    "chain": (2, _chain),
    "gated": (2, _gated),
    "gram": (1, _gram),
    "attention": (4, _attention),
    "projected attention": (1, _projected),
    "attention without softmax": (1, _unnormalised),
    "linear attention": (1, _linear_attention),
    "two programs": (1, _two),
    "layers of one input": (1, _shared),
}
"""(how often it is drawn, what it adds to the draw) by name."""

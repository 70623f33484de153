"""Writes each_builder.md and its pictures from what the builders give: `python docs/each_builder.py`.

The code of a section is run. What it prints stands below it; the picture is of the `weights` that its attention gives,
or of the loop that its `program` becomes. A test writes the page again and compares.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tvm_cascade
from tvm_cascade.report.explanation import picture

DOCS = Path(__file__).parent
PAGE, PICTURES = "each_builder.md", "pictures/builders"


@dataclass(frozen=True)
class Section:
    """A builder, or one of its arguments.

    Attributes
    ----------
    builder : of `tvm_cascade.te`.
    title : the section's heading.
    text : what it is for.
    code : run with what the sections before it have defined.
    columns : what the columns of a picture of weights are.
    """

    builder: str
    title: str
    text: str
    code: str
    columns: str = "key"


INTRODUCTION = """# Builders, one by one

Each section is a builder of `tvm_cascade.te`, or one argument of `attention`, with code that runs and a picture of what
comes out of it. [Builders](builders.md) has their shapes and arguments in a table, and how to join them with stages of
your own.

Pictures of attention are the weights that the compiled program gives: 24 queries from top to bottom, and their keys
from left to right. A cell is darker the larger its weight is against the largest of its row, and white where the query
does not see the key. Queries are zeros, so that scores are equal, and values are the identity matrix, so that what
comes out are the weights. All other pictures show the passes over a row as written on the left, and on the right the
one loop that they become.

Written by `docs/each_builder.py`, which runs the code and draws the pictures.

```python
import numpy as np

import tvm_cascade
from tvm_cascade import te

rng = np.random.default_rng(0)
q = k = np.zeros((1, 1, 24, 24), "float32")
v = np.eye(24, dtype="float32")[None, None]
x = rng.standard_normal((8, 512), dtype="float32")
```
"""

SECTIONS = (
    Section(
        "attention",
        "Causal attention",
        "A query sees the keys up to its own position. Tiles of keys behind the last query of a tile are not visited.",
        """@tvm_cascade.jit
def causal(q, k, v):
    return te.attention(q, k, v, mask_mod=lambda b, h, i, j: j <= i)


weights = causal(q, k, v)[0, 0]
print((weights > 0).sum(), "of", weights.size)""",
    ),
    Section(
        "attention",
        "Sliding window",
        "A query sees the last six keys, its own among them. Tiles on either side of the band are not visited.",
        """@tvm_cascade.jit
def window(q, k, v):
    return te.attention(q, k, v, mask_mod=lambda b, h, i, j: (j <= i) & (i - j < 6))


weights = window(q, k, v)[0, 0]
print((weights > 0).sum(axis=1).max(), "keys at most")""",
    ),
    Section(
        "attention",
        "A prefix that all see",
        "The first eight keys are seen by every query, and those behind them causally: a prompt before its answer.",
        """@tvm_cascade.jit
def prefix(q, k, v):
    return te.attention(q, k, v, mask_mod=lambda b, h, i, j: (j < 8) | (j <= i))


weights = prefix(q, k, v)[0, 0]
print((weights[0] > 0).sum(), "keys of the first query")""",
    ),
    Section(
        "attention",
        "Packed documents",
        "Several documents stand one after the other in one sequence, and a query sees the keys of its own. The mask "
        "reads the number of each position's document, a tensor that the function takes.",
        """@tvm_cascade.jit
def packed(q, k, v, document):
    return te.attention(q, k, v, mask_mod=lambda b, h, i, j: document(i).equal(document(j)) & (j <= i))


document = np.repeat(np.arange(3, dtype="int32"), (5, 12, 7))
weights = packed(q, k, v, document)[0, 0]
print((weights[-1] > 0).sum(), "keys of the last query")""",
    ),
    Section(
        "attention",
        "A linear bias",
        "`score_mod` changes a scaled score by its indices. Here a score falls with the distance of its key, by a "
        "slope for each head, as in ALiBi.",
        """@tvm_cascade.jit
def linear_bias(q, k, v, slopes):
    return te.attention(
        q,
        k,
        v,
        score_mod=lambda score, b, h, i, j: score + slopes(h) * (j - i).astype("float32"),
        mask_mod=lambda b, h, i, j: j <= i,
    )


weights = linear_bias(q, k, v, np.array([0.3], "float32"))[0, 0]
print(np.round(weights[2, :3] / weights[2, 2], 3))""",
    ),
    Section(
        "attention",
        "Sinks",
        "A sink is a further score of each head. It takes its share of the weights and has no value, so that the "
        "weights of a row sum to less than one.",
        """@tvm_cascade.jit
def sinking(q, k, v, sinks):
    return te.attention(q, k, v, sinks=sinks, mask_mod=lambda b, h, i, j: j <= i)


weights = sinking(q, k, v, np.ones(1, "float32"))[0, 0]
share = 1 - weights.sum(axis=1, keepdims=True)
print(np.round(share[:3, 0], 3))
weights = np.concatenate([share, weights], axis=1)""",
        "sink, then key",
    ),
    Section(
        "attention",
        "Lengths",
        "Sequences of a batch that are shorter than their tensors have a length each. Keys behind it are masked.",
        """@tvm_cascade.jit
def ragged(q, k, v, lengths):
    return te.attention(q, k, v, lengths=lengths)


weights = ragged(q, k, v, np.array([17], "int32"))[0, 0]
print((weights > 0).sum(axis=1).max(), "keys at most")""",
    ),
    Section(
        "attention",
        "Pages",
        "Keys and values lie in a pool of pages, and a table says which pages a sequence has, in order. Here the "
        "sequence has the third page of eight keys, then the first: columns are places in the pool.",
        """@tvm_cascade.jit
def paged(q, k, v, pages, lengths):
    return te.attention(q, k, v, pages=pages, lengths=lengths)


pool = v.reshape(3, 8, 1, 24)
weights = paged(q, np.zeros_like(pool), pool, np.array([[2, 0]], "int32"), np.array([13], "int32"))[0, 0]
print(np.flatnonzero(weights[0]))""",
        "place in the pool",
    ),
    Section(
        "softmax",
        "softmax",
        "exp(x)/Σ exp(x) along an axis. The loop has the maximum and the sum; a second pass divides.",
        """softmax = tvm_cascade.jit(te.softmax)
program = softmax.program(x)
exact = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
print(np.allclose(softmax(x), exact, atol=1e-6))""",
    ),
    Section(
        "log_softmax",
        "log_softmax",
        "x − log Σ exp(x) along an axis.",
        """log_softmax = tvm_cascade.jit(te.log_softmax)
program = log_softmax.program(x)
print(np.allclose(log_softmax(x), np.log(exact), atol=1e-5))""",
    ),
    Section(
        "logsumexp",
        "logsumexp",
        "log Σ exp(x) along an axis: one number for each row, and one pass.",
        """logsumexp = tvm_cascade.jit(te.logsumexp)
program = logsumexp.program(x)
print(np.allclose(logsumexp(x), np.log(np.exp(x).sum(axis=1)), atol=1e-5))""",
    ),
    Section(
        "cross_entropy",
        "cross_entropy",
        "log Σ exp(logits) − logits[target]: the loss of each row, whose target is the number of a class. The second "
        "pass of the picture is one element of each row.",
        """cross_entropy = tvm_cascade.jit(te.cross_entropy)
target = rng.integers(0, 512, 8, dtype="int32")
program = cross_entropy.program(x, target)
print(np.allclose(cross_entropy(x, target), -np.log(exact[np.arange(8), target]), atol=1e-5))""",
    ),
    Section(
        "layer_norm",
        "layer_norm",
        "(x − mean)/√(variance + ε), times a gain and plus a bias where they are given.",
        """layer_norm = tvm_cascade.jit(te.layer_norm)
program = layer_norm.program(x)
normed = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
print(np.allclose(layer_norm(x), normed, atol=1e-5))""",
    ),
    Section(
        "rms_norm",
        "rms_norm",
        "x/√(mean of x² + ε), times a gain where it is given. It is a single reduction, with nothing to "
        "fuse by itself. On a GPU, before a linear layer, it goes into the layer's kernel.",
        """rms_norm = tvm_cascade.jit(te.rms_norm)
program = rms_norm.program(x)
print(np.allclose(rms_norm(x), x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6), atol=1e-5))""",
    ),
    Section(
        "moments",
        "moments",
        "Mean and variance along an axis: two passes as written, one pass as a fold.",
        """moments = tvm_cascade.jit(te.moments)
program = moments.program(x)
mean, variance = moments(x)
print(np.allclose(mean, x.mean(axis=1), atol=1e-6), np.allclose(variance, x.var(axis=1), atol=1e-5))""",
    ),
    Section(
        "quantise",
        "quantise",
        "Codes of a narrow dtype and a scale for each row, by the largest element of the row: a single reduction.",
        """@tvm_cascade.jit
def quantise(x):
    return te.quantise(x, "int8")


program = quantise.program(x)
codes, scales = quantise(x)
print(codes.dtype, np.abs(codes * scales[:, None] - x).max() <= scales.max() / 2)""",
    ),
    Section(
        "router",
        "router",
        "The experts of each token by the softmax of its logits, and their weights: softmax and top-k are one loop, "
        "whose state is the maximum, the sum, and the best so far.",
        """router = tvm_cascade.jit(te.router)
program = router.program(x, 2)
shares, experts = router(x, 2)
print((experts == np.argsort(-x, axis=1)[:, :2]).all(), np.allclose(shares.sum(axis=1), 1))""",
    ),
    Section(
        "topk",
        "topk",
        "The largest elements of a row and where they are: a single reduction by a reducer of tuples.",
        """topk = tvm_cascade.jit(te.topk)
program = topk.program(x, 2)
values, indices = topk(x, 2)
print((values == -np.sort(-x, axis=1)[:, :2]).all())""",
    ),
)


def page() -> tuple[str, dict[str, str]]:
    """The page, and its pictures by path below docs."""
    namespace: dict[str, Any] = {"__name__": PAGE}
    first = INTRODUCTION.partition("```python\n")[2].partition("```")[0]
    exec(first, namespace)
    parts, pictures = [INTRODUCTION], dict[str, str]()
    for section in SECTIONS:
        path = f"{PICTURES}/{section.title.lower().replace(' ', '-')}.svg"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(section.code, namespace)
        told, pictures[path] = _drawn(section, namespace)
        parts += [
            f"## {section.title}\n\n{section.text}\n",
            f"```python\n{section.code}\n```\n",
            f"```\n{printed.getvalue()}```\n",
            f"![{section.title}: {told}]({path})\n",
        ]
    return "\n".join(parts), pictures


def _drawn(section: Section, namespace: dict[str, Any]) -> tuple[str, str]:
    """What the picture shows, in words, and the picture."""
    if section.builder == "attention":
        return "the weights of each query", weights_drawn(namespace.pop("weights"), section.columns)
    (group,) = tvm_cascade.explain(namespace.pop("program"), force=True).groups
    return f"{len(group.passes)} passes as written", picture(group.passes, group.state) + "\n"


_CELL, _LEFT, _TOP = 10, 24, 24
_SHADES = 8


def weights_drawn(weights: NDArray[np.float32], columns: str) -> str:
    """A matrix of weights as SVG: a shade for each part of the largest of a row, one path for each shade."""
    shades = np.ceil(_SHADES * weights / weights.max(axis=1, keepdims=True) - 1e-3).astype(int)
    rows, across = weights.shape
    width, height = _LEFT + across * _CELL + 8, _TOP + rows * _CELL + 8
    paths = "\n".join(
        f'<path fill="#0550ae" fill-opacity="{shade / _SHADES}" d="{_cells(shades == shade)}"/>'
        for shade in sorted({*shades.flat} - {0})
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="weights by query and {columns}">\n'
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>\n'
        f'<text x="{_LEFT}" y="16" fill="#24292f">{columns} →</text>\n'
        f'<text transform="translate(16 {_TOP}) rotate(90)" fill="#24292f">query →</text>\n'
        f'<rect x="{_LEFT}" y="{_TOP}" width="{across * _CELL}" height="{rows * _CELL}" fill="none" '
        f'stroke="#8c959f"/>\n'
        f"{paths}\n</svg>\n"
    )


def _cells(of_shade: NDArray[np.bool_]) -> str:
    """The outline of cells, neighbours of a row as one."""
    found = []
    for i, row in enumerate(of_shade):
        edges = np.flatnonzero(np.diff(np.concatenate(([False], row, [False])).astype(int)))
        for start, end in edges.reshape(-1, 2).tolist():
            left, width = _LEFT + start * _CELL, (end - start) * _CELL
            found.append(f"M{left} {_TOP + i * _CELL}h{width}v{_CELL}H{left}z")
    return "".join(found)


def main(text: str, pictures: dict[str, str]) -> None:
    """Write the page and its pictures; those of sections that are no more there go."""
    (DOCS / PICTURES).mkdir(parents=True, exist_ok=True)
    for old in (DOCS / PICTURES).glob("*.svg"):
        old.unlink()
    for path, drawn in pictures.items():
        (DOCS / path).write_text(drawn, encoding="utf-8")
    (DOCS / PAGE).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*page())

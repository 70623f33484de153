"""The catalogue: text-book cascades by name."""

from __future__ import annotations

from tvm_cascade.accuracy.catalogue import attention, comparisons, norms, statistics
from tvm_cascade.accuracy.catalogue.definition import Definition

_GROUPS = (
    statistics.MOMENTS,
    statistics.PAIRS,
    statistics.WEIGHTS,
    statistics.POSITIVE,
    attention.SOFTMAX,
    attention.DIVERGENCES,
    attention.LOSSES,
    norms.NORMS,
    norms.SCALES,
    norms.SIGNALS,
    norms.CHOICES,
    comparisons.TESTS,
    comparisons.THRESHOLDS,
    comparisons.PRODUCTS,
    comparisons.STARTS,
)

_STORED = {
    "variance of a stored half": "float16",
    "attention of one query, stored in half": "float16",
    "layer norm stored in half": "float16",
    "scale of a stored 8-bit row": "int8",
    "scale of a stored bfloat16 row": "bfloat16",
}
"""Dtypes of inputs, where they are not float32."""

_ROWS = 67
"""Of each: the largest error of a few rows is luck, and says little of twice that of the unfused program."""

CATALOGUE: dict[str, Definition] = {
    name: Definition(name, text, _STORED.get(name, "float32"), _ROWS)
    for group in _GROUPS
    for name, text in group.items()
}
"""Text-book cascades by name."""

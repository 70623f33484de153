"""The reference pages of reason codes and options as Markdown, made of the tables that the package works by."""

from __future__ import annotations

import dataclasses

from tvm_cascade.codes import CODES
from tvm_cascade.options import ENVIRONMENT_PREFIX, FuseOptions

EXAMPLES: dict[str, str] = {
    "fold": "total = sum x; out = sum (x - total/N)**2",
    "infinite_rank": "total = sum x; out = sum tanh(x - total)",
    "undefined": "m = max x; out = sum log(0 - exp(x - m))",
    "unverified": "no program of the tests or of the catalogue has it",
    "work_limit": "LayerNorm before a product, with a budget of 20 operations: `derive(cascade, work=20)`",
    "not_monotone": "total = sum x; out = min abs(x - total)",
    "order_unknown": "no program of the tests or of the catalogue has it",
    "not_order_preserving": "`topi.argmin` of |x - mean|, which keeps neither the order of x nor its reverse",
    "tuple_algebra": "a `te.comm_reducer` that takes the mean of two partial results: (a + b)/2 is not associative",
    "tuple_dependence": "a (max, sum) pair by `te.comm_reducer` over x - total",
    "rounding": "a = max abs(x); out = sum ceil(127*x/a)",
    "rounding_rank": "x - mean cast to float16 inside the sum: rounding does not commute with the shift",
    "rounding_range": "x divided by the sum of another array and cast to float16: that sum may be tiny",
    "logical_dependence": "m = max x; out = any x == m/2",
    "prod_dependence": "total = sum x; out = prod x - total",
    "reducer_dependence": "a reducer of your own, such as xor, over elements that read a maximum",
    "rank_limit": "total = sum x; out = sum (x - total)**6",
    "separation_unknown": "exp(float16(x - log(t)/2) - s): a rounding between two results",
    "reducer": "a `te.comm_reducer` whose combine calls erf",
    "intrinsic": "`erf(x - total)` in a sum",
    "several_element_parts": "no program of the tests or of the catalogue has it",
    "select_on_result": "what is summed where a masked cube (x - total)**3 attains its own maximum",
    "result_index": "the maximum of row i + 1 is read in row i",
    "axis_mismatch": "the first reduction runs over rows of a square, the second over its columns",
    "integer": "the sum of int32 elements that read an int32 sum",
    "defect": "no program of the tests or of the catalogue has it; it stands for mistakes of ours",
    "single_reduction": "out = sum x",
    "dependence_cycle": "a mean over all rows' results stands between two reductions of a row",
    "scheduled": "`sch.parallel` or `sch.vectorize` before the pass",
    "binding": "two loops of a block that add up to one of its variables, so that some positions come twice",
    "carried": "a running sum: b at i is b at i - 1, plus a at i",
    "tirx": "plain loops without blocks",
    "symbolic_shape": "a triangular nest: the inner loop ends at the outer one's variable",
    "empty_axis": "an axis of length 0",
    "opaque_block": "a block with two stores, or with `T.alloc_buffer` where `T.sblock_alloc_buffer` is meant",
    "predicate": "`T.where` in front of a plain store to the caller's buffer",
    "overwritten": "softmax in place",
    "extern": "`topi.sort`, or a call into a library",
    "unsupported_shape": "results stored at `o[(v + 1) // 2, (v + 1) % 2]`, a layout that is no box",
    "not_smooth": "`gradient` of x cast to int8, of floor(x), or of what is summed where x == max x",
    "no_adjoint": "`gradient` of out = prod x",
    "not_invertible": "`gradient` by the rows of a table, of which a tensor of indices tells which are read",
    "unguarded": "on a GPU: the sum of v/s[1], where the other part of s is not read",
    "cost": "LayerNorm before a matrix product on a CPU, where every column of the product has a state to move",
}
"""By code, a program that has it: statements of the text-book cascades of `benchmarks.check`, or a sentence."""

ADVISED: dict[str, str] = {
    "infinite_rank": "total = sum x; out = sum exp(x - total)",
    "undefined": "m = max x; out = sum log(exp(x - m))",
    "not_monotone": "total = sum x; least = min x; out = abs(least - total)",
    "rounding": "a = max abs(x); s = sum 127*x/a; out = ceil(s)",
    "logical_dependence": "m = max x; out = any x >= m/2",
    "prod_dependence": "total = sum x; out = prod x*total",
    "rank_limit": "s = sum x; q = sum x**2; c = sum x**3; out = c - 3*s*q + 3*s**2*s - N*s**3",
}
"""By code, a program that follows its hint, and fuses: where its example is statements, and the hint changes these."""

_REASONS = """# Why a program does not fuse: reason codes

Every group of reductions has a verdict with a stable code, never a silent no. `explain` prints it with the buffers and
the expression concerned and, where a law fails, with numbers on which it does. `python -m tvm_cascade reasons` prints
this list. Where an example is statements, N is the length of the axis, and x what is read at a position.

Written by `python -m tvm_cascade reasons --markdown`.
"""

_OPTIONS = """# Options

Fields of `tvm_cascade.FuseOptions`, keyword arguments of the pass, of `compile` and of `explain`, variables, and flags
of the commands that fuse. A keyword goes before a variable. `python -m tvm_cascade options` prints what is in force.

Compiled code is kept on disk in `$XDG_CACHE_HOME/tvm-cascade/code` (`~/.cache/tvm-cascade/code` by default), of at most
`TVM_CASCADE_CACHE_MIB` MiB (4096): what was used longest ago goes first, and 0 keeps nothing
([api](api.md#code-on-disk)). Not kept is what `FuseCascadedReductions` and `explain` find out.

Written by `python -m tvm_cascade options --markdown`.

| option | flag, variable | default | meaning |
|---|---|---|---|
"""


def is_cascade(example: str) -> bool:
    """Whether an example is statements of the catalogue's language."""
    return " = " in example and "`" not in example


def example_of(code: str) -> str:
    return f"`{EXAMPLES[code]}`" if is_cascade(EXAMPLES[code]) else EXAMPLES[code]


def reasons_page() -> str:
    """A section for every code: verdict, law, example, remedy."""
    sections = []
    for code, (verdict, law, hint) in CODES.items():
        rows = [f"*{verdict}*: {law}.", f"Example: {example_of(code)}."]
        advised = f": `{ADVISED[code]}`" if code in ADVISED else ""
        sections.append("\n\n".join([f"## {code}", *rows, *([f"To make it fuse: {hint}{advised}."] if hint else [])]))
    return "\n".join([_REASONS, "\n\n".join(sections), ""])


def options_page() -> str:
    """A row for every option of the pass."""
    rows = []
    for option in dataclasses.fields(FuseOptions):
        named = f"`--{option.name.replace('_', '-')}`, `{ENVIRONMENT_PREFIX}{option.name.upper()}`"
        choices = f"; of {', '.join(option.metadata['choices'])}" if option.metadata["choices"] else ""
        rows.append(f"| `{option.name}` | {named} | `{option.default!r}` | {option.metadata['meaning']}{choices} |")
    return _OPTIONS + "\n".join(rows) + "\n"

"""Examples of reason codes: by code, a program that has it."""

from __future__ import annotations

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
"""Statements of the text-book cascades of `benchmarks.check`, or a sentence."""


def is_cascade(example: str) -> bool:
    """Whether an example is statements of the catalogue's language."""
    return " = " in example and "`" not in example


def example_of(code: str) -> str:
    return f"`{EXAMPLES[code]}`" if is_cascade(EXAMPLES[code]) else EXAMPLES[code]

"""Why a verdict was reached: every code with its verdict, its law or limit, and what would make a program fuse.

`fused`: the rewrite was made. `refused`: no fold under the contract, shown by numbers where there are some. `unknown`:
a limit of ours. `declined`: legal, but slower by the cost model. `nothing to fuse`: no cascade is there, and nothing is
amiss. Codes are stable between releases; those of the algebra stand beside those of the passes that read programs.
"""

from __future__ import annotations

from enum import Enum

from tvm_cascade.symbolic.separate import RANK_LIMIT


class Verdict(str, Enum):
    """The outcome of a candidate group."""

    FUSED = "fused"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    DECLINED = "declined"
    NOTHING = "nothing to fuse"

    def __str__(self) -> str:
        return self.value


CODES: dict[str, tuple[Verdict, str, str]] = {
    "fold": (Verdict.FUSED, "every reduction has a fold, and every obligation holds where it was checked", ""),
    "infinite_rank": (
        Verdict.REFUSED,
        f"the element is no sum of up to {RANK_LIMIT} products G(x)·H(d), so no {RANK_LIMIT} sums give its sum",
        "make the dependence on the earlier result a factor, a translation under exp or a polynomial",
    ),
    "undefined": (
        Verdict.UNKNOWN,
        "the cascade is not real and finite at any point that was tried, so no fold can be checked",
        "check the divisions, roots and constants of the elements",
    ),
    "unverified": (
        Verdict.UNKNOWN,
        "a fold was derived, but on all data that were tried the balls of its check are too large to tell",
        "scale the elements, or the results that stand under exponentials",
    ),
    "work_limit": (
        Verdict.UNKNOWN,
        "the derivation needs more operations than its budget allows",
        "split the reduction, or write its element with fewer terms and earlier results",
    ),
    "not_monotone": (
        Verdict.REFUSED,
        "max and min pass only through maps that are monotone or convex in one part of the element",
        "reduce the part that does not depend on the earlier result, and apply the map afterwards",
    ),
    "order_unknown": (
        Verdict.UNKNOWN,
        "max or min over the element may keep few positions, but no law for that was found",
        "write the element as a monotone or convex map of one part",
    ),
    "not_order_preserving": (
        Verdict.REFUSED,
        "argmax, argmin and top-k pass only through monotone or convex maps of one part that keep unequal keys unequal",
        "select by the part that does not depend on the earlier result, and apply the map to what was selected",
    ),
    "tuple_algebra": (
        Verdict.REFUSED,
        "a reducer of your own, of numbers or of tuples, must be associative and commutative, and its identity neutral",
        "write a combine and an identity for which both hold; let equal keys be decided by an index",
    ),
    "tuple_dependence": (
        Verdict.UNKNOWN,
        "elements of a tuple reducer may not read earlier results, except keys of a selection",
        "split the tuple into reductions of its own, or apply the earlier result afterwards",
    ),
    "rounding": (
        Verdict.REFUSED,
        "a cast, or a rounding to whole numbers, inside the element rounds at the final scale, and its dtype is not "
        "listed in `rescalable_casts`",
        "round the result of the reduction instead of its element; of floats, list the dtype in `rescalable_casts`",
    ),
    "rounding_rank": (
        Verdict.REFUSED,
        "rounding commutes with a change of scale, but not with the shift that this element needs",
        "cast the result of the reduction instead of its element",
    ),
    "rounding_range": (
        Verdict.REFUSED,
        "a scale that is no extremum of the elements may put them out of the range of the dtype they are rounded to",
        "scale by a bound of the elements, as their largest magnitude is, or cast the result of the reduction",
    ),
    "logical_dependence": (
        Verdict.REFUSED,
        "a conjunction or disjunction fuses only over order comparisons with an earlier result, by extrema",
        "compare one quantity at a time, by order",
    ),
    "prod_dependence": (
        Verdict.REFUSED,
        "a product passes only through factors: Π G(x)·H(d) = (Π G(x))·H(d)^N",
        "make the dependence on the earlier result a factor",
    ),
    "reducer_dependence": (
        Verdict.UNKNOWN,
        "no law covers this reducer over elements that read an earlier result",
        "reduce the part that does not depend on the earlier result, and apply the rest afterwards",
    ),
    "rank_limit": (
        Verdict.UNKNOWN,
        "the state would need more components than the limit",
        "expand the element, reduce each power of the data in a sum of its own, and combine these afterwards",
    ),
    "separation_unknown": (
        Verdict.UNKNOWN,
        "the element looks to be of finite rank, but no separation was found",
        "write it as a polynomial, an exponential of a sum, or products of these",
    ),
    "reducer": (
        Verdict.UNKNOWN,
        "the reducer is not one of sum, prod, max, min, and, or, nor one of your own whose combine can be read",
        "use one of those reducers, or write the combine with arithmetic, comparisons, selections, exp, log and sqrt",
    ),
    "intrinsic": (
        Verdict.UNKNOWN,
        "an earlier result is an argument of a function with no algebra here",
        "write it with exp, log, sqrt, tanh, sigmoid, sin, cos, sinh, cosh, tan, atan, abs and powers; others stay a "
        "pass of their own",
    ),
    "several_element_parts": (
        Verdict.UNKNOWN,
        "max or min over an element with several parts that depend on the position",
        "combine those parts before the earlier result enters",
    ),
    "select_on_result": (
        Verdict.UNKNOWN,
        "a condition in the element compares what varies along the axis with an earlier result",
        "move the condition out of the reduction, or express it with max or min",
    ),
    "result_index": (
        Verdict.UNKNOWN,
        "an earlier result is read at an index that is not a plain row variable",
        "read the earlier result at the row's own index, and apply what reads it elsewhere after the reduction",
    ),
    "axis_mismatch": (
        Verdict.REFUSED,
        "the reductions run over different axes or iteration domains",
        "reduce over the same axis in the same order",
    ),
    "integer": (
        Verdict.UNKNOWN,
        "an integer reduction, or integer arithmetic that wraps around or truncates, reads an earlier result",
        "cast to floating point before the arithmetic, and reduce there",
    ),
    "defect": (Verdict.UNKNOWN, "a derived fold or its rewrite failed our own checks", "report the program"),
    "single_reduction": (
        Verdict.NOTHING,
        "no reduction reads the result of another over the same axis, or one tensor at the same places as another",
        "",
    ),
    "dependence_cycle": (
        Verdict.REFUSED,
        "a dependence cycle: a value that the loop reads depends on one of its final results",
        "compute that value before or after the cascade",
    ),
    "scheduled": (
        Verdict.UNKNOWN,
        "the function is scheduled already: a loop is parallel, vectorised, unrolled or bound",
        "run the pass before any schedule",
    ),
    "binding": (
        Verdict.UNKNOWN,
        "the loops around a block do not map one to one to its variables",
        "bind each variable to a loop, or to sums or digits of loops that count through its domain once",
    ),
    "carried": (
        Verdict.UNKNOWN,
        "a loop-carried dependence: an iteration may read what another wrote, as in a scan",
        "move the carried computation into a separate nest, before or after the cascade",
    ),
    "tirx": (
        Verdict.UNKNOWN,
        "there are no S-TIR blocks around what is computed",
        "start from TE, LegalizeOps, or TVMScript with s_tir=True and T.sblock around every store",
    ),
    "symbolic_shape": (
        Verdict.UNKNOWN,
        "an extent depends on another loop",
        "give the loop its whole extent, and mask what is beyond",
    ),
    "empty_axis": (
        Verdict.NOTHING,
        "a block runs over no positions, so nothing is computed",
        "give every loop of the block a length of one or more",
    ),
    "opaque_block": (
        Verdict.UNKNOWN,
        "a block is opaque: it is no single store over spatial and reduction axes",
        "write it as plain stores, one in a block",
    ),
    "predicate": (
        Verdict.UNKNOWN,
        "where its predicate is false, a block leaves its buffer unwritten, or a reduction without its init",
        "write the condition into the value, or fill the buffer in a block of its own before",
    ),
    "overwritten": (
        Verdict.UNKNOWN,
        "a write-after-read hazard: a block writes over what is read, so its buffer has several values in turn",
        "write to a buffer of its own",
    ),
    "extern": (Verdict.UNKNOWN, "a block calls code that cannot be read", "write the computation in TE or TVMScript"),
    "unsupported_shape": (
        Verdict.UNKNOWN,
        "the rewrite has no form for the way these axes are laid out",
        "report the program",
    ),
    "not_smooth": (
        Verdict.REFUSED,
        "no gradient passes through a rounding, a condition on results, or a function that is not known",
        "leave what it reads out of `wrt`, or write it with arithmetic, selections by inputs and elementary functions",
    ),
    "no_adjoint": (
        Verdict.UNKNOWN,
        "a product, and a reducer of your own, have no gradient here",
        "write a product as the exponential of a sum of logarithms, and a reducer of tuples as reductions of numbers",
    ),
    "not_invertible": (
        Verdict.UNKNOWN,
        "there is no formula for where an element is read, as behind a table of rows",
        "leave that input out of `wrt`, or read it at sums, multiples, quotients and remainders of loop variables",
    ),
    "unguarded": (
        Verdict.DECLINED,
        "the certificate does not bound a result, and the unfused reduction cannot be run again where it fails",
        'write the results into buffers of their own, or pass guards="off"',
    ),
    "cost": (Verdict.DECLINED, "the fused form is estimated to be slower than the unfused program", "pass force=True"),
}
"""Code -> (verdict, the law or limit, what would make it fuse)."""

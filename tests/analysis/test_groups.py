"""Groups: which reductions of a program form a cascade, over which axis, in which atoms; and which do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.algebra.cascade import Cascade
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.verdict import Refusal
from tvm_cascade.analysis import extract
from tvm_cascade.analysis.extract import Candidate, Group, Reductions
from tvm_cascade.analysis.passes import passes_of
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.obligations.derive import remembered

from .programs import (
    LENGTH,
    ROWS,
    Attention,
    array,
    each,
    fold,
    maximum,
    minimum,
    number,
    program,
    softmax_stages,
    softmax_stats,
    total,
)


def candidates(func: tirx.PrimFunc) -> list[Candidate]:
    found = read_program(func)
    assert isinstance(found, Program), str(found)
    return Reductions(found).cascades()


def only_group(func: tirx.PrimFunc) -> Group:
    found = candidates(func)
    assert [c.reason.code for c in found] == ["fold"], [str(c.reason) for c in found]
    assert found[0].group is not None
    return found[0].group


def only_refusal(func: tirx.PrimFunc) -> str:
    (found,) = candidates(func)
    assert found.group is None
    return found.reason.code


def varying(group: Group) -> list[str]:
    """Names of the atoms that vary along the axis."""
    return sorted(str(atom.symbol) for atom in group.atoms.atoms.values() if atom.varies)


def test_softmax_is_one_group_of_two_over_one_atom() -> None:
    group = only_group(softmax_stats())
    assert group.names == ("row_max", "row_sum")
    assert varying(group) == ["x"]
    assert group.frame.length == LENGTH
    assert [axis.name for axis in group.frame.axis] == ["l"]


def test_attention_is_one_group_whose_scores_are_an_atom() -> None:
    attention = Attention()
    group = only_group(attention.program(attention.out()))
    assert group.names == ("row_max", "row_sum", "out")
    assert varying(group) == ["scores", "v"]
    assert sorted(extent for extent in group.frame.extents.values()) == [2, 6, 8, 37]


@pytest.mark.parametrize("order", ["hid", "ihd", "hdi", "dih"])
def test_the_layout_of_an_output_does_not_matter(order: str) -> None:
    attention = Attention()
    group = only_group(attention.program(attention.out(order)))
    out = group.members[-1]
    assert [group.frame.extents[var] for var in out.dims] == [{"h": 2, "i": 6, "d": 8}[name] for name in order]


def test_keys_shared_by_a_group_of_heads_are_read_through_the_quotient() -> None:
    q, k = array("q", 4, 6, 8), array("k", 2, LENGTH, 8)
    d = te.reduce_axis((0, 8), "d")
    scores = each("scores", lambda h, i, j: te.sum(q[h, i, d] * k[h // 2, j, d], axis=d), 4, 6, LENGTH)
    row_max = fold("row_max", lambda h, i, j: scores[h, i, j], maximum, rows=(4, 6))
    row_sum = fold("row_sum", lambda h, i, j: te.exp(scores[h, i, j] - row_max[h, i]), rows=(4, 6))
    v = array("v", 2, LENGTH, 8)
    j = te.reduce_axis((0, LENGTH), "j")
    out = each(
        "out",
        lambda h, i, c: te.sum(te.exp(scores[h, i, j] - row_max[h, i]) / row_sum[h, i] * v[h // 2, j, c], axis=j),
        4,
        6,
        8,
    )
    group = only_group(program(q, k, v, out))
    assert group.names == ("row_max", "row_sum", "out")
    assert varying(group) == ["scores", "v"]


SPELLINGS: dict[str, tuple[Callable[[Expr], Expr], Callable[[Expr], Expr]]] = {
    # name: (x under the maximum, x under the exponential)
    "factor": (lambda x: x * number(0.125), lambda x: x * number(0.125)),
    "factor first": (lambda x: x * number(0.125), lambda x: number(0.125) * x),
    "divisor": (lambda x: x / number(8), lambda x: x * number(0.125)),
    "factor in two steps": (lambda x: x * number(0.125), lambda x: x * number(0.25) * number(0.5)),
    "negated twice": (lambda x: x, lambda x: number(0) - (number(0) - x)),
    "sum of halves": (lambda x: x, lambda x: x * number(0.5) + x * number(0.5)),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_scale_spelled_differently_is_the_same_atom(name: str) -> None:
    x = array("x")
    under_max, under_exp = SPELLINGS[name]
    row_max = fold("row_max", lambda i, j: under_max(x[i, j]), maximum)
    row_sum = fold("row_sum", lambda i, j: te.exp(under_exp(x[i, j]) - row_max[i]))
    group = only_group(program(x, row_max, row_sum))
    assert len(group.fold.components) == 2, str(group.fold)


def test_elementwise_stages_between_the_reductions_are_looked_through() -> None:
    x, bias = array("x"), array("bias", LENGTH)
    shifted = each("shifted", lambda i, j: x[i, j] * number(0.5) + bias[j])
    row_max, row_sum = softmax_stages(shifted)
    scaled = each("scaled", lambda i: row_max[i] * number(1), ROWS)
    weights = each("weights", lambda i, j: te.exp(shifted[i, j] - scaled[i]))
    weighted = fold("weighted", lambda i, j: weights[i, j] * x[i, j])
    group = only_group(program(x, bias, row_sum, weighted))
    assert group.names == ("row_max", "row_sum", "weighted")


def test_a_cast_to_a_wider_float_is_looked_through() -> None:
    x = array("x", dtype="float16")
    row_max = fold("row_max", lambda i, j: x[i, j].astype("float32"), maximum)
    row_sum = fold("row_sum", lambda i, j: te.exp(x[i, j].astype("float32") - row_max[i]))
    group = only_group(program(x, row_max, row_sum))
    assert varying(group) == ["x"]
    assert len(group.fold.components) == 2


@pytest.mark.parametrize("choose", [tirx.if_then_else, tirx.Select], ids=["if_then_else", "Select"])
def test_a_masked_score_is_one_atom(choose: Callable[..., Expr]) -> None:
    x, mask = array("x"), array("mask", dtype="bool")
    masked = each("masked", lambda i, j: choose(mask[i, j], x[i, j], number(float("-inf"))))
    group = only_group(program(x, mask, *softmax_stages(masked)))
    assert len(varying(group)) == 1
    assert len(group.fold.components) == 2


MASKED_ELEMENTS: dict[str, Callable[[Expr, Expr, Expr], Expr]] = {
    "zero outside": lambda keep, x, m: tirx.if_then_else(keep, te.exp(x - m), number(0)),
    "zero outside, eager": lambda keep, x, m: tirx.Select(keep, te.exp(x - m), number(0)),
    "mask as a factor": lambda keep, x, m: te.exp(x - m) * keep.astype("float32"),
    "minus infinity inside": lambda keep, x, m: te.exp(tirx.if_then_else(keep, x - m, number(float("-inf")))),
    "a large number inside": lambda keep, x, m: te.exp(tirx.if_then_else(keep, x - m, number(-1e9))),
    "one outside": lambda keep, x, m: tirx.if_then_else(keep, te.exp(x - m), number(1)),
}


@pytest.mark.parametrize("name", MASKED_ELEMENTS)
def test_a_mask_may_stand_around_or_inside_the_exponential(name: str) -> None:
    x, mask = array("x"), array("mask", dtype="bool")
    row_max = fold("row_max", lambda i, j: tirx.if_then_else(mask[i, j], x[i, j], number(float("-inf"))), maximum)
    row_sum = fold("row_sum", lambda i, j: MASKED_ELEMENTS[name](mask[i, j], x[i, j], row_max[i]))
    assert only_group(program(x, mask, row_max, row_sum)).names == ("row_max", "row_sum")


@pytest.mark.parametrize("swapped", [False, True], ids=["same order", "other order"])
def test_two_axes_are_one_cascade_axis_in_either_order(swapped: bool) -> None:
    height, width = 5, 5
    x = array("x", ROWS, height, width)
    a, b = te.reduce_axis((0, height), "a"), te.reduce_axis((0, width), "b")
    mean_sum = each("mean_sum", lambda i: te.sum(x[i, a, b], axis=[a, b]), ROWS)
    c, d = te.reduce_axis((0, height), "c"), te.reduce_axis((0, width), "d")

    def centred(i: Expr) -> Expr:
        return x[i, c, d] - mean_sum[i] / number(height * width)

    moment = each("moment", lambda i: te.sum(centred(i) * centred(i), axis=[d, c] if swapped else [c, d]), ROWS)
    group = only_group(program(x, moment))
    assert group.frame.length == height * width
    assert varying(group) == ["x"]


def test_one_row_for_all_is_a_broadcast() -> None:
    x, shared = array("x"), array("shared", 1, LENGTH)
    largest = fold("largest", lambda i, j: shared[i, j], maximum, rows=(1,))
    out = fold("out", lambda i, j: te.exp(x[i, j] - largest[0]))
    group = only_group(program(shared, x, out))
    assert group.names == ("largest", "out")


def test_a_head_dim_as_long_as_the_keys_is_still_another_axis() -> None:
    attention = Attention(queries=8, keys=8, features=8)
    group = only_group(attention.program(attention.out()))
    assert group.names == ("row_max", "row_sum", "out")
    assert varying(group) == ["scores", "v"]


def test_row_sums_then_column_sums_of_a_square_are_two_axes() -> None:
    x = array("x", 7, 7)
    rows = fold("rows", lambda i, j: x[i, j], length=7, rows=(7,))
    columns = fold("columns", lambda j, i: x[i, j] * rows[j], length=7, rows=(7,))
    assert only_refusal(program(x, columns)) == "axis_mismatch"


def test_row_sums_read_along_the_column_axis_are_no_chain() -> None:
    x = array("x", 7, 7)
    rows = fold("rows", lambda i, j: x[i, j], length=7, rows=(7,))
    columns = fold("columns", lambda j, i: x[i, j] / rows[i], length=7, rows=(7,))
    assert only_refusal(program(x, columns)) == "single_reduction"


def test_a_maximum_over_another_axis_of_the_same_scores_is_not_grouped() -> None:
    x = array("x", ROWS, 9, 9)
    down = fold("down", lambda b, j, i: x[b, i, j], maximum, 9, (ROWS, 9))
    across = fold("across", lambda b, i, j: te.exp(x[b, i, j] - down[b, i]), total, 9, (ROWS, 9))
    assert only_refusal(program(x, across)) == "axis_mismatch"


def test_reductions_of_unequal_length_are_not_grouped() -> None:
    x, y = array("x", ROWS, 11), array("y", ROWS, 13)
    row_max = fold("row_max", lambda i, j: x[i, j], maximum, 11)
    row_sum = fold("row_sum", lambda i, j: te.exp(y[i, j] - row_max[i]), total, 13)
    assert only_refusal(program(x, y, row_sum)) == "axis_mismatch"


def test_two_cascades_that_share_nothing_are_two_groups() -> None:
    x, y = array("x"), array("y", 2, 11)
    first = softmax_stages(x)
    mean_sum = fold("mean_sum", lambda i, j: y[i, j], total, 11, (2,))
    moment = fold("moment", lambda i, j: (y[i, j] - mean_sum[i]) * (y[i, j] - mean_sum[i]), total, 11, (2,))
    found = candidates(program(x, y, *first, moment))
    assert [c.names for c in found] == [("row_max", "row_sum"), ("mean_sum", "moment")]
    assert all(c.group is not None for c in found)


def test_attention_then_layer_norm_are_two_groups_over_two_axes() -> None:
    attention = Attention()
    out = attention.out()
    mean_sum = fold("mean_sum", lambda h, i, c: out[h, i, c], total, 8, (2, 6))

    def centred(h: Expr, i: Expr, c: Expr) -> Expr:
        return out[h, i, c] - mean_sum[h, i] / number(8)

    moment = fold("moment", lambda h, i, c: centred(h, i, c) * centred(h, i, c), total, 8, (2, 6))
    found = candidates(attention.program(moment))
    assert [c.names for c in found] == [("row_max", "row_sum", "out"), ("mean_sum", "moment")]
    assert [c.group.frame.length for c in found if c.group] == [LENGTH, 8]


def test_a_part_of_the_blocks_may_be_asked_for() -> None:
    attention = Attention()
    found = read_program(attention.program(attention.out()))
    assert isinstance(found, Program)
    (candidate,) = Reductions(found).cascades(only=["row_max", "row_sum"])
    assert candidate.names == ("row_max", "row_sum") and candidate.group is not None


@pytest.mark.parametrize(
    ("index", "code"),
    [(lambda i: ROWS - 1 - i, "result_index"), (lambda i: i // 2, "result_index"), (lambda i: i, "fold")],
    ids=["reversed row", "half a row", "own row"],
)
def test_a_result_must_be_read_at_the_row_itself(index: Callable[[Expr], Expr], code: str) -> None:
    x = array("x")
    row_max = fold("row_max", lambda i, j: x[i, j], maximum)
    row_sum = fold("row_sum", lambda i, j: te.exp(x[i, j] - row_max[index(i)]))
    assert [c.reason.code for c in candidates(program(x, row_sum))] == [code]


def of_two_rows(element: Callable[[te.Tensor, te.Tensor, Expr, Expr], Expr]) -> tirx.PrimFunc:
    """x -> Σ of the products of an element at every two rows."""
    x = array("x")
    row_max = fold("row_max", lambda i, j: x[i, j], maximum)
    return program(
        x, fold("out", lambda i, k, j: element(x, row_max, i, j) * element(x, row_max, k, j), rows=(ROWS, ROWS))
    )


def test_a_result_that_is_read_at_two_rows_is_two_results_to_the_loop() -> None:
    group = only_group(of_two_rows(lambda x, m, i, j: te.exp(x[i, j] - m[i])))
    assert group.names == ("row_max", "out") and len(group.members) == 3
    first, second, out = (member.dims for member in group.members)
    assert first[0].same_as(out[0]) and second[0].same_as(out[1]) and not out[0].same_as(out[1])


def test_what_a_result_of_two_rows_is_computed_from_is_one_result_still() -> None:
    """The norm would be needed at two rows as well, of which the element reads neither."""
    x = array("x")
    row_max = fold("row_max", lambda i, j: x[i, j], maximum)
    norm = fold("norm", lambda i, j: te.exp(x[i, j] - row_max[i]))
    share = lambda i, j: te.exp(x[i, j] - row_max[i]) / norm[i]  # noqa: E731
    pairs = fold("pairs", lambda i, k, j: share(i, j) * share(k, j), rows=(ROWS, ROWS))
    assert ("result_index", ("row_max", "norm", "pairs")) in [
        (c.reason.code, c.names) for c in candidates(program(x, pairs))
    ]


def test_fixed_parts_of_a_result_are_results_of_their_own() -> None:
    mass, position = array("mass"), array("position", ROWS, LENGTH, 2)
    total_mass = fold("total_mass", lambda i, j: mass[i, j])
    weighted = fold("weighted", lambda i, c, j: mass[i, j] * position[i, j, c], rows=(ROWS, 2))

    def offset(i: Expr, j: Expr, c: int) -> Expr:
        return position[i, j, c] - weighted[i, c] / total_mass[i]

    out = fold("out", lambda i, j: mass[i, j] * (offset(i, j, 0) * offset(i, j, 0) + offset(i, j, 1) * offset(i, j, 1)))
    group = only_group(program(mass, position, out))
    assert set(group.names) == {"total_mass", "weighted", "out"}
    assert {str(member.result) for member in group.members if member.is_slice} == {"weighted_0", "weighted_1"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many reductions each cascade has of which a fold is asked for."""
    lengths: list[int] = []

    def counted(cascade: Cascade, *options: object) -> Fold | Refusal:
        lengths.append(len(cascade.reductions))
        return remembered(cascade, *options)  # type: ignore[arg-type]

    monkeypatch.setattr(extract, "remembered", counted)
    return lengths


def test_a_chain_is_derived_at_once_and_not_link_by_link(asked: list[int]) -> None:
    x = array("x")
    stages = [fold("s0", lambda i, j: x[i, j])]
    for k in range(1, 6):
        stages.append(fold(f"s{k}", lambda i, j, s=stages[-1]: x[i, j] - s[i] / number(LENGTH)))
    assert len(only_group(program(x, stages[-1])).names) == 6
    assert asked == [6]


def test_what_is_refused_after_the_same_reductions_is_refused_once(asked: list[int]) -> None:
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    square = fold("square", lambda i, j: (x[i, j] - s[i]) * (x[i, j] - s[i]))
    wave = fold("wave", lambda i, j: te.tanh(x[i, j] - square[i]))
    out = fold("out", lambda i, j: x[i, j] * wave[i] - square[i])
    found = candidates(program(x, out))
    assert [(c.reason.code, c.names) for c in found] == [
        ("fold", ("s", "square")),
        ("infinite_rank", ("s", "square", "wave")),
        ("infinite_rank", ("s", "square", "wave", "out")),
    ]
    assert asked == [4, 2]


def test_links_before_one_that_has_no_fold_are_a_group_all_the_same() -> None:
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    square = fold("square", lambda i, j: (x[i, j] - s[i]) * (x[i, j] - s[i]))
    out = fold("out", lambda i, j: te.tanh(x[i, j] - square[i]))
    found = candidates(program(x, out))
    assert [(c.reason.code, c.names) for c in found] == [
        ("fold", ("s", "square")),
        ("infinite_rank", ("s", "square", "out")),
    ]


@pytest.mark.parametrize(("dtype", "refused"), [("int8", True), ("uint8", True), ("int32", False)])
def test_integers_that_wrap_around_are_not_numbers(dtype: str, refused: bool) -> None:
    """x − max x is beyond int8, and below 0 for uint8."""
    x = array("x", ROWS, LENGTH, dtype=dtype)
    top = fold("top", lambda i, j: x[i, j], maximum)
    func = program(x, fold("total", lambda i, j: te.exp((x[i, j] - top[i]).astype("float32"))))
    if refused:
        (found,) = candidates(func)
        assert found.reason.code == "integer"
        assert f"in {dtype}, which wraps around" in found.reason.detail
    else:
        assert only_group(func).names == ("top", "total")


def test_reductions_that_read_a_row_apart_are_one_group_of_independent_folds() -> None:
    x, y = array("x"), array("y", LENGTH)
    low = fold("low", lambda i, j: x[i, j], minimum)
    high = fold("high", lambda i, j: te.exp(x[i, j]) * y[j], maximum)
    mean = fold("mean", lambda i, j: x[i, j] * x[i, j])
    group = only_group(program(x, y, low, high, mean))
    assert group.names == ("low", "high", "mean") and len(group.fold.components) == 3
    assert not group.fold.references and len(group.frame.extents) == 2


def test_rows_are_alike_by_where_they_read_and_not_by_their_order() -> None:
    x = array("x", 5, 7, LENGTH, 3)
    j, k, m, n = (te.reduce_axis((0, extent), "l") for extent in (LENGTH, 3, 3, LENGTH))
    b = te.compute((5, 7), lambda p, q: te.sum(x[p, q, j, k], axis=[j, k]), name="b")
    h = te.compute((7, 5), lambda q, p: te.max(x[p, q, n, m], axis=[m, n]), name="h")
    group = only_group(program(x, b, h))
    assert group.names == ("b", "h") and sorted(group.frame.extents.values()) == [3, 5, 7, LENGTH]
    assert [group.frame.extents[v] for v in group.members[1].dims] == [7, 5]


def apart_rows_and_columns() -> tirx.PrimFunc:
    x = array("x", 7, 7)
    rows = fold("rows", lambda i, j: x[i, j], length=7, rows=(7,))
    return program(x, rows, fold("columns", lambda j, i: x[i, j], length=7, rows=(7,)))


def apart_tensors() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    return program(x, y, fold("one", lambda i, j: x[i, j]), fold("other", lambda i, j: y[i, j], maximum))


def apart_in_length() -> tirx.PrimFunc:
    x = array("x")
    return program(x, fold("whole", lambda i, j: x[i, j]), fold("part", lambda i, j: x[i, j], maximum, LENGTH - 1))


def apart_by_a_shift() -> tirx.PrimFunc:
    x = array("x", ROWS, LENGTH + 1)
    return program(x, fold("one", lambda i, j: x[i, j]), fold("next", lambda i, j: x[i, j + 1], maximum))


def products_of_one_matrix() -> tirx.PrimFunc:
    x, a, b = array("x"), array("a", LENGTH, 5), array("b", LENGTH, 5)
    first = fold("first", lambda i, k, j: x[i, j] * a[j, k], rows=(ROWS, 5))
    return program(x, a, b, first, fold("second", lambda i, k, j: x[i, j] * b[j, k], rows=(ROWS, 5)))


@pytest.mark.parametrize(
    "build", [apart_rows_and_columns, apart_tensors, apart_in_length, apart_by_a_shift, products_of_one_matrix]
)
def test_reductions_that_share_no_pass_stay_apart(build: Callable[[], tirx.PrimFunc]) -> None:
    assert only_refusal(build()) == "single_reduction"


def test_what_depends_on_a_result_does_not_share_its_pass() -> None:
    """Though all three read x alike, and the second is refused as a cascade with the first."""
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    spread = fold("spread", lambda i, j: te.tanh(x[i, j] - s[i]))
    found = candidates(program(x, spread, fold("top", lambda i, j: x[i, j], maximum)))
    assert [(c.reason.code, c.names) for c in found] == [("fold", ("s", "top")), ("infinite_rank", ("s", "spread"))]


def test_a_group_by_dependence_stays_what_it_is_beside_reductions_of_its_tensor() -> None:
    x = array("x")
    low, mean = fold("low", lambda i, j: x[i, j], minimum), fold("mean", lambda i, j: x[i, j])
    found = candidates(program(x, *softmax_stages(x), low, mean))
    assert [c.names for c in found] == [("row_max", "row_sum"), ("low", "mean")]


def distances() -> te.Tensor:
    x, c, d = array("x", ROWS, 8), array("c", LENGTH, 8), te.reduce_axis((0, 8), "d")
    return each("distances", lambda i, j: te.sum((x[i, d] - c[j, d]) * (x[i, d] - c[j, d]), axis=d))


def test_a_reduction_of_a_product_is_a_group_that_computes_it_inside() -> None:
    between = distances()
    func = program(*between.op.input_tensors, fold("nearest", lambda i, j: between[i, j], minimum))
    read = read_program(func)
    assert isinstance(read, Program)
    (found,) = Reductions(read).cascades()
    assert found.group is not None and found.group.names == ("nearest",)
    assert [stage.buffer.name for stage in passes_of(read, found.group).inside] == ["distances", "nearest"]


@pytest.mark.parametrize("kept", ["an output", "read twice", "sums"])
def test_a_product_that_is_stored_anyway_is_not_computed_inside(kept: str) -> None:
    between, x = distances(), array("y")
    nearest = fold("nearest", lambda i, j: between[i, j], minimum)
    if kept == "an output":
        func = program(*between.op.input_tensors, between, nearest)
    elif kept == "read twice":  # again for each of the columns
        func = program(
            *between.op.input_tensors, x, fold("out", lambda i, k, j: between[i, j] * x[k, j], rows=(ROWS, ROWS))
        )
    else:
        rows = fold("rows", lambda i, j: x[i, j])
        func = program(x, fold("whole", lambda j: rows[j], length=ROWS, rows=()))
    assert only_refusal(func) == "single_reduction"


def test_a_product_that_a_cascade_computes_inside_is_not_computed_for_another_reduction_too() -> None:
    """And what the cascade computes inside, a sum over parts of products, is no group of its own."""
    between, part = distances(), te.reduce_axis((0, 3), "part")
    nearest = fold("nearest", lambda i, j: between[i, j], minimum)
    found = candidates(program(*between.op.input_tensors, *softmax_stages(between), nearest))
    assert [c.names for c in found] == [("row_max", "row_sum")]
    x, w, d = array("x", 3, ROWS, 8), array("w", 3, LENGTH, 8), te.reduce_axis((0, 8), "d")
    parts = each("parts", lambda p, i, j: te.sum(x[p, i, d] * w[p, j, d], axis=d), 3, ROWS, LENGTH)
    summed = each("summed", lambda i, j: te.sum(parts[part, i, j], axis=part))
    assert only_group(program(x, w, *softmax_stages(summed))).names == ("row_max", "row_sum")

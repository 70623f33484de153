"""What the caller asks for: every output stays right, intermediates included, in whatever layout."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

import tvm_cascade
from tvm_cascade.analysis.statements import ROLE
from tvm_cascade.evaluate.oracle import evaluate

from ..analysis.programs import (
    LENGTH,
    ROWS,
    Attention,
    array,
    conjunction,
    each,
    fold,
    maximum,
    number,
    program,
    softmax_stages,
    total,
)
from .running import Arrays, Unfused, assert_close, read
from .test_fused_form import blocks, tile_loops

RNG_SEED = 7


def normal(*shapes: tuple[int, ...]) -> Arrays:
    rng = np.random.default_rng(RNG_SEED)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def check(unfused: Unfused, given: Arrays) -> None:
    unfused.check(given, tile=4, segments=2)


QKV = ((2, 6, 8), (2, LENGTH, 8), (2, LENGTH, 8))

ATTENTION: dict[str, Callable[[Attention], list[te.Tensor]]] = {
    "out": lambda a: [a.out()],
    "out in [i, h, d]": lambda a: [a.out("ihd")],
    "out in [h, d, i]": lambda a: [a.out("hdi")],
    "out, statistics": lambda a: [a.out(), a.row_max, a.row_sum],
    "statistics first": lambda a: [a.row_sum, a.row_max, a.out()],
    "out, probabilities": lambda a: [a.out(), a.probs],
    "out, scores": lambda a: [a.out(), a.scores],
    "out, weights": lambda a: [a.out(), a.weights],
    "everything": lambda a: [a.scores, a.row_max, a.weights, a.row_sum, a.probs, a.out()],
    "probabilities alone": lambda a: [a.probs],
    "statistics alone": lambda a: [a.row_max, a.row_sum],
}


@pytest.mark.parametrize("name", ATTENTION)
def test_whatever_is_asked_of_attention_is_right(name: str) -> None:
    attention = Attention()
    check(read(attention.program(*ATTENTION[name](attention))), normal(*QKV))


def test_scores_that_are_asked_for_are_computed_once_and_others_within_the_tile() -> None:
    attention = Attention()
    alone, with_scores = (
        read(attention.program(attention.out(), *more)).fuse(tile=5) for more in ([], [attention.scores])
    )
    roles = [[block.annotations.get(ROLE) for block in blocks(func.body)] for func in (alone, with_scores)]
    assert "producer" in roles[0] and "producer" not in roles[1]
    names = [block.name_hint for block in blocks(with_scores.body)]
    assert names.count("scores") == 1


def test_results_nobody_asks_for_are_not_written() -> None:
    attention = Attention()
    func = read(attention.program(attention.out())).fuse(tile=5)
    assert len(tile_loops(func)) == 1
    finishing = [b.name_hint for b in blocks(func.body) if b.annotations.get(ROLE) == "finish"]
    assert len(finishing) == 1


def test_attention_then_layer_norm_is_right_in_one_function() -> None:
    attention = Attention()
    out = attention.out()
    mean_sum = fold("mean_sum", lambda h, i, c: out[h, i, c], total, 8, (2, 6))

    def centred(h: Expr, i: Expr, c: Expr) -> Expr:
        return out[h, i, c] - mean_sum[h, i] / number(8)

    moment = fold("moment", lambda h, i, c: centred(h, i, c) * centred(h, i, c), total, 8, (2, 6))
    normed = each(
        "normed", lambda h, i, c: centred(h, i, c) * te.rsqrt(moment[h, i] / number(8) + number(1e-5)), 2, 6, 8
    )
    unfused = read(attention.program(normed))
    assert len(unfused.groups) == 2
    check(unfused, normal(*QKV))


def test_layer_norm_before_attention_stays_where_its_values_are_ready() -> None:
    x, k, v = array("x", 6, 8), array("k", LENGTH, 8), array("v", LENGTH, 8)
    mean_sum = fold("mean_sum", lambda i, c: x[i, c], total, 8, (6,))

    def centred(i: Expr, c: Expr) -> Expr:
        return x[i, c] - mean_sum[i] / number(8)

    moment = fold("moment", lambda i, c: centred(i, c) * centred(i, c), total, 8, (6,))
    q = each("q", lambda i, c: centred(i, c) * te.rsqrt(moment[i] / number(8) + number(1e-5)), 6, 8)
    d = te.reduce_axis((0, 8), "d")
    scores = each("scores", lambda i, j: te.sum(q[i, d] * k[j, d], axis=d), 6, LENGTH)
    row_max, row_sum = softmax_stages(scores, rows=6)
    out = fold("out", lambda i, c, j: te.exp(scores[i, j] - row_max[i]) / row_sum[i] * v[j, c], rows=(6, 8))
    unfused = read(program(x, k, v, out))
    assert len(unfused.groups) == 2
    check(unfused, normal((6, 8), (LENGTH, 8), (LENGTH, 8)))


def test_a_result_used_twice_afterwards_is_right_in_both_places() -> None:
    x = array("x")
    row_max, row_sum = softmax_stages(x)
    entropy_like = each("entropy_like", lambda i: te.log(row_sum[i]) + row_max[i], ROWS)
    ratio = each("ratio", lambda i, j: te.exp(x[i, j] - row_max[i]) / row_sum[i] * entropy_like[i])
    check(read(program(x, entropy_like, ratio)), normal((ROWS, LENGTH)))


def test_a_stage_between_two_results_is_kept_for_others_that_read_it() -> None:
    x = array("x")
    mean_sum = fold("mean_sum", lambda i, j: x[i, j])
    mean = each("mean", lambda i: mean_sum[i] / number(LENGTH), ROWS)
    moment = fold("moment", lambda i, j: (x[i, j] - mean[i]) * (x[i, j] - mean[i]))
    centred = each("centred", lambda i, j: x[i, j] - mean[i])
    check(read(program(x, mean, moment, centred)), normal((ROWS, LENGTH)))


@pytest.mark.parametrize("rank", ["0-d result", "0-d program", "unit row"])
def test_results_without_rows_are_right(rank: str) -> None:
    x, shared = array("x"), array("shared", 1, LENGTH)
    if rank == "0-d result":
        largest = fold("largest", lambda j: shared[0, j], maximum, rows=())
        out = fold("out", lambda i, j: te.exp(x[i, j] - largest()))
        func = program(shared, x, out)
    elif rank == "0-d program":
        mean_sum = fold("mean_sum", lambda j: shared[0, j], rows=())
        centred = lambda j: shared[0, j] - mean_sum() / number(LENGTH)  # noqa: E731
        func = program(shared, fold("out", lambda j: centred(j) * centred(j), rows=()))
    else:
        largest = fold("largest", lambda i, j: shared[i, j], maximum, rows=(1,))
        func = program(shared, x, largest, fold("out", lambda i, j: te.exp(x[i, j] - largest[0])))
    given = normal((1, LENGTH)) if rank == "0-d program" else normal((1, LENGTH), (ROWS, LENGTH))
    check(read(func), given)


@pytest.mark.parametrize("swapped", [False, True], ids=["same order", "other order"])
def test_two_axes_are_folded_as_one_whatever_their_order(swapped: bool) -> None:
    height, width = 5, 7
    x = array("x", ROWS, height, width)
    a, b = te.reduce_axis((0, height), "a"), te.reduce_axis((0, width), "b")
    mean_sum = each("mean_sum", lambda i: te.sum(x[i, a, b], axis=[a, b]), ROWS)
    c, d = te.reduce_axis((0, height), "c"), te.reduce_axis((0, width), "d")

    def centred(i: Expr) -> Expr:
        return x[i, c, d] - mean_sum[i] / number(height * width)

    moment = each("moment", lambda i: te.sum(centred(i) * centred(i), axis=[d, c] if swapped else [c, d]), ROWS)
    unfused = read(program(x, moment))
    given = normal((ROWS, height, width))
    for tile, segments in ((1, 1), (2, 3), (3, 4), (7, 2), (9, 99)):
        unfused.check(given, tile=tile, segments=segments)


def test_an_axis_that_is_not_the_last_is_folded_in_place() -> None:
    x = array("x", 3, LENGTH, 4)
    row_max = fold("row_max", lambda i, c, j: x[i, j, c], maximum, rows=(3, 4))
    row_sum = fold("row_sum", lambda i, c, j: te.exp(x[i, j, c] - row_max[i, c]), rows=(3, 4))
    probs = each("probs", lambda i, j, c: te.exp(x[i, j, c] - row_max[i, c]) / row_sum[i, c], 3, LENGTH, 4)
    check(read(program(x, row_sum, probs)), normal((3, LENGTH, 4)))


def test_an_axis_read_backwards_is_still_the_axis() -> None:
    x = array("x")
    row_max = fold("row_max", lambda i, j: x[i, j], maximum)
    out = fold("out", lambda i, j: te.exp(x[i, LENGTH - 1 - j] - row_max[i]))
    check(read(program(x, row_max, out)), normal((ROWS, LENGTH)))


def test_other_rows_results_are_read_where_the_element_asks_for_them() -> None:
    x = array("x")
    row_max = fold("row_max", lambda i, j: x[i, j], maximum)
    outer = fold("outer", lambda i, k, j: te.exp(x[i, j] - row_max[k]), rows=(ROWS, ROWS))
    check(read(program(x, outer)), normal((ROWS, LENGTH)))


def test_fixed_rows_of_a_result_are_read_as_they_are() -> None:
    x = array("x")
    row_max = fold("row_max", lambda i, j: x[i, j], maximum)
    out = fold("out", lambda i, j: te.exp(x[i, j] - row_max[0] - row_max[2]))
    check(read(program(x, row_max, out)), normal((ROWS, LENGTH)))


def test_keys_and_values_shared_by_groups_of_heads_are_right() -> None:
    q, k, v = array("q", 4, 6, 8), array("k", 2, LENGTH, 8), array("v", 2, LENGTH, 8)
    d = te.reduce_axis((0, 8), "d")
    scores = each("scores", lambda h, i, j: te.sum(q[h, i, d] * k[h // 2, j, d], axis=d), 4, 6, LENGTH)
    row_max = fold("row_max", lambda h, i, j: scores[h, i, j], maximum, rows=(4, 6))
    row_sum = fold("row_sum", lambda h, i, j: te.exp(scores[h, i, j] - row_max[h, i]), rows=(4, 6))
    out = fold(
        "out",
        lambda h, i, c, j: te.exp(scores[h, i, j] - row_max[h, i]) / row_sum[h, i] * v[h // 2, j, c],
        rows=(4, 6, 8),
    )
    check(read(program(q, k, v, out)), normal((4, 6, 8), (2, LENGTH, 8), (2, LENGTH, 8)))


def test_a_conjunction_beside_a_cascade_is_left_as_it_is() -> None:
    x, keep = array("x"), array("keep", dtype="bool")
    row_max, row_sum = softmax_stages(x)
    every = fold("every", lambda i, j: keep[i, j], conjunction)
    chosen = each("chosen", lambda i: tirx.if_then_else(every[i], row_sum[i], row_max[i]), ROWS)
    unfused = read(program(x, keep, chosen))
    mask = np.ones((ROWS, LENGTH), bool)
    mask[1, 3] = False
    check(unfused, [*normal((ROWS, LENGTH)), mask])


@pytest.mark.parametrize("rows", [64, 24])
def test_a_map_of_more_or_fewer_rows_than_the_fold_is_stored_whole(rows: int) -> None:
    """The tasks of the loop are its 40 rows; what pads a result, or takes a part, is no step of them."""
    x, (j, k) = array("x", 40, 16), (te.reduce_axis((0, 16), name) for name in "jk")
    largest = te.compute((40,), lambda i: te.max(x[i, j], axis=j), name="largest")
    share = te.compute((40,), lambda i: te.sum(te.exp(x[i, k] - largest[i]), axis=k), name="share")

    def element(i: Expr) -> Expr:
        return te.if_then_else(i < 40, largest[i] + te.log(share[i]), number(1.0))

    func = te.create_prim_func([x, te.compute((rows,), element, name="padded")])
    compiled = tvm_cascade.compile(func, target={"kind": "llvm", "num-cores": 2}, force=True)
    data = np.random.default_rng(0).standard_normal((40, 16)).astype("float32")
    found = np.full(rows, np.nan, "float32")
    compiled(data, found)
    assert_close({"padded": found}, func, [data], evaluate(func, [data], rounding=True), 16)

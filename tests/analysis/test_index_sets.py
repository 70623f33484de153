"""Sets of indices: what covers what, what stays within a buffer, and which maps are bijections."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from tvm import ir, s_tir, sym, tirx

from tvm_cascade.analysis.index_sets import (
    affine_map,
    are_of_one_point_each,
    cover,
    greatest,
    run_in_order,
    stay_within,
)
from tvm_cascade.analysis.tir import DATA_PARALLEL, REDUCTION, analyzer_of, domain_of, substitute

A, B, P, Q, N = (tirx.Var(name, "int32") for name in "abpqn")


def indices(values: Sequence[ir.Expr | int]) -> list[ir.Expr]:
    return [tirx.const(value, "int32") if isinstance(value, int) else value for value in values]


@pytest.mark.parametrize(
    ("written", "over", "read", "reading", "shape", "covers"),
    [
        ([A, B], {A: 4, B: 8}, [P, Q], {P: 4, Q: 8}, [4, 8], True),
        ([A, A], {A: 4}, [P, Q], {P: 4, Q: 4}, [4, 4], False),
        ([A], {A: 4}, [P + 1], {P: 3}, [9], True),
        ([A], {A: 4}, [P + 1], {P: 4}, [9], False),
        ([A], {A: 5}, [P // 2], {P: 10}, [7], True),
        ([A * 2], {A: 4}, [P], {P: 4}, [8], False),
        ([3], {}, [3], {}, [9], True),
        ([3], {}, [P], {P: 4}, [9], False),
        ([0], {}, [P], {P: 1}, [1], True),
        ([A], {A: N}, [P * P], {P: 99}, [N], True),  # all of the buffer, whatever is read of it
        ([A], {A: N}, [P], {P: N}, [2 * N], True),
        ([A], {A: 4}, [P], {P: N}, [9], False),
        ([A], {A: N}, [P], {P: 4}, [9], False),
    ],
)
def test_what_is_written_covers_what_is_read(
    written: list[ir.Expr], over: dict, read: list[ir.Expr], reading: dict, shape: list[ir.Expr], covers: bool
) -> None:
    assert cover(indices(written), over, indices(read), reading, indices(shape)) is covers


def test_indices_stay_within_a_shape_that_is_known_to_be_long_enough() -> None:
    known = analyzer_of({A: 4, B: N})
    assert stay_within(indices([A + 1, B]), indices([5, N]), known)
    assert not stay_within(indices([A + 1, B]), indices([4, N]), known)
    assert not stay_within(indices([A - 1, B]), indices([5, N]), known)


def test_the_greatest_value_is_in_what_does_not_run() -> None:
    ranges = {A: (tirx.const(0, "int32"), tirx.const(7, "int32"))}
    found = greatest(N - 2 * A, ranges), greatest(N + 2 * A, ranges)
    assert all(sym.Analyzer().can_prove_equal(one, most) for one, most in zip(found, (N, N + 14), strict=True))


@pytest.mark.parametrize(
    ("values", "extents", "box"),
    [
        ([A // 4, A % 4], {A: 12}, (3, 4)),
        ([A * 4 + B], {A: 3, B: 4}, (12,)),
        ([B, A + 2], {A: 3, B: 4}, (4, 3)),
        ([(A + 1) // 2, (A + 1) % 2], {A: 8}, None),  # TVM says that these are A // 2 and A % 2
        ([A * 2], {A: 4}, None),
        ([A], {A: 4, B: 4}, None),
    ],
)
def test_an_affine_map_leads_to_every_place_of_a_box_and_back(
    values: list[ir.Expr], extents: dict[tirx.Var, int], box: tuple[int, ...] | None
) -> None:
    found = affine_map(values, extents)
    assert (None if found is None else tuple(found.extents)) == box
    if found is None or box is None:
        return
    counts = [tirx.Var(f"d{k}", "int32") for k in range(len(box))]
    inverse, simplify, points = found.inverse(counts), sym.Analyzer().simplify, set()
    for at in itertools.product(*map(range, box)):
        here = {count: tirx.const(k, "int32") for count, k in zip(counts, at, strict=True)}
        back = {var: simplify(substitute(value, here)) for var, value in inverse.items()}
        points.add(tuple(int(back[var]) for var in extents))
        places = [int(simplify(substitute(place, here))) for place in found.places(counts)]
        assert [int(simplify(substitute(value, back))) for value in values] == places
    assert points == set(itertools.product(*map(range, extents.values())))


def test_loops_run_in_the_order_of_others() -> None:
    inverse = {A: P * 4 + Q}
    assert run_in_order({A: 12}, inverse, {P: 3, Q: 4})
    assert not run_in_order({A: 12}, inverse, {Q: 4, P: 3})


def test_each_point_of_a_block_has_an_element_of_its_own() -> None:
    def block(kind: int = DATA_PARALLEL) -> s_tir.SBlock:
        iters = [tirx.IterVar(domain_of(var, extent), var, kind) for var, extent in ((A, 3), (B, 4))]
        return s_tir.SBlock(iters, [], [], "y", tirx.Evaluate(tirx.const(0)))

    assert are_of_one_point_each([B, A], block()) and are_of_one_point_each([A * 4 + B], block())
    assert not are_of_one_point_each([A + B], block()) and not are_of_one_point_each([A], block())
    assert not are_of_one_point_each([A, B], block(REDUCTION))

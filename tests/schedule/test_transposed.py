"""Products of transposed matrices, of odd lengths and of many rows: what is packed, and that they are right.

Texts are looked at for a target that is named, so that register tiles are the same on each machine.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import te, tirx
from tvm.ir import prim
from tvm.target import Target

import tvm_cascade
from benchmarks.judge.power import rejects
from tvm_cascade.analysis.statements import read_nests
from tvm_cascade.analysis.tir import bound_by, substitute, uses
from tvm_cascade.devices.read import device_of
from tvm_cascade.evaluate import tolerance

AVX512 = Target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2})
SIZES = [(1024, 64, 520), (200, 49, 1031), (130, 97, 64), (96, 32, 2100), (788, 40, 70)]
"""Rows, columns, terms: several blocks of rows, lanes that are left over, lengths that nothing divides."""


def product(rows: int, columns: int, terms: int, left: bool, right: bool) -> tirx.PrimFunc:
    """Of two matrices, each as it is or transposed."""
    a = te.placeholder((terms, rows) if left else (rows, terms), "float32", name="a")
    b = te.placeholder((columns, terms) if right else (terms, columns), "float32", name="b")
    k = te.reduce_axis((0, terms), "k")

    def element(i: tirx.Var, j: tirx.Var) -> tirx.PrimExpr:
        return te.sum((a[k, i] if left else a[i, k]) * (b[j, k] if right else b[k, j]), k)

    return te.create_prim_func([a, b, te.compute((rows, columns), element, name="c")])


def lowered(func: tirx.PrimFunc) -> tirx.PrimFunc:
    (found,) = tvm_cascade.compile(func, target=AVX512).mod.functions.values()
    return found


def panels(func: tirx.PrimFunc) -> dict[str, tuple[int, ...]]:
    """The shapes of operands' copies."""
    made = func.body.block.alloc_buffers
    shapes = {str(one.name): tuple(map(int, one.ty.shape)) for one in made}
    return {name: shape for name, shape in shapes.items() if name.startswith(("a_", "b_"))}


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_products_are_right(size: tuple[int, int, int], left: bool, right: bool) -> None:
    rows, columns, terms = size
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(shape, "float32") for shape in ((rows, terms), (terms, columns)))
    given = [np.ascontiguousarray(one.T if turned else one) for one, turned in ((a, left), (b, right))]
    found = np.full((rows, columns), np.nan, "float32")
    tvm_cascade.compile(product(*size, left, right))(*given, found)
    exact = a.astype("f8") @ b.astype("f8")
    tolerance.assert_close(found, exact, a @ b, length=terms, dtype="float32")
    assert rejects(exact, terms, "float32") == []


@pytest.mark.parametrize(("rows", "terms", "expected"), [(1024, 512, (16, 512, 64)), (64, 512, None), (1024, 8, None)])
def test_rows_of_a_transposed_matrix_are_packed_where_caches_lose_its_lines(
    rows: int, terms: int, expected: tuple[int, ...] | None
) -> None:
    assert panels(lowered(product(rows, 64, terms, True, False))).get("a_global") == expected


def test_an_operand_with_lanes_left_over_is_packed_in_squares_too() -> None:
    shuffles: list[prim.Shuffle] = []
    func = lowered(product(256, 197, 512, False, True))
    tvm_ffi.structural_walk(func.body, (prim.Shuffle, shuffles.append))
    assert shuffles and len(panels(func)["b_whole"]) == 3


def test_blocks_of_rows_share_a_panel_that_comes_from_far() -> None:
    """Tasks are four blocks each, and fewer where cores would wait."""
    for cores, tasks in ((2, 4), (8, 16)):
        target = Target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": cores})
        func = tvm_cascade.compile(product(1024, 2048, 512, False, False), target=target).mod["main"]
        found: list[int] = []

        def visit(loop: tirx.For, found: list[int] = found) -> None:
            found.extend([int(loop.extent)] if loop.kind == tirx.ForKind.PARALLEL else [])

        tvm_ffi.structural_walk(func.body, (tirx.For, visit))
        assert tasks in found, device_of(target)


def test_the_last_block_of_a_sum_ends_with_its_terms() -> None:
    func = lowered(product(512, 768, 3001, False, False))
    extents: list[str] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, lambda loop: extents.append(str(loop.extent))))
    assert any("3001" in one and "min" in one for one in extents)


@pytest.mark.parametrize(("size", "left"), [((1537, 17, 1031), False), ((1537, 17, 1024), True)])
def test_the_innermost_loop_of_a_padded_copy_is_contiguous(size: tuple[int, int, int], left: bool) -> None:
    (nest,) = (one for one in read_nests(lowered(product(*size, left, False))) if one.block.name_hint == "a_whole")
    place = nest.block.body
    assert isinstance(place, tirx.BufferStore)
    last = substitute(place.indices[-1], bound_by(nest.realize))
    innermost = [loop.loop_var for loop in nest.loops if int(loop.extent) > 1][-1]
    assert uses(last, [innermost])


def test_packing_a_narrow_operand_has_tasks_for_all_cores() -> None:
    target = Target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 16})
    func = tvm_cascade.compile(product(5000, 64, 3072, False, False), target=target).mod["main"]
    (nest,) = (one for one in read_nests(func) if one.block.name_hint == "b_global")
    assert int(nest.loops[0].extent) >= 16

"""Moves that keep the order of elements are views; others, and results of a function, keep memory of their own."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tvm import relax
from tvm.ir import transform
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tvm_cascade.relax import get_pipeline
from tvm_cascade.relax.rewrites import RewriteOperators
from tvm_cascade.relax.views import InlineViews

from .test_fuse_cascades import Forward, called, module_of


def moved(axes: list[int]) -> Forward:
    return lambda x, y: op.permute_dims(x, axes) * 2.0 + y


def reshaped_and_moved(x: nn.Tensor, y: nn.Tensor) -> nn.Tensor:
    return op.permute_dims(op.reshape(x, [2, 1, 3, 8]), [0, 2, 1, 3]) * 2.0 + y


def copies(forward: Forward, *shapes: list[int | str]) -> int:
    """Moves that are kernels."""
    passes = relax.transform.LegalizeOps(), InlineViews(), relax.transform.RewriteDataflowReshape()
    script = str(transform.Sequential(passes)(module_of(forward, *shapes))["forward"].body)
    return script.count("call_tir(transpose")


@pytest.mark.parametrize(
    ("forward", "shapes", "expected"),
    [
        (moved([0, 2, 1, 3]), [[2, 1, 3, 8], [2, 3, 1, 8]], 0),
        (moved([1, 0, 2, 3]), [["n", 1, 3, 8], [1, "n", 3, 8]], 0),
        (moved([0, 2, 1, 3]), [[2, 2, 3, 8], [2, 3, 2, 8]], 1),
        (moved([0, 1, 3, 2]), [[2, 1, 3, 8], [2, 1, 8, 3]], 1),
        (reshaped_and_moved, [[2, 24], [2, 3, 1, 8]], 0),
        (lambda x, y: (op.permute_dims(x, [1, 0]), op.exp(y)), [[1, 8], [1, 8]], 0),
    ],
    ids=["one row", "symbolic", "two rows", "columns", "after a reshape", "a result"],
)
def test_views(forward: Forward, shapes: list[list[int | str]], expected: int) -> None:
    assert copies(forward, *shapes) == expected


def test_modules_with_views_are_right() -> None:
    mod = module_of(reshaped_and_moved, [2, 24], [2, 3, 1, 8])
    rng = np.random.default_rng(7)
    x, y = rng.standard_normal((2, 24)).astype("float32"), rng.standard_normal((2, 3, 1, 8)).astype("float32")
    (found,) = called(get_pipeline("llvm").build(mod), [x, y])
    np.testing.assert_array_equal(found, 2 * x.reshape(2, 3, 1, 8) + y)


def test_permutations_one_after_the_other_are_one_or_none() -> None:
    def back(x: nn.Tensor, y: nn.Tensor) -> nn.Tensor:
        return op.exp(op.permute_dims(op.permute_dims(x, [1, 2, 0]), [2, 0, 1]) + y)

    def further(x: nn.Tensor, y: nn.Tensor) -> nn.Tensor:
        return op.exp(op.permute_dims(op.permute_dims(x, [1, 2, 0]), [1, 0, 2]) + y)

    for forward, shape, axes in ((back, [2, 3, 4], [0, 1, 2]), (further, [4, 3, 2], [2, 1, 0])):
        mod = RewriteOperators()(module_of(forward, [2, 3, 4], shape))
        assert str(mod["forward"].body).count("R.permute_dims(") == (axes != [0, 1, 2])
        x, y = np.arange(24, dtype="float32").reshape(2, 3, 4) / 24, np.ones(shape, "float32")
        found = called(relax.build(mod, "llvm"), [x, y])[0]
        np.testing.assert_array_almost_equal_nulp(found, np.exp(x.transpose(axes) + y), 8)


@pytest.mark.parametrize(
    ("left", "right", "dtype"),
    [(True, False, "float32"), (False, True, "float32"), (True, True, "float32"), (False, True, "bfloat16")],
)
def test_products_on_cpus_read_transposed_matrices_as_they_are_stored(left: bool, right: bool, dtype: str) -> None:
    def product(x: nn.Tensor, y: nn.Tensor) -> nn.Tensor:
        a, b = (op.permute_dims(one, [1, 0]) if turned else one for one, turned in ((x, left), (y, right)))
        return op.matmul(a, b, out_dtype="float32") * 2.0

    shapes = [[7, 5] if left else [5, 7], [6, 7] if right else [7, 6]]
    mod = module_of(product, *shapes, dtype=dtype)
    functions = [var.name_hint for var in get_pipeline("llvm").grouped(mod).get_global_vars()]
    assert not any("transpose" in name for name in functions)
    assert "R.permute_dims(" in str(RewriteOperators()(mod)["forward"])  # plans of GPUs take it into a kernel
    rng = np.random.default_rng(3)
    x, y = (rng.integers(-8, 8, shape).astype({"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)) for shape in shapes)
    (found,) = called(get_pipeline("llvm").build(mod), [x, y])
    wide = [one.astype("float32") for one in (x.T if left else x, y.T if right else y)]
    np.testing.assert_array_equal(found, 2 * wide[0] @ wide[1])

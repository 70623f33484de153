"""Float32 products on tensor cores as TF32: only where the option allows it, and as exact as that dtype."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import tirx

import tvm_cascade
from tvm_cascade.analysis.extract import Reductions
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.cards import H200
from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Kernel, Setting, build_kernel
from tvm_cascade.tile.skeletons.product.skeleton import ProductSkeleton

from .checked import attention_case
from .emulator.run import Array, compiler, emulate
from .test_compiled_kernels import instructions_of, text_of
from .test_core_products import inputs_of, matmul

TARGET = {"kind": "cuda", "arch": "sm_90a"}

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def kernel_of(func: tirx.PrimFunc, **options: bool) -> Kernel:
    """The kernel of a product on tensor cores."""
    program = read_program(func)
    setting = Setting(H200, FuseOptions(**options))  # type: ignore[arg-type]
    return build_kernel(ProductSkeleton(), program, Reductions(program).lone[-1], "main", setting)


def cut_off(array: Array) -> Array:
    """The numbers without their last thirteen bits, as the tensor cores take them."""
    bits = array.astype("float32").view("uint32") & np.uint32(0xFFFFE000)
    return bits.view("float32")


@emulated
@pytest.mark.parametrize("extents", [(128, 64, 64), (70, 132, 36)], ids=str)
def test_products_are_those_of_operands_cut_off_to_tf32(extents: tuple[int, int, int]) -> None:
    func = matmul(*extents, layout="NT")
    inputs = inputs_of(func, 2)
    (got,) = emulate(kernel_of(func, tf32=True).func, inputs)
    short = [cut_off(array) for array in inputs]
    (exact,), (usual,) = evaluate(func, short).values(), evaluate(func, short, rounding=True).values()
    found = check(got, exact, usual, length=extents[2], dtype="float32")
    assert found.ok, found.message


@emulated
def test_the_error_is_below_its_bound() -> None:
    """2^-9 of the sum of magnitudes, for factors that are cut off, and what float32 sums add."""
    func = matmul(64, 64, 64, layout="NT")
    left, right = inputs_of(func, 2)
    (got,) = emulate(kernel_of(func, tf32=True).func, [left, right])
    wide = left.astype("float64"), right.astype("float64")
    error = np.abs(got - wide[0] @ wide[1].T)
    magnitudes = np.abs(wide[0]) @ np.abs(wide[1]).T
    assert np.all(error < (2.0**-9 + 64 * 2.0**-23) * magnitudes)
    assert error.max() > 2.0**-14 * magnitudes.max()  # it is TF32 that is measured


def test_it_is_never_used_unasked() -> None:
    func = matmul(512, 512, 512, layout="NT")
    assert not FuseOptions().tf32
    assert "`product`" not in tvm_cascade.explain(func, target=TARGET).functions[0].lowering
    assert "`product`" in tvm_cascade.explain(func, target=TARGET, tf32=True).functions[0].lowering
    with pytest.raises(Unfit, match=r"cut float32 off after ten bits .* \(TF32\), which the option tf32 allows"):
        kernel_of(func)
    with pytest.raises(Unfit, match="cut float32 off"):
        kernel_of(func, narrow_sums=True)


@pytest.mark.parametrize("layout", ["NN", "TN", "TT"])
def test_what_is_summed_over_has_to_be_contiguous(layout: str) -> None:
    """The instructions transpose operands of 16 bits alone."""
    func = matmul(512, 512, 512, layout=layout)
    with pytest.raises(Unfit, match="the tensor cores multiply float32 where k is contiguous"):
        kernel_of(func, tf32=True)
    assert "`cores`" in tvm_cascade.explain(func, target=TARGET, tf32=True).functions[0].lowering


def test_mixed_operands_are_none_of_tensor_cores() -> None:
    with pytest.raises(Unfit, match="float16"):
        kernel_of(matmul(512, 512, 512, layout="NT", dtypes=("float32", "float16")), tf32=True)


def test_weights_in_registers_are_none_of_tf32() -> None:
    """Attention of float32 stays on CUDA cores, with the option too."""
    func = attention_case("full", dtype="float32").build()
    told = tvm_cascade.explain(func, target=TARGET, tf32=True).functions[0]
    assert not told.lowering.startswith("the tensor-core kernel")
    assert "float32 is none of float16, bfloat16" in told.whole


def test_it_compiles_to_products_of_tf32(tmp_path: Path) -> None:
    found = instructions_of(text_of(kernel_of(matmul(4096, 4096, 4096, layout="NT"), tf32=True)), tmp_path)
    assert any(name.startswith("HGMMA") and "TF32" in name for name in found)

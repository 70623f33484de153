"""Instruction families: kernels by mma.sync against the float64 oracle, what they compile to, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tvm_cascade
from tvm_cascade.devices.cards import HOPPER, RTX5090
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.machine.mma import MMA
from tvm_cascade.tile.machine.table import FAMILIES
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Kernel, Setting
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.stream.config import StreamConfig
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig
from tvm_cascade.tile.skeletons.table import SKELETONS

from ..tiers import quick_but, slow_but
from . import test_products
from .checked import assert_attention_right, attention_case, kernel_of
from .emulator.run import compiler
from .product_programs import Product
from .test_compiled_kernels import instructions_of, text_of

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

STREAM = StreamConfig(columns=64, consumers=2, stages=2, ping_pong=False, family=MMA, blocks=132)
PERSISTENT = replace(STREAM, stages=3, left_stages=2, blocks=1, own_staging=True)
PRODUCT = ProductConfig(columns=64, stages=2, blocks=2, family=MMA)
TWO_PARTS = ProductConfig(rows=256, columns=128, stages=2, staged=1, blocks=2, family=MMA)

GROUPED = {"batch": 2, "heads": 2, "kv_heads": 1, "queries": 260, "keys": 130, "head_dim": 128}
FEW = {"heads": 8, "kv_heads": 2, "queries": 4, "keys": 700, "head_dim": 128}

ATTENTION = {
    "64": ("full", "float16", {}, STREAM),
    "128_causal_grouped": ("causal", "bfloat16", GROUPED, STREAM),
    "persistent": ("causal", "bfloat16", {"heads": 2, "queries": 200}, PERSISTENT),
    "without the optimistic reference": ("full", "bfloat16", {"keys": 333}, replace(STREAM, optimistic=False)),
    "eight columns beyond sixteens": ("mask", "float16", {"head_dim": 72}, STREAM),
    "few rows in pieces": ("causal", "bfloat16", FEW, PiecesConfig(64, 1, 2, 4, family=MMA)),
    "window_softcap": ("window_softcap", "bfloat16", {"window": 70}, STREAM),
}


@emulated
@pytest.mark.parametrize("name", quick_but(["64", "window_softcap"], ATTENTION))  # another mask, and another width
def test_attention(name: str) -> None:
    variant, dtype, shape, config = ATTENTION[name]
    assert_attention_right(attention_case(variant, dtype, **shape), config)


@emulated
@pytest.mark.parametrize("across", [False, True], ids=["along k", "across"])
def test_products_of_two_parts_of_rows_a_warp(across: bool) -> None:
    program = Product(m=300, n=200, k=264, a_across=across, b_across=across)
    test_products.assert_right(program.build(), TWO_PARTS, length=264)


@emulated
@pytest.mark.parametrize(("a_across", "b_across"), [(False, True), (True, False)])
def test_products_of_odd_sizes(a_across: bool, b_across: bool) -> None:
    """Operands whose rows are no multiple of 16 bytes are copied by threads."""
    program = Product(m=33, n=35, k=70, dtypes=("float16", "float16"), a_across=a_across, b_across=b_across)
    test_products.assert_right(program.build(), PRODUCT, length=70)


@emulated
def test_products_in_parts_of_k() -> None:
    config = replace(PRODUCT, stages=4, splits=2)
    test_products.assert_right(Product(m=72, n=136, k=264).build(), config, length=264)


def kernel_on(gpu: Gpu, name: str) -> Kernel:
    """The kernel that a card's own choice is, of attention by its width and variant, or of a product."""
    if name == "product":
        return test_products.kernel_of(Product(m=4096, n=4096, k=4096).build(), gpu=gpu)
    width, variant = name.split("_")
    shape = {"heads": 16, "queries": 4096, "keys": 4096, "head_dim": int(width)}
    return kernel_of(attention_case(variant, "bfloat16", **shape).build(), gpu=gpu)


NAMES = "64_full", "64_causal", "128_full", "128_causal", "product"
COMPILED = [(gpu, name) for gpu in (HOPPER, RTX5090) for name in NAMES]


@pytest.mark.parametrize(("gpu", "name"), slow_but([(HOPPER, "128_causal"), (RTX5090, "product")], COMPILED))
def test_what_kernels_compile_to(gpu: Gpu, name: str, tmp_path: Path) -> None:
    """No spill, no instruction of Hopper's own; a right operand is loaded four registers at once."""
    found = instructions_of(text_of(kernel_on(gpu, name), gpu.arch), tmp_path, gpu.arch)
    names = {name.split(".")[0] for name in found}
    assert {"HMMA", "LDSM", "UTMALDG"} <= names and not {"HGMMA", "USETMAXREG"} & names
    assert not {name for name in found if name.startswith("LDSM") and not name.endswith(".4")}


def test_a_card_has_the_first_family_whose_instructions_it_has() -> None:
    """And what kernels need of it beyond is refused by what a family says of itself."""
    wgmma, mma = FAMILIES
    narrow = test_products.kernel_of(Product(m=128, n=128, k=128).build(), gpu=HOPPER).config
    assert narrow.family is mma and test_products.kernel_of(Product(m=128, n=128, k=128).build()).config.family is wgmma
    with pytest.raises(Unfit, match="do not tell other blocks"):
        test_products.kernel_of(Product(m=128, n=128, k=128).build(), replace(PRODUCT, cluster=2), gpu=HOPPER)
    float8 = Product(m=128, n=128, k=128, dtypes=("float8_e4m3fn", "float8_e4m3fn")).build()
    with pytest.raises(Unfit, match=r"mma\.sync.*multiplies float16 and bfloat16"):
        test_products.kernel_of(float8, PRODUCT, narrow_sums=True, gpu=HOPPER)


def test_kernels_of_one_family_alone_say_so() -> None:
    setting = Setting(HOPPER)
    lacking = {skeleton.name: skeleton.unavailable(setting) for skeleton in SKELETONS if skeleton.unavailable(setting)}
    assert lacking == dict.fromkeys(("stream halves", "prologue"), "its kernels are written in WGMMA, not for sm_90")
    named = str(tvm_cascade.explain(Product(m=64, n=64, k=64).build(), target="sm_120"))
    assert "tensor-core kernel `product`" in named

"""Kernels compiled without a GPU: the instructions that they are for, no spill, and no product made to wait."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import tvm
from tvm import tirx

import tvm_cascade
from tvm_cascade.tile.launch.pipeline import register_mixed_pipeline
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.tile.skeletons.stream.config import StreamConfig

from ..nvcc import instructions, nvcc
from ..tiers import slow_but
from . import folds
from .checked import kernel_of, stream_kernel
from .packed_programs import Packed
from .test_tile_program import attention_of, group_of

TARGET = {"kind": "cuda", "arch": "sm_90a"}


def cuda_text(func: tirx.PrimFunc, config: StreamConfig | None = None) -> str:
    """The CUDA text of a function's kernel."""
    return text_of(stream_kernel(*group_of(func), config))


def text_of(kernel: Kernel, arch: str = "sm_90a") -> str:
    """The CUDA text of a kernel."""
    target = tvm.target.Target({"kind": "cuda", "arch": arch}, host="llvm")
    with target:
        built = tvm.compile(kernel.func, target=target, tir_pipeline=register_mixed_pipeline())
    return str(built.mod.imports[0].inspect_source("cuda"))


def instructions_of(text: str, folder: Path, arch: str = "sm_90a") -> Counter[str]:
    """What a kernel's text compiles to: no spill, and no product made to wait."""
    source, cubin = folder / "kernel.cu", folder / "kernel.cubin"
    source.write_text(text)
    messages = nvcc(
        "-cubin", "-O3", "--use_fast_math", "-diag-suppress=177", "-Xptxas=-v", source, "-o", cubin, arch=arch
    )
    assert not re.findall(r"Potential Performance Loss.*|setmaxnreg.*", messages)  # products that wait, or a lost hint
    assert set(re.findall(r"(\d+) bytes spill", messages)) == {"0"}
    found = instructions(cubin)
    if arch.startswith("sm_90"):  # later ones keep something of their own beside bulk copies
        assert set(re.findall(r"(\d+) bytes stack frame", messages)) == {"0"}
        assert not {"LDL", "STL"} & {name.split(".")[0] for name in found}
    return found


KERNELS: dict[str, tuple[Callable[[], tirx.PrimFunc], StreamConfig | None]] = {
    "64": (lambda: attention_of("full", queries=4096, keys=4096), None),
    "64_causal": (lambda: attention_of("causal", queries=512, keys=512), None),
    "80": (lambda: attention_of("full", head_dim=80), None),
    "96_ragged": (lambda: attention_of("causal", queries=300, keys=333, head_dim=96), None),
    "128": (lambda: attention_of("full", queries=4096, keys=4096, head_dim=128), None),
    "128_wide": (
        lambda: attention_of("full", queries=4096, keys=4096, head_dim=128),
        StreamConfig(columns=176, blocks=132),
    ),
    "128_window": (lambda: attention_of("window_softcap", head_dim=128, window=64), None),
    "128_masked": (lambda: attention_of("mask", head_dim=128), None),
    "256_causal": (lambda: attention_of("causal", queries=4096, keys=4096, head_dim=256), None),
    "128_packed": (lambda: Packed(1024, 1024, 8, 2, 128, "bfloat16").func(), None),
    "decode_one_query": (lambda: attention_of("softcap", heads=32, queries=1, keys=4096, head_dim=128), None),
    "decode_grouped": (lambda: attention_of("causal", heads=64, kv_heads=8, queries=8, keys=4096, head_dim=128), None),
    "decode_long": (lambda: attention_of("full", heads=64, kv_heads=8, queries=1, keys=32768, head_dim=128), None),
    "decode_two_groups": (lambda: attention_of("causal", heads=8, kv_heads=1, queries=16, keys=4096), None),
    "entropy": (lambda: folds.program(folds.entropy, "bfloat16"), None),
    "centred": (lambda: folds.program(folds.centred, "bfloat16"), None),
    "variance": (lambda: folds.program(folds.variance, "float16"), None),
}


@pytest.mark.parametrize("name", slow_but(["64_causal", "decode_long", "variance"], KERNELS))
def test_a_kernel_compiles_for_the_tensor_cores(name: str, tmp_path: Path) -> None:
    make, config = KERNELS[name]
    found = instructions_of(cuda_text(make(), config), tmp_path)
    assert {"HGMMA", "UTMALDG"} <= {name.split(".")[0] for name in found}
    kernel = kernel_of(make(), config)
    moved = kernel.config.shares(kernel.program.stream).moved
    assert ("USETMAXREG" in {name.split(".")[0] for name in found}) == moved


def test_a_fraction_costs_one_multiplication() -> None:
    """The soft cap's is score/(cap·√d), which SymPy keeps as a quotient of integers."""
    text = cuda_text(attention_of("causal_softcap", head_dim=128), StreamConfig(columns=64, blocks=132))
    caps = [re.sub(r"/\*.*?\*/", "", cap) for cap in re.findall(r"= tanhf\((.*)\);", text)]
    assert caps and all(cap.count("*") == 1 and "/" not in cap for cap in caps)


def test_one_build_holds_tensor_core_kernels_and_schedules() -> None:
    attention, statistics = attention_of("causal"), folds.program(folds.variance, "float32")
    module = tvm.IRModule({"attention": attention, "statistics": statistics})
    compiled = tvm_cascade.compile(module, target=TARGET)
    lowered = {report.name: f"{report.lowering}; {report.whole}" for report in compiled.report.functions}
    assert "tensor-core kernel `stream`" in lowered["attention"]
    assert "float32 is none of float16, bfloat16" in lowered["statistics"]
    texts = [module.inspect_source("cuda") for module in compiled.runtime_module.mod.imports]
    assert sum(text.count("__global__") for text in texts) > 2 and sum("wgmma" in text for text in texts) == 1


def test_explain_says_which_kernel_and_shows_its_tile() -> None:
    told = str(tvm_cascade.explain(attention_of("causal"), target=TARGET))
    assert "tensor-core kernel `stream`" in told and "accumulate" in told and "reduce" in told
    other = str(tvm_cascade.explain(attention_of("causal"), target={"kind": "cuda", "arch": "sm_80"}))
    assert "not for sm_80" in other
    assert "the option tensor_cores is off" in str(
        tvm_cascade.explain(attention_of("causal"), target=TARGET, tensor_cores=False)
    )

"""Models of the kinds that users bring give what PyTorch gives, within the rounding of their dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tvm import tirx  # noqa: E402

import tvm_cascade  # noqa: E402
from benchmarks.judge.power import rejects  # noqa: E402
from benchmarks.torch_models.sizes import TINY  # noqa: E402
from benchmarks.torch_models.table import MODELS, model  # noqa: E402
from tvm_cascade.analysis.program import Program  # noqa: E402
from tvm_cascade.evaluate.tolerance import assert_close  # noqa: E402
from tvm_cascade.relax import get_pipeline  # noqa: E402
from tvm_cascade.torch.exporting import exported  # noqa: E402
from tvm_cascade.torch.importer import import_program  # noqa: E402
from tvm_cascade.transform.fuse_function import read_function  # noqa: E402


def in_dtype(values: Any, dtype: Any) -> Any:
    return [one.to(dtype) if one.is_floating_point() else one for one in values]


QUICK = ("gemma2", "bert")
"""A decoder and an encoder; a Llama is in test_generation.py."""


def in_tiers(quick: Sequence[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in MODELS]


@pytest.mark.parametrize("name", in_tiers(["llama"]))
def test_every_reduction_of_a_model_is_told_of(name: str) -> None:
    module, inputs = model(name, TINY)
    mod, _ = import_program(exported(module, tuple(inputs), {}, None), torch.device("cpu"))
    pipeline = get_pipeline("auto")
    grouped = pipeline.grouped(mod)
    pipeline.scheduled(grouped)
    told: dict[str, set[str]] = {}
    for group in pipeline.report.groups:
        told.setdefault(group.function, set()).update((*group.buffers, *group.inside))
    for variable, func in grouped.functions_items():
        program = read_function(func) if isinstance(func, tirx.PrimFunc) else None
        if isinstance(program, Program):
            reduced = {stage.buffer.name for stage in program.stages if stage.reducer is not None}
            assert reduced <= told.get(variable.name_hint, set()), variable
        elif isinstance(func, tirx.PrimFunc):
            assert variable.name_hint in told
    assert pipeline.report.apart and all(one.operators and one.why for one in pipeline.report.apart)


@pytest.mark.parametrize("name", in_tiers(QUICK))
def test_a_model_gives_what_pytorch_gives(name: str) -> None:
    module, inputs = model(name, TINY)
    found = tvm_cascade.optimize(module, inputs)(*inputs)
    with torch.no_grad():
        eager = module(*inputs)
        exact = module.double()(*in_dtype(inputs, torch.float64))
    found, exact, eager = (np.asarray(one.double()) for one in (found, exact, eager))
    assert_close(found, exact, eager, length=4 * TINY.width, dtype="float32")
    assert not rejects(exact, 4 * TINY.width, "float32", baseline=eager)

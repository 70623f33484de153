"""Models of the kinds that users bring give what PyTorch gives, within the rounding of their dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tvm_cascade  # noqa: E402
from tvm_cascade.evaluate.tolerance import assert_close, rejects  # noqa: E402
from tvm_cascade.testing.models.sizes import TINY  # noqa: E402
from tvm_cascade.testing.models.table import MODELS, model  # noqa: E402


def in_dtype(values: Any, dtype: Any) -> Any:
    return [one.to(dtype) if one.is_floating_point() else one for one in values]


QUICK = ("llama", "gemma2", "bert")


@pytest.mark.parametrize("name", [pytest.param(m, marks=() if m in QUICK else pytest.mark.slow) for m in MODELS])
def test_a_model_gives_what_pytorch_gives(name: str) -> None:
    module, inputs = model(name, TINY)
    found = tvm_cascade.optimize(module, inputs)(*inputs)
    with torch.no_grad():
        eager = module(*inputs)
        exact = module.double()(*in_dtype(inputs, torch.float64))
    found, exact, eager = (np.asarray(one.double()) for one in (found, exact, eager))
    assert_close(found, exact, eager, length=4 * TINY.width, dtype="float32")
    assert not rejects(exact, 4 * TINY.width, "float32", baseline=eager)

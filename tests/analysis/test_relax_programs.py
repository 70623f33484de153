"""Programs from Relax's LegalizeOps: transposes, reshapes, casts and several axes are looked through."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import relax, tirx

from tvm_cascade.analysis.extract import Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program

Shapes = tuple[tuple[int, ...], ...]
ROWS, LENGTH = 3, 37
ROW: Shapes = ((ROWS, LENGTH),)
NORM: Shapes = ((ROWS, LENGTH), (LENGTH,), (LENGTH,))
QKV: Shapes = ((1, 6, 2, 8), (1, LENGTH, 2, 8), (1, LENGTH, 2, 8))

nn = relax.op.nn

PROGRAMS: dict[str, tuple[Callable[..., relax.Expr], Shapes, str, int, int]] = {
    # name: (operator, shapes of its arguments, dtype, members of the group, length of the cascade axis)
    "softmax": (lambda x: nn.softmax(x, -1), ROW, "float32", 2, LENGTH),
    "softmax of a middle axis": (lambda x: nn.softmax(x, 1), ((ROWS, LENGTH, 4),), "float32", 2, LENGTH),
    "log_softmax": (lambda x: nn.log_softmax(x, -1), ROW, "float32", 2, LENGTH),
    "variance": (lambda x: relax.op.variance(x, [1]), ROW, "float32", 2, LENGTH),
    "variance over two axes": (lambda x: relax.op.variance(x, [1, 2]), ((ROWS, 5, 7),), "float32", 2, 35),
    "std": (lambda x: relax.op.std(x, [1], keepdims=True), ROW, "float32", 2, LENGTH),
    "layer_norm": (lambda x, g, b: nn.layer_norm(x, g, b, axes=[-1]), NORM, "float32", 2, LENGTH),
    "layer_norm of float16": (lambda x, g, b: nn.layer_norm(x, g, b, axes=[-1]), NORM, "float16", 2, LENGTH),
    "layer_norm over two axes": (
        lambda x, g, b: nn.layer_norm(x, g, b, axes=[-2, -1]),
        ((ROWS, 5, 7), (5, 7), (5, 7)),
        "float32",
        2,
        35,
    ),
    "attention": (lambda q, k, v: nn.attention(q, k, v), QKV, "float32", 3, LENGTH),
    "attention of float16": (lambda q, k, v: nn.attention(q, k, v), QKV, "float16", 3, LENGTH),
    "causal attention": (
        lambda q, k, v: nn.attention(q, k, v, causal_mask="BottomRight"),
        QKV,
        "float32",
        3,
        LENGTH,
    ),
    "attention with a bias": (
        lambda q, k, v, b: nn.attention(q, k, v, b),
        (*QKV, (1, 2, 6, LENGTH)),
        "float32",
        3,
        LENGTH,
    ),
    "attention with as many keys as features": (
        lambda q, k, v: nn.attention(q, k, v),
        ((1, 8, 2, 8),) * 3,
        "float32",
        3,
        8,
    ),
}


def legalized(name: str) -> tirx.PrimFunc:
    """The one PrimFunc that an operator becomes."""
    operator, shapes, dtype, _, _ = PROGRAMS[name]
    builder = relax.BlockBuilder()
    arguments = [relax.Var(f"x{k}", relax.TensorType(shape, dtype)) for k, shape in enumerate(shapes)]
    with builder.function("main", arguments):
        with builder.dataflow():
            output = builder.emit_output(operator(*arguments))
        builder.emit_func_output(output)
    module = relax.transform.LegalizeOps()(builder.get())
    (func,) = [func for func in module.functions.values() if isinstance(func, tirx.PrimFunc)]
    return func.with_attr("global_symbol", "main")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_legalized_operator_is_one_cascade(name: str) -> None:
    *_, members, length = PROGRAMS[name]
    found = read_program(legalized(name))
    assert isinstance(found, Program), str(found)
    (candidate,) = Reductions(found).cascades()
    assert candidate.group is not None, str(candidate.reason)
    assert len(candidate.group.members) == members
    assert candidate.group.frame.length == length


def test_a_single_reduction_from_relax_is_no_cascade() -> None:
    builder = relax.BlockBuilder()
    x, gain = (
        relax.Var("x", relax.TensorType((ROWS, LENGTH), "float32")),
        relax.Var("gain", relax.TensorType((LENGTH,), "float32")),
    )
    with builder.function("main", [x, gain]):
        builder.emit_func_output(builder.emit(nn.rms_norm(x, gain, axes=[-1])))
    module = relax.transform.LegalizeOps()(builder.get())
    (func,) = [func for func in module.functions.values() if isinstance(func, tirx.PrimFunc)]
    found = read_program(func)
    assert isinstance(found, Program)
    assert [c.reason.code for c in Reductions(found).cascades()] == ["single_reduction"]

"""Arithmetic and comparisons in the dtype that PyTorch promotes their operands to.

TVM's own converters give a number the dtype of the tensor beside it: 0.5 becomes 0 beside integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree
from tvm import relax, te, tirx
from tvm.ir.expr import Constant

from tvm_cascade.torch.site import Site, accumulator, dtype_name, names_of, type_name

Binary = Callable[[relax.Expr, relax.Expr], relax.Expr]


def arithmetic(combine: Binary) -> Callable[[Site], relax.Expr]:
    """Sums, differences, products and quotients, with their factor `alpha` of the second operand."""

    def convert(site: Site) -> relax.Expr:
        wide = accumulator(site.dtype)
        left, right = (_operand(site, name, wide) for name in ("self", "other"))
        if "alpha" in names_of(site) and site["alpha"] != 1:
            right = site.emit(relax.op.multiply(right, relax.const(site["alpha"], wide)))
        if wide == "bool":
            return site.emit(_OF_TRUTH[combine](left, right))
        if combine is relax.op.divide:
            return _quotient(site, left, right)
        if combine is relax.op.multiply and wide.startswith("float") and 0 in map(_number, (left, right)):
            return _by_zero(site, right if _number(left) == 0 else left)
        return site.emit(combine(left, right))

    return convert


_OF_TRUTH: Mapping[Binary, Binary] = {relax.op.add: relax.op.logical_or, relax.op.multiply: relax.op.logical_and}
"""What PyTorch's arithmetic is of truth values."""


def of_sizes(combine: Callable[[Any, Any], Any]) -> Callable[[Site], Any]:
    """torch.sym_sum, sym_max and sym_min: of extents and numbers, given as a list or apart."""

    def convert(site: Site) -> Any:
        given = map_arg(site.node.args, lambda node: site.importer.env[node])
        return reduce(combine, (tirx.const(one, "int64") if isinstance(one, int) else one for one in _flat(given)))

    return convert


def _flat(given: Any) -> Sequence[Any]:
    return given[0] if len(given) == 1 else given


def comparison(compare: Binary) -> Callable[[Site], relax.Expr]:
    """Comparisons, whose result tells nothing of the dtype that they are made in."""

    def convert(site: Site) -> relax.Expr:
        dtype = "uint8" if (promoted := _promoted(site)) == "bool" else promoted  # of which LLVM has no comparison
        of_itself = _alike(site.given("self"), site.given("other"))
        if of_itself and compare in _OF_ITSELF and dtype.startswith(("float", "bfloat")):
            return site.emit(_OF_ITSELF[compare](site.cast(site["self"], accumulator(dtype))))
        left, right = (_operand(site, name, accumulator(dtype), dtype) for name in ("self", "other"))
        return site.emit(compare(left, right))

    return convert


def _alike(one: Any, other: Any) -> bool:
    """Whether two operands are one value, computed once or twice."""
    if not isinstance(one, fx.Node) or not isinstance(other, fx.Node):
        return bool(one == other)
    if one is other or one.target != other.target or one.op != "call_function":
        return one is other
    (ours, spec), (theirs, other_spec) = (pytree.tree_flatten((node.args, node.kwargs)) for node in (one, other))
    return spec == other_spec and all(map(_alike, ours, theirs))


_OF_ITSELF: Mapping[Binary, Callable[[relax.Expr], relax.Expr]] = {
    relax.op.not_equal: relax.op.isnan,
    relax.op.equal: lambda x: relax.op.logical_not(relax.op.isnan(x)),
}
"""Comparisons of a float with itself, which ask for NaN: TVM simplifies x ≠ x to false."""


def logical_not(site: Site) -> relax.Expr:
    """aten.logical_not: of a comparison of floats, whose opposite is no comparison, since neither holds of NaN."""
    x, node = site["self"], site.given("self")
    truth = x if type_name(x) == "bool" else site.emit(relax.op.not_equal(x, relax.const(0, type_name(x))))
    if any(one.meta["val"].is_floating_point() for one in node.all_input_nodes if _is_tensor(one)):
        return site.emit(relax.op.bitwise_not(truth))
    return site.emit(relax.op.logical_not(truth))


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def division(site: Site) -> relax.Expr:
    """aten.div with a rounding mode."""
    mode, wide = site["rounding_mode"], accumulator(site.dtype)
    left, right = (_operand(site, name, wide) for name in ("self", "other"))
    if wide.startswith(("float", "bfloat")):
        quotient = _quotient(site, left, right)
        rounding = {"floor": relax.op.floor, "trunc": relax.op.trunc}.get(mode)
        return site.emit(rounding(quotient)) if rounding else quotient
    if mode == "trunc":
        left = site.emit(relax.op.subtract(left, site.emit(relax.op.mod(left, right))))
    return site.emit(relax.op.floor_divide(left, right))


def _quotient(site: Site, left: relax.Expr, right: relax.Expr) -> relax.Var:
    """left/right; by a constant 0, which TVM does not divide by, left·∞."""
    if (number := _number(right)) == 0:
        return site.emit(relax.op.multiply(left, relax.const(math.copysign(math.inf, number), type_name(left))))
    return site.emit(relax.op.divide(left, right))


def _by_zero(site: Site, value: relax.Expr) -> relax.Expr:
    """value·0, which TVM takes for 0, and is NaN where the value is infinite or NaN."""
    zero, nan = (relax.const(number, type_name(value)) for number in (0.0, math.nan))
    return site.emit(relax.op.where(site.emit(relax.op.isfinite(value)), zero, nan))


def _number(value: relax.Expr) -> Any:
    """The number that an expression is, if it is one."""
    return value.value.numpy().item() if isinstance(value, Constant) and not value.ty.ndim else None


def clamp(site: Site) -> relax.Expr:
    """aten.clamp between numbers, of which TVM's converter makes an infinity where there is but one."""
    wide = accumulator(site.dtype)
    value = site.cast(site["self"], wide)
    for name, bound in (("min", relax.op.maximum), ("max", relax.op.minimum)):
        if site[name] is not None:
            value = site.emit(bound(value, _operand(site, name, wide)))
    return value


def power(site: Site) -> relax.Expr:
    """aten.pow of a tensor and a number: as PyTorch has it a root for ½, and from 2 on a product for its whole part."""
    exponent = site["exponent"]
    if exponent == 0.5:
        return site.emit(relax.op.sqrt(site.cast(site["self"], accumulator(site.dtype))))
    if not 2 <= exponent <= _MOST_FACTORS:
        return site.importer.create_convert_map()["pow.Tensor_Scalar"](site.node)
    x = site.cast(site["self"], accumulator(site.dtype))
    whole, share = divmod(exponent, 1)
    found = None if share == 0 else site.emit(relax.op.power(x, relax.const(share, type_name(x))))
    for bit in range(int(whole).bit_length()):
        x = x if bit == 0 else site.emit(relax.op.multiply(x, x))
        if int(whole) >> bit & 1:
            found = x if found is None else site.emit(relax.op.multiply(found, x))
    return found


_MOST_FACTORS = 64
"""Of a power that is a product; TVM's own power warns of exponents from 3 on, whatever it is a power of."""


def of_each(value: Callable[[Any], Any]) -> Callable[[Site], relax.Expr]:
    """Operators of one tensor that compute element by element."""

    def convert(site: Site) -> relax.Expr:
        x, name = site.cast(site["self"], accumulator(site.dtype)), value.__name__
        return site.compute(lambda a: te.compute(a.shape, lambda *i: value(a(*i)), name=name), x, name=name)

    return convert


def cosh(x: Any) -> Any:
    """Of which TVM has no code for vectors."""
    grown, shrunk = _halves_of_powers(x)
    return grown + shrunk


def sinh(x: Any) -> Any:
    """Likewise; by its series where the difference of powers would cancel."""
    grown, shrunk = _halves_of_powers(x)
    return tirx.Select(tirx.abs(x) < 0.5, _series_of_sinh(x), grown - shrunk)


def expm1(x: Any) -> Any:
    """Which TVM computes as eˣ − 1: near 0, 2·sinh(x/2)·e^(x/2)."""
    near = _series_of_sinh(x * 0.5) * 2.0 * tirx.exp(x * 0.5)
    return tirx.Select(tirx.abs(x) < 0.5, near, tirx.exp(x) - 1.0)


def log1p(x: Any) -> Any:
    """Which TVM computes as log(1 + x): near 0, 2·artanh(x/(2 + x)) by its series."""
    part = x / (x + 2.0)
    square, series = part * part, tirx.const(1.0 / (2 * _TERMS + 1), str(x.ty.dtype))
    for n in range(_TERMS - 1, -1, -1):
        series = series * square + 1.0 / (2 * n + 1)
    return tirx.Select(tirx.abs(x) < 0.25, part * 2.0 * series, tirx.log(x + 1.0))


_TERMS = 9
"""Of both series: what follows is below the resolution of float64 for sinh of ½ and log1p of −¼."""


def _series_of_sinh(x: Any) -> Any:
    square, series = x * x, tirx.const(1.0, str(x.ty.dtype))
    for n in range(_TERMS, 0, -1):
        series = series * square * (1.0 / (2 * n * (2 * n + 1))) + 1.0
    return x * series


def _halves_of_powers(x: Any) -> tuple[Any, Any]:
    """eˣ/2 and e⁻ˣ/2, neither of which is out of range where their sum is not."""
    root = tirx.exp(x * 0.5)
    return (root * 0.5) * root, tirx.const(0.5, str(x.ty.dtype)) / root / root


def _promoted(site: Site) -> str:
    """The dtype that PyTorch compares in."""
    values = [v.meta["val"] if isinstance(v := site.given(name), fx.Node) else v for name in ("self", "other")]
    return dtype_name(torch.result_type(*values))


def _operand(site: Site, name: str, dtype: str, rounded_to: str | None = None) -> relax.Expr:
    """The operand of that name in a dtype; a number by way of `rounded_to`."""
    value = site[name]
    if isinstance(value, (bool, int, float)):
        if rounded_to is not None:
            value = torch.tensor(value, dtype=getattr(torch, rounded_to)).item()
        return relax.const(value, dtype)
    if isinstance(getattr(value, "ty", None), relax.TensorType):
        return site.cast(value, dtype)
    return site.cast(site.compute(lambda v: te.compute((), lambda: v, name="number"), value, name="number"), dtype)

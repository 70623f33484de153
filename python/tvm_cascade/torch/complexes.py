"""Complex numbers inside a graph, as pairs of real tensors: rotary embeddings turn pairs of features by them.

What moves elements, and what is linear, is done to both parts. Arguments and results of a model are real.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from tvm import relax

from tvm_cascade.torch.site import ConversionError, Site, origin

Pair = tuple[relax.Expr, relax.Expr]

_OF_PARTS = """
    _to_copy add alias cat clone contiguous cumsum detach diagonal expand flip gather index index_select mean neg
    permute repeat reshape roll select slice squeeze stack sub sum t transpose unsqueeze view where
"""
_LINEAR = frozenset(_OF_PARTS.split())


def is_of_complex_numbers(node: fx.Node) -> bool:
    """Whether an operator takes or gives complex numbers."""
    return any(map(_is_complex, (node, *node.all_input_nodes)))


def _is_complex(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()


def of_pairs(site: Site, convert: Callable[[], Any]) -> Any:
    """The conversion of an operator on pairs.

    Parameters
    ----------
    convert : the conversion on real tensors.

    Raises
    ------
    ConversionError
        Where it is neither linear nor one of those that are known.
    """
    operator, name = site.node.target, site.node.target._schema.name.removeprefix("aten::")
    if name in _OF_PAIRS:
        return _OF_PAIRS[name](site)
    numbers = [one for one in site.node.args[:2] if isinstance(one, fx.Node) and _is_complex(one)]
    of_parts = name in _LINEAR and _is_complex(site.node) and "dtype" not in site.node.kwargs
    if of_parts and (name not in ("add", "sub") or len(numbers) == 2):
        return tuple(_part(site, convert, k) for k in range(2))
    hint = "compute on real and imaginary parts, which torch.view_as_real gives"
    raise ConversionError(
        [operator], "operators that take complex numbers as pairs", str(operator), origin(site.node), hint
    )


def _part(site: Site, convert: Callable[[], Any], k: int) -> relax.Expr:
    """What a converter gives of the real parts, or of the imaginary ones."""
    values = {one: one.meta["val"] for one in (site.node, *site.node.all_input_nodes) if _is_complex(one)}
    with site.operands(_is_complex, lambda pair: pair[k]):
        try:
            for one, value in values.items():
                one.meta["val"] = value.real
            found = convert()
            return site.emit(found) if isinstance(found, relax.Call) else found
        finally:
            for one, value in values.items():
                one.meta["val"] = value


def _polar(site: Site) -> Pair:
    size, angle = site["abs"], site["angle"]
    parts = (site.emit(relax.op.cos(angle)), site.emit(relax.op.sin(angle)))
    return _both(site, parts, lambda part: relax.op.multiply(size, part))


def _both(site: Site, parts: Sequence[relax.Expr], change: Callable[[relax.Expr], relax.Expr]) -> Pair:
    real, imaginary = (site.emit(change(part)) for part in parts)
    return real, imaginary


def _product(site: Site) -> Pair:
    left, right = site["self"], site["other"]
    if not (isinstance(left, tuple) and isinstance(right, tuple)):
        pair, factor = (left, right) if isinstance(left, tuple) else (right, left)
        return _both(site, pair, lambda part: relax.op.multiply(part, _factor(factor, part)))
    (a, b), (c, d) = left, right
    ac, bd, ad, bc = (site.emit(relax.op.multiply(x, y)) for x, y in ((a, c), (b, d), (a, d), (b, c)))
    return site.emit(relax.op.subtract(ac, bd)), site.emit(relax.op.add(ad, bc))


def _factor(factor: Any, part: relax.Expr) -> relax.Expr:
    dtype = str(part.ty.dtype.dtype)
    return relax.const(factor, dtype) if isinstance(factor, (int, float)) else relax.op.astype(factor, dtype)


def _as_complex(site: Site) -> Pair:
    axis = site.node.meta["val"].dim()
    return _both(site, (relax.const(0), relax.const(1)), lambda k: relax.op.take(site["self"], k, axis, mode="clip"))


_OF_PAIRS: Mapping[str, Callable[[Site], Any]] = {
    "polar": _polar,
    "complex": lambda site: (site["real"], site["imag"]),
    "view_as_complex": _as_complex,
    "view_as_real": lambda site: site.emit(relax.op.stack([*site["self"]], axis=-1)),
    "real": lambda site: site["self"][0],
    "imag": lambda site: site["self"][1],
    "_conj": lambda site: (site["self"][0], site.emit(relax.op.negative(site["self"][1]))),
    "mul": _product,
    "_assert_tensor_metadata": lambda _: None,
}

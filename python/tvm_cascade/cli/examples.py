"""The programs that commands know by name: the builders of `tvm_cascade.te`, each at a size to try."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import te as tensors

from tvm_cascade import te
from tvm_cascade.cli.jobs import GivenFunction
from tvm_cascade.errors import InputError

_SMALL = {"heads": 4, "kv_heads": 4, "queries": 32, "keys": 96, "features": 32, "tokens": 32, "rows": 4, "length": 4096}
"""Extents of small machines, at most."""


@dataclass(frozen=True)
class Example:
    """A builder at a size.

    Attributes
    ----------
    name : by which commands know it.
    builder : of `tvm_cascade.te`.
    inputs : of each argument the names of its extents, and its dtype where it is no float.
    shape : extents by name.
    options : further arguments.
    dtype : that floats are stored in.
    """

    name: str
    builder: Callable[..., tensors.Tensor | tuple[tensors.Tensor, ...]]
    inputs: Mapping[str, str]
    shape: Mapping[str, int]
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"

    @property
    def cpu(self) -> Example:
        """The same at a size for small machines."""
        return dataclasses.replace(self, shape={name: min(n, _SMALL.get(name, n)) for name, n in self.shape.items()})

    def with_shape(self, **extents: int) -> Example:
        """The same with some extents replaced.

        Raises
        ------
        InputError
            When an extent is unknown or is 0.
        """
        where = f"--shape of `{self.name}`"
        if unknown := extents.keys() - self.shape.keys():
            raise InputError(f"extents among {', '.join(self.shape)}", ", ".join(sorted(unknown)), where)
        if empty := [name for name, extent in extents.items() if extent < 1]:
            raise InputError("a positive integer", "0", f"{where}, {empty[0]}")
        return dataclasses.replace(self, shape={**self.shape, **extents})

    def with_dtype(self, dtype: str) -> Example:
        """The same with floats stored in another dtype."""
        return dataclasses.replace(self, dtype=dtype)

    @property
    def job(self) -> GivenFunction:
        """The unfused function, of inputs and then outputs."""
        given = {}
        for name, told in self.inputs.items():
            extents, _, dtype = told.partition(" of ")
            given[name] = tensors.placeholder([self.shape[one] for one in extents.split()], dtype or self.dtype, name)
        made = self.builder(**given, **self.options)
        func = tensors.create_prim_func([*given.values(), *(made if isinstance(made, tuple) else (made,))])
        return GivenFunction(self.name, "tvm_cascade.te", func, shape=self.shape)


_ROWS, _MATRIX = {"x": "rows length"}, {"rows": 1024, "length": 8192}
_HEADS = {"q": "batch heads queries features", **dict.fromkeys("kv", "batch kv_heads keys features")}
_PAGES = {**_HEADS, **dict.fromkeys("kv", "pool page kv_heads features"), "pages": "batch pages of int32"}
_PROMPT = {"batch": 1, "heads": 8, "kv_heads": 8, "queries": 512, "keys": 512, "features": 64}
_CACHE = {"batch": 8, "heads": 8, "kv_heads": 2, "queries": 1, "pool": 512, "page": 16, "pages": 64, "features": 64}
_CLASSES, _SCORES = {"rows": 1024, "classes": 8192}, {"tokens": 2048, "experts": 128}

EXAMPLES: Mapping[str, Example] = {
    one.name: one
    for one in (
        Example("attention", te.attention, _HEADS, _PROMPT),
        Example("attention_causal", te.attention, _HEADS, _PROMPT, {"mask_mod": lambda b, h, i, j: j <= i}),
        Example("attention_paged", te.attention, _PAGES, _CACHE),
        Example("softmax", te.softmax, _ROWS, _MATRIX),
        Example("log_softmax", te.log_softmax, _ROWS, _MATRIX),
        Example("logsumexp", te.logsumexp, _ROWS, _MATRIX),
        Example("cross_entropy", te.cross_entropy, {"logits": "rows classes", "target": "rows of int32"}, _CLASSES),
        Example("layer_norm", te.layer_norm, {**_ROWS, "gain": "length", "bias": "length"}, _MATRIX),
        Example("rms_norm", te.rms_norm, {**_ROWS, "gain": "length"}, _MATRIX),
        Example("moments", te.moments, _ROWS, _MATRIX),
        Example("quantise", te.quantise, _ROWS, _MATRIX),
        Example("router", te.router, {"logits": "tokens experts"}, _SCORES, {"k": 4}),
        Example("topk", te.topk, {"x": "tokens experts"}, _SCORES, {"k": 4}),
    )
}
"""Each by its name."""

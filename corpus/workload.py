"""A workload: a named, unfused program with a shape and dtypes, and what a measurement needs of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np
from tvm import tirx

from corpus.programs.draws import KINDS, Values
from corpus.programs.program import Builder, Precision, Program, Shape, dtype_of, extents
from tvm_cascade.errors import CascadeError

# The dtype that sums use, by the dtype that tensors are stored in.
_ACCUMULATE = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "float64": "float64"}
# The twin's extents are at most these; heads keep their grouping (`_limited`).
_CPU_LIMITS: Mapping[str, int] = {
    "batch": 2,
    "heads": 4,
    "kv_heads": 2,
    "queries": 32,
    "keys": 96,
    "shortest": 9,
    "page": 16,
    "prefix": 40,
    "head_dim": 32,
    "value_dim": 24,
    "window": 24,
    "latent_dim": 64,
    "rope_dim": 16,
    "tokens": 32,
    "hidden": 192,
    "features": 192,
    "columns": 48,
    "column_blocks": 2,
    "experts": 32,
    "classes": 80,
    "rows": 4,
    "length": 4096,
    "m": 40,
    "n": 48,
    "k": 72,
    "l": 56,
    "height": 6,
    "width": 7,
}
# (extent, extent that bounds it, whether it must also divide it)
_RELATIONS = (
    ("kv_heads", "heads", True),
    ("topk", "experts", False),
    ("shortest", "keys", False),
    ("prefix", "keys", False),
)


class WorkloadError(CascadeError, KeyError):
    """No workload of that name, or a shape that it does not take."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Workload:
    """A named program with its shape and dtypes.

    Attributes
    ----------
    name, family, source : what it is called, the kind of program, and whose benchmark it is from.
    shape : named extents, all positive.
    dtype, accumulate_dtype : storage of the floating-point tensors, and dtype of arithmetic and sums.
    builder : makes the program from a shape and the dtypes.
    length_extents : the extents that `with_length` sets: the cascade axis, and the queries of self-attention.
    allowances : switches of `FuseOptions` that `compile` gets in the GPU suites.
    """

    name: str
    family: str
    source: str
    shape: Shape = field(hash=False)
    dtype: str
    accumulate_dtype: str
    builder: Builder = field(repr=False)
    length_extents: tuple[str, ...]
    allowances: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", MappingProxyType(dict(self.shape)))
        _check_shape(self.name, self.shape)

    @property
    def job(self) -> Workload:
        """What is run: itself."""
        return self

    @property
    def precision(self) -> Precision:
        return Precision(self.dtype, self.accumulate_dtype)

    @cached_property
    def program(self) -> Program:
        """Its tensors, written once: that takes a second of a router."""
        return self.builder(self.shape, self.precision)

    @property
    def label(self) -> str:
        """The title of its table: its name and extents."""
        return f"{self.name} {'x'.join(map(str, self.shape.values()))}"

    @property
    def outputs(self) -> list[tuple[tuple[int, ...], np.dtype[np.generic]]]:
        return [(extents(tensor), dtype_of(tensor)) for tensor in self.program.outputs]

    @property
    def length(self) -> int:
        """The extent of the cascade axis."""
        return self.shape[self.length_extents[-1]]

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, which are the last parameters of `build()`."""
        return tuple(tensor.name for tensor in self.program.outputs)

    @property
    def cpu(self) -> Workload:
        """The same program at a size that a float64 oracle in NumPy evaluates in under a second."""
        return self.within(_CPU_LIMITS)

    def within(self, limits: Mapping[str, int]) -> Workload:
        """The workload with no extent above its limit; heads keep their grouping."""
        return dataclasses.replace(self, shape=_limited(self.shape, limits))

    def with_shape(self, **overrides: int) -> Workload:
        """The workload with some extents replaced.

        Raises
        ------
        WorkloadError
            When an extent is unknown or not a positive integer, or two extents do not fit each other.
        """
        if unknown := overrides.keys() - self.shape.keys():
            raise WorkloadError(
                f"extents among {', '.join(self.shape)}", ", ".join(sorted(unknown)), f"workload `{self.name}`"
            )
        return dataclasses.replace(self, shape={**self.shape, **overrides}) if overrides else self

    def with_length(self, length: int) -> Workload:
        """The workload with `length` positions on the cascade axis; self-attention stays square.

        Raises
        ------
        WorkloadError
            When the length is not a positive integer, or other extents do not fit it.
        """
        return self.with_shape(**dict.fromkeys(self.length_extents, length))

    def with_dtype(self, dtype: str, accumulate_dtype: str | None = None) -> Workload:
        """The workload stored in another dtype; sums are at least float32 unless `accumulate_dtype` says otherwise.

        Raises
        ------
        WorkloadError
            When a dtype is not one of float16, bfloat16, float32, float64.
        """
        accumulate_dtype = accumulate_dtype or _ACCUMULATE.get(dtype, dtype)
        for given in (dtype, accumulate_dtype):
            if given not in _ACCUMULATE:
                raise WorkloadError(f"a dtype among {', '.join(_ACCUMULATE)}", repr(given), f"workload `{self.name}`")
        return dataclasses.replace(self, dtype=dtype, accumulate_dtype=accumulate_dtype)

    def build(self, **shape_overrides: int) -> tirx.PrimFunc:
        """The unfused program as S-TIR, one block per stage: parameters are the inputs, then the outputs.

        Raises
        ------
        WorkloadError
            As `with_shape`.
        """
        return self.with_shape(**shape_overrides).program.prim_func()

    def inputs(self, rng: np.random.Generator, kind: str = "normal") -> list[Values]:
        """Arrays for the inputs, contiguous, in the order of the parameters, in their dtypes.

        Parameters
        ----------
        kind : one of `draws.KINDS`; arguments whose role fixes their values (masks, masses, weights) ignore it.

        Raises
        ------
        WorkloadError
            When the kind is unknown.
        """
        if kind not in KINDS:
            raise WorkloadError(f"a kind of data among {', '.join(KINDS)}", repr(kind), f"workload `{self.name}`")
        # Drawn along the cascade axis; a peer that was handed a transposed view would pay for it in every call.
        return [np.ascontiguousarray(argument.values(rng, kind)) for argument in self.program.arguments]

    def flops(self, **shape_overrides: int) -> int:
        """Useful floating-point operations; see `Program.flops`."""
        return self.with_shape(**shape_overrides).program.flops

    def bytes(self, **shape_overrides: int) -> int:
        """Compulsory bytes: every input read once, every output written once."""
        return self.with_shape(**shape_overrides).program.compulsory_bytes


def _check_shape(name: str, shape: Shape) -> None:
    where = f"workload `{name}`"
    for extent, value in shape.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise WorkloadError("a positive integer", repr(value), f"{where}, extent `{extent}`")
    for extent, bound, divides in _RELATIONS:
        if extent not in shape:
            continue
        if shape[extent] > shape[bound] or (divides and shape[bound] % shape[extent]):
            relation = "a divisor of" if divides else "at most"
            raise WorkloadError(f"{extent} {relation} {bound} = {shape[bound]}", str(shape[extent]), where)


def _limited(shape: Shape, limits: Mapping[str, int]) -> Shape:
    small = {extent: min(value, limits.get(extent, value)) for extent, value in shape.items()}
    if "kv_heads" in shape:
        small["heads"] = small["kv_heads"] * (shape["heads"] // shape["kv_heads"])
    return small

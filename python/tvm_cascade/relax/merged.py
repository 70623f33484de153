"""The functions of a program as `get_pipeline` fuses them: those of Relax in the PrimFuncs of their operators."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import ir, relax
from tvm.target import Target

from tvm_cascade.driver.functions import functions_of
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions
from tvm_cascade.relax.pipeline import Pipeline
from tvm_cascade.report.group import Apart


@dataclass(frozen=True)
class Merged:
    """The functions of a program.

    Attributes
    ----------
    functions : by name.
    apart : operators of Relax that were looked at together and not merged.
    """

    functions: dict[str, ir.BaseFunc]
    apart: tuple[Apart, ...] = ()


def merged(mod_or_func: object, target: Target, options: FuseOptions, where: str) -> Merged:
    """The functions of a module, or the one PrimFunc; in place of those of Relax, what their operators are merged into.

    Raises
    ------
    InputError
        When it is neither a module nor a PrimFunc, or TVM does not legalise an operator; the message names `where`.
    """
    functions = functions_of(mod_or_func, where)
    if not isinstance(mod_or_func, tvm.IRModule) or not _of_relax(functions):
        return Merged(functions)
    pipeline = Pipeline(target, options)
    try:
        found = pipeline.functions(pipeline.grouped(mod_or_func))
    except Exception as error:  # whatever TVM's passes run into
        first = next(iter(str(error).strip().splitlines()), "")
        told = f"{type(error).__name__}: {first}"
        raise InputError("a module of Relax whose operators TVM legalises", told, where) from error
    return Merged(found, pipeline.apart)


def _of_relax(functions: dict[str, ir.BaseFunc]) -> bool:
    return any(isinstance(func, relax.Function) for func in functions.values())

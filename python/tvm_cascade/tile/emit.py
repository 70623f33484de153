"""Emits statements of a TIRx function: thin wrappers over TVM's builder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T


@contextmanager
def when(condition: ir.Expr) -> Iterator[None]:
    with T.If(condition), T.Then():
        yield


@contextmanager
def branches(condition: ir.Expr) -> Iterator[tuple[Any, Any]]:
    """`if condition: … else: …`, as the frames of the two branches."""
    with T.If(condition):
        yield T.Then(), T.Else()


def named(name: str, value: Any) -> Any:
    """Names a value in the function's text; c′ becomes c_next, Δc becomes step_c."""
    plain = name.replace("'", "_next").replace("Δ", "step_")
    IRBuilder.name("".join(c if c.isalnum() and c.isascii() else "_" for c in plain), value)
    return value


def bind(name: str, value: ir.Expr) -> tirx.Var:
    return named(name, T.Bind(value))


def numbered(name: str, number: int) -> str:
    """The name of one of several of a kind; of the first, that of the kind."""
    return f"{name}_{number}" if number else name


def parameter(param: tirx.Var) -> Any:
    """Declares a parameter of the program as the kernel's: a tensor of its own, or the same number."""
    if not tirx.is_buffer_var(param):
        return T.arg(param.name, param)
    return T.arg(param.name, T.Buffer(tuple(param.ty.shape), str(param.ty.dtype)))


def put(buffer: Any, index: ir.Expr | int, value: ir.Expr) -> None:
    T.buffer_store(buffer, value, [index])


def shared_pool() -> Any:
    """A pool of dynamic shared memory; for its own buffer, TVM looks up who asks in all modules that are loaded."""
    buffer = T.alloc_buffer([0], "uint8", scope="shared.dyn")
    pool = T.SMEMPool(buffer.data)
    pool.buf, pool._owns_buffer = buffer, True
    return pool


def registers(name: str, count: int, dtype: str = "float32") -> Any:
    """A per-thread array, indexed by constants or unrolled loops only, so that it stays in registers."""
    return named(name, T.alloc_local((count,), dtype))


def variable(name: str, start: ir.Expr) -> Any:
    """A register that starts with a value, as an array of one."""
    own = registers(name, 1, str(start.ty.dtype))
    put(own, 0, start)
    return own


def in_register(name: str, value: ir.Expr) -> ir.Expr:
    """Stores the value in a register, since TVM looks through bound variables, slowly for nested selections."""
    found: ir.Expr = variable(name, value)[0]
    return found


@cache
def _instruction(name: str) -> Any:
    return T.ptx[name]


def ptx(instruction: str, *operands: Any) -> None:
    T.evaluate(_instruction(instruction)(*operands))


def device_functions(file: Path) -> dict[str, str]:
    """The CUDA texts in a file beside a module, by the names in brackets above them: `// [name]`."""
    _, *parts = re.split(r"^// \[(\w+)\]$", file.read_text("utf-8"), flags=re.MULTILINE)
    return {name: text.rstrip("\n") + "\n" for name, text in zip(parts[::2], parts[1::2], strict=True)}


def device_call(name: str, source: str, /, *arguments: Any, returned: str = "void", **fields: object) -> Any:
    """Calls a device function, whose text comes along; a statement of its own where it returns nothing.

    Parameters
    ----------
    fields : values of `${...}` in the text.
    """
    source = Template(source).substitute(fields)
    call = T.cuda.func_call(name, *arguments, source_code=source, return_type=returned)
    if returned == "void":
        T.evaluate(call)
    return call


def sync_block() -> None:
    T.evaluate(T.cuda.cta_sync())


def kernel_extent(extent: int | ir.Expr) -> ir.Expr:
    """An extent as an expression in the dtype of the kernel's own integers."""
    return tirx.const(extent, "int32") if isinstance(extent, int) else T.cast(extent, "int32")


def digits(
    number: ir.Expr, variables: Sequence[tirx.Var], extent_of: Callable[[tirx.Var], Any],
    kept: Callable[[str, ir.Expr], ir.Expr] = bind,
) -> dict[tirx.Var, ir.Expr]:  # fmt: skip
    """The values of variables at a point of their space, by its number; the last of them runs fastest."""
    found: dict[tirx.Var, ir.Expr] = {}
    for var in reversed(variables):
        extent = kernel_extent(extent_of(var))
        found[var] = kept(var.name, number % extent)
        number = number // extent
    return found


_COMPUTED_HERE = """
__device__ __forceinline__ {c} computed_here_{dtype}({c} value) {{
  {c} same;
  asm volatile("mov.b{bits} %0, %1;" : "=r"(same) : "r"(value));
  return same;
}}
"""
_INTEGERS = {"int32": ("int", 32), "uint64": ("unsigned long long", 64)}


def computed_here(value: ir.Expr) -> ir.Expr:
    """An integer that is computed where it stands; compilers would keep what is made of it in registers for a loop."""
    dtype = str(value.ty.dtype)
    c, bits = _INTEGERS[dtype]
    text = _COMPUTED_HERE.format(c=c, dtype=dtype, bits=bits).replace('r"(', 'l"(' if bits == 64 else 'r"(')
    return device_call(f"computed_here_{dtype}", text, value, returned=dtype)

"""From a group to a kernel: shape, tile program, configuration, skeleton."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.absorption import absorbing
from tvm_cascade.analysis.domain import Program
from tvm_cascade.analysis.extract import Group
from tvm_cascade.tile.config import StreamConfig, choose_config
from tvm_cascade.tile.element import Mask
from tvm_cascade.tile.kernels.stream import StreamKernel
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.program import TileProgram, build_program
from tvm_cascade.tile.shape import read_stream
from tvm_cascade.transform.dead_tiles import dead_positions

_NEUTRAL = (-sp.oo, sp.S.Zero, sp.oo)
"""Values of an element that may leave every state as it is."""


@dataclass(frozen=True)
class Kernel:
    """A kernel for tensor cores.

    Attributes
    ----------
    func : the TIRx function, over the parameters of the unfused one.
    program : what a tile does.
    config : how it is cut.
    """

    func: tirx.PrimFunc
    program: TileProgram
    config: StreamConfig


def build_kernel(program: Program, group: Group, name: str, config: StreamConfig | None = None) -> Kernel:
    """The kernel of a function that is one group of the stream shape.

    Raises
    ------
    Unfit
        Where the function is not of that shape, or the kernel would not fit the hardware.
    """
    tile_program = build_program(read_stream(program, group))
    chosen = config or choose_config(tile_program)
    dead = dead_positions(tile_program.stream.group)
    skip = dead.slacks if dead is not None and not dead.absorbed else ()
    tail = _tail(tile_program, chosen)
    return Kernel(StreamKernel(tile_program, chosen, tail, skip).build(name), tile_program, chosen)


def _tail(program: TileProgram, config: StreamConfig) -> Mask | None:
    """The mask of positions past the end of the axis; None where tiles end with it."""
    stream = program.stream
    length = stream.extent(stream.position)
    if isinstance(length, int) and length % config.columns == 0:
        return None
    element = program.element
    for value in _NEUTRAL:
        if absorbing(stream.fold, {element.symbol: value}) == ():
            bound: ir.Expr = tirx.const(length, "int32") if isinstance(length, int) else length
            return Mask(stream.position < bound, True, element.register_of(value))
    raise Unfit(f"no value of {stream.score.name} leaves the state as it is, and the last tile is not full")

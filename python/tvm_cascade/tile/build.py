"""From a group to a kernel: shape, tile program, configuration, skeleton."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from tvm_cascade.analysis.domain import Program
from tvm_cascade.analysis.extract import Group
from tvm_cascade.tile.config import StreamConfig, choose_config
from tvm_cascade.tile.kernels.stream import StreamKernel
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.program import TileProgram, build_program
from tvm_cascade.tile.shape import read_stream


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
    if not chosen.fits(tile_program.stream):
        raise Unfit(f"{chosen} needs more registers or shared memory than there are")
    return Kernel(StreamKernel(tile_program, chosen).build(name), tile_program, chosen)

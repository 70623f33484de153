"""What it takes to add to kernels: an order of tiles, an epilogue, a card; each is all in one place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.devices import cards
from tvm_cascade.devices.cards import H200
from tvm_cascade.devices.read import card_of
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.tile.emit import bind, kernel_extent, when
from tvm_cascade.tile.fragment import NEIGHBOURS, QUAD, ROWS
from tvm_cascade.tile.product.matrix import MatrixProduct
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.consumer import PlainSumming
from tvm_cascade.tile.skeletons.product.epilogue import Epilogue, MapEpilogue
from tvm_cascade.tile.skeletons.product.kernel import ProductKernel, Roles
from tvm_cascade.tile.skeletons.product.raster import Tile, TileOrder

from .emulator.run import Array, compiler, emulate
from .product_programs import Product, inputs_of
from .test_products import SMALL, kernel_of

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

PRODUCT = Product(m=264, n=264, k=136, out="float32")


def _run(roles: Callable[[MatrixProduct], Roles]) -> tuple[Array, Array]:
    """What the kernel of such roles leaves, and the product in float64."""
    func = PRODUCT.build()
    given, shape = inputs_of(func), kernel_of(func).program
    (got,) = emulate(ProductKernel([shape], SMALL, roles(shape)).build("main"), given)
    a, b = (np.asarray(one, np.float64) for one in given)
    return got, a @ b.T


class LastFirst(TileOrder):
    """Tiles column by column, from the last one on; blocks take them in turn."""

    def __init__(self, shape: MatrixProduct, config: ProductConfig) -> None:
        self.config = config
        self.down = -(-kernel_extent(shape.left.line.extent) // config.rows)
        self.across = -(-kernel_extent(shape.right.line.extent) // config.columns)

    @property
    def grid(self) -> ir.Expr:
        return tirx.const(self.config.blocks, "int32")

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Tile]:
        total = self.down * self.across
        with T.serial((total - block + self.grid - 1) // self.grid) as turn:
            yield self._tile(bind("number", total - 1 - block - turn * self.grid))

    def first(self, block: ir.Expr) -> Tile:
        return self._tile(self.down * self.across - 1 - block)

    def _tile(self, number: ir.Expr) -> Tile:
        row, column = number % self.down, number // self.down
        return Tile(bind("first_row", row * self.config.rows), bind("first_column", column * self.config.columns), {})


@emulated
def test_an_order_of_tiles_is_one_class() -> None:
    roles = Roles(lambda feeds, _: MapEpilogue(feeds[0]), PlainSumming, order=LastFirst)
    got, exact = _run(lambda _: roles)
    assert check(got, exact, length=PRODUCT.k, dtype="float32").ok


class SquaresEpilogue(Epilogue):
    """Stores the squares of sums, element by element."""

    def __init__(self, shape: MatrixProduct, target: Any) -> None:
        self.shape, self.target = shape, target

    def emit(self, tile: Tile, sums: Any, index: ir.Expr, threads: Any) -> None:
        ends = [kernel_extent(side.line.extent) for side in (self.shape.left, self.shape.right)]
        ((own,),) = sums
        first = tile.first_row + index * 64 + threads.warp * 16 + threads.lane // QUAD
        with T.unroll(SMALL.columns // 8) as j:
            for r in ROWS:
                for e in NEIGHBOURS:
                    at = first + 8 * r, tile.first_column + j * 8 + threads.lane % QUAD * 2 + e
                    value = own[j * 4 + 2 * r + e]
                    with when(tirx.all(at[0] < ends[0], at[1] < ends[1])):
                        T.buffer_store(self.target, value * value, list(at))


@emulated
def test_an_epilogue_is_one_class() -> None:
    def roles(shape: MatrixProduct) -> Roles:
        (output,) = shape.outputs
        return Roles(lambda feeds, _: SquaresEpilogue(shape, feeds[0].buffers[output.buffer]), PlainSumming)

    got, exact = _run(roles)
    assert check(got, exact**2, length=2 * PRODUCT.k, dtype="float32").ok


def test_a_card_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of half the multiprocessors and a tenth of the tensor rate: grids are cut for it, and estimates follow."""
    half = dataclasses.replace(
        H200, name="half a card", processors=66, tensor_flops_per_second=H200.tensor_flops_per_second / 10
    )
    func, target = Product(m=4096, n=4096, k=4096).build(), {"kind": "cuda", "arch": "sm_90a", "model": "half a card"}
    monkeypatch.setattr(cards, "CARDS", (*cards.CARDS, half))
    known, whole = card_of(tvm.target.Target(target)), kernel_of(func)
    assert known == half
    found = kernel_of(func, gpu=known)
    assert found.config.blocks == 66 and whole.config.blocks == 132
    assert 8 < found.seconds / whole.seconds < 12

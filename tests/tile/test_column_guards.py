"""Guards of column kernels: rows that are neighbours in memory, of which some fail and others do not."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tvm import tirx

from tvm_cascade.evaluate.tolerance import kinds
from tvm_cascade.tile.row.config import RowConfig

from ..transform.running import Array, Arrays, build, run
from .column_programs import batch_norm
from .emulator.run import compiler, emulate
from .test_columns import FEW_LANES, GRID, KEPT, MANY, ONE, transposed
from .test_row_guards import LENGTH, PLAIN, ROWS, by_a_sum, mean_by_shares, special, standardised
from .test_row_kernels import row_kernel

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

ALONE = RowConfig(128, 1, 4, 4, strided=True)
CLUSTER = RowConfig(128, 16, 4, 2, segments=4, clustered=True, strided=True)
LEVELS = {"alone": ALONE, "one": ONE, "few lanes": FEW_LANES, "grid": GRID, "many blocks": MANY}
CASES = {"standardised": standardised, "by a sum": by_a_sum, "mean by shares": mean_by_shares}


@cache
def unfused(name: str) -> tuple[tirx.PrimFunc, Arrays, list[Array]]:
    """A program over columns with inputs, and what it gives as it was written, over rows."""
    plain = CASES[name]()
    inputs = [special(), special(seed=2)][: len(plain.params) - 1]
    expected = list(run(build(plain), plain, inputs).values())
    return transposed(plain), [np.ascontiguousarray(array.T) for array in inputs], expected


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", CASES)
def test_every_row_has_the_class_that_it_has_unfused(name: str, level: str) -> None:
    func, inputs, expected = unfused(name)
    on, off = (row_kernel(func, LEVELS[level], guards=guards) for guards in ("auto", "off"))
    assert on.config.strided and on.guarded and not off.guarded
    for own, without, wanted in zip(emulate(on.func, inputs), emulate(off.func, inputs), expected, strict=True):
        np.testing.assert_array_equal(kinds(own), kinds(wanted))
        np.testing.assert_array_equal(own[PLAIN], without[PLAIN])


@pytest.mark.parametrize("config", [ONE, KEPT, CLUSTER], ids=["one", "kept", "cluster"])
def test_what_is_written_reads_the_results_that_are_folded_again(config: RowConfig) -> None:
    func, rng = batch_norm("float32", ROWS, 4, LENGTH // 16), np.random.default_rng(1)
    x = special().T.reshape(-1, 4, 4, ROWS).copy()
    inputs = [x, *(rng.random(ROWS, "float32") for _ in range(2))]
    wanted = run(build(func), func, inputs)["out"]
    found, without = (emulate(row_kernel(func, config, guards=guards).func, inputs)[0] for guards in ("auto", "off"))
    np.testing.assert_array_equal(kinds(found), kinds(wanted))
    np.testing.assert_array_equal(found[..., PLAIN], without[..., PLAIN])
    assert (kinds(without) != kinds(wanted)).any()

"""The row skeleton over columns of memory, by the emulator: every level, tail and dtype against the float64 oracle."""

from __future__ import annotations

import pytest

from tvm_cascade.tile.row.column_config import ColumnConfig

from .column_programs import COLUMNS
from .emulator.run import compiler
from .test_row_kernels import assert_right

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

ONE = ColumnConfig(lanes=32, groups=4, vector=1, vectors=1)


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_in_the_cut_of_their_own_choice(name: str) -> None:
    assert isinstance(assert_right(COLUMNS[name]()).config, ColumnConfig)

"""What is compared of rows with a NaN: all but the numbers that only the order of an extremum's comparisons gives."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx

from tvm_cascade.accuracy.comparison import Compared
from tvm_cascade.evaluate import oracle

from ..analysis.programs import LENGTH, ROWS, softmax_stats

NAN = np.nan
OUTPUT = tirx.decl_buffer((2,), "float32", name="out")


def judged(exact: float, dropped: float, unfused: float, fused: float) -> bool:
    """Whether an element passes beside one that is 1 everywhere."""
    values = (np.array([value, 1.0]) for value in (exact, dropped, unfused, fused))
    return Compared(OUTPUT, *values, LENGTH, None).judged.ok


@pytest.mark.parametrize(
    ("exact", "dropped", "unfused", "fused", "passes"),
    [
        (NAN, 5.0, 2.0, 3.0, True),  # a maximum, of what follows the NaN
        (NAN, 5.0, 2.0, NAN, True),
        (NAN, 5.0, 2.0, np.inf, False),
        (NAN, 5.0, NAN, 3.0, False),
        (NAN, NAN, 2.0, 3.0, False),  # no maximum has a part in it
        (NAN, NAN, NAN, 3.0, False),
        (4.0, 4.0, np.inf, 3.0, False),
        (4.0, 4.0, np.inf, np.inf, True),  # a dtype that overflows
    ],
)
def test_numbers_are_left_out_where_an_order_of_comparisons_gives_them(
    exact: float, dropped: float, unfused: float, fused: float, passes: bool
) -> None:
    assert judged(exact, dropped, unfused, fused) is passes


def test_the_oracle_drops_a_nan_in_extrema_alone() -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype("float32")
    x[0, 3] = NAN
    buffers = oracle.evaluate_buffers(softmax_stats(), [x], drops_nan=True)
    found = {buffer.name: array for buffer, array in buffers.items()}
    np.testing.assert_array_equal(found["row_max"], np.float64(np.nanmax(x, axis=1)))
    assert np.isnan(found["row_sum"][0]) and np.isfinite(found["row_sum"][1:]).all()

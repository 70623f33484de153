"""The named inputs are what their names say, in every dtype, along any axis."""

import ml_dtypes
import numpy as np
import pytest

from tvm_cascade.errors import InputError
from tvm_cascade.evaluate.inputs import INPUTS

FLOATS = ["float16", "bfloat16", "float32", "float64"]
NAMES = [
    "normal",
    "large_offset",
    "nearly_equal",
    "rising",
    "falling",
    "late_spike",
    "ties",
    "all_neg_inf_row",
    "neg_inf_first_segment",
    "pos_inf",
    "nan",
    "denormals",
    "zeros",
    "tiny",
    "alternating_sign",
]
NON_FINITE = {"all_neg_inf_row", "neg_inf_first_segment", "pos_inf", "nan"}


def _make(name, shape=(6, 40), dtype="float32", **axis):
    return INPUTS[name](np.random.default_rng(0), shape, dtype, **axis)


def test_the_catalogue():
    assert sorted(INPUTS) == sorted(NAMES)


@pytest.mark.parametrize("dtype", [*FLOATS, "int8", "uint8", "int32", "int64", "bool"])
@pytest.mark.parametrize("name", NAMES)
def test_shape_dtype_and_reproducibility(name, dtype):
    values = _make(name, (2, 3, 17), dtype)
    assert values.shape == (2, 3, 17)
    assert values.dtype == np.dtype(dtype)
    assert values.tobytes() == _make(name, (2, 3, 17), dtype).tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", sorted(set(NAMES) - NON_FINITE))
def test_the_others_are_finite(name, dtype):
    assert np.isfinite(_make(name, dtype=dtype).astype(np.float64)).all()


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_shortest_rows(name, length):
    assert _make(name, (length,)).shape == (length,)


def test_large_offset_has_mean_1000():
    assert _make("large_offset", (64, 64)).mean() == pytest.approx(1000.0, abs=1.0)


def test_rising_and_falling():
    for name, sign in (("rising", 1.0), ("falling", -1.0)):
        quarters = sign * _make(name, (6, 40)).reshape(6, 4, 10).max(axis=-1)
        assert (np.diff(quarters, axis=-1) > 0).all()


def test_nearly_equal_rows_differ_by_as_little_as_they_say():
    values = _make("nearly_equal", (64, 64), "float64")
    deviations = np.std(values, axis=-1)
    assert 1e-5 < deviations.min() < 1e-3 < 1e-1 < deviations.max() < 2
    assert (np.abs(values.mean(axis=-1) - 1) < deviations).all()


def test_late_spike_ends_the_row():
    values = _make("late_spike")
    assert (values.argmax(axis=-1) == 39).all()
    assert (values[:, -1] > values[:, :-1].max() + 40).all()


def test_ties_repeat_the_maximum_in_every_row():
    values = _make("ties")
    assert ((values == values.max(axis=-1, keepdims=True)).sum(axis=-1) > 1).all()


def test_all_neg_inf_row_is_the_first_row_only():
    values = _make("all_neg_inf_row")
    assert (values[0] == -np.inf).all()
    assert np.isfinite(values[1:]).all()


def test_neg_inf_first_segment_leaves_the_second_half():
    values = _make("neg_inf_first_segment")
    assert (values[:, :20] == -np.inf).all()
    assert np.isfinite(values[:, 20:]).all()
    assert np.isfinite(_make("neg_inf_first_segment", (3, 1))).all()


@pytest.mark.parametrize(("name", "test"), [("pos_inf", np.isposinf), ("nan", np.isnan)])
def test_one_special_element_in_the_first_row(name, test):
    special = test(_make(name))
    assert special.sum() == 1
    assert special[0].any()


@pytest.mark.parametrize("dtype", FLOATS)
def test_denormals_are_below_the_smallest_normal_and_tiny_is_just_above(dtype):
    smallest = float(ml_dtypes.finfo(dtype).smallest_normal)
    denormals = np.abs(_make("denormals", dtype=dtype).astype(np.float64))
    tiny = np.abs(_make("tiny", dtype=dtype).astype(np.float64))
    assert (denormals > 0).all() and (denormals < smallest).all()
    assert (tiny >= smallest).all() and (tiny <= 16 * smallest).all()


def test_alternating_sign_cancels():
    values = _make("alternating_sign")
    assert (np.sign(values[:, 1:]) == -np.sign(values[:, :-1])).all()
    assert (np.abs(values.sum(axis=-1)) < 0.02 * np.abs(values).sum(axis=-1)).all()


@pytest.mark.parametrize("axis", [0, 1, -2])
def test_the_pattern_runs_along_the_axis_that_is_asked_for(axis):
    values = _make("neg_inf_first_segment", (8, 6, 5), axis=axis)
    rows = np.moveaxis(values, axis, -1)
    half = rows.shape[-1] // 2
    assert values.shape == (8, 6, 5)
    assert (rows[..., :half] == -np.inf).all()
    assert np.isfinite(rows[..., half:]).all()


def test_a_boolean_mask_can_be_fully_masked():
    mask = _make("all_neg_inf_row", dtype="bool")
    assert not mask[0].any()
    assert mask[1:].any() and not mask[1:].all()


def test_infinities_become_the_limits_of_an_integer():
    assert _make("pos_inf", dtype="int8").max() == 127
    assert _make("all_neg_inf_row", dtype="int64").min() == -(2**31)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "complex64"])
def test_an_unknown_dtype_is_an_input_error(dtype):
    with pytest.raises(InputError, match=dtype):
        _make("normal", dtype=dtype)


def test_a_missing_axis_is_an_input_error():
    with pytest.raises(InputError, match="axis 2"):
        _make("normal", (3, 4), axis=2)

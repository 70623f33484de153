"""The tolerance passes what rounding explains, follows non-finite values, and rejects wrong answers."""

import ml_dtypes
import numpy as np
import pytest

from benchmarks.judge.power import rejects
from tvm_cascade.errors import InputError
from tvm_cascade.evaluate.tolerance import assert_close, check, floor


@pytest.fixture
def exact():
    return np.random.default_rng(0).standard_normal((32, 64))


def _softmax_mean(scores, values):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)) @ values


def test_the_formula_is_the_one_that_is_documented():
    exact = np.array([3.0, 4.0, 0.0, 0.0])  # RMS 2.5
    comparison = check([3.0, 4.0, 0.0, 0.1], exact, [3.0, 4.13, 0.0, 0.0], length=16, dtype="float32")
    assert comparison.rms == pytest.approx(2.5)
    assert comparison.max_error == pytest.approx(0.1 / 2.5)
    assert comparison.baseline_error == pytest.approx(0.13 / 6.5)
    assert comparison.allowed == pytest.approx(2 * 0.02 + 8 * np.finfo(np.float32).eps)
    assert comparison.worst == (3,)
    assert comparison.ok


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_rounding_to_the_dtype_passes(exact, dtype):
    assert_close(exact.astype(np.dtype(dtype)), exact, length=1024, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_floor_grows_slowly_and_stays_below_a_lost_digit(dtype):
    eps = float(ml_dtypes.finfo(dtype).eps)
    assert floor(1, dtype) < floor(4096, dtype) < floor(1 << 20, dtype) < 2000 * eps
    assert floor(1 << 20, dtype) < 0.05


def test_a_narrow_float_is_not_excused_for_a_long_sum():
    assert floor(1 << 16, "bfloat16") < 4.01 * float(ml_dtypes.finfo("bfloat16").eps)


def test_twice_the_error_of_the_unfused_program_passes_and_more_does_not(exact):
    noise = 1e-3 * np.sign(exact)
    assert check(exact + 1.9 * noise, exact, exact + noise, length=64, dtype="float32").ok
    assert not check(exact + 2.5 * noise, exact, exact + noise, length=64, dtype="float32").ok
    assert not check(exact + noise, exact, length=64, dtype="float32").ok


def test_each_row_has_its_own_scale(exact):
    exact[0] *= 1e-6
    wrong = exact.copy()
    wrong[0] = 0.0
    comparison = check(wrong, exact, length=64, dtype="float32")
    assert not comparison.ok
    assert comparison.worst is not None and comparison.worst[0] == 0


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_a_non_finite_element_must_match(exact, special):
    expected = exact.copy()
    expected[3, 5] = special
    assert check(expected, expected, length=64, dtype="float32").ok
    for wrong in {np.nan, np.inf, -np.inf, 0.0} - {special}:
        actual = expected.copy()
        actual[3, 5] = wrong
        if np.isnan(wrong) and np.isnan(special):
            continue
        comparison = check(actual, expected, length=64, dtype="float32")
        assert not comparison.ok
        assert comparison.worst == (3, 5)
        assert "non-finite" in comparison.message


def test_a_result_may_overflow_where_the_unfused_program_does(exact):
    exact[0, 0] = 70000.0
    unfused = exact.copy()
    unfused[0, 0] = np.inf
    assert check(unfused, exact, unfused, length=64, dtype="float16").ok
    assert check(exact, exact, unfused, length=64, dtype="float16").ok
    wrong = exact.copy()
    wrong[0, 0] = -np.inf
    assert not check(wrong, exact, unfused, length=64, dtype="float16").ok


def test_what_is_exact_beyond_the_range_is_the_infinity_of_its_sign(exact):
    """1e60 is ∞ in float32, also where the unfused program ends in NaN; −∞ and 0 are wrong."""
    large, lost = exact.copy(), exact.copy()
    large[3, 5], lost[3, 5] = 1e60, np.nan
    for value, passes in ((np.inf, True), (np.nan, True), (-np.inf, False), (0.0, False)):
        result = exact.copy()
        result[3, 5] = value
        assert check(result, large, lost, length=1, dtype="float32").ok == passes
    in_range = exact.copy()
    in_range[3, 5] = np.inf
    assert not check(in_range, exact, length=1, dtype="float32").ok
    assert not check(in_range, large, length=1, dtype="float64").ok


def test_flushing_a_subnormal_to_zero_is_no_error():
    exact = np.array([1e-39, -1e-40])
    assert check(np.zeros(2), exact, length=1, dtype="float32").ok
    assert not check(np.zeros(2), exact, length=1, dtype="float64").ok


def test_an_exact_zero_has_to_be_zero():
    assert check(np.zeros(8), np.zeros(8), length=64, dtype="float32").ok
    assert not check(np.full(8, 1e-6), np.zeros(8), length=64, dtype="float32").ok


U = float(np.finfo(np.float32).smallest_normal)


def test_what_the_terms_of_a_sum_may_lose_to_flushing_is_no_error_where_nothing_can_be_represented():
    assert check(np.full(8, 16 * U), np.zeros(8), length=4096, dtype="float32").ok
    assert check(np.full(8, 16 * U), np.full(8, U / 9), length=4096, dtype="float32").ok
    assert not check(np.full(8, 16 * U), np.zeros(8), length=64, dtype="float32").ok
    assert not check(np.full(8, 200 * U), np.zeros(8), length=4096, dtype="float32").ok
    assert not check(np.full(8, 1e-6), np.zeros(8), length=4096, dtype="float16").ok
    assert not check(np.full(8, 16 * U), np.zeros(8), length=4096, dtype="float64").ok


def test_flushed_terms_excuse_nothing_where_digits_can_be_represented():
    """Values of sixteen times the smallest normal number: zero, their mean and their shuffle are all wrong."""
    exact = 16 * U * np.random.default_rng(0).standard_normal(64)
    assert rejects(exact, 4096, "float32", dropped=0.75 * exact) == []
    row = np.concatenate([np.zeros((1, 64)), exact[None]])
    wrong = row.copy()
    wrong[1] = 0.0
    assert not check(wrong, row, length=4096, dtype="float32").ok


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_integers_have_to_be_equal(dtype):
    exact = np.array([0, 1, 1, 0], dtype=dtype)
    assert check(exact, exact, length=1 << 20, dtype=dtype).ok
    assert not check(1 - exact.astype(np.int32), exact, length=1 << 20, dtype=dtype).ok


def test_an_empty_result_is_equal():
    assert check(np.zeros((0, 4)), np.zeros((0, 4)), length=1, dtype="float32").ok


def test_shapes_have_to_agree(exact):
    with pytest.raises(InputError, match=r"\(64, 32\)"):
        check(exact.T, exact, length=64, dtype="float32")


def test_the_assertion_names_the_element(exact):
    actual = exact.copy()
    actual[7, 9] += 1.0
    with pytest.raises(AssertionError, match=r"not close.*\[7, 9\]"):
        assert_close(actual, exact, length=64, dtype="float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("length", [128, 4096])
def test_wrong_attention_is_rejected(dtype, length):
    rng = np.random.default_rng(1)
    scores, values = rng.standard_normal((16, length)), rng.standard_normal((length, 64))
    exact = _softmax_mean(scores, values)
    dropped = _softmax_mean(scores[:, : -length // 16], values[: -length // 16])
    unfused = exact.astype(np.dtype(dtype))
    assert rejects(exact, length, dtype, baseline=unfused, dropped=dropped) == []


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_wrong_statistics_are_rejected(dtype):
    x = np.random.default_rng(2).standard_normal((64, 1024))
    assert rejects(x.var(axis=1), 1024, dtype, dropped=x[:, :-128].var(axis=1)) == []


def test_data_that_cannot_tell_are_reported():
    assert rejects(np.ones(64), 128, "float32", dropped=np.ones(64)) == ["constant", "shuffle", "dropped"]
    noisy = np.random.default_rng(3).standard_normal(64)
    assert rejects(noisy, 128, "float32", baseline=-noisy) == ["zeros", "constant", "shuffle"]


def test_a_single_element_has_no_shuffle():
    assert rejects(np.array([2.0]), 128, "float32", dropped=np.array([1.9])) == []

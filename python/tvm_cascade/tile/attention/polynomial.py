"""2^x by a polynomial for some elements: the special-function unit has an eighth of the FMA rate.

    x = n + f,  |f| ≤ ½        n by adding 1.5·2²³ + 127, whose last bits then are n + 127: the exponent of 2^n
    2^x = p(f)·2^n             p(0) = 1; infinite from 128 on, 0 up to −127, NaN of NaN

Source: Shah et al., FlashAttention-4; the reduction is Cody and Waite's (1980).
"""

from __future__ import annotations

from tvm import ir, tirx
from tvm.tirx.script import builder as T

EIGHTHS = 8
"""A share is so many of eight registers."""

_MAGIC = float(3 << 22) + 127
_COEFFICIENTS = (0.009582853, 0.055906426, 0.24024099, 0.6931242)
"""Of p from the highest power to the first: its relative error is at most 2.9e-6 (minimax, p(0) = 1)."""

_NAME = "exp2_by_polynomial"


def exp2_by_polynomial(exponent: ir.Expr) -> ir.Expr:
    """2^x of a float32, to a relative error of 2.9e-6."""
    return T.cuda.func_call(_NAME, exponent, source_code=_text(), return_type="float32")


def is_chosen(share: int, register: int) -> bool:
    """Whether a register's exponential uses the polynomial: an even spread over every eight."""
    return register * share % EIGHTHS < share


def shared_exp2(exponent: ir.Expr, share: int, step: ir.Expr, of_step: int) -> ir.Expr:
    """2^x of an accumulator register: by the polynomial for some of every eight.

    Parameters
    ----------
    step : eight columns, of which a thread has four registers.
    of_step : which of those.
    """
    even, odd = is_chosen(share, of_step), is_chosen(share, of_step + EIGHTHS // 2)
    if even != odd:
        by_polynomial = tirx.EQ(step % 2, 0 if even else 1)
        return tirx.Select(by_polynomial, exp2_by_polynomial(exponent), tirx.exp2(exponent))
    return exp2_by_polynomial(exponent) if even else tirx.exp2(exponent)


def _text() -> str:
    value = f"{_COEFFICIENTS[0]}f"
    for coefficient in _COEFFICIENTS[1:]:
        value = f"fmaf({value}, f, {coefficient}f)"
    return f"""
__device__ __forceinline__ float {_NAME}(float x) {{
  x = x < -127.0f ? -127.0f : x;
  x = x > 128.0f ? 128.0f : x;
  float shifted = x + {_MAGIC}f, f = x - (shifted - {_MAGIC}f);
  return fmaf({value}, f, 1.0f) * __int_as_float(__float_as_int(shifted) << 23);
}}
"""

"""Policies: how the reference c moves that stands for an invariant u of an element F, when, and why it is in range.

| policy   | the reference goes                          | for instance                                         |
|----------|---------------------------------------------|------------------------------------------------------|
| deferred | nowhere: it is 1, or 0                      | u is a factor of F, which is applied at the end      |
| running  | to u of the partial results, or an extremum | u is built from max and min, or stands in an exponent |
| centred  | to a mean, a slope, or a predicted result   | F reads a(x) − u                                     |

`sections` is the table of references for the invariants of one function. Polynomials of several elements have
references of their own (`central_moments`).

How often a running reference moves is its *move*, which the user may choose:

| move         | the reference goes to                              | range                                         |
|--------------|----------------------------------------------------|-----------------------------------------------|
| exact        | u of the partial results, at each merge            | exp(x − c) ≤ 1; |x/c| ≤ 1                     |
| lazy         | there, once it is more than LAZY_DISTANCE away     | exp(x − c) ≤ exp(LAZY_DISTANCE)               |
| power_of_two | a power of two beside u, where u is a scale        | |x/c| ≤ 1; c/c′ commutes with float rounding  |

Both end away from u, and finish brings the state there.

Range analysis decides between the policies, and a reference says why it was chosen (`Range`): with c running, exp(x −
c) ≤ 1; with c centred, (x − c)² is of the size of the answer. A total or max y, as u of (x − u)², is far from the data
while it grows or drifts, and what the state lost there does not come back; the mean of x is near them, and finish goes
from there to u. Where an exponent is not bounded by its own invariant (exp(x − mean)), the running maximum of the
exponent is kept as an extra component and serves as the reference; where u divides by a result that may pass near zero
(a centre of signed masses), the mean of x by the sizes of its weights does.
"""

from __future__ import annotations

from enum import Enum

import sympy as sp

from tvm_cascade.symbolic.functions import WholePower


class Policy(str, Enum):
    """How a reference moves."""

    DEFERRED = "deferred"
    RUNNING = "running"
    CENTRED = "centred"

    def __str__(self) -> str:
        return self.value


class Move(str, Enum):
    """When a running reference moves; see the table above."""

    EXACT = "exact"
    LAZY = "lazy"
    POWER_OF_TWO = "power_of_two"

    def __str__(self) -> str:
        return self.value


LAZY_DISTANCE = 8
"""exp(8) = 2981: a million terms of it stay 28 binary orders below the largest float32."""


class Range(str, Enum):
    """The range argument for a reference c in place of u."""

    BOUNDED = "exp(x − c) ≤ 1, since no element so far has a larger exponent than at c"
    LARGEST = "exp(x − c) ≤ 1, since c is the largest exponent so far; u itself does not bound it"
    LAZY = f"c moves once it is more than {LAZY_DISTANCE} away: exp(x − c) ≤ exp({LAZY_DISTANCE})"
    SCALE = "|x/c| ≤ 1"
    RATIO = "log(x/c) has the digits that log(x/u) has, where log x − log u need have none left"
    POWER_OF_TWO = "|x/c| ≤ 1, and c is a power of two, so c/c′ commutes with the rounding of any float"
    LOCATION = "x − c is no larger than the spread of x about its centre, since c is a location of the data"
    SPREAD = "exp(x − c) is in range where the spread of x about its centre is, since c is a location of the data"
    MEAN = "x − c and u − c are no larger than x − u, since c is the mean of x; u need not be near the data"
    EXTREME = "c is the extremum so far, and [x = c] is 0 or 1"
    UNDERFLOWING = "c is the extremum so far; where exponentials of it underflow, other positions attain it as well"
    NEAR = "x − c is no larger than the spread of x, since c is its mean, for any results"
    WEIGHED = "x − c is no larger than the spread of x, since c is its mean; against what results weigh it may cancel"
    PREDICTED = "c predicts u from partial results, so elements have the range that they have at u"
    DEFERRED = "a loop-invariant factor: applied once, at the end"

    def __str__(self) -> str:
        return self.value


def is_power_of_two(value: sp.Expr) -> bool:
    """Whether a value is 2^k with a whole k, as in exp2(floor(log2(u)))."""
    powers = [f.as_base_exp() for f in sp.Mul.make_args(value)]
    return all(isinstance(base, WholePower) and exponent.is_integer for base, exponent in powers)

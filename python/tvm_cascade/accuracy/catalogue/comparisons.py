"""Cascades that compare elements with results: tests of all positions, thresholds, products, and infinite starts."""

from __future__ import annotations

_CENTRED = "total = sum x; spread = sum (x - total/N)**2; "
_RMS = "squares = sum x*x; "
_X = "top = max x; mass = sum exp(x - top); "

TESTS: dict[str, str] = {
    "mean where all are within three deviations": _CENTRED
    + "inside = all abs(x - total/N) < 3*sqrt(spread/N + 0.001); out = total/N if inside else sqrt(spread/N)",
    "energy where all are within a multiple of its root": _RMS
    + "inside = all abs(x) < 2.3*sqrt(squares/N + 0.001); out = squares if inside else 0",
    "maximum where a probability is above one tenth": _X
    + "sure = any exp(x - top)/mass > 0.1; out = top if sure else 0",
    "maximum where one is below a tenth of it": "top = max p; far = any p < 0.1*top; out = top if far else -top",
}

THRESHOLDS: dict[str, str] = {
    "largest excess over the mean": "total = sum x; out = max x - total/N if x > total/N else 0",
    "largest shortfall from the mean": "total = sum x; out = max total/N - x if x < total/N else 0",
    "largest score by a mean": "total = sum y; out = max x*total/N",
    "smallest score by a mean": "total = sum y; out = min x*total/N",
    "smallest weighted probability": _X + "out = min exp(x - top)*w",
    "largest weighted share": _X + "out = max w*exp(x - top)/mass",
}

PRODUCTS: dict[str, str] = {
    "product of shares": "total = sum w; out = prod N*w/total",
    "likelihood of an exponential fit": "total = sum w; out = prod exp(-N*w/total)*N/total",
}

STARTS: dict[str, str] = {
    "softmax from an infinite start": "top = supremum x; mass = sum exp(x - top); out = exp(x - top)/mass",
    "log-sum-exp from an infinite start": "top = supremum x; mass = sum exp(x - top); out = top + log(mass)",
    "soft minimum from an infinite start": "low = infimum x; mass = sum exp(low - x); out = low - log(mass)",
}

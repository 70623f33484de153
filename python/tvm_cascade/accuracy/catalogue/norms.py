"""Cascades of norms, scales of narrow formats, signals, and choices by order."""

from __future__ import annotations

_ABS = "peak = max abs(x); "
_RMS = "squares = sum x*x; "
_CENTRED = "total = sum x; spread = sum (x - total/N)**2; "
_X = "top = max x; mass = sum exp(x - top); "

NORMS: dict[str, str] = {
    "rms norm into a column": _RMS + "out = sum x/sqrt(squares/N + 0.00001)*g",
    "rms norm with a gain into a column": _RMS + "out = sum x/sqrt(squares/N + 0.00001)*g*h",
    "rms norm": _RMS + "out = x/sqrt(squares/N + 0.00001)*g",
    "rms norm of a sum": "squares = sum (x + y)**2; out = sum (x + y)/sqrt(squares/N + 0.00001)*g",
    "layer norm": _CENTRED + "out = (x - total/N)/sqrt(spread/N + 0.00001)*g + h",
    "layer norm into a column": _CENTRED + "out = sum (x - total/N)/sqrt(spread/N + 0.00001)*g",
    "layer norm with gain and bias into a column": _CENTRED
    + "out = sum ((x - total/N)/sqrt(spread/N + 0.00001)*g + h)*y",
    "layer norm stored in half": _CENTRED + "out = (x - total/N)/sqrt(spread/N + 0.00001)*g + h",
    "length in units of the largest": _ABS + "parts = sum (x/(peak + 0.001))**2; out = (peak + 0.001)*sqrt(parts)",
    "cubic norm in units of the largest": _ABS + "out = sum (abs(x)/(peak + 0.001))**3",
    "energy over the sum of magnitudes": "total = sum abs(x); out = sum (x/(total + 0.001))**2",
    "crest factor": _ABS + _RMS + "out = peak/sqrt(squares/N + 0.00001)",
    "dot product over the largest": _ABS + "out = sum x/(peak + 0.001)*y",
    "dot product of two scaled rows": _ABS + "other = max abs(y); out = sum x/(peak + 0.001)*(y/(other + 0.001))",
    "energy of a normalised row": _RMS + "out = sum (x/sqrt(squares/N + 0.00001))**2",
    "contrast": "top = max x; low = min x; out = (top - low)/(abs(top) + abs(low) + 0.001)",
}

SCALES: dict[str, str] = {
    "scale of 8-bit integers": _ABS + "out = sum x/(maximum(peak, 0.00001)/127)*y",
    "scale of 8-bit floats": _ABS + "out = sum x/(maximum(peak, 0.00001)/448)*y",
    "scale by powers of two": _ABS + "scale = exp2(ceil(log2(maximum(peak, 0.00001)/448))); out = sum x/scale*y",
    "scale by the mean magnitude": "total = sum abs(x); out = sum x/(total/N + 0.00001)*y",
    "rounding to 8-bit integers": _ABS + "out = sum round(x/(maximum(peak, 0.00001)/127))*y",
    "scale of a stored 8-bit row": _ABS + "out = sum x/maximum(peak, 1)*y",
    "scale of a stored bfloat16 row": _ABS + "out = sum x/maximum(peak, 0.00001)*y",
    "asymmetric scale": "top = max x; low = min x; out = sum (x - low)/(maximum(top - low, 0.00001)/255)*y",
}

SIGNALS: dict[str, str] = {
    "energy without the mean": "total = sum x; out = sum (x - total/N)**2",
    "windowed energy without the mean": "total = sum x; out = sum w*w*(x - total/N)**2",
    "one frequency of a centred signal": "total = sum x; re = sum (x - total/N)*cos(j*0.5); "
    "im = sum (x - total/N)*sin(j*0.5); out = re*re + im*im",
    "resultant about a mean angle": "total = sum w; out = sum cos(w - total/N)",
    "phase about the mean": "total = sum w; out = sum y*sin(w - total/N)",
    "energy without a trend": "sy = sum y; slope = sum (j - 0.5*N + 0.5)*(y - sy/N)/1000; "
    "out = sum (y - sy/N - slope*(j - 0.5*N + 0.5))**2",
    "peak over the mean magnitude": _ABS + "total = sum abs(x); out = peak/(total/N + 0.001)",
    "decay at the rate of a maximum": "rate = max w; out = sum x*exp(-rate*j)",
}

CHOICES: dict[str, str] = {
    "how many maxima": "top = max ceil(x); out = sum 1 if ceil(x) == top else 0",
    "sum over the maxima": "top = max x; out = sum y if x == top else 0",
    "mean over the maxima": "top = max x; count = sum 1 if x == top else 0; out = sum y/count if x == top else 0",
    "largest at the maxima": "top = max x; out = max y if x == top else -1000",
    "first maximum": "top = max x; out = min j if x == top else 1000000",
    "three largest probabilities": _X + "best = top3 exp(x - top)/mass -> best, best_at",
    "most probable position": _X + "best = top1 exp(x - top)/mass -> best, best_at",
    "most distant from the maximum": "top = max x; out = max top - x",
    "largest distance from the mean": "total = sum x; out = max abs(x - total/N)",
    "largest z-score": _CENTRED + "out = max (x - total/N)/sqrt(spread/N + 0.001)",
    "largest scaled by the largest": _ABS + "out = max y/(peak + 0.001)",
    "largest after min-max scaling": "top = max x; low = min x; out = max (x - low)/(top - low + 0.001)",
    "largest share": "total = sum w; out = max w/total",
    "largest weighted probability": _X + "out = max exp(x - top)*w",
    "count above the mean": "total = sum x; out = sum 1 if x > total/N else 0",
    "sum above the mean": "total = sum x; out = sum x if x > total/N else 0",
    "support of sparsemax's first step": "total = sum x; out = sum maximum(x - (total - 1)/N, 0)",
    "hinge about the maximum": "top = max x; out = sum maximum(1 + x - top, 0)",
    "huber loss about the mean": "total = sum x; out = sum minimum((x - total/N)**2, 2*abs(x - total/N) - 1)",
    "maximum of products by a sum": "total = sum w; out = max x*total",
}

"""Cascades of statistics: moments about a mean, weights, pairs of samples, scales, and positive numbers."""

from __future__ import annotations

_CENTRED = "total = sum x; mean = total/N; spread = sum (x - mean)**2; "
_PAIR = "sx = sum x; sy = sum y; xx = sum (x - sx/N)**2; yy = sum (y - sy/N)**2; "
_BOTH = _PAIR + "xy = sum (x - sx/N)*(y - sy/N); "
_WEIGHTED = "weight = sum w; first = sum w*x; centre = first/weight; "

MOMENTS: dict[str, str] = {
    "variance": _CENTRED + "out = spread/N",
    "sample variance": _CENTRED + "out = spread/(N - 1)",
    "standard deviation": _CENTRED + "out = sqrt(spread/N)",
    "standard error of the mean": _CENTRED + "out = sqrt(spread/(N - 1))/sqrt(N)",
    "coefficient of variation": _CENTRED + "out = sqrt(spread/N)/(abs(mean) + 1)",
    "index of dispersion": _CENTRED + "out = spread/N/(abs(mean) + 1)",
    "third central moment": _CENTRED + "out = sum (x - mean)**3",
    "fourth central moment": _CENTRED + "out = sum (x - mean)**4",
    "fifth central moment": _CENTRED + "out = sum (x - mean)**5",
    "sixth central moment": _CENTRED + "out = sum (x - mean)**6",
    "skewness": _CENTRED + "cubes = sum (x - mean)**3; out = cubes/N/(spread/N)**1.5",
    "kurtosis": _CENTRED + "fourths = sum (x - mean)**4; out = fourths/N/(spread/N)**2 - 3",
    "kurtosis of standardised data": _CENTRED + "out = sum ((x - mean)/sqrt(spread/N))**4",
    "z-scores": _CENTRED + "out = (x - mean)/sqrt(spread/N + 0.00001)",
    "jackknife variance of the mean": "total = sum x; out = sum ((total - x)/(N - 1) - total/N)**2",
    "mean square about the maximum": "top = max x; out = sum (x - top)**2/N",
    "mean square about the minimum": "low = min x; out = sum (x - low)**2/N",
    "mean square about the mid-range": "top = max x; low = min x; out = sum (x - 0.5*top - 0.5*low)**2/N",
    "mean distance from the maximum": "top = max x; out = sum abs(x - top)/N",
    "mean distance from the mean": "total = sum x; out = sum abs(x - total/N)/N",
    "sum of min-max scaled data": "top = max x; low = min x; out = sum (x - low)/(top - low + 0.001)",
    "energy of min-max scaled data": "top = max x; low = min x; out = sum ((x - low)/(top - low + 0.001))**2",
    "variance of products": "total = sum x*y; out = sum (x*y - total/N)**2/N",
    "variance of a stored half": _CENTRED + "out = spread/N",
}

PAIRS: dict[str, str] = {
    "covariance": "sx = sum x; sy = sum y; xy = sum (x - sx/N)*(y - sy/N); out = xy/N",
    "pearson correlation": _BOTH + "out = xy/sqrt(xx*yy + 0.00001)",
    "pearson correlation of standardised data": _PAIR + "out = sum (x - sx/N)/sqrt(xx)*((y - sy/N)/sqrt(yy))",
    "coefficient of determination": _BOTH + "out = xy*xy/(xx*yy + 0.00001)",
    "regression slope and intercept": _BOTH + "slope = xy/xx; level = sy/N - slope*sx/N -> slope, level",
    "residuals of a regression": _BOTH + "slope = xy/xx; out = sum (y - sy/N - slope*(x - sx/N))**2",
    "slope against the position": "sy = sum y; out = sum (j - 0.5*N + 0.5)*(y - sy/N)",
    "welch's t": _PAIR + "out = (sx/N - sy/N)/sqrt(xx/N + yy/N + 0.001)",
    "ratio of variances": _PAIR + "out = xx/(yy + 0.001)",
    "square error about another's mean": "sy = sum y; out = sum (x - sy/N)**2",
    "concordance correlation": _BOTH + "out = 2*xy/(xx + yy + N*(sx/N - sy/N)**2 + 0.001)",
    "cosine similarity": "xx = sum x*x; yy = sum y*y; out = sum x/sqrt(xx + 0.001)*(y/sqrt(yy + 0.001))",
    "projection on a unit vector": "yy = sum y*y; out = sum x*y/sqrt(yy + 0.001)",
    "matched filter": "gg = sum g*g; out = sum x*g/sqrt(gg)",
}

WEIGHTS: dict[str, str] = {
    "weighted mean": "weight = sum w; out = sum w*x/weight",
    "weighted variance": _WEIGHTED + "out = sum w*(x - centre)**2/weight",
    "weighted third moment": _WEIGHTED + "out = sum w*(x - centre)**3/weight",
    "weighted covariance": _WEIGHTED + "fy = sum w*y; out = sum w*(x - centre)*(y - fy/weight)/weight",
    "moment of inertia": _WEIGHTED + "out = sum w*(x - centre)**2",
    "radius of gyration in a plane": _WEIGHTED
    + "fy = sum w*y; ix = sum w*(x - centre)**2; iy = sum w*(y - fy/weight)**2; out = sqrt((ix + iy)/weight)",
    "product of inertia": _WEIGHTED + "fy = sum w*y; out = sum w*(x - centre)*(y - fy/weight)",
    "mean over kept positions": "count = sum k; first = sum k*x; out = first/maximum(count, 1)",
    "variance over kept positions": "count = sum k; first = sum k*x; mean = first/maximum(count, 1); "
    "out = sum k*(x - mean)**2",
    "exponential moving mean and variance": "weight = sum exp(0.1*(j - N)); first = sum exp(0.1*(j - N))*x; "
    "mean = first/weight; spread = sum exp(0.1*(j - N))*(x - mean)**2; var = spread/weight -> mean, var",
    "spectral centroid and spread": "power = sum w; first = sum w*j; centroid = first/power; "
    "spread = sum w*(j - centroid)**2/power -> centroid, spread",
    "inverse-variance weighting": "weight = sum 1/(w*w); first = sum x/(w*w); out = first/weight",
}

POSITIVE: dict[str, str] = {
    "shannon entropy of weights": "total = sum w; out = sum -(w/total)*log(w/total)",
    "gini-simpson index": "total = sum w; squares = sum (w/total)**2; out = 1 - squares",
    "inverse simpson index": "total = sum w; squares = sum (w/total)**2; out = 1/squares",
    "hill number of order one half": "total = sum w; roots = sum sqrt(w/total); out = roots*roots",
    "renyi entropy of order 2.7": "total = sum w; power = sum (w/total)**2.7; out = log(power)/-1.7",
    "tsallis entropy": "total = sum w; out = sum w/total - (w/total)**2",
    "theil index": "total = sum w; out = sum w/(total/N)*log(w/(total/N))/N",
    "mean log deviation": "total = sum w; out = sum log(total/N/w)/N",
    "herfindahl index": "total = sum p + 0.001; out = sum (p/total)**2",
    "geometric mean over the maximum": "top = max w; logs = sum log(w/top); out = top*exp(logs/N)",
    "geometric mean by a product": "top = max w; product = prod w/top; out = product",
    "harmonic mean over the minimum": "low = min w; ratios = sum low/w; out = N*low/ratios",
    "weighted geometric mean": "total = sum u; out = sum u/total*log(w)",
    "sphericity": "total = sum w; logs = sum log(w); out = N*log(total/N) - logs",
    "log-determinant over the trace": "total = sum w; out = sum log(w/total)",
    "hill's tail estimator": "low = min w; out = sum log(w/low)/N",
    "pareto exponent": "low = min w; logs = sum log(w/low); out = N/(logs + 0.001)",
    "kullback-leibler of histograms": "sw = sum w; su = sum u; out = sum w/sw*log(w/sw/(u/su))",
    "bhattacharyya of histograms": "sw = sum w; su = sum u; out = sum sqrt(w/sw*(u/su))",
    "chi-square of histograms": "sw = sum w; su = sum u; out = sum (w/sw - u/su)**2/(u/su)",
    "spectral flatness": "total = sum w; logs = sum log(w); out = exp(logs/N)/(total/N)",
    "effective sample size": "total = sum w; squares = sum (w/total)**2; out = 1/squares/N",
}

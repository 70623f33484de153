"""The catalogue: text-book cascades by name."""

from __future__ import annotations

from benchmarks.check.definition import Definition

_SPREAD = "total = sum x; mean = total/N; spread = sum (x - mean)**2; "
_PAIR = "sx = sum x; sy = sum y; xx = sum (x - sx/N)**2; yy = sum (y - sy/N)**2; "
_BOTH = _PAIR + "xy = sum (x - sx/N)*(y - sy/N); "
_WEIGHTED = "weight = sum w; first = sum w*x; centre = first/weight; "
_X = "top = max x; mass = sum exp(x - top); "
_Y = "over = max y; bulk = sum exp(y - over); "
_XY = _X + _Y
_LOW = "low = min x; mass = sum exp(low - x); "
_ABS = "peak = max abs(x); "
_RMS = "squares = sum x*x; "
_CENTRED = "total = sum x; spread = sum (x - total/N)**2; "

_TEXTS = {
    # Statistics: moments about a mean, weights, pairs of samples, scales, and positive numbers.
    "variance": _SPREAD + "out = spread/N",
    "sample variance": _SPREAD + "out = spread/(N - 1)",
    "standard deviation": _SPREAD + "out = sqrt(spread/N)",
    "standard error of the mean": _SPREAD + "out = sqrt(spread/(N - 1))/sqrt(N)",
    "coefficient of variation": _SPREAD + "out = sqrt(spread/N)/(abs(mean) + 1)",
    "index of dispersion": _SPREAD + "out = spread/N/(abs(mean) + 1)",
    "third central moment": _SPREAD + "out = sum (x - mean)**3",
    "fourth central moment": _SPREAD + "out = sum (x - mean)**4",
    "fifth central moment": _SPREAD + "out = sum (x - mean)**5",
    "sixth central moment": _SPREAD + "out = sum (x - mean)**6",
    "skewness": _SPREAD + "cubes = sum (x - mean)**3; out = cubes/N/(spread/N)**1.5",
    "kurtosis": _SPREAD + "fourths = sum (x - mean)**4; out = fourths/N/(spread/N)**2 - 3",
    "kurtosis of standardised data": _SPREAD + "out = sum ((x - mean)/sqrt(spread/N))**4",
    "z-scores": _SPREAD + "out = (x - mean)/sqrt(spread/N + 0.00001)",
    "jackknife variance of the mean": "total = sum x; out = sum ((total - x)/(N - 1) - total/N)**2",
    "mean square about the maximum": "top = max x; out = sum (x - top)**2/N",
    "mean square about the minimum": "low = min x; out = sum (x - low)**2/N",
    "mean square about the mid-range": "top = max x; low = min x; out = sum (x - 0.5*top - 0.5*low)**2/N",
    "mean distance from the maximum": "top = max x; out = sum abs(x - top)/N",
    "mean distance from the mean": "total = sum x; out = sum abs(x - total/N)/N",
    "sum of min-max scaled data": "top = max x; low = min x; out = sum (x - low)/(top - low + 0.001)",
    "energy of min-max scaled data": "top = max x; low = min x; out = sum ((x - low)/(top - low + 0.001))**2",
    "variance of products": "total = sum x*y; out = sum (x*y - total/N)**2/N",
    "variance of a stored half": _SPREAD + "out = spread/N",
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
    # Around exponentials: softmax and its family, divergences, losses, partition functions.
    "softmax": _X + "out = exp(x - top)/mass",
    "log-softmax": _X + "out = x - top - log(mass)",
    "log-sum-exp": _X + "out = top + log(mass)",
    "log-mean-exp": _X + "out = top + log(mass/N)",
    "softmin": _LOW + "out = exp(low - x)/mass",
    "softmax at a temperature": "top = max x/t; mass = sum exp(x/t - top); out = exp(x/t - top)/mass",
    "softmax with a sink": "high = max x; top = maximum(high, b); mass = sum exp(x - top); out = mass + exp(b - top)",
    "soft-capped softmax": "top = max 30*tanh(x/30); out = sum exp(30*tanh(x/30) - top)",
    "masked softmax": "top = max x - 10000*(1 - k); mass = sum exp(x - 10000*(1 - k) - top); "
    "out = sum exp(x - 10000*(1 - k) - top)/mass*y",
    "softmax over kept positions": "top = max x if k > 0.5 else -1000000; out = sum exp(x - top) if k > 0.5 else 0",
    "softmax with a linear bias": "top = max x - b*j; mass = sum exp(x - b*j - top); "
    "out = sum exp(x - b*j - top)/mass*y",
    "softmax in powers of two": "top = max x; mass = sum exp2(x - top); out = sum exp2(x - top)/mass*y",
    "attention of one query": _X + "out = sum exp(x - top)/mass*y",
    "attention of one query, stored in half": _X + "out = sum exp(x - top)/mass*y",
    "attention with two values": _X
    + "first = sum exp(x - top)/mass*y; second = sum exp(x - top)/mass*z -> first, second",
    "attention, its mass and its maximum": _X + "out = sum exp(x - top)*y; rest = mass + 0 -> top, rest, out",
    "expected position": _X + "out = sum exp(x - top)/mass*j",
    "variance under softmax": _X + "mean = sum exp(x - top)/mass*y; out = sum exp(x - top)/mass*(y - mean)**2",
    "covariance under softmax": _X
    + "my = sum exp(x - top)/mass*y; mz = sum exp(x - top)/mass*z; out = sum exp(x - top)/mass*(y - my)*(z - mz)",
    "variance of logits under softmax": _X
    + "mean = sum exp(x - top)/mass*(x - top); out = sum exp(x - top)/mass*(x - top - mean)**2",
    "boltzmann operator": _X + "out = sum exp(x - top)/mass*x",
    "softmax of softmax": _X + "out = sum exp(exp(x - top)/mass - 1/mass)",
    "purity of softmax": _X + "out = sum (exp(x - top)/mass)**2",
    "renyi entropy of softmax": _X + "squares = sum (exp(x - top)/mass)**2; out = -log(squares)",
    "tsallis entropy of softmax": _X + "out = sum exp(x - top)/mass - (exp(x - top)/mass)**2",
    "entropy of softmax": _X + "out = sum -(exp(x - top)/mass)*(x - top - log(mass))",
    "perplexity of softmax": _X + "entropy = sum -(exp(x - top)/mass)*(x - top - log(mass)); out = exp(entropy)",
    "largest probability": _X + "out = max exp(x - top)/mass",
    "effective sample size of log weights": _X + "squares = sum exp(2*x - 2*top); out = mass*mass/squares",
    "importance-sampled mean": _X + "out = sum exp(x - top)/mass*y",
    "mellowmax": "top = max 5*x; mass = sum exp(5*x - top); out = (top + log(mass/N))/5",
    "kullback-leibler of logits": _XY + "out = sum exp(x - top)/mass*((x - top - log(mass)) - (y - over - log(bulk)))",
    "cross-entropy of logits": _XY + "out = sum -(exp(x - top)/mass)*(y - over - log(bulk))",
    "bhattacharyya of logits": _XY + "out = sum sqrt(exp(x - top)/mass*(exp(y - over)/bulk))",
    "renyi divergence of logits": _XY + "out = sum exp(x - top)/mass*(exp(x - top)/mass)/(exp(y - over)/bulk + 0.01)",
    "overlap of softmaxes": _XY + "out = sum exp(x - top)/mass*(exp(y - over)/bulk)",
    "squared distance of softmaxes": _XY + "out = sum (exp(x - top)/mass - exp(y - over)/bulk)**2",
    "jensen-shannon of logits": _XY
    + "out = sum exp(x - top)/mass*log(0.5*exp(x - top)/mass + 0.5*exp(y - over)/bulk + 0.001)",
    "distillation at a temperature": "top = max x/4; mass = sum exp(x/4 - top); over = max y/4; "
    "bulk = sum exp(y/4 - over); out = sum exp(x/4 - top)/mass*((x/4 - top - log(mass)) - (y/4 - over - log(bulk)))",
    "cross-entropy with soft labels": _X + "out = sum -w*(x - top - log(mass))",
    "cross-entropy with smoothed labels": _X + "out = sum -(0.9*k + 0.1/N)*(x - top - log(mass))",
    "z-loss": _X + "out = (top + log(mass))**2",
    "focal loss": _X + "out = sum -w*(1 - exp(x - top)/mass)**2*(x - top - log(mass))",
    "poly loss": _X + "out = sum w*(1 - exp(x - top)/mass) - w*(x - top - log(mass))",
    "dice overlap": _X + "common = sum exp(x - top)/mass*k; squares = sum (exp(x - top)/mass)**2; "
    "out = 2*common/(squares + 1)",
    "brier score": _X + "out = sum (exp(x - top)/mass - k)**2",
    "contrastive loss of a row": _X + "pull = sum w*x; out = top + log(mass) - pull",
    "policy gradient with a baseline": "total = sum y; out = sum (y - total/N)*x",
    "group-relative advantages": "total = sum y; spread = sum (y - total/N)**2; "
    "out = sum (y - total/N)/sqrt(spread/N + 0.0001)*x",
    "free energy": _LOW + "energy = sum exp(low - x)/mass*x; out = energy + low - log(mass)",
    "heat capacity": _LOW + "energy = sum exp(low - x)/mass*x; out = sum exp(low - x)/mass*(x - energy)**2",
    "mean energy": _LOW + "out = sum exp(low - x)/mass*x",
    "softmax of distances": "low = min (x - y)**2; mass = sum exp(low - (x - y)**2); "
    "out = sum exp(low - (x - y)**2)/mass*z",
    # Norms, scales of narrow formats, signals, and choices by order.
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
    "scale of 8-bit integers": _ABS + "out = sum x/(maximum(peak, 0.00001)/127)*y",
    "scale of 8-bit floats": _ABS + "out = sum x/(maximum(peak, 0.00001)/448)*y",
    "scale by powers of two": _ABS + "scale = exp2(ceil(log2(maximum(peak, 0.00001)/448))); out = sum x/scale*y",
    "scale by the mean magnitude": "total = sum abs(x); out = sum x/(total/N + 0.00001)*y",
    "rounding to 8-bit integers": _ABS + "out = sum round(x/(maximum(peak, 0.00001)/127))*y",
    "scale of a stored 8-bit row": _ABS + "out = sum x/maximum(peak, 1)*y",
    "scale of a stored bfloat16 row": _ABS + "out = sum x/maximum(peak, 0.00001)*y",
    "asymmetric scale": "top = max x; low = min x; out = sum (x - low)/(maximum(top - low, 0.00001)/255)*y",
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
    # Comparisons of elements with results: tests of all positions, thresholds, products, and infinite starts.
    "mean where all are within three deviations": _CENTRED
    + "inside = all abs(x - total/N) < 3*sqrt(spread/N + 0.001); out = total/N if inside else sqrt(spread/N)",
    "energy where all are within a multiple of its root": _RMS
    + "inside = all abs(x) < 2.3*sqrt(squares/N + 0.001); out = squares if inside else 0",
    "maximum where a probability is above one tenth": _X
    + "sure = any exp(x - top)/mass > 0.1; out = top if sure else 0",
    "maximum where one is below a tenth of it": "top = max p; far = any p < 0.1*top; out = top if far else -top",
    "largest excess over the mean": "total = sum x; out = max x - total/N if x > total/N else 0",
    "largest shortfall from the mean": "total = sum x; out = max total/N - x if x < total/N else 0",
    "largest score by a mean": "total = sum y; out = max x*total/N",
    "smallest score by a mean": "total = sum y; out = min x*total/N",
    "smallest weighted probability": _X + "out = min exp(x - top)*w",
    "largest weighted share": _X + "out = max w*exp(x - top)/mass",
    "product of shares": "total = sum w; out = prod N*w/total",
    "likelihood of an exponential fit": "total = sum w; out = prod exp(-N*w/total)*N/total",
    "softmax from an infinite start": "top = supremum x; mass = sum exp(x - top); out = exp(x - top)/mass",
    "log-sum-exp from an infinite start": "top = supremum x; mass = sum exp(x - top); out = top + log(mass)",
    "soft minimum from an infinite start": "low = infimum x; mass = sum exp(low - x); out = low - log(mass)",
}

_STORED = {
    "variance of a stored half": "float16",
    "attention of one query, stored in half": "float16",
    "layer norm stored in half": "float16",
    "scale of a stored 8-bit row": "int8",
    "scale of a stored bfloat16 row": "bfloat16",
}
"""Dtypes of inputs, where they are not float32."""

_ROWS = 67
"""Of each: the largest error of a few rows is luck, and says little of twice that of the unfused program."""

CATALOGUE: dict[str, Definition] = {
    name: Definition(name, text, _STORED.get(name, "float32"), _ROWS) for name, text in _TEXTS.items()
}
"""Text-book cascades by name."""

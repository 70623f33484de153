"""Cascades around exponentials: softmax and its family, divergences, losses, partition functions."""

from __future__ import annotations

_X = "top = max x; mass = sum exp(x - top); "
_Y = "over = max y; bulk = sum exp(y - over); "
_XY = _X + _Y
_LOW = "low = min x; mass = sum exp(low - x); "

SOFTMAX: dict[str, str] = {
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
}

DIVERGENCES: dict[str, str] = {
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
}

LOSSES: dict[str, str] = {
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
}

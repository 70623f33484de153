"""What is asked of the logits of a head, as torch's users compute it: eager programs, and in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from corpus.programs import head

Named = Mapping[str, Any]

_ALL = 0xFFFFFFFF
"""The bits of a word."""


def of_logits(torch: Any, asked: str, named: Named) -> Any:
    """The output of one of the programs of `corpus.programs.head`."""
    return _FORMULAS[asked](torch, _logits(torch, named), named)


def _logits(torch: Any, named: Named, prefix: str = "") -> Any:
    x = named[f"{prefix}x"]
    product = x @ named[f"{prefix}w"].transpose(0, 1)
    return product.to(torch.promote_types(x.dtype, torch.float32)) * x.shape[1] ** -0.5


def _tempered(logits: Any, named: Named) -> Any:
    return logits / named["temperature"].to(logits.dtype)[:, None]


def _entropy(torch: Any, logits: Any, named: Named) -> Any:
    log_p = _tempered(logits, named).log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)


def _divergence(torch: Any, logits: Any, named: Named) -> Any:
    teacher = _logits(torch, named, "teacher_")
    own, other = logits.log_softmax(-1), teacher.log_softmax(-1)
    return torch.nn.functional.kl_div(own, other, reduction="none", log_target=True).sum(-1)


def _training_loss(torch: Any, logits: Any, named: Named) -> Any:
    capped, target = head.CAP * torch.tanh(logits / head.CAP), named["target"]
    options = {"reduction": "none", "ignore_index": head.IGNORED, "label_smoothing": head.SMOOTHED}
    z_loss = head.Z_WEIGHT * capped.logsumexp(-1) ** 2
    return torch.nn.functional.cross_entropy(capped, target, **options) + z_loss * (target != head.IGNORED)


def _sample(torch: Any, logits: Any, named: Named) -> Any:
    classes = torch.arange(logits.shape[-1], device=logits.device)
    bits = _mixed((named["seed"].long() & _ALL)[:, None] ^ _mixed(classes))
    uniform = ((bits >> (32 - head.HASHED_BITS)).to(logits.dtype) + 0.5) * 2.0**-head.HASHED_BITS
    noisy = _tempered(logits, named) - torch.log(-torch.log(uniform))
    return noisy.argmax(-1).int()


def _mixed(h: Any) -> Any:
    for shift, factor in head.MIXING:
        h = (h ^ (h >> shift)) * factor & _ALL
    return h ^ (h >> head.MIXING[0][0])


def _cross_entropy(torch: Any, logits: Any, named: Named) -> Any:
    return torch.nn.functional.cross_entropy(logits, named["target"], reduction="none")


def _best_few(torch: Any, logits: Any, named: Named, count: int) -> Any:
    return logits.log_softmax(-1).topk(count, -1).values


_FORMULAS: Mapping[str, Callable[[Any, Any, Named], Any]] = {
    head.CROSS_ENTROPY: _cross_entropy,
    head.LOG_SUM_EXP: lambda torch, logits, named: logits.logsumexp(-1),
    head.ENTROPY: _entropy,
    head.DIVERGENCE: _divergence,
    head.TRAINING_LOSS: _training_loss,
    head.BEST: lambda torch, logits, named: logits.argmax(-1).int(),
    head.SAMPLE: _sample,
}


def formula_of(asked: str, shape: Mapping[str, int]) -> Callable[[Any, Named], Any]:
    """From the module and the inputs to the output."""
    if asked == head.BEST_FEW:
        return lambda torch, named: _best_few(torch, _logits(torch, named), named, shape["ranks"])
    return lambda torch, named: of_logits(torch, asked, named)

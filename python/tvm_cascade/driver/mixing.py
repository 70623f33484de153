"""Configurations that no skeleton lists: each field is that of one which it lists, drawn at random.

What a skeleton lists fits, and is good. What a user may give need not: `Skeleton.check` says why it does not fit, and
what it lets pass is to be right. Samples of designs ask that of it.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence
from typing import Any

_FOR_EACH = 16
"""Mixed configurations of a kernel."""


def mixed(configs: Sequence[Any], rng: random.Random) -> Iterator[Any]:
    """Configurations of fields that listed ones of the same kind have."""
    for _ in range(_FOR_EACH):
        first = rng.choice(configs)
        names = _names(first)
        alike = [one for one in configs if _names(one) == names]
        yield dataclasses.replace(first, **{name: getattr(rng.choice(alike), name) for name in names})


def _names(config: Any) -> list[str]:
    return [one.name for one in dataclasses.fields(config) if one.init]

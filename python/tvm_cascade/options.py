"""The options of the pass, as one typed dataclass; each may be preset by an environment variable TVM_CASCADE_<NAME>.

| option             | default           | meaning                                                            |
|--------------------|-------------------|--------------------------------------------------------------------|
| `tile`             | None (by shape)   | positions of the cascade axis folded per loop step                 |
| `segments`         | 1                 | parts of the cascade axis folded apart, then merged                |
| `lanes`            | None (by target)  | partial results that a tile's reduction is split into (SIMD)       |
| `rescalable_casts` | float16, bfloat16 | dtypes whose rounding inside an element may be at another scale    |
| `reference`        | exact             | how running references move: exact, lazy or power_of_two           |
| `vector_math`      | True              | exp, log, tanh, … as polynomials that vectorise (CPU, few ulp)     |
| `force`            | False             | fuse even where the cost model would decline                       |
| `schedule`         | True              | `compile`: apply our schedule for the target after fusing          |
| `tensor_cores`     | True              | `compile` for CUDA: weights of products rounded to their operand   |
| `row_kernels`      | True              | `compile` for CUDA: kernels of our own for folds along rows        |
| `narrow_sums`      | False             | `compile` for CUDA: float8 products summed to about twelve bits    |
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass

from tvm_cascade.errors import OptionError

_ENVIRONMENT_PREFIX = "TVM_CASCADE_"
REFERENCE_MOVES = ("exact", "lazy", "power_of_two")
_SWITCHES = ("vector_math", "force", "schedule", "tensor_cores", "row_kernels", "narrow_sums")
_CAST_DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class FuseOptions:
    """How cascades are fused. See the table at the top of this module.

    Raises
    ------
    OptionError
        When a value is outside its domain.
    """

    tile: int | None = None
    segments: int = 1
    lanes: int | None = None
    rescalable_casts: tuple[str, ...] = ("float16", "bfloat16")
    reference: str = "exact"
    vector_math: bool = True
    force: bool = False
    schedule: bool = True
    tensor_cores: bool = True
    row_kernels: bool = True
    narrow_sums: bool = False

    def __post_init__(self) -> None:
        for name in ("tile", "segments", "lanes"):
            value = getattr(self, name)
            if value is None and name != "segments":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise OptionError("a positive integer", repr(value), f"option `{name}`", f"pass {name}=128, say")
        if self.reference not in REFERENCE_MOVES:
            raise OptionError(f"one of {', '.join(REFERENCE_MOVES)}", repr(self.reference), "option `reference`")
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise OptionError("True or False", repr(getattr(self, name)), f"option `{name}`")
        if isinstance(self.rescalable_casts, str) or not set(self.rescalable_casts) <= set(_CAST_DTYPES):
            raise OptionError(
                f"a tuple of dtypes among {', '.join(_CAST_DTYPES)}",
                repr(self.rescalable_casts),
                "option `rescalable_casts`",
            )

    @classmethod
    def from_environment(cls, **given: object) -> FuseOptions:
        """Options from TVM_CASCADE_* variables, overridden by the keyword arguments that are given.

        Raises
        ------
        OptionError
            When a keyword is unknown, or a variable or a value is outside its domain.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := set(given) - known:
            raise OptionError(
                f"options among {', '.join(sorted(known))}", ", ".join(sorted(unknown)), "keyword arguments"
            )
        preset = {
            name: _parse(name, text) for name in known if (text := os.environ.get(_ENVIRONMENT_PREFIX + name.upper()))
        }
        return cls(**{**preset, **given})  # type: ignore[arg-type]


def _parse(name: str, text: str) -> object:
    if name == "rescalable_casts":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if name == "reference":
        return text.strip()
    if name in _SWITCHES:
        values = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
        if text.lower() not in values:
            raise OptionError("1 or 0", repr(text), f"environment variable {_ENVIRONMENT_PREFIX}{name.upper()}")
        return values[text.lower()]
    try:
        return int(text)
    except ValueError:
        raise OptionError(
            "an integer", repr(text), f"environment variable {_ENVIRONMENT_PREFIX}{name.upper()}"
        ) from None

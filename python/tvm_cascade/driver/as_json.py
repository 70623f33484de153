"""Records of this package as JSON, and back: dataclasses of numbers, texts, tuples, mappings and each other."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

_KIND, _VALUE = "is", "value"
_PACKAGE = __name__.partition(".")[0]

_OTHERS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {}


def as_value(kind: type, write: Callable[[Any], Any], read: Callable[[Any], Any]) -> None:
    """Make a further class one whose values stand in records.

    Parameters
    ----------
    write : the value as one that is known already.
    read : the value of that.
    """
    _OTHERS[f"{kind.__module__}.{kind.__qualname__}"] = kind, write, read


def to_json(value: object) -> bytes:
    """The value as JSON.

    Raises
    ------
    TypeError
        When something in it is of no class that is known.
    """
    return json.dumps(_written(value), ensure_ascii=False).encode("utf-8", "surrogatepass")


def from_json(data: bytes) -> Any:
    """The value that `to_json` wrote."""
    return _read(json.loads(data.decode("utf-8", "surrogatepass")))


def _written(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if isinstance(value, str):  # TVM's own strings
        return str(value)
    if kind is list:
        return [*map(_written, value)]
    if kind is tuple:
        return {_KIND: "tuple", _VALUE: [*map(_written, value)]}
    if dataclasses.is_dataclass(value) and kind.__module__.startswith(f"{_PACKAGE}."):
        fields = {one.name: _written(getattr(value, one.name)) for one in dataclasses.fields(kind)}
        return {_KIND: f"{kind.__module__}:{kind.__qualname__}", _VALUE: fields}
    if isinstance(value, Mapping):
        return {_KIND: "mapping", _VALUE: [[_written(key), _written(one)] for key, one in value.items()]}
    for name, (other, write, _) in _OTHERS.items():
        if isinstance(value, other):
            return {_KIND: name, _VALUE: _written(write(value))}
    raise TypeError(f"a {kind.__module__}.{kind.__qualname__} is not written as JSON")


def _read(text: Any) -> Any:
    if isinstance(text, list):
        return [*map(_read, text)]
    if not isinstance(text, dict):
        return text
    kind, value = text[_KIND], text[_VALUE]
    if kind == "tuple":
        return tuple(map(_read, value))
    if kind == "mapping":
        return {_read(key): _read(one) for key, one in value}
    if kind in _OTHERS:
        return _OTHERS[kind][2](_read(value))
    module, _, name = kind.partition(":")
    record = getattr(importlib.import_module(module), name) if module.startswith(f"{_PACKAGE}.") else None
    if not isinstance(record, type) or not dataclasses.is_dataclass(record):
        raise ValueError(f"{kind} is no record of {_PACKAGE}")
    return record(**{name: _read(one) for name, one in value.items()})

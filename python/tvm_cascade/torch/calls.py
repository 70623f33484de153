"""How arguments of a call are laid out: by position or by name, as in the example that a model was compiled for."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

_OF_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _Value:
    """A place for a value in the text of a call."""

    def __repr__(self) -> str:
        return "…"


def parts_of(spec: Any) -> Sequence[Any]:
    """The specs of the positional and of the keyword arguments."""
    return spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs  # before torch 2.9


def shown(spec: Any) -> str:
    """A structure of arguments as a call: (…, [… , …], mask=…)."""
    args, kwargs = pytree.tree_unflatten([_Value()] * spec.num_leaves, spec)
    return f"({', '.join([*map(repr, args), *(f'{name}={value!r}' for name, value in kwargs.items())])})"


def as_in_example(
    signature: inspect.Signature, spec: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments by position and by name as the example has them; as they are given where that is not so.

    Parameters
    ----------
    signature : of the module's `forward`.
    spec : the structure of the example.
    """
    as_given = args, dict(kwargs)
    parameters = signature.parameters
    if any(one.kind in _OF_ANY for one in parameters.values()):
        return as_given
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return as_given
    positional, by_name = parts_of(spec)
    names = list(parameters)[: len(pytree.tree_unflatten([None] * positional.num_leaves, positional))]
    further = [name for name in bound.arguments if name not in (*names, *by_name.context)]
    if any(bound.arguments[name] is not parameters[name].default for name in further):
        return as_given
    values = {name: bound.arguments.get(name, parameters[name].default) for name in (*names, *by_name.context)}
    return tuple(values[name] for name in names), {name: values[name] for name in by_name.context}


def names_of_extents(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: Any
) -> list[dict[int, str]]:
    """Per leaf of the arguments, the names that the caller gave to extents that may change, by axis.

    Parameters
    ----------
    dynamic : `dynamic_shapes` of `torch.export.export`, which took it.
    """
    bound = signature.bind(*args, **kwargs).arguments
    by_name = dynamic if isinstance(dynamic, Mapping) else dict(zip(bound, dynamic or (), strict=False))
    return [one for name, value in bound.items() for one in _named(value, by_name.get(name))]


def _named(value: Any, given: Any) -> Iterator[dict[int, str]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _named(part, given.get(key) if isinstance(given, Mapping) else None)
    elif isinstance(value, (list, tuple)):
        parts = given if isinstance(given, (list, tuple)) and len(given) == len(value) else [None] * len(value)
        for part, one in zip(value, parts, strict=True):
            yield from _named(part, one)
    else:
        pairs: Iterable[tuple[int, Any]] = given.items() if isinstance(given, Mapping) else enumerate(given or ())
        is_named = isinstance(value, torch.Tensor)
        yield {axis: dim.__name__ for axis, dim in pairs if is_named and isinstance(dim, torch.export.Dim)}

"""How arguments of a call are laid out: by position or by name, as in the example that a model was compiled for."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.export.dynamic_shapes import _tree_map_with_path
from torch.utils import _pytree as pytree

_OF_ONE = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


class _Value:
    """A place for a value in the text of a call."""

    def __repr__(self) -> str:
        return "…"


def parts_of(spec: Any) -> Sequence[Any]:
    """The specs of what a structure holds: of a call, of its positional and of its keyword arguments."""
    return spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs  # before torch 2.9


def shown(spec: Any) -> str:
    """A structure of arguments as a call: (…, [… , …], mask=…)."""
    args, kwargs = pytree.tree_unflatten([_Value()] * spec.num_leaves, spec)
    return f"({', '.join([*map(repr, args), *(f'{name}={value!r}' for name, value in kwargs.items())])})"


def told_apart(wanted: Any, found: Any) -> tuple[str, str]:
    """Two structures of arguments that differ, as calls; and what they keep beside tensors, where that is all."""
    texts = shown(wanted), shown(found)
    pairs = [*zip(_kept(wanted), _kept(found), strict=False)] if texts[0] == texts[1] else []
    state = next(([f" of {one}" for one in pair] for pair in pairs if pair[0] != pair[1]), ["", ""])
    return texts[0] + state[0], texts[1] + state[1]


def _kept(spec: Any) -> Iterator[str]:
    """What the containers of a structure keep beside tensors, such as a cache its length."""
    for path, value in pytree.tree_leaves_with_path(spec.context):
        yield f"{getattr(path[-1], 'key', '')}={value!r}" if path else repr(value)
    for one in () if spec.is_leaf() else parts_of(spec):
        yield from _kept(one)


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
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters.values()):
        return as_given
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return as_given
    defaults = {name: one.default for name, one in parameters.items() if one.kind in _OF_ONE}
    given = {**bound, **{name: value for more in set(bound) - set(defaults) for name, value in bound[more].items()}}
    given = {name: value for name, value in given.items() if name in defaults or name in kwargs}
    positional, by_name = parts_of(spec)
    names = list(defaults)[: len(pytree.tree_unflatten([None] * positional.num_leaves, positional))]
    values = {**defaults, **given}
    further = [name for name in given if name not in (*names, *by_name.context)]
    if not set(by_name.context) <= set(values) or any(values[one] is not defaults.get(one, values) for one in further):
        return as_given
    return tuple(values[name] for name in names), {name: values[name] for name in by_name.context}


def names_of_extents(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: Any
) -> list[dict[int, str]]:
    """Per leaf of the arguments, the names that the caller gave to extents that may change, by axis.

    Parameters
    ----------
    dynamic : `dynamic_shapes` of `torch.export.export`, which took it.
    """
    given, found = signature.bind(*args, **kwargs).arguments, dict[int, dict[int, str]]()

    def named(_: Any, leaf: Any, extents: Any) -> None:
        pairs: Iterable[tuple[int, Any]] = extents.items() if isinstance(extents, Mapping) else enumerate(extents or ())
        if isinstance(leaf, torch.Tensor):
            found[id(leaf)] = {axis: dim.__name__ for axis, dim in pairs if isinstance(dim, torch.export.Dim)}

    if dynamic:
        _tree_map_with_path(named, given if isinstance(dynamic, Mapping) else type(dynamic)(given.values()), dynamic)
    return [found.get(id(leaf), {}) for leaf in pytree.tree_leaves((args, dict(kwargs)))]


def take_caches_apart() -> None:
    """Have torch take the caches of transformers for containers of tensors, by their own rule.

    Where transformers is not loaded, no argument and no result is one.
    """
    caches = sys.modules.get("transformers.cache_utils")
    if caches is None:
        return
    with suppress(ImportError):  # of a release of transformers that does not have it
        register = importlib.import_module("transformers.exporters.exporter_dynamo").register_pytree_node
        for one in _caches(caches):
            register(one)
        return
    with suppress(ImportError, AttributeError):  # of one that has neither: torch says what it does not know
        importlib.import_module("transformers.integrations.executorch").register_dynamic_cache_export_support()


def _caches(module: Any) -> list[type]:
    found = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, module.Cache)]
    return [one for one in found if one is not module.Cache]


def _is_cache(value: object) -> bool:
    caches = sys.modules.get("transformers.cache_utils")
    return caches is not None and isinstance(value, caches.Cache)


def with_caches_filled(given: Any, result: Any) -> Any:
    """The result, in which caches that were given are those that are returned, filled: as transformers' models do it.

    Parameters
    ----------
    given : the arguments of the call.
    """
    known = [one for one in pytree.tree_leaves(given, is_leaf=_is_cache) if _is_cache(one)]
    leaves, spec = pytree.tree_flatten(result, is_leaf=_is_cache)
    places = [k for k, one in enumerate(leaves) if _is_cache(one)]
    if not known or [type(one) for one in known] != [type(leaves[k]) for k in places]:
        return result
    for k, cache in zip(places, known, strict=True):
        vars(cache).update(vars(leaves[k]))
        leaves[k] = cache
    return pytree.tree_unflatten(leaves, spec)

r"""A step program as a structured attribute: values that survive TVM's printing, parsing and JSON.

    StepProgram  ->  {"steps": [{"kind": "reduce", "component": "t_0", "reducer": "sum", "lift": "exp(x - c_m)"}, …],
                      "finish": [{"result": "t", "expression": "t_0"}], "remembered": [],
                      "inputs": ["x"], "symbols": {"delta_c_m": {"name": "\u0394c_m", "is": ["real"]}}}

What a step holds is read off its class, so that another kind of step needs nothing here. Symbols that are real and
called as they are written need no entry. All strings are ASCII: TVM's script loses others.
"""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, get_args

import sympy as sp

from tvm_cascade.algebra.gauge import Move as Rule
from tvm_cascade.algebra.reducer import REDUCERS, Reducer, Selection, TupleReducer
from tvm_cascade.algebra.selection import selecting
from tvm_cascade.errors import FoldError, InputError
from tvm_cascade.steps.expressions import RESERVED, parsed, text_of
from tvm_cascade.steps.program import Finish, Step, StepProgram
from tvm_cascade.steps.verify import verify
from tvm_cascade.symbolic.masks import Condition

Data = Mapping[str, Any]

_WHERE = "the attribute of a step program"
_KINDS = {kind.__name__.lower(): kind for kind in get_args(Step)}
_SYMBOLS = {kind.__name__.lower(): kind for kind in (sp.Symbol, Condition)}
_PLAIN = {"real": True}


def to_attribute(program: StepProgram, inputs: Collection[sp.Symbol]) -> dict[str, Any]:
    """A step program as plain data.

    Parameters
    ----------
    inputs : atoms and parameters.

    Raises
    ------
    InputError
        When an expression holds a function that has no name in texts.
    """
    writer = _Writer()
    steps = [{"kind": type(step).__name__.lower(), **writer.fields(step)} for step in program.steps]
    data = {
        "steps": steps,
        "finish": [writer.fields(finish) for finish in program.finish],
        "remembered": sorted(writer.name(symbol) for symbol in program.remembered),
        "inputs": sorted(writer.name(symbol) for symbol in inputs),
    }
    return {**data, "symbols": writer.told()}


def from_attribute(data: Data) -> StepProgram:
    """The step program of plain data, or of TVM's containers of it, verified.

    Raises
    ------
    InputError
        When the data are no step program: a field is missing, a text is no expression, or `verify` fails.
    """
    try:
        reader = _Reader(data["symbols"])
        steps = tuple(reader.step(step) for step in data["steps"])
        finish = tuple(Finish(**reader.fields(Finish, one)) for one in data["finish"])
        program = StepProgram(steps, finish, frozenset(map(reader.symbol, data["remembered"])))
        verify(program, list(map(reader.symbol, data["inputs"])))
    except FoldError as error:
        raise InputError(error.expected, error.found, f"{_WHERE}: {error.where}", _HINT) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("a step program", f"{type(error).__name__}: {error}", _WHERE, _HINT) from error
    return program


_HINT = "take the function as it was fused, or fuse the original again"


def escaped(name: str) -> str:
    """A name in ASCII: all else as in Python's literals."""
    return name.encode("unicode_escape").decode()


def unescaped(text: str) -> str:
    """The name of an `escaped` text; a text that is none stays as it is."""
    try:
        return str(text).encode("ascii").decode("unicode_escape")
    except UnicodeError:
        return str(text)


class _Writer:
    """Writes fields by their types; symbols get names of their own as they come."""

    def __init__(self) -> None:
        self.names = _Names()

    def fields(self, thing: Any) -> dict[str, Any]:
        """The fields of a step by name, without those that are None."""
        given = [(field, getattr(thing, field.name)) for field in fields(thing)]
        return {f.name: _CODECS[str(f.type)].write(value, self) for f, value in given if value is not None}

    def text(self, expression: sp.Basic) -> str:
        """An expression."""
        return text_of(expression, self.names)

    def name(self, symbol: sp.Symbol) -> str:
        """A symbol."""
        return self.names[symbol]

    def told(self) -> dict[str, Any]:
        """The symbols whose assumptions do not follow from their names."""
        return {name: entry for symbol, name in self.names.items() if (entry := _entry(symbol, name))}


class _Names(dict[sp.Symbol, str]):
    """What symbols are called in texts."""

    def __missing__(self, symbol: sp.Symbol) -> str:
        base = re.sub(r"\W", "_", symbol.name.replace("Δ", "delta_").replace("'", "_next"), flags=re.ASCII)
        base = base if base.isidentifier() and not keyword.iskeyword(base) else f"_{base}"
        taken = {*RESERVED, *self.values()}
        self[symbol] = next(n for k in itertools.count() if (n := base + (f"_{k}" if k else "")) not in taken)
        return self[symbol]


def _entry(symbol: sp.Symbol, name: str) -> dict[str, Any]:
    """A symbol's own name, class and assumptions, as far as they are not plain."""
    known = _assumed(frozenset(symbol.assumptions0.items()))
    said: dict[str, Any] = {} if symbol.name == name else {"name": escaped(symbol.name)}
    if type(symbol) is not sp.Symbol:
        said["class"] = type(symbol).__name__.lower()
    if said or dict(known) != _PLAIN:
        said["is"] = [key if value else f"not {key}" for key, value in known]
    return said


@cache
def _assumed(closure: frozenset[tuple[str, bool]]) -> tuple[tuple[str, bool], ...]:
    """A smallest part of what is known of a symbol that all of it follows from; `real` where that is enough."""
    if sp.Symbol("x", **_PLAIN).assumptions0 == dict(closure):
        return tuple(_PLAIN.items())
    kept = dict(sorted(closure))
    for key in sorted(kept, key=lambda key: (key in ("real", "integer", "positive", "nonnegative"), key)):
        fewer = {other: value for other, value in kept.items() if other != key}
        if sp.Symbol("x", **fewer).assumptions0 == dict(closure):
            kept = fewer
    return tuple(kept.items())


class _Reader:
    """Reads fields by their types."""

    def __init__(self, symbols: Data) -> None:
        self.symbols = {str(name): _symbol(str(name), entry) for name, entry in symbols.items()}

    def symbol(self, name: str) -> sp.Symbol:
        """The symbol of a name."""
        return self.symbols.setdefault(str(name), sp.Symbol(str(name), **_PLAIN))

    def expression(self, text: str) -> sp.Basic:
        """The expression of a text."""
        return parsed(str(text), self.symbol)

    def step(self, data: Data) -> Step:
        """One step."""
        kind = _KINDS.get(str(data["kind"]))
        if kind is None:
            raise InputError(f"a step among {', '.join(_KINDS)}", repr(str(data["kind"])), _WHERE, _HINT)
        return kind(**self.fields(kind, data))

    def fields(self, kind: type, data: Data) -> dict[str, Any]:
        """What a step holds, by name of the field."""
        found = {f.name: _CODECS[str(f.type)].read(data[f.name], self) for f in fields(kind) if f.name in data}
        return {**{field.name: None for field in fields(kind) if str(field.type).endswith("None")}, **found}


def _symbol(name: str, entry: Data) -> sp.Symbol:
    words = [str(word) for word in entry["is"]]
    known = {word.removeprefix("not "): not word.startswith("not ") for word in words}
    own = unescaped(entry["name"]) if "name" in entry else name
    return _SYMBOLS[str(entry.get("class", "symbol"))](own, **known)


@dataclass(frozen=True)
class _Codec:
    """How a field of one type is written and read."""

    write: Callable[[Any, _Writer], Any]
    read: Callable[[Any, _Reader], Any]

    @property
    def several(self) -> _Codec:
        """The same of a tuple."""
        return _Codec(
            lambda values, writer: [self.write(value, writer) for value in values],
            lambda values, reader: tuple(self.read(value, reader) for value in values),
        )


def _write_reducer(reducer: Reducer, _writer: _Writer) -> str:
    return f"infinite {reducer.name}" if reducer.infinite else reducer.name


def _read_reducer(name: str, _reader: _Reader) -> Reducer:
    reducer = REDUCERS[str(name).removeprefix("infinite ")]
    return reducer.from_infinity if str(name).startswith("infinite ") else reducer


def _write_tuple(reducer: TupleReducer, writer: _Writer) -> dict[str, Any]:
    """A tuple's reducer: what it selects, where that is all that it does."""
    told: dict[str, Any] = {}
    if (chosen := reducer.selection) is not None:
        plain = {f.name: getattr(chosen, f.name) for f in fields(chosen) if f.name != "absent"}
        told["selection"] = {**plain, "absent": [writer.text(sp.sympify(e)) for e in chosen.absent]}
        if selecting(chosen) == reducer:
            return told
    told["name"] = escaped(reducer.name)
    told["combined"] = [writer.text(e) for e in reducer.combined]
    return {**told, "identity": [writer.text(e) for e in reducer.identity]}


def _read_tuple(data: Data, reader: _Reader) -> TupleReducer:
    chosen = None
    if "selection" in data:
        plain = {f.name: data["selection"][f.name] for f in fields(Selection) if f.name != "absent"}
        chosen = Selection(**plain, absent=tuple(map(reader.expression, data["selection"]["absent"])))
        if "combined" not in data:
            return selecting(chosen)
    name = unescaped(data["name"])
    parts: list[Sequence[str]] = [data["combined"], data["identity"]]
    combined, identity = (tuple(map(reader.expression, texts)) for texts in parts)
    return TupleReducer(name, combined, identity, chosen)


_EXPRESSION = _Codec(lambda value, writer: writer.text(value), lambda text, reader: reader.expression(text))
_SYMBOL = _Codec(lambda value, writer: writer.name(value), lambda name, reader: reader.symbol(name))
_REDUCER = _Codec(_write_reducer, _read_reducer)
_NUMBER = _Codec(lambda value, _: value, lambda value, _: int(value))

_CODECS: dict[str, _Codec] = {
    "sp.Symbol": _SYMBOL,
    "tuple[sp.Symbol, ...]": _SYMBOL.several,
    "sp.Expr": _EXPRESSION,
    "tuple[sp.Expr, ...]": _EXPRESSION.several,
    "Reducer": _REDUCER,
    "tuple[Reducer, ...]": _REDUCER.several,
    "TupleReducer": _Codec(_write_tuple, _read_tuple),
    "tuple[int, ...]": _NUMBER.several,
    "bool": _Codec(lambda value, _: value, lambda value, _: bool(value)),
    "Rule": _Codec(lambda rule, _: rule.value, lambda name, _: Rule(str(name))),
    "float | None": _Codec(lambda value, _: repr(value), lambda text, _: float(str(text))),  # in all its digits
}
"""By the type of a field."""

"""A fuzz case as a program in TE, and data for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx

from campaigns.case import Case, Input
from campaigns.term import COMPARED, OPERATIONS, Term, to_program
from tvm_cascade.algebra.reducer import REDUCERS
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.evaluate.inputs import INPUTS as DATA
from tvm_cascade.te.selection import ranked

Array = NDArray[Any]

_DATA_SCALE = {"real": 0.5, "positive": 0.25}


def program(
    case: Case,
    read_as: Sequence[float] = (),
    rounded_at: float = 1.0,
    least_exponent: float | None = None,
    keys: bool = False,
) -> tirx.PrimFunc:
    """The unfused program: one block a reduction, and one for each staged part.

    Parameters
    ----------
    read_as : by result, a factor with which later reductions read it; none for the program as it is meant.
    keys : the keys of each selection that is asked for are outputs too, named dk_keys.
    rounded_at : the scale s of roundings to a narrower dtype: round(s·v)/s in place of round(v).
    least_exponent : what exponents are kept above, if anything, lest exponentials vanish.
    """
    return _Writer(case, read_as, rounded_at, least_exponent).function(keys)


def data(case: Case, seed: int) -> list[Array]:
    """Inputs of the program, in order: the named data for those that are patterned, milder numbers for the others.

    Positive inputs are exp of theirs, so that products over the axis stay in range.
    """
    rng = np.random.default_rng([seed, case.seed])
    arrays = []
    for given in case.used:
        shape, axis = _shape(case, given), _axis(case, given)
        if given.sort == "truth":
            arrays.append(rng.random(shape) < rng.choice((0.5, 0.9)))
            continue
        name = case.inputs if given.name in case.patterned else "normal"
        values = DATA[name](rng, shape or (1,), "float64", axis=axis).reshape(shape)
        values = _DATA_SCALE[given.sort] * values
        arrays.append((np.exp(values) if given.sort == "positive" else values).astype(case.dtype))
    return arrays


def reordered(case: Case, inputs: list[Array], seed: int) -> list[Array]:
    """The inputs with the positions on the cascade axis in another order, the same for all."""
    return _taken(case, inputs, np.random.default_rng(seed).permutation(case.length))


def sorted_orders(case: Case, inputs: list[Array]) -> Iterator[list[Array]]:
    """The inputs with the positions in the order of each of them, up and down: partial sums are then largest."""
    for given, a in zip(case.used, inputs, strict=True):
        if "axis" in given.axes and a.dtype.kind == "f":
            along = np.moveaxis(a, _axis(case, given), -1).reshape(-1, case.length)
            order = np.argsort(along.mean(axis=0), kind="stable")
            yield _taken(case, inputs, order)
            yield _taken(case, inputs, order[::-1])


def _taken(case: Case, inputs: list[Array], order: NDArray[np.intp]) -> list[Array]:
    return [
        np.ascontiguousarray(np.take(a, order, _axis(case, given))) if "axis" in given.axes else a
        for given, a in zip(case.used, inputs, strict=True)
    ]


def _shape(case: Case, given: Input) -> tuple[int, ...]:
    extents = {"row": case.rows, "axis": (case.length,), "free": (case.free,)}
    return tuple(extent for axis in given.axes for extent in extents[axis])


def _axis(case: Case, given: Input) -> int:
    return -2 if given.axes[-1] == "free" else -1


class _Writer:
    """Writes a case as TE stages. A result has the free axis where its element reads something that has it."""

    def __init__(self, case: Case, read_as: Sequence[float], rounded_at: float, least_exponent: float | None) -> None:
        self.case, self.read_as, self.rounded_at, self.least_exponent = case, read_as, rounded_at, least_exponent
        self.given = {
            g.name: te.placeholder(_shape(case, g), "bool" if g.sort == "truth" else case.dtype, name=g.name)
            for g in case.used
        }
        self.axes = {g.name: g.axes for g in case.used}
        self.results: list[Any] = []
        self.free: list[bool] = []
        self.selected: dict[int, list[Any]] = {}
        self.keys: dict[int, Any] = {}

    def function(self, keys: bool) -> tirx.PrimFunc:
        """The function, named "main"."""
        for position, step in enumerate(self.case.steps):
            (self._selection if step.ranks else self._reduction)(position)
        outputs = []
        for k, result in enumerate(self.results):
            if self.case.asked[k]:
                outputs += self.selected.get(k, [result])
                outputs += [self.keys[k]] if keys and k in self.keys else []
        return te.create_prim_func([*self.given.values(), *outputs]).with_attr("global_symbol", "main")

    def _reduction(self, position: int) -> None:
        case, step = self.case, self.case.steps[position]
        free, element = self._is_free(step.element), step.element
        stages: dict[Term, Any] = {}
        if position in case.staged and (part := _costliest(element)) is not None:
            stages[part] = self._stage(f"part{position}", part)
        axis = te.reduce_axis((0, case.length), "l")
        reducer = REDUCERS[step.reducer]
        over = te.comm_reducer(
            lambda a, b: combiner_of(reducer)(a, b), lambda dtype: identity_of(reducer, dtype), name=reducer.name
        )

        def body(*at: Any) -> Any:
            return over(self._written(element, (*at, axis), free, stages), axis=axis)

        shape = (*case.rows, *((case.free,) if free else ()))
        self.results.append(te.compute(shape, lambda *at: body(*at), name=f"d{position}"))
        self.free.append(free)

    def _selection(self, position: int) -> None:
        """The best keys, with their positions."""
        step = self.case.steps[position]
        keys, free = self._stage(f"d{position}_keys", step.element)
        parts = ranked(keys, step.ranks, len(keys.shape) - 1, step.reducer == "max", f"d{position}")
        self.keys[position], self.selected[position] = keys, parts
        self.results.append(parts[0])
        self.free.append(free)

    def _stage(self, name: str, part: Term) -> tuple[Any, bool]:
        free = self._is_free(part)
        shape = (*self.case.rows, *((self.case.free,) if free else ()), self.case.length)
        return te.compute(shape, lambda *at: self._written(part, at, free, {}), name=name), free

    def _is_free(self, term: Term) -> bool:
        return any("free" in self.axes[str(n)] for n in term.leaves("input")) or any(
            self.free[int(k)] for k in term.leaves("result")
        )

    def _written(self, term: Term, at: tuple[Any, ...], free: bool, stages: dict[Term, Any]) -> Any:
        """The term at a point (*rows, free?, position)."""
        rows, last, position = at[: len(self.case.rows)], at[len(self.case.rows) : -1], at[-1]
        where = {"row": rows, "axis": (position,), "free": last}
        sizes = self.case.dtype, self.case.length

        def leaf(part: Term, compared: bool = False) -> Any:
            if part.op == "result":
                k = int(part.leaf)
                value = self.results[k](*rows, *(last if self.free[k] else ()))
                exact = compared or not self.read_as or not str(value.ty.dtype).startswith("float")
                return value if exact else value * tirx.const(self.read_as[k], "float64").astype(value.ty.dtype)
            name = str(part.leaf)
            return self.given[name](*(index for axis in self.axes[name] for index in where[axis]))

        def write(part: Term) -> Any:
            if part in stages:
                stage, stage_free = stages[part]
                return stage(*rows, *(last if stage_free else ()), position)
            if part.op in COMPARED:  # an extremum a unit away is none
                sides = part.args[: COMPARED[part.op]]
                exact = [to_program(a, lambda p: leaf(p, compared=True), *sizes) for a in sides]
                return OPERATIONS[part.op].program(*exact, *map(write, part.args[len(sides) :]))
            if part.op == "rounded" and self.rounded_at != 1.0:
                scale = tirx.const(self.rounded_at, self.case.dtype)
                return OPERATIONS[part.op].program(write(part.args[0]) * scale) / scale
            if part.op == "exp" and self.least_exponent is not None:
                least = tirx.const(self.least_exponent, self.case.dtype)
                return OPERATIONS[part.op].program(te.max(write(part.args[0]), least))
            return to_program(part, leaf, *sizes, write)

        return write(term)


def _costliest(element: Term) -> Term | None:
    """The part that a program would keep in a buffer: the first function of it; the element itself without one."""
    functions = [part for part in element.parts() if part.op in ("exp", "log", "sqrt", "tanh", "sigmoid", "square")]
    return functions[0] if functions else element if element.args else None

"""`tvm_cascade.gradient`: a function's gradient as two functions, forward and backward."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import sympy as sp
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.inline import inliner_of
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.statements import completed, unused, with_root
from tvm_cascade.analysis.tir import dtype_of, is_float, loads_of, reached, same, substitute, uses
from tvm_cascade.errors import GradientError, InputError, OptionError
from tvm_cascade.reverse.normaliser import Normalisers
from tvm_cascade.reverse.stages import Made
from tvm_cascade.reverse.sweep import Sweep
from tvm_cascade.transform.assemble import build, index_dtype
from tvm_cascade.transform.fuse_function import read_function
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, store
from tvm_cascade.transform.printer import cast
from tvm_cascade.transform.scope import accumulator_dtype, widest_float


@dataclass(frozen=True)
class Gradient:
    """A function's gradient; both functions are unfused S-TIR, which `compile` and `explain` take like any other.

    Attributes
    ----------
    forward : the function, with what is saved among its outputs: after its own parameters, where it is no output yet.
    backward : from the inputs that it reads, what was saved, and for each output `out` its adjoint `d_out`, of its
        shape and dtype, to `d_x` for each input x that was asked for, of its shape and dtype.
    saved : the names of what the backward function reads of the forward one.
    """

    forward: tirx.PrimFunc = field(repr=False)
    backward: tirx.PrimFunc = field(repr=False)
    saved: tuple[str, ...]


def gradient(
    func: tirx.PrimFunc,
    of: str | Sequence[str] | None = None,
    wrt: str | Sequence[str] | None = None,
    saved: str | Sequence[str] | None = None,
) -> Gradient:
    """The gradient of a function: what it saves, and the function from adjoints of its outputs to those of its inputs.

    Derivatives are those of the program as it is written, without its casts between floats, and adjoints are computed
    in the widest float of its buffers, at least float32. Sums over positions that results give are not made again: of
    attention, the adjoint of a row's denominator comes from the row's own output. What was broadcast is summed, as the
    keys of a group of heads are over its heads.

    rewrite: m = max_j s[j];  t = Σ_j exp(s[j] − m);  o[f] = Σ_j exp(s[j] − m)/t·v[j, f]
          →  l = m + log t, of the forward function;  δ = Σ_f d_o[f]·o[f];  p[j] = exp(s[j] − l);
             d_v[j, f] = p[j]·d_o[f];  d_s[j] = p[j]·(Σ_f d_o[f]·v[j, f] − δ)

    Where |x| or an extremum of two values has no derivative, it is halfway between both sides; positions that attain
    the maximum or minimum of an axis share its adjoint equally. Values of a top-k go to the positions selected.

    Parameters
    ----------
    func : an S-TIR function that is not scheduled.
    of : names of outputs that have an adjoint; all of floats by default.
    wrt : names of inputs whose adjoint is asked for; all of floats, but float8, by default.
    saved : names of results and outputs that the forward function leaves to the backward one, which computes all others
        again. By default those that it reads, but results that others reduce in turn, as scores are: a fused loop has
        them position by position. Where an output holds a result in a narrower dtype, the output is read. Of a
        sum t that divides exponentials, `log_t`: with what these refer to, the logarithm of the sum of all of them.

    Raises
    ------
    InputError
        When `func` is not a PrimFunc.
    OptionError
        When there is nothing of a name.
    GradientError
        When the function cannot be read whole, or has no gradient; the message has a reason code: `not_smooth`,
        `no_adjoint`, `not_invertible`.

    Examples
    --------
    >>> from tvm import te
    >>> x, j = te.placeholder((4, 64), "float32", name="x"), te.reduce_axis((0, 64), "j")
    >>> square = te.compute((4,), lambda i: te.sum(x[i, j] * x[i, j], axis=j), name="square")
    >>> [param.name for param in gradient(te.create_prim_func([x, square])).backward.params]
    ['x', 'd_square', 'd_x']
    """
    if not isinstance(func, tirx.PrimFunc):
        raise InputError("a tirx.PrimFunc", type(func).__name__, "gradient", "take one function out of the module")
    program = _program_of(func)
    written = {stage.buffer for stage in program.stages}
    floats = [b for b in program.params if tirx.is_buffer_var(b) and is_float(dtype_of(b))]
    inputs = [b for b in floats if b not in written and not dtype_of(b).startswith("float8")]
    outputs = _named(of, [b for b in floats if b in written], "of")
    if saved:
        _named(saved, [stage.buffer for stage in program.stages], "saved")
    names = [saved] if isinstance(saved, str) else saved
    return _Assembly(program, outputs, _named(wrt, inputs, "wrt"), names).run()


def _program_of(func: tirx.PrimFunc) -> Program:
    program = read_function(_with_own_names(func))
    if isinstance(program, Reason) or program.opaque:
        reason = program if isinstance(program, Reason) else program.opaque[0].reason
        raise GradientError("a function that can be read whole", str(reason), "gradient", reason.hint)
    return program


def _with_own_names(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with a name of its own for each buffer: temporaries may have to be passed."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    taken, renamed = {param.name for param in func.params}, dict[tirx.Var, tirx.Var]()
    for buffer in func.body.block.alloc_buffers:
        if (name := unused(buffer.name, taken)) != buffer.name:
            renamed[buffer] = tirx.Var(name, buffer.ty)
        taken.add(name)
    return func.with_body(substitute(func.body, renamed)) if renamed else func


def _named(names: str | Sequence[str] | None, known: Sequence[tirx.Var], option: str) -> list[tirx.Var]:
    """The buffers of some names; all that are known by default."""
    wanted = [b.name for b in known] if names is None else [names] if isinstance(names, str) else list(names)
    if missing := [name for name in wanted if name not in [b.name for b in known]] or (not wanted and ["none"]):
        listed = ", ".join(b.name for b in known) or "none: it has no floats there"
        raise OptionError(f"names among {listed}", ", ".join(map(repr, missing)), f"gradient({option}=…)")
    return [b for b in known if b.name in wanted]


@dataclass
class _Assembly:
    """The two functions of a program."""

    program: Program
    of: Sequence[tirx.Var]
    wrt: Sequence[tirx.Var]
    saved: Sequence[str] | None

    def run(self) -> Gradient:
        adjoints, sweep = self.sweep.run(), self.sweep
        results = [self._result(buffer, adjoints) for buffer in self.wrt]
        made, kept = self._normalised(self._live([*sweep.stages.made, *results], results), results)
        read = list(dict.fromkeys(buffer for one in made for buffer in self._read(one)))
        passed, again, homes = forward_values(self.program, read, self._keeps, sweep.again)
        nests = NestBuilder(index_dtype(self.program), {stage.name for stage in again}, annotated=False)
        statements = [stage.nest for stage in again if stage is self.program.together(stage)[0]]
        statements += [self._nest(nests, one, homes) for one in made]
        loaded = {*read, *(buffer for stage in again for buffer in stage.reads)}
        inputs = [param for param in self.program.params if param in loaded and self.program.writer(param) is None]
        saved = [*passed, *(one.buffer for one in kept)]
        given, outputs = [*inputs, *saved, *sweep.of.values()], [one.buffer for one in results]
        own = dict.fromkeys([*(stage.buffer for stage in again), *(one.buffer for one in made)])
        backward = build(self.program, "backward", statements, given, outputs, own)
        return Gradient(self._forward(passed, kept), backward, tuple(buffer.name for buffer in saved))

    def _keeps(self, buffer: tirx.Var) -> bool:
        return is_worth_saving(self.program, buffer) if self.saved is None else buffer.name in self.saved

    @cached_property
    def sweep(self) -> Sweep:
        buffers = [*self.program.params, *self.program.root.alloc_buffers]
        dtype = accumulator_dtype(widest_float(dtype_of(b) for b in buffers if tirx.is_buffer_var(b)))
        of = {b: self._like(b) for b in self.of}
        return Sweep(self.program, of, self.wrt, dtype, from_outputs=self.saved is None)

    def _result(self, buffer: tirx.Var, adjoints: dict[tirx.Var, sp.Expr]) -> Made:
        """The stage of an input's adjoint: the sum that it is, where nothing else reads that, or a map."""
        value, places = adjoints[buffer], self.sweep.places(buffer)
        read = [symbol for one in self.sweep.stages.made for symbol in one.value.free_symbols]
        read += [symbol for adjoint in adjoints.values() for symbol in adjoint.free_symbols]
        load = self.sweep.terms.sources.get(value)
        if isinstance(load, ir.TensorLoad) and read.count(value) == 1 and same(list(load.indices), places):
            for made in self.sweep.stages.made:
                if made.summed and load.source.same_as(made.buffer) and dtype_of(made.buffer) == dtype_of(buffer):
                    return dataclasses.replace(made, buffer=self._like(buffer))
        return Made(self._like(buffer), tuple(places), (), value)

    def _like(self, buffer: tirx.Var) -> tirx.Var:
        """A buffer for the adjoint of another one."""
        return tirx.decl_buffer(buffer.ty.shape, dtype_of(buffer), name=f"d_{buffer.name}", layout=None)

    def _read(self, made: Made) -> list[tirx.Var]:
        leaves = (self.sweep.terms.sources[symbol] for symbol in sorted(made.value.free_symbols, key=str))
        return [load.source for leaf in leaves for load in loads_of(leaf)]

    def _normalised(self, made: Sequence[Made], results: Sequence[Made]) -> tuple[list[Made], list[Made]]:
        """Stages with logarithms of sums in place of sums that divide, and those that the forward function stores."""
        if self.saved is not None:
            return list(made), []
        normalisers = Normalisers(self.sweep, self._keeps)
        found = [normalisers.of(one) for one in made]
        live = self._live([*normalisers.kept, *found], results)
        return [one for one in live if one not in normalisers.kept], [one for one in live if one in normalisers.kept]

    def _live(self, made: Sequence[Made], results: Sequence[Made]) -> list[Made]:
        """The stages that some results need, in order."""
        by_buffer = {one.buffer: one for one in made}
        needed = reached([one.buffer for one in results], lambda b: self._read(by_buffer[b]) if b in by_buffer else [])
        return [one for one in by_buffer.values() if one.buffer in {*needed}]

    def _forward(self, saved: Sequence[tirx.Var], kept: Sequence[Made]) -> tirx.PrimFunc:
        func, root = self.program.func, self.program.root
        further = [b for b in saved if not self.program.is_param(b)] + [one.buffer for one in kept]
        if not further:
            return func
        nests = NestBuilder(index_dtype(self.program), {stage.name for stage in self.program.stages}, annotated=False)
        left = [b for b in root.alloc_buffers if not among(b, further)]
        statements = [root.body, *(self._nest(nests, one, {}) for one in kept)]
        body = with_root(func, statements, alloc_buffers=left).body
        return completed(tirx.PrimFunc([*func.params, *further], body, func.ret_type, func.attrs))

    def _nest(self, nests: NestBuilder, made: Made, homes: dict[tirx.Var, tirx.Var]) -> tirx.Stmt:
        """The loops of a stage of the backward function."""
        sweep, dtype = self.sweep, dtype_of(made.buffer)
        value = cast(sweep.terms.printed(made.value, sweep.dtype, homes), dtype)
        iters = [Iter(v, v.name.removeprefix("v_"), sweep.terms.extents[v]) for v in made.rows]
        iters += [Iter(v, v.name.removeprefix("v_"), sweep.terms.extents[v], reduce=True) for v in made.summed]
        iters = iters or [Iter("unit", "unit", 1)]

        def at(values: Values, expression: ir.Expr) -> ir.Expr:
            return substitute(expression, dict(values))

        def where(values: Values) -> list[ir.Expr]:
            return [values[v] for v in made.rows]

        if not made.summed:
            return nests.nest(made.buffer.name, "", iters, lambda v: [store(made.buffer, at(v, value), where(v))])
        zero = tirx.const(0.0, dtype)
        return nests.reduction(
            made.buffer.name, "", iters, (made.buffer, where), ir.prim.Add, zero, lambda v: at(v, value)
        )


# What the backward function has of the forward one: what is passed to it, and what it computes again.


def forward_values(
    program: Program, read: Iterable[tirx.Var], keeps: Callable[[tirx.Var], bool], anew: Collection[tirx.Var]
) -> tuple[list[tirx.Var], list[Stage], dict[tirx.Var, tirx.Var]]:
    """What is saved of some buffers that are read, and of those that they are computed from.

    Parameters
    ----------
    keeps : whether a buffer is saved where it is read.
    anew : buffers that are computed again in any case.

    Returns
    -------
    The buffers that are passed, as they are written; the stages that are computed again, in order; and by result, the
    output that holds it and is read instead.
    """
    holders, saved, again = _outputs_that_hold(program), set[tirx.Var](), set[tirx.Var]()
    homes, pending, seen = dict[tirx.Var, tirx.Var](), [(buffer, True) for buffer in read], set[tuple[tirx.Var, bool]]()
    while pending:
        buffer, by_new_stages = one = pending.pop()
        stage = program.writer(buffer)
        if one in seen or stage is None:
            continue
        seen.add(one)
        output = holders.get(buffer) if by_new_stages else None  # the nests of the program read what they did
        if buffer not in anew and output is not None and keeps(output):
            homes[buffer] = output
            saved.add(output)
        elif buffer not in anew and keeps(buffer):
            saved.add(buffer)
        else:
            again.add(buffer)
            pending += [(b, False) for part in program.together(stage) for b in part.reads]
    stages = [stage for stage in program.stages if any(part.buffer in again for part in program.together(stage))]
    order = {stage.buffer: k for k, stage in enumerate(program.stages)}
    return sorted(saved, key=order.__getitem__), stages, homes


def _outputs_that_hold(program: Program) -> dict[tirx.Var, tirx.Var]:
    """By result, an output that holds it, each at the same place, in whatever float but float8."""
    found: dict[tirx.Var, tirx.Var] = {}
    for stage in program.stages:
        value = stage.value
        while isinstance(value, prim.Cast) and is_float(dtype_of(value)) and not dtype_of(value).startswith("float8"):
            value = value.value
        copies = stage.reducer is None and program.is_param(stage.buffer) and isinstance(value, ir.TensorLoad)
        if copies and is_float(dtype_of(value)) and same(list(value.indices), list(stage.indices)):
            found[value.source] = stage.buffer
    return found


def is_worth_saving(program: Program, buffer: tirx.Var) -> bool:
    """Whether a buffer is an output, or a result that no reduction reduces in turn."""
    stage = program.writer(buffer)
    inline = inliner_of(program).of
    reduced = any(
        load.source.same_as(buffer) and uses(load, other.reduce)
        for other in program.stages
        for load in loads_of(inline(other))
    )
    return program.is_param(buffer) or (stage is not None and stage.reducer is not None and not reduced)

"""`tvm_cascade.gradient`: a function's gradient as two functions, forward and backward."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import sympy as sp
from tvm import ir, s_tir, tirx

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.statements import completed, with_root
from tvm_cascade.analysis.tir import dtype_of, loads_of, reached, same, substitute, uses, without_casts
from tvm_cascade.chunks.partial import build
from tvm_cascade.errors import GradientError, InputError, OptionError
from tvm_cascade.reverse.stages import Made
from tvm_cascade.reverse.sweep import Sweep
from tvm_cascade.transform.assemble import index_dtype
from tvm_cascade.transform.fuse_function import read_function
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, store, unused
from tvm_cascade.transform.printer import cast
from tvm_cascade.transform.scope import accumulator_dtype, widest_float


@dataclass(frozen=True)
class Gradient:
    """A function's gradient; both functions are unfused S-TIR, which `compile`, `explain` and schedules take as any.

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
    saved: Sequence[str] | None = None,
) -> Gradient:
    """The gradient of a function: what it saves, and the function from adjoints of its outputs to those of its inputs.

    Derivatives are those of the program as it is written, without its casts between floats, and adjoints are computed
    in the widest float of its buffers, at least float32. Sums over positions that results give are not made again: of
    attention, the adjoint of a row's denominator comes from the row's own output. What was broadcast is summed, as the
    keys of a group of heads are over its heads.

    rewrite: m = max_j s[j];  t = Σ_j exp(s[j] − m);  o[f] = Σ_j exp(s[j] − m)/t·v[j, f]
          →  δ = Σ_f d_o[f]·o[f];  p[j] = exp(s[j] − m)/t;
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
        them position by position. Where an output holds a result in a narrower dtype, the output is read.

    Raises
    ------
    InputError
        When `func` is not a PrimFunc.
    OptionError
        When there is no output, input or result of a name.
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
    program = read_function(_with_own_names(func))
    if isinstance(program, Reason) or program.opaque:
        reason = program if isinstance(program, Reason) else program.opaque[0].reason
        raise GradientError("a function that can be read whole", str(reason), "gradient", reason.hint)
    written = {stage.buffer for stage in program.stages}
    floats = [b for b in program.params if tirx.is_buffer_var(b) and dtype_of(b).startswith(("float", "bfloat"))]
    inputs = [b for b in floats if b not in written and not dtype_of(b).startswith("float8")]
    outputs = _named(of, [b for b in floats if b in written], "of")
    return _Assembly(program, outputs, _named(wrt, inputs, "wrt"), saved).run()


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
        results = [self._result(b, adjoints) for b in self.wrt]
        made = self._live(results)
        nests = NestBuilder(index_dtype(self.program), annotated=False)
        read = dict.fromkeys(b for one in made for b in self._read(one))
        kept = self._kept(read)
        again = [s for s in self.program.stages if s.buffer in self._behind(read, kept)]
        statements = [stage.nest for stage in again if stage is self.program.together(stage)[0]]
        nests.names.update(stage.name for stage in again)
        homes = {result: out for result, out in self._stand_ins.items() if out in kept}
        statements += [self._nest(nests, one, homes) for one in made]
        loaded = {*read, *(b for stage in again for b in stage.reads)}
        inputs = [p for p in self.program.params if p in loaded and self.program.writer(p) is None]
        given = [*inputs, *kept, *sweep.of.values()]
        own = [one.buffer for one in made] + [part.buffer for stage in again for part in self.program.together(stage)]
        backward = build(
            self.program, "backward", statements, given, [one.buffer for one in results], dict.fromkeys(own)
        )
        return Gradient(self._forward(kept), backward, tuple(b.name for b in kept))

    @cached_property
    def sweep(self) -> Sweep:
        buffers = [*self.program.params, *self.program.root.alloc_buffers]
        dtype = accumulator_dtype(widest_float(dtype_of(b) for b in buffers if tirx.is_buffer_var(b)))
        return Sweep(self.program, {b: self._like(b) for b in self.of}, self.wrt, dtype)

    def _result(self, buffer: tirx.Var, adjoints: dict[tirx.Var, sp.Expr]) -> Made:
        """The stage of an input's adjoint: the sum that it is, where nothing else reads that, or a map."""
        value, places = adjoints[buffer], self.sweep.places(buffer)
        read = [symbol for one in self.sweep.stages.made for symbol in one.value.free_symbols]
        read += [symbol for adjoint in adjoints.values() for symbol in adjoint.free_symbols]
        load = self.sweep.terms.leaves.get(value)
        if isinstance(load, ir.TensorLoad) and read.count(value) == 1 and same(list(load.indices), places):
            for made in self.sweep.stages.made:
                if made.summed and load.source.same_as(made.buffer) and dtype_of(made.buffer) == dtype_of(buffer):
                    return dataclasses.replace(made, buffer=self._like(buffer))
        return Made(self._like(buffer), tuple(places), (), value)

    def _like(self, buffer: tirx.Var) -> tirx.Var:
        """A buffer for the adjoint of another one."""
        return tirx.decl_buffer(buffer.ty.shape, dtype_of(buffer), name=f"d_{buffer.name}", layout=None)

    def _read(self, made: Made) -> list[tirx.Var]:
        leaves = (self.sweep.terms.leaves[symbol] for symbol in sorted(made.value.free_symbols, key=str))
        return [load.source for leaf in leaves for load in loads_of(leaf)]

    def _live(self, results: Sequence[Made]) -> list[Made]:
        """The stages that some results need, in order."""
        by_buffer = {one.buffer: one for one in (*self.sweep.stages.made, *results)}
        needed = reached([one.buffer for one in results], lambda b: self._read(by_buffer[b]) if b in by_buffer else [])
        return [one for one in by_buffer.values() if one.buffer in {*needed}]

    # What the backward function has of the forward one.

    @cached_property
    def _stand_ins(self) -> dict[tirx.Var, tirx.Var]:
        """Results that an output holds, each at the same place, and that output."""
        found: dict[tirx.Var, tirx.Var] = {}
        for stage in self.program.stages:
            value = without_casts(stage.value)
            if stage.reducer is None and self.program.is_param(stage.buffer) and isinstance(value, ir.TensorLoad):
                floats = dtype_of(stage.value).startswith(("float16", "bfloat16", "float32", "float64"))
                if floats and same(list(value.indices), list(stage.indices)):
                    found[value.source] = stage.buffer
        return found

    def _kept(self, read: Iterable[tirx.Var]) -> list[tirx.Var]:
        """The buffers that the forward function saves: those that are read, as they are or as an output holds them."""
        known = {stage.buffer: stage for stage in self.program.stages}
        if self.saved is not None:
            _named(self.saved, [*known], "saved") if self.saved else None
        keeps: Callable[[tirx.Var], bool] = (
            self._worth_keeping if self.saved is None else lambda b: b.name in (self.saved or ())
        )
        found, pending = dict[tirx.Var, None](), list(read)
        seen: set[tirx.Var] = set()
        while pending:
            if (buffer := pending.pop(0)) in seen or buffer not in known:
                continue
            seen.add(buffer)
            home = self._stand_ins.get(buffer, buffer)
            if buffer in self.sweep.again:
                home = buffer
            if buffer not in self.sweep.again and (keeps(home) or keeps(buffer)):
                found[home if keeps(home) else buffer] = None
            else:
                pending += [b for part in self.program.together(known[buffer]) for b in part.reads]
        return sorted(found, key=[*known].index)

    def _worth_keeping(self, buffer: tirx.Var) -> bool:
        """Whether it is an output, or a result that no reduction reduces in turn."""
        stage = self.program.writer(buffer)
        reduced = any(
            load.source.same_as(buffer) and uses(load, other.reduce)
            for other in self.program.stages
            for load in loads_of(self.sweep.inlined(other))
        )
        return self.program.is_param(buffer) or (stage is not None and stage.reducer is not None and not reduced)

    def _behind(self, read: Iterable[tirx.Var], kept: Sequence[tirx.Var]) -> set[tirx.Var]:
        """The buffers of the forward function that are computed again."""
        known = {stage.buffer: stage for stage in self.program.stages}
        homes = {result for result, out in self._stand_ins.items() if out in kept and result not in self.sweep.again}

        def sources(buffer: tirx.Var) -> list[tirx.Var]:
            parts = self.program.together(known[buffer])
            return [b for part in parts for b in part.reads if b in known and b not in kept]

        first = [b for b in read if b in known and b not in kept and b not in homes]
        return {*reached(first, sources)}

    def _forward(self, kept: Sequence[tirx.Var]) -> tirx.PrimFunc:
        func, root = self.program.func, self.program.root
        further = [b for b in kept if not self.program.is_param(b)]
        if not further:
            return func
        left = [b for b in root.alloc_buffers if not among(b, further)]
        body = with_root(func, [root.body], alloc_buffers=left).body
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

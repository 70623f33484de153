"""`tvm_cascade.split`: a function as one that leaves the state of a chunk and one that merges states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import tirx
from typing_extensions import Unpack

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.tir import Extent
from tvm_cascade.chunks.assemble import (
    combine_function,
    cut_into,
    joined_function,
    merge_function,
    partial_functions,
)
from tvm_cascade.chunks.cut import Chunk, axis_that_is_cut
from tvm_cascade.chunks.sources import Stacked
from tvm_cascade.chunks.state import StatePart, single_fold, state_of
from tvm_cascade.errors import OptionError
from tvm_cascade.options import FuseOptions, Options
from tvm_cascade.transform.assemble import index_dtype


@dataclass(frozen=True)
class Split:
    """The functions of a split; all are unfused S-TIR, which `compile` and `explain` take like any other.

    Attributes
    ----------
    partials : a function for each chunk, from the chunk's inputs to its state; one for all where offsets are passed.
    combine : from the states of some chunks to their state, for trees and rings.
    merge : from the states of all chunks to the results of the function that was split.
    joined : all of it in one function, where the chunks are known: the states of each, and their merge. Inputs that
        are cut have the number of their chunk after their name.
    state : the buffers of a state, in the order in which they are passed.
    counted : merging takes `counts`, the number of positions of each chunk, after the states.
    lengths : of the chunks, along the loop that is cut; of the one that stands for all where that is known; else none.
    """

    partials: tuple[tirx.PrimFunc, ...] = field(repr=False)
    combine: tirx.PrimFunc = field(repr=False)
    merge: tirx.PrimFunc = field(repr=False)
    joined: tirx.PrimFunc | None = field(repr=False)
    state: tuple[StatePart, ...]
    counted: bool
    lengths: tuple[int, ...]

    @property
    def partial(self) -> tirx.PrimFunc:
        """The function of a chunk, or of the first one."""
        return self.partials[0]

    @property
    def module(self) -> tvm.IRModule:
        functions = [*self.partials, self.combine, self.merge, *([] if self.joined is None else [self.joined])]
        return tvm.IRModule({str(func.attrs["global_symbol"]): func for func in functions})

    def __str__(self) -> str:
        return "\n".join(map(str, self.state))


def split(
    mod_or_func: tvm.IRModule | tirx.PrimFunc,
    chunks: int | None = None,
    lengths: int | Sequence[int] | None = None,
    shared: Mapping[int, str] | None = None,
    **options: Unpack[Options],
) -> Split:
    """Splits a function's fold into functions that leave partial states and functions that merge them.

    It serves chunks of the axis that arrive later, prefixes that sequences share, and devices that hold a part each.
    The state, the partial function and the merge follow from the fold alone; the merge is associative, and a chunk
    whose every position is masked, or that has none, changes nothing.

    rewrite: m = max_j s[j];  t = Σ_j exp(s[j] − m);  o = Σ_j exp(s[j] − m)/t·v[j]
          →  partial: m_state, t_state, o_state over the chunk's own s and v
             merge:   m = max_c m_states[c];  t = Σ_c t_states[c]·exp(m_states[c] − m);  …  o = o_0/t

    Parameters
    ----------
    mod_or_func : an S-TIR function that is not scheduled, or a module of one, with one cascade (or one reduction, or
        reductions that share their axis).
    chunks : so many chunks of equal length, or nearly.
    lengths : of all chunks of the axis, in order; or one length for any number of chunks. With neither this nor
        `chunks`, partial functions take chunks of any length, and merging functions any number of states.
    shared : by chunk, the row axis along which its inputs are the same: they lose that dimension, so that, for 0: "b",
        the keys of the first chunk are read once for all b.
    **options
        Fields of `FuseOptions` that a fold is derived by: `rescalable_casts` and `reference`.

    Returns
    -------
    Split
        Inputs of a partial function have the chunk's length where the function reads them at the axis itself. All
        else that an element reads of its position (masks, biases, indices that are results) is of the whole axis: with
        known chunks as constants, else by a last input `offset`, its first position, after `length` if no input has it.

    Raises
    ------
    InputError
        When the program is not one function in S-TIR.
    OptionError
        When chunks and lengths are no cut of the axis, or no row axis of that name is shared.
    SplitError
        When the function has no fold, or several, or what its fold reads cannot be cut; the message says why.
    """
    fold = single_fold(mod_or_func, FuseOptions.from_environment(**options))
    dtype = index_dtype(fold.program)
    found, known = chunking_of(fold.group, chunks, lengths, shared or {}, dtype)
    state = state_of(fold.group, [param.name for param in fold.program.params])
    parts, numbered = (cut_into(fold, state, found, numbered=n) for n in (False, True))
    stacked = Stacked(state, len(found) if known else tirx.Var("chunks", dtype), dtype)
    return Split(
        partial_functions(fold, state, parts),
        combine_function(fold, stacked),
        merge_function(fold, stacked),
        joined_function(fold, state, numbered) if known else None,
        tuple(one.part for one in state.leaving),
        state.counted,
        tuple(chunk.length for chunk in found if isinstance(chunk.length, int)),
    )


# The chunks that a caller asks for: known ones, which cover the axis, or any of one length, or any at all.


def chunking_of(
    group: Group, chunks: int | None, lengths: int | Sequence[int] | None, shared: Mapping[int, str], index_dtype: str
) -> tuple[tuple[Chunk, ...], bool]:
    """The chunks of a group's axis, and whether they are all of it: else one stands for any. Parameters are `split`'s.

    Raises
    ------
    OptionError
        When chunks and lengths are no cut of the axis, or no row axis of that name is shared.
    """
    whole = group.frame.extents[axis_that_is_cut(group)]
    if chunks is not None:
        lengths = _equal_lengths(whole, chunks, lengths)
    if lengths is None or isinstance(lengths, int):
        _check_shared(group, shared, 1)
        if isinstance(lengths, int) and lengths < 1:
            raise OptionError("a positive length", str(lengths), "split(lengths=…)")
        length = tirx.Var("length", index_dtype) if lengths is None else lengths
        return (Chunk(length, tirx.Var("offset", index_dtype), shared.get(0, "")),), False
    given = tuple(lengths)
    counts = bool(given) and all(isinstance(n, int) and n > 0 for n in given)
    if not counts or (isinstance(whole, int) and sum(given) != whole):
        raise OptionError(f"positive lengths that add up to {whole}", str(given), "split(lengths=…)")
    _check_shared(group, shared, len(given))
    starts = [tirx.const(sum(given[:k]), index_dtype) for k in range(len(given))]
    found = (Chunk(n, start, shared.get(k, "")) for k, (n, start) in enumerate(zip(given, starts, strict=True)))
    return tuple(found), True


def _equal_lengths(whole: Extent, chunks: int, lengths: object) -> tuple[int, ...]:
    """Lengths of so many chunks, which differ by one at most."""
    if lengths is not None or not isinstance(chunks, int) or not isinstance(whole, int) or not 0 < chunks <= whole:
        found = f"chunks={chunks}, lengths={lengths}"
        hint = "pass one of them; where the axis has a symbolic extent, lengths, or neither"
        raise OptionError(f"chunks from 1 to {whole}, or lengths", found, "split", hint)
    return tuple(whole // chunks + (k < whole % chunks) for k in range(chunks))


def _check_shared(group: Group, shared: Mapping[int, str], number: int) -> None:
    rows = sorted({v.name for v in group.frame.extents if not among(v, group.frame.axis)})
    if unknown := [name for name in shared.values() if name not in rows]:
        raise OptionError(f"row axes among {', '.join(rows)}", repr(unknown[0]), "split(shared=…)")
    if beyond := set(shared) - set(range(number)):
        raise OptionError(f"chunks below {number}", str(sorted(beyond)), "split(shared=…)")

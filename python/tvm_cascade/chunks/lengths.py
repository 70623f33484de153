"""The chunks that a caller asks for: known ones, which cover the axis, or any of one length, or any at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx

from tvm_cascade.analysis.extent import Extent
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.chunks.cut import Chunk, axis_that_is_cut
from tvm_cascade.errors import OptionError


@dataclass(frozen=True)
class Chunking:
    """The chunks; `known` where they are all of the axis, else one stands for any."""

    chunks: tuple[Chunk, ...]
    known: bool

    @property
    def number(self) -> int | None:
        """How many there are, where that is known."""
        return len(self.chunks) if self.known else None


def chunking_of(
    group: Group, chunks: int | None, lengths: int | Sequence[int] | None, shared: Mapping[int, str], index_dtype: str
) -> Chunking:
    """The chunks of a group's axis; parameters are those of `split`.

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
        return Chunking((Chunk(length, tirx.Var("offset", index_dtype), shared.get(0, "")),), known=False)
    given = tuple(lengths)
    counts = bool(given) and all(isinstance(n, int) and n > 0 for n in given)
    if not counts or (isinstance(whole, int) and sum(given) != whole):
        raise OptionError(f"positive lengths that add up to {whole}", str(given), "split(lengths=…)")
    _check_shared(group, shared, len(given))
    starts = [tirx.const(sum(given[:k]), index_dtype) for k in range(len(given))]
    found = (Chunk(n, start, shared.get(k, "")) for k, (n, start) in enumerate(zip(given, starts, strict=True)))
    return Chunking(tuple(found), known=True)


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

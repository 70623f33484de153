"""The ledger of emitted kernels: of each program its kernels, in which geometry, at which estimate, and their text.

`python -m tests.kernels [WORD ...]`, at the root, lowers every program whose name holds one of the words (all by
default) for an H200, and those of the suite `cpu` for two cores with AVX-512. It tells what differs from
`golden/kernels.tsv` and from the whole texts in `golden/kernels/`, and exits with 1 where anything does. `--write`
records what is found. It needs neither a GPU nor nvcc, and takes five minutes of one core.

A line of the ledger is a function that TVM generates code for; hashes are of all of its TIR and CUDA, names of
temporaries included. A text is kept whole where it has a file: to keep another, make an empty one and record it.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import gc
import hashlib
import itertools
import multiprocessing
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import tvm
from tvm import tirx
from tvm.tirx.build import codegen_build, split_host_device_mods
from tvm.tirx.compilation_pipeline import get_tir_pipeline
from tvm.tirx.transform import BindTarget

from tvm_cascade.plan.plan import Plan
from tvm_cascade.tile.launch.pipeline import register_mixed_pipeline
from tvm_cascade.tile.skeleton import Kernel

from .kernel_programs import GROUPS, TARGET, geometry_of, programs

RECORDED = Path(__file__).parent / "golden" / "kernels.tsv"

HEAD = ("name", "family", "geometry", "seconds", "TIR", "CUDA")

MOST_LINES = 40
"""Of the difference of two texts that are printed."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A function that is ready for code generation.

    Attributes
    ----------
    family : the skeleton's name; "schedule" of an S-TIR schedule, which has no geometry and no estimate here, and "cpu"
        of one for a CPU, whose text is LLVM's.
    geometry : its configuration.
    seconds : estimated, to four digits.
    tir, cuda : hashes of the TIR that TVM is given, and of the text that it makes.
    """

    family: str
    geometry: str
    seconds: str
    tir: str
    cuda: str

    @property
    def variant(self) -> str:
        """The family with the kind of its configuration, which has a kernel class of its own."""
        return f"{self.family} {self.geometry.split('(')[0]}".rstrip()


Ledger = dict[str, Entry]
Function = tuple[Entry, str, str]
"""A function's entry, its TIR and its CUDA text."""


def emitted(name: str) -> dict[str, Function]:
    """The functions of a program: `name`, with `#2` of the second of several and `~1` of another geometry."""
    found: dict[str, Function] = {}
    for way, lowered in enumerate(programs(name.split("/")[0])[name]()):
        several = [step.chosen for step in lowered.chosen.steps] if isinstance(lowered.chosen, Plan) else []
        funcs = lowered.steps.values() if several else (lowered.func,)
        for number, (chosen, func) in enumerate(zip(several or (lowered.chosen,), funcs, strict=True), 1):
            key = name + f" #{number}" * bool(several) + f" ~{way}" * bool(way)
            found[key] = _function(chosen, func, on_cpu=name.startswith("cpu/"))
    return found


def _function(chosen: object, func: tirx.PrimFunc, on_cpu: bool) -> Function:
    tir, cuda = func.script(), "" if on_cpu else cuda_text(func)
    told = ("cpu" if on_cpu else "schedule", "", "")
    if isinstance(chosen, Kernel):
        told = (chosen.skeleton.name, geometry_of(chosen.config), f"{chosen.seconds:.3e}")
    return Entry(*told, _hash(tir), _hash(cuda)), tir, cuda


def cuda_text(func: tirx.PrimFunc) -> str:
    """The text that TVM makes of a function's kernels, which nothing compiles."""
    lower, _, finish = get_tir_pipeline(register_mixed_pipeline())
    with TARGET:
        _, devices = split_host_device_mods(lower(BindTarget(TARGET)(tvm.IRModule({"main": func}))))
        return "".join(codegen_build(finish()(made), where).inspect_source("cuda") for where, made in devices.items())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def own_part(cuda: str) -> str:
    """A text from its kernel on; what is before it is TVM's, or like that in all kernels."""
    return cuda[cuda.rindex('extern "C" __global__') :].rstrip("\n") + "\n"


# The files, and what differs.


def read(path: Path = RECORDED) -> Ledger:
    """The entries of a ledger."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []
    return {name: Entry(*rest) for name, *rest in (line.split("\t") for line in lines)}


def write(ledger: Mapping[str, Entry], path: Path = RECORDED) -> None:
    """Writes a ledger, a line an entry."""
    rows = [HEAD, *((name, *dataclasses.astuple(entry)) for name, entry in sorted(ledger.items()))]
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def kept(name: str, path: Path = RECORDED) -> Path:
    """The file of an entry's whole text, which is there where it is kept."""
    return path.with_suffix("") / f"{re.sub('[^A-Za-z0-9.~]+', '_', name)}.cu"


def differences(name: str, old: Entry | None, now: Function | None, path: Path = RECORDED) -> dict[str, str]:
    """What of an entry is not as recorded (choice, estimate, TIR, CUDA, text; or it is new, or gone), and how."""
    if old is None or now is None:
        there = now[0] if now else old
        return {"gone" if now is None else "new": f"{there.family} {there.geometry}"} if there else {}
    new, _, cuda = now
    told = {
        "choice": (f"{old.family} {old.geometry}", f"{new.family} {new.geometry}"),
        "estimate": (f"{old.seconds} s", f"{new.seconds} s"),
        "TIR": (old.tir, new.tir),
        "CUDA": (old.cuda, new.cuda),
    }
    found = {what: f"- {before}\n+ {after}" for what, (before, after) in told.items() if before != after}
    if (file := kept(name, path)).exists() and (text := own_part(cuda)) != (recorded := file.read_text("utf-8")):
        lines = list(difflib.unified_diff(recorded.splitlines(), text.splitlines(), file.name, "now", n=1, lineterm=""))
        more = [f"... and {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
        found["text"] = "\n".join([*lines[:MOST_LINES], *more])
    return found


# The command.


def main(arguments: list[str] | None = None, say: Callable[[str], None] = print, path: Path = RECORDED) -> int:
    """Lowers programs, and compares or records them; returns 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels", description="Emitted kernels beside the ledger.")
    parser.add_argument("words", nargs="*", help="of the names of the programs (all)")
    parser.add_argument("--write", action="store_true", help="record what is found")
    parser.add_argument("--texts", type=Path, metavar="FOLDER", help="write all texts, for a diff of two checkouts")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    args = parser.parse_args(arguments)

    def asked(name: str) -> bool:
        return not args.words or any(word in name for word in args.words)

    names = [name for group in _groups(args.words) for name in programs(group) if asked(name)]
    recorded, found, differ = read(path), Ledger(), Counter[str]()
    gone = {program_of(key): dict[str, Function]() for key in recorded if asked(program_of(key))}
    for name in names:
        gone.pop(name, None)
    for name, functions in itertools.chain(_all_emitted(names, args.jobs), gone.items()):
        before = {key: entry for key, entry in recorded.items() if program_of(key) == name}
        for key in dict.fromkeys((*before, *functions)):
            if told := differences(key, before.get(key), functions.get(key), path):
                differ.update(told.keys())
                say(f"{key}: {', '.join(told)}\n" + textwrap.indent("\n".join(told.values()), "  "))
        found |= {key: entry for key, (entry, _, _) in functions.items()}
        _write_texts(functions, args.write, args.texts, path)
    if args.write:
        write({key: entry for key, entry in recorded.items() if not asked(program_of(key))} | found, path)
    counts = ", ".join(f"{what} of {count}" for what, count in differ.items()) or "nothing"
    say(f"{len(found)} entries of {len(names)} programs; what differs: {counts}")
    return 0 if names and (args.write or not differ) else 1


def _groups(words: Sequence[str]) -> Sequence[str]:
    """The groups that words begin with, where all do: to list the programs of all takes seconds."""
    own = {word: word.partition("/")[0] for word in words}
    named = words and all(group in GROUPS and word != group for word, group in own.items())
    return tuple(dict.fromkeys(own.values())) if named else GROUPS


def program_of(key: str) -> str:
    return re.sub(r"( #\d+)?( ~\d+)?$", "", key)


def _all_emitted(names: Iterable[str], jobs: int) -> Iterator[tuple[str, dict[str, Function]]]:
    """The functions of programs, in so many processes; in this one where that is one."""
    if jobs == 1:
        yield from ((name, emitted(name)) for name in names)
        return
    with multiprocessing.get_context("fork").Pool(jobs, _collect_rarely) as pool:  # forked: programs are listed once
        yield from pool.imap(_named, names, chunksize=4)  # neighbours have folds in common, which are derived once


def _collect_rarely() -> None:
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _named(name: str) -> tuple[str, dict[str, Function]]:
    return name, emitted(name)


def _write_texts(functions: Mapping[str, Function], write: bool, folder: Path | None, path: Path) -> None:
    for key, (_, tir, cuda) in functions.items():
        if write and kept(key, path).exists():
            kept(key, path).write_text(own_part(cuda), encoding="utf-8")
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            stem = kept(key, path).stem
            (folder / f"{stem}.cu").write_text(cuda, encoding="utf-8")
            (folder / f"{stem}.tir").write_text(tir, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

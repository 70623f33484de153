"""What newer releases of apache-tvm-ffi break in TVM 0.27: each of these programs, of TVM alone, ends in a segfault.

In an environment that has TVM, and not this package, which refuses other releases, another one is tried by `pip install
--no-deps --target FOLDER apache-tvm-ffi==RELEASE` and `PYTHONPATH=FOLDER python tests/tvm_faults/ffi_programs.py`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import s_tir, te, tirx


def product(n: int) -> tirx.PrimFunc:
    x, y, k = te.placeholder((n, n), name="x"), te.placeholder((n, n), name="y"), te.reduce_axis((0, n), "k")
    return te.create_prim_func([x, y, te.compute((n, n), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="z")])


def save_json() -> None:
    func = product(8)
    tvm.ir.assert_structural_equal(tvm.ir.load_json(tvm.ir.save_json(func)), func)


def tensorize() -> None:
    from tvm.s_tir.tensor_intrin.x86 import VNNI_DOT_16x4_INTRIN  # seconds, which none but such a process needs

    n = 64
    a, b = te.placeholder((n, n), "uint8", name="a"), te.placeholder((n // 16, n // 4, 16, 4), "int8", name="b")
    k = te.reduce_axis((0, n), "k")

    def multiplied(i: tirx.Var, j: tirx.Var) -> tirx.Expr:
        return te.sum(a[i, k].astype("int32") * b[j // 16, k // 4, j % 16, k % 4].astype("int32"), axis=k)

    schedule = s_tir.Schedule(te.create_prim_func([a, b, te.compute((n, n), multiplied, name="c")]))
    block = schedule.get_sblock("c")
    i, j, summed = schedule.get_loops(block)
    (outer, columns), (steps, inner) = schedule.split(j, [None, 16]), schedule.split(summed, [None, 4])
    schedule.reorder(i, outer, steps, columns, inner)
    schedule.decompose_reduction(block, steps)
    schedule.tensorize(columns, VNNI_DOT_16x4_INTRIN)


def design_space() -> None:
    from tvm.s_tir import meta_schedule

    module, target = tvm.IRModule({"main": product(64)}), tvm.target.Target({"kind": "llvm", "num-cores": 2})
    generator = meta_schedule.space_generator.PostOrderApply()
    context = meta_schedule.TuneContext(
        mod=module, target=target, space_generator=generator, search_strategy="evolutionary", num_threads=2
    )
    assert context.generate_design_space()


PROGRAMS: dict[str, Callable[[], None]] = {one.__name__: one for one in (save_json, tensorize, design_space)}


def returned(name: str) -> int:
    """What a process returns that runs one: 0, or less than 0 for the signal that has ended it."""
    return subprocess.run([sys.executable, __file__, name], capture_output=True).returncode


if __name__ == "__main__":
    if sys.argv[1:]:
        PROGRAMS[sys.argv[1]]()
    else:
        print(f"apache-tvm {tvm.__version__}, apache-tvm-ffi {tvm_ffi.__version__}")
        for each in PROGRAMS:
            print(f"{each}: process returned {returned(each)}")

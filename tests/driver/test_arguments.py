"""What a compiled function takes: arrays of any layout and library, and errors that name the parameter."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.script import tirx as T

import tvm_cascade
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.errors import DeviceError, InputError

ROWS, COLUMNS = 8, 100
DATA = np.arange(ROWS * COLUMNS, dtype="float32").reshape(ROWS, COLUMNS)


def doubling(rows: Any = ROWS, dtype: str = "float32", target: Any = "auto") -> Compiled:
    """y = 2·x."""
    x = te.placeholder((rows, COLUMNS), dtype, name="x")
    func = te.create_prim_func([x, te.compute((rows, COLUMNS), lambda i, j: x[i, j] + x[i, j], name="y")])
    return tvm_cascade.compile(func, target)


@pytest.fixture(scope="module")
def doubled() -> Compiled:
    return doubling()


@pytest.fixture(scope="module")
def of_any_length() -> Compiled:
    return doubling(tirx.Var("n", "int64"))


def result() -> np.ndarray:
    return np.full((ROWS, COLUMNS), np.nan, "float32")


def unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 128, "uint8")
    start = -memory.ctypes.data % 64 + 4
    arrays = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    arrays[...] = array
    return arrays


LAYOUTS = {
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "every other": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "reversed": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "unaligned": unaligned,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpy_arrays_of_any_layout(doubled: Compiled, layout: str) -> None:
    given, found = LAYOUTS[layout](DATA), LAYOUTS[layout](result())
    doubled(given, found)
    np.testing.assert_array_equal(found, 2 * DATA)
    np.testing.assert_array_equal(given, DATA)


@pytest.mark.parametrize("compiler", [tvm_cascade.compile, tvm_cascade.compile_unfused])
def test_views_of_arguments_of_any_layout(compiler: Any) -> None:
    """A part that is matched, of a default alignment, and a whole that is declared: all goes through them."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((8, 100), "float32"), y: T.Buffer((8, 100), "float32")):
        whole = T.decl_buffer((800,), "float32", data=y.data)
        for i in range(8):
            with T.sblock("row"):
                v_i = T.axis.spatial(8, i)
                T.reads(x[v_i, 3:99])
                T.writes(whole[v_i * 100 : v_i * 100 + 100])
                part = T.match_buffer(x[v_i, 3:99], (96,), "float32", offset_factor=1)
                for j in T.vectorized(96):
                    whole[v_i * 100 + j] = part[j]

    compiled = compiler(main)
    assert [parameter.written for parameter in compiled.parameters["main"]] == [False, True]
    for layout in (unaligned, LAYOUTS["transposed"]):
        found = layout(result())
        compiled(layout(DATA), found)
        np.testing.assert_array_equal(found[:, :96], DATA[:, 3:99])


def test_tensors_of_tvm_that_are_not_aligned(doubled: Compiled) -> None:
    given, found = (tvm_ffi.from_dlpack(unaligned(array)) for array in (DATA, result()))
    doubled(given, found)
    np.testing.assert_array_equal(found.numpy(), 2 * DATA)


@pytest.fixture(scope="module")
def two_results() -> Compiled:
    """s = x + y, d = x − y."""
    x, y = (te.placeholder((ROWS, COLUMNS), "float32", name=name) for name in "xy")
    outputs = [
        te.compute(x.shape, lambda i, j: x[i, j] + y[i, j], name="s"),
        te.compute(x.shape, lambda i, j: x[i, j] - y[i, j], name="d"),
    ]
    return tvm_cascade.compile(te.create_prim_func([x, y, *outputs]))


BOTH = np.zeros((2 * ROWS, 2 * COLUMNS), "float32")
WHOLE, BELOW = BOTH[:ROWS, :COLUMNS].copy(), np.zeros((ROWS + 1, COLUMNS), "float32")
OVERLAPPING: dict[str, tuple[list[np.ndarray], str, str]] = {
    "an output is an input": ([WHOLE, DATA, WHOLE, result()], "`x`", "`s` (output)"),
    "an output is another": ([DATA, DATA, WHOLE, WHOLE], "`d` (output)", "`s` (output)"),
    "by a row": ([BELOW[1:], DATA, BELOW[:-1], result()], "`x`", "`s` (output)"),
    "in reverse": ([DATA, DATA, WHOLE, WHOLE[::-1, ::-1]], "`d` (output)", "`s` (output)"),
    "of a strided output": ([DATA, DATA, BOTH[::2, ::2], BOTH[:ROWS, 99:-1]], "`d` (output)", "`s` (output)"),
}


@pytest.mark.parametrize("case", OVERLAPPING)
def test_outputs_that_share_memory_are_refused_and_nothing_is_written(two_results: Compiled, case: str) -> None:
    given, one, other = OVERLAPPING[case]
    before = [array.copy() for array in given]
    with pytest.raises(InputError) as raised:
        two_results(*given)
    assert all(said in str(raised.value) for said in (one, other, "share no memory", "pass memory of its own"))
    for array, old in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_arguments_beside_each_other_share_no_memory(two_results: Compiled) -> None:
    """Columns of one array, every other element of one, and inputs that are one array."""
    for halves in ((BOTH[:ROWS, :COLUMNS], BOTH[:ROWS, COLUMNS:]), (BOTH[:ROWS, ::2], BOTH[:ROWS, 1::2])):
        two_results(DATA, DATA, *halves)
        np.testing.assert_array_equal(halves[0], 2 * DATA)
        np.testing.assert_array_equal(halves[1], np.zeros_like(DATA))


def test_arrays_without_elements_share_no_memory(of_any_length: Compiled) -> None:
    nothing = np.empty((0, COLUMNS), "float32")
    of_any_length(nothing, nothing)
    tensor = tvm.runtime.empty((0, COLUMNS), "float32")
    of_any_length(tensor, tensor)


def test_an_input_may_be_read_only_and_an_output_may_not(doubled: Compiled) -> None:
    given, found = DATA.copy(), result()
    given.setflags(write=False)
    doubled(given, found)
    np.testing.assert_array_equal(found, 2 * DATA)
    found.setflags(write=False)
    with pytest.raises(InputError, match=r"(?s)read-only array.*`y` \(output\).*array.copy\(\)"):
        doubled(given, found)


def test_arrays_without_elements(of_any_length: Compiled) -> None:
    """NumPy gives them a heap address that may be unaligned, and strides that TVM rejects."""
    arrays = [np.zeros((0, COLUMNS), "float32") for _ in range(40)]
    arrays += [np.zeros((ROWS, 0), "float32").reshape(0, COLUMNS) for _ in range(8)]
    for array in arrays:
        of_any_length(array, np.zeros((0, COLUMNS), "float32"))
    of_any_length(tvm.runtime.tensor(arrays[0]), tvm.runtime.tensor(arrays[0]))


WRONG = {
    "an extent": (lambda: DATA[:, :50].copy(), r"shape \(8, 100\).*\(8, 50\).*parameter `x` of `main`.*for this shape"),
    "a rank": (lambda: DATA[0].copy(), r"shape \(8, 100\).*\(100,\).*`x`"),
    "no elements": (lambda: DATA[:0], r"shape \(8, 100\).*\(0, 100\).*`x`"),
    "a dtype": (lambda: DATA.astype("float64"), r"a float32 tensor.*float64.*`x`.*convert it to float32"),
    "TVM's own": (lambda: tvm.runtime.tensor(DATA[:4]), r"shape \(8, 100\).*\(4, 100\).*`x`"),
    "a list": (lambda: [1.0, 2.0], r"a float32 tensor.*list.*`x`.*an array of NumPy"),
    "nothing": (lambda: None, r"a float32 tensor.*NoneType.*`x`"),
}


@pytest.mark.parametrize("outputs", [[result()], []], ids=["filled", "left out"])
@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_told_by_parameter(doubled: Compiled, wrong: str, outputs: list[np.ndarray]) -> None:
    given, message = WRONG[wrong]
    with pytest.raises(InputError, match="(?s)" + message):
        doubled(given(), *outputs)


def test_symbolic_extents_must_agree(of_any_length: Compiled) -> None:
    with pytest.raises(InputError, match=r"(?s)shape \(n = 8, 100\).*\(7, 100\).*`y` \(output\)"):
        of_any_length(DATA.copy(), result()[:7].copy())


LIBRARIES = {"NumPy": np.array, "TVM": tvm.runtime.tensor}


@pytest.mark.parametrize("library", LIBRARIES)
def test_outputs_that_are_left_out_are_returned(doubled: Compiled, library: str) -> None:
    """As arrays of the library of the first array."""
    given = LIBRARIES[library](DATA)
    for found in (doubled(given), doubled(x=given)):
        assert type(found) is type(given)
        np.testing.assert_array_equal(found if library == "NumPy" else found.numpy(), 2 * DATA)


def test_several_outputs_are_a_tuple_and_some_may_be_passed_by_name(two_results: Compiled) -> None:
    total, difference = two_results(2 * DATA, y=DATA)
    np.testing.assert_array_equal(total, 3 * DATA)
    np.testing.assert_array_equal(difference, DATA)
    own = result()
    assert two_results(DATA, DATA, d=own)[1] is own
    np.testing.assert_array_equal(own, np.zeros_like(DATA))
    assert two_results(DATA, DATA, result(), own) is None


def test_outputs_have_the_extents_of_the_call(of_any_length: Compiled) -> None:
    for rows in (3, 1, 0):
        np.testing.assert_array_equal(of_any_length(DATA[:rows]), 2 * DATA[:rows])


def test_outputs_of_bfloat16() -> None:
    found = doubling(dtype="bfloat16")(DATA.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(found, 2 * DATA.astype(ml_dtypes.bfloat16))


def test_an_extent_that_no_input_has_is_told() -> None:
    n = tirx.Var("n", "int64")
    x = te.placeholder((n,), "float32", name="x")
    compiled = tvm_cascade.compile(te.create_prim_func([x, te.compute((n + 1,), lambda i: x[i - i], name="y")]))
    with pytest.raises(InputError, match=r"(?s)extents of inputs.*n \+ .*1.*`y` \(output\).*pass an array for `y`"):
        compiled(DATA[0])
    np.testing.assert_array_equal(
        compiled(DATA[1], y=np.zeros(COLUMNS + 1, "float32")), np.full(COLUMNS + 1, DATA[1, 0])
    )


@T.prim_func(s_tir=True)
def added(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32"), z: T.Buffer((8,), "float32")) -> None:
    """y += x, z = 2·y."""
    for i in range(8):
        with T.sblock("y"):
            v = T.axis.spatial(8, i)
            y[v] = y[v] + x[v]
    for i in range(8):
        with T.sblock("z"):
            v = T.axis.spatial(8, i)
            z[v] = y[v] * 2.0


@T.prim_func(s_tir=True)
def added_by_loops(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32"), z: T.Buffer((8,), "float32")) -> None:
    """The same, without blocks."""
    for i in range(8):
        y[i] = y[i] + x[i]
    for i in range(8):
        z[i] = y[i] * 2.0


@pytest.mark.parametrize("func", [added, added_by_loops], ids=["blocks", "loops"])
def test_what_is_written_over_must_be_passed(func: tirx.PrimFunc) -> None:
    compiled, x = tvm_cascade.compile(func), np.arange(8, dtype="float32")
    y = np.ones(8, "float32")
    given, doubled = compiled(x, y)
    assert given is y
    np.testing.assert_array_equal(y, x + 1)
    np.testing.assert_array_equal(doubled, 2 * x + 2)
    with pytest.raises(InputError, match=r"(?s)for `x`, `y` \(output\), and for `z` .*none for `y` \(output\)"):
        compiled(x)


CALLS = {
    "too few": (lambda f: f(), r"arguments for `x`, `y`, and for `s` \(output\), `d` \(output\).*none for `x`, `y`"),
    "too many": (lambda f: f(*[DATA] * 5), r"arguments for `x`, `y`, and.*found 5"),
    "some outputs by position": (lambda f: f(DATA, DATA, result()), r"arguments for `x`, `y`, and.*found 3"),
    "an unknown name": (lambda f: f(DATA, DATA, sum=result()), r"names among x, y, s, d.*'sum'.*one of x, y, s, d"),
    "a name twice": (lambda f: f(DATA, DATA, x=WHOLE), r"one argument for `x`.*by position and one by name"),
}


@pytest.mark.parametrize("case", CALLS)
def test_arguments_that_are_no_call_are_told(two_results: Compiled, case: str) -> None:
    call, message = CALLS[case]
    with pytest.raises(InputError, match="(?s)" + message):
        call(two_results)


def test_bfloat16_arrays() -> None:
    x, found = DATA.astype(ml_dtypes.bfloat16), result().astype(ml_dtypes.bfloat16)
    doubling(dtype="bfloat16")(x, found)
    np.testing.assert_array_equal(found, x + x)


@pytest.mark.skipif(tvm.cuda(0).exist, reason="there is a GPU")
def test_a_function_for_a_gpu_says_that_there_is_none() -> None:
    compiled = doubling(target={"kind": "cuda", "arch": "sm_90a"})
    for arrays in ([DATA, result()], [tvm.runtime.tensor(DATA), tvm.runtime.tensor(result())]):
        with pytest.raises(DeviceError, match=r"(?s)expected a GPU.*no CUDA device.*`main`.*export_library"):
            compiled(*arrays)


class TestTorch:
    """torch tensors, which are taken as NumPy's arrays are."""

    @pytest.fixture(autouse=True)
    def torch(self) -> Any:
        return pytest.importorskip("torch")

    def test_tensors_of_any_layout(self, torch: Any, doubled: Compiled) -> None:
        x = torch.from_numpy(DATA.copy())
        transposed = torch.full((COLUMNS, ROWS), torch.nan).t()
        doubled(x.t().contiguous().t(), transposed)
        assert torch.equal(transposed, 2 * x)
        memory = torch.zeros(2, ROWS * COLUMNS + 1)
        given, found = (row[1:].view(ROWS, COLUMNS) for row in memory)
        given.copy_(x)
        doubled(given, found)
        assert torch.equal(found, 2 * x)

    def test_outputs_that_are_left_out_are_tensors(self, torch: Any, doubled: Compiled) -> None:
        x = torch.from_numpy(DATA.copy())
        for given in (x, x.t().contiguous().t()):
            found = doubled(given)
            assert isinstance(found, torch.Tensor)
            assert torch.equal(found, 2 * x)

    def test_a_tensor_without_elements(self, torch: Any, of_any_length: Compiled) -> None:
        of_any_length(torch.zeros(0, COLUMNS), torch.zeros(COLUMNS, 0).t())

    def test_gradients(self, torch: Any, doubled: Compiled) -> None:
        x, found = torch.from_numpy(DATA.copy()).requires_grad_(), torch.zeros(ROWS, COLUMNS)
        doubled(x, found)
        doubled(x.detach().t().contiguous().t().requires_grad_(), found)
        assert torch.equal(found, 2 * x.detach())
        with pytest.raises(InputError, match=r"(?s)requires no gradient.*`y` \(output\).*detach"):
            doubled(x, found.requires_grad_())

    def test_a_wrong_shape(self, torch: Any, doubled: Compiled) -> None:
        with pytest.raises(InputError, match=r"(?s)shape \(8, 100\).*\(100, 8\).*`x`"):
            doubled(torch.zeros(COLUMNS, ROWS), torch.zeros(ROWS, COLUMNS))


def test_the_repr_is_one_line_that_tells_what_is_taken(doubled: Compiled) -> None:
    assert repr(doubled) == "<Compiled for llvm: main(x, y (output))>"

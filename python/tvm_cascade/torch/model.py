"""A compiled model: called as the module was, with torch tensors, which are shared and not copied."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import io
import pickle
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree
from tvm.target import Target

from tvm_cascade.driver.bundle import Files
from tvm_cascade.driver.targets import check_runs_here
from tvm_cascade.errors import ModelError
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.torch.calls import as_in_example, parts_of, take_caches_apart, told_apart, with_caches_filled
from tvm_cascade.torch.code import Code
from tvm_cascade.torch.cutting import CutCode
from tvm_cascade.torch.devices import placed
from tvm_cascade.torch.leaves import Leaf, check, check_constant, check_positions
from tvm_cascade.torch.site import told
from tvm_cascade.torch.state import SharedTensor, kind_of, module_of, told_kind
from tvm_cascade.torch.tensors import address, overlap, to_torch, to_tvm


class Program:
    """A function of the virtual machine, called with the tensors of the model's leaves.

    Parameters
    ----------
    code : that it was compiled to. That of a program that is cut takes and gives tensors of torch.
    leaves : what was promised of the arguments.
    ranges : of symbolic extents.
    state : the model's parameters and buffers.
    keeps_apart : a result has memory of its own, also where TVM takes a copy for what it copies.
    """

    def __init__(
        self,
        code: Code | CutCode,
        leaves: Sequence[Leaf | None],
        ranges: dict[str, tuple[int, int | None]],
        state: dict[str, SharedTensor],
        keeps_apart: bool = False,
    ) -> None:
        self._keeps_apart = keeps_apart or bool(code.interface.mutated)
        self.code, self._interface, self._device = code, code.interface, code.device
        self._function = code.function()
        self._leaves, self._ranges, self._state = leaves, ranges, state
        self._lock = threading.Lock()  # TVM's virtual machine runs one call at a time

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """The leaves of the result; what the model writes to is written to."""
        with self._lock:
            return self._called(arguments)

    def bundle(self) -> Files:
        """The parts of a bundle of it: the code, and the parameters and buffers as they are now."""
        tensors = io.BytesIO()
        current = {name: shared.current() for name, shared in self._state.items()}
        kept = {name: one if isinstance(one, torch.nn.Parameter) else one.detach() for name, one in current.items()}
        torch.save(kept, tensors)
        names = {name: shared.names for name, shared in self._state.items()}
        record = pickle.dumps([str(self._device.torch), self._leaves, self._ranges, names, self.code.target])
        return {_PROGRAM: record, _STATE: tensors.getvalue(), **self.code.bundle()}

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        return Program(self.code, self._leaves, self._ranges, copy.deepcopy(self._state, memo))

    def shared(self, arguments: Sequence[Any]) -> str | None:
        """Which two tensors share memory, of which one is written to: PyTorch would see the write in the other."""
        if not self._interface.mutated:
            return None
        tensors = self._given(arguments)
        names = [*self._state, *(getattr(leaf, "name", k) for k, leaf in enumerate(self._leaves))]
        for written in self._interface.mutated:
            for k, tensor in enumerate(tensors):
                if k != written and isinstance(tensor, torch.Tensor) and overlap(tensors[written], tensor):
                    return f"`{names[written]}` and `{names[k]}`, which share memory"
        return None

    def _given(self, arguments: Sequence[Any]) -> list[Any]:
        """Parameters, buffers and arguments, as `Interface` counts them."""
        return [*(one.tensor for one in self._state.values()), *arguments]

    def _called(self, arguments: Sequence[Any]) -> list[object]:
        interface, found = self._interface, self.computed(arguments)
        given = self._given(arguments) if interface.mutated else ()
        for place, result in zip(interface.mutated, found, strict=False):
            with torch.no_grad():
                given[place].copy_(result)
        return interface.leaves(found)

    def computed(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        """What the model writes to, as it is to be, and the leaves of its result; no write changes another of them."""
        in_torch = isinstance(self.code, CutCode)
        passed: list[Any] = [one.current() if in_torch else one() for one in self._state.values()]
        for checked in self._checked(arguments):
            passed.append(checked if in_torch else to_tvm(checked, self._device.tvm))
        if (shared := self.shared(arguments)) is not None:
            hint = "pass a copy of one of them, .clone()"
            raise ModelError("tensors that share no memory where one is written to", shared, "call of the model", hint)
        found = self._function(*passed) if in_torch else self._run(passed)
        return [*_apart(found, passed)] if self._keeps_apart else list(found)

    def _run(self, passed: Sequence[Any]) -> list[torch.Tensor]:
        try:
            with self._device.current():
                return [to_torch(result) for result in self._function(*passed)]
        except Exception as error:
            raise ModelError("a call that runs", told(error), "the virtual machine of TVM") from error

    def _checked(self, arguments: Sequence[Any]) -> Iterator[torch.Tensor]:
        """The arguments that are tensors, where all are what was promised."""
        sizes = dict[str, int]()
        if len(arguments) != len(self._leaves):
            raise ModelError(f"{len(self._leaves)} arguments", f"{len(arguments)} arguments", "call of the model")
        for position, (leaf, argument) in enumerate(zip(self._leaves, arguments, strict=True)):
            if leaf is None:
                check_constant(f"argument {position} of the model", self._interface.constants[position], argument)
                continue
            checked = check(leaf, argument, self._device.torch, self._ranges, sizes)
            check_positions(leaf, checked)
            yield checked


def _apart(found: Sequence[torch.Tensor], passed: Sequence[Any]) -> Iterator[torch.Tensor]:
    """The results, copies of those that share memory with arguments, or with results before them."""
    places = {*map(address, passed)}
    for one in found:
        place = address(one)
        yield one.clone() if place in places else one
        places.add(place)


_PROGRAM, _STATE, _MODEL = "program.pickle", "state.pt", "model.pickle"


_LEAVES = (torch.Tensor, bool, int, float, str, type(None))
"""Arguments that hold no other ones."""


class OptimizedModel(torch.nn.Module):
    """What `tvm_cascade.optimize` returns: a module whose parameters and buffers are those of the one it was made of.

    It is for inference: `train()` is refused, and so is a move to another device or dtype. A deep copy has parameters
    and buffers of its own, or those of the copy of the module where both are copied together. So has what is pickled,
    or saved by `tvm_cascade.save`, which does not need the module's class.

    Parameters
    ----------
    name : of the module's class.
    signature : of its `forward`.
    program : that computes it.
    call_spec : how arguments and results are laid out.
    source : the module that has its parameters and buffers.
    """

    def __init__(
        self, name: str, signature: inspect.Signature, program: Program, call_spec: Any, source: torch.nn.Module
    ) -> None:
        super().__init__()
        self.training = False
        self.__dict__["_source"] = source  # not as a part, whose name would stand before those of its parameters
        for own in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[own] = getattr(source, own)
        self._name, self._signature, self._program, self._spec = name, signature, program, call_spec
        positional, by_name = parts_of(call_spec.in_spec)
        parts = [*parts_of(positional), *parts_of(by_name)]
        self._flat = (positional.num_children, by_name.context) if all(one.is_leaf() for one in parts) else None

    @property
    def target(self) -> Target:
        return self._program.code.target

    @property
    def report(self) -> Explanation:
        """Every reduction of the model, with verdict and kernel."""
        return self._program.code.report

    def train(self, mode: bool = True) -> OptimizedModel:
        """Nothing but what `eval` asks for.

        Raises
        ------
        ModelError
            When it shall be trained.
        """
        if mode:
            hint = 'torch.compile(module, backend="tvm_cascade") trains'
            raise ModelError("a model for inference", "train()", self._name, hint)
        return self

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> OptimizedModel:
        """What `to`, `cuda`, `half` and their like do: nothing, where parameters are so already."""
        for name, one in (*self.named_parameters(), *self.named_buffers()):
            if (kind_of(fn(one.detach())), one.shape) != (kind_of(one), one.shape):
                hint = "move the module, and call tvm_cascade.optimize with an example that is there"
                raise ModelError(f"`{name}` as compiled: {told_kind(kind_of(one))}", "another", self._name, hint)
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result for these arguments, which have the structure of the example's.

        Arguments may be given by position or by name, as the module takes them.

        Raises
        ------
        ModelError
            When an argument is not what the model was compiled for: its dtype, device or shape, or the value of a
            constant.
        """
        wanted, given = self._spec.in_spec, (*args, *kwargs.values())
        if (len(args), [*kwargs]) == self._flat and all(isinstance(one, _LEAVES) for one in given):  # the usual call
            return pytree.tree_unflatten(self._program(given), self._spec.out_spec)
        leaves, spec = pytree.tree_flatten((args, _ordered(kwargs, wanted)))
        if spec != wanted:
            leaves, spec = pytree.tree_flatten(as_in_example(self._signature, wanted, args, kwargs))
        if spec != wanted:
            hint = (
                "call it with arguments as those of the example, or call tvm_cascade.optimize with an example as these"
            )
            expected, found = told_apart(wanted, spec)
            raise ModelError(f"arguments as {expected}", found, f"call of {self._name}", hint)
        return with_caches_filled((args, kwargs), pytree.tree_unflatten(self._program(leaves), self._spec.out_spec))

    def bundle(self) -> Files:
        """The parts of a bundle of it.

        Raises
        ------
        ModelError
            When it takes or gives values of a class that torch.export cannot write down.
        """
        try:
            specs = [pytree.treespec_dumps(one) for one in (self._spec.in_spec, self._spec.out_spec)]
        except NotImplementedError as error:
            hint = "register the class with a serialized_type_name: torch.utils._pytree.register_pytree_node"
            raise ModelError(
                "arguments and results of classes that can be written down", str(error), "", hint
            ) from error
        parameters = [(one.name, int(one.kind), _default(one)) for one in self._signature.parameters.values()]
        return {_MODEL: pickle.dumps([self._name, parameters, specs]), **self._program.bundle()}

    def __reduce__(self) -> tuple[Callable[[Files], Any], tuple[Files]]:
        return load, (self.bundle(),)

    def __copy__(self) -> OptimizedModel:
        return self._with(self._program, self._source)

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModel:
        return self._with(*copy.deepcopy((self._program, self._source), memo))

    def _with(self, program: Program, source: torch.nn.Module) -> OptimizedModel:
        return OptimizedModel(self._name, self._signature, program, self._spec, source)

    def __repr__(self) -> str:
        return f"<OptimizedModel of {self._name} for {self.target.kind.name}; its .report says what was fused>"


def _ordered(kwargs: dict[str, Any], spec: Any) -> dict[str, Any]:
    """The keyword arguments in the order of the example's."""
    names = parts_of(spec)[1].context
    known = {name: kwargs[name] for name in names or () if name in kwargs}
    return {**known, **{name: value for name, value in kwargs.items() if name not in known}}


def _default(parameter: inspect.Parameter) -> tuple[object, ...]:
    """The default of a parameter that has one, None for a value that cannot be pickled."""
    if parameter.default is inspect.Parameter.empty:
        return ()
    try:
        pickle.dumps(parameter.default)
    except Exception:  # whatever its class raises: the example's value is what counts
        return (None,)
    return (parameter.default,)


def _spec(text: str) -> Any:
    """The structure that a text stands for, whose classes are registered by the modules that define them."""
    for module in set(re.findall(r'"type": "([\w.]+)\.\w+"', text)):
        with contextlib.suppress(ImportError):  # the class is then told of as unknown, below
            importlib.import_module(module)
    try:
        return pytree.treespec_loads(text)
    except NotImplementedError as error:
        hint = "register the class as it was when the model was saved, by torch.utils._pytree.register_pytree_node"
        raise ModelError("classes of arguments and results that are known", str(error), "saved model", hint) from error


def load(files: Files) -> OptimizedModel:
    """The model of a bundle.

    Raises
    ------
    DeviceError
        When this machine cannot run it.
    ModelError
        When it takes or gives values of a class that is not known here.
    """
    device, leaves, ranges, names, target = pickle.loads(files[_PROGRAM])
    check_runs_here(target)
    name, parameters, specs = pickle.loads(files[_MODEL])
    place = placed(torch.device(device), target)
    tensors = torch.load(io.BytesIO(files[_STATE]), map_location=place.torch, weights_only=True)
    source = module_of({one: tensors[name] for name, several in names.items() for one in several})
    state = {name: SharedTensor(name, tensor, place.tvm, source, names[name]) for name, tensor in tensors.items()}
    program = Program(Code.load(files, target, place), leaves, ranges, state)
    take_caches_apart()
    in_spec, out_spec = map(_spec, specs)
    signature = inspect.Signature(
        [
            inspect.Parameter(
                one, inspect._ParameterKind(kind), default=default[0] if default else inspect.Parameter.empty
            )
            for one, kind, default in parameters
        ]
    )
    return OptimizedModel(name, signature, program, SimpleNamespace(in_spec=in_spec, out_spec=out_spec), source)

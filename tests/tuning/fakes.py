"""A builder and a runner without processes or devices: libraries are names, times are estimates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from tvm_cascade.driver.space import Design
from tvm_cascade.tuning.building import Built
from tvm_cascade.tuning.task import Task, space_for
from tvm_cascade.tuning.worker import TrialError


class FakeBuilder:
    """Every design is a program of its own."""

    batch = 1

    def build(self, task: Task, designs: Sequence[Design], known: Collection[int] = ()) -> list[Built | TrialError]:
        return [Built(Path(f"{design}.so"), hash(design)) for design in designs]

    def close(self) -> None:
        pass


class FakeRunner:
    """Answers with the estimate times a factor of the design; notes what it was asked."""

    batch = 1

    def __init__(self, factor: Callable[[Design], float] = lambda _design: 1.0) -> None:
        self.factor, self.asked = factor, list[Design]()

    def prepare(self, task: Task, inputs: object) -> None:
        pass

    def run(self, task: Task, design: Design, built: Built, default: Built) -> float:
        self.asked.append(design)
        return space_for(task).seconds(design) * self.factor(design)

    def compare(self, task: Task, designs: Sequence[tuple[Design, Built]]) -> list[float]:
        return [space_for(task).seconds(design) * self.factor(design) for design, _ in designs]

    def close(self) -> None:
        pass

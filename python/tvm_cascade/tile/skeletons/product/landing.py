"""Arrivals of threads for the stages that they copy, some steps after they have started the copies."""

from __future__ import annotations

from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import ptx, put, registers, when
from tvm_cascade.tile.hopper.barrier import Barriers, Ring

_BEHIND = 4
"""Steps that a thread has under way at most."""

_FREE = 2
"""Stages that no copies are under way to: products release one when those of the next have started."""


class Landing:
    """Arrivals for stages that threads copy, some steps after they have started the copies.

    Attributes
    ----------
    behind : steps whose copies a thread has under way.
    """

    def __init__(self, full: Barriers, stages: int, alone: bool) -> None:
        self.full, self.alone = full, alone
        self.behind = max(0, min(stages - _FREE, _BEHIND)) if alone else 0
        self.ring, self.started = Ring("landed", stages, 0), registers("started", 1, "int32")
        put(self.started, 0, T.int32(0))

    def follow(self) -> None:
        """After the copies of a step have been started: arrives for the step so far behind it, once there is one."""
        if self.alone:
            ptx("cp.async.commit_group")
        put(self.started, 0, self.started[0] + 1)
        with when(self.started[0] > self.behind):
            self._arrive(self.behind)
            put(self.started, 0, T.int32(self.behind))

    def finish(self) -> None:
        """Arrives for the last steps."""
        if self.behind:
            with T.serial(self.started[0]):
                self._arrive(0)

    def _arrive(self, pending: int) -> None:
        if self.alone:
            ptx("cp.async.wait_group", pending)
        ptx("fence.proxy.async.shared::cta")
        self.full.arrive(self.ring.stage)
        self.ring.advance()

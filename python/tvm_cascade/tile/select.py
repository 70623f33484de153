"""Ranks the skeletons that take a function by estimated time, and tells why the others do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.analysis.extract import Group, Reductions
from tvm_cascade.analysis.meaning import meaning_of
from tvm_cascade.analysis.program import Program
from tvm_cascade.devices.device import Gpu
from tvm_cascade.obligations.certificate import certificate
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.factors import find_factors
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Kernel, Setting, Skeleton, build_kernel
from tvm_cascade.tile.skeletons import table
from tvm_cascade.transform.fuse_function import Outcome, fused_groups
from tvm_cascade.transform.planning import kernel_guarding

_JOINT = "all reductions as one"


def ranked_kernels(outcome: Outcome, name: str, gpu: Gpu, options: FuseOptions) -> list[Kernel] | str:
    """The kernel of each skeleton that takes a function, by estimated time, or the reasons of each why it does not."""
    if outcome.program is None or outcome.program.opaque:
        return "the function could not be read whole"
    groups = _groups(outcome, outcome.program, options)
    if not groups:
        return "it holds no reduction"
    search = _Search(outcome.program, name, Setting(gpu, options))
    kernels = search.ranked(table.SKELETONS, [(", ".join(group.names), group) for group in groups])
    joint = [skeleton for skeleton in available(search.setting) if skeleton.joint]
    if not kernels and joint and (whole := _joint(outcome, outcome.program, options)) is not None:
        kernels = search.ranked(joint, [(_JOINT, whole)])
    return kernels or search.reasons()


def available(setting: Setting) -> list[Skeleton[Any, Any]]:
    return [skeleton for skeleton in table.SKELETONS if not skeleton.unavailable(setting)]


def _joint(outcome: Outcome, program: Program, options: FuseOptions) -> Group | None:
    """All reductions of the function as one, without products that others fold, where none has no fold."""
    if any(d.reason.verdict not in (Verdict.FUSED, Verdict.NOTHING) for d in outcome.found):
        return None
    reductions = _reductions(outcome, program, options)
    return reductions.joint([stage for stage in reductions.inside if find_factors(stage, vectors=True) is not None])


def _doubt(program: Program, group: Group, options: FuseOptions) -> str:
    """Which results of a group are guarded, for what reason, for kernels without guards; empty where none is."""
    asked_for = kernel_guarding(program, group, options)
    if not asked_for.results:
        return asked_for.unguarded
    known = certificate(group.fold, meaning_of(group.atoms)).standings
    doubts = [str(standing) for standing in known if standing.result in asked_for.results and not standing.bounded]
    return f"its kernels have no guards, which results ask for: {'; '.join(doubts) or 'the option guards asks for it'}"


def _groups(outcome: Outcome, program: Program, options: FuseOptions) -> list[Group]:
    """What a kernel may be generated from: the cascades of the function, or else one of its lone reductions."""
    return fused_groups(outcome.found) or list(reversed(_reductions(outcome, program, options).lone))


def _reductions(outcome: Outcome, program: Program, options: FuseOptions) -> Reductions:
    """Those that the pass found; of a function that it did not look at, those that there are."""
    return outcome.reductions or Reductions(program, options.rescalable_casts, options.reference)


@dataclass(frozen=True)
class Refusal:
    """Why a skeleton gives no kernel."""

    skeleton: Skeleton[Any, Any]
    reason: str
    group: str = ""


class _Search:
    """Tries groups with skeletons, and keeps every reason why one does not fit."""

    def __init__(self, program: Program, name: str, setting: Setting) -> None:
        self.program, self.name, self.setting = program, name, setting
        self.refusals: list[Refusal] = []
        self.doubts: dict[str, str] = {}

    def ranked(self, skeletons: Iterable[Skeleton[Any, Any]], groups: Sequence[tuple[str, Group]]) -> list[Kernel]:
        """Kernels by estimated time; each skeleton has that of the first group that fits it."""
        found = [kernel for skeleton in skeletons if (kernel := self.first(skeleton, groups)) is not None]
        return sorted(found, key=lambda kernel: (kernel.skeleton.last, kernel.seconds))

    def first(self, skeleton: Skeleton[Any, Any], groups: Sequence[tuple[str, Group]]) -> Kernel | None:
        if why := skeleton.unavailable(self.setting):
            self.refusals.append(Refusal(skeleton, why))
            return None
        for label, group in groups:
            try:
                kernel = build_kernel(skeleton, self.program, group, self.name, self.setting)
            except Unfit as unfit:
                self.refusals.append(Refusal(skeleton, str(unfit), label))
                continue
            if skeleton.guards or not (doubt := self.doubt(label, group)):
                return kernel
            self.refusals.append(Refusal(skeleton, doubt, label))
        return None

    def doubt(self, label: str, group: Group) -> str:
        if label not in self.doubts:
            self.doubts[label] = _doubt(self.program, group, self.setting.options)
        return self.doubts[label]

    def reasons(self) -> str:
        """One sentence for each skeleton; skeletons with the same reasons share theirs."""
        by_skeleton: dict[Skeleton[Any, Any], list[Refusal]] = {}
        for refusal in self.refusals:
            by_skeleton.setdefault(refusal.skeleton, []).append(refusal)
        names: dict[str, list[str]] = {}
        for skeleton, refusals in by_skeleton.items():
            names.setdefault(_told(refusals), []).append(f"`{skeleton.name}` ({skeleton.covers})")
        return "; ".join(f"no {' or '.join(several)}: {reason}" for reason, several in names.items())


def _told(refusals: Sequence[Refusal]) -> str:
    """The reasons of one skeleton, each with the groups that it is for where there are several reasons."""
    groups: dict[str, list[str]] = {}
    for refusal in refusals:
        groups.setdefault(refusal.reason, []).append(refusal.group)
    if len(groups) == 1:
        return next(iter(groups))
    return "; ".join(f"of {' and of '.join(labels)}: {reason}" for reason, labels in groups.items())

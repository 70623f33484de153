"""An explanation as data, text and JSON: the outcome of each function and group of reductions."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.report.group import Apart, FunctionReport, GroupReport
from tvm_cascade.report.html import fragment, page

SCHEMA = 1
"""Version of the JSON form; it changes when a key is renamed or removed."""

_SUMMARY = 10  # lines of an explanation's repr


@dataclass(frozen=True)
class Explanation:
    """The result of `explain`: text when printed, HTML in a notebook.

    Attributes
    ----------
    groups : one for each group of reductions that was looked at, in order of functions.
    functions : every function of the module.
    apart : of a module of Relax, the operators that were looked at together and not merged.
    """

    groups: tuple[GroupReport, ...] = ()
    functions: tuple[FunctionReport, ...] = ()
    apart: tuple[Apart, ...] = ()

    @property
    def fused(self) -> bool:
        """Whether any group is, or was already, fused."""
        return any(group.verdict is Verdict.FUSED for group in self.groups)

    def to_json(self) -> str:
        """The explanation as JSON text; keys are stable, and `schema` is the version of the format."""
        functions = [dataclasses.asdict(f) for f in self.functions]
        groups = [group.to_dict() for group in self.groups]
        apart = [dataclasses.asdict(one) for one in self.apart]
        told = {"schema": SCHEMA, "functions": functions, "groups": groups, "apart": apart}
        return json.dumps(told, indent=2, ensure_ascii=False)

    def __repr__(self) -> str:
        lines = [f"{group.heading} [{group.reason.code}]" for group in self.groups]
        told = {group.function for group in self.groups}
        lines += [f"{function.name}: {function.status}" for function in self.functions if function.name not in told]
        more = [f"and {len(lines) - _SUMMARY} more"] if len(lines) > _SUMMARY else []
        shown = "".join(f"\n  {line}" for line in [*lines[:_SUMMARY], *more])
        return f"<Explanation; print it for reasons and formulas, or call to_json(){shown}>"

    def __str__(self) -> str:
        told = {group.function for group in self.groups}
        parts = [str(group) for group in self.groups]
        parts += [str(f) for f in self.functions if f.name not in told or f.lowering_lines]
        parts += map(str, self.apart)
        return "\n\n".join(parts) if parts else "no functions"

    def to_html(self, title: str) -> str:
        """The explanation as a whole HTML page, with nothing to load."""
        return page(self._repr_html_(), title)

    def _repr_html_(self) -> str:
        return fragment(self.groups, self.functions, self.apart)

"""Docstrings as the reference shows them: what stands behind a colon is a meaning; types are those of the signature."""

from __future__ import annotations

from typing import Any

import griffe

_NAMED = (griffe.DocstringParameter, griffe.DocstringAttribute)


class Meanings(griffe.Extension):
    """Reads a section's items as `name : meaning`, and those of results as meanings alone."""

    def on_instance(self, *, obj: griffe.Object, **_more: Any) -> None:
        for section in () if obj.docstring is None else obj.docstring.parsed:
            for one in section.value if isinstance(section.value, list) else ():
                if isinstance(one, (*_NAMED, griffe.DocstringReturn)) and one.annotation:
                    one.description = f"{one.annotation}\n{one.description or ''}"
                    one.annotation = _type_of(obj, one.name)


def _type_of(obj: griffe.Object, name: str) -> str | griffe.Expr | None:
    """The annotation of a parameter, or of an attribute, by its name; of a result, which has none, the function's."""
    if not isinstance(obj, griffe.Function):
        return obj.members[name].annotation if name in obj.members and obj.members[name].is_attribute else None
    return obj.returns if not name else obj.parameters[name].annotation if name in obj.parameters else None

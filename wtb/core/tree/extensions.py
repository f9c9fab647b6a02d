"""Extensions of a sweep: cases, repeats and combinations that were added to it and count as planned. Pure: no I/O."""

from __future__ import annotations

from typing import Final

from wtb.core.tree.stored_spec import StoredExtension, StoredSpec

EXTENSIONS: Final = "extensions"  # the key of a stored spec


def extensions(spec: StoredSpec) -> list[StoredExtension]:
    """Return the extensions of a sweep by its stored spec, the oldest first."""
    return list(spec.get(EXTENSIONS, ()))


def planned_at(spec: StoredSpec, created_at: float) -> float:
    """Return when it was last decided what a sweep runs: when it was created or extended."""
    return max([created_at, *(extension["at"] for extension in extensions(spec))])


def first_cases(spec: StoredSpec) -> list[int]:
    """Return the number of the first case of each extension that added cases, in order."""
    return [extension["first_case"] for extension in extensions(spec) if extension["cases"]]

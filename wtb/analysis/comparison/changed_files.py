"""Files that parameters name, in two sweeps: what changed in their text, and which variants differ in nothing else."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from wtb.core.factors.factors import levels_of
from wtb.core.factors.file_levels import SCHEME, FileReference, Place, file_reference, replace_files
from wtb.core.factors.level_names import canonical

if TYPE_CHECKING:
    from wtb.core.documents.comparison import TextFileChange
    from wtb.core.tree.stored_code import StoredCode
    from wtb.core.tree.stored_spec import StoredSpec

_KEYS = ("vary", "fork_variants", "params", "evaluate")
_CHOICES = ("baseline", "exclude", "combinations")
_MOST_LINES = 200  # of a difference
_LONGEST_LINE = 2_000
Renamed = Mapping[str, Mapping[str, str]]  # node -> variant of the earlier sweep -> that of the later one


def file_changes(before: StoredSpec, after: StoredSpec) -> list[TextFileChange]:
    """Find files whose text differs between two sweeps.

    Args:
        before: The earlier sweep, as it is stored.
        after: The later one.

    Returns:
        Of each its path and a unified difference of its text, by lines; nothing of files that only one sweep names.
    """
    old, new = _references(before), _references(after)
    return [
        {
            "path": path,
            "before": old[path].sha256,
            "after": new[path].sha256,
            "difference": list(_difference(before, after, old[path], new[path])),
        }
        for path in new
        if path in old and old[path] != new[path]
    ]


def _references(spec: StoredSpec) -> dict[str, FileReference]:
    references: dict[str, FileReference] = {}

    def note(_: Place, written: str) -> str:
        if (reference := file_reference(written)) is not None:
            references.setdefault(reference.path, reference)
        return written

    for key in _KEYS:
        replace_files(spec.get(key), note)
    return references


def _difference(
    before: StoredSpec, after: StoredSpec, old_file: FileReference, new_file: FileReference
) -> Iterator[str]:
    old = before.get("texts", {}).get(old_file.sha256, "").splitlines()
    new = after.get("texts", {}).get(new_file.sha256, "").splitlines()
    lines = difflib.unified_diff(old, new, old_file.path, new_file.path, lineterm="", n=2)
    for line in islice(lines, _MOST_LINES):
        yield line[:_LONGEST_LINE]
    if next(lines, None) is not None:
        yield "..."


def renamed_variants(before: StoredSpec, after: StoredSpec) -> Renamed:
    """Pair grid points of two sweeps that have the same levels but for the text of files.

    Args:
        before: The earlier sweep, as it is stored.
        after: The later one.

    Returns:
        Node -> variant of the earlier sweep -> variant of the later one, of those whose names differ.
    """
    renamed: dict[str, dict[str, str]] = {}
    for node, listed in after.get("vary", {}).items():
        old, new = _points(before.get("vary", {}).get(node, ())), _points(listed)
        pairs = {old[key]: name for key, name in new.items() if key in old and old[key] != name}
        if pairs:
            renamed[node] = pairs
    return renamed


def _points(listed: Any) -> dict[str, str]:
    """Return grid points by what they are but for texts of files. Those that cannot be told apart so are left out."""
    names: dict[str, str] = {}
    twice = set()
    for ref in () if isinstance(listed, str) else listed:
        if levels := levels_of(ref):
            key = canonical([ref.get("of"), ref.get("with"), _by_path(dict(levels))])
            twice.update({key} & names.keys())
            names[key] = ref["name"]
    return {key: name for key, name in names.items() if key not in twice}


def _by_path(value: Any) -> Any:
    """Return plain data with the path in place of each reference to a file."""

    def path(_: Place, written: str) -> str:
        reference = file_reference(written)
        return written if reference is None else f"{SCHEME}{reference.path}"

    return replace_files(value, path)


def without_texts(spec: StoredSpec, renamed: Renamed | None = None) -> StoredSpec:
    """Return a stored sweep in which files stand by their path, and grid points by their levels alone.

    renamed: what variants that it chooses are called in another sweep.
    """
    changed: Any = {**spec, **{key: _by_path(spec[key]) for key in _KEYS if key in spec}}  # type: ignore[literal-required]
    changed["vary"] = {
        node: listed
        if isinstance(listed, str)
        else [_nameless(*refs) for refs in zip(listed, changed["vary"][node], strict=True)]
        for node, listed in spec.get("vary", {}).items()
    }
    changed.pop("texts", None)
    if renamed:
        changed |= {key: _called(spec[key], renamed) for key in _CHOICES if key in spec}  # type: ignore[literal-required]
    return changed  # type: ignore[no-any-return]


def _called(choices: Any, renamed: Renamed, node: str = "") -> Any:
    """Return what chooses variants with other names for them."""
    if isinstance(choices, Mapping):
        return {key: _called(choice, renamed, key) for key, choice in choices.items()}
    if isinstance(choices, list):
        return [_called(choice, renamed, node) for choice in choices]
    return renamed.get(node, {}).get(choices, choices) if isinstance(choices, str) else choices


def _nameless(ref: Any, by_path: Any) -> Any:
    return {key: value for key, value in by_path.items() if key != "name"} if levels_of(ref) else by_path


def with_names(fingerprints: Mapping[str, Mapping[str, str]], renamed: Renamed) -> dict[str, dict[str, str]]:
    """Return the fingerprints of an earlier sweep by the names that its variants have in the later one."""
    return {
        node: {renamed.get(node, {}).get(variant, variant): code for variant, code in variants.items()}
        for node, variants in fingerprints.items()
    }


def code_with_names(code: StoredCode | None, renamed: Renamed) -> StoredCode | None:
    """Return the code of an earlier sweep by the names that its variants have in the later one."""
    if code is None or not renamed:
        return code
    variants = {
        node: {renamed.get(node, {}).get(variant, variant): number for variant, number in of_node.items()}
        for node, of_node in code["variants"].items()
    }
    return {**code, "variants": variants}

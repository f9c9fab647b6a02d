"""Differences between two sweeps other than their results: code, variants, combinations, cases, settings, graph."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from wtb.core.factors import SCHEME, FileReference, Place, canonical, file_reference, levels_of, replace_files
from wtb.core.tree.stored_code import differences, is_same_code
from wtb.core.tree.stored_spec import recorded_tools
from wtb.planning.environment import changed_tools

if TYPE_CHECKING:
    from wtb.core.documents.comparison import CodeChange, SettingChange, TextFileChange, VariantChanges, VariantName
    from wtb.core.documents.workflows import WorkflowDocument
    from wtb.core.tree.stored_code import StoredCode
    from wtb.core.tree.stored_spec import StoredSpec
    from wtb.store.tables.sweeps import SweepRow

T = TypeVar("T")
_TOOLS = "environment.tools."  # of those that no server was asked for, only what nodes called is known
_NOT_SETTINGS = (
    *("sweep", "cases", "folder", "baseline_row", "session", "added_rows", "extensions", "copied_from"),
    *("code", "evaluators", "submitted_by"),
)
PARAMETERS = "parameters changed"  # the cause, where only parameters of a variant did
Codes = tuple["StoredCode | None", "StoredCode | None"]
Fingerprints = Mapping[str, Mapping[str, str]]  # node -> variant -> code


def code_changes(before: Fingerprints, after: Fingerprints, codes: Codes = (None, None)) -> list[CodeChange]:
    """Find variants that both sweeps have, but with different code.

    Args:
        before: The fingerprints of the earlier sweep.
        after: Those of the later one.
        codes: What the code of both rests on, as stored with them.

    Returns:
        The node, the variant, its fingerprints before and after, and what is different in its code.
    """
    return [
        {
            "node": node,
            "variant": variant,
            "before": fingerprint,
            "after": after[node][variant],
            "causes": differences(*codes, node, variant),
        }
        for node, variants in before.items()
        for variant, fingerprint in variants.items()
        if after.get(node, {}).get(variant, fingerprint) != fingerprint and not is_same_code(*codes, node, variant)
    ]


def changed_code(before: SweepRow, after: SweepRow) -> list[str]:
    """Return the nodes with a variant whose code differs between the sweeps, and changed tools of servers."""
    codes = (before.spec.get("code"), after.spec.get("code"))
    changes = code_changes(before.fingerprints, after.fingerprints, codes)
    nodes = dict.fromkeys(change["node"] for change in changes)
    return [*nodes, *changed_tools(before.spec, recorded_tools(after.spec))]


def variant_changes(before: Fingerprints, after: Fingerprints) -> VariantChanges:
    """Return variants that only one of the sweeps has, as {"node", "variant"}."""
    return {"added": _only(after, before), "removed": _only(before, after)}


def _only(these: Fingerprints, those: Fingerprints) -> list[VariantName]:
    every = ((node, variant) for node, variants in these.items() for variant in variants)
    return [{"node": node, "variant": variant} for node, variant in every if variant not in those.get(node, {})]


def setting_changes(before: StoredSpec, after: StoredSpec) -> list[SettingChange]:
    """Return differences between two stored specs as key (nested keys by path), before and after (None if absent).

    Versions of Python, packages and server tools are included, as `environment.python`, if both sweeps recorded them.
    """
    old, new = (dict(_settings(spec, other)) for spec, other in ((before, after), (after, before)))
    return [
        {"key": key, "before": old.get(key), "after": new.get(key)}
        for key in {**old, **new}
        if old.get(key) != new.get(key) and not (key.startswith(_TOOLS) and None in (old.get(key), new.get(key)))
    ]


def with_called_tools(spec: StoredSpec, called: Collection[tuple[str, str]]) -> StoredSpec:
    """Return a spec in which server tools have all versions that they had during the sweep, as `ab12 and cd34`.

    Args:
        spec: The stored spec.
        called: (tool, version) as nodes observed them, in order.
    """
    if not called:
        return spec
    recorded = recorded_tools(spec)
    tools = {server: dict(versions) for server, versions in recorded.items()}
    for name, version in called:
        server, _, tool = name.partition(".")
        versions = tools.setdefault(server, {})
        if version != recorded.get(server, {}).get(tool):
            versions[tool] = f"{versions[tool]} and {version}" if tool in versions else version
    return {**spec, "environment": {**spec["environment"], "tools": tools}}


def with_models(spec: StoredSpec, models: Mapping[str, Sequence[str]]) -> StoredSpec:
    """Return a spec with the models that its judges used, by metric, as `m-2026-01 and m-2026-03`."""
    if not models or "environment" not in spec:
        return spec
    judges = {metric: " and ".join(versions) for metric, versions in models.items()}
    return {**spec, "environment": {**spec["environment"], "judges": judges}}


def _settings(spec: StoredSpec, other: StoredSpec) -> Iterator[tuple[str, object]]:
    """Yield the settings of a spec by path, without those that the other spec cannot have."""
    # Copies from before environments were recorded have none: all of it would be listed as changed.
    left_out = _NOT_SETTINGS if "environment" in other else (*_NOT_SETTINGS, "environment")
    for key, setting in spec.items():
        if key not in left_out:
            yield from _leaves(key, setting)


def _leaves(path: str, setting: object) -> Iterator[tuple[str, object]]:
    """Yield the leaves of nested mappings by path."""
    if isinstance(setting, Mapping) and setting:
        for key, inner in setting.items():
            yield from _leaves(f"{path}.{key}", inner)
    elif setting not in ({}, []):  # as where the key is not there
        yield path, setting


def graph_changed(before: WorkflowDocument, after: WorkflowDocument) -> bool:
    """Return whether nodes, their rules, edges or the state differ. Variants and descriptions do not count."""
    return _shape(before) != _shape(after)


def _shape(graph: WorkflowDocument) -> list[Any]:
    rules = [{key: option for key, option in node.items() if key != "variants"} for node in graph.get("nodes", ())]
    return [rules, *(graph.get(key) for key in ("state", "entries", "edges", "branches"))]


_KEYS = ("vary", "fork_variants", "params", "evaluate")
_CHOICES = ("baseline", "exclude", "combinations")
_MOST_LINES = 200  # of a difference
# A minified file is one line of megabytes, and the comparison is sent to browsers.
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
    """Return names of grid points by their levels without file texts. Points that this does not distinguish are left
    out.
    """
    names: dict[str, str] = {}
    twice = set()
    for ref in () if isinstance(listed, str) else listed:
        if levels := levels_of(ref):
            key = canonical([ref.get("of"), ref.get("with"), _by_path(dict(levels))])
            # Two points that differ in file texts only have one key; a pair of them would be a guess.
            twice.update({key} & names.keys())
            names[key] = ref["name"]
    return {key: name for key, name in names.items() if key not in twice}


def _by_path(document: Any) -> Any:
    """Return plain data with each reference to a file replaced by its path."""

    def path(_: Place, written: str) -> str:
        reference = file_reference(written)
        return written if reference is None else f"{SCHEME}{reference.path}"

    return replace_files(document, path)


def without_texts(spec: StoredSpec, renamed: Renamed | None = None) -> StoredSpec:
    """Return a stored sweep with files by path and grid points by their levels alone.

    Args:
        spec: The stored sweep.
        renamed: Names in another sweep for the variants that the spec selects.
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
    """Return choices of variants with their names replaced."""
    if isinstance(choices, Mapping):
        return {key: _called(choice, renamed, key) for key, choice in choices.items()}
    if isinstance(choices, list):
        return [_called(choice, renamed, node) for choice in choices]
    return renamed.get(node, {}).get(choices, choices) if isinstance(choices, str) else choices


def _nameless(ref: Any, by_path: Any) -> Any:
    return {key: option for key, option in by_path.items() if key != "name"} if levels_of(ref) else by_path


def with_names(variants: Mapping[str, Mapping[str, T]], renamed: Renamed) -> dict[str, dict[str, T]]:
    """Return facts on variants of an earlier sweep, by node, under the names that they have in the later one."""
    return {
        node: {renamed.get(node, {}).get(variant, variant): fact for variant, fact in of_node.items()}
        for node, of_node in variants.items()
    }


def code_with_names(code: StoredCode | None, renamed: Renamed) -> StoredCode | None:
    """Return the code of an earlier sweep under the names that its variants have in the later one."""
    if code is None or not renamed:
        return code
    return {**code, "variants": with_names(code["variants"], renamed)}

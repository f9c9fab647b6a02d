"""What is different between two sweeps besides their results: code, variants, combinations, cases, settings, graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wtb.core.tree.stored_code import differences, is_same_code
from wtb.core.tree.stored_spec import recorded_tools
from wtb.planning.environment import changed_tools

if TYPE_CHECKING:
    from wtb.core.documents.comparison import CodeChange, SettingChange, VariantChanges, VariantName
    from wtb.core.documents.workflows.graphs import WorkflowDocument
    from wtb.core.tree.stored_code import StoredCode
    from wtb.core.tree.stored_spec import StoredSpec
    from wtb.store.tables.sweeps import SweepRow


_TOOLS = "environment.tools."  # of those that no server was asked for, only what nodes called is known
_NOT_SETTINGS = (
    *("sweep", "cases", "folder", "baseline_row", "session", "added_rows", "extensions", "copied_from"),
    *("code", "evaluators", "submitted_by"),
)
PARAMETERS = "parameters changed"  # the cause, where only parameters of a variant did
Codes = tuple["StoredCode | None", "StoredCode | None"]
Fingerprints = Mapping[str, Mapping[str, str]]  # node -> variant -> code


def code_changes(before: Fingerprints, after: Fingerprints, codes: Codes = (None, None)) -> list[CodeChange]:
    """Find variants that both sweeps have with other code.

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
    """The nodes of which a variant that both sweeps have is of other code, and tools of servers that are others."""
    codes = (before.spec.get("code"), after.spec.get("code"))
    changes = code_changes(before.fingerprints, after.fingerprints, codes)
    nodes = dict.fromkeys(change["node"] for change in changes)
    return [*nodes, *changed_tools(before.spec, recorded_tools(after.spec))]


def variant_changes(before: Fingerprints, after: Fingerprints) -> VariantChanges:
    """Variants that only one of the sweeps has, as {"node", "variant"}."""
    return {"added": list(_only(after, before)), "removed": list(_only(before, after))}


def _only(these: Fingerprints, those: Fingerprints) -> Iterator[VariantName]:
    for node, variants in these.items():
        for variant in variants:
            if variant not in those.get(node, {}):
                yield {"node": node, "variant": variant}


def setting_changes(before: StoredSpec, after: StoredSpec) -> list[SettingChange]:
    """What differs in two stored specs, nested keys by their path: key, before, after (None: not there).

    Versions of Python, packages and tools of servers are among it, as `environment.python`, where both sweeps know
    them.
    """
    old, new = (dict(_settings(spec, other)) for spec, other in ((before, after), (after, before)))
    return [
        {"key": key, "before": old.get(key), "after": new.get(key)}
        for key in {**old, **new}
        if old.get(key) != new.get(key) and not (key.startswith(_TOOLS) and None in (old.get(key), new.get(key)))
    ]


def with_called_tools(spec: StoredSpec, called: Collection[tuple[str, str]]) -> StoredSpec:
    """A spec whose tools of servers have all versions that they had while the sweep ran, as `ab12 and cd34`.

    called: (tool, version) as nodes found them, in their order.
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
    """A spec with the models that its judges were answered by, as `m-2026-01 and m-2026-03`. models: by metric."""
    if not models or "environment" not in spec:
        return spec
    judges = {metric: " and ".join(versions) for metric, versions in models.items()}
    return {**spec, "environment": {**spec["environment"], "judges": judges}}


def _settings(spec: StoredSpec, other: StoredSpec) -> Iterator[tuple[str, object]]:
    """The settings of a spec by their path, of those that both specs can have."""
    left_out = _NOT_SETTINGS if "environment" in other else (*_NOT_SETTINGS, "environment")
    for key, value in spec.items():
        if key not in left_out:
            yield from _leaves(key, value)


def _leaves(path: str, value: object) -> Iterator[tuple[str, object]]:
    """What is in nested mappings, by its path."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}", inner)
    elif value not in ({}, []):  # as where the key is not there
        yield path, value


def graph_changed(before: WorkflowDocument, after: WorkflowDocument) -> bool:
    """Return whether nodes, their rules, edges or the state differ. Variants and descriptions do not count."""
    return _shape(before) != _shape(after)


def _shape(graph: WorkflowDocument) -> list[Any]:
    rules = [{key: value for key, value in node.items() if key != "variants"} for node in graph.get("nodes", ())]
    return [rules, *(graph.get(key) for key in ("state", "entries", "edges", "branches"))]

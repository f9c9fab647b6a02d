"""What was run, so that somebody else can run it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.display.report.charts.workflow_graph import picture
from wtb.display.report.html.markup import block, name, section, table, text

SETTINGS = 20_000  # characters


def origins(document: Mapping[str, Any]) -> str:
    """Workflow, graph, code fingerprints, environment, settings, and the command."""
    found = document["provenance"]
    sweep, graph = found["sweep"], found["graph"]
    version = f", version {graph['version']}" if graph.get("version") else ""
    facts = [
        ("workflow", f"<code>{text(found['workflow'])}</code>{text(version)}"),
        ("sweep", f"<code>{text(sweep['id'])}</code>, {text(sweep['status'])}"),
        ("session", name(sweep["session"])),
        ("project", name(sweep["project"]) if sweep["project"] else ""),
        ("submitted", text(sweep["created_at"] or "")),
        ("ended", text(sweep["finished_at"] or sweep["reason"] or "not yet")),
        ("folder", f"<code>{text(found['folder'])}</code>" if found["folder"] else ""),
        ("environment", _environment(found)),
    ]
    listed = "".join(f"<dt>{key}</dt><dd>{said}</dd>" for key, said in facts if said)
    description = f'<p dir="auto">{text(graph["description"], 1000)}</p>' if graph.get("description") else ""
    settings = found["settings"]
    if len(settings) > SETTINGS:
        settings = f"{settings[:SETTINGS]}\n# … {len(settings) - SETTINGS:,} more characters"
    return section(
        "origins",
        "What was run",
        description,
        block("dl", listed),
        picture(graph) if graph.get("nodes") else "",
        _again(found),
        block("details", [f"<summary>Settings</summary><pre>{_lines(settings)}</pre>"]),
        _code(found["fingerprints"]),
    )


def _environment(found: Mapping[str, Any]) -> str:
    recorded = found["environment"]
    if not recorded:
        return text(found["because"])
    return ", ".join(f"{text(key)} {text(said)}" for key, said in recorded.items() if not isinstance(said, dict))


def _again(found: Mapping[str, Any]) -> str:
    if found["command"] is None:
        return f"<h3>Run it again</h3><p>Not by a command: {text(found['command_because'])}.</p>"
    folder = f"in {name(found['folder'], 200)}, " if found["folder"] else ""
    how = f"With the settings below as sweep.yaml, {folder}or with the sweep file that it came from:"
    return f"<h3>Run it again</h3><p>{how}</p><pre>{text(found['command'])}</pre>"


def _code(fingerprints: Mapping[str, Mapping[str, str]]) -> str:
    rows = [
        [name(node), name(variant), f"<code>{text(code)}</code>"]
        for node, variants in fingerprints.items()
        for variant, code in variants.items()
    ]
    if not rows:
        return ""
    more = table(["node", "variant", "code fingerprint"], rows[:500])
    return block("details", [f"<summary>Code of {len(rows):,} variants</summary>", more])


def _lines(said: str) -> str:
    return "\n".join(text(line, 400) for line in said.splitlines())

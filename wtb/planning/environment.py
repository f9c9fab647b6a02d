"""The environment of a submission: versions of WTB, Python, packages and server tools, recorded with the sweep.

Server tools are recorded here and not in the fingerprints of nodes, because every worker and node process compares
fingerprints before it runs a node and must not wait for a server. Later changes of tools are detected by calls.
"""

from __future__ import annotations

import functools
import platform
import re
from collections.abc import Mapping
from importlib import metadata

from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.tree.stored_spec import Environment, StoredSpec, recorded_tools
from wtb.core.version import __version__

_FIELD = re.compile(r"(?m)^(Name|Version):(.*)$")


@functools.cache
def environment() -> Environment:
    """Return the versions of WTB, Python and packages of this process."""
    versions = dict(_name_and_version(distribution) for distribution in metadata.distributions())
    return {
        "wtb": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(sorted(versions.items())),
    }


def _name_and_version(distribution: metadata.Distribution) -> tuple[str, str]:
    """Return name and version from the first lines of the metadata. Parsing all of it takes five times as long."""
    head = (distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "").partition("\n\n")[0]
    fields = dict(_FIELD.findall(head))
    return fields.get("Name", "").strip().lower(), fields.get("Version", "").strip()


Tools = Mapping[str, Mapping[str, str]]  # server -> tool -> digest of its name, description and schema


def present_tools(workflow: WorkflowFacts) -> Tools:
    """Ask the servers of a workflow for their tools. Raises InputError if a server does not respond."""
    return {server: dict(ask()) for server, ask in workflow.versions.items()}


def changed_tools(spec: StoredSpec, present: Tools) -> list[str]:
    """Return the tools whose servers changed them since a sweep recorded them, as `files.read`."""
    return [
        f"{server}.{tool}"
        for server, tools in recorded_tools(spec).items()
        for tool, version in tools.items()
        # A server that names no tools now is left out: nothing is known of it.
        if present.get(server) and present[server].get(tool) != version
    ]

"""What a sweep is submitted from: versions of WTB, Python, packages and tools of servers, as they are recorded with it.

Tools of servers are here, and not in the fingerprints of nodes: those are compared by every worker and node process
before it runs a node, which must not wait for an answer of a server. That one changed its tools later is seen by calls.
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
    """Versions of WTB, Python and packages, of this process."""
    versions = dict(_name_and_version(distribution) for distribution in metadata.distributions())
    return {
        "wtb": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(sorted(versions.items())),
    }


def _name_and_version(distribution: metadata.Distribution) -> tuple[str, str]:
    """From the first lines of its metadata: to parse all of it takes five times as long, in every command."""
    head = (distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "").partition("\n\n")[0]
    fields = dict(_FIELD.findall(head))
    return fields.get("Name", "").strip().lower(), fields.get("Version", "").strip()


Tools = Mapping[str, Mapping[str, str]]  # server -> tool -> digest of its name, description and schema


def present_tools(workflow: WorkflowFacts) -> Tools:
    """Ask the servers of a workflow for their tools. Raises InputError where one cannot be asked."""
    return {server: dict(ask()) for server, ask in workflow.versions.items()}


def changed_tools(spec: StoredSpec, present: Tools) -> list[str]:
    """The tools of servers that are not what a sweep recorded, as `files.read`."""
    return [
        f"{server}.{tool}"
        for server, tools in recorded_tools(spec).items()
        for tool, version in tools.items()
        if present.get(server) and present[server].get(tool) != version
    ]

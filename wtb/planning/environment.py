"""What a sweep is submitted from: versions of WTB, Python and packages, as they are recorded with it."""

from __future__ import annotations

import functools
import platform
import re
from importlib import metadata

from wtb.core.tree.stored_spec import Environment
from wtb.core.version import __version__

_FIELD = re.compile(r"(?m)^(Name|Version):(.*)$")


@functools.cache
def environment() -> Environment:
    """Versions of WTB, Python and packages, of this process."""
    found = dict(_name_and_version(one) for one in metadata.distributions())
    return {
        "wtb": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(sorted(found.items())),
    }


def _name_and_version(one: metadata.Distribution) -> tuple[str, str]:
    """From the first lines of its metadata: to parse all of it takes five times as long, in every command."""
    head = (one.read_text("METADATA") or one.read_text("PKG-INFO") or "").partition("\n\n")[0]
    fields = dict(_FIELD.findall(head))
    return fields.get("Name", "").strip().lower(), fields.get("Version", "").strip()

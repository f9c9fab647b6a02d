"""What a sweep is submitted from: versions of WTB, Python and packages, as they are recorded with it."""

from __future__ import annotations

import functools
import platform
from importlib import metadata
from typing import Any

from wtb import __version__


@functools.cache
def environment() -> dict[str, Any]:
    """{"wtb", "python", "platform", "packages": {name: version}}, of this process."""
    found = {one.name.lower(): one.version for one in metadata.distributions()}
    return {
        "wtb": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(sorted(found.items())),
    }

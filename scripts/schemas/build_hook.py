"""The hook of hatchling that writes `wtb/schemas` before a wheel, an editable install or an sdist is built."""

from __future__ import annotations

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SchemasHook(BuildHookInterface):
    """Writes the JSON Schemas. `artifacts` in pyproject.toml has the build include them although git ignores them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, self.root)  # the sources being built, and not a WTB that is installed
        from scripts.schemas import json_schemas

        json_schemas.write_files()

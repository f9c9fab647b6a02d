"""A project's own settings: tables of the nearest `wtb.toml` or, below `[tool.wtb]`, `pyproject.toml`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from wtb.core.errors import InputError, meant_or_known
from wtb.core.frozen import frozen

WRITABLE = "WTB_WRITABLE"
WALLS = "WTB_WALLS"
_NODES = ("writable", "walls")  # keys of [nodes]

# Protection of an SQLite database from nodes: its file is hidden; all walls are up; or none.
Walls = Literal["database", "all", "none"]
_NAMED_WALLS: dict[str, Walls] = {"database": "database", "1": "all", "0": "none"}


@frozen
class Setting:
    """The content of a setting, with the file and the title for messages."""

    file: Path
    title: str
    content: Any


def find_setting(name: str, start: Path | None = None) -> Setting | None:
    """Find `[name]` in the nearest wtb.toml, or `[tool.wtb.name]` in pyproject.toml, upwards. Raises InputError."""
    folder = (start or Path.cwd()).resolve()
    # Both files of a folder are read before its parent, so that the nearest project decides.
    for place in (folder, *folder.parents):
        for file, keys in ((place / "wtb.toml", (name,)), (place / "pyproject.toml", ("tool", "wtb", name))):
            content = _at(file, keys) if file.is_file() else None
            if content is not None:
                return Setting(file, f"[{'.'.join(keys)}]", content)
    return None


def shadowed_setting(name: str, setting: Setting) -> Setting | None:
    """Return `[tool.wtb.name]` of a pyproject.toml beside a wtb.toml whose setting takes precedence."""
    file, keys = setting.file.with_name("pyproject.toml"), ("tool", "wtb", name)
    content = _at(file, keys) if setting.file.name == "wtb.toml" and file.is_file() else None
    return None if content is None else Setting(file, f"[{'.'.join(keys)}]", content)


def table_of(setting: Setting, keys: Collection[str]) -> Mapping[str, Any]:
    """Return a setting that must be a table with some of these keys. Raises InputError."""
    where = f"{setting.file}: {setting.title}"
    if not isinstance(setting.content, dict):
        raise InputError(f"{where} must be a table with some of: {', '.join(keys)}")
    for key in setting.content:
        if key not in keys:
            raise InputError(f"{where} has no setting {key!r}{meant_or_known(key, keys)}")
    return setting.content


def writable_folders() -> list[str]:
    """Return the folders that nodes may write although the project contains them: `writable` of `[nodes]`.

    WTB_WRITABLE, with the separator of PATH, overrides the setting.

    Raises:
        InputError: For a wrong setting.
    """
    named = os.environ.get(WRITABLE)
    if named is not None:
        return [os.path.abspath(os.path.expanduser(folder)) for folder in named.split(os.pathsep) if folder]
    setting = find_setting("nodes")
    folders = [] if setting is None else table_of(setting, _NODES).get("writable", [])
    if setting is not None and not (isinstance(folders, list) and all(isinstance(folder, str) for folder in folders)):
        raise InputError(f"{setting.file}: 'writable' of {setting.title} must be a list of folders")
    return (
        [] if setting is None else [os.path.join(setting.file.parent, os.path.expanduser(folder)) for folder in folders]
    )


def node_walls() -> Walls:
    """Return the walls between nodes and a database that is a file: `walls` of `[nodes]`.

    WTB_WALLS, which is 1, 0 or database, overrides the setting.

    Raises:
        InputError: For a wrong setting.
    """
    named = os.environ.get(WALLS)
    if named is not None:
        if named not in _NAMED_WALLS:
            raise InputError(f"{WALLS}={named!r:.100}: expected 1 (all walls), 0 (none) or database (the default)")
        return _NAMED_WALLS[named]
    setting = find_setting("nodes")
    walls = "database" if setting is None else table_of(setting, _NODES).get("walls", "database")
    if setting is not None and not (isinstance(walls, bool) or walls == "database"):
        raise InputError(f"{setting.file}: 'walls' of {setting.title} must be true, false or \"database\"")
    return "database" if walls == "database" else "all" if walls else "none"


def _at(file: Path, keys: tuple[str, ...]) -> Any:
    state = file.stat()
    section: Any = _parse(file, state.st_mtime_ns, state.st_size)
    for key in keys:
        section = section.get(key) if isinstance(section, dict) else None
    return section


@lru_cache(maxsize=16)  # a sweep reads several settings, and a pyproject.toml takes milliseconds to parse
def _parse(file: Path, modified_ns: int, size: int) -> dict[str, Any]:
    """Parse a file; a file with another time or size is parsed again."""
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as TOML: {error}") from error

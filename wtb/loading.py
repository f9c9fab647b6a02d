"""Finding the user's code: import paths, and names registered in `wtb.toml` or `[tool.wtb.workflows]`."""

from __future__ import annotations

import importlib
import sys
import tomllib
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wtb.errors import InputError, did_you_mean

_HERE = str(Path(__file__).parent)


def load(path: str) -> Any:
    """The object at `pkg.module:attr`; the folder the command started in comes first.

    Raises InputError where it is not there, with the frames of the user's own code where importing it failed.
    """
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise InputError(f"{path!r} is not an import path; expected 'pkg.module:attribute'")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found = _import(path, module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = [name for name in dir(found) if not name.startswith("_")]
            raise InputError(f"{path!r}: module {module_name!r} has no {part!r}{did_you_mean(part, names)}")
        found = getattr(found, part)
    return found


def _import(path: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise InputError(
                f"{path!r}: there is no module {error.name!r} below {Path.cwd()} or among the installed packages"
            ) from error
        raise InputError(f"{path!r} cannot be imported: {_own_frames(error)}") from error
    except Exception as error:
        raise InputError(f"{path!r} cannot be imported: {_own_frames(error)}") from error


def _own_frames(error: BaseException) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_HERE, "<frozen", importlib.__file__.rpartition("/")[0]))
    ]
    lines = [f'  File "{f.filename}", line {f.lineno}, in {f.name}: {f.line}' for f in frames[-5:]]
    if isinstance(error, SyntaxError):
        lines.append(f'  File "{error.filename}", line {error.lineno}: {(error.text or "").strip()}')
    return "\n".join([f"{type(error).__name__}: {error}", *lines])


def registered(start: Path | None = None) -> Mapping[str, str]:
    """Workflow names -> import paths, from the nearest `wtb.toml` or `pyproject.toml` upwards."""
    folder = (start or Path.cwd()).resolve()
    for place in (folder, *folder.parents):
        for name, table in (("wtb.toml", ("workflows",)), ("pyproject.toml", ("tool", "wtb", "workflows"))):
            file = place / name
            if file.is_file():
                found = _table(file, table)
                if found is not None:
                    return found
    return {}


def _table(file: Path, keys: tuple[str, ...]) -> Mapping[str, str] | None:
    try:
        data: Any = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as TOML: {error}") from error
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    if data is None:
        return None
    if not isinstance(data, dict) or not all(isinstance(v, str) for v in data.values()):
        raise InputError(f"{file}: [{'.'.join(keys)}] must map names to import paths")
    return data


def workflow_path(name: str) -> str:
    """The import path that a workflow's name stands for; import paths stay. Raises InputError."""
    if ":" in name:
        return name
    names = registered()
    if name not in names:
        known = f" (registered: {', '.join(names)})" if names else " (none is registered in wtb.toml)"
        raise InputError(
            f"there is no workflow {name!r}{did_you_mean(name, names)}{known}; "
            f"expected a registered name or an import path 'pkg.module:attribute'"
        )
    return names[name]

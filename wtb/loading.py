"""Finding the user's code: import paths, and names registered in `wtb.toml` or `[tool.wtb.workflows]`."""

from __future__ import annotations

import importlib
import os
import tomllib
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wtb.errors import InputError, did_you_mean

# With the separator, so that a folder whose name only begins like ours is not taken for ours.
_HERE = (str(Path(__file__).parent) + os.sep, os.path.dirname(importlib.__file__) + os.sep, "<frozen")


def load(path: str) -> Any:
    """The object at `pkg.module:attr`; the command puts the folder it started in first on `sys.path`.

    Raises InputError where it is not there, with the frames of the user's own code where importing it failed.
    """
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise InputError(f"{path!r} is not an import path; expected 'pkg.module:attribute'")
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
                f"{path!r}: there is no module {error.name!r} in {Path.cwd()} or among the installed packages"
                f"{_near_module(error.name)}; start the command in the folder that it is imported from"
            ) from error
        raise InputError(f"{path!r} cannot be imported: {own_frames(error)}") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"{path!r} cannot be imported: {own_frames(error)}") from error


def _near_module(name: str) -> str:
    """What a module that is not there may have been meant to be, of those in this folder."""
    parent, dot, _ = name.rpartition(".")
    folder = Path.cwd().joinpath(*parent.split("."))
    try:
        there = [entry.stem for entry in folder.iterdir() if entry.suffix == ".py" or entry.is_dir()]
    except OSError:
        return ""
    return did_you_mean(name, (f"{parent}{dot}{module}" for module in there if module.isidentifier()))


def own_frames(error: BaseException) -> str:
    """An error with the last five frames of the user's own code; none of WTB's or of the import system's."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_HERE)]
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
        known = f"one of the registered ({', '.join(names)})" if names else "a name registered in wtb.toml"
        wanted = did_you_mean(name, names) or f"; expected {known} or an import path 'pkg.module:attribute'"
        raise InputError(f"there is no workflow {name!r}{wanted}")
    return names[name]

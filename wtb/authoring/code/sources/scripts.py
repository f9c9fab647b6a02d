"""Find the files beside a script that it names: other scripts that it starts, modules that it imports, data.

Scripts are of many languages, so their words are compared with the files beside them. That finds more than what a
script really uses, never less: a file that is named in a comment counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

_WORD = re.compile(r"[\w.\-/@+]+")
_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import|import\s+([\w.]+(?:\s*,\s*[\w.]+)*))", re.MULTILINE)
_COMPUTED = re.compile(
    r"""^\s*(?:exec\s+)?(?:(?:ba|da|z)?sh|source|\.|python[\d.]*|node|ruby|perl)\s+(?:-\w+\s+)*["']?[^\s"']*\$""", re.X
)
_OWN_FOLDER = re.compile(r"""\$\(\s*dirname\s+[^)]*\)|\$\{?(?:0%/\*|BASH_SOURCE%/\*|PWD)\}?""")
_LARGEST = 1024 * 1024  # bytes of a script that are read
_LONGEST = 200


class ScriptFiles(NamedTuple):
    """Files that a script names, and the lines on which it starts what cannot be worked out."""

    files: Sequence[str]
    computed: Sequence[int] = ()


def script_files(path: str) -> ScriptFiles:
    """Find the files beside a script that it names.

    Args:
        path: The script; nothing is found in a program that is no text.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST)
    except OSError:
        return ScriptFiles(())
    if b"\0" in content:
        return ScriptFiles(())
    text = content.decode("utf-8", "replace")
    names = {word for word in _WORD.findall(_OWN_FOLDER.sub(".", text)) if "." in word and len(word) < _LONGEST}
    if path.endswith(".py"):
        names |= set(_imported(text))
    folder = os.path.dirname(path)
    places = {
        os.path.normpath(os.path.join(folder, name.lstrip("/") if name.startswith("./") else name)) for name in names
    }
    files = sorted(place for place in places if _is_beside(place, folder) and place != path)
    if path.endswith(".py"):
        return ScriptFiles(files)
    lines = enumerate(text.splitlines(), 1)
    return ScriptFiles(files, [number for number, line in lines if _COMPUTED.match(_OWN_FOLDER.sub(".", line))])


def _imported(text: str) -> Sequence[str]:
    """Return the files that modules which a script imports may be."""
    modules = [
        name.strip() for pair in _IMPORT.findall(text) for part in pair for name in part.split(",") if name.strip(" .")
    ]
    paths = [module.replace(".", "/") for module in modules]
    return [f"{path}{ending}" for path in paths for ending in (".py", "/__init__.py")]


def _is_beside(place: str, folder: str) -> bool:
    """Return whether a place is a file in a folder or below it, not elsewhere on the machine."""
    return place.startswith(folder + os.sep) and os.path.isfile(place)

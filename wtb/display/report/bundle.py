"""Modules of the pages as one script, for a file that has no server to load them from."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from posixpath import normpath

WEB = Path(__file__).parents[2] / "hosting" / "pages" / "web"  # files, which lie with what serves them
_FROM = r'\s*from\s*"(?P<path>[^"]+)";?\n?'
_IMPORT = re.compile(
    r"^import\s*(?:\*\s*as\s+(?P<all>\w+)|(?P<default>\w+)|\{(?P<names>[^}]*)\})" + _FROM, re.MULTILINE
)
_CHAINED = re.compile(r'import\{(?P<names>[^}]*)\}from"(?P<path>[^"]+)";?')  # of what is minified
_REEXPORT = re.compile(r'export\s*\{(?P<names>[^}]*)\}\s*from\s*"(?P<path>[^"]+)";?')
_LIST = re.compile(r"export\s*\{(?P<names>[^}]*)\};?")
_COMMENT = re.compile(r"/\*\*.*?\*/", re.DOTALL)
_DECLARED = re.compile(r"^export (?=(?:async )?function (\w+)|const (\w+)|class (\w+))", re.M)


def without_comments(text: str) -> str:
    """Return a module or style of the pages without its comments, a sixth of it, which no browser needs.

    Lines keep their numbers, so that errors in a browser name those of the file.
    """
    return _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)


@cache
def bundle(main_module: str) -> str:
    """Return a module of the pages with all that it imports as one script.

    Args:
        main_module: The path of the module within the folder of the pages.

    Returns:
        A script in which each module is a function of its own, called once, in the order in which they are needed.
    """
    modules: dict[str, str] = {}
    _add(main_module, modules)
    body = "\n".join(modules.values())
    # A browser ends a script at `</script` even within a string, and `<!--` changes how it finds that end.
    if "</script" in body or "<!--" in body:
        raise ValueError(f"a module that {main_module} imports would end the script that it stands in")
    return f'"use strict";(() => {{\n{body}\n}})();'


def _add(path: str, modules: dict[str, str]) -> None:
    if path in modules:
        return
    text = without_comments((WEB / path).read_text("utf-8"))
    exports: list[str] = []

    def variable(imported: str) -> str:
        other = normpath(f"{Path(path).parent}/{imported}")
        _add(other, modules)
        return _name(other)

    def imported(match: re.Match[str]) -> str:
        groups = match.groupdict()
        module = variable(groups["path"])
        if groups.get("all"):
            return f"const {groups['all']} = {module};"
        if groups.get("default"):
            return f"const {groups['default']} = {module}.default;"
        return f"const {{ {', '.join(_renamed(groups['names'], ': '))} }} = {module};"

    def exported_again(match: re.Match[str]) -> str:
        module = variable(match["path"])
        exports.extend(f"{name}: {module}.{own}" for own, name in map(_pair, _parts(match["names"])))
        return ""

    def listed(match: re.Match[str]) -> str:
        exports.extend(f"{name}: {own}" for own, name in map(_pair, _parts(match["names"])))
        return ""

    # Before _LIST, which would match the first half of `export {a} from "b"`.
    text = _REEXPORT.sub(exported_again, text)
    text = _IMPORT.sub(imported, text)
    text = _CHAINED.sub(imported, text)
    text = _LIST.sub(listed, text)
    exports += [next(filter(None, match.groups())) for match in _DECLARED.finditer(text)]
    text = _DECLARED.sub("", text)
    if "export default" in text:
        text = text.replace("export default ", "const default_ = ", 1)
        exports.append("default: default_")
    # Added after all its imports: the order of `modules` is the order in which the script runs them.
    modules[path] = f"const {_name(path)} = (() => {{\n{text}\nreturn {{ {', '.join(exports)} }};\n}})();"


def _name(path: str) -> str:
    return "m_" + re.sub(r"\W", "_", path.removesuffix(".js"))


def _parts(names: str) -> list[str]:
    return [part.strip() for part in names.split(",") if part.strip()]


def _pair(part: str) -> tuple[str, str]:
    """Its own name and the one that others use."""
    own, _, name = part.partition(" as ")
    return own.strip(), (name or own).strip()


def _renamed(names: str, between: str) -> list[str]:
    return [own if own == name else f"{own}{between}{name}" for own, name in map(_pair, _parts(names))]

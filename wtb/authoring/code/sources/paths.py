"""Work out paths from the expressions that make them: `Path(__file__).parent / "prompts" / f"{name}.md"`."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from wtb.authoring.code.sources.globals import globals_at
from wtb.authoring.code.sources.modules import Module, module_of

ANY = "\0"  # a piece of a path that is computed
_PLACEHOLDER = re.compile(r"\{[^{}]*\}|%[sdr]")
_LONGEST = 400
_DEEPEST = 20
_SAME = frozenset(
    {"abspath", "realpath", "normpath", "expanduser", "str", "fspath", "resolve", "absolute", "as_posix", "Path"}
    | {"PurePath", "PosixPath", "PurePosixPath"}
)


class PathText(NamedTuple):
    """A path, as far as the code says it: computed pieces are ANY.

    is_anchored: it starts at the file of a module, not at whatever folder the process works in.
    """

    text: str
    is_anchored: bool = False

    @property
    def is_pattern(self) -> bool:
        return ANY in self.text

    def join(self, parts: Sequence[PathText]) -> PathText:
        return PathText(os.path.join(self.text, *(other.text for other in parts)), self.is_anchored)


_COMPUTED = PathText(ANY)


def path_text(node: ast.AST, module: Module, depth: int = 0) -> PathText | None:
    """Work out the path or text that an expression makes; None if nothing of it is known."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Constant):
        is_path = isinstance(node.value, str) and 0 < len(node.value) < _LONGEST and "\n" not in node.value
        return PathText(node.value) if is_path else None  # type: ignore[arg-type]
    if isinstance(node, ast.JoinedStr):
        return _of_pieces([_piece(part, module, depth) for part in node.values])
    if isinstance(node, ast.BinOp):
        return _of_operator(node, module, depth)
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        return _of_name(node, module, depth)
    return _of_call(node, module, depth) if isinstance(node, ast.Call) else None


def _piece(node: ast.expr, module: Module, depth: int) -> PathText:
    return path_text(node.value if isinstance(node, ast.FormattedValue) else node, module, depth + 1) or _COMPUTED


def _of_pieces(pieces: Sequence[PathText]) -> PathText | None:
    if all(piece == _COMPUTED for piece in pieces):
        return None
    return PathText("".join(piece.text for piece in pieces), pieces[0].is_anchored)


def _of_operator(node: ast.BinOp, module: Module, depth: int) -> PathText | None:
    left, right = (path_text(side, module, depth + 1) for side in (node.left, node.right))
    if isinstance(node.op, ast.Div):
        return None if left is None else left.join([right or _COMPUTED])
    if isinstance(node.op, ast.Add):
        return _of_pieces([left or _COMPUTED, right or _COMPUTED])
    if isinstance(node.op, ast.Mod) and left is not None:
        return PathText(_PLACEHOLDER.sub(ANY, left.text), left.is_anchored)
    return None


def _of_name(node: ast.expr, module: Module, depth: int) -> PathText | None:
    if isinstance(node, ast.Name) and node.id == "__file__":
        return None if module.file is None else PathText(os.path.abspath(module.file), True)
    if isinstance(node, ast.Attribute) and node.attr == "parent":
        base = path_text(node.value, module, depth + 1)
        return None if base is None else base._replace(text=os.path.dirname(base.text))
    if isinstance(node, ast.Subscript):
        return _of_parents(node, module, depth)
    chain: list[str] = []
    inner = node
    while isinstance(inner, ast.Attribute):
        chain.insert(0, inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name):
        return None
    for place in globals_at(module, (inner.id, *chain)):
        bindings = place.bindings
        value = getattr(bindings[0].node, "value", None) if len(bindings) == 1 else None
        if value is not None and isinstance(bindings[0].node, ast.Assign | ast.AnnAssign):
            return path_text(value, place.module, depth + 1)
    return None


def _of_parents(node: ast.Subscript, module: Module, depth: int) -> PathText | None:
    parents, number = node.value, node.slice
    if not (isinstance(parents, ast.Attribute) and parents.attr == "parents" and isinstance(number, ast.Constant)):
        return None
    base = path_text(parents.value, module, depth + 1)
    if base is None or not isinstance(number.value, int):
        return None
    text = base.text
    for _ in range(number.value + 1):
        text = os.path.dirname(text)
    return base._replace(text=text)


def _of_call(node: ast.Call, module: Module, depth: int) -> PathText | None:
    called = called_name(node)
    arguments = [path_text(each, module, depth + 1) for each in node.args]
    is_method = isinstance(node.func, ast.Attribute) and called not in ("join", "Path", "dirname")
    own = path_text(node.func.value, module, depth + 1) if is_method else None  # type: ignore[attr-defined]
    if called == "files":  # of importlib.resources
        return _folder_of(node, module)
    first = own or (arguments.pop(0) if arguments else None)
    if first is None:
        return None
    rest = [each or _COMPUTED for each in arguments]
    if called in _SAME or called in ("join", "joinpath"):
        return first.join(rest)
    if called == "dirname":
        return first._replace(text=os.path.dirname(first.text))
    if called == "with_name" and rest:
        return first._replace(text=os.path.join(os.path.dirname(first.text), rest[0].text))
    if called == "with_suffix" and rest:
        return first._replace(text=os.path.splitext(first.text)[0] + rest[0].text)
    if called == "format":
        return first._replace(text=_PLACEHOLDER.sub(ANY, first.text))
    return None


def _folder_of(node: ast.Call, module: Module) -> PathText | None:
    """Return the folder of a package: `importlib.resources.files("app.prompts")`."""
    argument = node.args[0] if node.args else None
    name = module.package
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        name = argument.value
    elif not (isinstance(argument, ast.Name) and argument.id in ("__package__", "__name__")):
        return None
    package = module_of(name) if name else None
    if package is None or not package.is_own or not package.folders:
        return None
    return PathText(os.path.abspath(package.folders[0]), True)


def called_name(node: ast.Call) -> str:
    """Return the last name of what is called: `read_text` of `path.read_text()`."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else str(getattr(node.func, "id", ""))

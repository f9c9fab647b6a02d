"""Find the files beside code that it names: prompts, data, scripts that it starts.

A file counts if its path can be worked out from the text of the code, and if the code does not write it: a file that a
node writes would look like a change of its code.
"""

from __future__ import annotations

import ast
import glob
import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from wtb.authoring.code.globals import chain_of, globals_at, imported_as
from wtb.authoring.code.mentions import script_files
from wtb.authoring.code.modules import Module, module_of

ANY = "\0"  # a piece of a path that is computed
_PLACEHOLDER = re.compile(r"\{[^{}]*\}|%[sdr]")
_LONGEST = 400
_DEEPEST = 20
_SAME = frozenset(
    {"abspath", "realpath", "normpath", "expanduser", "str", "fspath", "resolve", "absolute", "as_posix", "Path"}
    | {"PurePath", "PosixPath", "PurePosixPath"}
)


class PathText(NamedTuple):
    """A path, as far as the code shows it: computed pieces are ANY.

    `is_anchored` if it starts at the file of a module, not at the working directory.
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
    for place in globals_at(module, chain_of(node)):
        bindings = place.bindings
        expression = getattr(bindings[0].node, "value", None) if len(bindings) == 1 else None
        if expression is not None and isinstance(bindings[0].node, ast.Assign | ast.AnnAssign):
            return path_text(expression, place.module, depth + 1)
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
    """Return the last name of a called function: `read_text` of `path.read_text()`."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else str(getattr(node.func, "id", ""))


_READING = frozenset({"read_text", "read_bytes", "get_data", "read_binary", "open_text", "open_binary"})
_LISTING = frozenset({"glob", "rglob", "iglob", "iterdir", "listdir", "scandir", "FileSystemLoader"})
_STARTING = frozenset({"run", "Popen", "call", "check_call", "check_output", "system", "popen", "execv", "execvp"})
_STARTING |= {"create_subprocess_exec", "create_subprocess_shell", "spawnv", "posix_spawn", "getoutput"}
_STARTERS = frozenset({"subprocess", "os", "asyncio", "anyio", "trio"})
_WRITING = frozenset({"write_text", "write_bytes", "mkdir", "makedirs", "touch", "unlink", "rmtree", "rename", "rmdir"})
_WRITING |= {"FileHandler", "RotatingFileHandler", "connect", "to_csv", "to_json", "to_parquet", "to_pickle", "savefig"}
_WRITE_MODE = re.compile(r"[wax+]")
_RUN_TIME = (".db", ".sqlite", ".sqlite3", ".log", ".lock", ".pid", ".tmp", ".pyc", ".so")
# Endings of files that people write, and programs hardly ever: of paths that are passed to functions which are not
# known to read them, only these count.
_TEMPLATES = (".md", ".txt", ".j2", ".jinja", ".jinja2", ".prompt", ".tmpl", ".mustache", ".hbs")
_SETTINGS = (".yaml", ".yml", ".toml", ".ini", ".cfg", ".json", ".sql", ".sh", ".py", ".html", ".xml")
_KERNEL = ("/proc/", "/sys/", "/dev/")  # files that differ for each process and each look
_LARGEST = 16 * 1024 * 1024  # bytes that are read to hash one file
_MAX_FILES = 200  # files that one pattern may name

Use = Literal["named", "read", "written", "started", "listed"]


@dataclass
class Files:
    """Files that code names, and names that could not be worked out.

    Attributes:
        files: Path -> (kind, name), where the name holds at every place to which the code is copied.
        absent: As `files`, of files that are not there yet.
        written: Paths that the code writes.
        problems: Messages about code that could not be followed.
    """

    files: dict[str, tuple[str, str]] = field(default_factory=dict)
    absent: dict[str, tuple[str, str]] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    problems: dict[str, None] = field(default_factory=dict)

    def read(self, module: Module, nodes: Iterable[ast.AST]) -> None:
        """Add the files that a piece of code names."""
        reader = _Reader(self, module)
        for node in nodes:
            reader.visit(node, "named")

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield each file that counts, as its kind and name, with a digest of its content."""
        self._follow_scripts()
        for path, (kind, name) in sorted(self.files.items(), key=lambda pair: pair[1]):
            if path in self.written:
                continue
            content = content_digest(path)
            if content is None:
                self.problems[f"{kind} {name}: it is larger than {_LARGEST // 1024**2} MB, or cannot be read"] = None
            else:
                yield f"{kind} {name}", content

    def paths(self) -> dict[str, str]:
        """Return the path of each file that counts, or would count if it existed, with its kind and name."""
        labels = {**self.absent, **self.files}
        return {path: f"{kind} {name}" for path, (kind, name) in labels.items() if path not in self.written}

    def _follow_scripts(self) -> None:
        """Add files that scripts name, and files that these name, each once."""
        scripts = [(path, name) for path, (kind, name) in self.files.items() if kind == "script"]
        for path, name in scripts:  # grows
            if len(scripts) > _MAX_FILES:
                self.problems[f"script {name}: more than {_MAX_FILES} scripts start each other"] = None
                return
            mentioned = script_files(path)
            for line in mentioned.computed:
                self.problems[f"script {name}, line {line}: it starts a program by a computed name"] = None
            folder = os.path.dirname(path)
            for place in mentioned.files:
                if place not in self.files and not place.endswith(_RUN_TIME):
                    relative = os.path.relpath(place, folder)
                    label = os.path.normpath(os.path.join(os.path.dirname(name), relative)).replace(os.sep, "/")
                    self.files[place] = ("script", label)
                    scripts.append((place, label))

    def add(self, module: Module, path: PathText, use: Use, line: int) -> None:
        """Add the files of a path."""
        if path.is_pattern or use == "listed":
            self._add_pattern(module, path, use, line)
            return
        absent: dict[str, tuple[str, str]] = {}
        for place in _places(module, path):
            if use == "written":
                self.written.add(place)
            elif (label := _label(module, path, place, use)) is not None:
                if os.path.isfile(place):
                    self._keep(place, label)
                    return
                absent[place] = label
        # No place has the file. All of them are watched, because the code may still write it.
        self.absent |= absent

    def _keep(self, place: str, label: tuple[str, str]) -> None:
        # A script is more than a file, because the files that it names count, too.
        if place not in self.files or label[0] == "script":
            self.files[place] = label

    def _add_pattern(self, module: Module, path: PathText, use: Use, line: int) -> None:
        pattern = path.text if path.is_pattern or "*" in path.text else os.path.join(path.text, ANY)
        # Most texts with computed pieces are no paths. Unless something reads such a text, it must look like a file
        # beside the code.
        if use == "written" or (use == "named" and not (path.is_anchored and os.path.splitext(pattern)[1])):
            return
        for place in _places(module, path._replace(text=pattern)):
            folder = os.path.dirname(place.partition(ANY)[0].partition("*")[0] + "x")
            if not os.path.isdir(folder):
                continue
            text = "".join("*" if part == ANY else part for part in re.split(f"({ANY})", place))
            names = [each for each in glob.iglob(text, recursive=True) if os.path.isfile(each)][: _MAX_FILES + 1]
            is_all = folder == module.root and os.path.basename(text) == "*"
            if len(names) > _MAX_FILES or is_all:
                self.miss(module, line, f"it reads files of a folder by computed names ({_pattern_text(path)})")
                return
            for each in names:
                if (label := _label(module, path, each, use)) is not None:
                    self._keep(each, label)
            return

    def miss(self, module: Module, line: int, problem: str) -> None:
        """Record code that could not be followed."""
        self.problems[f"{module.name}, line {line}: {problem}"] = None


class _Reader:
    """Reads expressions, each with its use."""

    def __init__(self, files: Files, module: Module) -> None:
        self._files = files
        self._module = module

    def visit(self, node: ast.AST, use: Use) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            # A docstring is a text that no code uses.
            return
        if isinstance(node, ast.Call):
            self._call(node, use)
            return
        if isinstance(node, ast.expr) and self._is_path(node, use):
            return
        for inner in ast.iter_child_nodes(node):
            self.visit(inner, use if isinstance(node, ast.List | ast.Tuple | ast.Starred) else "named")

    def _is_path(self, node: ast.expr, use: Use) -> bool:
        """Add a path, if an expression is one. Returns whether it is, so that its parts are none."""
        if use == "named" and isinstance(node, ast.Name):
            # The statement that assigns the name adds the path.
            return False
        path = path_text(node, self._module)
        if path is None or path.text == ANY:
            return False
        is_file_name = "." in path.text or "/" in path.text or use != "named"
        if is_file_name:
            self._files.add(self._module, path, use, getattr(node, "lineno", 0))
        if use == "started" and isinstance(node, ast.Constant):
            self._command(path.text, node.lineno)
        return True

    def _command(self, text: str, line: int) -> None:
        try:
            words = shlex.split(text)
        except ValueError:
            return
        for word in words[:50]:
            self._files.add(self._module, PathText(word), "started", line)

    def _call(self, node: ast.Call, use: Use) -> None:
        if self._is_path(node, use):
            return
        called = called_name(node)
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        if called == "open":
            self._open(node, receiver)
        elif called in _STARTING and self._starts(node.func):
            self._start(node)
        elif called in _READING | _LISTING | _WRITING:
            new: Use = "read" if called in _READING else "listed" if called in _LISTING else "written"
            self._use(node, receiver, new, called)
        else:
            for inner in (node.func, *node.args, *(keyword.value for keyword in node.keywords)):
                self.visit(inner, "named")

    def _use(self, node: ast.Call, receiver: ast.expr | None, use: Use, called: str) -> None:
        """Add the path of a method call, or of a function's first argument."""
        path = None if receiver is None else path_text(receiver, self._module)
        rest: list[ast.expr] = [*node.args, *(keyword.value for keyword in node.keywords)]
        if path is None and rest:
            path = path_text(rest.pop(0), self._module)
        elif path is not None and called in ("glob", "rglob") and rest:
            pattern = path_text(rest.pop(0), self._module) or PathText(ANY)
            path = path.join([PathText(os.path.join("**", pattern.text) if called == "rglob" else pattern.text)])
        if path is not None:
            self._files.add(self._module, path, use, node.lineno)
        elif use == "read":
            self._files.miss(self._module, node.lineno, "it reads a file whose path is computed")
        for each in rest:
            self.visit(each, "named")
        if receiver is not None and path is None:
            self.visit(receiver, "named")

    def _open(self, node: ast.Call, receiver: ast.expr | None) -> None:
        path = None if receiver is None else path_text(receiver, self._module)
        arguments = list(node.args)
        if path is None and arguments:
            path = path_text(arguments.pop(0), self._module)
        modes = [*arguments[:1], *(each.value for each in node.keywords if each.arg == "mode")]
        # A computed mode counts as writing: a file that the node writes would look like a change of its code.
        text = modes[0].value if modes and isinstance(modes[0], ast.Constant) else "w" if modes else "r"
        if path is None:
            self._files.miss(self._module, node.lineno, "it opens a file whose path is computed")
        else:
            is_written = _WRITE_MODE.search(str(text)) is not None
            self._files.add(self._module, path, "written" if is_written else "read", node.lineno)

    def _starts(self, called: ast.expr) -> bool:
        """Return whether a function is one of a module that starts programs."""
        name = called.value if isinstance(called, ast.Attribute) else called
        if not isinstance(name, ast.Name):
            return False
        imported = imported_as(self._module, name.id)
        top = name.id if imported is None else imported.module.partition(".")[0]
        return top in _STARTERS

    def _start(self, node: ast.Call) -> None:
        named = next((each.value for each in node.keywords if each.arg == "args"), None)
        command = node.args[0] if node.args else named
        is_known = isinstance(command, ast.List | ast.Tuple) or (
            command is not None and path_text(command, self._module) is not None
        )
        if not is_known:
            self._files.miss(self._module, node.lineno, "it starts a program by a computed command")
        for inner in node.args:
            self.visit(inner, "started")
        for keyword in node.keywords:
            self.visit(keyword.value, "started" if keyword.arg == "args" else "named")


def _label(module: Module, path: PathText, place: str, use: Use) -> tuple[str, str] | None:
    """Return the kind and the name of a file; None if files at its place do not count."""
    if place.endswith(_RUN_TIME) or place == os.path.abspath(module.file or ""):
        return None
    if use == "named" and not place.endswith(_TEMPLATES + _SETTINGS):
        return None
    if place.startswith(_KERNEL) and not place.startswith("/dev/shm/"):
        return None
    # A path that is written out is the same on all machines. Others are named from the root of the module, because
    # fingerprints are compared between machines.
    is_literal = os.path.isabs(path.text) and not path.is_anchored
    name = path.text if is_literal else os.path.relpath(place, module.root or os.path.dirname(place))
    return "script" if use == "started" else "file", name.replace(os.sep, "/")


def files_named_by(module: Module | None, values: Iterable[Any]) -> Files:
    """Return the files beside a module that values name."""
    files = Files()
    for value in values:
        if module is not None and isinstance(value, str | PurePath) and ("." in str(value) or "/" in str(value)):
            files.add(module, PathText(str(value)), "named", 0)
    return files


def _places(module: Module, path: PathText) -> Iterator[str]:
    """Yield possible places of a path: beside its module, or in the folder from which the module is imported.

    The working directory does not count, because it differs between a runner, its node processes and workers.
    """
    if os.path.isabs(path.text):
        yield os.path.normpath(path.text)
    elif module.file is not None:
        for folder in dict.fromkeys((os.path.dirname(os.path.abspath(module.file)), module.root or "")):
            yield os.path.normpath(os.path.join(folder, path.text))


def _pattern_text(path: PathText) -> str:
    return os.path.basename(path.text.replace(ANY, "…")) or "…"


_DIGESTS: dict[str, tuple[tuple[int, ...], str]] = {}


def content_digest(path: str) -> str | None:
    """Return the SHA-256 of a file; None if it is too large or cannot be read."""
    try:
        status = os.stat(path)
        state = (status.st_mtime_ns, status.st_size, status.st_ino)
        if path not in _DIGESTS or _DIGESTS[path][0] != state:
            if status.st_size > _LARGEST:
                return None
            with open(path, "rb") as file:
                _DIGESTS[path] = state, hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
    return _DIGESTS[path][1]

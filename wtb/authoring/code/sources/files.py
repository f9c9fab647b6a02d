"""Find the files beside code that it names: prompts, data, scripts that it starts.

A file counts if its path can be worked out from the text of the code, and if the code does not write it: what a
node writes would look like a change of its code.
"""

from __future__ import annotations

import ast
import glob
import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal

from wtb.authoring.code.sources.globals import imported_as
from wtb.authoring.code.sources.modules import Module
from wtb.authoring.code.sources.paths import ANY, PathText, called_name, path_text
from wtb.authoring.code.sources.scripts import script_files

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
_KERNEL = ("/proc/", "/sys/", "/dev/")  # where each process, and each look, finds something else
_LARGEST = 16 * 1024 * 1024  # bytes that are read to hash one file
_MAX_FILES = 200  # files that one pattern may name

Use = Literal["named", "read", "written", "started", "listed"]


@dataclass
class Files:
    """Files that code names, and what of them could not be worked out.

    Attributes:
        files: Path -> (kind, name), where the name holds at every place to which the code is copied.
        absent: As `files`, of files that are not there yet.
        written: Paths that the code writes.
        problems: What could not be followed, in words.
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
        """Yield each file that counts by its kind and name, with a digest of its content."""
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
        """Return the path of each file that counts, or would if it were there, with its kind and name."""
        labels = {**self.absent, **self.files}
        return {path: f"{kind} {name}" for path, (kind, name) in labels.items() if path not in self.written}

    def _follow_scripts(self) -> None:
        """Add the files beside scripts that those name, and the files beside these, each once."""
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
        """Add what a path names."""
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
        self.absent |= absent

    def _keep(self, place: str, label: tuple[str, str]) -> None:
        if place not in self.files or label[0] == "script":
            self.files[place] = label

    def _add_pattern(self, module: Module, path: PathText, use: Use, line: int) -> None:
        pattern = path.text if path.is_pattern or "*" in path.text else os.path.join(path.text, ANY)
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
        """Note what could not be followed."""
        self.problems[f"{module.name}, line {line}: {problem}"] = None


class _Reader:
    """Reads expressions, each with the use that is made of it."""

    def __init__(self, files: Files, module: Module) -> None:
        self._files = files
        self._module = module

    def visit(self, node: ast.AST, use: Use) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring
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
            return False  # the statement that makes it adds it
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
        """A method of a path, or a function of its first argument."""
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
    """Yield where a path may be: beside its module, or in the folder that the module is imported from.

    Not in the working directory, which differs between a runner, its node processes and workers.
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

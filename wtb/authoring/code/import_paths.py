"""Import of the user's code by import paths, and by names registered in `wtb.toml` or `[tool.wtb.workflows]`.

Imported code cannot end a command at once, with an exit code that means success.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from wtb.authoring.context.audit_hook import setting_up
from wtb.authoring.workflow import Workflow
from wtb.config.distribution import pip_install
from wtb.config.project_settings import find_setting, shadowed_setting, table_of
from wtb.core.errors import InputError, WorkflowError, describe, did_you_mean
from wtb.core.failures import check_interrupt, text_of
from wtb.core.serialization.user_modules import barred, open_folder, shadowed_file

MAX_PATH = 500

# With the separator, so that a folder whose name only begins like ours is not taken for ours.
_IMPORT_MACHINERY = (str(Path(__file__).parents[2]) + os.sep, os.path.dirname(importlib.__file__) + os.sep, "<frozen")


def load(path: str) -> Any:
    """Return the object at `pkg.module:attr`, which may be in the folder in which a command started.

    Raises InputError if it does not exist, with the frames of the user's own code if importing it failed.
    """
    if len(path) > MAX_PATH:
        long = f"{describe(path)} has {len(path):,} characters"
        raise InputError(f"{long}; expected an import path of at most {MAX_PATH}")
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise InputError(f"{path!r} is not an import path; expected 'pkg.module:attribute'")
    loaded = _import(path, module_name)
    if (file := shadowed_file(module_name)) is not None:
        raise InputError(f"{path!r}: {_rename(file)}")
    for part in attribute.split("."):
        if not hasattr(loaded, part):
            names = [name for name in dir(loaded) if not name.startswith("_")]
            raise InputError(f"{path!r}: module {module_name!r} has no {part!r}{did_you_mean(part, names)}")
        loaded = getattr(loaded, part)
    return loaded


def _import(path: str, module_name: str) -> Any:
    if (process := barred()) is not None and module_name.partition(".")[0] != "wtb":
        raise InputError(f"{path!r} is not imported here: {process} imports no user code")
    open_folder()
    try:
        with exits_as_errors(), setting_up():
            return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if module_name.endswith(".py"):
            module = module_name.removesuffix(".py").strip("./").replace("/", ".")
            attribute = path.partition(":")[2]
            raise InputError(f"{path!r} names a file; expected an import path: write '{module}:{attribute}'") from error
        # Otherwise the module of the path exists, and something that it imports is missing.
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise InputError(
                f"{path!r}: there is no module {error.name!r} in {Path.cwd()} or among the installed packages"
                f"{_near_module(error.name)}; start the command in the folder that it is imported from"
            ) from error
        missing = (error.name or "").partition(".")[0]
        advice = f"; {pip_install('langgraph')} has it" if missing in ("langgraph", "langchain_core") else ""
        raise InputError(f"{path!r} cannot be imported: {own_frames(error)}{advice}{_shadow(error)}") from error
    except BaseException as error:  # whatever the module raises, such as what pytest.importorskip does
        check_interrupt(error)
        raise InputError(f"{path!r} cannot be imported: {own_frames(error)}{_shadow(error)}") from error


def _rename(file: str) -> str:
    """Return the message about a file with the name of another module."""
    return (
        f"{file} is not imported, because Python or a library that WTB uses has a module of this name: rename the file"
    )


def _shadow(error: BaseException) -> str:
    """Return a line about a file of the project that the module of an error was taken for, if there is one."""
    module = getattr(error, "obj", None)
    name = module.__name__ if isinstance(module, ModuleType) else getattr(error, "name", None)
    file = shadowed_file(name) if isinstance(name, str) and name else None
    return "" if file is None else f"\n{_rename(file)}"


def _near_module(name: str) -> str:
    """Return a hint at a module of this folder with a similar name."""
    parent, dot, _ = name.rpartition(".")
    folder = Path.cwd().joinpath(*parent.split("."))
    try:
        modules = [file.stem for file in folder.iterdir() if file.suffix == ".py" or file.is_dir()]
    except OSError:
        return ""
    return did_you_mean(name, (f"{parent}{dot}{module}" for module in modules if module.isidentifier()))


def own_frames(error: BaseException) -> str:
    """Format an error with the last five frames of the user's own code, without those of WTB and of imports."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_IMPORT_MACHINERY)]
    lines = [f'  File "{f.filename}", line {f.lineno}, in {f.name}: {f.line}' for f in frames[-5:]]
    if isinstance(error, SyntaxError):
        lines.append(f'  File "{error.filename}", line {error.lineno}: {(error.text or "").strip()}')
    return "\n".join([f"{type(error).__name__}: {text_of(error)}", *lines])


def is_importable(module: ModuleType) -> bool:
    """Return whether another process that imports this module by its name gets the same one."""
    # In another process, `__main__` is the script of that process.
    if module is sys.modules.get("__main__"):
        return False
    parent = sys.modules.get(module.__name__.rpartition(".")[0])
    place = getattr(parent, "__path__", None)
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(module.__name__, place) if find is not None else None
        if spec is not None:
            return bool(spec.origin == getattr(module, "__file__", None))
    return False


def registered(start: Path | None = None) -> Mapping[str, str]:
    """Read import paths by workflow name, from the nearest `wtb.toml` or `pyproject.toml` above. Raises InputError."""
    setting = find_setting("workflows", start)
    if setting is None:
        return {}
    names = setting.content
    if not isinstance(names, dict) or not all(isinstance(path, str) for path in names.values()):
        raise InputError(f"{setting.file}: {setting.title} must map names to import paths")
    beside = shadowed_setting("workflows", setting)
    if beside is None or not isinstance(beside.content, dict):
        return names
    for name, path in beside.content.items():
        if names.get(name, path) != path:
            raise InputError(
                f"workflow {name!r} is registered twice: as {names[name]!r} in {setting.file} and as {path!r} in "
                f"{beside.file}; remove one of them"
            )
    return names


def registered_name(workflow: str) -> str | None:
    """Return the registered name of a workflow, however it was started.

    Args:
        workflow: A registered name, or an import path.

    Returns:
        The name; None for an import path with no registered name, or with several.
    """
    if ":" not in workflow:
        return workflow
    try:
        names = [name for name, path in registered().items() if path == workflow]
    except InputError:  # an import path needs no file that registers names
        return None
    return names[0] if len(names) == 1 else None


def published_evaluators(start: Path | None = None) -> Sequence[str]:
    """Read import paths of published evaluators: `evaluators` of the table `publish`. Raises InputError."""
    setting = find_setting("publish", start)
    paths = [] if setting is None else table_of(setting, ("evaluators",)).get("evaluators", [])
    if setting is not None and not (isinstance(paths, list) and all(isinstance(path, str) for path in paths)):
        raise InputError(f"{setting.file}: 'evaluators' of {setting.title} must be a list of import paths")
    return paths


def workflow_path(name: str) -> str:
    """Return the import path of a workflow's name; import paths are returned unchanged. Raises InputError."""
    if ":" in name:
        return name
    names = registered()
    if name not in names:
        expected = f"one of the registered ({', '.join(names)})" if names else "a name registered in wtb.toml"
        hint = did_you_mean(name, names) or f"; expected {expected} or an import path 'pkg.module:attribute'"
        raise InputError(f"there is no workflow {name!r}{hint}")
    return names[name]


_ENDING = ("_exit", "execv", "execve")  # those of `os` that the others call
_lock = threading.RLock()  # functions are replaced for the whole process


class Exited(SystemExit):
    """User code would have ended this process in a way that Python cannot notice."""


# Not by contextlib, whose frames would appear among those of the user's code.
class exits_as_errors:
    """Make calls that end the process raise Exited, even if user code catches that, or makes them on a thread.

    Processes that user code forks may end as they like.
    """

    def __enter__(self) -> None:
        _lock.acquire()
        self._process = os.getpid()
        self._calls: list[str] = []
        self._before = {name: getattr(os, name) for name in _ENDING}
        for name, call in self._before.items():
            setattr(os, name, self._refusing(name, call))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for name, call in self._before.items():
            setattr(os, name, call)
        _lock.release()
        if self._calls and error is None:
            # User code caught the exception, or another thread made the call.
            raise Exited(f"{self._calls[0]} was called in code that the command runs")

    def _refusing(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*arguments: Any) -> Any:
            if os.getpid() != self._process:
                return call(*arguments)
            self._calls.append(f"os.{name}({', '.join(map(repr, arguments[:1]))})")
            raise Exited(f"{self._calls[-1]} was called in code that the command runs")

        return refuse


ADAPTERS = "wtb.workflow_adapters"  # entry points: (graph, its name, the user's object) -> Workflow
EXPECTED = "a wtb.Workflow, a LangGraph StateGraph or compiled graph, or a function without arguments that makes one"


def workflow_at(name: str, problem: Callable[[str], str] = str) -> Workflow:
    """Return the workflow of a name or import path. `problem` formats messages of errors. Raises InputError."""
    try:
        path = workflow_path(name)
        return as_workflow(load(path), path)  # by its path, as node processes know it
    except WorkflowError:
        raise
    except InputError as error:
        raise InputError(*(problem(text) for text in error.problems)) from error


def as_workflow(source: Any, name: str) -> Workflow:
    """Return a workflow, a graph, or the result of a function that makes one, as a workflow. Raises InputError."""
    original = source
    if not isinstance(source, Workflow) and not is_graph(source):
        source = made_by(source, f"{name!r}")
    if isinstance(source, Workflow):
        return source
    # If WTB is installed more than once, there are several entry points, of which any will do.
    for adapter in entry_points(group=ADAPTERS, name="langgraph"):
        adapted: Workflow = adapter.load()(source, name, original)
        return adapted
    raise InputError(
        f"{name!r} is a LangGraph graph, and this WTB has no adapter for it, as where it runs without being installed: "
        f"{pip_install('langgraph')}"
    )


def is_graph(candidate: Any) -> bool:
    """Return whether something is a graph of LangGraph, or variants beside one; without importing LangGraph."""
    return any(
        kind.__module__.startswith(("langgraph.", "wtb.integrations.langgraph.")) for kind in type(candidate).__mro__
    )


def made_by(factory: Any, where: str) -> Any:
    """Return the result of a factory. Raises InputError if it is no factory, fails, or makes something else."""
    if not inspect.isroutine(factory):
        raise InputError(f"{where} is of type {type(factory).__name__}; expected {EXPECTED}")
    parameters = inspect.signature(factory).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if needed or inspect.iscoroutinefunction(factory):
        what = f"takes {', '.join(needed)}" if needed else "is async"
        raise InputError(f"{where} {what}; expected {EXPECTED}")
    try:
        with exits_as_errors():
            workflow = factory()
    except BaseException as error:
        check_interrupt(error)
        raise InputError(f"{where} cannot be called: {own_frames(error)}") from error
    if not isinstance(workflow, Workflow) and not is_graph(workflow):
        raise InputError(f"{where} made {type(workflow).__name__}; expected {EXPECTED}")
    return workflow

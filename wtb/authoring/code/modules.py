"""Find modules, and decide whether they and objects are the user's own, an installed distribution's, or Python's.

Own code is neither the standard library nor an installed distribution, wherever it is. A file decides, not a
name: a folder of the user's may be called like a module of Python, and a virtual environment may lie in a project.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from wtb.authoring.code.mentions import Imported
from wtb.authoring.code.source_file import SourceFile, source_of
from wtb.core.frozen import frozen
from wtb.core.values import Namespace

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_INSTALLED = {"site-packages", "dist-packages"}


def distribution_of(package: str, file: str | None = None) -> str | None:
    """Return `name==version` for a package that was installed from an index; None for the project's own code.

    The project's own is what is imported from anywhere else: the working folder, a script, a notebook, an editable
    install. Distributions that were installed from a folder, a file or a repository are, too, as in images of workers.

    Args:
        package: The first part of a module's name.
        file: The file of the module, which decides; without it, that of the package.
    """
    module = sys.modules.get(package)
    file = file or getattr(module, "__file__", None)
    # A namespace package has no file, and may have several folders.
    places = (file,) if file else tuple(getattr(module, "__path__", ()))
    return _installed_version(package, places)


@functools.cache
def _installed_version(package: str, places: tuple[str, ...]) -> str | None:
    if not places or not all(_INSTALLED & set(Path(place).parts) for place in places):
        return None
    distributions = _distributions(package)
    # Installers write this file with the source of a distribution, unless that was an index (PEP 610).
    if not distributions or any(distribution.read_text("direct_url.json") for distribution in distributions):
        return None
    return ", ".join(f"{distribution.name}=={distribution.version}" for distribution in distributions)


def _distributions(package: str) -> list[Distribution]:
    # Imported late, because it takes a tenth of the start of a node process.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return [distribution(package)]
    except PackageNotFoundError:
        # Distribution and package may have different names. Only then all distributions are read, which is slow.
        return [distribution(name) for name in sorted(set(_by_package().get(package, ())))]


@functools.cache
def _by_package() -> Mapping[str, list[str]]:
    from importlib.metadata import packages_distributions

    return packages_distributions()


_PYTHON = os.path.dirname(os.__file__) + os.sep
_WTB = frozenset({"wtb", "wtb_workers", "wtb_scheduler"})


@frozen
class Module:
    """A module by its name, whether or not this process has imported it.

    Attributes:
        name: Its dotted name.
        file: Its file; None for a namespace package and for built-in modules.
        package: The package of its relative imports.
        folders: The folders of its submodules, if it is a package.
    """

    name: str
    file: str | None
    package: str
    folders: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        return _is_own(self.name, self.file)

    @property
    def is_compiled(self) -> bool:
        return self.file is not None and self.file.endswith(tuple(EXTENSION_SUFFIXES))

    @property
    def root(self) -> str | None:
        """The folder from which it is imported."""
        if self.file is None:
            return None
        depth = self.name.count(".") + (1 if self.folders else 0)
        folder = os.path.dirname(os.path.abspath(self.file))
        for _ in range(depth):
            folder = os.path.dirname(folder)
        return folder

    @property
    def source(self) -> SourceFile | None:
        if self.file is None or self.is_compiled:
            return None
        return source_of(self.file, _namespace(self.name))

    @property
    def versioned_name(self) -> str:
        """Its name, with the version of its distribution."""
        top = self.name.partition(".")[0]
        distribution = None if top in _WTB or top in sys.stdlib_module_names else distribution_of(top, self.file)
        return f"{self.name}{'' if distribution is None else f' of {distribution}'}"

    def absolute(self, imported: Imported) -> str:
        """Return the full name of a module that this one imports."""
        if not imported.level:
            return imported.module
        package = self.package.rsplit(".", imported.level - 1)[0] if imported.level > 1 else self.package
        return f"{package}.{imported.module}".strip(".")


def is_own(name: str) -> bool:
    """Return whether code of a module is the user's own. Code without a module is not."""
    if name == "None":
        return False
    module = sys.modules.get(name) or sys.modules.get(name.partition(".")[0])
    return _is_own(name, getattr(module, "__file__", None))


@functools.lru_cache(maxsize=8192)
def _is_own(name: str, file: str | None) -> bool:
    top = name.partition(".")[0]
    if top in _WTB:
        return False
    if top in sys.stdlib_module_names:  # unless it is a file of the user's that is called so
        return file is not None and not file.startswith((_PYTHON, "<frozen"))
    return distribution_of(top, file) is None


def module_of(name: str) -> Module | None:
    """Find a module by its full name, without importing it or its packages; None if there is none."""
    module = sys.modules.get(name)
    if (module is not None and getattr(module, "__spec__", None) is not None) or name == "__main__":
        folders = tuple(getattr(module, "__path__", ()))
        package = getattr(module, "__package__", None) or (name if folders else name.rpartition(".")[0])
        return Module(name, getattr(module, "__file__", None), package, folders)
    return _module_on_disk(name)


def _module_on_disk(name: str) -> Module | None:
    parent, _, _ = name.rpartition(".")
    places: Sequence[str] | None = None
    if parent:
        package = module_of(parent)
        if package is None or not package.folders:
            return None
        places = package.folders
    spec = _spec(name, places)
    if spec is None:
        return None
    folders = tuple(spec.submodule_search_locations or ())
    return Module(name, spec.origin if spec.has_location else None, name if folders else parent, folders)


def _spec(name: str, places: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        try:
            spec: ModuleSpec | None = find(name, places) if find is not None else None
        except (ImportError, ValueError, AttributeError):
            continue
        if spec is not None:
            return spec
    return None


def _namespace(name: str) -> dict[str, Any] | None:
    module = sys.modules.get(name)
    return None if module is None else vars(module)


_SEQUENCE, _EITHER = ("steps",), ("func", "afunc", "kwargs")
_PARTS_BY_CLASS: Mapping[str, tuple[str, ...] | None] = {  # class -> what it holds; None: all of it
    "langchain_core.RunnableBindingBase": ("bound", "kwargs", "config", "config_factories"),
    "langchain_core.RunnableRetry": ("max_attempt_number", "retry_exception_types", "wait_exponential_jitter"),
    "langchain_core.RunnableSequence": _SEQUENCE,
    "langchain_core.RunnableParallel": ("steps__",),
    "langchain_core.RunnableAssign": ("mapper",),
    "langchain_core.RunnablePassthrough": _EITHER,
    "langchain_core.RunnablePick": ("keys",),
    "langchain_core.RunnableLambda": _EITHER,
    "langchain_core.RunnableGenerator": ("_transform", "_atransform"),
    "langchain_core.RunnableWithFallbacks": ("runnable", "fallbacks", "exceptions_to_handle", "exception_key"),
    "langchain_core.RunnableBranch": ("branches", "default"),
    "langchain_core.RunnableEachBase": ("bound",),
    "langchain_core.RouterRunnable": ("runnables",),
    "langchain_core.BaseTool": (
        "name", "description", "func", "coroutine", "args_schema", "return_direct", "response_format",
        "handle_tool_error", "handle_validation_error",
    ),
    "langchain_core.BasePromptTemplate": None,
    "langchain_core.BaseMessagePromptTemplate": None,
    "langgraph.RunnableCallable": _EITHER,
    "langgraph.ToolNode": ("_tools_by_name", "_handle_tool_errors", "_wrap_tool_call", "_awrap_tool_call"),
    "langgraph.RunnableSeq": _SEQUENCE,
    "langgraph.PregelNode": ("bound",),
    "langgraph.Pregel": ("builder", "nodes"),
}  # fmt: skip
_PLAIN = (str, int, float, bool)


def is_foreign(package: str) -> bool:
    """Return whether a package is LangChain's, or installed with a similar name."""
    return package.startswith(("langchain", "langgraph")) and distribution_of(package) is not None


def parts_of(holder: Any) -> Namespace | None:
    """Return the user's parts of a LangChain or LangGraph object, by name; None if it is no such object."""
    kind: Any = type(holder)
    names = _names(kind)
    foreign = is_foreign(kind.__module__.partition(".")[0])
    if "langgraph.StateGraph" in names:
        return _graph(holder)
    if foreign and "langchain_core.BaseLanguageModel" in names:
        # Settings of a model count, but neither its clients nor its keys, which are no plain values.
        return {name: setting for name, setting in _all(holder).items() if isinstance(setting, _PLAIN)}
    matching = names & _PARTS_BY_CLASS.keys()
    if not matching:
        return None
    if not foreign or any(_PARTS_BY_CLASS[name] is None for name in matching):
        return _all(holder)
    # The nodes of a compiled graph are those of the graph that it was made from.
    if hasattr(holder, "builder"):
        return {"builder": holder.builder}
    known_parts = {part for name in matching for part in _PARTS_BY_CLASS[name] or ()}
    return {part: getattr(holder, part) for part in sorted(known_parts) if getattr(holder, part, None) is not None}


def has_parts(value: Any) -> bool:
    """Return whether a value is such an object, or a list or mapping that contains one."""
    if isinstance(value, list | tuple | dict):
        return any(map(has_parts, value.values() if isinstance(value, dict) else value))
    return parts_of(value) is not None


def _all(holder: Any) -> Namespace:
    """Return the attributes of an object; of a pydantic model only its fields, because LangChain caches others."""
    fields = getattr(type(holder), "model_fields", None)
    return {name: part for name, part in vars(holder).items() if fields is None or name in fields}


def _graph(builder: Any) -> Namespace:
    """Return the nodes, edges and branches of a graph."""
    return {
        "nodes": {place: spec.runnable for place, spec in builder.nodes.items()},
        "handlers": {place: spec.error_handler_node for place, spec in builder.nodes.items()},
        "edges": sorted(builder.edges),
        "waiting": sorted(builder.waiting_edges),
        "paths": [
            [start, branch.path, sorted((branch.ends or {}).items(), key=str)]
            for start, named in builder.branches.items()
            for branch in named.values()
        ],
    }


@lru_cache(maxsize=1024)
def _names(kind: type) -> frozenset[str]:
    return frozenset(f"{base.__module__.partition('.')[0]}.{base.__name__.partition('[')[0]}" for base in kind.__mro__)


def is_own_code(value: Any) -> bool:
    """Return whether a value is a function or a class of the user, or an object of such a class."""
    named = value if isinstance(value, type | FunctionType | MethodType) else type(value)
    return isinstance(value, functools.partial) or is_own(module_name_of(named))


def packages_looked_into(root: Any) -> Iterator[str]:
    """Yield others' packages whose code counts: those of a node that is itself such an object."""
    roots, seen = [(root, False)], {id(root)}
    for candidate, is_captured in roots:  # grows; wrapped and captured values show whose code it is
        package = package_of(candidate)
        own = is_own(module_name_of(candidate))
        if package != "None" and not own and not (is_captured or _is_known(package) or is_foreign(package)):
            yield package
        for part, is_part in _wrapped(candidate):
            counts = callable(part) or isinstance(part, list | tuple | dict) or parts_of(part) is not None
            if counts and id(part) not in seen:
                seen.add(id(part))
                roots.append((part, is_captured or is_part))


def _wrapped(value: Any) -> Iterator[tuple[Any, bool]]:
    """Yield the values that a value wraps (False) or holds (True), which show whose code it is."""
    if isinstance(value, functools.partial):
        yield value.func, False
    elif isinstance(value, MethodType):
        yield from ((part, False) for part in (value.__func__, value.__self__))
    elif hasattr(value, "__wrapped__"):
        yield value.__wrapped__, False
    if isinstance(value, list | tuple):
        yield from ((part, False) for part in value)
    elif isinstance(value, dict):
        yield from ((part, False) for part in value.values())
    elif (captured := parts_of(value)) is not None:
        yield from ((part, True) for part in captured.values())
    elif isinstance(value, FunctionType):
        if not is_own(module_name_of(value)):
            yield from ((part, True) for part in inspect.getclosurevars(value).nonlocals.values())
    elif package_of(value) == "wtb" and not isinstance(value, type):
        yield from ((part, True) for part in getattr(value, "__dict__", {}).values() if callable(part))


def held_by(holder: Any) -> Iterable[Any]:
    """Return the values in a container, a partial, a method or an object of the user."""
    if isinstance(holder, list | tuple):
        return holder
    if isinstance(holder, dict):
        return holder.values()
    if isinstance(holder, functools.partial):
        return (holder.func, *holder.args, *holder.keywords.values())
    if isinstance(holder, MethodType):
        return (holder.__func__, holder.__self__)
    attributes = getattr(holder, "__dict__", {}) if is_own(module_name_of(type(holder))) else {}
    return [attributes[name] for name in sorted(attributes, key=str)]


def module_name_of(value: Any) -> str:
    return str(value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None))


def package_of(value: Any) -> str:
    return module_name_of(value).partition(".")[0]


def _is_known(package: str) -> bool:
    return package == "wtb" or package in sys.stdlib_module_names


def name_of(value: Any) -> str:
    return f"{getattr(value, '__module__', None)}.{value.__qualname__}{version_of(value)}"


def version_of(value: Any) -> str:
    """Return the distribution of a value's code, unless it is the project's own."""
    package = package_of(value)
    distribution = None if _is_known(package) else distribution_of(package)
    return "" if distribution is None else f" of {distribution}"

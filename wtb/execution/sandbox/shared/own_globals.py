"""Globals of own modules that functions rebind: found in their code, compared when node runs begin and end."""

from __future__ import annotations

import dis
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from wtb.authoring.workflow_facts import WorkflowFacts

_SIMPLE = (str, bytes, int, float, complex, bool)
_STORES = frozenset(dis.opmap[name] for name in ("STORE_GLOBAL", "STORE_ATTR"))
_MISSING = object()
_INSTALLED = tuple(
    os.path.realpath(path) + os.sep
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_WTB = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))) + os.sep


class Rebound(NamedTuple):
    """A global that has another value than before. functions: the names of those that rebind it."""

    what: str
    place: str
    functions: frozenset[str]


class _Global:
    """A global that functions rebind."""

    def __init__(self, module: ModuleType, name: str) -> None:
        self.module = module
        self.name = name
        self.value: Any = vars(module).get(name, _MISSING)
        self.functions: set[str] = set()
        self.place = ""

    def as_rebound(self) -> Rebound:
        return Rebound(f"{self.module.__name__}.{self.name}", self.place, frozenset(self.functions))

    def is_rebound(self) -> bool:
        """Return whether its value is another simple one than before. A first value is no change: it may be a cache."""
        value, before = vars(self.module).get(self.name, _MISSING), self.value
        if value is before:
            return False
        self.value = value
        is_simple = isinstance(before, _SIMPLE) and (value is None or isinstance(value, _SIMPLE))
        return is_simple and (type(value) is not type(before) or value != before)


class OwnGlobals:
    """The globals of own modules that functions rebind, and the nodes that may call these functions."""

    def __init__(self, workflow: WorkflowFacts) -> None:
        self._workflow = workflow
        self._globals: dict[tuple[str, str], _Global] = {}
        self._names: dict[str, set[str]] = {}  # function -> names in its code, over all own modules
        self._scanned: set[str] = set()
        self._reached: dict[tuple[str, str], frozenset[str]] = {}
        self._count = 0
        self.scan()

    def scan(self) -> None:
        """Look through own modules that have been imported since the last time."""
        if len(sys.modules) == self._count:
            return
        self._count = len(sys.modules)
        for name, module in list(sys.modules.items()):
            if name not in self._scanned and not _is_initializing(module):
                self._scanned.add(name)
                if _is_own(module):
                    self._scan_module(module)
        self._reached.clear()

    def rebound(self) -> list[Rebound]:
        """Return the globals that have other values than the last time."""
        if not self._globals:
            return []
        return [entry.as_rebound() for entry in self._globals.values() if entry.is_rebound()]

    def outputs(self, node: str, variant: str) -> list[Rebound]:
        """Return the streams of `sys` that the code of a node may rebind: it may rebind them again before it ends."""
        return [
            rebound
            for entry in self._globals.values()
            if entry.module is sys and self.may_rebind(node, variant, rebound := entry.as_rebound())
        ]

    def may_rebind(self, node: str, variant: str, rebound: Rebound) -> bool:
        """Return whether a node may call a function that rebinds a global, by the names in its code and below."""
        if (node, variant) not in self._reached:
            self._reached[node, variant] = self._reach(node, variant)
        return not self._reached[node, variant].isdisjoint(rebound.functions)

    def _reach(self, node: str, variant: str) -> frozenset[str]:
        function = self._workflow.nodes[node].variants[variant].fn
        code = getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None)
        if code is None:
            return frozenset(self._names)
        seen: set[str] = {code.co_name}
        ahead = list(_names_of(code))
        while ahead:
            name = ahead.pop()
            if name in self._names and name not in seen:
                seen.add(name)
                ahead += self._names[name]
        return frozenset(seen)

    def _scan_module(self, module: ModuleType) -> None:
        for code in _functions_of(module):
            self._names.setdefault(code.co_name, set()).update(_names_of(code))
            for owner, name in _rebinds(code, module):
                entry = self._globals.setdefault((owner.__name__, name), _Global(owner, name))
                entry.functions.add(code.co_name)
                entry.place = entry.place or f"{code.co_filename}:{code.co_firstlineno}"


def _is_initializing(module: object) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _is_own(module: object) -> bool:
    """Return whether a module is neither installed nor part of Python or WTB."""
    file = getattr(module, "__file__", None)
    if not isinstance(module, ModuleType) or not isinstance(file, str):
        return False
    path = os.path.realpath(file)
    return path.endswith(".py") and not path.startswith((*_INSTALLED, _WTB))


def _functions_of(module: ModuleType) -> Iterator[CodeType]:
    """Yield the code of all functions in a module, however they are decorated and wherever they stand."""
    loader: Any = getattr(module.__spec__, "loader", None)
    try:
        code = loader.get_code(module.__name__)
    except Exception:  # noqa: BLE001 - a loader of somebody else, or a source that has been changed meanwhile
        return
    ahead = [code]
    while ahead:
        inner = [constant for constant in ahead.pop().co_consts if isinstance(constant, CodeType)]
        yield from inner
        ahead += inner


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)


def _rebinds(code: CodeType, module: ModuleType) -> Iterator[tuple[ModuleType, str]]:
    """Yield modules and the names in them that a function rebinds: `global x; x = 1`, or `settings.x = 1`."""
    if _STORES.isdisjoint(code.co_code[::2]):
        return
    before = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_GLOBAL":
            yield module, str(instruction.argval)
        elif instruction.opname == "STORE_ATTR" and before is not None and before.opname == "LOAD_GLOBAL":
            holder = vars(module).get(str(before.argval))
            is_output = holder is sys and instruction.argval in ("stdout", "stderr")
            if isinstance(holder, ModuleType) and (is_output or _is_own(holder)):
                yield holder, str(instruction.argval)
        before = instruction

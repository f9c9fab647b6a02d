"""Changes of a shared process's globals by node runs, and the results that these may have affected."""

from __future__ import annotations

import dis
import inspect
import os
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.execution.sandbox.global_functions import Change, tell_of_changes
from wtb.execution.sandbox.shared_run import SharedRun, Verdict

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
    """A global with a new value. `functions` are the names of functions that rebind it."""

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
        current, before = vars(self.module).get(self.name, _MISSING), self.value
        if current is before:
            return False
        self.value = current
        is_simple = isinstance(before, _SIMPLE) and (current is None or isinstance(current, _SIMPLE))
        return is_simple and (type(current) is not type(before) or current != before)


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
        """Scan own modules that have been imported since the last scan."""
        # Called at the start of every run, and nearly always no module has been imported meanwhile.
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
        """Return the globals whose values have changed since the last call."""
        if not self._globals:
            return []
        return [variable.as_rebound() for variable in self._globals.values() if variable.is_rebound()]

    def outputs(self, node: str, variant: str) -> list[Rebound]:
        """Return streams of `sys` that the code of a node may rebind, even if it restores them before it ends."""
        return [
            rebound
            for variable in self._globals.values()
            if variable.module is sys and self.may_rebind(node, variant, rebound := variable.as_rebound())
        ]

    def may_rebind(self, node: str, variant: str, rebound: Rebound) -> bool:
        """Return whether a node may call a function that rebinds a global, judged by the names in reachable code."""
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
                variable = self._globals.setdefault((owner.__name__, name), _Global(owner, name))
                variable.functions.add(code.co_name)
                variable.place = variable.place or f"{code.co_filename}:{code.co_firstlineno}"


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
    """Yield the code of all functions in a module, including nested and decorated ones."""
    loader: Any = getattr(module.__spec__, "loader", None)
    try:
        # From the loader and not from the attributes of the module, which may hold decorators instead of functions.
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
    # Disassembling is slow. Every other byte of the code is an opcode, and most functions have neither of the two.
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


_GLOBAL = "keep it in the state, in a ContextVar, or in an argument"
_OUTPUT = "use contextlib.redirect_stdout"


class Traces:
    """Changes of globals by a run, and those by its neighbours.

    Attributes:
        changes: By the run.
        met: Changes that may have affected its result: the changed thing -> the node.
        is_apart: Whether its node shares no process from now on.
    """

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.met: dict[str, str] = {}
        self.is_apart = False


class SharedGlobals:
    """Notes changes of globals that runs share."""

    def __init__(self, workflow: WorkflowFacts) -> None:
        self._own = OwnGlobals(workflow)
        self._lock = threading.Lock()
        self._traces: dict[SharedRun, Traces] = {}
        self._changers: dict[SharedRun, None] = {}
        self._lasting_changes: list[tuple[str, Change]] = []  # by runs that have ended: the process is being replaced
        self._warned: set[tuple[str, str]] = set()
        tell_of_changes(self._note)

    @property
    def is_changed(self) -> bool:
        """True if a run that has ended has left a change behind."""
        return bool(self._lasting_changes)

    def begin(self, run: SharedRun) -> None:
        """Note that a run begins."""
        with self._lock:
            self._own.scan()
            traces = self._traces[run] = Traces()
            if self._lasting_changes:
                traces.met.update((change.what, node) for node, change in self._lasting_changes)
            for changer in self._changers:
                for change in self._traces[changer].changes:
                    self._meet(changer, change, (run,))
            self._compare()
            outputs = self._own.outputs(run.node, run.variant)
        for rebound in outputs:
            self._note(run, Change(rebound.what, rebound.place, _OUTPUT))

    def end(self, run: SharedRun, verdict: Verdict, usd: float) -> Verdict:
        """Note that a run ends.

        A result that a change may have affected does not count if a repeat costs no model call. Otherwise a
        warning names the cost of a repeat.

        Args:
            run: The run.
            verdict: The verdict on its result from the event loop's point of view.
            usd: Its cost in US dollars.

        Returns:
            The verdict on its result.
        """
        with self._lock:
            self._compare()
            traces = self._traces.pop(run)
            if run in self._changers:
                del self._changers[run]
                self._lasting_changes += [(run.node, change) for change in traces.changes if not change.is_own]
        if traces.is_apart:
            verdict = replace(verdict, is_apart=True)
        if not traces.met or verdict.lost is not None:
            return verdict
        changed = ", ".join(f"{what} (node {node})" for what, node in sorted(traces.met.items()))
        # A free repeat is better than a doubtful result; one that costs money is left to a person.
        if not run.has_cost:
            return replace(verdict, lost=f"what it shares with other runs in its process was changed: {changed}")
        run.warn(
            f"the result may be that of another run, because shared objects were changed: {changed}. "
            f"A repeat by `wtb rollback` costs about ${usd:.4g}",
            "",
        )
        return verdict

    def _note(self, run: SharedRun, change: Change) -> None:
        """Note a change at the moment when a run makes it."""
        with self._lock:
            traces = self._traces.get(run)
            if traces is None:  # the run has ended, and a thread or task of it continues
                return
            traces.changes.append(change)
            self._changers[run] = None
            self._meet(run, change, [other for other in self._traces if other is not run])

    def _meet(self, changer: SharedRun, change: Change, other_runs: Iterable[SharedRun]) -> None:
        """Note the runs that a change may have harmed. A seeded sequence does no harm without other runs."""
        other_runs = list(other_runs)
        for run in other_runs if not change.is_own else [changer] if other_runs else []:
            self._traces[run].met[change.what] = changer.node
        if other_runs or not change.is_own:
            self._blame(changer, change)

    def _blame(self, run: SharedRun, change: Change) -> None:
        """Let the node of a run share no process from now on, and warn of the change, once for each process."""
        self._traces[run].is_apart = True
        if (run.node, change.what) not in self._warned:
            self._warned.add((run.node, change.what))
            run.warn(
                f"node {run.node!r} changes {change.what}, which is the same for all runs in a shared process, at "
                f"{change.place}: {change.advice}. Its runs have a process each from now on",
                change.place,
            )

    def _compare(self) -> None:
        """Find globals with new values. The run that changed them is unknown."""
        rebound_globals = self._own.rebound()
        # A run without neighbours can only have changed its own globals. `rebound` was called all the same, to see them
        # once.
        if len(self._traces) < 2:
            return
        for rebound in rebound_globals:
            change = Change(rebound.what, rebound.place, _GLOBAL)
            blamed = [run for run in self._traces if self._own.may_rebind(run.node, run.variant, rebound)]
            for run in blamed or self._traces:
                self._blame(run, change)
            nodes = ", ".join(sorted({run.node for run in blamed})) or "unknown"
            for traces in self._traces.values():
                traces.met[change.what] = nodes

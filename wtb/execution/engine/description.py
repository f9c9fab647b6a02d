"""Descriptions of user code as data, made by a node process, and imports of users' modules that may change on disk."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, cast

from typing_extensions import TypedDict

from wtb.authoring.code.describing import (
    DescribedName,
    RegisteredName,
    describe_evaluator,
    describe_workflow,
    described_names,
)
from wtb.authoring.code.fingerprint import evaluator_code, present_code
from wtb.authoring.code.recipe import Draft, ImportedCode, Recipe, complete
from wtb.authoring.context.surroundings import Surroundings
from wtb.authoring.evaluation.adapters import adapted
from wtb.authoring.evaluation.declarations import BY_PATH
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.graph import Routes, outline_digest
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.documents.workflows import EvaluatorDescription, WorkflowDescription
from wtb.core.errors import InputError, WTBError
from wtb.core.tree.checkpoints import Position
from wtb.core.tree.stored_code import StoredCode, stored_code
from wtb.core.tree.stored_spec import StoredEvaluators, stored_evaluators
from wtb.core.values import Namespace, Values
from wtb.execution.engine.protocol import Joined, Root, Task, Writes, engine_of

# A module: its name and file, when it began to be imported, and the time, size and number that the file had then.
ImportedFile = tuple[str, str, float, Sequence[int]]
FILE_CLOCK_S = 0.01  # by which timestamps of files may lag behind the clock
OURS = {"wtb", "wtb_workers", "wtb_scheduler", "__main__"}  # never imported again, also where WTB is developed


class Imports:
    """Tracks the modules imported from the working directory; installed packages are not tracked.

    A fingerprint reads the source on disk, so imported code must not be older than that.

    `rounds` counts how often changed modules were found.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self._began = time.time()  # to import, the last time
        self._imported: dict[str, tuple[float, tuple[int, ...]]] = {}  # module -> (imported after, file as it was then)
        self._lock = threading.Lock()

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Import afresh during the block: if a tracked module changed on disk, all are dropped first."""
        with self._lock, self._fresh():
            yield

    @contextmanager
    def _fresh(self) -> Iterator[None]:
        present = self._present()
        if any(self._changed(name, file) for name, file in present.items()):
            # All of them are dropped: modules refer to each other, and a mixture of old and new ones has no
            # fingerprint.
            self.rounds += 1
            self._imported.clear()
            for name in present:
                del sys.modules[name]
            importlib.invalidate_caches()
        self._began = time.time()
        try:
            yield
        finally:
            for name, file in self._present().items():
                self._imported.setdefault(name, (self._began, _state(file)))

    def files(self) -> list[ImportedFile]:
        """Return the tracked modules, as they were when they were imported."""
        with self._lock:
            present = self._present()
            return [(name, present[name], *state) for name, state in self._imported.items() if name in present]

    def _changed(self, name: str, file: str) -> bool:
        present = _state(file)
        # A module that a node imported meanwhile is not known yet.
        after, before = self._imported.setdefault(name, (self._began, present))
        return _is_changed(present, after, before)

    def _present(self) -> dict[str, str]:
        # Compared as strings: there may be thousands of modules, and Path objects take about twenty times as long.
        project_folder, *installed = (os.path.join(folder, "") for folder in (os.getcwd(), sys.prefix, sys.base_prefix))
        files = {}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if not file or not file.startswith(project_folder) or file.startswith(tuple(installed)):
                continue
            if name.partition(".")[0] not in OURS:
                files[name] = file
        return files


def _state(file: str) -> tuple[int, ...]:
    try:
        status = os.stat(file)
    except OSError:  # it was removed
        return (0,)
    return status.st_mtime_ns, status.st_size, status.st_ino


def have_changed(files: Sequence[ImportedFile]) -> bool:
    """Return whether a module that a node process imported has changed on disk since."""
    return any(_is_changed(_state(file), after, tuple(before)) for _, file, after, before in files)


def _is_changed(present: tuple[int, ...], after: float, before: tuple[int, ...]) -> bool:
    # If a file was written while it was imported, the import may have read the old content.
    return present != before or present[0] >= (after - FILE_CLOCK_S) * 1e9


imports = Imports()  # of this process


class NodeTraits(TypedDict):
    """The traits of a node that published workflows leave out. `asynchronous` names variants."""

    # Initial seconds, factor, maximum seconds.
    backoff: tuple[float, float, float]
    asynchronous: list[str]


class CodeDescription(TypedDict):
    """The code of a sweep.

    Attributes:
        workflow: The workflow with the variants of the sweep; None if only evaluators were requested.
        nodes: Further traits of each node.
        irreversible: Names of tools that cannot be taken back.
        begins_here: Whether a case begins without user code.
        evaluators: The evaluators that the sweep names, by import path.
        evaluator_code: The code, options and declarations behind these evaluators.
        vary: The names of the variants of each varied node.
        fingerprints: The code of each variant of the varied nodes.
        code: The parts of the code from which the fingerprints were computed.
        outline: The digest of everything else about the workflow.
        recipe: The recipe by which other node processes make the same, as typed JSON.
        files: The imported modules of the project, as they were then.
    """

    workflow: WorkflowDescription | None
    nodes: dict[str, NodeTraits]
    irreversible: list[str]
    begins_here: bool
    evaluators: dict[str, EvaluatorDescription]
    evaluator_code: StoredEvaluators
    vary: dict[str, list[str]]
    fingerprints: dict[str, dict[str, str]]
    code: StoredCode
    outline: str | None
    recipe: str
    files: list[ImportedFile]


class NamesDescription(TypedDict):
    """Descriptions of the registered names of a project, and the modules that were imported for them."""

    names: list[DescribedName]
    files: list[ImportedFile]


class _Recorded(ImportedCode):
    """Code that this process imports. `loaded` holds it by path; only `permitted` paths are imported."""

    def __init__(self, permitted: Sequence[str] | None) -> None:
        self.loaded: dict[str, Any] = {}
        self._permitted = permitted

    def load(self, path: str) -> Any:
        # Permission to submit must not be enough to have a worker import any module of its machine.
        if self._permitted is not None and path not in (*self._permitted, *BY_PATH.values()):
            raise InputError(f"{path!r} is not among the evaluators that this worker publishes")
        return self.loaded.setdefault(path, super().load(path))


def described(text: str) -> tuple[Recipe, Workflow | None, list[Evaluator], CodeDescription]:
    """Import the code of a draft and describe it.

    Args:
        text: The draft, as typed JSON.

    Raises:
        InputError: With everything that is wrong.
    """
    draft = Draft.read(text)
    code = _Recorded(draft.permitted)
    with imports.fresh():
        completed = complete(draft, code)
    if completed.problems:
        raise InputError(*(text for _, text in completed.problems))
    workflow = completed.workflow
    description: CodeDescription = {
        "workflow": None,
        "nodes": {},
        "irreversible": [],
        "begins_here": True,
        "evaluators": dict(_evaluators(code.loaded)),
        "evaluator_code": stored_evaluators(
            evaluator_code(zip(completed.recipe.evaluators, completed.evaluators, strict=True))
        ),
        "vary": {node: list(names) for node, names in completed.vary.items()},
        "fingerprints": {},
        "code": stored_code({}),
        "outline": None,
        "recipe": completed.recipe.text(),
        "files": imports.files(),
    }
    if workflow is not None:
        engine, facts = engine_of(workflow), workflow.facts()
        fingerprints, parts = present_code(facts.nodes.values(), completed.vary, completed.recipe)
        description |= {
            "workflow": describe_workflow(facts, schemas=False),
            "nodes": {
                name: {
                    "backoff": (node.rules.backoff.initial, node.rules.backoff.factor, node.rules.backoff.maximum),
                    "asynchronous": [variant for variant in node.variants if engine.is_async(name, variant)],
                }
                for name, node in facts.nodes.items()
            },
            "irreversible": [name for name, tool in facts.tools.items() if tool.reverse is None],
            "begins_here": engine.begins_here,
            "fingerprints": fingerprints,
            "code": parts,
            "outline": outline_digest(facts),
        }
    return completed.recipe, workflow, completed.evaluators, description


def describe_names(names: Sequence[Mapping[str, str]]) -> NamesDescription:
    """Import and describe registered names."""
    with imports.fresh():
        described = described_names(cast(Sequence[RegisteredName], names))
    return {"names": described, "files": imports.files()}


def _evaluators(loaded: Namespace) -> Any:
    """Yield the path and the description of each function that can be an evaluator."""
    for path, written in loaded.items():
        if path not in BY_PATH.values():
            # A variant that was loaded, too, need not be a possible evaluator.
            with suppress(WTBError):
                function = adapted(path, written)
                if callable(function):
                    yield path, describe_evaluator(function, schemas=False)


class DescribedEngine:
    """The facts about an engine whose code is in node processes only."""

    def __init__(self, workflow: WorkflowFacts, description: CodeDescription) -> None:
        self.workflow = workflow
        self.begins_here = description["begins_here"]
        self._nodes = description["nodes"]
        self._entry = Routes(workflow).entry.next

    def is_async(self, node: str, variant: str) -> bool:
        return variant in self._nodes[node]["asynchronous"]

    def begin(self, state: Values, root: Root) -> Joined:
        return Joined({}, Position(0, self._entry))

    def run(self, task: Task, surroundings: Surroundings) -> NoReturn:
        raise AssertionError("nodes run in node processes")

    def awaited(self, task: Task, surroundings: Surroundings) -> NoReturn:
        raise AssertionError("nodes run in node processes")

    def join(self, state: Values, position: Position, writes: Writes, root: Root) -> NoReturn:
        raise AssertionError("steps are joined in node processes")

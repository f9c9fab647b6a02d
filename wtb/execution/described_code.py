"""The code of a sweep as a runner knows it that imports none: a node process has described it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from wtb.authoring.boundary import Malformed, optional, shaped, text
from wtb.authoring.code.described import DescribedWorkflow, evaluator_function_of, facts_of
from wtb.authoring.code.describing import DescribedName, RegisteredName
from wtb.authoring.code.drafts import Draft
from wtb.authoring.code.import_paths import load
from wtb.authoring.code.recipe import Recipe
from wtb.authoring.evaluation.declarations import BY_PATH, make_evaluator
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.nodes import Backoff
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.config.run_options import Run
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, WTBError
from wtb.core.tree.stored_code import RecordedCode, check_stored
from wtb.core.tree.stored_spec import read_evaluators
from wtb.execution.engine.described_engine import DescribedEngine
from wtb.execution.engine.description import CodeDescription, NamesDescription
from wtb.execution.engine.executor import CodeExecutor
from wtb.execution.engine.imports import have_changed
from wtb.execution.engine.redacting import redacting
from wtb.execution.sandbox.heads import NO_CODE, CodeHead
from wtb.execution.sandbox.node_process import NO_MESSAGE, NodeProcess, ProcessDied, Setup
from wtb.execution.sandbox.pool import InProcesses, UserCode, setup_of
from wtb.planning.binding import Bound
from wtb.planning.factors.expansion import expand_factors
from wtb.planning.sweep_spec import SweepSpec
from wtb.store.files.workspaces import Workspaces

T = TypeVar("T")
MOST = 10_000_000  # characters of a description


@frozen
class DescribedCode:
    """The description of code, and the node process that made it, which has the code and is ready to run it.

    Attributes:
        description: It, of the shape that it must have; what it claims is the word of user code.
        process: The node process.
    """

    description: CodeDescription
    process: NodeProcess

    def is_outdated(self) -> bool:
        """Return whether a module that was imported for it has changed on disk since."""
        return have_changed(self.description["files"])

    @property
    def recipe(self) -> Recipe:
        return Recipe.read(self.description["recipe"])

    @property
    def head(self) -> CodeHead:
        description = self.description
        return {
            "fingerprints": description["fingerprints"],
            "code": description["code"],
            "outline": description["outline"],
        }


def describe_code(draft: Draft, run: Run, workspaces: Workspaces, owner: str) -> DescribedCode:
    """Have a node process import code and describe it.

    Args:
        draft: What names the code.
        run: How node processes of the sweep are started.
        workspaces: Below whose root it works.
        owner: The runner whose process it is.

    Raises:
        InputError: The code cannot be imported, or does not fit.
        ProcessDied: The process ended over it.
    """
    setup = setup_of(Recipe(None).text(), NO_CODE, run, workspaces, owner)
    setup = replace(setup, head={**setup.head, "draft": draft.text()})
    try:
        return _describe(setup)
    except ProcessDied:  # which something else may have done, such as a lack of memory: code that does it does it again
        return _describe(setup)


def _describe(setup: Setup) -> DescribedCode:
    process = start_process(setup)
    return DescribedCode(read_description(process, checked_description), process)


def describe_evaluators(draft: Draft, run: Run, workspaces: Workspaces, owner: str) -> Callable[[str], Any]:
    """Have a node process describe evaluators. Returns what finds them by path. Raises as `describe_code`."""
    code = describe_code(draft, run, workspaces, owner)
    code.process.close()
    return resolver(code.description)


def describe_registered(names: Sequence[RegisteredName], workspaces: Workspaces, owner: str) -> NamesDescription:
    """Have a node process import and describe what is registered.

    If one ends over it, each name gets a process of its own, and the guilty ones are described as what they did.

    Args:
        names: What is registered.
        workspaces: Below whose root it works.
        owner: Whose processes they are.
    """
    try:
        return _describe_names(names, workspaces, owner)
    except WTBError as error:
        if len(names) == 1:
            (name,) = names
            return {"names": [{**name, "description": None, "error": str(error)}], "files": []}
        parts = [describe_registered([name], workspaces, owner) for name in names]
        return {
            "names": [one for part in parts for one in part["names"]],
            "files": [one for part in parts for one in part["files"]],
        }


def _describe_names(names: Sequence[RegisteredName], workspaces: Workspaces, owner: str) -> NamesDescription:
    setup = setup_of(Recipe(None).text(), NO_CODE, Run(), workspaces, owner)
    sent = [{"kind": one["kind"], "name": one["name"], "path": one["path"]} for one in names]
    process = start_process(replace(setup, head={**setup.head, "names": sent}))
    description = read_description(process, partial(_checked_names, names))
    process.close()
    return description


def start_process(setup: Setup) -> NodeProcess:
    """Start a node process. Raises WTBError."""
    try:
        return NodeProcess(setup)
    except OSError as error:
        raise WTBError(f"a node process cannot start: {error}") from error


def read_description(process: NodeProcess, check: Callable[[Any], T]) -> T:
    """Wait for what a process describes; it is ended if that is none. Raises WTBError."""
    try:
        head = process.ready()
        try:
            return shaped(lambda: check(head))
        except Malformed as error:
            raise ProcessDied(NO_MESSAGE.format(error)) from error
    except BaseException:
        process.close()
        raise


def _checked_names(names: Sequence[RegisteredName], head: Any) -> NamesDescription:
    """Read descriptions of names, which are those of the project whatever a process claims."""
    described: list[DescribedName] = []
    for name, one in zip(names, head["names"], strict=True):
        description, error = optional(_text, one["description"]), optional(_text, one["error"])
        if description is not None:
            json.loads(description)
        described.append({**name, "description": description, "error": error})
    return {"names": described, "files": head["files"]}


def _text(value: Any) -> str:
    return text(value, MOST)


def checked_description(head: Any) -> CodeDescription:
    """Read a description as whoever uses it does. Raises what `shaped` turns into Malformed."""
    description: CodeDescription = head
    Recipe.read(description["recipe"])
    if not isinstance(description["files"], list) or not isinstance(description["vary"], dict):
        raise Malformed("a description of code without its parts")
    check_stored(description["code"])
    check_stored(description["evaluator_code"]["code"])
    if description["workflow"] is not None:
        DescribedEngine(described_facts(description), description)
    for one in description["evaluators"].values():
        evaluator_function_of(one)
    return description


def described_facts(description: CodeDescription) -> WorkflowFacts:
    """Read the facts of the workflow that was described, with what only runners read of its nodes and tools."""
    assert description["workflow"] is not None, "only evaluators were described"
    facts = facts_of(description["workflow"])
    for name, node in facts.nodes.items():
        node.rules = replace(node.rules, backoff=Backoff(*description["nodes"][name]["backoff"]))
    reversible = facts.tools.keys() - set(description["irreversible"])
    tools = {**facts.tools, **{name: replace(facts.tools[name], reverse=_elsewhere) for name in reversible}}
    return replace(facts, tools=tools)


def described_evaluators(description: CodeDescription, recipe: Recipe) -> list[Evaluator]:
    """Make what a runner reads of evaluators. Raises InputError."""
    evaluators = (make_evaluator(one.name, one.options, resolver(description)) for one in recipe.evaluators)
    return [
        replace(evaluator, name=one.shown or evaluator.name)
        for evaluator, one in zip(evaluators, recipe.evaluators, strict=True)
    ]


def resolver(description: CodeDescription) -> Callable[[str], Any]:
    """Return what finds evaluators by path: those of WTB itself, and those that were described."""

    def resolve(path: str) -> Any:
        if path in BY_PATH.values():
            return load(path)
        if path not in description["evaluators"]:
            raise InputError(f"{path!r} is not an evaluator")
        return evaluator_function_of(description["evaluators"][path])

    return resolve


@frozen
class DescribedBound(Bound):
    """A sweep bound to code that was described.

    Attributes:
        described: The code; its node process may have ended.
    """

    described: DescribedCode = field(kw_only=True)

    @cached_property
    def evaluator_code(self) -> RecordedCode:
        """The code of its evaluators as it was when it was described."""
        return read_evaluators(self.described.description["evaluator_code"])


def bind_described(spec: SweepSpec, code: DescribedCode) -> DescribedBound:
    """Bind a sweep to code that was described. Raises InputError."""
    description, recipe = code.description, code.recipe
    facts = described_facts(description)
    if spec.has_factors:  # whoever described the code has checked them against it
        spec, _ = expand_factors(spec, facts)
    return DescribedBound(
        spec,
        DescribedWorkflow(facts),
        facts,
        description["vary"],
        described_evaluators(description, recipe),
        description["fingerprints"],
        recipe.params or {},
        recipe,
        code=description["code"],
        described=code,
    )


def run_described(
    bound: Bound,
    code: DescribedCode,
    workspaces: Workspaces,
    owner: str,
    slots: int,
    *,
    is_ready: bool = True,
    unshared: int | None = None,
) -> CodeExecutor:
    """Run code that was described in node processes.

    Args:
        bound: The sweep, bound to that code.
        code: The code.
        workspaces: Below whose root they work.
        owner: The runner whose processes they are.
        slots: The maximum number of node processes.
        is_ready: Whether the process that described the code is one of them; it works below the same root.
        unshared: The maximum number of those that serve one node run at a time; without it, `slots`.
    """
    engine = DescribedEngine(bound.workflow, code.description)
    user_code = UserCode(engine, bound.evaluators, code.recipe, code.head)
    first = code.process if is_ready else None
    executor = InProcesses(user_code, bound.spec.run, workspaces, owner, slots, first, unshared=unshared)
    return redacting(executor, bound.spec.redact.redactor)


def _elsewhere(*_: object, **__: object) -> None:
    """Stand for a function that node processes have."""

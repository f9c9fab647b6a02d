"""The code of a sweep as described by a node process, for runners that import no user code."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from wtb.authoring.boundary import Malformed, optional, shaped, text
from wtb.authoring.code.described import DescribedWorkflow, evaluator_function_of, facts_of
from wtb.authoring.code.describing import DescribedName, RegisteredName
from wtb.authoring.code.import_paths import load
from wtb.authoring.code.recipe import Draft, Recipe
from wtb.authoring.evaluation.declarations import BY_PATH, make_evaluator
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.nodes import Backoff
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.config.run_options import Run
from wtb.core.errors import InputError, WTBError
from wtb.core.frozen import frozen
from wtb.core.tree.stored_code import RecordedCode, check_stored
from wtb.core.tree.stored_spec import read_evaluators
from wtb.execution.engine.description import CodeDescription, DescribedEngine, NamesDescription, have_changed
from wtb.execution.engine.executor import CodeExecutor
from wtb.execution.engine.redacting import redacting
from wtb.execution.sandbox.framing import NO_CODE, CodeHead
from wtb.execution.sandbox.node_process import NO_MESSAGE, NodeProcess, ProcessDied, Setup
from wtb.execution.sandbox.pool import InProcesses, UserCode, setup_of
from wtb.planning.binding import Bound
from wtb.planning.expansion import expand_factors
from wtb.planning.sweep_spec import SweepSpec
from wtb.store.files.workspaces import Workspaces

T = TypeVar("T")
LONGEST_DESCRIPTION = 10_000_000  # characters of a description


@frozen
class DescribedCode:
    """The description of code, and the node process that made it, which has the code and is ready to run it.

    Attributes:
        description: The description, checked for its shape. Its contents come from user code and are not trusted.
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
        draft: The names of the code.
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
    except ProcessDied:
        # A lack of memory may have ended it. Code that ends its process does so again.
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
    """Have a node process import and describe registered names.

    If the process ends, each name gets a process of its own, and the names that end theirs are described by the error.

    Args:
        names: The registered names.
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
            "names": [described for part in parts for described in part["names"]],
            "files": [file for part in parts for file in part["files"]],
        }


def _describe_names(names: Sequence[RegisteredName], workspaces: Workspaces, owner: str) -> NamesDescription:
    setup = setup_of(Recipe(None).text(), NO_CODE, Run(), workspaces, owner)
    sent = [{"kind": name["kind"], "name": name["name"], "path": name["path"]} for name in names]
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
    """Wait for the description of a process. A process that sends anything else is ended. Raises WTBError."""
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
    """Read descriptions of names. The names themselves are those of the project, whatever a process claims."""
    described: list[DescribedName] = []
    for name, reported in zip(names, head["names"], strict=True):
        description, error = optional(_text, reported["description"]), optional(_text, reported["error"])
        if description is not None:
            json.loads(description)
        described.append({**name, "description": description, "error": error})
    return {"names": described, "files": head["files"]}


def _text(value: Any) -> str:
    return text(value, LONGEST_DESCRIPTION)


def checked_description(head: Any) -> CodeDescription:
    """Check a description by reading it as its users do. Raises what `shaped` turns into Malformed."""
    description: CodeDescription = head
    Recipe.read(description["recipe"])
    if not isinstance(description["files"], list) or not isinstance(description["vary"], dict):
        raise Malformed("a description of code without its parts")
    check_stored(description["code"])
    check_stored(description["evaluator_code"]["code"])
    if description["workflow"] is not None:
        # Made only to be checked: a description that cannot be used fails here, where its process can still be ended.
        DescribedEngine(described_facts(description), description)
    for evaluator in description["evaluators"].values():
        evaluator_function_of(evaluator)
    return description


def described_facts(description: CodeDescription) -> WorkflowFacts:
    """Read the facts of the described workflow, with those of nodes and tools that only runners need."""
    assert description["workflow"] is not None, "only evaluators were described"
    facts = facts_of(description["workflow"])
    for name, node in facts.nodes.items():
        node.rules = replace(node.rules, backoff=Backoff(*description["nodes"][name]["backoff"]))
    reversible = facts.tools.keys() - set(description["irreversible"])
    tools = {**facts.tools, **{name: replace(facts.tools[name], reverse=_elsewhere) for name in reversible}}
    return replace(facts, tools=tools)


def described_evaluators(description: CodeDescription, recipe: Recipe) -> list[Evaluator]:
    """Make the evaluators, without their functions, as a runner reads them. Raises InputError."""
    evaluators = (
        make_evaluator(declared.name, declared.options, resolver(description)) for declared in recipe.evaluators
    )
    return [
        replace(evaluator, name=declared.shown or evaluator.name)
        for evaluator, declared in zip(evaluators, recipe.evaluators, strict=True)
    ]


def resolver(description: CodeDescription) -> Callable[[str], Any]:
    """Return a function that finds evaluators by path: those of WTB itself, and described ones."""

    def resolve(path: str) -> Any:
        # WTB's own evaluators are safe to import in the runner; user code is not.
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
    """Stand in for a function that only node processes have."""

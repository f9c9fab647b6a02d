"""What a runner must know of user code, as data: a node process makes it, and the runner imports nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from typing_extensions import TypedDict

from wtb.authoring.code.describing import (
    DescribedName,
    RegisteredName,
    describe_evaluator,
    describe_workflow,
    described_names,
)
from wtb.authoring.code.drafts import Draft, ImportedCode, complete
from wtb.authoring.code.fingerprint import evaluator_code, present_code
from wtb.authoring.code.recipe import Recipe
from wtb.authoring.evaluation.adapters import adapted
from wtb.authoring.evaluation.declarations import BY_PATH
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.graph_snapshot import outline_digest
from wtb.authoring.workflow import Workflow
from wtb.core.documents.workflows.publications import EvaluatorDescription, WorkflowDescription
from wtb.core.errors import InputError, WTBError
from wtb.core.mappings import Namespace
from wtb.core.tree.stored_code import StoredCode, stored_code
from wtb.core.tree.stored_spec import StoredEvaluators, stored_evaluators
from wtb.execution.engine.imports import ImportedFile, imports
from wtb.execution.engine.protocol import engine_of


class NodeTraits(TypedDict):
    """What a node has beyond a published one. backoff: initial, factor, maximum. asynchronous: names of variants."""

    backoff: tuple[float, float, float]
    asynchronous: list[str]


class CodeDescription(TypedDict):
    """The code of a sweep.

    Attributes:
        workflow: The workflow with the variants of the sweep; None if only evaluators were wanted.
        nodes: More of each node.
        irreversible: Names of tools that cannot be taken back.
        begins_here: Whether to begin runs no user code.
        evaluators: By import path, those that the sweep names.
        evaluator_code: The code, options and declarations behind those that the sweep names.
        vary: The names of the variants of each varied node.
        fingerprints: The code of each variant of the varied nodes.
        code: What the fingerprints rest on.
        outline: The digest of everything else about the workflow.
        recipe: How other node processes make the same, as typed JSON.
        files: The modules of the project that were imported, as they were then.
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
    """What is registered in the project, and the modules that were imported for it."""

    names: list[DescribedName]
    files: list[ImportedFile]


class _Recorded(ImportedCode):
    """Code that this process imports. loaded: what it was asked for by path. permitted: the paths that it may be."""

    def __init__(self, permitted: Sequence[str] | None) -> None:
        self.loaded: dict[str, Any] = {}
        self._permitted = permitted

    def load(self, path: str) -> Any:
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
    """Import what is registered, and describe it."""
    with imports.fresh():
        described = described_names(cast(Sequence[RegisteredName], names))
    return {"names": described, "files": imports.files()}


def _evaluators(loaded: Namespace) -> Any:
    """Yield the path and the description of each function that can be an evaluator."""
    for path, written in loaded.items():
        if path not in BY_PATH.values():
            with suppress(WTBError):  # a variant that no evaluator can be
                function = adapted(path, written)
                if callable(function):
                    yield path, describe_evaluator(function, schemas=False)

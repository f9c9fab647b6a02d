"""The samples and scorers of a task of Inspect, by its import path. What has no counterpart is named, and left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from wtb.authoring.code.import_paths import load
from wtb.core.errors import InputError, describe
from wtb.core.values import Json
from wtb.planning.importing.promptfoo_assertions import Grader

FIELD: Final = "answer"  # the key of the state that the workflow has to write
INPUT: Final = "prompt"
_SAMPLE_KEYS = ("sandbox", "files", "setup")  # of a sample, which nothing here does
_TASK_KEYS = ("setup", "sandbox", "approval", "tools")
_BY_MODELS = {  # what they ask, as criteria of a judge that sees the target
    "model_graded_qa": "The answer is correct by the reference.",
    "model_graded_fact": "The answer states the fact of the reference.",
}
_OF_CHOICES = "choice"  # reads what its own solver marks

CaseRow = dict[str, Json]


@dataclass
class ImportedTask:
    """What a task comes to.

    Attributes:
        name: Its name.
        cases: Its samples, as of a cases file.
        evaluators: Its scorers, as of a sweep file.
        repeats: Its epochs.
        left_out: What was not brought over, in words, each with its place.
    """

    name: str
    cases: list[CaseRow] = field(default_factory=list)
    evaluators: list[dict[str, dict[str, Json]]] = field(default_factory=list)
    repeats: int = 1
    left_out: list[str] = field(default_factory=list)


def import_inspect(path: str, grader: Grader | None = None) -> ImportedTask:
    """Make a task of Inspect, and read what it asks.

    Args:
        path: The import path of a task, or of a function with `@task` that needs no arguments.
        grader: The model that is asked in place of those that scorers ask; without it, these are left out.

    Returns:
        Its samples and scorers, and what of it has no counterpart.

    Raises:
        InputError: There is no such task, or it cannot be made.
    """
    task = _make_task(path, load(path))
    imported = ImportedTask(str(getattr(task, "name", None) or path.partition(":")[2]))
    for number, sample in enumerate(task.dataset):
        imported.cases.append(_case(number, sample, imported.left_out))
    imported.evaluators = list(_evaluators(_listed(getattr(task, "scorer", None)), grader, imported.left_out))
    imported.repeats = int(getattr(task, "epochs", None) or 1)
    solver = getattr(task, "solver", None)
    imported.left_out += [f"solver: {_name(part)}" for part in _listed(solver) if _name(part) != "generate"]
    imported.left_out += [key for key in _TASK_KEYS if getattr(task, key, None)]
    imported.left_out = list(dict.fromkeys(imported.left_out))
    return imported


def _make_task(path: str, thing: Any) -> Any:
    """The task that stands at a path. Raises InputError."""
    if getattr(getattr(thing, "__registry_info__", None), "type", None) == "task" and callable(thing):
        try:
            thing = thing()
        except Exception as error:  # noqa: BLE001 (whatever a task raises, it cannot be brought over)
            raise InputError(f"{path} cannot be made: {type(error).__name__}: {error!s:.300}") from None
    if not any(kind.__module__.startswith("inspect_ai.") and kind.__name__ == "Task" for kind in type(thing).__mro__):
        raise InputError(f"{path} is {describe(thing)}; expected a task of Inspect, or a function with @task")
    return thing


def _listed(thing: Any) -> Iterable[Any]:
    """What is one of something, or several."""
    if thing is None:
        return []
    return thing if isinstance(thing, Sequence) else [thing]


def _name(thing: Any) -> str:
    """What Inspect calls a scorer or solver, without its package."""
    info = getattr(thing, "__registry_info__", None)
    return str(getattr(info, "name", None) or type(thing).__name__).removeprefix("inspect_ai/")


def _case(number: int, sample: Any, left_out: list[str]) -> CaseRow:
    case: CaseRow = {"id": str(number + 1 if sample.id is None else sample.id)}
    case_input: dict[str, Json] = {INPUT: _text(sample.input)}
    if sample.choices:
        case_input["choices"] = [str(choice) for choice in sample.choices]
    case["input"] = case_input
    if sample.target not in (None, "", []):
        case["expected"] = (
            sample.target if isinstance(sample.target, str) else [str(target) for target in sample.target]
        )
    left_out += [f"samples: {key}" for key in _SAMPLE_KEYS if getattr(sample, key, None)]
    left_out += ["samples: metadata"] if sample.metadata else []
    return case


def _text(content: Any) -> str:
    """The input of a sample: text, or the messages of a conversation with who says each."""
    if isinstance(content, str):
        return content
    return "\n\n".join(f"{message.role}: {message.text}" if len(content) > 1 else message.text for message in content)


def _evaluators(
    scorers: Iterable[Any], grader: Grader | None, left_out: list[str]
) -> Iterator[dict[str, dict[str, Json]]]:
    """Scorers of Inspect itself by their import path, with the arguments that they were made with."""
    for scorer in scorers:
        name = str(getattr(getattr(scorer, "__registry_info__", None), "name", None) or type(scorer).__name__)
        short = name.removeprefix("inspect_ai/")
        arguments = getattr(scorer, "__registry_params__", {})
        if short in _BY_MODELS and short != name and grader is not None and arguments.keys() <= {"model"}:
            yield grader.judge(_BY_MODELS[short], name=short, reference=True)
            continue
        if short in (name, _OF_CHOICES, *_BY_MODELS) or not _is_json(arguments):
            left_out.append(f"scorer: {short}")
            continue
        options: dict[str, Json] = {"field": FIELD, **({"arguments": dict(arguments)} if arguments else {})}
        yield {f"inspect_ai.scorer:{short}": options}


def _is_json(value: Mapping[str, Any]) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True

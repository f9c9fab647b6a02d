"""Files of an imported project: cases, a sweep file, and a workflow that lacks the call of a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from wtb.authoring.code.import_paths import load
from wtb.core.errors import InputError, describe
from wtb.core.frozen import frozen
from wtb.core.values import Json
from wtb.features.importers.promptfoo import VARIABLE, Imported, import_promptfoo
from wtb.features.importers.promptfoo_assertions import FIELD, Grader, grader_of
from wtb.features.importers.promptfoo_files import Provider, chat_of, grids

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
    """An imported task.

    Attributes:
        name: Its name.
        cases: Its samples, as rows of a cases file.
        evaluators: Its scorers, as entries of a sweep file.
        repeats: Its epochs.
        left_out: The parts that were not imported, each with its place.
    """

    name: str
    cases: list[CaseRow] = field(default_factory=list)
    evaluators: list[dict[str, dict[str, Json]]] = field(default_factory=list)
    repeats: int = 1
    left_out: list[str] = field(default_factory=list)


def import_inspect(path: str, grader: Grader | None = None) -> ImportedTask:
    """Import a task of Inspect.

    Args:
        path: The import path of a task, or of a function with `@task` that needs no arguments.
        grader: The model that replaces those that scorers ask; without it, these are left out.

    Returns:
        Its samples and scorers, and the parts without a counterpart.

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
    # Every sample may lack the same counterpart; each is listed once.
    imported.left_out = list(dict.fromkeys(imported.left_out))
    return imported


def _make_task(path: str, candidate: Any) -> Any:
    """Return the task at a path. Raises InputError."""
    if getattr(getattr(candidate, "__registry_info__", None), "type", None) == "task" and callable(candidate):
        try:
            candidate = candidate()
        except Exception as error:  # noqa: BLE001 (whatever a task raises, it cannot be brought over)
            raise InputError(f"{path} cannot be made: {type(error).__name__}: {error!s:.300}") from None
    # Compared by name, because Inspect need not be installed where WTB runs.
    if not any(
        kind.__module__.startswith("inspect_ai.") and kind.__name__ == "Task" for kind in type(candidate).__mro__
    ):
        raise InputError(f"{path} is {describe(candidate)}; expected a task of Inspect, or a function with @task")
    return candidate


def _listed(members: Any) -> Iterable[Any]:
    """Return one or several things as a list."""
    if members is None:
        return []
    return members if isinstance(members, Sequence) else [members]


def _name(named_object: Any) -> str:
    """Return the name of a scorer or solver in Inspect, without its package."""
    info = getattr(named_object, "__registry_info__", None)
    return str(getattr(info, "name", None) or type(named_object).__name__).removeprefix("inspect_ai/")


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
    """Return the input of a sample: text, or the messages of a conversation with their roles."""
    if isinstance(content, str):
        return content
    return "\n\n".join(f"{message.role}: {message.text}" if len(content) > 1 else message.text for message in content)


def _evaluators(
    scorers: Iterable[Any], grader: Grader | None, left_out: list[str]
) -> Iterator[dict[str, dict[str, Json]]]:
    """Yield Inspect's own scorers by their import path, with the arguments that they were made with."""
    for scorer in scorers:
        name = str(getattr(getattr(scorer, "__registry_info__", None), "name", None) or type(scorer).__name__)
        short = name.removeprefix("inspect_ai/")
        arguments = getattr(scorer, "__registry_params__", {})
        if short in _BY_MODELS and short != name and grader is not None and arguments.keys() <= {"model"}:
            yield grader.judge(_BY_MODELS[short], name=short, reference=True)
            continue
        # Scorers of other packages, or with arguments that a sweep file cannot hold, have no import path that would
        # rebuild them.
        if short in (name, _OF_CHOICES, *_BY_MODELS) or not _is_json(arguments):
            left_out.append(f"scorer: {short}")
            continue
        options: dict[str, Json] = {"field": FIELD, **({"arguments": dict(arguments)} if arguments else {})}
        yield {f"inspect_ai.scorer:{short}": options}


def _is_json(mapping: Mapping[str, Any]) -> bool:
    try:
        json.dumps(mapping)
    except (TypeError, ValueError):
        return False
    return True


_SWEEP = """workflow: workflow:wf
cases: cases.jsonl
vary:
  answer:
%(grids)s
evaluate: [assertions]
"""
_WORKFLOW = '''"""Prompts%(of_models)s as parameters of one node.%(to_do)s"""

import json
import re
%(imports)s
from wtb import Workflow
%(own_imports)s
VARIABLE = re.compile(r"%(variable)s")
%(protocols)s
wf = Workflow("imported")


%(ask)s


def written(value) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def filled(prompt: str, state) -> str:
    return VARIABLE.sub(lambda found: written(state.get(found[1])), prompt)

%(chat)s
@wf.node
def answer(state, *, prompt: str = "%(first)s"%(parameters)s):
    return {"%(field)s": ask(%(filled)s(prompt, state)%(given)s)}


wf.entry(answer)
'''
_ASK = '''@cache
def client(protocol: str):
    """The keys are those of OPENAI_API_KEY and ANTHROPIC_API_KEY; OPENAI_BASE_URL names another server."""
    if protocol == "anthropic":
        from anthropic import Anthropic

        return Anthropic()
    from openai import OpenAI

    return OpenAI()


def ask(prompt: %(prompt)s, model: str, **settings) -> str:
    given = {name: value for name, value in settings.items() if value is not None}
    return complete(client(PROTOCOLS[model]), prompt, model=model, **given)'''
_OWN_ASK = """def ask(prompt: %(prompt)s) -> str:
    raise NotImplementedError("call your model here")"""

_CHAT = '''
def messages(prompt: str, state) -> str | list[dict[str, str]]:
    """A prompt in JSON is a list of messages, with variables in their contents; any other is text."""
    try:
        chat = json.loads(prompt)
    except ValueError:
        return filled(prompt, state)
    return [{**one, "content": filled(one["content"], state)} for one in chat]

'''


_TASK = '''"""What a task of Inspect asks. Put the call of your model, or your agent, into `ask`."""

from wtb import Workflow

wf = Workflow("imported")


def ask(prompt: str) -> str:
    raise NotImplementedError("call your model here")


@wf.node
def answer(state):
    choices = [f"{chr(ord('A') + number)}) {one}" for number, one in enumerate(state.get("choices") or [])]
    return {"%(field)s": ask("\\n".join([state["%(input)s"], *choices]))}


wf.entry(answer)
'''


@frozen
class ImportedProject:
    """A project imported from another tool.

    Attributes:
        files: The texts of its files, by name.
        left_out: The parts that were not imported, each with its place.
        asks: True if its workflow asks a model; otherwise that call has to be written.
    """

    files: Mapping[str, str]
    left_out: Sequence[str]
    asks: bool = False


def import_project(source: Path, judge: str | None = None) -> ImportedProject:
    """Import the configuration of another tool as the files of a project.

    Args:
        source: A configuration of promptfoo, or the import path of a task of Inspect.
        judge: The model for parts that ask a model without naming one, such as `gpt-4o-mini` or
            `anthropic:claude-sonnet-4-5`.

    Returns:
        The files, and the parts that were left out.

    Raises:
        InputError: It cannot be read, has no tests or samples, or none of its prompts can be imported.
    """
    # A name without a protocol is that of an OpenAI model.
    grader = None if judge is None else grader_of(judge) or Grader(judge)
    # The name of a file may have a colon, too, as import paths do.
    if ":" in str(source) and not source.exists():
        return _of_task(import_inspect(str(source), grader))
    imported = import_promptfoo(source, grader)
    return ImportedProject(_files(imported), imported.left_out, bool(imported.providers))


def _of_task(task: ImportedTask) -> ImportedProject:
    if not task.evaluators:
        raise InputError(f"{task.name}: no scorer that can be imported: {'; '.join(task.left_out) or 'it has none'}")
    sweep = ["workflow: workflow:wf", "cases: cases.jsonl", "vary: {answer: all}"]
    sweep += [f"repeats: {task.repeats}"] if task.repeats > 1 else []
    sweep += ["evaluate:", *(f"  - {json.dumps(evaluator, ensure_ascii=False)}" for evaluator in task.evaluators)]
    files = {
        "cases.jsonl": "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in task.cases),
        "sweep.yaml": "\n".join(sweep) + "\n",
        "workflow.py": _TASK % {"field": FIELD, "input": INPUT},
    }
    return ImportedProject(files, task.left_out)


def _files(imported: Imported) -> Mapping[str, str]:
    texts = imported.prompts or {"prompt_1": ""}
    has_chat = any(chat_of(text) for text in texts.values())
    prompts = {f"imported_prompts/{name}.{'json' if chat_of(text) else 'txt'}": text for name, text in texts.items()}
    varied = grids([f"file://{path}" for path in prompts], imported.providers)
    lines = [f"    - {json.dumps(grid, ensure_ascii=False)}" for grid in varied]
    return {
        "cases.jsonl": "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in imported.cases),
        **prompts,
        "sweep.yaml": _SWEEP % {"grids": "\n".join(lines)},
        "workflow.py": _workflow(imported.providers, has_chat=has_chat),
    }


def _workflow(providers: Sequence[Provider], *, has_chat: bool) -> str:
    """Return the code of a workflow that asks models; without models, the call has to be written."""
    common = {"field": FIELD, "variable": VARIABLE.pattern, "first": ""}
    common |= {"chat": _CHAT, "filled": "messages"} if has_chat else {"chat": "", "filled": "filled"}
    kind = {"prompt": "str | list[dict[str, str]]" if has_chat else "str"}
    if not providers:
        nothing = dict.fromkeys(("of_models", "imports", "own_imports", "protocols", "parameters", "given"), "")
        to_do = " Put the call of your model into `ask`."
        return _WORKFLOW % {**common, **nothing, "ask": _OWN_ASK % kind, "to_do": to_do}
    settings = list(dict.fromkeys(name for provider in providers for name in provider.settings))
    models = {provider.model.model: provider.model.protocol for provider in providers}
    return _WORKFLOW % {
        **common,
        "of_models": ", models and settings" if settings else " and models",
        "to_do": "",
        "imports": "from functools import cache\n",
        "own_imports": "from wtb.integrations.models import complete\n",
        "protocols": f"PROTOCOLS = {json.dumps(models)}  # of each model\n",
        "ask": _ASK % kind,
        "parameters": "".join([f", model: str = {json.dumps(next(iter(models)))}", *(f", {s}=None" for s in settings)]),
        "given": "".join([", model", *(f", {name}={name}" for name in settings)]),
    }

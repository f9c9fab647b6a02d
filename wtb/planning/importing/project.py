"""Files to start from, of what was imported: cases, a sweep file, and a workflow that wants the call of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.planning.importing import inspect_tasks
from wtb.planning.importing.promptfoo import VARIABLE, Imported, import_promptfoo
from wtb.planning.importing.promptfoo_assertions import FIELD, Grader, grader_of
from wtb.planning.importing.promptfoo_files import chat_of
from wtb.planning.importing.promptfoo_providers import Provider, grids

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
    """A project of what another tool had.

    Attributes:
        files: Their texts, by name.
        left_out: What was not brought over, each with its place.
        asks: Whether its workflow asks a model; else that is to be written.
    """

    files: Mapping[str, str]
    left_out: Sequence[str]
    asks: bool = False


def import_project(source: Path, judge: str | None = None) -> ImportedProject:
    """Read what another tool had as the files of a project.

    Args:
        source: A configuration of promptfoo, or the import path of a task of Inspect.
        judge: The model that is asked by what asks a model and names none, such as `gpt-4o-mini` or
            `anthropic:claude-sonnet-4-5`.

    Returns:
        The files, and what was left out.

    Raises:
        InputError: It cannot be read, has no tests or samples in it, or has prompts of which none can be brought over.
    """
    grader = None if judge is None else grader_of(judge) or Grader(judge)
    if ":" in str(source) and not source.exists():
        return _of_task(inspect_tasks.import_inspect(str(source), grader))
    imported = import_promptfoo(source, grader)
    return ImportedProject(_files(imported), imported.left_out, bool(imported.providers))


def _of_task(task: inspect_tasks.ImportedTask) -> ImportedProject:
    if not task.evaluators:
        raise InputError(
            f"{task.name}: no scorer that can be brought over: {'; '.join(task.left_out) or 'it has none'}"
        )
    sweep = ["workflow: workflow:wf", "cases: cases.jsonl", "vary: {answer: all}"]
    sweep += [f"repeats: {task.repeats}"] if task.repeats > 1 else []
    sweep += ["evaluate:", *(f"  - {json.dumps(evaluator, ensure_ascii=False)}" for evaluator in task.evaluators)]
    files = {
        "cases.jsonl": "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in task.cases),
        "sweep.yaml": "\n".join(sweep) + "\n",
        "workflow.py": _TASK % {"field": inspect_tasks.FIELD, "input": inspect_tasks.INPUT},
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
    """The code of a workflow that asks models with their settings; without one, what asks is for whoever has it."""
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

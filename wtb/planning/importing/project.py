"""Files to start from, of what was imported: cases, a sweep file, and a workflow that wants the call of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wtb.core.errors import InputError
from wtb.planning.importing import inspect_tasks
from wtb.planning.importing.promptfoo import VARIABLE, Imported, import_promptfoo
from wtb.planning.importing.promptfoo_assertions import FIELD, Grader, grader_of

_SWEEP = """workflow: workflow:wf
cases: cases.jsonl
vary: {answer: all}
evaluate: [assertions]
"""
_WORKFLOW = '''"""Prompts as variants of one node. Put the call of your model into `ask`."""

import json
import re

from wtb import Workflow

VARIABLE = re.compile(r"%(variable)s")
PROMPTS = [
%(prompts)s]

wf = Workflow("imported")


def ask(prompt: str) -> str:
    raise NotImplementedError("call your model here")


def written(value) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


@wf.node
def answer(state, *, prompt: int = 0):
    return {"%(field)s": ask(VARIABLE.sub(lambda found: written(state.get(found[1])), PROMPTS[prompt]))}


for number in range(1, len(PROMPTS)):
    answer.variant(f"prompt_{number}", prompt=number)
wf.entry(answer)
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


@dataclass(frozen=True)
class ImportedProject:
    """A project of what another tool had.

    Attributes:
        files: Their texts, by name.
        left_out: What was not brought over, each with its place.
    """

    files: Mapping[str, str]
    left_out: Sequence[str]


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
    return ImportedProject(_files(imported), imported.left_out)


def _of_task(task: inspect_tasks.ImportedTask) -> ImportedProject:
    if not task.evaluators:
        raise InputError(
            f"{task.name}: no scorer that can be brought over: {'; '.join(task.left_out) or 'it has none'}"
        )
    sweep = ["workflow: workflow:wf", "cases: cases.jsonl", "vary: {answer: all}"]
    sweep += [f"repeats: {task.repeats}"] if task.repeats > 1 else []
    sweep += ["evaluate:", *(f"  - {json.dumps(one, ensure_ascii=False)}" for one in task.evaluators)]
    files = {
        "cases.jsonl": "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in task.cases),
        "sweep.yaml": "\n".join(sweep) + "\n",
        "workflow.py": _TASK % {"field": inspect_tasks.FIELD, "input": inspect_tasks.INPUT},
    }
    return ImportedProject(files, task.left_out)


def _files(imported: Imported) -> Mapping[str, str]:
    prompts = "".join(f"    {prompt!r},\n" for prompt in imported.prompts or [""])
    return {
        "cases.jsonl": "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in imported.cases),
        "sweep.yaml": _SWEEP,
        "workflow.py": _WORKFLOW % {"prompts": prompts, "field": FIELD, "variable": VARIABLE.pattern},
    }

"""The tools of agents: each calls an operation of the registry, or one of a few, depending on its arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from typing_extensions import TypedDict

from wtb.core.documents.matrix import MatrixDocument
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.scoring.scores import MOST_COMMENT
from wtb.core.status import FINAL_CELLS
from wtb.core.texts import plural
from wtb.core.values import Arguments, Json, JsonSchema
from wtb.display import pivot_text, recommendation, row_view
from wtb.display.sentences import answers, noise
from wtb.display.text import added_cases
from wtb.display.text.comparisons import two_rows
from wtb.display.text.plan import render
from wtb.hosting.agent_catalog import catalog, in_words
from wtb.operations.context import Context
from wtb.operations.inspection.sweeps import outcome
from wtb.operations.registry import OPERATIONS, Effect, Operation

MOST_WAIT_S: Final = 20.0
MOST_CELLS: Final = 200
_WIDTH: Final = 120


class ToolArguments(TypedDict, total=False):
    """The arguments of all tools, as in their schemas; `confirm` is removed before a tool is called.

    The schema of a tool lists its arguments and those that are required.
    """

    sweep: Json  # the keys of a sweep file; of `cases` the id or name of a sweep
    workflow: str
    input: Mapping[str, Json]
    variants: Mapping[str, Json]
    from_node: str
    until: str
    limits: Mapping[str, Json]
    wait_s: float
    priority: int
    ref: str
    where: Sequence[str]
    within: bool
    sort: str
    group_by: Sequence[str]
    pivot: Sequence[str]
    metric: str
    row: int
    other: int
    before: str
    after: str
    case: str
    status: str
    execution: str
    calls: bool
    state: Json  # of `history` whether to show it; of `try` the keys of a state
    a: str
    b: str
    at: str
    set: Mapping[str, Json]
    all_cases: bool
    reason: str
    cases: Json
    repeats: int
    vary: Mapping[str, Json]
    new_name: str
    allow_code_change: bool
    action: str
    choice: str
    feedback: str
    value: Json
    combination: Mapping[str, str]
    provider: bool
    what: str
    limit: int
    text: str
    repeat: int
    columns: Mapping[str, Json]
    evaluator: Json
    expected: Json
    confirm: str


@frozen
class Found:
    """The result of a tool.

    Attributes:
        decision: The result in words.
        document: The full document.
        links: Paths of further documents in the REST API, by name.
        target: The target of a previewed call. Consent is only valid for it, and not for example for another sweep
            that has got the same name since.
    """

    decision: str
    document: object
    links: Mapping[str, str]
    target: str = ""


def path_to(*parts: str) -> str:
    """Return a path of the REST API, with its parts quoted."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


@frozen
class Tool:
    """A tool that agents can call.

    Attributes:
        name: Its name.
        description: Its description for agents.
        properties: Its arguments, as JSON Schema has them.
        required: The required arguments.
        operations: The ids of operations that it may call.
        call: Calls the operation.
        preview: Describes a call that destroys or costs something, without running it.
        chooses: Returns the operation for given arguments; by default the first.
    """

    name: str
    description: str
    properties: JsonSchema
    required: tuple[str, ...]
    operations: tuple[str, ...]
    call: Callable[[Context, ToolArguments], Found]
    preview: Callable[[Context, ToolArguments], Found] | None = None
    chooses: Callable[[ToolArguments], str] | None = None

    @property
    def schema(self) -> dict[str, object]:
        """The JSON Schema of its arguments."""
        confirm = {} if self.preview is None else {"confirm": _CONFIRM}
        return {
            "type": "object",
            "properties": {**self.properties, **confirm},
            "required": list(self.required),
            "additionalProperties": False,
        }

    def operation(self, arguments: ToolArguments) -> str:
        """Return the id of the operation that it calls with these arguments."""
        return self.chooses(arguments) if self.chooses else self.operations[0]

    def needs_consent(self, arguments: ToolArguments) -> bool:
        """Return whether it destroys or costs something with these arguments."""
        return self.acts_by(arguments).effect in (Effect.spends, Effect.destroys)

    def acts_by(self, arguments: ToolArguments) -> Operation:
        """Return the operation that it calls with these arguments."""
        return OPERATIONS[self.operation(arguments)]


def _do(context: Context, name: str, *positional: object, **named: object) -> Any:
    return OPERATIONS[name].function(context, *positional, **named)


def _select_arguments(arguments: Arguments, *names: str) -> dict[str, Any]:
    return {name: arguments[name] for name in names if name in arguments}


def _as_document(reply: object) -> object:
    return asdict(reply) if is_dataclass(reply) and not isinstance(reply, type) else reply


def _plan(context: Context, arguments: ToolArguments) -> Found:
    document = _do(context, "sweeps.plan_published", arguments["sweep"])
    target = json.dumps([document["vary"], document["cells"], document["node_runs"]])
    return Found(render(document, _WIDTH), document, {}, target)


def _submit(context: Context, arguments: ToolArguments) -> Found:
    submitted = _do(context, "sweeps.submit_published", arguments["sweep"], **_select_arguments(arguments, "priority"))
    start = "workers run it" if submitted.started else submitted.problem or "it waits for a worker"
    words = f"Sweep {submitted.sweep} ({submitted.name}) has {submitted.cells:,} cells; {start}. `status` waits for it."
    return Found(words, _as_document(submitted), {"status": f"/sweeps/{submitted.sweep}/status"})


def _start(context: Context, arguments: ToolArguments) -> Found:
    options = _select_arguments(arguments, "variants", "from_node", "until", "limits")
    submitted = _do(context, "executions.start_published", arguments["workflow"], arguments["input"], **options)
    problem = "" if submitted.started else f" {submitted.problem or 'It waits for a worker.'}"
    return show_outcome(context, submitted.sweep, problem)


def _would_start(context: Context, arguments: ToolArguments) -> Found:
    name = arguments["workflow"]
    document = _do(context, "workflows.show", name)
    words = f"This would run {name} once, which costs what its nodes cost."
    return Found(words, document, {"workflow": path_to("workflows", name)}, name)


def show_outcome(context: Context, execution: str, problem: str = "") -> Found:
    """Return the outcome or the status of an execution that `start` began, in words and as a document.

    Args:
        context: The context of the caller.
        execution: Its id.
        problem: The reason why it does not begin at once, as a sentence after a space.
    """
    document = outcome(context, execution)
    words = f"Execution {execution} is {document['status']}{_because(document['reason'])}."
    if document["failure"] is not None:
        words = f"{words} {document['failure']['message']}"
    if questions := document["questions"]:
        words = f"{words} `answer` answers: {'; '.join(str(question['question']) for question in questions)}"
    elif document["status"] in ("pending", "running"):
        words = f"{words}{problem} `status` waits for it."
    return Found(words, document, {"execution": path_to("executions", execution)})


def _history(context: Context, arguments: ToolArguments) -> Found:
    document = _do(context, "checkpoints.list", arguments["ref"], **_select_arguments(arguments, "state"))
    checkpoints = document["checkpoints"]
    words = f"{plural(len(checkpoints), 'checkpoint')}; `checkpoint` shows the state at one of them."
    return Found(words, document, {"history": path_to("executions", arguments["ref"], "history")})


def _checkpoint(context: Context, arguments: ToolArguments) -> Found:
    document = _do(context, "checkpoints.show", arguments["ref"])
    checkpoint = document["checkpoint"]
    following = ", ".join(checkpoint["next"]) or "the end"
    words = f"Checkpoint {checkpoint['id']} after step {checkpoint['step']}; next: {following}."
    return Found(words, document, {"checkpoint": path_to("checkpoints", arguments["ref"])})


def _status(context: Context, arguments: ToolArguments) -> Found:
    document = _do(context, "sweeps.show_status", arguments["ref"])
    if "execution" in document:
        execution = document["execution"]
        words = f"Execution {execution['id']} is {execution['status']}{_because(execution['reason'])}."
        return Found(words, document, {"execution": f"/executions/{execution['id']}"})
    sweep, cells = document["sweep"], document["cells"]
    standing = f"{sweep['name']} ({sweep['id']}) is {sweep['status']}{_because(sweep['reason'])}"
    words = f"{standing}: {sum(cells[name] for name in FINAL_CELLS):,} of {cells['total']:,} cells ended."
    return Found(words, document, {"cells": f"/sweeps/{sweep['id']}/cells"})


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def _matrix(context: Context, arguments: ToolArguments) -> Found:
    document = _do(context, "matrices.show", arguments["ref"], **_select_arguments(arguments, *_VIEW))
    words = " ".join([*recommendation.lines(document), *_answers(document), *row_view.words(document)])
    if "pivot" in document.get("view", {}):
        words = " ".join(pivot_text.notes(document))
    return Found(words, document, {"matrix": f"/sweeps/{document['sweep']['id']}/matrix"})


def _answers(document: MatrixDocument) -> Sequence[str]:
    if lines := answers(document):
        return lines
    why = "yet" if document["metrics"] else "and nothing will be: the sweep has no evaluators (`evaluate`)"
    return [f"Nothing is scored {why}."]


def _explain(context: Context, arguments: ToolArguments) -> Found:
    if "row" in arguments or "other" in arguments:
        return _two_rows(context, arguments)
    document = _do(context, "matrices.show", arguments["ref"])
    noted = [noise(document, metric) for metric in document["best"]]
    words = [*recommendation.lines(document), *_answers(document), *filter(None, noted), *document["warnings"]]
    parts = {name: document.get(name) for name in ("decision", "best", "gates", "failures", "warnings")}
    return Found(" ".join(words), parts, {"matrix": f"/sweeps/{document['sweep']['id']}/matrix"})


def _two_rows(context: Context, arguments: ToolArguments) -> Found:
    rows = (arguments.get("row", 0), arguments.get("other", 0))
    document = _do(context, "combinations.compare", arguments["ref"], *rows, **_select_arguments(arguments, "metric"))
    path = f"/sweeps/{document['sweep']['id']}/compare?row={rows[0]}&other={rows[1]}"
    return Found(two_rows(document, _WIDTH).partition("\n\n")[0], document, {"comparison": path})


def _compare(context: Context, arguments: ToolArguments) -> Found:
    document = _do(context, "sweeps.compare", arguments["before"], arguments["after"])
    words = f"{document['verdict']}: {' '.join(document['because'])}"
    path = f"/sweeps/{document['before']['id']}/compare/{document['after']['id']}"
    return Found(words, document, {"comparison": path})


def _cell(context: Context, arguments: ToolArguments) -> Found:
    if "execution" in arguments:
        document = _do(context, "sweeps.show", arguments["execution"], calls=bool(arguments.get("calls")))
        return Found("One execution in detail.", document, {"execution": path_to("executions", arguments["execution"])})
    if "ref" not in arguments:
        raise InputError("ref or execution is missing; expected a sweep, or an execution", argument="ref")
    filters = _select_arguments(arguments, "case")
    filters |= {"statuses": [arguments["status"]]} if "status" in arguments else {}
    listing = _do(context, "cells.list", arguments["ref"], limit=MOST_CELLS, **filters)
    cells = list(islice(listing.cells, MOST_CELLS))
    words = f"{len(cells):,} cells{' or more' if len(cells) == MOST_CELLS else ''}; `execution` shows one of them."
    return Found(words, {"cells": cells}, {"cells": path_to("sweeps", arguments["ref"], "cells")})


def _diff(context: Context, arguments: ToolArguments) -> Found:
    document = _do(context, "executions.compare", arguments["a"], arguments["b"])
    words = f"They share {document['shared_steps']:,} steps."
    return Found(words, document, {"diff": path_to("executions", arguments["a"], "diff", arguments["b"])})


def _forks_all(arguments: ToolArguments) -> str:
    return "combinations.add" if arguments.get("all_cases") else "executions.fork"


def _fork(context: Context, arguments: ToolArguments) -> Found:
    options = _select_arguments(arguments, "at", "variants", "reason")
    if arguments.get("all_cases"):
        row = _do(context, "combinations.add", arguments["ref"], run=False, **options)
        words = (
            f"Row {row.combination} was added to {row.name} with {row.cells:,} cells. It is exploratory: it was tried "
            f"after results were seen, so it is never the best by itself, and counts among what was tried."
        )
        return Found(words, _as_document(row), {"matrix": f"/sweeps/{row.sweep}/matrix"})
    options |= _select_arguments(arguments, "set")
    forked = _do(context, "executions.fork", arguments["ref"], run=False, **options)
    words = f"Execution {forked.execution} is {forked.status}. It owns no cell, so no matrix changes."
    return Found(words, _as_document(forked), {"execution": f"/executions/{forked.execution}"})


def _extend(context: Context, arguments: ToolArguments) -> Found:
    options = _select_arguments(arguments, "cases", "repeats", "vary", "new_name", "allow_code_change", "reason")
    added = _do(context, "sweeps.extend", arguments["ref"], **options)
    words = (
        f"{added.cells:,} cells were added to {added.name}, which is {added.status}; existing results stay. "
        f"Results shown before count as an earlier look at the same cases."
    )
    return Found(words, _as_document(added), {"matrix": f"/sweeps/{added.sweep}/matrix"})


def _would_extend(context: Context, arguments: ToolArguments) -> Found:
    options = _select_arguments(arguments, "cases", "repeats", "vary", "new_name")
    planned = _do(context, "sweeps.plan_extension", arguments["ref"], **options)
    low, high = planned.node_runs
    runs = f"{low:,}" if low == high else f"at least {low:,}"
    price = "a price that is not known" if planned.usd is None else f"about ${planned.usd[0]:.2f}"
    words = f"This would add {planned.cells:,} cells to {planned.name}: {runs} node runs, at {price}."
    return Found(words, _as_document(planned), {}, planned.sweep)


def _would_fork(context: Context, arguments: ToolArguments) -> Found:
    document = _do(context, "sweeps.show_status", arguments["ref"])
    target = _subject(document)
    every = "for every case of its sweep, as another row" if arguments.get("all_cases") else "beside the original"
    words = f"This would run on from {arguments['ref']} {every}, which costs what its nodes cost."
    return Found(words, document, {}, target)


def _subject(document: Mapping[str, Any]) -> str:
    """Return the id of the execution or sweep of a status."""
    row = document["execution"] if "execution" in document else document["sweep"]
    return str(row["id"])


def _answer(context: Context, arguments: ToolArguments) -> Found:
    options = _select_arguments(arguments, "choice", "feedback", "value", "set")
    answered = _do(context, "questions.answer", arguments["ref"], arguments.get("action"), **options)
    words = f"Question {answered.approval} is answered: {answered.action}."
    return Found(words, _as_document(answered), {"sweep": f"/sweeps/{answered.sweep}"})


def _comment(context: Context, arguments: ToolArguments) -> Found:
    ref = arguments["ref"]
    if "text" not in arguments:
        document = _do(context, "comments.list", ref, **_select_arguments(arguments, "case"))
        words = f"{plural(len(document['comments']), 'comment')}, the oldest first."
        return Found(words, document, {"comments": f"{path_to('sweeps', ref)}/comments"})
    if "case" not in arguments:
        raise InputError("expected the case whose cell the comment is about", argument="case")
    options = _select_arguments(arguments, "row", "repeat")
    comment = _do(context, "comments.add", ref, arguments["case"], arguments["text"], **options)
    words = (
        f"Comment {comment['number']} is on case {comment['case']}, row {comment['row']}, repeat {comment['repeat']}."
    )
    return Found(words, comment, {"comments": f"{path_to('sweeps', comment['sweep'])}/comments"})


def _cases(context: Context, arguments: ToolArguments) -> Found:
    options = _select_arguments(arguments, "workflow", "sweep", "columns")
    document = _do(context, "cases.read", arguments["cases"], **options)
    return Found(added_cases.render(document, _WIDTH), document, {})


def _try(context: Context, arguments: ToolArguments) -> Found:
    options = _select_arguments(arguments, "expected", "input")
    document = _do(context, "evaluators.preview", arguments["evaluator"], arguments["state"], **options)
    return Found(added_cases.preview_in_words(document), document, {})


_STOP = "stop_combination"
_OF_ACTION: Final = {
    "pause": ("reason",),
    "cancel": ("reason",),
    "retry": ("provider",),
    _STOP: ("combination", "reason"),
}


def _steers(arguments: ToolArguments) -> str:
    return "combinations.stop" if arguments["action"] == _STOP else f"sweeps.{arguments['action']}"


def _steer(context: Context, arguments: ToolArguments) -> Found:
    action = arguments["action"]
    _check_provider(arguments)
    options = _select_arguments(arguments, *_OF_ACTION.get(action, ()))
    if action == _STOP and "combination" not in options:
        raise InputError("combination is missing; expected an object from nodes to variants", argument="combination")
    reply = _do(context, _steers(arguments), arguments["ref"], **options)
    document = _as_document(reply)
    status = document.get("status") if isinstance(document, dict) else None
    words = f"{action} of {arguments['ref']}: done{f'; it is {status}' if status else ''}."
    return Found(words, document, {})


def _check_provider(arguments: ToolArguments) -> None:
    """Reject `provider` with another action than retry. Raises InputError."""
    if "provider" in arguments and arguments["action"] != "retry":
        message = f"provider is set with the action {arguments['action']}; expected it with retry only"
        raise InputError(message, argument="provider")


def _would_steer(context: Context, arguments: ToolArguments) -> Found:
    _check_provider(arguments)
    action, ref = arguments["action"], arguments["ref"]
    if action == "cancel":
        would = OPERATIONS["sweeps.cancel"].preview_function(context, ref)
        words = f"This cancels {would.kind} {would.name} permanently; {would.cells:,} cells will have no outcome."
        return Found(words, _as_document(would), {}, would.id)
    document = _do(context, "sweeps.show_status", ref)
    only = ", only cells that were lost to a provider" if arguments.get("provider") else ""
    return Found(f"This would {action} {ref}{only}, which costs what its nodes cost.", document, {}, _subject(document))


_FINDS: Final[Mapping[str, str]] = {
    "sweeps": "sweeps.list",
    "workflows": "workflows.list",
    "questions": "questions.list",
    "budgets": "budgets.list",
}


def _find(context: Context, arguments: ToolArguments) -> Found:
    what = arguments.get("what", "sweeps")
    if what == "sweeps":
        filters = _select_arguments(arguments, "workflow", "status")
        sweeps = _do(context, "sweeps.list", limit=arguments.get("limit", 20), **filters)
        return Found(f"{len(sweeps):,} sweeps, the newest first.", {"sweeps": sweeps}, {"sweeps": "/sweeps"})
    if what == "questions":
        listing = _do(context, "questions.list", limit=arguments.get("limit", 20))
        questions = list(listing.each)
        return Found(f"{len(questions):,} questions wait for somebody.", {"questions": questions}, {})
    if what == "workflows":
        published = catalog(context)
        return Found(in_words(published), published, {"workflows": "/workflows"})
    document = _do(context, _FINDS[what])
    return Found(f"{plural(len(document), 'budget')}.", document, {what: f"/{what}"})


_REF: Final = {"type": "string", "description": "An id, the beginning of one, or the name of a sweep."}
_TEXT: Final = {"type": "string", "maxLength": 2000}
_NUMBER: Final = {"type": "integer", "minimum": 0}
_TEXTS: Final = {"type": "array", "items": _TEXT, "maxItems": 64}
_VIEW: Final = {
    "where": {**_TEXTS, "description": "Only rows with a level or variant, such as answer.model=mini."},
    "within": {"type": "boolean", "description": "Only rows shown to be within the margin of the best."},
    "sort": {**_TEXT, "description": "A metric, cost, latency, number or a factor; :asc or :desc may follow."},
    "group_by": {**_TEXTS, "description": "Factors by whose levels rows stand together."},
    "pivot": {**_TEXTS, "maxItems": 2, "description": "One or two factors: a table of means by their levels."},
    "metric": {**_TEXT, "description": "The metric of within and pivot."},
}
_CONFIRM: Final = {
    "type": "string",
    "maxLength": 200,
    "description": "The token of the first reply, with the same arguments, once you agree to the described effect.",
}
_SWEEP: Final = {
    "type": "object",
    "description": "The keys of a sweep file: workflow (a published one), vary, cases (a list), evaluate, limits, ...",
}
_TWICE = "The first call changes nothing: it returns a description of the effect and a token to confirm it."

TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        "plan",
        "Show what a sweep would run, and which difference it could detect, before anything runs. Costs nothing.",
        {"sweep": _SWEEP},
        ("sweep",),
        ("sweeps.plan_published",),
        _plan,
    ),
    Tool(
        "submit",
        f"Submit a sweep to the workers. {_TWICE} Budgets of your token limit its spending.",
        {"sweep": _SWEEP, "priority": {"type": "integer", "minimum": -1000, "maximum": 1000}},
        ("sweep",),
        ("sweeps.submit_published",),
        _submit,
        _plan,
    ),
    Tool(
        "start",
        f"Run one input through a published workflow. Waits up to wait_s seconds for a result, a failure or a "
        f"question, which you answer with `answer`. {_TWICE} Budgets of your token bound what it spends.",
        {
            "workflow": {"type": "string", "maxLength": 200, "description": "The name of a published workflow."},
            "input": {"type": "object", "description": "Keys of the state to values."},
            "variants": {"type": "object", "description": "Node to the name of its variant."},
            "from_node": {"type": "string", "maxLength": 200},
            "until": {"type": "string", "maxLength": 200, "description": "A node to pause after."},
            "limits": {"type": "object", "description": "As in a sweep file: usd, tokens, wall, ..."},
            "wait_s": {"type": "number", "minimum": 0, "maximum": MOST_WAIT_S},
        },
        ("workflow", "input"),
        ("executions.start_published", "workflows.show"),
        _start,
        _would_start,
    ),
    Tool(
        "status",
        "Show how far a sweep or execution is, and what blocks it; wait up to wait_s seconds for its end.",
        {"ref": _REF, "wait_s": {"type": "number", "minimum": 0, "maximum": MOST_WAIT_S}},
        ("ref",),
        ("sweeps.show_status",),
        _status,
    ),
    Tool(
        "matrix",
        "Decide: which combination is best by each metric, or which could be, with the figures of every row. Filters, "
        "order and pivot tables stand under `view`, as numbers of rows; they change no statistic.",
        {"ref": _REF, **_VIEW},
        ("ref",),
        ("matrices.show",),
        _matrix,
    ),
    Tool(
        "explain",
        "Explain why a combination is better or not, how clear that is, and what limits it. With row and other: in "
        "which cases one beats the other; among many pairs, small p-values occur by chance.",
        {"ref": _REF, "row": _NUMBER, "other": _NUMBER, "metric": _TEXT},
        ("ref",),
        ("matrices.show", "combinations.compare"),
        _explain,
        chooses=lambda arguments: "combinations.compare" if {"row", "other"} & arguments.keys() else "matrices.show",
    ),
    Tool(
        "compare",
        "Show which results got worse or better between two sweeps, and what changed between them.",
        {"before": _REF, "after": _REF},
        ("before", "after"),
        ("sweeps.compare",),
        _compare,
    ),
    Tool(
        "cell",
        "List the cells of a sweep with their states and scores, or show one execution with its node runs.",
        {"ref": _REF, "case": _TEXT, "status": _TEXT, "execution": _REF, "calls": {"type": "boolean"}},
        (),
        ("sweeps.show", "cells.list"),
        _cell,
        chooses=lambda arguments: "sweeps.show" if "execution" in arguments else "cells.list",
    ),
    Tool(
        "history",
        "Show the checkpoints of an execution up to its head, the visits of its nodes, and the reason for each step.",
        {"ref": _REF, "state": {"type": "boolean", "description": "With the state at each, and what nodes wrote."}},
        ("ref",),
        ("checkpoints.list",),
        _history,
    ),
    Tool(
        "checkpoint",
        "Show the state and files at a checkpoint, who wrote it and what comes next.",
        {"ref": {"type": "string", "description": "The id of a checkpoint, or the beginning of it."}},
        ("ref",),
        ("checkpoints.show",),
        _checkpoint,
    ),
    Tool(
        "diff",
        "Compare two executions or checkpoints: where they diverge, and how their states differ.",
        {"a": _REF, "b": _REF},
        ("a", "b"),
        ("executions.compare",),
        _diff,
    ),
    Tool(
        "fork",
        f"Fork an execution at a checkpoint, with changes. With all_cases, add a row of the sweep; it is exploratory, "
        f"so never the best by itself. {_TWICE}",
        {
            "ref": _REF,
            "at": _TEXT,
            "variants": {"type": "object", "description": "Node to variant: its name, or {name, of, parameters ...}."},
            "set": {"type": "object", "description": "Keys of the state to new values; not with all_cases."},
            "all_cases": {"type": "boolean"},
            "reason": _TEXT,
        },
        ("ref",),
        ("executions.fork", "combinations.add"),
        _fork,
        _would_fork,
        chooses=_forks_all,
    ),
    Tool(
        "extend",
        f"Add cases, repeats or variants to a sweep that has run; only what is new runs. {_TWICE}",
        {
            "ref": _REF,
            "cases": {"type": "array", "items": {"type": "object"}, "description": "Each has id, input, expected."},
            "repeats": {"type": "integer", "description": "How many there are to be."},
            "vary": {
                "type": "object",
                "description": "Node to a list of variants: names, or {name, of, parameters}; `node.parameter` to a "
                "list of levels, any JSON.",
            },
            "new_name": {"type": "string", "description": "Extends a copy of this name; a baseline needs one."},
            "allow_code_change": {"type": "boolean"},
            "reason": _TEXT,
        },
        ("ref",),
        ("sweeps.extend", "sweeps.plan_extension"),
        _extend,
        _would_extend,
    ),
    Tool(
        "answer",
        "Answer a question that waits for a person, if your token permits it.",
        {
            "ref": _REF,
            "action": {"enum": ["approve", "reject", "modify"]},
            "choice": _TEXT,
            "feedback": _TEXT,
            "value": {"description": "The answer that the node gets."},
            "set": {"type": "object", "description": "Keys of the state to new values."},
        },
        ("ref",),
        ("questions.answer",),
        _answer,
    ),
    Tool(
        "steer",
        f"Pause, resume, cancel or retry a sweep or execution. Pausing needs no confirmation. For the others: {_TWICE}",
        {
            "ref": _REF,
            "action": {"enum": ["pause", "resume", "cancel", "retry", _STOP]},
            "reason": _TEXT,
            "combination": {
                "type": "object",
                "description": f"Of {_STOP}: node to variant; combinations that choose all of these are skipped.",
            },
            "provider": {
                "type": "boolean",
                "description": "Of retry: only cells lost to a provider; a sweep that waits for one continues.",
            },
        },
        ("ref", "action"),
        ("sweeps.pause", "sweeps.resume", "sweeps.cancel", "combinations.stop", "sweeps.retry"),
        _steer,
        _would_steer,
        chooses=_steers,
    ),
    Tool(
        "find",
        "Find sweeps, published workflows, open questions or budgets.",
        {
            "what": {"enum": list(_FINDS)},
            "workflow": _TEXT,
            "status": _TEXT,
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        },
        (),
        (*_FINDS.values(), "workflows.show"),
        _find,
        chooses=lambda arguments: _FINDS.get(arguments.get("what", "sweeps"), "sweeps.list"),
    ),
    Tool(
        "comment",
        "List the comments of people on the cells of a sweep, or with text write one on the cell of a case.",
        {
            "ref": _REF,
            "case": _TEXT,
            "text": {"type": "string", "maxLength": MOST_COMMENT},
            "row": {**_NUMBER, "description": "Of text: the number of the combination, as the matrix has it."},
            "repeat": _NUMBER,
        },
        ("ref",),
        ("comments.add", "comments.list"),
        _comment,
        chooses=lambda arguments: "comments.add" if "text" in arguments else "comments.list",
    ),
    Tool(
        "cases",
        "Show how a sweep would read cases: the key of each heading of a table, and problems.",
        {
            "cases": {
                "type": ["array", "object"],
                "description": "A list of cases, or a table: {headings: [...], rows: [[...]]}.",
            },
            "workflow": {"type": "string", "maxLength": 200, "description": "A published one, whose inputs they are."},
            "sweep": {**_REF, "description": "The sweep to add them to, instead of a workflow."},
            "columns": {"type": "object", "description": "Key to heading, such as {question: 'Question '}."},
        },
        ("cases",),
        ("cases.read",),
        _cases,
    ),
    Tool(
        "try",
        "Score one output with a built-in evaluator, to try it before a sweep. Costs nothing: no model is called.",
        {
            "evaluator": {
                "type": ["string", "object"],
                "description": "A name, or a name to its options, such as {contains: {field: answer}}.",
            },
            "state": {"type": "object", "description": "The output: keys of the state to values."},
            "expected": {"description": "The expected value of the case."},
            "input": {"type": "object", "description": "The input of the case."},
        },
        ("evaluator", "state"),
        ("evaluators.preview",),
        _try,
    ),
)

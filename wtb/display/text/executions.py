"""Executions in a terminal: one of them, its status, two of them side by side, and the log of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from wtb.core import texts
from wtb.core import texts as words
from wtb.core.documents import executions as documents
from wtb.core.documents.all_events import EventCountsDocument, EventDocument
from wtb.core.documents.event_texts import event_text, under
from wtb.core.documents.lineage import CheckpointSide, DiffDocument, ExecutionSide, FileDifference, StateDifference
from wtb.core.texts import MISSING, money, printable
from wtb.core.values import Json
from wtb.display.tables import facts, grid, wrapped
from wtb.display.text.approvals import asking_modes, by_mode


def lines(events: Iterable[EventDocument], width: int, color: bool = False) -> Iterator[str]:
    """Time, severity, case and words of each event; the date where it changes.

    An event may say its `case` and its `choices` beside what the log holds.
    """
    day = ""
    for event in events:
        date = texts.moment(event["at"])[:10]
        if date != day:
            day = date
            yield date
        front = f"{texts.clock(event['at'])}  {event['severity']:<7}  "
        case = f"{event['case']}: " if event.get("case") else ""
        text = event_text(event["kind"], event["data"], event.get("choices"))
        text_lines = wrapped(case + text, width, " " * len(front))
        yield texts.colored(front, event["severity"], color) + text_lines[0].lstrip()
        yield from text_lines[1:]


def counts(document: EventCountsDocument, width: int, color: bool = False) -> str:
    """Show how many events there are of each kind and severity."""
    rows = [[row["kind"], row["severity"], f"{row['count']:,}"] for row in document["events"]]
    return grid(["kind", "severity", "count"], rows, width, right={"count"}, color=color)


_LINES = 20  # of an output
_CALL_LINES = 8  # of what a call was given, and of what came of it

_DIFFERS = {
    "input": "their inputs differ",
    "path": "they went different ways",
    "variant": "another variant",
    "code": "the same variant with changed code",
    "result": "the same variant with another result",
    "end": "only one of them continues",
}


def execution(document: documents.ExecutionDocument, width: int, color: bool = False) -> str:
    """An execution: what it stands for, the way it went, what failed, and its state."""
    about, parts = document["execution"], []
    parts.append(title(about, color) + "\n" + facts(_about(document), width))
    if document["path"]:
        parts.append("path\n" + _path(document["path"], width, color))
    parts += _failures(document, width)
    parts += _outputs(document, width)
    if len(document["cells"]) > 1 or any(cell["scores"] for cell in document["cells"]):
        parts.append("cells\n" + _cells(document["cells"], width, color))
        parts += _remarks(document["cells"], width)
    if document["state"]:
        parts.append("state\n" + state_lines(document["state"], width))
    for step in document["path"]:
        parts += [_call(step, call, width) for call in step.get("calls", ())]
        parts += [_invocation(step, invocation, width) for invocation in step.get("invocations", ())]
    return "\n".join(parts)


def title(about: documents.ExecutionHeading, color: bool) -> str:
    """Return the line that names an execution and its status."""
    return f"execution {about['id']}: {words.colored(about['status'], about['status'], color)}"


def _about(document: documents.ExecutionDocument) -> list[tuple[str, str]]:
    about, totals = document["execution"], document["totals"]
    single = about["sweep"]["kind"] == "single"
    spent = ""
    if totals:
        spent = f"{words.plural(totals['node_runs'], 'node run')} in {words.took(totals['elapsed_s'])}"
        spent += f" for {money(totals['usd'])}" if totals["usd"] else ""
    origins = {"root": "the start", "fork": "a fork of", "retry": "a retry of", "manual": "forked by a person from"}
    origin = origins.get(about["origin"], about["origin"])
    children = len(about["children"])
    return [
        ("workflow", about["sweep"]["name"] if single else ""),
        ("metadata", words.metadata(about.get("metadata", {}))),
        ("sweep", "" if single else f"{about['sweep']['name']} ({about['sweep']['id']})"),
        ("case", "" if single else f"{about['case']}, repeat {about['repeat']}"),
        ("choices", words.chosen_by_all(about["combinations"])),
        ("cells", str(len(about["combinations"])) if len(about["combinations"]) > 1 else ""),
        ("origin", f"{origin} {about['parent']}" if about["parent"] else ""),
        ("edited", "a person changed its state" if about["edited"] else ""),
        ("went on as", words.plural(children, "execution") if children else ""),
        ("reason", about["reason"] or ""),
        ("as if alone", spent),
        ("scores", "  ".join(f"{name} {words.score(score)}" for name, score in document["scores"].items())),
        ("next", ", ".join(document["next"])),
    ]


def _path(path: Sequence[documents.ShownStep], width: int, color: bool) -> str:
    costs = any(run["usd"] for run in path)
    lags = any((run.get("lag_s") or 0.0) >= words.LAG_SHOWN_S for run in path)
    more = [*(["loop lag"] if lags else []), *(["cost"] if costs else [])]
    headers = ["step", "node=variant", "visit", "status", "attempts", "time", *more]
    rows = [
        [
            str(run["step"]),
            under(run),
            str(run["visit"]),
            run["status"],
            str(run["attempts"]),
            words.took(run["duration_s"]) if run["status"] == "succeeded" else MISSING,
            *([words.took(run.get("lag_s"))] if lags else []),
            *([money(run["usd"]) if run["usd"] else ""] if costs else []),
        ]
        for run in path
    ]
    right = {"step", "visit", "attempts", "time", "loop lag", "cost"}
    return grid(headers, rows, width, right=right, whole={"status"}, color=color)


def _failures(document: documents.ExecutionDocument, width: int) -> list[str]:
    """Failed attempts with the frames of the user's own code, and what failed outside of any attempt."""
    parts = []
    about, shown_errors = document["execution"], set()
    for run in document["path"]:
        for attempt in run["tried"]:
            if attempt["error"]:
                shown_errors.add(attempt["error"])
                took = words.took(attempt["duration_s"])
                ended = "asked" if attempt["status"] == "waiting" else "failed"
                title = f"{under(run)}, attempt {attempt['number']} {ended} after {took}"
                parts.append(_failure(title, attempt["error"], attempt["trace"], width))
    # An execution usually fails with the error of its last attempt, which is shown above.
    if about["error"] and about["error"] not in shown_errors:
        parts.append(_failure("failed", about["error"], about["trace"], width))
    return parts


def _failure(title: str, error: str, trace: str, width: int) -> str:
    lines = [*wrapped(title, width), *wrapped(error, width, "  ")]
    if trace:
        lines += wrapped(trace.rstrip("\n"), width, "  ")
    return "\n".join(lines) + "\n"


def _outputs(document: documents.ExecutionDocument, width: int) -> list[str]:
    """The last lines that attempts have printed."""
    parts = []
    for run in document["path"]:
        for attempt in run["tried"]:
            for name, output in (("stdout", attempt["stdout"]), ("stderr", attempt["stderr"])):
                if output:
                    lines = output.rstrip("\n").split("\n")
                    number = f", attempt {attempt['number']}" if len(run["tried"]) > 1 else ""
                    more = f" (its last {_LINES} lines of {len(lines):,}; all: --format json)"
                    title = f"{under(run)}{number} {name}{more if len(lines) > _LINES else ''}"
                    tail = wrapped("\n".join(lines[-_LINES:]), width, "  ")
                    parts.append("\n".join([*wrapped(title, width), *tail]) + "\n")
    return parts


def _cells(cells: Sequence[documents.ExecutionCell], width: int, color: bool) -> str:
    metrics = list(dict.fromkeys(metric for cell in cells for metric in cell["scores"]))
    headers = ["combination", "status", *metrics]
    rows = [
        [
            "",  # named by what differs
            cell["status"],
            *(words.score(cell["scores"][metric]) if metric in cell["scores"] else "" for metric in metrics),
        ]
        for cell in cells
    ]
    named = {"combination": [cell["combination"] for cell in cells]}
    return grid(headers, rows, width, right=set(metrics), whole={"status"}, combinations=named, color=color)


def _remarks(cells: Sequence[documents.ExecutionCell], width: int) -> list[str]:
    """Return the reasons for the scores of cells, and what people wrote about them."""
    lines: list[str] = []
    for cell in cells:
        about = [f"{metric}: {reason}" for metric, reason in cell.get("reasons", {}).items()]
        about += [
            f"comment {comment['number']} by {comment['by']}, {words.moment(comment['at'])}: {comment['text']}"
            for comment in cell.get("comments", [])
        ]
        if about and len(cells) > 1:
            lines += wrapped(words.describe_choices(cell["combination"]), width, "  ")
        for text in about:
            lines += wrapped(text, width, "    " if len(cells) > 1 else "  ")
    return ["reasons and comments\n" + "\n".join(lines) + "\n"] if lines else []


def state_lines(state: Mapping[str, Json], width: int) -> str:
    """Return a line for each key of a state that has some."""
    indent = min(30, max(len(key) for key in state) + 2)
    return "".join(
        f"  {printable(key):<{indent}}{words.short(value, width - indent - 2)}\n" for key, value in state.items()
    )


def _call(step: documents.ShownStep, call: documents.CallDocument, width: int) -> str:
    what = call["model"] or call["tool"] or "call"
    tokens = ""
    if call["tokens_in"] or call["tokens_out"]:
        tokens = f"{call['tokens_in']:,} tokens in, {call['tokens_out']:,} out"
    cost = money(call["usd"]) if call["usd"] else ""
    took = words.took(call["duration_s"]) if call["duration_s"] is not None else ""
    title = ", ".join(part for part in (f"{step['node']} called {what}", tokens, cost, took) if part)
    lines = wrapped(title, width)
    for name in ("prompt", "response"):
        for who, content in _talk(name, call[name]):
            lines += _first_lines(
                f"{who}: {content if isinstance(content, str) else words.short(content, 1000)}", width
            )
    return "\n".join(lines) + "\n"


def _talk(name: str, content: Any) -> list[tuple[str, Any]]:
    """Show the messages of a prompt one by one with their roles, and the other parameters of the request."""
    if content is None:
        return []
    messages = content.get("messages") if isinstance(content, dict) else content
    if name == "response" or not isinstance(messages, list) or not all(_is_message(message) for message in messages):
        return [(name, content)]
    turns = [(message["role"], message["content"]) for message in messages]
    rest = {key: value for key, value in content.items() if key != "messages"} if isinstance(content, dict) else {}
    system = [("system", rest.pop("system"))] if "system" in rest else []
    return [*system, *turns, *([("with", rest)] if rest else [])]


def _is_message(content: Any) -> bool:
    return isinstance(content, dict) and isinstance(content.get("role"), str) and content.get("content") is not None


def _first_lines(text: str, width: int) -> list[str]:
    lines = wrapped(text, width, "  ")
    more = len(lines) - _CALL_LINES
    return lines if more <= 0 else [*lines[:_CALL_LINES], f"  ({words.plural(more, 'more line')}; all: --format json)"]


def _invocation(step: documents.ShownStep, call: documents.InvocationDocument, width: int) -> str:
    """A call of a tool."""
    named = call["arguments"] if isinstance(call["arguments"], dict) else {"arguments": call["arguments"]}
    arguments = ", ".join(f"{key}={words.short(argument, 200)}" for key, argument in named.items())
    how = "" if call["status"] == "done" else f" ({call['status']})"
    lines = wrapped(f"{step['node']} used {call['tool']}, {words.took(call['duration_s'])}{how}", width)
    lines += _first_lines(f"with: {arguments}", width) if arguments else []
    if call["status"] == "failed":
        lines += _first_lines(f"error: {call['error']}", width)
    elif call["result"] is not None:
        reply = call["result"] if isinstance(call["result"], str) else words.short(call["result"], 1000)
        lines += _first_lines(f"result: {reply}", width)
    return "\n".join(lines) + "\n"


def diff(document: DiffDocument, width: int, color: bool = False) -> str:
    """Return the step at which two executions part, and the differences at their ends."""
    a, b = document["a"], document["b"]
    text = facts([("A", _side_in_words(a)), ("B", _side_in_words(b)), ("parting", _parting(document))], width)
    if a["totals"] or b["totals"]:
        text += "\n" + _totals(a["totals"], b["totals"], width)
    ways = [(f"path of {name}", " → ".join(words.line(side["path"]))) for name, side in (("A", a), ("B", b))]
    text += "\n" + facts(ways, width)
    return text + "\n" + _states(document["state"], width) + _files(document["files"], width)


def _files(changes: Sequence[FileDifference] | None, width: int) -> str:
    """The files in which two snapshots differ, from A to B."""
    if not changes:
        return ""
    lines = [f"{change['kind']:<8} {printable(change['path'])}" for change in changes[:_LINES]]
    more = [f"and {len(changes) - _LINES:,} more"] if len(changes) > _LINES else []
    return "files\n" + "".join(f"  {words.cut(line, width - 2)}\n" for line in [*lines, *more])


def _is_execution(about: ExecutionSide | CheckpointSide) -> TypeGuard[ExecutionSide]:
    return "case" in about


def _side_in_words(about: ExecutionSide | CheckpointSide) -> str:
    if not _is_execution(about):
        return f"checkpoint {about['id']}"
    choices = words.chosen_by_all(about["combinations"])
    return f"{about['id']} ({about['status']}): {about['case']}, repeat {about['repeat']}, {choices}"


def _parting(document: DiffDocument) -> str:
    shared = words.plural(document["shared_steps"], "step")
    common = f"{shared} shared, up to checkpoint {document['common_checkpoint']}; "
    if document["common_checkpoint"] is None:
        common = "nothing shared; "
    divergence = document["divergence"]
    if divergence is None:
        return common + "no difference in what they ran and found"
    sides = [", ".join(side) or "nothing" for side in (divergence["a"], divergence["b"])]
    where = f": {sides[0]} | {sides[1]}" if sides != ["nothing", "nothing"] else ""
    return f"{common}at step {divergence['step']} {_DIFFERS[divergence['why']]}{where}"


def _totals(a: documents.TotalsDocument | None, b: documents.TotalsDocument | None, width: int) -> str:
    measures: dict[str, Callable[[documents.TotalsDocument], tuple[float, str]]] = {
        "time": lambda totals: (totals["elapsed_s"], words.took(totals["elapsed_s"])),
        "cost": lambda totals: (totals["usd"], money(totals["usd"])),
        "tokens in": lambda totals: (totals["tokens_in"], f"{totals['tokens_in']:,}"),
        "tokens out": lambda totals: (totals["tokens_out"], f"{totals['tokens_out']:,}"),
        "node runs": lambda totals: (totals["node_runs"], f"{totals['node_runs']:,}"),
    }
    rows = []
    for label, figure in measures.items():
        figures = [(0, MISSING) if side is None else figure(side) for side in (a, b)]
        if any(amount for amount, _ in figures):
            rows.append([label, *(text for _, text in figures)])
    return grid(["as if alone", "A", "B"], rows, width, right={"A", "B"})


def _states(state: StateDifference, width: int) -> str:
    values = [("", key, value["a"], value["b"]) for key, value in state["changed"].items()]
    lines = []
    for _, key, before, after in values:
        lines += [printable(key), f"  A  {words.short(before, width - 5)}", f"  B  {words.short(after, width - 5)}"]
    for only, name in ((state["only_a"], "A"), (state["only_b"], "B")):
        for key, value in only.items():
            lines += [f"{printable(key)} (only in {name})", f"     {words.short(value, width - 5)}"]
    if state["same"]:
        lines += wrapped(f"the same in both: {', '.join(state['same'])}", width)
    return "\n".join(lines or ["neither has any state"]) + "\n"


def standing(document: documents.StandingDocument, width: int, color: bool = False) -> str:
    """Return the position of an execution, its owner, what it waits for, and the commands that are possible."""
    about = document["execution"]
    sweep, status = about["sweep"], about["status"]
    name = f"{printable(sweep['name'])} ({sweep['id']})"
    what = (
        f"execution {about['id']}"
        if sweep["kind"] != "single"
        else f"execution {printable(sweep['name'])} ({about['id']})"
    )
    title = f"{what}: {texts.colored(status, status, color)}{' (edited)' if about['edited'] else ''}"
    return f"{title}\n{facts(_facts(document, name), width)}"


def _facts(document: documents.StandingDocument, name: str) -> list[tuple[str, str]]:
    about, owner, request = document["execution"], document["owner"], document["asked"]
    single = about["sweep"]["kind"] == "single"
    variants = (
        texts.describe_choices(about["choices"])
        if about["choices"] is not None
        else _choices_in_words(about["combinations"])
    )
    repeat = f", repeat {about['repeat']}" if about["repeat"] else ""
    who = ""
    if owner is not None:
        place = f"process {owner['pid']} on {owner['host']}: {owner['state']}"
        who = f"worker {owner['worker']}, {place}" if owner["worker"] else place
    cells = ", ".join(f"{count:,} {status.replace('_', ' ')}" for status, count in document["cells"].items())
    return [
        ("sweep", "" if single else f"{name}, {about['sweep']['status']}"),
        ("case", "" if single else f"{about['case']}{repeat}"),
        ("variants", variants),
        ("since", texts.moment(about["since"], seconds=True) if about["since"] else ""),
        ("reason", printable(about["reason"] or "")),
        ("stalled", texts.moment(about["stalled_at"], seconds=True) if about["stalled_at"] else ""),
        ("step", "" if document["step"] is None else str(document["step"])),
        ("next", ", ".join(document["next"]) or ("the end" if document["checkpoint"] else "")),
        ("runs", "; ".join(map(_run, document["nodes"]))),
        *(("prints", printable(_last_line(run["printed"]))) for run in document["nodes"] if "printed" in run),
        ("held by", who),
        ("asked for", "" if request is None else printable(f"{request['to']} {request['reason']}")),
        *(("question", printable(_question(question))) for question in document["questions"]),
        ("asks", asking_modes(document.get("approval", []))),
        *(("breakpoint", printable(text)) for text in document["breakpoints"]),
        ("cells", "" if single else cells),
        *(("possible" if place == 0 else "", printable(command)) for place, command in enumerate(document["commands"])),
    ]


def _question(question: documents.OpenQuestion) -> str:
    return f"{question['id']}: {question['question']}{by_mode(question.get('mode'))}"


def _choices_in_words(combinations: Sequence[Mapping[str, str]]) -> str:
    return texts.chosen_by_all(combinations) if any(combinations) else ""


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]


def _run(run: documents.RunningNode) -> str:
    attempt = f", attempt {run['attempt']}" if run["attempt"] > 1 else ""
    return f"{under(run)} for {texts.took(run['for_s'])}{attempt}"

"""Executions in a terminal: one of them, and two of them side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

from wtb.core import texts as words
from wtb.core.documents.events.texts import under
from wtb.core.documents.executions import (
    CallDocument,
    ExecutionCell,
    ExecutionDocument,
    ExecutionHeading,
    InvocationDocument,
    ShownStep,
    TotalsDocument,
)
from wtb.core.documents.lineage import (
    CheckpointSide,
    DiffDocument,
    ExecutionSide,
    FileDifference,
    StateDifference,
)
from wtb.core.texts import MISSING, money, printable
from wtb.core.values import Json
from wtb.display.tables import facts, grid, wrapped

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


def execution(document: ExecutionDocument, width: int, color: bool = False) -> str:
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
        parts += [_invocation(step, one, width) for one in step.get("invocations", ())]
    return "\n".join(parts)


def title(about: ExecutionHeading, color: bool) -> str:
    """Return the line that names an execution and its status."""
    return f"execution {about['id']}: {words.colored(about['status'], about['status'], color)}"


def _about(document: ExecutionDocument) -> list[tuple[str, str]]:
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
        ("scores", "  ".join(f"{name} {words.score(value)}" for name, value in document["scores"].items())),
        ("next", ", ".join(document["next"])),
    ]


def _path(path: Sequence[ShownStep], width: int, color: bool) -> str:
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


def _failures(document: ExecutionDocument, width: int) -> list[str]:
    """Failed attempts with the frames of the user's own code, and what failed outside of any attempt."""
    parts = []
    about, shown = document["execution"], set()
    for run in document["path"]:
        for attempt in run["tried"]:
            if attempt["error"]:
                shown.add(attempt["error"])
                took = words.took(attempt["duration_s"])
                ended = "asked" if attempt["status"] == "waiting" else "failed"
                title = f"{under(run)}, attempt {attempt['number']} {ended} after {took}"
                parts.append(_failure(title, attempt["error"], attempt["trace"], width))
    if about["error"] and about["error"] not in shown:
        parts.append(_failure("failed", about["error"], about["trace"], width))
    return parts


def _failure(title: str, error: str, trace: str, width: int) -> str:
    lines = [*wrapped(title, width), *wrapped(error, width, "  ")]
    if trace:
        lines += wrapped(trace.rstrip("\n"), width, "  ")
    return "\n".join(lines) + "\n"


def _outputs(document: ExecutionDocument, width: int) -> list[str]:
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
                    shown = wrapped("\n".join(lines[-_LINES:]), width, "  ")
                    parts.append("\n".join([*wrapped(title, width), *shown]) + "\n")
    return parts


def _cells(cells: Sequence[ExecutionCell], width: int, color: bool) -> str:
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


def _remarks(cells: Sequence[ExecutionCell], width: int) -> list[str]:
    """Return the reasons for the scores of cells, and what people wrote about them."""
    lines: list[str] = []
    for cell in cells:
        about = [f"{metric}: {reason}" for metric, reason in cell.get("reasons", {}).items()]
        about += [
            f"comment {one['number']} by {one['by']}, {words.moment(one['at'])}: {one['text']}"
            for one in cell.get("comments", [])
        ]
        if about and len(cells) > 1:
            lines += wrapped(words.chosen(cell["combination"]), width, "  ")
        for text in about:
            lines += wrapped(text, width, "    " if len(cells) > 1 else "  ")
    return ["reasons and comments\n" + "\n".join(lines) + "\n"] if lines else []


def state_lines(state: Mapping[str, Json], width: int) -> str:
    """Return a line for each key of a state that has some."""
    indent = min(30, max(len(key) for key in state) + 2)
    return "".join(
        f"  {printable(key):<{indent}}{words.short(value, width - indent - 2)}\n" for key, value in state.items()
    )


def _call(step: ShownStep, call: CallDocument, width: int) -> str:
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
    """Who said what: messages of a prompt one by one, and what else it asked for."""
    if content is None:
        return []
    messages = content.get("messages") if isinstance(content, dict) else content
    if name == "response" or not isinstance(messages, list) or not all(_is_message(one) for one in messages):
        return [(name, content)]
    turns = [(one["role"], one["content"]) for one in messages]
    others = {key: value for key, value in content.items() if key != "messages"} if isinstance(content, dict) else {}
    system = [("system", others.pop("system"))] if "system" in others else []
    return [*system, *turns, *([("with", others)] if others else [])]


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and value.get("content") is not None


def _first_lines(text: str, width: int) -> list[str]:
    lines = wrapped(text, width, "  ")
    more = len(lines) - _CALL_LINES
    return lines if more <= 0 else [*lines[:_CALL_LINES], f"  ({words.plural(more, 'more line')}; all: --format json)"]


def _invocation(step: ShownStep, call: InvocationDocument, width: int) -> str:
    """A call of a tool."""
    named = call["arguments"] if isinstance(call["arguments"], dict) else {"arguments": call["arguments"]}
    given = ", ".join(f"{key}={words.short(value, 200)}" for key, value in named.items())
    how = "" if call["status"] == "done" else f" ({call['status']})"
    lines = wrapped(f"{step['node']} used {call['tool']}, {words.took(call['duration_s'])}{how}", width)
    lines += _first_lines(f"with: {given}", width) if given else []
    if call["status"] == "failed":
        lines += _first_lines(f"error: {call['error']}", width)
    elif call["result"] is not None:
        result = call["result"] if isinstance(call["result"], str) else words.short(call["result"], 1000)
        lines += _first_lines(f"result: {result}", width)
    return "\n".join(lines) + "\n"


def diff(document: DiffDocument, width: int, color: bool = False) -> str:
    """Where two executions part, and in what they differ at the end."""
    a, b = document["a"], document["b"]
    text = facts([("A", _one(a)), ("B", _one(b)), ("parting", _parting(document))], width)
    if a["totals"] or b["totals"]:
        text += "\n" + _totals(a["totals"], b["totals"], width)
    ways = [(f"path of {name}", " → ".join(words.line(one["path"]))) for name, one in (("A", a), ("B", b))]
    text += "\n" + facts(ways, width)
    return text + "\n" + _states(document["state"], width) + _files(document["files"], width)


def _files(changes: Sequence[FileDifference] | None, width: int) -> str:
    """The files in which two snapshots differ, from A to B."""
    if not changes:
        return ""
    shown = [f"{one['kind']:<8} {printable(one['path'])}" for one in changes[:_LINES]]
    more = [f"and {len(changes) - _LINES:,} more"] if len(changes) > _LINES else []
    return "files\n" + "".join(f"  {words.cut(line, width - 2)}\n" for line in [*shown, *more])


def _is_execution(about: ExecutionSide | CheckpointSide) -> TypeGuard[ExecutionSide]:
    return "case" in about


def _one(about: ExecutionSide | CheckpointSide) -> str:
    if not _is_execution(about):
        return f"checkpoint {about['id']}"
    chosen = words.chosen_by_all(about["combinations"])
    return f"{about['id']} ({about['status']}): {about['case']}, repeat {about['repeat']}, {chosen}"


def _parting(document: DiffDocument) -> str:
    shared = words.plural(document["shared_steps"], "step")
    common = f"{shared} shared, up to checkpoint {document['common_checkpoint']}; "
    if document["common_checkpoint"] is None:
        common = "nothing shared; "
    found = document["divergence"]
    if found is None:
        return common + "no difference in what they ran and found"
    sides = [", ".join(side) or "nothing" for side in (found["a"], found["b"])]
    where = f": {sides[0]} | {sides[1]}" if sides != ["nothing", "nothing"] else ""
    return f"{common}at step {found['step']} {_DIFFERS[found['why']]}{where}"


def _totals(a: TotalsDocument | None, b: TotalsDocument | None, width: int) -> str:
    shown: dict[str, Callable[[TotalsDocument], tuple[float, str]]] = {
        "time": lambda totals: (totals["elapsed_s"], words.took(totals["elapsed_s"])),
        "cost": lambda totals: (totals["usd"], money(totals["usd"])),
        "tokens in": lambda totals: (totals["tokens_in"], f"{totals['tokens_in']:,}"),
        "tokens out": lambda totals: (totals["tokens_out"], f"{totals['tokens_out']:,}"),
        "node runs": lambda totals: (totals["node_runs"], f"{totals['node_runs']:,}"),
    }
    rows = []
    for label, figure in shown.items():
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

"""Executions in a terminal: one of them, its history, and two of them side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wtb.core import texts as words
from wtb.core.texts import MISSING, money, printable
from wtb.display.tables import facts, grid, wrapped

Document = Mapping[str, Any]

_LINES = 20  # of an output
_CALL_LINES = 8  # of what a call was given, and of what came of it

_DIFFERS = {
    "input": "their inputs differ",
    "path": "they went different ways",
    "variant": "another variant",
    "result": "the same variant with another result",
    "end": "only one of them goes on",
}


def execution(document: Document, width: int, color: bool = False) -> str:
    """An execution: what it stands for, the way it went, what failed, and its state."""
    about, parts = document["execution"], []
    parts.append(_title(about, color) + "\n" + facts(_about(document), width))
    if document["path"]:
        parts.append("path\n" + _path(document["path"], width, color))
    parts += _failures(document, width)
    parts += _outputs(document, width)
    if len(document["cells"]) > 1 or any(cell["scores"] for cell in document["cells"]):
        parts.append("cells\n" + _cells(document["cells"], width, color))
    if document["state"]:
        parts.append("state\n" + _state(document["state"], width))
    for step in document["path"]:
        parts += [_call(step, call, width) for call in step.get("calls", ())]
        parts += [_invocation(step, one, width) for one in step.get("invocations", ())]
    return "\n".join(parts)


def _title(about: Document, color: bool) -> str:
    return f"execution {about['id']}: {words.colored(about['status'], about['status'], color)}"


def _about(document: Document) -> list[tuple[str, str]]:
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


def _path(path: Sequence[Document], width: int, color: bool) -> str:
    costs = any(run["usd"] for run in path)
    headers = ["step", "node=variant", "visit", "status", "attempts", "time", *(["cost"] if costs else [])]
    rows = [
        [
            str(run["step"]),
            words.under(run),
            str(run["visit"]),
            run["status"],
            str(run["attempts"]),
            words.took(run["duration_s"]) if run["status"] == "succeeded" else MISSING,
            *([money(run["usd"]) if run["usd"] else ""] if costs else []),
        ]
        for run in path
    ]
    right = {"step", "visit", "attempts", "time", "cost"}
    return grid(headers, rows, width, right=right, whole={"status"}, color=color)


def _failures(document: Document, width: int) -> list[str]:
    """Failed attempts with the frames of the user's own code, and what failed outside of any attempt."""
    parts = []
    about, shown = document["execution"], set()
    for run in document["path"]:
        for attempt in run["tried"]:
            if attempt["error"]:
                shown.add(attempt["error"])
                took = words.took(attempt["duration_s"])
                ended = "asked" if attempt["status"] == "waiting" else "failed"
                title = f"{words.under(run)}, attempt {attempt['number']} {ended} after {took}"
                parts.append(_failure(title, attempt, width))
    if about["error"] and about["error"] not in shown:
        parts.append(_failure("failed", about, width))
    return parts


def _failure(title: str, failed: Document, width: int) -> str:
    lines = [*wrapped(title, width), *wrapped(failed["error"], width, "  ")]
    if failed["trace"]:
        lines += wrapped(failed["trace"].rstrip("\n"), width, "  ")
    return "\n".join(lines) + "\n"


def _outputs(document: Document, width: int) -> list[str]:
    """The last lines that attempts have printed."""
    parts = []
    for run in document["path"]:
        for attempt in run["tried"]:
            for name in ("stdout", "stderr"):
                if attempt[name]:
                    lines = attempt[name].rstrip("\n").split("\n")
                    number = f", attempt {attempt['number']}" if len(run["tried"]) > 1 else ""
                    more = f" (its last {_LINES} lines of {len(lines):,}; all: --format json)"
                    title = f"{words.under(run)}{number} {name}{more if len(lines) > _LINES else ''}"
                    shown = wrapped("\n".join(lines[-_LINES:]), width, "  ")
                    parts.append("\n".join([*wrapped(title, width), *shown]) + "\n")
    return parts


def _cells(cells: Sequence[Document], width: int, color: bool) -> str:
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


def _state(state: Document, width: int) -> str:
    indent = min(30, max(len(key) for key in state) + 2)
    return "".join(
        f"  {printable(key):<{indent}}{words.short(value, width - indent - 2)}\n" for key, value in state.items()
    )


def _call(step: Document, call: Document, width: int) -> str:
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


def _invocation(step: Document, one: Document, width: int) -> str:
    """A call of a tool."""
    named = one["arguments"] if isinstance(one["arguments"], dict) else {"arguments": one["arguments"]}
    given = ", ".join(f"{key}={words.short(value, 200)}" for key, value in named.items())
    how = "" if one["status"] == "done" else f" ({one['status']})"
    lines = wrapped(f"{step['node']} used {one['tool']}, {words.took(one['duration_s'])}{how}", width)
    lines += _first_lines(f"with: {given}", width) if given else []
    if one["status"] == "failed":
        lines += _first_lines(f"error: {one['error']}", width)
    elif one["result"] is not None:
        result = one["result"] if isinstance(one["result"], str) else words.short(one["result"], 1000)
        lines += _first_lines(f"result: {result}", width)
    return "\n".join(lines) + "\n"


def history(document: Document, width: int, color: bool = False) -> str:
    """The line of checkpoints, and below it where each visit of a node begins and ends."""
    about = document["execution"]
    single = about["sweep"]["kind"] == "single"
    case = "" if single else f"{about['case']}, repeat {about['repeat']}"
    head = _title(about, color) + "\n" + facts([("case", case)], width)
    if not document["checkpoints"]:
        return f"{head}\nit has not begun yet\n"
    rows: list[list[str]] = []
    notes: list[str] = []
    for checkpoint in document["checkpoints"]:
        rows += _checkpoint_rows(checkpoint)
        why = [f"{one['node']} → {_end(one['to'])}: {one['why']}" for one in checkpoint["decisions"]]
        note = "; ".join(words.line(why))
        note = note or _made(checkpoint["made"])
        notes += [""] * (len(rows) - len(notes) - 1) + [note]
    costs = any(row[5] for row in rows)
    triggers = any(row[7] not in ("", "step") for row in rows)
    headers = ["step", "checkpoint", "node=variant", "visit", "time", "cost", "next", "trigger"]
    kept = [i for i in range(8) if (i != 5 or costs) and (i != 7 or triggers)]
    table = grid(
        [headers[i] for i in kept],
        [[row[i] for i in kept] for row in rows],
        width,
        right={"step", "visit", "time", "cost"},
        whole={"checkpoint"},
        notes=notes,
        color=color,
    )
    return f"{head}\n{table}\n{_boundaries(document, width, color)}{_left(document, width)}"


def _made(made: Document | None) -> str:
    """How a person made a checkpoint."""
    if made is None:
        return ""
    how = {"execution.rolled_back": "rolled back", "execution.redone": "a rollback taken back", "fork.made": "forked"}
    keys = ", ".join(made.get("set") or made.get("changed") or made.get("keys") or ())
    by = f" by {made['by']}" if made.get("by") else ""
    why = f": {made['reason']}" if made.get("reason") else ""
    return f"{how.get(made['kind'], 'edited')}{by}{f' ({keys} changed)' if keys else ''}{why}"


def _left(document: Document, width: int) -> str:
    """The lines that rollbacks left."""
    lines = []
    for one in document["left"]:
        nodes = ", ".join(one["nodes"]) or "nothing"
        again = ", taken back since" if one["redone_at"] else ""
        lines += wrapped(f"by {one['by']}: {nodes}{again}; its head is checkpoint {one['from_id']}", width, "  ")
    return "\nlines left by rollbacks\n" + "\n".join(lines) + "\n" if lines else ""


def _checkpoint_rows(checkpoint: Document) -> list[list[str]]:
    """A row for each writer; the root, which nobody wrote, has one too."""
    following = ", ".join(checkpoint["next"]) or "the end"
    trigger = checkpoint["name"] or checkpoint["trigger"]
    front = [str(checkpoint["step"]), checkpoint["id"]]
    if not checkpoint["writers"]:
        what = "(input)" if checkpoint["parent"] is None else ""
        return [[*front, what, "", "", "", following, trigger]]
    return [
        [
            *(front if number == 0 else ["", ""]),
            words.under(run) + ("" if run["status"] == "succeeded" else f" ({run['status']})"),
            str(run["visit"]),
            words.took(run["duration_s"]),
            money(run["usd"]) if run["usd"] else "",
            following if number == 0 else "",
            trigger if number == 0 else "",
        ]
        for number, run in enumerate(checkpoint["writers"])
    ]


def _end(name: str) -> str:
    return "the end" if name == "__end__" else name


def _boundaries(document: Document, width: int, color: bool) -> str:
    if not document["boundaries"]:
        return "no node has been reached yet\n"
    step = {one["id"]: f"step {one['step']}" for one in document["checkpoints"]}
    headers = ["node", "visit", "entry", "exit", "status", "time"]
    rows = [
        [
            one["node"],
            str(one["visit"]),
            step[one["entry"]],
            step[one["exit"]] if one["exit"] else MISSING,
            one["status"],
            words.took(one["duration_s"]) if one["status"] == "succeeded" else MISSING,
        ]
        for one in document["boundaries"]
    ]
    return "boundaries\n" + grid(headers, rows, width, right={"visit", "time"}, whole={"status"}, color=color)


def diff(document: Document, width: int, color: bool = False) -> str:
    """Where two executions part, and in what they differ at the end."""
    a, b = document["a"], document["b"]
    text = facts([("A", _one(a)), ("B", _one(b)), ("parting", _parting(document))], width)
    if a["totals"] or b["totals"]:
        text += "\n" + _totals(a, b, width)
    ways = [(f"path of {name}", " → ".join(words.line(one["path"]))) for name, one in (("A", a), ("B", b))]
    text += "\n" + facts(ways, width)
    return text + "\n" + _states(document["state"], width) + _files(document["files"], width)


def _files(changes: Sequence[Document] | None, width: int) -> str:
    """The files in which two snapshots differ, from A to B."""
    if not changes:
        return ""
    shown = [f"{one['kind']:<8} {printable(one['path'])}" for one in changes[:_LINES]]
    more = [f"and {len(changes) - _LINES:,} more"] if len(changes) > _LINES else []
    return "files\n" + "".join(f"  {words.cut(line, width - 2)}\n" for line in [*shown, *more])


def _one(about: Document) -> str:
    if "case" not in about:
        return f"checkpoint {about['id']}"
    chosen = words.chosen_by_all(about["combinations"])
    return f"{about['id']} ({about['status']}): {about['case']}, repeat {about['repeat']}, {chosen}"


def _parting(document: Document) -> str:
    shared = words.plural(document["shared_steps"], "step")
    common = f"{shared} shared, up to checkpoint {document['common_checkpoint']}; "
    if document["common_checkpoint"] is None:
        common = "nothing shared; "
    found = document["divergence"]
    if found is None:
        return common + "no difference in what they ran and found"
    sides = [", ".join(found[side]) or "nothing" for side in ("a", "b")]
    where = f": {sides[0]} | {sides[1]}" if sides != ["nothing", "nothing"] else ""
    return f"{common}at step {found['step']} {_DIFFERS[found['why']]}{where}"


def _totals(a: Document, b: Document, width: int) -> str:
    shown: dict[str, tuple[str, Callable[[Any], str]]] = {
        "elapsed_s": ("time", words.took),
        "usd": ("cost", money),
        "tokens_in": ("tokens in", "{:,}".format),
        "tokens_out": ("tokens out", "{:,}".format),
        "node_runs": ("node runs", "{:,}".format),
    }
    sides = [one["totals"] or {} for one in (a, b)]
    rows = [
        [label, *(say(side[key]) if key in side else MISSING for side in sides)]
        for key, (label, say) in shown.items()
        if any(side.get(key) for side in sides)
    ]
    return grid(["as if alone", "A", "B"], rows, width, right={"A", "B"})


def _states(state: Document, width: int) -> str:
    values = [("", key, value["a"], value["b"]) for key, value in state["changed"].items()]
    lines = []
    for _, key, before, after in values:
        lines += [printable(key), f"  A  {words.short(before, width - 5)}", f"  B  {words.short(after, width - 5)}"]
    for side, name in (("only_a", "A"), ("only_b", "B")):
        for key, value in state[side].items():
            lines += [f"{printable(key)} (only in {name})", f"     {words.short(value, width - 5)}"]
    if state["same"]:
        lines += wrapped(f"the same in both: {', '.join(state['same'])}", width)
    return "\n".join(lines or ["neither has any state"]) + "\n"

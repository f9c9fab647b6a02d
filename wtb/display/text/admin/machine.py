"""What runs on a machine, what `wtb doctor` found on it, and what `wtb gc` removed, in a terminal."""

from __future__ import annotations

from wtb.core import texts
from wtb.core.documents.administration import CollectionDocument, DoctorDocument, StackDocument, StackPart
from wtb.display.tables import grid, wrapped

_WHAT = {
    "sweeps": "sweeps",
    "checkpoints": "superseded checkpoints",
    "node_runs": "their node runs",
    "outputs": "outputs of attempts",
    "values": "values",
    "files": "stored files",
    "judgements": "judgements unused for 90 days",
    "uploads": "uploads of more than a day",
    "answers": "kept answers to requests",
    "directories": "directories of dead runners",
    "processes": "processes of dead runners",
}


def collected(document: CollectionDocument, width: int, color: bool = False) -> str:
    """A line for each kind of thing: how many, and how large where that is known."""
    rows = [
        [_WHAT.get(kind, kind), f"{one['count']:,}", "" if one["bytes"] is None else texts.bytes_of(one["bytes"])]
        for kind, one in document["removed"].items()
    ]
    title = "would be removed" if document["dry_run"] else "removed"
    parts = [grid([title, "how many", "bytes"], rows, width, right={"how many", "bytes"}, color=color)]
    parts += ["\n".join(wrapped(note, width)) + "\n" for note in document["notes"]]
    return "\n".join(parts)


def stack(document: StackDocument, width: int, color: bool = False) -> str:
    """A line for each part. No passwords: this is for shared screens."""
    if document["pid"] is None:
        return "no stack is up in this folder; `wtb up` starts one\n"
    rows = [
        [
            part["name"],
            part["status"],
            str(part["pid"] or ""),
            part["address"] or "",
            texts.moment(part["since"]) if part["since"] else "",
            texts.bytes_of(part["memory"]) if part["memory"] is not None else "",
            str(part["restarts"]),
        ]
        for part in document["parts"]
    ]
    headers = ["part", "status", "pid", "address", "since", "memory", "restarts"]
    state = "up" if document["up"] else "not all up"
    text = (
        f"stack of {document['folder']}: {state} (process {document['pid']}, since {texts.moment(document['since'])})"
    )
    title = "\n".join(wrapped(text, width)) + "\n\n"
    table = title + grid(headers, rows, width, right={"pid", "memory", "restarts"}, color=color)
    restarts = [line for part in document["parts"] for line in _restart(part, width)]
    return "\n".join([table, *restarts, ""]) if restarts else table


def _restart(part: StackPart, width: int) -> list[str]:
    """When a part was started again the last time, and why."""
    if not part["restarts"]:
        return []
    text = f"{part['name']} was started again at {texts.moment(part['restarted_at'])}: it {part['restart_reason']}"
    return wrapped(text, width)


def checks(document: DoctorDocument, width: int, color: bool = False) -> str:
    """One line per check; below a problem, how to fix it."""
    indent = max(len(check["name"]) for check in document["checks"]) + 2
    lines = []
    for check in document["checks"]:
        status = f"{check['status']:<9}"
        found = wrapped(check["found"], width, " " * (len(status) + indent))
        lines.append(f"{texts.colored(status, check['status'], color)}{check['name']:<{indent}}{found[0].lstrip()}")
        lines += found[1:]
        if check["fix"]:
            lines += wrapped(f"→ {check['fix']}", width, " " * (len(status) + indent))
    problems = sum(check["status"] == "problem" for check in document["checks"])
    lines += ["", f"{texts.plural(problems, 'problem')} found" if problems else "all is well"]
    return "\n".join(lines) + "\n"

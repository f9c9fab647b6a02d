"""A node process that prepares the sweep of a file: it imports the code and reads the cases for a runner.

Only such a process imports the modules that read sweeps. It ends with the preparation, and runs no node.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from wtb.core.errors import WTBError
from wtb.execution.engine.description import described
from wtb.execution.sandbox.framing import Channel
from wtb.planning.binding import draft_of
from wtb.planning.prepare import Prepared, prepare
from wtb.planning.sweep_spec import load_spec
from wtb.store.files.shared_store import OUTBOX, Outbox, store_at
from wtb.store.files.workspaces import Bounds, Workspaces
from wtb.store.runs.submission import NewCase

if TYPE_CHECKING:
    from wtb.execution.sandbox.framing import PreparedHead, SentNewCase, SetupHead

MOST_CASES = 500  # in one message
MOST_BYTES = 4 << 20  # of inputs in one message, beyond which no other case is added


def serve_preparation(channel: Channel, setup: SetupHead) -> None:
    """Prepare the sweep of a file, describe its code, and send its cases on request.

    Args:
        channel: To the runner.
        setup: The setup from the runner; `prepare` is the path of the sweep file.
    """
    try:
        prepared = prepare(load_spec(Path(setup["prepare"])))
        description = described(draft_of(prepared.bound.spec).text())[-1]
        channel.send("ready", {"code": description, "prepared": _head_of(prepared)})
    except WTBError as error:
        channel.send("refused", str(error))
        return
    directory = Path(setup["directory"])
    files = Outbox(store_at(setup["files"]), directory / OUTBOX)
    cases = prepared.encode(Workspaces(files, directory, Bounds(**setup["bounds"])))
    while channel.receive() is not None:
        channel.request_count += 1
        try:
            head = list(_next_cases(cases))
        except WTBError as error:
            channel.send("refused", [False, str(error)])
            return
        channel.send("cases", [False, head])


def _head_of(prepared: Prepared) -> PreparedHead:
    return {
        "choices": list(map(dict, prepared.choices)),
        "baseline": None if prepared.baseline is None else dict(prepared.baseline),
        "cases": prepared.cases,
        "clusters": list(prepared.clusters),
        "findings": list(prepared.findings),
        "tools": prepared.tool_versions(),
    }


def _next_cases(cases: Iterator[NewCase]) -> Iterator[SentNewCase]:
    """Yield as many cases as one message holds."""
    size = 0
    for number, case in enumerate(cases, 1):
        sent: dict[str, bytes] = {name: value.data for name, value in case.input.items()}
        size += sum(map(len, sent.values()))
        yield case.id, sent, case.expected, list(case.tags), case.workspace, list(case.files), case.cluster
        if number == MOST_CASES or size >= MOST_BYTES:
            return

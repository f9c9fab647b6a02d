"""Named fault points, at which tests end this process, or a thread of it, as a crash would. Unarmed they cost nothing.

`WTB_FAULT=journal.committed:3` kills the process when it passes that point for the third time;
`WTB_FAULT=heartbeat:1:raise` raises an error there instead, which ends the thread. `WTB_FAULT=heartbeat:/path/to/file`
kills the process when it passes that point after the file has been created. `WTB_NODE_FAULT` arms a point in node
processes, separately in each of them.
"""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

POINTS = (
    "submit.batch",
    "submit.written",
    "submit.committed",
    "claim.committed",
    "node.starting",
    "node.answered",
    "journal.writing",
    "journal.committed",
    "files.publishing",
    "heartbeat",
    "task.done",
    "finish.released",
    "copy.batch",
    "delete.hidden",
    "delete.part",
    "scoring.part",
)

_armed, _, _rest = os.environ.get("WTB_FAULT", "").partition(":")
_when, _, _how = _rest.partition(":")
_passing = itertools.count(1)


class Fault(BaseException):
    """The error of an armed point; nothing in WTB catches it by name."""


def point(name: str) -> None:
    """Pass a named point."""
    if _armed == name and _is_due():
        if _how == "raise":
            raise Fault(name)
        # No cleanup of any kind may run, as in a crash.
        os.kill(os.getpid(), signal.SIGKILL)


def _is_due() -> bool:
    """Return whether the armed point strikes in this passing."""
    if _when.startswith("/"):
        return Path(_when).exists()
    return next(_passing) == int(_when or 1)

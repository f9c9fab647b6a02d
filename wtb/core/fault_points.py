"""Named fault points: where tests end this process, or a thread of it, as a crash would. They cost nothing unarmed.

`WTB_FAULT=journal.committed:3` kills the process at the third passing of that point; `WTB_FAULT=heartbeat:1:raise`
raises there instead, which ends the thread. `WTB_NODE_FAULT` arms a point in node processes, in each of them anew.
"""

from __future__ import annotations

import itertools
import os
import signal

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
    "finish.given_back",
    "copy.batch",
    "delete.hidden",
    "delete.part",
    "scoring.part",
)

_armed, _, _rest = os.environ.get("WTB_FAULT", "").partition(":")
_count, _, _how = _rest.partition(":")
_passing = itertools.count(1)


class Fault(BaseException):
    """What an armed point raises; nothing in WTB catches it by name."""


def point(name: str) -> None:
    """Pass a named point."""
    if _armed == name and next(_passing) == int(_count or 1):
        if _how == "raise":
            raise Fault(name)
        os.kill(os.getpid(), signal.SIGKILL)

"""Check the message of a commit: the hook `commit-msg` of .pre-commit-config.yaml runs this with its file."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_SUBJECT = 72
_NOT_IMPERATIVE = re.compile(r"(?!Embed|Need|Speed|Feed|Exceed|Seed|Shed|Proceed|Succeed)[A-Z]\w+(?:ed|ing)\b")


def problems(message: str) -> Iterator[str]:
    """Yield each problem of a message; none of merges and reverts, whose subjects git writes."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0].strip() if lines else ""
    if not subject:
        yield "the message has no subject"
        return
    if subject.startswith(("Merge ", "Revert ", "fixup! ", "squash! ")):
        return
    if len(subject) > MAX_SUBJECT:
        yield f"the subject has {len(subject)} characters; at most {MAX_SUBJECT}"
    if subject.endswith("."):
        yield "the subject ends with a full stop"
    if subject[0].islower():
        yield "the subject begins with a small letter"
    if match := _NOT_IMPERATIVE.match(subject):
        yield f"the subject begins with {match[0]!r}; use the imperative"
    if len(lines) > 1 and lines[1].strip():
        yield "the line after the subject is not empty"


if __name__ == "__main__":
    if found_problems := list(problems(Path(sys.argv[1]).read_text("utf-8"))):
        sys.exit("\n".join(found_problems))

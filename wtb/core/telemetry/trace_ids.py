"""Under which ids traces know what a database has: hashes of ids there, so that whoever makes them makes the same.

Source: W3C Trace Context, "traceparent".
"""

from __future__ import annotations

import hashlib


def trace_id_of(sweep_id: str, case_number: int, repeat: int, combination: int | None = None) -> str:
    """Return the id of the trace of all that has one root execution.

    Args:
        sweep_id: The sweep.
        case_number: The number of its case.
        repeat: The repeat.
        combination: Of a sweep that shares nothing, the one that its root stands for.
    """
    return _digest("trace", sweep_id, case_number, repeat, combination)[:32]


def span_id_of(kind: str, *names: object) -> str:
    """Return the id of a span: of an execution, an attempt or a call, by what tells it from all others of its kind."""
    return _digest("span", kind, *names)[:16]


def attempt_span_id(node_run_id: str, number: int) -> str:
    """Return the id of the span of an attempt."""
    return span_id_of("attempt", node_run_id, number)


def traceparent_of(place: str) -> str:
    """Return the header by which spans that somebody else makes say within which attempt they are.

    Args:
        place: What a runner says of an attempt: what tells its trace from others, and it from others, with `;` between.
    """
    trace, _, attempt = place.partition(";")
    return f"00-{_digest('trace', trace)[:32]}-{_digest('span', 'attempt', attempt)[:16]}-01"


def _digest(*names: object) -> str:
    return hashlib.sha256(" ".join(map(str, names)).encode()).hexdigest()

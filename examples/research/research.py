"""Start, approve and resume a long research run, even after a signal or kill -9.

    python -m examples.research.research tides            # starts it, and ends at the question
    python -m examples.research.research tides --approve  # approves the plan, and reads
    kill -9 PID                                           # its process, at any time
    python -m examples.research.research tides            # resumes it

What was committed is not repeated: finished nodes, checkpoints inside nodes and answers. The process may run anywhere
that reaches the database.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import wtb
from examples.research.workflow import wf

ENDED = ("completed", "failed", "cancelled")


def find_or_start(bench: wtb.Bench, topic: str, pages: int, pause: float) -> wtb.ExecutionHandle:
    """Return the unfinished run about a topic, which continues; a new one if there is none."""
    for run in bench.executions(workflow=wf.name):
        execution = bench.execution(run.id, workflow=wf)
        if run.status not in ENDED and execution.state["topic"] == topic:
            print(f"{run.id} is {run.status}", flush=True)
            return execution if run.status == "waiting" else execution.resume()
    state = {"topic": topic, "pages": pages, "pause": pause}
    execution = bench.start(wf, state, run={"checkpoints": {"every": "100ms"}})
    print(f"{execution.id} is started", flush=True)
    return execution


def research(bench: wtb.Bench, topic: str, *, approve: bool = False, pages: int = 20, pause: float = 0.05) -> str:
    """Run until the end, or until a person must answer.

    Args:
        bench: The open database.
        topic: What it is about, which also finds an unfinished run.
        approve: Approve what it asks; else it ends at a question.
        pages: Pages of each source.
        pause: Seconds that a page takes.

    Returns:
        The report, or the open question.
    """
    execution = find_or_start(bench, topic, pages, pause)
    execution.wait()
    while execution.status == "waiting":
        (question,) = execution.questions()
        details = question.details()
        if not approve:
            return f"{details['question']} {details['context']}"
        question.answer("approve")
        execution.wait()
    return str(execution.state.get("report", execution.reason))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program of this example."""
    parser = argparse.ArgumentParser(description="Research a topic.")
    parser.add_argument("topic")
    parser.add_argument("--approve", action="store_true", help="approve the plan")
    parser.add_argument("--pages", type=int, default=20, help="pages of each source")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds that a page takes")
    parser.add_argument("--db", help="a database URL")
    options = parser.parse_args(arguments)
    with wtb.open(options.db) as bench:
        print(research(bench, options.topic, approve=options.approve, pages=options.pages, pause=options.pause))


if __name__ == "__main__":
    main()

"""A small service in Python: it submits a sweep, follows it, answers its questions and reads the matrix.

    wtb up --detach
    python examples/service/service.py rain snow

Nothing blocks the event loop, so a web framework can serve requests meanwhile: what waits is `await`ed, and what takes
milliseconds is called with `asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from letters import wf, words

import wtb


def letters_about(topics: Sequence[str]) -> wtb.Sweep:
    """Return the sweep: a case for each topic, each with both closings."""
    return wtb.Sweep(
        name="letters",
        workflow=wf,
        cases=[{"id": topic, "input": {"topic": topic}} for topic in topics],
        vary={"review": "all"},
        evaluate=[words],
    )


class LetterService:
    """Runs sweeps on the workers of a database.

    Args:
        bench: The open database.
        forbidden: The topic that no letter is sent about.
    """

    def __init__(self, bench: wtb.Bench, forbidden: str = "snow") -> None:
        self._bench = bench
        self._forbidden = forbidden

    async def run(self, topics: Sequence[str]) -> dict[str, Any]:
        """Run a sweep of letters to its end, and return its matrix."""
        sweep = await asyncio.to_thread(self._bench.submit, letters_about(topics))
        async for event in sweep.follow_async(kinds=["approval.asked", "sweep"], interval_s=0.2):
            if event["kind"] == "approval.asked":
                await asyncio.to_thread(self._answer, event["data"]["approval"])
            else:
                print(event["kind"])
        return await asyncio.to_thread(sweep.matrix)

    def _answer(self, id: str) -> None:
        """Answer a question; a real service would ask a person."""
        question = self._bench.question(id)
        text = question.record.question
        answered = question.answer("hold back" if self._forbidden in text else "send")
        print(text, answered.choice)


async def main(topics: Sequence[str]) -> None:
    """Run the service once, for topics of the command line."""
    with wtb.open(by="letter service") as bench:
        matrix = await LetterService(bench).run(topics)
    for row in matrix["rows"]:
        print(f"{row['combination']['review']}: {row['metrics']['words']['mean']:g} words")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["rain"]))

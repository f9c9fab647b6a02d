"""A long research run: a plan that a person approves, three sources that are read in parallel, and a report.

Reading takes time here, and stands for downloads, models and measurements. `books` saves how far it is by
`ctx.checkpoint`; `letters` and `archive` only write files, which checkpoints by time keep.
"""

from __future__ import annotations

import operator
import time
from typing import Annotated, Any, TypedDict

import wtb

SOURCES = ("books", "letters", "archive")


class Research(TypedDict, total=False):
    """Question, plan, findings and report; `pause` is the seconds that reading a page takes."""

    topic: str
    pages: int
    pause: float
    plan: list[str]
    found: Annotated[list[str], operator.add]
    report: str


wf = wtb.Workflow("research", state=Research, approval=[{"after": "plan"}, "on_error"])


@wf.node
def plan(state: Research) -> dict[str, Any]:
    """Plan what to look for."""
    return {"plan": [f"What is known of {state['topic']}?", f"Who wrote of {state['topic']} first?"]}


@wf.node
def books(state: Research, ctx: wtb.Context) -> dict[str, Any]:
    """Read books page by page, and save how far it is after each."""
    notes = list(ctx.saved.get("notes", []))
    for page in range(len(notes), state["pages"]):
        notes.append(read("books", page, state, ctx))
        ctx.checkpoint("a page is read", notes=notes)
    return {"found": [f"books: {len(notes)} pages"]}


@wf.node
def letters(state: Research, ctx: wtb.Context) -> dict[str, Any]:
    """Read letters, and write a file for each one that was read."""
    return read_files("letters", state, ctx)


@wf.node
def archive(state: Research, ctx: wtb.Context) -> dict[str, Any]:
    """Read an archive, and write a file for each page that was read."""
    return read_files("archive", state, ctx)


@wf.node
def write(state: Research) -> dict[str, Any]:
    """Write the report."""
    lines = [f"# {state['topic'].capitalize()}", "", *state["plan"], "", *sorted(state["found"])]
    return {"report": "\n".join(lines)}


def read_files(source: str, state: Research, ctx: wtb.Context) -> dict[str, Any]:
    """Read the pages that have no file yet, and write one for each."""
    for page in range(state["pages"]):
        file = ctx.workspace / source / f"{page}.txt"
        if not file.exists():  # an attempt before this one has not read it
            file.parent.mkdir(exist_ok=True)
            file.write_text(read(source, page, state, ctx), "utf-8")
    return {"found": [f"{source}: {state['pages']} pages"]}


def read(source: str, page: int, state: Research, ctx: wtb.Context) -> str:
    """Read a page, which takes its time."""
    time.sleep(state["pause"])
    ctx.log(f"read page {page} of {source}")
    return f"page {page} of {source} about {state['topic']}"


wf.entry(plan)
for source in SOURCES:
    wf.edge(plan, source)
wf.edge(list(SOURCES), write)
wf.edge(write, wtb.END)

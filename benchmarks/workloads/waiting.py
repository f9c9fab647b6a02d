"""W: 1,000 cases of one async node that waits for a second, as a call of a language model does; 200 at a time."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TypedDict

from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END

CASES = 1000
WIDTH = 200
WAIT_S = 1.0
IDEAL_S = CASES / WIDTH * WAIT_S


class Waited(TypedDict, total=False):
    x: int
    y: int


waiting = Workflow("waiting", state=Waited)


async def wait_and_copy(state: Waited) -> Waited:
    await asyncio.sleep(WAIT_S)
    return {"y": state["x"]}


call = waiting.node(name="call")(wait_and_copy)

waiting.entry(call)
waiting.edge(call, END)

listing = Workflow("listing", state=Waited)


@listing.node(name="call")
def list_modules(state: Waited) -> Waited:
    """Write a list of the imported modules."""
    Path("modules.json").write_text(json.dumps(list(sys.modules)))
    return {"y": state["x"]}


listing.entry(list_modules)
listing.edge(list_modules, END)


async def bare() -> None:
    """Wait as often and as long with asyncio alone."""
    places = asyncio.Semaphore(WIDTH)

    async def run_one() -> None:
        async with places:
            await asyncio.sleep(WAIT_S)

    await asyncio.gather(*(run_one() for _ in range(CASES)))

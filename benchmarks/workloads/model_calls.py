"""L: 24 combinations x 50 cases of three async nodes, each of which makes one call of a model; with three clients."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypedDict

from wtb.authoring.context.node_context import Context
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END

URL = "BENCH_MODEL_URL"  # the variable with the address of the model
STEPS = {"plan": 2, "search": 3, "answer": 4}  # node -> its variants
CASES = 50
CELLS = 24 * CASES
CALLS = (2 + 2 * 3 + 2 * 3 * 4) * CASES
WIDTH = 64
WAIT_S = 0.2
REPLY_BYTES = 2000
IDEAL_S = CALLS / WIDTH * WAIT_S
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Client:
    """A client of the model. ask: makes one call, with a prompt. close: ends its connections."""

    ask: Callable[[str], Awaitable[str]]
    close: Callable[[], Awaitable[None]]


class Talk(TypedDict, total=False):
    x: int
    plan: str
    search: str
    answer: str


def openai_client() -> Client:
    import openai

    client = openai.AsyncOpenAI(base_url=os.environ[URL], api_key="none", max_retries=0, timeout=TIMEOUT_S)

    async def ask(prompt: str) -> str:
        reply = await client.chat.completions.create(model="model", messages=[{"role": "user", "content": prompt}])
        return reply.choices[0].message.content or ""

    return Client(ask, client.close)


def httpx_client() -> Client:
    import httpx

    client = httpx.AsyncClient(timeout=TIMEOUT_S)

    async def ask(prompt: str) -> str:
        return _content((await client.post(_address(), json=_body(prompt))).raise_for_status().json())

    return Client(ask, client.aclose)


async def aiohttp_client() -> Client:
    import aiohttp

    client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT_S))

    async def ask(prompt: str) -> str:
        async with client.post(_address(), json=_body(prompt), raise_for_status=True) as reply:
            return _content(await reply.json())

    return Client(ask, client.close)


CLIENTS: dict[str, Callable[[], Any]] = {"openai": openai_client, "httpx": httpx_client, "aiohttp": aiohttp_client}


def _address() -> str:
    return f"{os.environ[URL]}/chat/completions"


def _body(prompt: str) -> dict[str, object]:
    return {"model": "model", "messages": [{"role": "user", "content": prompt}]}


def _content(reply: Any) -> str:
    return str(reply["choices"][0]["message"]["content"])


def _prompt(step: str, variant: int, x: int) -> str:
    return f"{step} {variant} of case {x}"


def _node(step: str) -> Callable[..., Awaitable[dict[str, str]]]:
    async def call(state: Talk, ctx: Context, *, variant: int = 0) -> dict[str, str]:
        return {step: await ctx.resources.ask(_prompt(step, variant, state["x"]))}

    return call


def _workflow(client: str) -> Workflow:
    workflow = Workflow(client, state=Talk, resources=CLIENTS[client])
    for step, variants in STEPS.items():
        node = workflow.node(_node(step), name=step)
        for number in range(1, variants):
            node.variant(f"v{number}", variant=number)
    names = [*STEPS]
    workflow.entry(names[0])
    for source, target in zip(names, [*names[1:], END], strict=True):
        workflow.edge(source, target)
    return workflow


with_openai, with_httpx, with_aiohttp = map(_workflow, CLIENTS)


async def call_by_hand(client: str, cases: range, width: int) -> list[float]:
    """Make the calls of some cases by hand, so many at a time, each as soon as the one before it has ended.

    Returns:
        The seconds of each call.
    """
    opening = CLIENTS[client]()
    model: Client = await opening if asyncio.iscoroutine(opening) else opening
    places = asyncio.Semaphore(width)
    seconds: list[float] = []

    async def call(steps: list[tuple[str, int]], x: int) -> None:
        (step, variants), *rest = steps
        async with asyncio.TaskGroup() as group:
            for variant in range(variants):
                group.create_task(_call_one(step, variant, rest, x))

    async def _call_one(step: str, variant: int, rest: list[tuple[str, int]], x: int) -> None:
        async with places:
            start = time.perf_counter()
            await model.ask(_prompt(step, variant, x))
            seconds.append(time.perf_counter() - start)
        if rest:
            await call(rest, x)

    async with asyncio.TaskGroup() as group:
        for x in cases:
            group.create_task(call([*STEPS.items()], x))
    await model.close()
    return seconds

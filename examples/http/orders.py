"""Orders that are priced, approved by a person if they are large, and packed item by item."""

import asyncio
from typing import NotRequired, TypedDict

from wtb import END, Workflow


class Order(TypedDict):
    items: int
    price: NotRequired[float]
    approved: NotRequired[bool]
    packed: NotRequired[int]


wf = Workflow("orders", state=Order)


@wf.node
def price(state, *, each: float = 2.5):
    return {"price": state["items"] * each}


@wf.node
def approve(state, ctx):
    if state["price"] < 100:
        return {"approved": True}
    answer = ctx.ask(f"Accept an order of {state['price']:g} EUR?", options=["yes", "no"])
    return {"approved": answer.choice == "yes"}


@wf.node
async def pack(state, ctx):
    for _ in range(state["items"] if state["approved"] else 0):
        await asyncio.sleep(0.05)
    return {"packed": state["items"] if state["approved"] else 0}


wf.entry(price)
wf.edge(price, approve)
wf.edge(approve, pack)
wf.edge(pack, END)

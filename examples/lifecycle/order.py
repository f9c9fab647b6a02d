"""The life of one execution in Python: prepare, pause, look, change, name, roll back, undo, fork and retry.

    python -m examples.lifecycle.order

An order is priced, booked with a tool that can be undone, and confirmed.
"""

from __future__ import annotations

import sys
from typing import Any

import wtb
from wtb import END, Workflow

BOOKED: list[str] = []  # outside of WTB: the bookings that stand


def book(item: str) -> str:
    """Book an item."""
    BOOKED.append(item)
    return f"booking of {item}"


def unbook(booking: str, *, item: str) -> None:
    """Undo a booking."""
    BOOKED.remove(item)


def build() -> Workflow:
    """Build the workflow: price -> reserve -> confirm."""
    wf = Workflow("order", description="Price, book and confirm an order.", metadata={"team": "sales"})
    wf.tool(book, reverse=unbook)

    @wf.node
    def price(state: dict[str, Any], *, discount: float = 0.0) -> dict[str, Any]:
        return {"total": state["amount"] * (1 - discount)}

    price.variant("sale", discount=0.25)

    @wf.node
    def reserve(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        return {"booking": ctx.tools.book(item=state["item"])}

    @wf.node
    def confirm(state: dict[str, Any]) -> dict[str, Any]:
        if state["total"] > state["limit"]:
            raise ValueError(f"{state['total']} is over the limit of {state['limit']}")
        return {"confirmed": True}

    wf.entry(price)
    wf.edge(price, reserve)
    wf.edge(reserve, confirm)
    wf.edge(confirm, END)
    return wf


def main(database: str = "sqlite:///:memory:") -> None:
    """Take one order through its life, and print each stage."""
    wf = build()
    with wtb.open(database) as bench:
        # Threads of this process run the nodes, so that the tool changes `BOOKED` here.
        order = bench.start(
            wf,
            {"item": "lamp", "amount": 80.0, "limit": 70.0},
            create_only=True,
            breakpoints=["before confirm"],
            run={"pool": "thread"},
        )
        print("prepared:", order.status)

        order.resume().wait()
        print("at the breakpoint:", order.status, order.state["total"], BOOKED)

        order.set_breakpoints(clear=True)
        order.resume().wait()
        print("then:", order.status)
        failed = bench.executions(status="failed", workflow="order")
        print("found as failed:", [run.id for run in failed] == [order.id])

        order.rollback("price")
        print("rolled back to price:", order.status, BOOKED)
        order.name_checkpoint("priced", note="before the item was booked")
        order.undo_rollback()
        print("the rollback undone:", BOOKED)

        order.rollback("priced")
        order.resume({"limit": 90.0}).wait()
        print("with another limit:", order.status, order.state["confirmed"], BOOKED)

        sale = order.fork("reserve", set={"total": 60.0}, run=True).wait()
        print("a fork beside it:", sale.status, sale.state["total"], order.state["total"])

        history = order.history()
        for boundary in history.boundaries:
            print(f"  {boundary.node}, visit {boundary.visit}: {boundary.status}")
        print("events:", sorted({event["kind"] for event in order.log(kinds=["rollback", "checkpoint.named"])}))

        cheap = bench.start(wf.apply({"price": "sale"}), {"item": "desk", "amount": 80.0, "limit": 70.0}).wait()
        print("the variant `sale` in place of the default:", cheap.status, cheap.state["total"])


if __name__ == "__main__":
    main(*sys.argv[1:])

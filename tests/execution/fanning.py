"""A workflow whose engine fans out: plan -> work (once for each item), beside -> gather. It imports no other test."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypedDict

from wtb import END, Workflow
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Value, Values
from wtb.execution.engine.native import NativeEngine
from wtb.execution.engine.protocol import Joined, Root, Writes


class FanEngine(NativeEngine):
    """Sends to `work` once for each of `items`, counts its steps in a key of its own, and drops `scrap`.

    It cannot begin while the file is there that the parameter `refuse` names.
    """

    begins_here = False

    def begin(self, state: Values, root: Root) -> Joined:
        if Path(root.params.get("refuse", "/nowhere")).exists():
            raise RuntimeError(f"case {root.case.id} cannot begin")
        start = super().begin(state, root)
        return replace(start, changed={"~steps": Value.of(0)}, dropped=("scrap",))

    def join(self, state: Values, position: Position, writes: Writes, root: Root) -> Joined:
        joined = super().join(state, position, [(key.partition("|")[0], update) for key, update in writes], root)
        count = len(decode(joined.after(state, joined.changed)["items"].data))
        fan_out = {"work": count} if "work" in joined.position.next else {}
        changed = {**joined.changed, "~steps": Value.of(position.step + 1)}
        following = replace(joined.position, fan_out=fan_out, engine={"ran": [key for key, _ in writes]})
        return replace(joined, changed=changed, position=following)


class Fanning(Workflow):
    engine: ClassVar[str] = f"{__name__}:FanEngine"


class State(TypedDict, total=False):
    items: list[int]
    scrap: str
    planned: bool
    found: Annotated[list[Any], operator.add]
    beside: int
    sum: int


def number_of(ctx: Any) -> int:
    """Return the number of the task's item."""
    return int(ctx.task.partition("|")[2])


def take(state: Any, ctx: Any, *, k: int = 0) -> dict[str, Any]:
    number = state["items"][number_of(ctx)]
    return {"found": [number + k]}


def fan(work: Callable[..., Any] = take, **rules: Any) -> Workflow:
    """Build the workflow; the other variants of work, beside and gather add 100, 10 and 1."""
    wf = Fanning("fan", state=State)
    wf.node(lambda state: {"planned": True}, name="plan")
    wf.node(work, name="work", **rules).variant("other", k=100)
    wf.node(lambda state, *, k=0: {"beside": k}, name="beside").variant("other", k=10)
    gather = wf.node(lambda state, *, k=0: {"sum": sum(state["found"]) + state["beside"] + k}, name="gather")
    gather.variant("other", k=1)
    wf.entry("plan")
    wf.edge("plan", "work")
    wf.edge("plan", "beside")
    wf.edge(["work", "beside"], "gather")
    wf.edge("gather", END)
    return wf


wf = fan()

"""What a sweep says that it has spent and tried, held against what its nodes did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wtb import Context
from wtb.inspection import status_document
from wtb.matrix import build
from wtb.render import summary
from wtb.workflow import END, Workflow

Make = Callable[..., Any]
Given = dict[str, Any]


def test_sharing_never_seems_to_cost_money(run_sweep: Make) -> None:
    wf = Workflow("spending")

    @wf.node(retries=1)
    def shared(state: Given, ctx: Context) -> Given:
        ctx.cost(usd=1.0)
        if ctx.attempt == 1:
            raise OSError("try again")
        return {"a": 1}

    @wf.node
    def last(state: Given, ctx: Context) -> Given:
        ctx.cost(usd=0.25)
        raise ValueError("never succeeds")

    last.variant("other", lambda state: {"b": 1})
    wf.entry(shared)
    wf.edge(shared, last)
    wf.edge(last, END)
    bench = run_sweep(wf, vary={"last": "all"})
    document = build(bench.database, bench.row)
    assert document["cost"]["usd"] == 2.25
    assert document["cost"]["unshared_usd"] == 4.25  # both cells make both attempts of `shared`, and one that of `last`
    assert "Cost: $2.25 spent, $4.25 without sharing." in summary.totals(document)
    assert document["cost"]["usd"] == status_document(bench.database, bench.row)["cost"]["usd"]

"""W as a graph of LangGraph. Node processes import it."""

from __future__ import annotations

from typing import Any

from langgraph.graph import END, START, StateGraph

from benchmarks.workloads.waiting import Waited, wait_and_copy

builder: Any = StateGraph(Waited)
builder.add_node("call", wait_and_copy)
builder.add_edge(START, "call")
builder.add_edge("call", END)
waiting = builder.compile()

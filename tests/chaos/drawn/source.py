"""Writes a drawn sweep as a user would have written it: a module, a file of cases and a sweep file."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import yaml

from tests.chaos.drawn.oracle import (
    bulk_of,
    case_ids,
    case_number,
    is_odd,
    loops_again,
    question_of,
    tool_text,
    value_of,
)
from tests.chaos.drawn.scenario import Block, Branch, Fan, Loop, Node, Scenario
from tests.support.project import Project

ENOUGH_USD = 1e9  # a budget that nothing reaches, so that all of it is counted and nothing stops

_HEAD = """
import asyncio
import hashlib
import json
import operator
import os
import time
from typing import Annotated, TypedDict

from wtb import END, FinalError, Workflow, current_context

HERE = os.path.dirname(os.path.abspath(__file__)) + "/"
"""

# What nodes do. Everything that they write follows from their input, but for the mark of the attempt that wrote it.
_BODY = '''

def note(**what):
    """Add a line to a record that no process of WTB writes or reads."""
    log = os.open(HERE + SCENARIO + ".log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, (json.dumps(what) + "\\n").encode())
    os.close(log)


def begin(state, ctx, by):
    node = NODES[ctx.node]
    seen = {key[2:]: list(state[key]) for key in sorted(state) if key.startswith("w_")}
    marks = {key[2:]: list(state[key]) for key in sorted(state) if key.startswith("m_")}
    attempt = {"mark": f"{os.getpid()} {time.monotonic_ns()}", "node": node["name"], "by": by, "case": state["case"]}
    attempt |= {"repeat": ctx.repeat, "visit": len(seen.get(node["name"], ())), "attempt": ctx.attempt}
    note(word="begun", at=time.time(), **attempt)
    if node["fatal"] == by and case_number(state["case"]) % 2:
        raise FinalError("drawn to fail")
    return node, seen, marks, attempt


def pace():
    # The name is computed: a file that code names is a part of its fingerprint, and this one changes meanwhile.
    return float(open(HERE + "ecap"[::-1]).read()) if PACED else 0.0


def end(state, ctx, node, seen, marks, attempt):
    name, visit = node["name"], attempt["visit"]
    if ctx.attempt <= node["fails"]:
        note(word="failed", **attempt)
        raise ValueError("drawn to fail at first")
    word = ctx.ask(question_of(SCENARIO, name)).feedback if node["asks"] else ""
    if node["tool"]:
        word += ctx.tools.stamp(text=tool_text(state["case"], name, visit))
    if node["usd"]:
        ctx.cost(usd=node["usd"])
    value = value_of(state["case"], ctx.repeat, name, attempt["by"], visit, seen, word)
    if node["file"]:
        with open(ctx.workspace / f"{name}.txt", "a") as file:
            file.write(f"{value} {attempt['mark']}\\n")
    note(word="ended", at=time.time(), value=value, inputs=marks, **attempt)
    values, all_marks = [*seen.get(name, ()), value], [*marks.get(name, ()), attempt["mark"]]
    bulk = {"b_" + name: bulk_of(value, node["bulk"])} if node["bulk"] else {}
    return {"w_" + name: values, "m_" + name: all_marks, "trail": [f"{name}={value}"], **bulk}


def work(state, ctx, by):
    attempt = begin(state, ctx, by)
    time.sleep(pace())
    return end(state, ctx, *attempt)


async def work_async(state, ctx, by):
    attempt = begin(state, ctx, by)
    await asyncio.sleep(pace())
    return end(state, ctx, *attempt)


def again(name):
    return lambda state: loops_again(state["w_" + name])


def odd(name):
    return lambda state: is_odd(state["w_" + name][-1])


def as_computed(case, result):
    trail = [f"{name}={value}" for name in NODES for value in result.state.get("w_" + name, ())]
    return sorted(trail) == sorted(result.state["trail"]) and result.state["case"] == case.input["case"]
'''

_NATIVE = """

wf = Workflow(SCENARIO, state=State)


def stamp(*, text: str) -> str:
    note(word="tool", text=text)
    return f"stamped {text}"


def unstamp(result: str, *, text: str) -> None:
    note(word="untool", text=text)

"""

_GRAPH = """

from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy

from wtb.integrations.langgraph import variants

graph = StateGraph(State)


def retrying(attempts):
    return RetryPolicy(initial_interval=0.01, jitter=False, max_attempts=attempts, retry_on=ValueError)

"""


def write_scenario(scenario: Scenario) -> dict[str, str]:
    """The files of a sweep by name: its module, its cases and its sweep file."""
    cases = [{"id": case, "input": {"case": case, "trail": []}} for case in case_ids(scenario)]
    return {
        f"{scenario.name}.py": _module(scenario),
        f"{scenario.name}.jsonl": "".join(json.dumps(case) + "\n" for case in cases),
        f"{scenario.name}.yaml": yaml.safe_dump(_sweep(scenario), sort_keys=False),
    }


def set_pace(project: Project, seconds: float) -> None:
    """Set how long each node takes that begins from now on, except in quick sweeps."""
    project.write({"pace.new": f"{seconds:g}"})
    (project.folder / "pace.new").rename(project.folder / "pace")


def variant_name(number: int) -> str:
    return f"v{number}" if number else "default"


def start_arguments(scenario: Scenario) -> list[str]:
    """Return the arguments of `wtb start` for a single execution."""
    (choices,) = scenario.combinations
    variants = [f"{node}={variant_name(number)}" for node, number in choices.items() if number]
    settings = ["--set", f"case={case_ids(scenario)[0]}", "--set", "trail=[]"]
    return [f"{scenario.name}:wf", *settings, *(text for variant in variants for text in ("--variant", variant))]


def _module(scenario: Scenario) -> str:
    nodes = {node.name: asdict(node) for node in scenario.nodes}
    names = [f"SCENARIO, PACED = {scenario.name!r}, {scenario.paced!r}", f"NODES = {nodes!r}"]
    functions = (value_of, is_odd, loops_again, bulk_of, case_number, question_of, tool_text)
    shared = "\n\n".join(inspect.getsource(function) for function in functions)
    rendered = _langgraph(scenario) if scenario.langgraph else _native(scenario)
    return "\n".join([_HEAD, *names, "", "", shared, _state(scenario), _BODY, *rendered, ""])


def _state(scenario: Scenario) -> str:
    keys = ["case: str", "trail: Annotated[list[str], operator.add]"]
    for node in scenario.nodes:
        keys += [f"w_{node.name}: list[str]", f"m_{node.name}: list[str]", f"b_{node.name}: str"]
    return "\n".join(["", "class State(TypedDict, total=False):", *(f"    {key}" for key in keys), ""])


def _native(scenario: Scenario) -> Iterator[str]:
    yield _NATIVE
    if scenario.has_tool:
        yield f"wf.tool(stamp{', reverse=unstamp' if scenario.reversible else ''})"
    for node in scenario.nodes:
        yield from _function(node, f"@wf.node({_options(node)})", "state, ctx, *, by: int = 0", "ctx")
        yield from (f'{node.name}.variant("{variant_name(by)}", by={by})' for by in range(1, node.variants))
    exits: list[str] = []
    for block in scenario.blocks:
        entries = _names(block.entries)
        yield from ([f'wf.edge("{source}", "{target}")' for source in exits for target in entries])
        yield from ([f'wf.entry("{target}")' for target in entries] if not exits else [])
        if isinstance(block, Fan):
            yield f'wf.edge({entries!r}, "{block.join.name}")'
        elif choice := _choice(block):
            source, decides, so, other = choice
            yield f'wf.edge("{source}", "{so}", when={decides}("{source}"))'
            yield f'wf.edge("{source}", "{other}", default=True)'
        exits = _names(block.exits)
    yield from (f'wf.edge("{source}", END)' for source in exits)


def _names(nodes: Iterable[Node]) -> list[str]:
    return [node.name for node in nodes]


def _choice(block: Block) -> tuple[str, str, str, str] | None:
    """(where a block chooses, the function that decides, the node if so, the other one)."""
    match block:
        case Branch(chooser, even, odd):
            return chooser.name, "odd", odd.name, even.name
        case Loop(node, after):
            return node.name, "again", node.name, after.name
        case _:
            return None


def _function(node: Node, decorator: str, parameters: str, context: str) -> Iterator[str]:
    """The function of a node, which has the same body in all of them."""
    kind, work = ("async ", "await work_async") if node.kind == "async" else ("", "work")
    head, body = f"{kind}def {node.name}({parameters}):", f"    return {work}(state, {context}, by)"
    yield from ("", decorator, head, body, "")


def _options(node: Node) -> str:
    options: dict[str, Any] = {"retries": node.fails, "backoff": 0.01} if node.fails else {}
    options |= {"durable": True} if node.durable else {}
    options |= {"threads": 8} if node.kind == "threads" else {}
    options |= {"limit": node.limit} if node.limit else {}
    options |= {"queue": node.queue} if node.queue else {}
    return ", ".join(f"{name}={setting!r}" for name, setting in options.items())


def _langgraph(scenario: Scenario) -> Iterator[str]:
    yield _GRAPH
    for node in scenario.nodes:
        yield from _function(node, "", "state: State, *, by: int = 0", "current_context()")
        retries = f", retry_policy=retrying({node.fails + 1})" if node.fails else ""
        yield f'graph.add_node("{node.name}", {node.name}{retries})'
    exits = ["START"]
    for block in scenario.blocks:
        entries = _names(block.entries)
        yield from (f"graph.add_edge({source}, {target!r})" for source in exits for target in entries)
        if isinstance(block, Fan):
            yield f"graph.add_edge({entries!r}, {block.join.name!r})"
        elif choice := _choice(block):
            source, decides, so, other = choice
            ways = f"{{True: {so!r}, False: {other!r}}}"
            yield f"graph.add_conditional_edges({source!r}, {decides}({source!r}), {ways})"
        exits = [repr(name) for name in _names(block.exits)]
    yield from (f"graph.add_edge({source}, END)" for source in exits)
    yield "wf = variants(graph.compile(name=SCENARIO))"
    for node in scenario.nodes:
        yield from (f'wf.add("{node.name}", "{variant_name(by)}", by={by})' for by in range(1, node.variants))


def _sweep(scenario: Scenario) -> dict[str, Any]:
    varied = {
        node.name: [variant_name(by) for by in range(node.variants)] for node in scenario.nodes if node.variants > 1
    }
    sweep: dict[str, Any] = {
        "sweep": scenario.name,
        "workflow": f"{scenario.name}:wf",
        "cases": f"{scenario.name}.jsonl",
        "repeats": scenario.repeats,
        "run": {
            "durability": scenario.durability,
            "pool": scenario.pool,
            "share": scenario.share,
            "priority": scenario.priority,
            "concurrency": scenario.concurrency,
            "checkpoints": scenario.checkpoints,
            "per_process": scenario.per_process,
            "set_aside_after": 1000,  # killed node processes are no fault of their cells
        },
    }
    if varied:
        named = [{node: variant_name(by) for node, by in choices.items()} for choices in scenario.combinations]
        sweep |= {"vary": varied, "combinations": named}
    if scenario.evaluated:
        sweep["evaluate"] = [f"{scenario.name}:as_computed"]
    if scenario.budget:
        sweep["limits"] = {"usd": ENOUGH_USD}
    return sweep

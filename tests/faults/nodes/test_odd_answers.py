"""Malformed returns, files and reports of nodes fail one attempt with a message, whichever runner runs them."""

from __future__ import annotations

import pytest

from tests.support.cluster import Cluster
from tests.support.invariants import invariants_hold
from tests.support.project import Project
from tests.support.prose import sentence

FLOW = r"""
import enum
import os
import struct

from wtb import END, Workflow

wf = Workflow("odd")


class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Rude(BaseException):
    pass


class Word(str):
    pass


class Name(enum.StrEnum):
    Y = "y"


class Angry(dict):
    def items(self):
        raise Rude("no items")


@wf.node(timeout=30)
def work(state, ctx):
    return {"y": state["x"]}


def raising(error):
    raise error


SUCCEED = {
    "subclass": lambda ctx: {Word("y"): 1},
    "enumeration": lambda ctx: {Name.Y: 1},
    "nested": lambda ctx: {"y": {5: {None: 1}, "\0": "\0", (1, 2): 3}},
    "logs_odd": lambda ctx: ctx.log("a\0b", level=object(), huge=10**400, nan=float("nan"), **{"k\0\udc80": "\udc80"}),
    "tells_odd": lambda ctx: ctx.tell("n\0" * 300, {"a\0": object(), 5: 10**30, "deep": [[{"\udc80": float("inf")}]]}),
    "calls_odd": lambda ctx: ctx.call(model="m\0" * 300, tool="t" * 300, prompt="\0", duration_s=0.5),
    "metrics_odd": lambda ctx: ctx.metric("n\0\udc80", float("nan")),
    "progress_odd": lambda ctx: ctx.progress(float("inf"), float("-inf"), "\0"),
    "checkpoints_long": lambda ctx: ctx.checkpoint("n\0\udc80" * 300, a="\0") and None,
    "costs_negative": lambda ctx: ctx.cost(usd=-1) and None,
    "costs_infinite": lambda ctx: ctx.cost(usd=1e308) and None,
    "costs_text": lambda ctx: ctx.cost(usd="a lot") and None,
    "costs_tokens": lambda ctx: ctx.cost(usd=1, tokens_in=10**30) and None,
    "costs_unheard": lambda ctx: ctx.call(model="our-own-70b", tokens_in=True, tokens_out=10**15),
    "takes_forever": lambda ctx: ctx.call(duration_s=float("nan")),
    "leaves_odd": lambda ctx: ctx.leave(output={"\0": 1}, suggestion="\0\udc80"),
}
FAIL = {
    "number": lambda ctx: {5: 1},
    "none": lambda ctx: {None: 1},
    "many": lambda ctx: {"z": 2, ("a", 1): 1},
    "bytes": lambda ctx: {b"y": 1},
    "nul": lambda ctx: {"y\0": 1},
    "surrogate": lambda ctx: {"y\udc80": 1},
    "long": lambda ctx: {"y" * 5000: 1},
    "hidden": lambda ctx: {"~y": 1},
    "nested_value": lambda ctx: {"y": {"a": [object()]}},
    "angry": lambda ctx: Angry(y=1),
    "calls_half": lambda ctx: ctx.call(prompt="half \udc80"),
    "saves_odd": lambda ctx: ctx.checkpoint("c", **{"a\0": 1}),
    "wordless": lambda ctx: raising(Odd()),
    "rude": lambda ctx: raising(Rude("a\0b")),
    "interrupt": lambda ctx: raising(KeyboardInterrupt("who")),
    "exit": lambda ctx: raising(SystemExit(5)),
    "generator": lambda ctx: raising(GeneratorExit("g")),
    "group": lambda ctx: raising(BaseExceptionGroup("all", [Rude("r"), ValueError("v")])),
    "enormous": lambda ctx: raising(ValueError("x" * 30_000_000)),
    "recursion": lambda ctx: FAIL["recursion"](ctx),
}




def exactly(make):
    return lambda state, ctx: make(ctx)


def returning(make):
    return lambda state, ctx: make(ctx) or {"y": 0}


for name, make in SUCCEED.items():
    work.variant(name)(returning(make))
for name, make in FAIL.items():
    work.variant(name)(exactly(make))
wf.entry(work)
wf.edge(work, END)


def many(case, result):
    return {"a\0\udc80": 1, 5: 2, None: float("nan"), "x" * 500: 10**400, "y": "no number"}


def rude(case, result):
    raise Rude("\0")
"""
# What the failure of each variant says.
FAILED = {
    "number": "key 5",
    "none": "key None",
    "many": "key ('a', 1)",
    "bytes": "key b'y'",
    "nul": "key 'y\\x00'",
    "surrogate": "key 'y\\udc80'",
    "long": "a key of 5,000 characters",
    "hidden": "key '~y'",
    "nested_value": "key 'y'",
    "angry": "Rude",
    "calls_half": "the lone surrogate '\\udc80'",
    "saves_odd": "key 'a\\x00'",
    "wordless": "its text cannot be made: RuntimeError",
    "rude": "Rude",
    "interrupt": "KeyboardInterrupt",
    "exit": "SystemExit",
    "generator": "GeneratorExit",
    "group": "BaseExceptionGroup",
    "enormous": "more characters",
    "recursion": "RecursionError",
}
SUCCEEDED = 17  # variants, with the default
CASES = 1
SWEEP = "sweep: odd\nworkflow: odd:wf\ncases: cases.jsonl\nvary: {work: all}\n"


def write_odd(project: Project, more: str = "") -> None:
    project.write({"odd.py": FLOW, "sweep.yaml": SWEEP + more, "cases.jsonl": project.cases(CASES)})


def each_has_failed_as_it_should(project: Project) -> None:
    messages: dict[str, list[str]] = {}
    for variant, status, read in project.failures():
        assert status == "failed", (variant, read)
        assert read["node"] == "work", (variant, read)
        messages.setdefault(variant, []).append(f"{read['type']}: {read['message']}")
    assert messages.keys() == FAILED.keys()
    for variant, failures in messages.items():
        assert len(failures) == CASES, variant
        assert all(FAILED[variant] in failure for failure in failures), (variant, failures)
    assert project.query("SELECT max(attempts) FROM node_runs") == [(1,)]


def all_can_be_looked_at(project: Project) -> None:
    ((execution,),) = project.query("SELECT execution_id FROM cells WHERE status = 'failed' LIMIT 1")
    for command in ("show", "history"):
        project.inside(command, execution, check=0)
    for command in ("matrix", "status", "log"):
        project.inside(command, "odd", check=0)


@pytest.mark.parametrize("pool", ["process", pytest.param("thread", marks=pytest.mark.slow)])
def test_whatever_a_node_returns_raises_or_reports_is_one_failed_attempt_that_names_it(
    project: Project, pool: str
) -> None:
    write_odd(project, f"run: {{pool: {pool}, concurrency: 2}}\n")
    done = project.wtb("run", "sweep.yaml", "--quiet", check=1)
    assert "Traceback" not in done.stderr, done.stderr
    each_has_failed_as_it_should(project)
    invariants_hold(project, {"succeeded": CASES * SUCCEEDED, "failed": CASES * len(FAILED)})
    done = project.inside("resume", "odd")
    assert "Traceback" not in done.stderr
    all_can_be_looked_at(project)


def test_whatever_a_node_returns_raises_or_reports_on_a_worker_is_one_failed_attempt(cluster: Cluster) -> None:
    write_odd(cluster.project)
    cluster.start_scheduler()
    cluster.start_worker(concurrency=2)
    cluster.submit()
    cluster.wait_completed()
    each_has_failed_as_it_should(cluster.project)


@pytest.mark.parametrize("pool", ["process", pytest.param("thread", marks=pytest.mark.slow)])
def test_what_an_evaluator_returns_that_is_no_score_is_an_error_of_that_metric(project: Project, pool: str) -> None:
    spec = SWEEP.replace("all", "[default]") + f"evaluate: ['odd:many', 'odd:rude']\nrun: {{pool: {pool}}}\n"
    project.write({"odd.py": FLOW, "sweep.yaml": spec, "cases.jsonl": project.cases(1)})
    done = project.wtb("run", "sweep.yaml", "--quiet", check=0)
    assert "Traceback" not in done.stderr, done.stderr
    scores = {
        metric: (score, error) for metric, score, error in project.query("SELECT metric, value, error FROM scores")
    }
    assert scores["many.a\ufffd\\udc80"] == (1, None)
    assert scores["many.5"] == (2, None)
    assert sentence("must be finite") in scores["many.None"][1]
    assert "str" in scores["many.y"][1]
    assert "Rude" in scores["rude"][1]
    assert len(scores) == 6
    assert project.query("SELECT status FROM cells") == [("succeeded",)]

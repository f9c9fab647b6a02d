"""Faults 23 and 24: what cannot be stored is refused with words, all else is stored exactly. Never a pickle."""

from __future__ import annotations

import json
import math

from tests.support.attempts import ATTEMPTS
from tests.support.invariants import invariants_hold
from tests.support.project import Project
from tests.support.prose import sentence
from wtb.core.serialization.codec import decode

FLOW = """
import math
import threading

from wtb import END, Workflow

wf = Workflow("values")
SURROGATE = "a lone \\ud800 surrogate"
NUL = "a NUL \\0 inside"


@wf.node
def work(state, ctx, *, kind: str = "plain"):
    made = {
        "plain": lambda: 1,
        "lambda": lambda: (lambda: 1),
        "lock": threading.Lock,
        "surrogate": lambda: SURROGATE,
        "surrogate_key": lambda: {SURROGATE: 1},
        "nul": lambda: NUL,
        "nul_key": lambda: {NUL: [NUL]},
        "nan": lambda: [math.nan, math.inf, -math.inf, -0.0],
        "big": lambda: "x" * 500_000_000,
        "big_bytes": lambda: bytes(500_000_000),
    }[kind]()
    return {"y": made}


@wf.node
def after(state):
    return {"seen": repr(state["y"])[:100].encode("ascii", "backslashreplace").decode()}


for kind in KINDS:
    work.variant(kind, kind=kind)
wf.entry(work)
wf.edge(work, after)
wf.edge(after, END)
"""
REFUSED = ("lambda", "lock", "surrogate", "surrogate_key")
STORED = ("nul", "nul_key", "nan")


def run(project: Project, kinds: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Variant -> (status, failure) of the cells of a sweep over these kinds."""
    project.write_sweep("values", FLOW.replace("KINDS", repr(kinds)), vary={"work": "all"}, run={"concurrency": 2})
    done = project.wtb("run", "sweep.yaml", "--quiet")
    assert "Traceback" not in done.stderr, done.stderr
    assert project.query("SELECT status FROM sweeps") == [("completed",)], done.stderr
    query = (
        "SELECT b.choices, c.status, c.failure FROM cells c "
        "JOIN combinations b ON b.sweep_id = c.sweep_id AND b.number = c.combination"
    )
    return {
        (json.loads(choices) if isinstance(choices, str) else choices)["work"]: (status, str(failure))
        for choices, status, failure in project.query(query)
    }


def test_what_has_no_type_in_the_store_is_refused_and_the_rest_stored_exactly(project: Project) -> None:
    outcomes = run(project, REFUSED + STORED)
    assert {kind for kind, (status, _) in outcomes.items() if status == "failed"} == {*REFUSED}
    for kind in REFUSED:
        failure = outcomes[kind][1]
        assert "StateError" in failure, kind
        assert sentence("key {} cannot be stored", "'y'") in failure.replace('"', "'").replace("\\'", "'"), kind
    written = {}
    for variant, writes in project.query("SELECT variant, writes FROM node_runs WHERE node = 'work'"):
        keys = json.loads(writes) if isinstance(writes, str) else writes
        if keys is not None:
            ((text,),) = project.query('SELECT data FROM "values" WHERE digest = :key', key=keys["y"])
            written[variant] = decode(text.encode())
    assert written["nul"] == "a NUL \0 inside"
    assert written["nul_key"] == {"a NUL \0 inside": ["a NUL \0 inside"]}
    nan, up, down, zero = written["nan"]
    assert math.isnan(nan)
    assert (up, down, math.copysign(1, zero)) == (math.inf, -math.inf, -1.0)
    invariants_hold(project, {"succeeded": 1 + len(STORED), "failed": len(REFUSED)})


def test_a_state_of_500_mb_is_refused_before_it_is_inserted(project: Project) -> None:
    outcomes = run(project, ("big", "big_bytes"))
    for kind in ("big", "big_bytes"):
        status, failure = outcomes[kind]
        assert status == "failed"
        assert "StateError" in failure
        assert "64" in failure, "it says how much may be"
    ((longest,),) = project.query('SELECT max(length(data)) FROM "values"')
    assert longest < 1000
    ((length,),) = project.query(f"SELECT max(length(CAST(failure AS TEXT))) FROM {ATTEMPTS}")
    assert length < 10_000
    invariants_hold(project, {"succeeded": 1, "failed": 2})

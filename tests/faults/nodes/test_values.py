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


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("even this fails")


def failing(message):
    raise ValueError(message)


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
        "error_nul": lambda: failing(NUL),
        "error_surrogate": lambda: failing(SURROGATE),
        "error_long": lambda: failing("x" * 3_000_000),
        "error_unprintable": lambda: failing_with(Unprintable()),
        "log_nul": lambda: ctx.log(NUL, field=NUL),
        "log_surrogate": lambda: ctx.log(SURROGATE),
        "print": lambda: print(NUL, SURROGATE.encode("utf-8", "surrogatepass")),
        "cost_nan": lambda: ctx.cost(usd=math.nan),
        "metric_nan": lambda: ctx.metric("loss", math.nan),
        "call_nul": lambda: ctx.call(model=NUL, prompt=NUL, response=NUL),
        "call_surrogate": lambda: ctx.call(prompt=SURROGATE),
        "huge_tokens": lambda: ctx.cost(usd=0.0, tokens_in=2**70),
        "suggestion_surrogate": lambda: ctx.leave(suggestion=SURROGATE),
    }[kind]()
    return {"y": made}


def failing_with(error):
    raise error


@wf.node
def after(state):
    return {"seen": repr(state["y"])[:100].encode("ascii", "backslashreplace").decode()}


for kind in KINDS:
    work.variant(kind, kind=kind)
wf.entry(work)
wf.edge(work, after)
wf.edge(after, END)
"""
SWEEP = """
sweep: values
workflow: values:wf
cases: cases.jsonl
vary: {work: all}
run: {concurrency: 2}
"""
REFUSED = ("lambda", "lock", "surrogate", "surrogate_key")
STORED = ("nul", "nul_key", "nan")
# What nodes say beside their state: whatever comes of the node run, the sweep ends and the others succeed.
SIDE_OUTPUTS = (
    "error_nul",
    "error_surrogate",
    "error_long",
    "error_unprintable",
    "log_nul",
    "log_surrogate",
    "print",
    "cost_nan",
    "metric_nan",
    "call_nul",
    "call_surrogate",
    "huge_tokens",
    "suggestion_surrogate",
)


def run(project: Project, kinds: tuple[str, ...], pool: str = "process") -> dict[str, tuple[str, str]]:
    """Variant -> (status, failure) of the cells of a sweep over these kinds."""
    project.write({"values.py": FLOW.replace("KINDS", repr(kinds)), "cases.jsonl": project.cases(1)})
    project.write({"sweep.yaml": SWEEP.replace("2}", f"2, pool: {pool}}}")})
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


def test_what_nodes_say_beside_their_state_never_ends_the_sweep(project: Project) -> None:
    outcomes = run(project, SIDE_OUTPUTS)
    failed = {kind for kind, (status, _) in outcomes.items() if status != "succeeded"}
    assert failed >= {"error_nul", "error_surrogate", "error_long", "error_unprintable"}
    assert outcomes["default"][0] == "succeeded"
    assert "set_aside" not in {status for status, _ in outcomes.values()}, "its process died of what it said"
    assert "ValueError" in outcomes["error_nul"][1]
    assert "ValueError" in outcomes["error_surrogate"][1]
    assert "Unprintable" in outcomes["error_unprintable"][1]
    assert len(outcomes["error_long"][1]) < 100_000, "a message has an end"
    invariants_hold(project, {"succeeded": len(outcomes) - len(failed), "failed": len(failed)})
    for command in (["show", "values", "--cells"], ["log", "values"], ["matrix", "values", "--format", "json"]):
        assert "Traceback" not in project.inside(*command).stderr


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

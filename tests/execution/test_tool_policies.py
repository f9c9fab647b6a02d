"""Policies about calls of tools: allowed, denied, or made once a person has approved them, in node processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.bench import Bench
from tests.support.flows import Flows, attempts_of, events_of, failures
from tests.support.prose import sentence
from wtb.authoring.cedar_policies import NodePolicies, PolicySet, named_arguments
from wtb.operations.context import Context
from wtb.operations.control.answers import answer
from wtb.store.database import Database
from wtb.store.tables.schema import approvals, invocations

POLICIES = """
permit(principal, action, resource);

@id("no-large-sums")
forbid(principal, action == Action::"call tool with arguments", resource == Tool::"pay")
when { context.numbers.hasTag("sum") && context.numbers.getTag("sum") > 1000 };

@id("mail-to-others") @ask("This leaves the house.")
forbid(principal, action == Action::"call tool with arguments", resource == Tool::"send")
unless { context.arguments.hasTag("to") && context.arguments.getTag("to") like "*@example.com" };
"""
TOOLS = """
@wf.tool
def send(*, to, fails=False):
    say("made", f"send {to}")
    if fails and len((HERE / "made").read_text().splitlines()) == 1:
        raise ValueError("mailbox full")
    return f"sent to {to}"

@wf.tool
def pay(*, sum):
    say("made", f"pay {sum}")
    return sum
"""

Run = Callable[..., Bench]


@pytest.fixture
def run(policed: Run) -> Run:
    return lambda text, *, policies=POLICIES, **more: policed(TOOLS + text, policies, **more)


def open_questions(bench: Bench) -> list[dict[str, Any]]:
    return [row for row in bench.rows(approvals) if row["status"] == "open"]


def reply(bench: Bench, action: str) -> dict[str, Any]:
    """Answer the only open question, and continue. Returns the question."""
    (question,) = open_questions(bench)
    answer(Context(bench.database, by="bea"), question["id"], action, bound=bench.prepared.bound)
    bench.run()
    return question


@pytest.mark.parametrize("pool", ["process", "thread"])
def test_a_call_is_allowed_or_denied_by_its_arguments(run: Run, flows: Flows, pool: str) -> None:
    bench = run(
        """
@wf.node(retries=2)
def a(state, ctx):
    for sum in (1, 2, 1000, 1000.5):
        ctx.tools.pay(sum=sum)
""",
        pool=pool,
    )

    assert flows.lines_of("made") == ["pay 1", "pay 2", "pay 1000"]
    message = "tool 'pay' may not be called with these arguments: policy no-large-sums forbids it"
    assert failures(bench) == [("error", message)]
    assert [row["failure"]["type"] for row in attempts_of(bench)] == ["ToolDenied"]  # it is not tried again
    decisions = events_of(bench, "policy.decided")
    assert [
        (decision["on"], decision["allowed"], decision["rules"], decision.get("arguments")) for decision in decisions
    ] == [
        ("pay", True, ["house.cedar #1"], None),  # once for all calls that the same policies allow
        ("pay", False, ["no-large-sums"], '{"sum":1000.5}'),
    ]
    assert {(decision["by"], decision["node"], decision["operation"]) for decision in decisions} == {
        ("ana", "a", sentence("call tool with arguments"))
    }


def test_an_approved_call_is_made_once_whatever_follows(run: Run, flows: Flows, database: Database) -> None:
    """A node that asks more later, fails after the call, and dies after it, does not repeat the call."""
    bench = run(
        """
@wf.node(retries=1, backoff=0.01)
def a(state, ctx):
    ctx.tools.pay(sum=3)
    sent = ctx.tools.send(to="x@elsewhere.org")
    sent_again = ctx.tools.send(to="x@elsewhere.org")
    choice = ctx.ask("Enough?", options=["yes"]).choice
    if not (HERE / "failed").exists():
        say("failed", "once")
        raise RuntimeError("after the calls")
    if not (HERE / "died").exists():
        say("died", "once")
        os._exit(3)
    return {"sent": [sent, sent_again, choice]}
""",
        database=database,
    )
    first = reply(bench, "approve")
    second = reply(bench, "approve")
    third = reply(bench, "yes")

    assert first["question"] == "This leaves the house. Call send(to='x@elsewhere.org')?"
    assert (second["question"], third["question"]) == (first["question"], "Enough?")
    assert [call for call in flows.lines_of("made") if "send" in call] == ["send x@elsewhere.org"] * 2
    assert bench.cells()[0].state["sent"] == ["sent to x@elsewhere.org"] * 2 + ["yes"]
    approved = [decision for decision in events_of(bench, "policy.decided") if decision.get("answered_by")]
    assert {(decision["allowed"], decision["answered_by"], *decision["rules"]) for decision in approved} == {
        (True, "bea", "mail-to-others")
    }


def test_a_call_that_failed_after_its_approval_is_asked_about_again(run: Run, flows: Flows) -> None:
    bench = run(
        """
@wf.node(retries=1, backoff=0.01)
def a(state, ctx):
    return {"sent": ctx.tools.send(to="x@elsewhere.org", fails=True)}
"""
    )
    reply(bench, "approve")
    assert flows.lines_of("made") == ["send x@elsewhere.org"]
    reply(bench, "approve")

    assert flows.lines_of("made") == ["send x@elsewhere.org"] * 2
    assert bench.cells()[0].state["sent"] == "sent to x@elsewhere.org"
    with bench.database.read() as connection:
        statuses = connection.scalars(sa.select(invocations.c.status).order_by(invocations.c.number)).all()
    assert statuses == ["failed", "done"]


def test_variants_are_approved_one_by_one(run: Run, flows: Flows) -> None:
    bench = run(
        """
async def sends(state, ctx):
    return {"sent": ctx.tools.send(to="x@elsewhere.org")}

a = wf.node(sends, name="a", retries=3)
a.variant("other")(sends)
"""
    )
    context, bound = Context(bench.database, by="bea"), bench.prepared.bound
    for question, action in zip(open_questions(bench), ("approve", "reject"), strict=True):
        answer(context, question["id"], action, bound=bound)
    bench.run()

    assert flows.lines_of("made") == ["send x@elsewhere.org"]
    assert bench.counts == {"succeeded": 1, "failed": 1}
    ((_, message),) = [failure for failure in failures(bench) if failure[0] == "error"]
    assert message.startswith("tool 'send' may not be called: policy mail-to-others requires that a person approves it")
    assert message.endswith("it was rejected by bea")


def test_policies_that_name_no_calls_record_nothing(run: Run) -> None:
    bench = run(
        """
@wf.node
def a(state, ctx):
    return {"paid": ctx.tools.pay(sum=5000)}
""",
        policies="permit(principal, action, resource);",
    )

    assert "policies" not in bench.row.spec
    assert bench.cells()[0].state["paid"] == 5000
    assert events_of(bench, "policy.decided") == []


def test_the_policies_of_the_submission_hold_to_the_end(run: Run, flows: Flows, tmp_path: Path) -> None:
    bench = run(
        """
@wf.node
def a(state, ctx):
    ctx.ask("Go on?")
    ctx.tools.pay(sum=5000)
"""
    )
    (tmp_path / "policy" / "house.cedar").write_text("permit(principal, action, resource);")
    reply(bench, "approve")

    assert flows.lines_of("made") == []


def test_arguments_are_redacted_wherever_they_are_kept(run: Run) -> None:
    """Policies see arguments unredacted. A node may handle a denial."""
    bench = run(
        """
from wtb import ToolDenied

@wf.node
def a(state, ctx):
    try:
        ctx.tools.pay(sum={"of": "tok-1234", "large": 2})
    except ToolDenied:
        pass
    ctx.tools.send(to="tok-1234@elsewhere.org")
""",
        policies=POLICIES
        + """
@id("by-token")
forbid(principal, action == Action::"call tool with arguments", resource == Tool::"pay")
when { context.arguments.hasTag("sum.of") && context.arguments.getTag("sum.of") == "tok-1234" };
""",
        redact={"patterns": {"token": "tok-[0-9]+"}},
    )

    (question,) = open_questions(bench)
    assert "tok-1234" not in f"{question['question']} {question['context']}"
    decisions = events_of(bench, "policy.decided")
    assert [decision["rules"] for decision in decisions] == [["by-token"], ["mail-to-others"]]
    assert "tok-1234" not in str(decisions)
    reply(bench, "approve")
    assert bench.counts == {"succeeded": 1}


def test_a_policy_that_asks_denies_where_nobody_is_there(run: Run, flows: Flows) -> None:
    bench = run(
        """
@wf.node
def a(state, ctx):
    ctx.tools.send(to="x@elsewhere.org")
""",
        run={"pool": "process", "approval": "none"},
    )

    assert flows.lines_of("made") == []
    assert failures(bench)[0][1].endswith("and no person can approve it")


def test_arguments_have_names_and_kinds() -> None:
    texts, numbers = named_arguments(
        {
            "to": "x",
            "sum": 1.2,
            "less": -1.2,
            "huge": 10**30,
            "no": None,
            "flag": True,
            "at": Path("/tmp/a"),
            "where": {"city": "Bern", "zip": 3000},
            "all": ["a", "b"],
            "odd": "\ud800",
        }
    )
    assert numbers == {"sum": 2, "less": -2, "huge": 2**63 - 1, "where.zip": 3000}
    assert (texts["where.city"], texts["all"], texts["flag"], texts["at"]) == ("Bern", '["a","b"]', "true", "/tmp/a")
    assert "no" not in texts
    recorded = {
        "by": "ana",
        "text": POLICIES,
        "names": ["all", "sums", "mail"],
        "actions": ["call tool with arguments"],
    }
    facts = {"node": "a", "variant": "default", "case": "one"}
    policies = NodePolicies(recorded, {"sweep": "s"})  # type: ignore[arg-type]
    assert policies.decide_call("pay", {"sum": float("nan"), "odd": "\ud800"}, facts).rules == ("sums",)
    assert policies.decide_call("send", {"to": "x"}, facts).question == "This leaves the house."


def test_a_denial_wins_over_a_question() -> None:
    more = 'forbid(principal, action == Action::"call tool with arguments", resource);'
    recorded = {"by": "ana", "text": POLICIES + more, "names": [*"abcd"], "actions": ["call tool with arguments"]}
    decision = NodePolicies(recorded, {}).decide_call(  # type: ignore[arg-type]
        "send", {"to": "x"}, {"node": "a", "variant": "b", "case": "c"}
    )
    assert (decision.allowed, decision.question, decision.rules) == (False, None, ("c", "d"))
    assert PolicySet(POLICIES, [*"abc"]).names == ["a", "b", "c"]

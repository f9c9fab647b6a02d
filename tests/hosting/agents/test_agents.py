"""Agents decide by documents that fit into a reply, and do nothing that costs or destroys before they have agreed."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from jsonschema import Draft202012Validator
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.support.bench import make_bench
from tests.support.prose import sentence
from tests.support.tenants import Tenant, asking, limited_to
from wtb import Workflow
from wtb.core.errors import AccessDenied, ConflictError, InputError, NotFound
from wtb.hosting import agent_server, agent_tools
from wtb.hosting.agent_calls import (
    LASTS_S,
    MOST_CHARACTERS,
    REPLY_SCHEMA,
    Caller,
    Calls,
    Confirmations,
    checked_arguments,
    find_tool,
    make_reply,
)
from wtb.hosting.agent_server import make_server, read
from wtb.hosting.agent_tools import TOOLS, path_to
from wtb.operations.context import Context, Origin
from wtb.operations.identity import OPERATOR
from wtb.operations.registry import OPERATIONS, Effect, Permission
from wtb.store.database import Database
from wtb.store.read.queries import find_sweep
from wtb.store.tables.schema import audit

pytestmark = pytest.mark.anyio

SNAPSHOT = Path(__file__).with_name("tools.json")
ANN = Caller(OPERATOR)


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Place:
    """Two projects, and calls of agents there."""

    context: Context
    mine: Tenant
    other: Tenant
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.calls = Calls(self.context, Confirmations(self.clock))

    def call(self, name: str, caller: Caller = ANN, **arguments: Any) -> Mapping[str, Any]:
        return self.calls.call(name, arguments, caller).reply

    def status(self) -> str:
        return str(find_sweep(self.context.database, self.mine.names["sweep"]).status)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("agents")
    database = Database(f"sqlite:///{folder / 'wtb.db'}")
    database.prepare()
    context = Context(database, by="ann", files=folder).importing_nothing()
    yield Place(context, Tenant(context, folder, "acme"), Tenant(context, folder, "zeta"))
    context.close()


def test_tools_are_those_that_were_agreed_on() -> None:
    """The descriptions that agents read are a contract: if you change them on purpose, change this file as well."""
    tools = {
        tool.name: {"description": tool.description, "operations": list(tool.operations), "input": tool.schema}
        for tool in TOOLS
    }
    assert tools == json.loads(SNAPSHOT.read_text())
    assert len(TOOLS) <= 19


def test_tools_call_operations_of_the_registry_and_ask_back_where_those_cost_or_destroy() -> None:
    for tool in TOOLS:
        Draft202012Validator.check_schema(tool.schema)
        assert set(tool.operations) <= OPERATIONS.keys()
        costly = any(OPERATIONS[name].effect in (Effect.spends, Effect.destroys) for name in tool.operations)
        assert costly == (tool.preview is not None) == ("confirm" in tool.schema["properties"])  # type: ignore[operator]


def test_every_reply_has_the_decision_first_and_fits(place: Place) -> None:
    names = place.mine.names
    calls: list[tuple[str, dict[str, Any]]] = [
        ("find", {}),
        ("find", {"what": "questions"}),
        ("find", {"what": "budgets"}),
        ("find", {"what": "workflows"}),
        ("status", {"ref": names["sweep"]}),
        ("status", {"ref": names["execution"]}),
        ("matrix", {"ref": names["sweep"]}),
        ("explain", {"ref": names["sweep"]}),
        ("compare", {"before": names["sweep"], "after": names["sweep"]}),
        ("cell", {"ref": names["sweep"]}),
        ("cell", {"execution": names["execution"], "calls": True}),
        ("diff", {"a": names["execution"], "b": names["execution"]}),
        ("history", {"ref": names["execution"]}),
        ("history", {"ref": names["execution"], "state": True}),
        ("checkpoint", {"ref": names["checkpoint"]}),
        ("comment", {"ref": names["sweep"]}),
        ("cases", {"cases": {"headings": ["id", "Question "], "rows": [["a", "Why?"]]}}),
        ("try", {"evaluator": {"contains": {"field": "answer"}}, "state": {"answer": "It is 42."}, "expected": "42"}),
    ]
    for name, arguments in calls:
        reply = place.call(name, **arguments)
        Draft202012Validator(REPLY_SCHEMA).validate(reply)
        assert next(iter(reply)) == "decision"
        assert reply["decision"], name
        assert len(json.dumps(reply)) <= MOST_CHARACTERS


@pytest.mark.parametrize("name", ["matrix", "explain"])
def test_a_sweep_that_nobody_scores_is_said_to_be_one(place: Place, tmp_path: Path, name: str) -> None:
    wf = Workflow("unscored")
    wf.entry(wf.node(lambda state: {"y": 1}, name="a"))
    bench = make_bench(place.context.database, tmp_path, wf, sweep="unscored")
    bench.run()
    words = "Nothing is scored and nothing will be: the sweep has no evaluators (`evaluate`)."
    assert words in place.call(name, ref=bench.sweep_id)["decision"]


@pytest.mark.parametrize(
    "document",
    [
        {"rows": [{"text": "x" * 1000, "n": n} for n in range(100_000)]},
        {f"key{n}": n for n in range(100_000)},
        {"a": {"b": [["x" * 100] * 100] * 100}},
        ["x"] * 100_000,
        {"text": "☃" * 1_000_000},
        {"a": {f"k{n}" * 400: [1] * 1000 for n in range(20)}},
        {f"k{n}" * 2000: [1] * 100 for n in range(5)},
    ],
)
def test_what_is_large_is_cut_and_said_to_be(document: Any) -> None:
    reply = make_reply("d" * 100_000, document)
    assert len(json.dumps(reply)) <= MOST_CHARACTERS
    assert reply["decision"].startswith("ddd")
    assert reply["left_out"] or "…" in json.dumps(reply, ensure_ascii=False)


def test_a_question_of_a_started_execution_is_shown_with_what_answers_it(place: Place) -> None:
    execution = place.mine.names["execution"]
    outcome = agent_tools.show_outcome(place.context, execution)
    assert outcome.decision.startswith(f"Execution {execution} is waiting")
    assert "`answer` answers: " in outcome.decision


def test_nothing_starts_before_the_agent_agrees(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(agent_tools, "_do", lambda context, name, *arguments, **named: done.append(name) or {})
    reply = place.call("start", workflow="shop", input={"x": 1}, wait_s=20)
    assert reply["decision"].startswith("NOTHING WAS DONE YET. This would run shop once")
    assert (reply["done"], done) == (False, ["workflows.show"])
    with pytest.raises(InputError, match="wait_s: 21 is greater than the maximum of 20"):
        place.call("start", workflow="shop", input={"x": 1}, wait_s=21)


def test_without_an_answer_nothing_is_cancelled(place: Place) -> None:
    sweep = place.mine.names["sweep"]
    before = place.status()
    reply = place.call("steer", ref=sweep, action="cancel", reason="enough")
    assert reply["decision"].startswith("NOTHING WAS DONE YET. This cancels sweep")
    assert (reply["done"], place.status()) == (False, before)
    assert reply["confirm"]["expires_s"] == LASTS_S


def _cancel(place: Place, token: str, caller: Caller = ANN) -> Any:
    return place.call("steer", caller, ref=place.mine.names["sweep"], action="cancel", confirm=token)


def _too_late(place: Place, token: str) -> Any:
    place.clock.now += LASTS_S + 1
    return _cancel(place, token)


OTHER_CALLS: dict[str, Callable[[Place, str], Any]] = {
    "other arguments": lambda place, token: place.call(
        "steer", ref=place.other.names["sweep"], action="cancel", confirm=token
    ),
    "other tool": lambda place, token: place.call("fork", ref=place.mine.names["execution"], confirm=token),
    "somebody else": lambda place, token: _cancel(place, token, Caller(limited_to("acme"))),
    "too late": _too_late,
    "forged": lambda place, token: _cancel(place, f"{token.split('.')[0]}.{'9' * 12}.{token.split('.')[2]}"),
}


@pytest.mark.parametrize("hostile", OTHER_CALLS)
def test_a_consent_to_something_else_is_none(place: Place, hostile: str) -> None:
    before = place.status()
    token = place.call("steer", ref=place.mine.names["sweep"], action="cancel")["confirm"]["token"]
    with pytest.raises(ConflictError, match=sentence("nothing was done")):
        OTHER_CALLS[hostile](place, token)
    assert place.status() == before


@pytest.mark.parametrize(
    "token", ["", ".", "..", "a.b.c", "a.1.ä", "a.١.x", "yes", "x" * 200, "a.-1.b", "a." + "9" * 99]
)
def test_what_is_no_consent_is_none(token: str) -> None:
    with pytest.raises(ConflictError):
        Confirmations().take(token, "who", "steer", {})


def test_a_consent_is_of_use_once() -> None:
    confirmations = Confirmations()
    token = confirmations.offer("ann", "steer", {"ref": "a", "action": "cancel"}).token
    confirmations.take(token, "ann", "steer", {"action": "cancel", "ref": "a"})
    with pytest.raises(ConflictError, match=sentence("used already; nothing more was done")):
        confirmations.take(token, "ann", "steer", {"ref": "a", "action": "cancel"})
    with pytest.raises(ConflictError):
        Confirmations().take(confirmations.offer("ann", "a", {}).token, "ann", "a", {})


def test_a_consent_is_none_to_the_same_with_another_sweep_of_that_name(place: Place, tmp_path: Path) -> None:
    tenant = Tenant(place.context, tmp_path, "delta")
    arguments = {"ref": tenant.names["sweep_name"], "action": "cancel"}
    confirm = place.call("steer", **arguments)["confirm"]["token"]
    sweep, session = tenant.names["sweep_name"], tenant.names["session"]
    newer = make_bench(place.context.database, tmp_path, asking(), sweep=sweep, session=session)
    with pytest.raises(ConflictError, match=sentence("has changed since its token was issued; nothing was done")):
        place.call("steer", **arguments, confirm=confirm)
    assert newer.status == "pending"
    with pytest.raises(ConflictError, match="used already"):
        place.call("steer", **arguments, confirm=confirm)


def test_a_consent_is_none_to_a_plan_that_has_grown() -> None:
    confirmations = Confirmations()
    token = confirmations.offer("ann", "submit", {"sweep": {}}, "12 cells").token
    consented = confirmations.take(token, "ann", "submit", {"sweep": {}})
    consented.check("12 cells")
    with pytest.raises(ConflictError, match="has changed"):
        consented.check("12,000 cells")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fork", {}),
        ("fork", {"all_cases": True}),
        ("steer", {"action": "resume"}),
        ("steer", {"action": "retry"}),
    ],
)
def test_a_budget_is_not_got_round_by_what_others_submitted(place: Place, name: str, options: dict[str, Any]) -> None:
    caller = Caller(replace(limited_to("acme"), token=place.mine.names["token"]))
    arguments = {"ref": place.mine.names["execution"], **options}
    confirm = place.call(name, caller, **arguments)["confirm"]["token"]
    before = place.status()
    with pytest.raises(AccessDenied, match=sentence("was submitted with another one")):
        place.call(name, caller, **arguments, confirm=confirm)
    assert place.status() == before


@pytest.mark.parametrize(
    ("name", "kind", "arguments"),
    [("questions.answer", "approval", ("approve",)), ("executions.rollback", "execution", ("x",))],
)
def test_what_others_submitted_is_not_resumed_on_another_budget(
    place: Place, name: str, kind: str, arguments: tuple[str, ...]
) -> None:
    identity = replace(limited_to("acme"), token=place.mine.names["token"])
    acting = place.context.acting_as(identity, OPERATIONS[name].needs, Origin("test", None, identity.token))
    before = place.status()
    with pytest.raises(AccessDenied, match=sentence("was submitted with another one")):
        OPERATIONS[name].function(acting, place.mine.names[kind], *arguments)
    assert place.status() == before


def test_who_agrees_has_it_done_once_and_under_their_name(place: Place, tmp_path: Path) -> None:
    tenant = Tenant(place.context, tmp_path, "gamma")
    arguments = {"ref": tenant.names["sweep"], "action": "cancel"}
    caller = Caller(limited_to("gamma"), "10.0.0.9")
    confirm = place.call("steer", caller, **arguments)["confirm"]["token"]
    assert place.call("steer", caller, **arguments, confirm=confirm)["done"]
    assert find_sweep(place.context.database, tenant.names["sweep"]).status == "cancelled"
    with pytest.raises(ConflictError, match="used already"):
        place.call("steer", caller, **arguments, confirm=confirm)
    noted = sa.select(audit.c.operation, audit.c.by, audit.c.via, audit.c.address)
    calls = {tuple(row) for row in place.context.database.tuples(noted)}
    assert ("sweeps.cancel", "mallory", "mcp steer", "10.0.0.9") in calls


@pytest.mark.parametrize("options", [{"provider": True}, {"provider": False}, {}])
def test_cells_lost_to_a_provider_alone_are_retried(
    place: Place, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    retried: list[Mapping[str, Any]] = []
    do = agent_tools._do

    def record(context: Context, name: str, *arguments: object, **named: object) -> Any:
        if name != "sweeps.retry":
            return do(context, name, *arguments, **named)
        inspect.signature(OPERATIONS[name].function).bind(context, *arguments, **named)
        retried.append(named)
        return {"status": "running"}

    monkeypatch.setattr(agent_tools, "_do", record)
    arguments = {"ref": place.mine.names["sweep"], "action": "retry", **options}
    offer = place.call("steer", **arguments)
    assert (sentence("only cells that were lost to a provider") in json.dumps(offer)) is bool(options.get("provider"))
    assert not retried
    assert place.call("steer", **arguments, confirm=offer["confirm"]["token"])["done"]
    assert retried == [options]


@pytest.mark.parametrize("action", ["pause", "resume", "cancel"])
def test_a_provider_is_rejected_with_other_actions_than_retry(place: Place, action: str) -> None:
    before = place.status()
    with pytest.raises(InputError, match=sentence("expected it with retry only")):
        place.call("steer", ref=place.mine.names["sweep"], action=action, provider=True)
    assert place.status() == before


def test_what_belongs_to_another_project_is_as_if_it_did_not_exist(place: Place) -> None:
    caller = Caller(limited_to("zeta"))
    for ref in (place.mine.names["sweep"], "iiiiiiii"):
        with pytest.raises(InputError, match="no sweep"):
            place.call("matrix", caller, ref=ref)
    for name, kind in (("history", "execution"), ("checkpoint", "checkpoint")):
        with pytest.raises((InputError, NotFound), match=r"no (execution|checkpoint)"):
            place.call(name, caller, ref=place.mine.names[kind])
    with pytest.raises((InputError, NotFound)):
        read(place.context, f"wtb:/api/v1/sweeps/{place.mine.names['sweep']}/matrix", caller.identity)


def test_who_may_only_read_is_refused_and_noted(place: Place) -> None:
    reader = Caller(limited_to("acme", Permission.read))
    with pytest.raises(AccessDenied, match=sentence("takes the scope {}", "steer")):
        place.call("steer", reader, ref=place.mine.names["sweep"], action="cancel")
    with pytest.raises(AccessDenied, match=sentence("takes the scope {}", "submit")):
        place.call("submit", reader, sweep={})
    assert place.call("matrix", reader, ref=place.mine.names["sweep"])["done"]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("matrix", {}, "'ref' is a required property"),
        ("matrix", {"ref": 1}, "ref: 1 is not of type 'string'"),
        ("matrix", {"ref": "a", "sql": "DROP"}, "'sql' was unexpected"),
        ("steer", {"ref": "a", "action": "delete"}, "'delete' is not one of"),
        ("status", {"ref": "a", "wait_s": 1e9}, "wait_s: 1000000000.0 is greater than the maximum"),
        ("submit", {"sweep": {"x": "y" * 1_000_001}}, sentence("at most {} may be sent", "1,000,000")),
        ("matrix", {"ref": "x", "confirm": "a"}, "'confirm' was unexpected"),
        ("cell", {}, None),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name: str, arguments: dict[str, Any], words: str | None) -> None:
    if words is None:
        assert checked_arguments(find_tool(name), arguments) == {}
        return
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        checked_arguments(find_tool(name), arguments)


def test_arguments_within_each_other_without_end_are_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(20_000):
        deep = {"a": deep}
    with pytest.raises(InputError, match=sentence("within each other")):
        checked_arguments(find_tool("plan"), {"sweep": deep})


def test_a_consent_where_there_is_nothing_to_confirm_is_refused(place: Place) -> None:
    with pytest.raises(InputError, match=sentence("nothing needs confirmation")):
        place.call("steer", ref=place.mine.names["sweep"], action="pause", confirm="x")


def test_a_tool_that_there_is_not_is_named() -> None:
    with pytest.raises(NotFound, match="no tool 'statsu'; did you mean 'status'"):
        find_tool("statsu")
    with pytest.raises(NotFound):
        find_tool("x" * 1_000_000)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "wtb:",
        "file:///etc/passwd",
        "wtb://[",
        "wtb:/api/v1/nowhere",
        "wtb:/api/v1/../x",
        "wtb:/api/v1/sweeps/a/pause",
        "x" * 9999,
    ],
)
def test_what_is_no_resource_is_refused(place: Place, uri: str) -> None:
    with pytest.raises(NotFound, match="no resource"):
        read(place.context, uri, OPERATOR)


def test_a_resource_is_what_the_rest_api_answers(place: Place) -> None:
    sweep = place.mine.names["sweep"]
    assert json.loads(read(place.context, f"wtb:/api/v1/sweeps/{sweep}", OPERATOR))["sweep"]["id"] == sweep
    cells = json.loads(read(place.context, f"wtb:/api/v1/sweeps/{sweep}/cells?limit=1", OPERATOR))["cells"]
    assert len(cells) == 1
    with pytest.raises(InputError, match="has no 'x'"):
        read(place.context, f"wtb:/api/v1/sweeps/{sweep}?x=1", OPERATOR)


def test_a_resource_is_asked_for_as_the_rest_api_is(place: Place) -> None:
    cells = f"wtb:/api/v1/sweeps/{place.mine.names['sweep']}/cells"
    assert len(json.loads(read(place.context, f"{cells}?statuses=waiting&statuses=failed", OPERATOR))["cells"]) == 1
    assert json.loads(read(place.context, f"{cells}?statuses=failed", OPERATOR))["cells"] == []
    for query, words in (("limit=many", "limit is 'many'"), ("case=7", "no case|7")):
        with pytest.raises(InputError, match=words):
            read(place.context, f"{cells}?{query}", OPERATOR)


def test_who_may_not_read_a_resource_is_noted(place: Place) -> None:
    nobody = Caller(limited_to("acme", Permission.submit), "10.0.0.7")
    with pytest.raises(AccessDenied):
        read(place.context, "wtb:/api/v1/sweeps", nobody.identity, nobody.address)
    noted = sa.select(audit.c.operation, audit.c.via).where(audit.c.address == "10.0.0.7")
    assert place.context.database.tuples(noted) == [("sweeps.list", "mcp /sweeps")]


def test_links_are_to_what_is_named_whatever_its_name() -> None:
    assert path_to("sweeps", "a/b ?#%", "cells") == "/sweeps/a%2Fb%20%3F%23%25/cells"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_fault_says_nothing_of_the_inside(
    place: Place, mode: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> str:
        raise RuntimeError("SELECT secret")

    monkeypatch.setattr(agent_server, "read", fails)

    async def talk() -> None:
        async with Client(make_server(place.context, lambda _: ANN), mode=mode) as client:
            with pytest.raises(MCPError, match=sentence("fault of the server")) as fault:
                await client.read_resource("wtb:/api/v1/sweeps")
            assert "secret" not in str(fault.value)

    anyio.run(talk)
    assert "SELECT secret" in caplog.text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_clients_of_both_eras_are_answered(place: Place, mode: Any) -> None:
    sweep = place.mine.names["sweep"]
    async with Client(make_server(place.context, lambda _: ANN), mode=mode) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert listed.keys() == {tool.name for tool in TOOLS}
        assert listed["matrix"].annotations
        assert listed["matrix"].annotations.read_only_hint
        assert listed["steer"].annotations
        assert listed["steer"].annotations.destructive_hint
        response = await client.call_tool("matrix", {"ref": sweep})
        assert not response.is_error
        assert json.loads(response.content[0].text) == response.structured_content  # type: ignore[union-attr]
        (link,) = response.content[1:]
        contents = (await client.read_resource(link.uri)).contents  # type: ignore[union-attr]
        assert json.loads(contents[0].text)["sweep"]["id"] == sweep  # type: ignore[union-attr]
        refused = await client.call_tool("matrix", {"ref": "iiiiiiii"})
        assert refused.is_error
        assert "no sweep" in refused.content[0].text  # type: ignore[union-attr]
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("rm", {"rf": "/"})
        with pytest.raises(MCPError, match="no resource"):
            await client.read_resource("file:///etc/passwd")


def test_comments_are_written_and_listed_under_the_name_of_the_caller(place: Place) -> None:
    sweep = place.mine.names["sweep"]
    case = place.call("cell", ref=sweep)["document"]["cells"][0]["case"]
    caller = Caller(limited_to("acme"))
    reply = place.call("comment", caller, ref=sweep, case=case, text="Look at this.")
    number = reply["document"]["number"]
    assert reply["decision"].startswith(f"Comment {number} is on case {case}, row 0")
    listed = place.call("comment", caller, ref=sweep)["document"]["comments"]
    assert [(comment["number"], comment["text"], comment["by"]) for comment in listed] == [
        (number, "Look at this.", "mallory")
    ]
    with pytest.raises(InputError, match=sentence("expected the case")):
        place.call("comment", caller, ref=sweep, text="Of what?")
    with pytest.raises(InputError, match="there is no"):
        place.call("comment", Caller(limited_to("zeta")), ref=sweep)
    with pytest.raises(AccessDenied):
        place.call("comment", Caller(limited_to("acme", Permission.read)), ref=sweep, case=case, text="No.")


def test_cases_and_evaluators_are_tried_before_a_sweep_uses_them(place: Place) -> None:
    table = {"headings": ["id", "Question "], "rows": [["a", "Why?"], ["a", "How?"]]}
    read = place.call("cases", cases=table, columns={"question": "Question "})
    assert "a" in read["decision"]
    with pytest.raises(InputError, match="cases"):
        place.call("cases", cases="/etc/passwd")
    arguments = {"evaluator": {"contains": {"field": "answer"}}, "state": {"answer": "It is 42."}}
    assert place.call("try", **arguments, expected="42")["document"]["scores"][0]["value"] == 1
    assert place.call("try", **arguments, expected="43")["document"]["scores"][0]["value"] == 0
    with pytest.raises(InputError, match="names a file"):
        place.call("try", evaluator={"contains": {"text": "file://secret.txt"}}, state={"answer": "x"})

"""Policies are evaluated before an operation begins, and an invalid policy denies it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.support.bench import Bench, make_bench
from tests.support.project import FLOW, Project
from tests.support.prose import sentence
from wtb import Context as NodeContext
from wtb import Workflow
from wtb.authoring.code.described import workflow_of
from wtb.authoring.code.describing import describe_workflow
from wtb.core.errors import AccessDenied, InputError
from wtb.features.access.audit import list_audit
from wtb.hosting.api.app import make_app
from wtb.operations.context import Context
from wtb.operations.control.answers import answer, answer_all
from wtb.operations.control.pause_cancel import cancel
from wtb.operations.deleting import delete, preview_delete
from wtb.operations.inspection.cells import cell_columns
from wtb.operations.inspection.sweeps import list_sweeps
from wtb.operations.policy_rules import Asked, find_policies
from wtb.operations.registry import OPERATIONS
from wtb.operations.results.comparing import set_baseline
from wtb.operations.running.local import run
from wtb.planning.prepare import Prepared, prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.read.queries import event_rows
from wtb.store.tables.schema import approvals

DOCS = Path(__file__).parents[2] / "docs" / "policy.md"
EVERYBODY = "permit(principal, action, resource);\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of policies, empty."""
    directory = tmp_path / "policy"
    directory.mkdir()
    monkeypatch.setenv("WTB_POLICY", str(directory))
    monkeypatch.setattr("wtb.operations.policy_rules.KEEP_S", -1.0)  # each test writes others
    return directory


@pytest.fixture
def place(sqlite_url: str, tmp_path: Path) -> Iterator[Context]:
    database = Database(sqlite_url)
    database.prepare()
    yield Context(database, by="ana", files=tmp_path / "files")
    database.close()


def policy_of_page(name: str) -> str:
    """Return a policy of the documentation by its name."""
    text = DOCS.read_text("utf-8")
    start = text.index(f'@id("{name}")')
    return text[start : text.index(";\n", start) + 2]


def workflow(asks: bool = False) -> Workflow:
    support = Workflow("support")

    @support.tool
    def send(*, to: str) -> str:
        return to

    @support.node
    def reply(state: dict[str, Any], ctx: NodeContext) -> dict[str, Any]:
        return {"said": ctx.ask("send it?").action} if asks else {"said": "yes"}

    support.entry(reply)
    return support


def prepared(asks: bool = False, *, of: Workflow | None = None, **spec: Any) -> Prepared:
    document = {
        "workflow": "t:w",
        "cases": [{"id": "one", "input": {}}],
        "vary": {"reply": ["default"]},
        "sweep": "nightly",
    }
    return prepare(parse_spec({**document, "run": {"pool": "thread"}, **spec}), workflow=of or workflow(asks))


def ran(place: Context, asks: bool = False) -> Bench:
    assert place.files is not None
    sweep = make_bench(place.database, place.files, workflow(asks), sweep="nightly", run={"pool": "thread"})
    sweep.run()
    return sweep


def decided(sweep: Bench) -> list[dict[str, Any]]:
    return [event["data"] for event in event_rows(sweep.database, sweep.sweep_id) if event["kind"] == "policy.decided"]


def test_without_policies_all_is_allowed(place: Context, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of that name without policies is ignored."""
    monkeypatch.delenv("WTB_POLICY")
    monkeypatch.chdir(folder.parent)
    (folder / "notes.txt").write_text("no policies here")
    run(place, prepared())
    assert [sweep["name"] for sweep in list_sweeps(place)] == ["nightly"]


def test_who_may_submit_over_50_dollars(place: Context, folder: Path) -> None:
    (folder / "money.cedar").write_text(EVERYBODY + policy_of_page("over-50-dollars"))
    with pytest.raises(
        AccessDenied, match=r"ana may not carry out sweeps\.run \(workflow support\): policy over-50-dollars forbids it"
    ):
        run(place, prepared(limits={"usd": 50.01}))
    with pytest.raises(AccessDenied, match="over-50-dollars"):
        run(place, prepared())  # without a limit it may cost anything
    assert list_sweeps(place) == []
    run(place, prepared(limits={"usd": 50}))
    run(replace(place, by="cleo"), prepared(limits={"usd": 500}))
    assert len(list_sweeps(place)) == 2


def test_which_tools_a_workflow_may_call(place: Context, folder: Path) -> None:
    """The policy also holds for a published workflow, on the server and for agents."""
    (folder / "tools.cedar").write_text(EVERYBODY + policy_of_page("no-mail"))
    published = workflow_of(json.loads(json.dumps(describe_workflow(workflow().facts()))))
    for code in (workflow(), published):
        with pytest.raises(AccessDenied, match="ana may not submit workflow 'support', which has the tool 'send'"):
            run(place, prepared(of=code))
    run(place, prepared(project="outreach"))


def test_four_eyes_for_a_baseline(place: Context, folder: Path) -> None:
    (folder / "eyes.cedar").write_text(EVERYBODY + policy_of_page("four-eyes"))
    run(place, prepared())
    with pytest.raises(AccessDenied, match="policy four-eyes forbids it"):
        set_baseline(place, "main", "nightly")
    set_baseline(replace(place, by="bert"), "main", "nightly")


def test_who_may_answer_which_questions(place: Context, folder: Path) -> None:
    (folder / "answers.cedar").write_text(EVERYBODY + policy_of_page("answers-of-support"))
    sweep = ran(place, asks=True)
    (question,) = sweep.rows(approvals)
    for give in (
        lambda: answer(place, question["id"], "approve"),
        lambda: answer_all(place, "approve", [question["id"]]),
    ):
        with pytest.raises(AccessDenied, match="policy answers-of-support forbids it"):
            give()
    answer(replace(place, by="cleo"), question["id"], "approve", bound=sweep.prepared.bound)
    assert [(decision["by"], decision["allowed"], decision["rules"]) for decision in decided(sweep)] == [
        ("ana", False, ["answers-of-support"]),
        ("ana", False, ["answers-of-support"]),
        ("cleo", True, ["answers.cedar #1"]),
    ]


def test_where_no_policy_permits_it_is_denied(place: Context, folder: Path) -> None:
    (folder / "some.cedar").write_text('permit(principal == User::"bert", action, resource);')
    sweep = make_bench(place.database, place.files, workflow(), sweep="nightly")  # type: ignore[arg-type]
    with pytest.raises(AccessDenied, match=sentence("no policy permits it")):
        cancel(place, sweep.sweep_id)
    with pytest.raises(
        AccessDenied,
        match=sentence("{} may not {}: ", "ana", "carry out sweeps.list") + sentence("no policy permits it"),
    ):
        list_sweeps(place)
    assert list_sweeps(replace(place, by="bert"))
    preview_delete(place, sweep.sweep_id)


def test_a_policy_that_fails_denies_although_cedar_skips_it(place: Context, folder: Path) -> None:
    fails = '@id("fails") forbid(principal, action, resource) when { 9223372036854775807 + (NUMBER) > 0 };'
    fails = fails.replace("NUMBER", 'if context.by == "ana" then 1 else -9223372036854775807')
    (folder / "fails.cedar").write_text(EVERYBODY + fails)
    with pytest.raises(AccessDenied, match=sentence("could not be evaluated, which denies")):
        list_sweeps(place)
    assert list_sweeps(replace(place, by="bert")) == []


def test_bad_policies_are_refused_when_they_are_loaded(place: Context, folder: Path, subtests: pytest.Subtests) -> None:
    for text, expected in (
        ("permit(principal, action, resource", r"bad\.cedar: .*unexpected end of input|bad\.cedar"),
        ('permit(principal, action == Action::"submitt", resource);', "submitt"),
        ('forbid(principal, action == Action::"submit", resource);', "'submit'; write 'sweeps.submit'"),
        ('forbid(principal, action == Action::"plan --pilot", resource);', "'plan --pilot'; write 'sweeps.run_pilot'"),
        (
            'forbid(principal, action == Action::"baseline set --repeat", resource);',
            "'baseline set --repeat'; write 'baselines.set'",
        ),
        ('forbid(principal, action == Action::"executions.start", resource);', "write 'sweeps.run'"),
        ("permit(principal, action, resource) when { context.limit_cents > 5 };", "limit_cents"),
        ('permit(principal, action, resource) when { context.colour == "red" };', "colour"),
        ("permit(principal == ?principal, action, resource);", "template"),
    ):
        (folder / "bad.cedar").write_text(text)
        with subtests.test(text), pytest.raises(InputError, match=expected):
            list_sweeps(place)


def test_each_unknown_action_is_one_line(place: Context, folder: Path) -> None:
    text = 'forbid(principal, action in [Action::"submit", Action::"label ANSWER", Action::"nothing"], resource);'
    (folder / "old.cedar").write_text(text + 'forbid(principal, action == Action::"label ANSWER", resource);')
    with pytest.raises(InputError) as refused:
        list_sweeps(place)
    lines = str(refused.value).splitlines()
    assert len([line for line in lines if "old.cedar #1" in line]) == 3
    assert len([line for line in lines if "old.cedar #2" in line]) == 1
    assert sentence("there is no action {}; write {}", "'label ANSWER'", "'labels.answer'") in lines[-1]


def test_a_folder_that_is_named_and_not_there_allows_nothing(
    place: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WTB_POLICY", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=sentence("nothing is allowed until it is there")):
        list_sweeps(place)


def test_policies_are_read_again_once_they_have_changed(place: Context, folder: Path) -> None:
    (folder / "a.cedar").write_text(EVERYBODY)
    list_sweeps(place)
    (folder / "a.cedar").write_text(EVERYBODY + "forbid(principal, action, resource);\n")
    with pytest.raises(AccessDenied):
        list_sweeps(place)


def test_every_operation_passes_the_place_where_policies_are_asked(
    place: Context, folder: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """Policies are evaluated before the arguments of an operation are used."""
    (folder / "none.cedar").write_text("forbid(principal, action, resource);")
    asked: list[str] = []
    monkeypatch.setattr(Context, "authorize", lambda self, function, _: asked.append(function.__name__) or 1 / 0)
    monkeypatch.setattr("wtb.core.arguments.check", lambda *arguments: None)
    for operation in OPERATIONS.values():
        needed = [parameter for parameter in operation.arguments.values() if parameter.default is parameter.empty]
        by_name = {parameter.name: None for parameter in needed if parameter.kind is parameter.KEYWORD_ONLY}
        with subtests.test(operation.function.__name__), pytest.raises(ZeroDivisionError):
            operation.function(place, *[None] * (len(needed) - len(by_name)), **by_name)
    assert asked == [operation.function.__name__ for operation in OPERATIONS.values()]


def test_what_pages_read_of_cells_is_asked_for_as_cells(place: Context, folder: Path) -> None:
    (folder / "all.cedar").write_text(EVERYBODY + 'forbid(principal, action == Action::"cells.list", resource);\n')
    with pytest.raises(AccessDenied):
        cell_columns(place, "any", None)


def test_a_sweep_is_deleted_where_policies_permit_it(place: Context, folder: Path) -> None:
    (folder / "a.cedar").write_text(EVERYBODY)
    sweep = ran(place)
    delete(place, sweep.sweep_id)


def test_decisions_are_remembered_by_all_that_they_follow_from(folder: Path) -> None:
    """`python -m benchmarks policy` measures the time that policies take."""
    (folder / "all.cedar").write_text(EVERYBODY + policy_of_page("over-50-dollars"))
    policies = find_policies()
    assert policies is not None

    def decide(by: str, cents: int) -> bool:
        return policies.decide(Asked("sweeps.submit", by, "Workflow", "support", {"limit_cents": cents})).allowed

    assert [decide("ana", 4_000), decide("ana", 6_000), decide("cleo", 6_000)] * 2 == [True, False, True] * 2


def test_commands_check_and_explain(project: Project) -> None:
    project.write({"flow.py": FLOW, "policy/money.cedar": EVERYBODY + policy_of_page("over-50-dollars")})
    assert project.inside("admin", "policy", "check", check=0).stdout.split("\n")[:2] == [
        "money.cedar #1",
        "over-50-dollars",
    ]
    limits = ("--with", "limit_cents=6000")
    denied = project.inside(
        "admin", "policy", "explain", "sweeps.submit", "--by", "ana", *limits, "--format", "json", check=1
    )
    assert denied.json["rules"] == ["over-50-dollars"]
    allowed = project.inside("admin", "policy", "explain", "sweeps.submit", "--by", "cleo", *limits, check=0)
    assert allowed.stdout == "allowed: policy money.cedar #1 permits it\n"
    refused = project.inside("admin", "policy", "explain", "sweeps.sumbit", check=2)
    assert sentence("did you mean '{}'", "sweeps.submit") in refused.output


def test_what_a_policy_forbids_is_forbidden_over_http_and_in_the_audit_log(place: Context, folder: Path) -> None:
    (folder / "no.cedar").write_text(EVERYBODY + 'forbid(principal, action == Action::"sweeps.pause", resource);\n')
    ran(place)
    token = "a-token-of-the-tests-own"
    client = TestClient(make_app(place, token=token, hosts=["testserver"]))
    response = client.post("/api/v1/sweeps/nightly/pause", json={}, headers={"Authorization": f"Bearer {token}"})
    assert (response.status_code, response.json()["error"]) == (403, "AccessDenied")
    (noted,) = list_audit(place, command="pause")
    assert (noted["outcome"], noted["via"]) == ("failed", "POST /api/v1/sweeps/{ref}/pause")
    assert "policy no.cedar" in str(noted["error"])


def test_commands_explain_calls_of_tools(project: Project) -> None:
    """The command evaluates calls with their arguments, as nodes do."""
    text = """
@id("large") forbid(principal, action == Action::"call tool with arguments", resource == Tool::"pay")
when { context.numbers.hasTag("sum") && context.numbers.getTag("sum") > 5 };
@id("mail") @ask("Really?") forbid(principal, action == Action::"call tool with arguments", resource == Tool::"send");
"""
    project.write({"policy/calls.cedar": EVERYBODY + text})
    call = ("admin", "policy", "explain", "call tool with arguments", "--resource")
    assert project.inside(*call, "Tool:pay", "--with", "arguments.sum=5", check=0).stdout.startswith("allowed")
    large = project.inside(*call, "Tool:pay", "--with", "arguments.sum=5.5", check=1)
    assert large.stdout == "denied: policy large forbids it\n"
    output = project.inside(*call, "Tool:send", check=1)
    assert (
        output.stdout
        == sentence("asks a person") + ": " + sentence("policy {} requires that a person approves it", "mail") + "\n"
    )


def test_only_calls_of_tools_can_wait_for_a_person(place: Context, folder: Path, subtests: pytest.Subtests) -> None:
    for policy in (
        '@ask("?") permit(principal, action == Action::"call tool with arguments", resource);',
        '@ask("?") forbid(principal, action, resource);',
        '@ask("?") forbid(principal, action in [Action::"call tool with arguments", Action::"sweeps.run"], resource);',
    ):
        (folder / "bad.cedar").write_text(EVERYBODY + policy)
        words = r"bad\.cedar #2: @ask is for a forbid policy whose action is"
        with subtests.test(policy), pytest.raises(InputError, match=words):
            list_sweeps(place)

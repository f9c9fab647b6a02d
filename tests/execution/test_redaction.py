"""Nothing that a sweep redacts is stored, and a runner that continues it reads the same values as the first."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest
import sqlalchemy as sa

from tests.support.attempts import ATTEMPTS
from tests.support.bench import Bench
from tests.support.project import Project
from tests.support.prose import sentence
from wtb import END, Workflow
from wtb import Context as NodeContext
from wtb.config.run_options import Redact, read_project_redaction
from wtb.core.errors import InputError
from wtb.execution.engine.redacting import RedactingExecutor
from wtb.execution.engine.resource_usage import PRINTED
from wtb.operations.context import Context
from wtb.operations.control.answers import answer
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.tables.schema import approvals, metadata

MAIL = r"\b\w+@example\.org\b"
SECRET = "@example.org"
REDACT = {"patterns": {"mail": MAIL}, "keys": ["phone"]}
CASES = [{"id": "one", "input": {"text": "from ana@example.org", "phone": "fon:77"}, "expected": "ana@example.org"}]


class State(TypedDict, total=False):
    text: str
    phone: str
    seen: str
    draft: str
    ok: str


def everything(database: Database) -> str:
    """Return the contents of a database as one text."""
    with database.read() as connection:
        rows = [repr(tuple(row)) for table in metadata.sorted_tables for row in connection.execute(sa.select(table))]
    return "\n".join(rows)


def talkative(asks: bool = False) -> Workflow:
    """A workflow that writes what is to be redacted wherever it can."""
    workflow = Workflow("talkative", state=State)

    @workflow.tool
    def look_up(*, who: str) -> str:
        return f"{who} is bob@example.org"

    @workflow.node(retries=1)
    def first(state: State, ctx: NodeContext) -> State:
        ctx.log("logged dora@example.org")
        ctx.tell("tokens", "eve@exam")
        ctx.call(model="m", prompt="to frank@example.org", response={"phone": "fon:88"}, usd=0.0)
        ctx.tools.look_up(who="gina@example.org")
        ctx.checkpoint("inside", mine="hugo@example.org")
        if ctx.attempt == 1:
            raise ValueError("failed for ida@example.org")
        if asks:
            reply = ctx.ask("May jan@example.org?", options=["yes", "no"], context={"phone": "fon:99"})
            return {"seen": state["text"], "ok": f"{reply.choice} {reply.feedback}"}
        return {"seen": state["text"]}

    @workflow.node
    def second(state: State, *, who: str = "") -> State:
        return {"draft": f"{state['seen']} | {state['phone']} | kim@example.org"}

    workflow.entry(first)
    workflow.edge(first, second)
    workflow.edge(second, END)
    return workflow


def nosy(case: Any, result: Any) -> float:
    raise ValueError("scored lea@example.org")


def checked(sweep: Bench) -> str:
    stored = everything(sweep.database)
    assert SECRET not in stored, [line[:2000] for line in stored.splitlines() if SECRET in line]
    assert "fon:" not in stored
    return stored


def test_states_outputs_calls_errors_events_and_cases_are_redacted_before_they_are_stored(
    bench: Callable[..., Bench],
) -> None:
    sweep = bench(talkative(), CASES, redact=REDACT, evaluators={"nosy": nosy}, run={"pool": "thread"})
    sweep.run()
    (cell,) = sweep.cells()
    assert cell.status == "succeeded"
    assert cell.state == {
        "text": "from [redacted:mail]",
        "phone": "[redacted:phone]",
        "seen": "from [redacted:mail]",
        "draft": "from [redacted:mail] | [redacted:phone] | [redacted:mail]",
    }
    stored = checked(sweep)
    assert sweep.row.spec["redact"] == REDACT, "for whoever continues it"
    for what in ("logged", "to", "failed for", "scored"):
        assert f"{what} [redacted:mail]" in stored, what
    assert "eve@exam" not in stored


def test_without_redact_all_of_it_is_there(bench: Callable[..., Bench]) -> None:
    """The test above would fail if it looked in the wrong places."""
    sweep = bench(talkative(), CASES, evaluators={"nosy": nosy}, run={"pool": "thread"})
    sweep.run()
    stored = everything(sweep.database)
    names = ("ana", "bob", "dora", "frank", "gina", "hugo", "ida", "kim", "lea")
    assert [name for name in names if f"{name}{SECRET}" not in stored] == []


def test_who_resumes_sees_what_everybody_saw(bench: Callable[..., Bench]) -> None:
    """After a pause, a node reads the same from the database as it would have from memory."""
    straight = bench(talkative(), CASES, redact=REDACT, run={"pool": "thread"})
    straight.run()
    paused = bench(talkative(), CASES, redact=REDACT, run={"pool": "thread", "approval": {"after": "first"}})
    paused.run()
    assert paused.status == "paused" or paused.counts == {"waiting": 1}
    context = Context(paused.database, files=paused.folder)
    waiting = paused.rows(approvals)
    answer(context, waiting[0]["id"], "approve", feedback="by mia@example.org", bound=paused.prepared.bound)
    paused.run()
    assert [cell.state for cell in paused.cells()] == [cell.state for cell in straight.cells()]
    checked(paused)


def test_a_question_is_redacted_and_its_answer_finds_the_node(bench: Callable[..., Bench]) -> None:
    sweep = bench(talkative(asks=True), CASES, redact=REDACT, run={"pool": "thread"})
    sweep.run()
    (approval,) = sweep.rows(approvals)
    assert approval["question"] == "May [redacted:mail]?"
    context = Context(sweep.database, files=sweep.folder)
    answer(context, approval["id"], "yes", feedback="says nora@example.org", bound=sweep.prepared.bound)
    sweep.run()
    (cell,) = sweep.cells()
    assert (cell.status, cell.state["ok"]) == ("succeeded", "yes says [redacted:mail]")
    checked(sweep)


FLOW = """
from typing import TypedDict

from wtb import END, Workflow


class State(TypedDict):
    text: str


wf = Workflow("flow", state=State)


@wf.node
def only(state):
    print("printed carl@example.org")
    return {"text": state["text"] + ", kim@example.org"}


wf.entry(only)
wf.edge(only, END)
"""
SWEEP = """
workflow: flow:wf
cases: [{id: one, input: {text: from ana@example.org}}]
vary: {only: [default]}
redact: {patterns: {mail: '\\b\\w+@example\\.org\\b'}}
"""


def test_what_node_processes_print_and_write_is_redacted(project: Project) -> None:
    project.write({"flow.py": FLOW, "mail.sweep.yaml": SWEEP})
    project.inside("run", "mail.sweep.yaml", "--quiet", check=0)
    assert project.query(f"SELECT stdout FROM {ATTEMPTS}") == [("printed [redacted:mail]\n",)]
    (state,) = project.inside("show", "mail", "--cells", "--format", "json", check=0).json["cells"]
    stored = b"".join(path.read_bytes() for path in project.file.parent.rglob("*") if path.is_file())
    assert SECRET.encode() not in stored
    assert b"from [redacted:mail], [redacted:mail]" in stored
    assert state["status"] == "succeeded"


def refused(redact: dict[str, Any], **spec: Any) -> str:
    document = {"workflow": "tests:wf", "cases": CASES, "vary": {"first": ["default"]}, "redact": redact, **spec}
    with pytest.raises(InputError) as error:
        prepare(parse_spec(document), workflow=talkative())
    return "\n".join(error.value.problems)


@pytest.mark.parametrize(
    ("redact", "expected"),
    [
        ({"patterns": {"a": "("}}, sentence("is no regular expression of RE2")),
        ({"patterns": {"a": "(?<=x)y"}}, sentence("is no regular expression of RE2")),
        ({"patterns": {"a": "x*"}}, sentence("matches the empty text and so everywhere")),
        ({"patterns": {"a": "((a{100}){100}){100}"}}, sentence("is no regular expression of RE2")),
        ({"patterns": {"a b": "x"}}, sentence("a name of letters, digits")),
        ({"patterns": {"a": 7}}, "expected a regular expression"),
        ({"keys": ["a b"]}, sentence("without blanks and square brackets")),
        ({"key": ["a"]}, sentence("'{}' is not known", "redact.key") + sentence("; did you mean '{}'?", "keys")),
    ],
)
def test_bad_patterns_are_refused_before_any_work(redact: dict[str, Any], expected: str) -> None:
    assert expected in refused(redact)


def test_a_catastrophic_pattern_takes_no_longer_than_the_text_is_long() -> None:
    redactor = Redact(patterns={"slow": r"(a+)+b"}).redactor
    began = time.process_time()
    assert redactor.text("a" * 200_000) == "a" * 200_000
    assert time.process_time() - began < 1.0, "Python's own would not have ended in this universe"


def test_names_of_cases_and_parameters_are_refused_since_they_are_stored_as_they_are() -> None:
    cases = [{"id": "ana@example.org", "input": {"text": "x", "phone": "1"}, "tags": ["bob@example.org"]}]
    message = refused(REDACT, cases=cases)
    assert sentence("{} has what the pattern {} of 'redact' is to keep out", "its id", "'mail'") in message
    assert "a tag has what" in message
    variant = {"name": "v", "of": "default", "who": "ana@example.org"}
    assert sentence("the pattern {} of 'redact' is found here", "'mail'") in refused(REDACT, vary={"second": [variant]})


def test_a_key_that_takes_no_text_is_refused() -> None:
    class Counted(TypedDict):
        count: int

    workflow = Workflow("counted", state=Counted)

    @workflow.node
    def only(state: Counted) -> Counted:
        return state

    workflow.entry(only)
    document = {"workflow": "t:w", "cases": [{"id": "a", "input": {"count": 1}}], "vary": {"only": ["default"]}}
    with pytest.raises(InputError, match=sentence("'{}' is a key of the state that takes no text", "count")):
        prepare(parse_spec({**document, "redact": {"keys": ["count"]}}), workflow=workflow)


def test_a_project_redacts_for_all_of_its_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wtb.toml").write_text("[redact]\nkeys = [\"phone\"]\n[redact.patterns]\nmail = '\\w+@\\w+\\.org'\n")
    document = {"workflow": "t:w", "cases": CASES, "vary": {"first": ["default"]}}
    prepared = prepare(parse_spec({**document, "redact": {"patterns": {"zip": r"\d{5}"}}}), workflow=talkative())
    assert prepared.bound.spec.redact == Redact(patterns={"mail": r"\w+@\w+\.org", "zip": r"\d{5}"}, keys=("phone",))
    with pytest.raises(InputError, match=sentence("is another pattern in the settings of the project")):
        prepare(parse_spec({**document, "redact": {"patterns": {"mail": "x"}}}), workflow=talkative())
    (tmp_path / "wtb.toml").write_text("[redact]\npatterns = { a = '(' }\n")
    with pytest.raises(InputError, match=r"wtb\.toml: \[redact\].*no regular expression"):
        read_project_redaction()


@pytest.mark.parametrize("patterns", [{"mail": MAIL}, {}], ids=["by patterns", "by keys alone"])
def test_output_so_far_is_not_reported_where_a_pattern_would_be_cut(patterns: dict[str, str]) -> None:
    kinds: list[str] = []
    nothing: Any = None  # runs no code
    code = RedactingExecutor(nothing, Redact(patterns=patterns, keys=["phone"]).redactor)
    report = code._reporting(lambda kind, details: kinds.append(kind))
    assert report
    report(PRINTED, {"stdout": "from ana@exam"})
    assert kinds == ([] if patterns else [PRINTED])

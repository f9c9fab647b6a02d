"""A published workflow is enough to plan with: its graph, checks and fingerprints equal those of the code."""

from __future__ import annotations

import json
import operator
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest
from typing_extensions import TypedDict

from tests.support.prose import sentence
from wtb import END, Workflow, evaluator
from wtb.authoring.code.described import evaluator_function_of, workflow_of
from wtb.authoring.code.describing import describe_evaluator, describe_workflow
from wtb.authoring.code.fingerprint import fingerprints
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.graph import graph_snapshot
from wtb.authoring.nodes import Variant
from wtb.core.errors import InputError
from wtb.integrations.mcp import use_server
from wtb.planning.binding import bind
from wtb.planning.publishing import PublishedCode, describe_registered
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.publications import list_publications, publish


class State(pydantic.BaseModel):
    number: int
    words: Annotated[list[str], operator.add] = []
    how: Literal["quick", "deep"] | None = None
    pair: tuple[int, ...] | None = None


class Given(TypedDict):
    number: int


def a_workflow() -> Workflow:
    wf = Workflow(
        "shop", state=State, input=Given, version="2", params={"top": 3}, max_steps=7, approval={"after": "f"}
    )

    @wf.node(retries=2, queue="gpu", limit=3, durable=True)
    def f(state: Any, ctx: Any, *, k: int = 5, word: str | None = None) -> Any:
        return {"number": k}

    f.variant("deep", k=50)
    f.variant("odd", k=object())
    f.deactivate("deep")

    @wf.node
    def g(state: Any) -> Any:
        return None

    wf.entry(f)
    wf.branch(f, {"a": g, "b": END}, by=lambda state: "a", default=END)
    wf.edge(g, END)
    return wf


def published(workflow: Workflow) -> Workflow:
    return workflow_of(json.loads(json.dumps(describe_workflow(workflow.facts()))))


def test_graph_and_fingerprints_are_those_of_the_code() -> None:
    code = a_workflow()
    remote = published(code)
    assert graph_snapshot(remote.facts()) == graph_snapshot(code.facts())
    vary = {"f": ["default", "deep", "odd"]}
    assert fingerprints(remote.nodes.values(), vary) == fingerprints(code.nodes.values(), vary)
    for workflow in (code, remote):  # a variant that a sweep adds
        workflow.add_variant(Variant("f", "k7", workflow.nodes["f"].variants["default"].fn, {"k": 7}))
    vary = {"f": ["k7"]}
    assert fingerprints(remote.nodes.values(), vary) == fingerprints(code.nodes.values(), vary)
    assert (remote.max_steps, remote.approval, remote.params, remote.version) == (7, {"after": "f"}, {"top": 3}, "2")
    assert remote.nodes["f"].rules.queue == "gpu"
    assert remote.nodes["f"].active() == code.nodes["f"].active() == ["default", "odd", "k7"]


def with_parameters() -> Workflow:
    wf = Workflow("flow")

    @wf.node
    def f(state: Any, *, k: int = 5, word: str | None = None) -> Any:
        return {}

    wf.entry(f)
    wf.edge(f, END)
    return wf


def test_a_grid_becomes_the_variants_that_it_becomes_with_the_code() -> None:
    keys: dict[str, Any] = {"workflow": "flow", "cases": [], "baseline": {"f.k": 9}}
    spec = parse_spec({**keys, "vary": {"f": ["default", {"k": [7, 9], "word": ["a", "b"]}]}})
    bound = [bind(spec, workflow) for workflow in (with_parameters(), published(with_parameters()))]
    assert bound[0].spec == bound[1].spec
    assert bound[0].fingerprints == bound[1].fingerprints
    assert len(bound[0].vary["f"]) == 5
    refused = []
    for workflow in (with_parameters(), published(with_parameters())):
        with pytest.raises(InputError) as raised:
            bind(parse_spec({**keys, "vary": {"f.k": ["x", 2.5], "f.kk": [1]}}), workflow)
        refused.append(raised.value.problems)
    assert refused[0] == refused[1]


def test_tools_have_their_names_and_servers_that_nobody_can_ask() -> None:
    code = a_workflow()
    code.tool(lambda: 1, name="send")
    use_server(code, "files", command=["nowhere"], tools=["read"])
    remote = published(code)
    assert list(remote.tools) == ["files.read", "send"]
    assert {name: ask() for name, ask in remote.versions.items()} == {"files": {}}


@pytest.mark.parametrize(
    "params", [{"k": 7}, {"k": "7"}, {"kk": 7}, {"word": None}, {"word": 1}, {"word": "x", "k": 2.5}], ids=str
)
def test_parameters_are_refused_with_the_words_of_the_code(params: dict[str, Any]) -> None:
    problems = [
        Variant("f", "own", workflow.nodes["f"].variants["default"].fn, params).problems()
        for workflow in (a_workflow(), published(a_workflow()))
    ]
    assert problems[0] == problems[1]


@pytest.mark.parametrize(
    "raw_input",
    [{"number": 1}, {"number": "4"}, {"number": "x"}, {"numer": 1}, {"words": ["a"]}, {"words": "a"}, {"how": "slow"}],
    ids=str,
)
def test_inputs_are_read_as_the_code_reads_them(raw_input: dict[str, Any]) -> None:
    code, remote = a_workflow().facts(), published(a_workflow()).facts()
    assert remote.schema.read_input(raw_input) == code.schema.read_input(raw_input)
    assert remote.input is not None
    assert code.input is not None
    assert remote.input.missing(raw_input) == code.input.missing(raw_input)


def test_what_only_code_can_make_is_refused() -> None:
    values, problems = published(a_workflow()).facts().schema.read_input({"pair": [1, 2]})
    assert not values
    assert "tuple[int, ...] | None, which takes the code" in problems[0]


def test_an_evaluator_declares_what_the_code_declares() -> None:
    @evaluator(better="lower", scale=(0, 9), timeout=3, name="length", on_failure=9)
    def words(case: Any, result: Any, *, limit: int) -> bool:
        return True

    stands_for = evaluator_function_of(json.loads(json.dumps(describe_evaluator(words))))
    evaluators = [make_evaluator("m:words", {"limit": 3}, str, function) for function in (words, stands_for)]
    declarations = [
        (metric.name, metric.better, metric.scale, metric.timeout, metric.on_failure, metric.compare)
        for metric in evaluators
    ]
    assert declarations[0] == declarations[1]
    for function in (words, stands_for):
        with pytest.raises(InputError, match=sentence("needs the option {}", "'limit'")):
            make_evaluator("m:words", {}, str, function)


# What is registered


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "published_flow.py").write_text(
        "from wtb import END, Workflow\nwf = Workflow('flow')\n@wf.node\ndef f(state): return {}\n"
        "wf.entry(f)\nwf.edge(f, END)\ndef score(case, result): return 1\n"
    )
    (tmp_path / "wtb.toml").write_text(
        "[workflows]\nshop = 'published_flow:wf'\ngone = 'published_flow:gone'\n"
        "[publish]\nevaluators = ['published_flow:score']\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_all_that_is_registered_is_published_and_what_is_not_there_with_its_error(
    registered: Path, database: Database
) -> None:
    publish(database, "w1", describe_registered())
    rows = {row.name: row for row in list_publications(database)}
    assert rows.keys() == {"shop", "gone", "published_flow:score"}
    assert "has no 'gone'" in str(rows["gone"].error)
    code = PublishedCode(database)
    assert list(code.workflow("shop", str).nodes) == ["f"]
    assert list(code.workflow("published_flow:wf", str).nodes) == ["f"], "by the path that it is registered with"
    with pytest.raises(InputError, match=sentence("cannot be imported by worker {}", "w1")):
        code.workflow("gone", str)
    with pytest.raises(InputError, match=sentence("did you mean '{}'", "shop")):
        code.workflow("shoq", str)
    with pytest.raises(InputError, match=sentence("nothing is imported here")):
        code.load("os:getcwd")


def test_a_worker_replaces_what_it_published_and_leaves_what_others_did(registered: Path, database: Database) -> None:
    descriptions = describe_registered()
    publish(database, "w1", descriptions)
    broken = [description for description in descriptions if description.name == "gone"]
    publish(database, "w2", broken)
    assert {row.name for row in list_publications(database)} == {"shop", "gone", "published_flow:score"}
    publish(database, "w1", [description for description in descriptions if description.name == "shop"])
    assert [(row.name, row.failed_by) for row in list_publications(database)] == [("gone", "w2"), ("shop", None)]
    (registered / "wtb.toml").write_text("[publish]\nevaluators = 3\n")
    with pytest.raises(InputError, match=sentence("must be a list of import paths")):
        describe_registered()

"""What is published of code is enough to plan with: graphs, checks and fingerprints are those of the code."""

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
from wtb.authoring.graph_snapshot import graph_snapshot
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
    made = published(code)
    assert graph_snapshot(made.facts()) == graph_snapshot(code.facts())
    vary = {"f": ["default", "deep", "odd"]}
    assert fingerprints(made.nodes.values(), vary) == fingerprints(code.nodes.values(), vary)
    for one in (code, made):  # a variant that a sweep adds
        one.add_variant(Variant("f", "k7", one.nodes["f"].variants["default"].fn, {"k": 7}))
    vary = {"f": ["k7"]}
    assert fingerprints(made.nodes.values(), vary) == fingerprints(code.nodes.values(), vary)
    assert (made.max_steps, made.approval, made.params, made.version) == (7, {"after": "f"}, {"top": 3}, "2")
    assert made.nodes["f"].rules.queue == "gpu"
    assert made.nodes["f"].active() == code.nodes["f"].active() == ["default", "odd", "k7"]


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
    bound = [bind(spec, one) for one in (with_parameters(), published(with_parameters()))]
    assert bound[0].spec == bound[1].spec
    assert bound[0].fingerprints == bound[1].fingerprints
    assert len(bound[0].vary["f"]) == 5
    refused = []
    for one in (with_parameters(), published(with_parameters())):
        with pytest.raises(InputError) as raised:
            bind(parse_spec({**keys, "vary": {"f.k": ["x", 2.5], "f.kk": [1]}}), one)
        refused.append(raised.value.problems)
    assert refused[0] == refused[1]


def test_tools_have_their_names_and_servers_that_nobody_can_ask() -> None:
    code = a_workflow()
    code.tool(lambda: 1, name="send")
    use_server(code, "files", command=["nowhere"], tools=["read"])
    made = published(code)
    assert list(made.tools) == ["files.read", "send"]
    assert {name: ask() for name, ask in made.versions.items()} == {"files": {}}


@pytest.mark.parametrize(
    "params", [{"k": 7}, {"k": "7"}, {"kk": 7}, {"word": None}, {"word": 1}, {"word": "x", "k": 2.5}], ids=str
)
def test_parameters_are_refused_with_the_words_of_the_code(params: dict[str, Any]) -> None:
    said = [
        Variant("f", "own", one.nodes["f"].variants["default"].fn, params).problems()
        for one in (a_workflow(), published(a_workflow()))
    ]
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "given",
    [{"number": 1}, {"number": "4"}, {"number": "x"}, {"numer": 1}, {"words": ["a"]}, {"words": "a"}, {"how": "slow"}],
    ids=str,
)
def test_inputs_are_read_as_the_code_reads_them(given: dict[str, Any]) -> None:
    code, made = a_workflow().facts(), published(a_workflow()).facts()
    assert made.schema.read_input(given) == code.schema.read_input(given)
    assert made.input is not None
    assert code.input is not None
    assert made.input.missing(given) == code.input.missing(given)


def test_what_only_code_can_make_is_refused() -> None:
    values, problems = published(a_workflow()).facts().schema.read_input({"pair": [1, 2]})
    assert not values
    assert "tuple[int, ...] | None, which takes the code" in problems[0]


def test_an_evaluator_declares_what_the_code_declares() -> None:
    @evaluator(better="lower", scale=(0, 9), timeout=3, name="length", on_failure=9)
    def words(case: Any, result: Any, *, most: int) -> bool:
        return True

    stands_for = evaluator_function_of(json.loads(json.dumps(describe_evaluator(words))))
    made = [make_evaluator("m:words", {"most": 3}, str, one) for one in (words, stands_for)]
    shown = [(one.name, one.better, one.scale, one.timeout, one.on_failure, one.compare) for one in made]
    assert shown[0] == shown[1]
    for one in (words, stands_for):
        with pytest.raises(InputError, match=sentence("needs the option {}", "'most'")):
            make_evaluator("m:words", {}, str, one)


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
    registered: Path, prepared_url: str
) -> None:
    database = Database(prepared_url)
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
    database.close()


def test_a_worker_replaces_what_it_published_and_leaves_what_others_did(registered: Path, prepared_url: str) -> None:
    database = Database(prepared_url)
    found = describe_registered()
    publish(database, "w1", found)
    broken = [one for one in found if one.name == "gone"]
    publish(database, "w2", broken)
    assert {row.name for row in list_publications(database)} == {"shop", "gone", "published_flow:score"}
    publish(database, "w1", [one for one in found if one.name == "shop"])
    assert [(row.name, row.failed_by) for row in list_publications(database)] == [("gone", "w2"), ("shop", None)]
    (registered / "wtb.toml").write_text("[publish]\nevaluators = 3\n")
    with pytest.raises(InputError, match=sentence("must be a list of import paths")):
        describe_registered()
    database.close()

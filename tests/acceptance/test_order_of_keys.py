"""One sweep on SQLite and on PostgreSQL: equal documents and texts, with nodes and keys in the order of the author."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from wtb.core.tree.checkpoints import in_order

if TYPE_CHECKING:
    from tests.support.project import Project

# Names that JSONB would put in another order: it sorts them by length, and then by bytes.
FLOW = """
from typing import TypedDict

from wtb import END, Workflow

class State(TypedDict, total=False):
    question: str
    supported: bool
    docs: list
    answer: str
    q: str

wf = Workflow("ordered", state=State)

@wf.node
def retrieve(state, *, wide: bool = False):
    return {"docs": [1, 2] if wide else [1], "q": "x"}

@wf.node
def ask(state, *, upper: bool = False):
    return {"answer": state["question"].upper() if upper else "no", "supported": upper}

retrieve.variant("wide", wide=True)
ask.variant("upper", upper=True)
wf.entry(retrieve)
wf.edge(retrieve, ask)
wf.edge(ask, END)
loose = Workflow("loose")

@loose.node
def both(state):
    return {"zebra": 1, "ox": 2, "antelope": state["n"]}

loose.entry(both)
loose.edge(both, END)
"""
SWEEP = """
workflow: ordered:wf
cases: [{id: a, input: {question: hi}, expected: HI}, {id: b, input: {question: ho}, expected: no}]
vary: {retrieve: all, ask: [{name: loud, zone: 1, upper: true}, default]}
evaluate: [{exact_match: {field: answer}}]
baseline: {retrieve: default, ask: default}
run: {pool: thread}
""".replace("zone: 1, ", "")
NODES = ["retrieve", "ask"]
STATE = ["question", "supported", "docs", "answer", "q"]


def outputs(project: Project, url: str) -> list[str]:
    def wtb(*args: str) -> str:
        return project.inside(*args, "--db", url, check=0).stdout

    wtb("run", "sweep.yaml", "--quiet")
    cells = json.loads(wtb("show", "sweep", "--cells", "--format", "json"))["cells"]
    first, last = cells[0]["execution"], cells[3]["execution"]
    json_form = ("--format", "json")
    started = wtb("start", "ordered:wf", "--set", "question=x", *json_form)
    commands = [
        *(("matrix", "sweep", "--format", form) for form in ("table", "json", "csv", "md")),
        *(("show", *args) for args in (["sweep"], ["sweep", "--cells"], [first], [first, *json_form])),
        *(("show", "sweep", "--cells", *json_form), ("show", "sweep", *json_form), ("history", first, *json_form)),
        *(("diff", first, last), ("diff", first, last, *json_form), ("compare", "sweep", "sweep", *json_form)),
        ("report", "sweep", "--format", "md", "--output", "-"),
    ]
    loose = ("start", "ordered:loose", "--set", "n=1", *json_form)
    return [plain(text) for text in (*(wtb(*command) for command in commands), started, wtb(*loose))]


def plain(text: str) -> str:
    """Return a text without ids, times, and other parts that differ from run to run."""
    text = re.sub(r"\b1[0-9a-hjkmnp-tv-z]{11,21}\b", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z)?|(?<![\d.])[0-9a-f]{16,64}\b", "TIME", text)
    text = re.sub(r'("[a-z0-9_]*(?:_s|p50|p95|at|lead|rate|ms)": ?)[-\d.e]+', r"\g<1>0", text)
    text = re.sub(r"\b\d+\.\d{8,}(e-?\d+)?", "0", text)
    text = re.sub(r"\b\d[\d.,]* ?(ms|s|min)\b", "AMOUNT", text)
    text = re.sub(r'"front": \{[^}]*\}', '"front": {}', text)  # which rows are the quicker ones differs from run to run
    return re.sub(r"[─ ]+", " ", text)


def test_a_sweep_reads_alike_on_both_databases_nodes_in_its_order_and_keys_in_that_of_the_state(
    project: Project, sqlite_url: str, fresh_postgres_url: str
) -> None:
    project.write({"ordered.py": FLOW, "sweep.yaml": SWEEP})
    sqlite, postgresql = (outputs(project, url) for url in (sqlite_url, fresh_postgres_url))
    for local_text, server_text in zip(sqlite, postgresql, strict=True):
        assert local_text.splitlines() == server_text.splitlines()
    for printed in (sqlite, postgresql):
        table, matrix = printed[0], json.loads(printed[1])
        assert [list(row["combination"]) for row in matrix["rows"]] == [NODES] * 4
        heading = next(line for line in table.splitlines() if "retrieve" in line and "ask" in line)
        assert heading.index("retrieve") < heading.index("ask")
        execution = json.loads(printed[7])
        assert list(execution["state"]) == STATE
        assert list(execution["path"][-1]["writes"]) == ["supported", "answer"]
        assert {tuple(cell["state"]) for cell in json.loads(printed[8])["cells"]} == {tuple(STATE)}
        assert list(json.loads(printed[9])["definition"]["vary"]) == NODES
        assert list(json.loads(printed[-2])["state"]) == STATE
        assert list(json.loads(printed[-1])["state"]) == ["antelope", "n", "ox", "zebra"]


def test_keys_that_are_declared_come_first_and_others_by_name() -> None:
    assert list(in_order({"z": 1, "b": 2, "a": 3, "y": 4}, {"y": 0, "b": 1, "gone": 2})) == ["y", "b", "a", "z"]

"""What operations return of a sweep, and what they refuse, called from Python without a command."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb import END, Sweep, Workflow
from wtb.core.errors import InputError
from wtb.operations.context import Context
from wtb.operations.housekeeping import pins
from wtb.operations.inspection import executions, files, history, log, sweeps, watching
from wtb.operations.results import baselines, comparing, costs, matrix, scoring, series
from wtb.operations.running.waiting import wait
from wtb.store.database import Database


def length(case: Any, result: Any) -> float:
    return float(len(result["text"]))


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    """A sweep of two combinations over two cases, one of which fails in one of them; it ran twice."""
    workflow = Workflow("writing")

    @workflow.node
    def write(state: Any, ctx: Any, *, times: int = 1) -> dict[str, Any]:
        if state["word"] == "bad" and times > 1:
            raise ValueError("too bad")
        (ctx.workspace / "out.txt").write_text(state["word"] * times)
        return {"text": state["word"] * times}

    write.variant("twice", times=2)
    workflow.entry(write)
    workflow.edge(write, END)
    folder = tmp_path_factory.mktemp("looking")
    database = Database(f"sqlite:///{folder / 'wtb.db'}")
    for name in ("first", "second"):
        Sweep(
            workflow=workflow,
            cases=[{"id": "good", "input": {"word": "good"}}, {"id": "bad", "input": {"word": "bad"}}],
            vary={"write": "all"},
            evaluate=[length],
            name=name,
            run={"pool": "thread"},
        ).run(database)
    return Context(database)


def test_sweeps_are_found_by_what_they_are(context: Context) -> None:
    assert [one["name"] for one in sweeps.list_sweeps(context)] == ["second", "first"]
    later = datetime.now(UTC) + timedelta(hours=1)
    assert sweeps.list_sweeps(context, since=later) == []
    assert sweeps.list_sweeps(context, status="running") == []
    assert sweeps.status(context, "first")["sweep"]["status"] == "completed"
    assert wait(context, "first").status == "completed"


def test_a_sweep_its_cells_and_an_execution_are_shown(context: Context) -> None:
    assert sweeps.show(context, "first")["definition"]["vary"] == {"write": ["default", "twice"]}
    found = sweeps.cells(context, "first", statuses=["succeeded"])
    assert (found.nodes, found.metrics) == (("write",), ("length",))
    cells = list(found.cells)
    assert sorted(cell["state"]["text"] for cell in cells) == ["bad", "good", "goodgood"]
    one, other = (cell["execution"] for cell in cells if cell["case"] == "good")
    shown = sweeps.show(context, one, calls=True)
    assert shown["path"][0]["calls"] == []
    assert history.history(context, one)["execution"]["id"] == one
    assert executions.diff(context, one, other)["divergence"]["step"] == 1
    assert executions.tree(context, one)["execution"] == one


def test_files_are_listed_read_exported_and_compared(context: Context, tmp_path: Path) -> None:
    cell = files.Cell(case="good", choices={"write": "twice"})
    (found,) = files.list_files(context, "first", cell=cell)["files"]
    assert (found["path"], found["size"]) == ("out.txt", 8)
    assert b"".join(files.read_file(context, "first", "out.txt", cell=cell)) == b"goodgood"
    assert files.export_files(context, "first", tmp_path / "new", cell=cell) == files.Exported(1, 8)
    other = files.list_files(context, "first", cell=files.Cell("good", {"write": "default"}))["execution"]
    assert other is not None
    changes = files.compare_files(context, "first", other, cell=cell)["changes"]
    assert changes == [{"path": "out.txt", "kind": "changed", "before": 8, "after": 4}]


def test_events_are_filtered_and_counted(context: Context) -> None:
    (event,) = log.log(context, "first", kinds=["cell"], severity="error", cases=True)
    assert (event["kind"], event.get("case"), event.get("choices")) == ("cell.failed", "bad", {"write": "twice"})
    counted = log.count_events(context, "first", kinds=["cell."])
    assert {one["kind"]: one["count"] for one in counted} == {"cell.failed": 1, "cell.succeeded": 3}
    assert list(log.log(context, "first", follow=True))[-1]["kind"] == "sweep.completed"
    pins.pin(context, "first")
    assert list(log.log(context, "first", follow=True))[-1]["kind"] == "sweep.pinned", "it has ended all the same"


def test_results_are_scored_compared_and_named(context: Context) -> None:
    assert matrix.matrix(context, "first")["cells"]["failed"] == 1
    assert matrix.gates(context, "first") == []
    assert matrix.report(context, "first")["failures"]
    assert scoring.score(context, "first", evaluate=["latency"]).scores == 3
    assert baselines.set_baseline(context, "main", "first").before is None
    first = baselines.list_baselines(context)[0]["sweep"]["id"]
    assert baselines.set_baseline(context, "main", "second").before == first
    assert baselines.show_baseline(context, "main")["matrix"]["sweep"]["name"] == "second"
    assert comparing.compare(context, first, "main", margin={"length": 1.0})["margin"]["given"] == {"length": 1.0}
    assert baselines.remove_baseline(context, "main") == sweeps.status(context, "second")["sweep"]["id"]
    assert costs.costs(context, "first", by=["variant"])["by"] == ["variant"]
    assert series.series(context, "first")["series"] == []


def test_a_look_counts_what_is_open(context: Context) -> None:
    assert watching.watch(context).look()["sweeps"] == []
    assert watching.watch(context, "first").look()["sweep"]["cells"]["succeeded"] == 3


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda context: sweeps.list_sweeps(context, status="compleated"), sentence("did you mean '{}'?", "completed")),
        (lambda context: sweeps.list_sweeps(context, session="nobody"), sentence("there is no session {}", "'nobody'")),
        (
            lambda context: sweeps.cells(context, "first", statuses=["brokn"]),
            sentence("{} is not a status of a {}", "'brokn'", "cell"),
        ),
        (lambda context: sweeps.cells(context, "first", case="god"), sentence("did you mean '{}'?", "good")),
        (lambda context: sweeps.show(context, "first", calls=True), sentence("calls are of one execution")),
        (
            lambda context: log.log(context, "first", severity="eror"),
            sentence("{} is not a severity", "'eror'") + sentence("; did you mean '{}'", "error"),
        ),
        (lambda context: files.list_files(context, "first"), sentence("such as by its {}", "combination")),
        (
            lambda context: costs.costs(context, by=["modle"]),
            sentence("costs are not shown by {}", "'modle'") + sentence("; did you mean '{}'", "model"),
        ),
        (lambda context: costs.costs(context, project="none"), sentence("there is no project {}", "'none'")),
        (lambda context: series.series(context, "first", name="loss"), sentence("there is no series {}", "'loss'")),
        (lambda context: scoring.score(context, "first"), sentence("nothing to score by")),
        (lambda context: scoring.score(context, "first", evaluate=[{"exact_match": 1}]), "evaluate"),
        (
            lambda context: comparing.compare(context, "first", "second", margin={"lenth": 1}),
            sentence("did you mean '{}'?", "length"),
        ),
        (
            lambda context: baselines.set_baseline(context, "last", "first"),
            sentence("cannot be the name of a baseline"),
        ),
        (lambda context: baselines.remove_baseline(context, "none"), sentence("there is no baseline {}", "'none'")),
    ],
)
def test_bad_input_is_refused_without_the_name_of_an_option(
    context: Context, act: Callable[[Context], object], said: str
) -> None:
    with pytest.raises(InputError) as caught:
        act(context)
    assert said in str(caught.value)
    assert " --" not in str(caught.value).split("`")[0]
    assert not str(caught.value).startswith("--")

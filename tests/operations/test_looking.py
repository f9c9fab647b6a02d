"""Operations that read a sweep, called from Python without a command: results and rejected input."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb import Sweep, Workflow
from wtb.core.errors import InputError
from wtb.operations.context import Context
from wtb.operations.control import naming
from wtb.operations.inspection import executions, files, log, sweeps
from wtb.operations.results import comparing, costs, matrix, scoring
from wtb.operations.running import waiting
from wtb.operations.running.waiting import wait
from wtb.store.database import Database
from wtb.store.runs import leases
from wtb.store.tables import schema as tables
from wtb.store.tables.sweeps import SweepRow


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
    assert [sweep["name"] for sweep in sweeps.list_sweeps(context)] == ["second", "first"]
    later = datetime.now(UTC) + timedelta(hours=1)
    assert sweeps.list_sweeps(context, since=later) == []
    assert sweeps.list_sweeps(context, status="running") == []
    assert sweeps.status(context, "first")["sweep"]["status"] == "completed"
    assert wait(context, "first").status == "completed"


def test_a_sweep_that_ends_while_it_is_looked_at_has_ended(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def set_status(status: str) -> None:
        context.database.execute(tables.sweeps.update().where(tables.sweeps.c.name == "first").values(status=status))

    def end_now(database: Database, sweep: SweepRow) -> bool:
        set_status("completed")
        return False

    set_status("running")
    monkeypatch.setattr(leases, "runs_now", end_now)
    assert wait(context, "first", timeout=0).status == "completed"


def test_a_sweep_its_cells_and_an_execution_are_shown(context: Context) -> None:
    assert sweeps.show(context, "first")["definition"]["vary"] == {"write": ["default", "twice"]}
    listing = sweeps.cells(context, "first", statuses=["succeeded"])
    assert (listing.nodes, listing.metrics) == (("write",), ("length",))
    cells = list(listing.cells)
    assert sorted(cell["state"]["text"] for cell in cells) == ["bad", "good", "goodgood"]
    first, other = (cell["execution"] for cell in cells if cell["case"] == "good")
    document = sweeps.show(context, first, calls=True)
    assert document["path"][0]["calls"] == []
    assert executions.history(context, first)["execution"]["id"] == first
    assert executions.diff(context, first, other)["divergence"]["step"] == 1
    assert executions.tree(context, first)["execution"] == first


def test_files_are_listed_read_exported_and_compared(context: Context, tmp_path: Path) -> None:
    cell = files.Cell(case="good", choices={"write": "twice"})
    (file,) = files.list_files(context, "first", cell=cell)["files"]
    assert (file["path"], file["size"]) == ("out.txt", 8)
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
    assert {row["kind"]: row["count"] for row in counted} == {"cell.failed": 1, "cell.succeeded": 3}
    assert list(log.log(context, "first", follow=True))[-1]["kind"] == "sweep.completed"
    naming.pin(context, "first")
    assert list(log.log(context, "first", follow=True))[-1]["kind"] == "sweep.pinned", "it has ended all the same"


def test_results_are_scored_compared_and_named(context: Context) -> None:
    assert matrix.matrix(context, "first")["cells"]["failed"] == 1
    assert matrix.gates(context, "first") == []
    assert matrix.report(context, "first")["failures"]
    assert scoring.score(context, "first", evaluate=["latency"]).scores == 3
    assert comparing.set_baseline(context, "main", "first").before is None
    first = comparing.list_baselines(context)[0]["sweep"]["id"]
    assert comparing.set_baseline(context, "main", "second").before == first
    assert comparing.show_baseline(context, "main")["matrix"]["sweep"]["name"] == "second"
    assert comparing.compare(context, first, "main", margin={"length": 1.0})["margin"]["given"] == {"length": 1.0}
    assert comparing.remove_baseline(context, "main") == sweeps.status(context, "second")["sweep"]["id"]
    assert costs.costs(context, "first", by=["variant"])["by"] == ["variant"]
    assert costs.series(context, "first")["series"] == []


def test_a_look_counts_what_is_open(context: Context) -> None:
    assert waiting.watch(context).look()["sweeps"] == []
    assert waiting.watch(context, "first").look()["sweep"]["cells"]["succeeded"] == 3


@pytest.mark.parametrize(
    ("act", "message"),
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
        (lambda context: costs.series(context, "first", name="loss"), sentence("there is no series {}", "'loss'")),
        (lambda context: scoring.score(context, "first"), sentence("no evaluator is given")),
        (lambda context: scoring.score(context, "first", evaluate=[{"exact_match": 1}]), "evaluate"),
        (
            lambda context: comparing.compare(context, "first", "second", margin={"lenth": 1}),
            sentence("did you mean '{}'?", "length"),
        ),
        (
            lambda context: comparing.set_baseline(context, "last", "first"),
            sentence("cannot be the name of a baseline"),
        ),
        (lambda context: comparing.remove_baseline(context, "none"), sentence("there is no baseline {}", "'none'")),
    ],
)
def test_bad_input_is_refused_without_the_name_of_an_option(
    context: Context, act: Callable[[Context], object], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        act(context)
    assert message in str(caught.value)
    assert " --" not in str(caught.value).split("`")[0]
    assert not str(caught.value).startswith("--")

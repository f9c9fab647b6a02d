"""The report of real sweeps: `wtb report` in every form, and the page in a real browser."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from tests.hosting.pages.site import wait_until
from tests.support.prose import sentence
from tests.support.report_page import Look, too_wide
from wtb import END, Context, Sweep, Workflow, evaluator
from wtb.cli.main import main
from wtb.display.report.open_cases import worst
from wtb.display.report.report_files import render
from wtb.display.report.sweep_evidence import gather
from wtb.store.database import Database
from wtb.store.read.queries import find_sweep

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = {"</script><script>alert(1)</script>": 0.1, "x" * 200: 0.2, "שלום עולם": 0.0, "😀 & <b>": 0.3}


def make_workflow(retrieve_more: float = 0.0, *, broken: bool = False) -> Workflow:
    """retrieve(2) -> answer(HOSTILE and one that fails). `retrieve_more` is part of retrieve's code."""
    wf = Workflow("qa", description="Answers <questions>.", version="1")

    @wf.node
    def retrieve(state: dict[str, Any], ctx: Context, *, by: float = 0.0) -> dict[str, Any]:
        ctx.cost(usd=0.25 + by)
        return {"found": by + retrieve_more}

    @wf.node
    def answer(state: dict[str, Any], *, by: float = 0.0) -> dict[str, Any]:
        if broken:
            raise ValueError("nothing works")
        return {"answer": by}

    retrieve.variant("deep", by=0.1)
    for name, by in HOSTILE.items():
        answer.variant(name, by=by)

    @answer.variant("broken")
    def _broken(state: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(f"no answer to {state['x']} in 'document {state['x']}'")

    wf.entry(retrieve)
    wf.edge(retrieve, answer)
    wf.edge(answer, END)
    return wf


def quality(case: Any, result: Any) -> float:
    return float(result.state["found"] + result.state["answer"] * (1 + result.state["x"] % 3) / 3)


@evaluator(better="lower")
def words(case: Any, result: Any) -> float:
    if result.state["x"] == 1:
        raise ValueError(f"cannot count {result.state['answer']}")
    return float(10 * result.state["answer"] + result.state["x"])


def run(database: Database, workflow: Workflow, name: str, count: int, **options: Any) -> str:
    """Run a sweep in this process and return its id."""
    cases = [{"id": f"case {number} <td>", "input": {"x": number}} for number in range(count)]
    sweep = Sweep(workflow=workflow, name=name, cases=cases, run={"pool": "thread"}, **options)
    return sweep.run(database).id


def run_rich(database: Database) -> str:
    """The newest of three sweeps of one name: failures, failed scores, gates, hostile names and changed code."""
    for more in (0.0, 0.0, 0.5):
        newest = run(
            database,
            make_workflow(more),
            "nightly <report>",
            6,
            vary={"retrieve": "all", "answer": [*HOSTILE, "broken"]},
            baseline={"retrieve": "default", "answer": "שלום עולם"},
            evaluate=[quality, words],
            gates=["quality.mean >= 0.2", "failed == 0"],
        )
    return newest


@dataclass(frozen=True)
class Written:
    """Pages by name, and the database that they come from."""

    url: str
    folder: Path

    def page(self, name: str) -> str:
        return (self.folder / f"{name}.html").as_uri()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """Sweeps of every kind, and their pages."""
    folder = tmp_path_factory.mktemp("report")
    url = f"sqlite:///{folder / 'wtb.db'}"
    database = Database(url)
    varied = {"vary": {"retrieve": ["deep"]}}
    both = {"vary": {"retrieve": "all"}}
    sweeps = {
        "rich": run_rich(database),
        "one": run(database, make_workflow(), "one", 1, evaluate=[quality], **varied),
        "unscored": run(database, make_workflow(), "unscored", 2, **both),
        "constant": run(database, make_workflow(), "constant", 1, evaluate=[quality], **both),
        "failed": run(database, make_workflow(broken=True), "failed", 3, evaluate=[quality], **both),
        "stopped": run(database, make_workflow(), "stopped", 3, evaluate=[quality], limits={"node_runs": 2}, **both),
    }
    for name, sweep in sweeps.items():
        page = render(gather(database, find_sweep(database, sweep)))
        (folder / f"{name}.html").write_text(page, "utf-8")
    yield Written(url, folder)
    database.close()


@pytest.mark.parametrize("name", ["rich", "one", "unscored", "constant", "failed", "stopped"])
def test_a_page_fits_phones_tablets_and_screens(written: Written, look: Look, name: str) -> None:
    page = look(written.page(name), color_scheme="dark" if name == "rich" else "light")
    for width in (1280, 768, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert not too_wide(page), f"at {width} pixels"
    assert page.locator(".hero").bounding_box()["y"] < 300, "the answer comes first"


def test_a_case_opens_to_two_combinations_side_by_side(written: Written, look: Look) -> None:
    page = look(written.page("rich"))
    assert not page.locator("details.opened[open]").count()
    page.locator("#cases td a").first.click()
    case = page.locator("details.opened[open]")
    case.locator("dt").first.wait_for()
    assert case.count() == 1
    assert case.locator("dt").first.inner_text() == "x"
    assert case.locator(".side-head").count() == 2
    assert "quality" in case.locator(".side-head").first.inner_text()
    assert case.locator("del").count()
    assert case.locator("ins").count()
    assert "answer=" in case.locator("ol.did").first.inner_text()
    page.evaluate("document.querySelectorAll('details.opened').forEach((one) => (one.open = true))")
    for width in (1280, 768, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert not too_wide(page), f"at {width} pixels"
    failed = page.locator("details.opened", has_text="one of them failed")
    assert "ValueError: no answer to" in failed.first.inner_text()


def test_the_headline_is_one_line_and_says_how_much_could_be_noise(written: Written, look: Look) -> None:
    page = look(written.page("rich"))
    hero = page.locator(".hero")
    assert hero.inner_text() == "Leading candidate: retrieve=deep answer=😀 & <b>"
    assert hero.bounding_box()["height"] < 45
    page.locator("summary", has_text="Results by metric").click()
    text = page.locator("main").inner_text()
    assert sentence("could be noise: ") in text or sentence("that could be chance") in text


def written_by(text: str) -> Workflow:
    """A workflow of one node, which writes a text and another variant of it, and a file."""
    wf = Workflow("writing")

    @wf.node
    def write(state: dict[str, Any], ctx: Context) -> dict[str, Any]:
        (ctx.workspace / "notes.txt").write_text("some", "utf-8")
        ctx.call(model="m", prompt="Say it.", response="I do.", usd=0.0)
        return {"said": text}

    @write.variant("other")
    def _other(state: dict[str, Any], ctx: Context) -> dict[str, Any]:
        (ctx.workspace / "notes.txt").write_text("others", "utf-8")
        return {"said": text + " and more"}

    wf.entry(write)
    wf.edge(write, END)
    return wf


def longest(case: Any, result: Any) -> float:
    return float(len(result.state["said"]) + int(case.id[1:]))


def test_what_a_case_is_opened_to_is_bounded_unless_all_is_asked_for(database_url: str) -> None:
    database = Database(database_url)
    database.prepare()
    cases = [{"id": f"c{n}", "input": {"text": "in " * 3_000}, "expected": {"n": n}} for n in range(12)]
    workflow, long = written_by("word " * 20_000), len("word " * 20_000)
    sweep = Sweep(
        workflow=workflow, cases=cases, vary={"write": "all"}, evaluate=[longest], run={"pool": "thread"}
    ).run(database)
    row = find_sweep(database, sweep.id)

    opened = gather(database, row)["opened"]
    assert 0 < len(opened["cases"]) < 12
    assert opened["cut"] > 0
    first, other = opened["cases"][0]["sides"]
    assert (len(first["output"]["said"]["text"]), first["output"]["said"]["cut"]) == (4_000, long + 9 - 4_000)
    assert [change["path"] for change in first["files"]["changes"]] == ["notes.txt"]
    assert first["files"]["changes"][0]["sha256"] != other["files"]["changes"][0]["sha256"]
    assert [call["prompt"]["text"] for call in other["calls"]] == ["Say it."]
    page = render(gather(database, row))
    assert len(page) < 2_000_000

    every = gather(database, row, full=True)["opened"]
    assert [case["case"] for case in every["cases"]] == [f"c{n}" for n in range(12)]
    assert (every["cut"], every["left_out"]) == (0, 0)
    assert len(every["cases"][11]["sides"][0]["output"]["said"]["text"]) == long + 9
    database.close()


def test_cases_for_which_there_is_no_room_are_counted(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> None:
    monkeypatch.setattr(sys.modules["wtb.display.report.open_cases"], "TOTAL", 10_000)
    database = Database(sqlite_url)
    cases = [{"id": f"c{n}", "input": {"text": "in " * 3_000}} for n in range(12)]
    sweep = Sweep(
        workflow=written_by("word " * 2_000),
        cases=cases,
        vary={"write": "all"},
        evaluate=[longest],
        run={"pool": "thread"},
    ).run(database)
    document = gather(database, find_sweep(database, sweep.id))
    opened = document["opened"]["cases"]
    assert len(opened) == 1
    assert document["opened"]["left_out"] >= 4
    database.close()


def test_light_and_dark_are_told_apart_and_toggled(written: Written, look: Look) -> None:
    def paper(page: Page) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    dark = look(written.page("rich"), color_scheme="dark")
    light = look(written.page("rich"), color_scheme="light")
    assert paper(dark) != paper(light)
    shade = paper(dark)
    dark.locator("#theme").click()
    assert paper(dark) != shade


def test_rows_are_sorted_and_filtered(written: Written, look: Look) -> None:
    page = look(written.page("rich"))
    matrix, every = page.locator("#matrix table").nth(0), page.locator("#matrix table.metrics")
    assert [table.locator("tbody tr").count() for table in (matrix, every)] == [10, 10]
    numbers = matrix.locator("tbody tr td:first-child")
    best_first = numbers.all_inner_texts()
    matrix.get_by_role("columnheader", name="quality").get_by_role("button").click()
    by_mean = numbers.all_inner_texts()
    matrix.get_by_role("columnheader", name="quality").get_by_role("button").click()
    assert numbers.all_inner_texts() != by_mean
    assert {*best_first} == {*by_mean}
    page.locator("#matrix details.choices", has_text="retrieve").locator("summary").click()
    page.locator("#matrix").get_by_label("deep").check()
    assert [table.locator("tbody tr").count() for table in (matrix, every)] == [5, 5]


def test_every_part_is_there_and_the_navigation_leads_to_it(written: Written, look: Look) -> None:
    page = look(written.page("rich"))
    anchors = [str(link.get_attribute("href")) for link in page.locator("nav.parts a").all()]
    named = ["matrix", "cells", "intervals", "cost", "effects", "pairs", "tree", "cases", "opened", "failures"]
    assert [anchor.removeprefix("#") for anchor in anchors] == [*named, "history", "origins"]
    for anchor in anchors:
        assert page.locator(f"section{anchor}").is_visible()
    assert page.locator("#tree [role=treeitem]").count()
    assert page.locator("#intervals svg.interval").count() >= 20
    assert page.locator("#history svg.drift").count() == 2
    assert "code of retrieve changed" in page.locator("#history").inner_text()
    assert page.locator("#origins svg.graph .node").count() == 2
    failures = page.locator("#failures").inner_text()
    assert "12 cells" in failures
    assert sentence("every combination with {}={}", "answer", "broken") in failures
    page.locator("nav.parts a", has_text="Failures").click()
    assert page.locator("#failures h2").bounding_box()["y"] < 200


def test_the_heat_map_has_every_cell_and_changes_with_the_metric(written: Written, look: Look) -> None:
    page = look(written.page("rich"))
    drawn = "performance.getEntriesByName('heat-map').at(-1)?.detail"
    wait_until(page, drawn)
    assert page.evaluate(drawn) == 48, "scores: those of cells that did not fail"
    page.locator("#cells").get_by_label("Metric").select_option("words")
    wait_until(page, f"{drawn} === 40")
    grid = page.get_by_role("grid", name=sentence("Cells: rows are combinations, columns are cases"))
    grid.focus()
    page.keyboard.press("ArrowDown")
    assert "case 0 <td>" in grid.inner_text()


def test_the_page_shows_decision_matrix_and_intervals_without_scripts(written: Written, look: Look) -> None:
    page = look(written.page("rich"), java_script_enabled=False)
    assert page.locator("section.decision .hero").is_visible()
    assert page.locator("#views table").count() == 2, "one for each metric"
    assert page.locator("#views tbody tr").locator("visible=true").count() == 20
    assert page.locator("#views td svg line").count() >= 10, "means are drawn on their intervals"
    assert page.get_by_text(sentence("Charts, cases and outputs need JavaScript.")).is_visible()
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert not too_wide_without_scripts(page)


def too_wide_without_scripts(page: Page) -> bool:
    """Return whether the page scrolls sideways, measured without scripts, which are off."""
    size = page.viewport_size
    assert size is not None
    boxes = [box for part in page.locator("main > *, #views > *").all() if (box := part.bounding_box())]
    return any(box["x"] + box["width"] > size["width"] + 1 for box in boxes)


def test_the_page_is_printed_light_and_whole(written: Written, look: Look) -> None:
    page = look(written.page("rich"), color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 703, "height": 1000})  # A4 between its margins
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.locator("#cells svg.printed").wait_for()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert page.locator("#cells canvas, #tree canvas").count() == 0, "a canvas is printed as pixels of the screen"
    assert page.locator("#cells svg.printed rect").count() == 60
    assert page.locator("#tree svg.printed rect").count() == 2 + 10
    assert page.locator("#opened dt").first.is_visible()
    assert page.locator("#matrix th", has_text="quality").first.inner_text(), "headings that sort are printed"
    assert not too_wide(page)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.locator("#cells canvas").wait_for()
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_what_hostile_names_say_is_shown_and_not_obeyed(written: Written, look: Look) -> None:
    page = look(written.page("rich"))
    assert page.locator("h1").inner_text() == "nightly <report>"
    assert page.locator("script").count() == 2, "the evidence, and the script that shows it"
    assert page.locator("#matrix td", has_text="</script><script>alert(1)</script>").count()


def test_the_evidence_says_what_was_shared_what_failed_and_what_changed(database_url: str) -> None:
    database = Database(database_url)
    try:
        sweep = find_sweep(database, run_rich(database))
        document = gather(database, sweep)
        by_words = worst(database, sweep, document["matrix"] | {"primary": "words"})
        of_one_case = run(database, make_workflow(), "nightly <report>", 1, vary={"retrieve": ["deep"]})
        history = gather(database, find_sweep(database, of_one_case))["history"]
    finally:
        database.close()
    levels = {level["node"]: level["prefixes"] for level in document["tree"]["levels"]}
    assert [(prefix["variant"], len(prefix["combinations"]), prefix["executed"]) for prefix in levels["retrieve"]] == [
        ("default", 5, 6),
        ("deep", 5, 6),
    ]
    assert [prefix["unshared"] for prefix in levels["retrieve"]] == [30, 30]
    assert sum(prefix["executed"] for prefix in levels["answer"]) == 2 * 4 * 6
    (cause,) = document["failures"]["cells"]
    assert (cause["cells"], cause["node"], cause["type"]) == (12, "answer", "ValueError")
    assert len(cause["combinations"]) == 2
    (scores,) = document["failures"]["scores"]
    assert (scores["metric"], scores["scores"]) == ("words", 8)
    differ = [case for case in document["worst"]["cases"] if case["why"] == "differ"]
    assert differ[0]["parted"] == "retrieve"
    assert differ[0]["best"]["score"] > differ[0]["worst"]["score"]
    hard = [case for case in by_words["cases"] if case["why"] == "hard"]
    assert [(case["case"], case["best"]["score"]) for case in hard] == [("case 5 <td>", 5.0)], "4.3 is the mean of all"
    assert len(by_words["cases"]) == 5
    assert [sweep["code_changed"] for sweep in document["history"]["sweeps"]] == [[], [], ["retrieve"]]
    leader, baseline = document["history"]["metrics"]["quality"]["series"]
    assert [point["n"] for point in baseline["points"]] == [6, 6, 6]
    assert leader["points"][2]["mean"] == pytest.approx(leader["points"][0]["mean"] + 0.5)
    assert [gate["holds"] for gate in document["gates"]] == [True, False]
    assert json.loads(json.dumps(document)) == document
    grid = document["cells"]
    assert (len(grid["cases"]), grid["repeats"], len(grid["status"])) == (6, 1, 60)
    assert {key: sum(score is not None for score in scores) for key, scores in grid["scores"].items()} == {
        "quality": 48,
        "words": 40,
    }
    assert [grid["statuses"][status or 0] for status in grid["status"]].count("failed") == 12
    assert history["left_out"] == 3
    assert sentence("over as many cases") in history["because"]


@pytest.fixture
def wtb(monkeypatch: pytest.MonkeyPatch, written: Written) -> Callable[..., tuple[int, str]]:
    """(exit code, stdout) of a command on that database."""

    def called(*arguments: object, out: io.StringIO | None = None) -> tuple[int, str]:
        monkeypatch.setenv("WTB_DATABASE_URL", written.url)
        monkeypatch.setattr(sys, "argv", ["wtb", *map(str, arguments)])
        out = out or io.StringIO()
        with redirect_stdout(out), pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        return (code if isinstance(code, int) else 0), out.getvalue()

    return called


def test_the_form_is_that_of_the_files_suffix(wtb: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    for suffix in ("html", "md", "csv", "json", "xml"):
        assert wtb("report", "one", "-o", tmp_path / f"report.{suffix}") == (0, "")
    assert (tmp_path / "report.html").read_text("utf-8").startswith("<!doctype html>")
    assert (tmp_path / "report.md").read_text("utf-8").startswith("### one")
    assert "quality,higher,1" in (tmp_path / "report.csv").read_text("utf-8")
    assert json.loads((tmp_path / "report.json").read_bytes())["matrix"]["sweep"]["name"] == "one"
    assert ElementTree.parse(tmp_path / "report.xml").getroot().tag == "testsuites"
    assert wtb("report", "one", "-o", tmp_path / "report.docx")[0] == 2


def test_a_page_is_not_written_to_a_terminal(
    wtb: Callable[..., tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert wtb("report", "one", out=Terminal()) == (2, "")
    assert "-o report.html" in capsys.readouterr().err
    assert wtb("report", "one")[1].startswith("<!doctype html>")


def test_a_ci_system_gets_a_test_case_for_each_gate_and_combination(wtb: Callable[..., tuple[int, str]]) -> None:
    root = ElementTree.fromstring(wtb("report", "nightly <report>", "--format", "junit")[1].encode())
    (suite,) = root
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("nightly <report>", "12", "11")
    spent = {str(case.get("name")): float(str(case.get("time"))) for case in suite.iter("testcase")}
    document = json.loads(wtb("report", "nightly <report>", "--format", "json")[1])["matrix"]["sweep"]
    began, ended = (datetime.fromisoformat(document[key]) for key in ("started_at", "finished_at"))
    took = (ended - began).total_seconds()
    assert float(str(suite.get("time"))) == float(str(root.get("time"))) == pytest.approx(took, abs=0.001)
    assert took > sum(spent.values()) / len(spent)  # those of combinations are of one cell
    failed = {
        case.get("name"): case.find("failure") for case in suite.iter("testcase") if case.find("failure") is not None
    }
    assert "failed == 0" in failed
    broken = failed["retrieve=deep answer=broken"]
    assert broken is not None
    assert broken.get("message") == sentence("{} of {} cells failed", 6, 6)
    assert "no answer to" in str(broken.text)
    messages = [failure.get("message") for failure in failed.values() if failure is not None]
    assert messages.count("1 score of words failed") == 8


def test_a_pull_request_gets_the_answer_the_gates_and_few_rows(wtb: Callable[..., tuple[int, str]]) -> None:
    text = wtb("report", "nightly <report>", "--format", "md")[1]
    assert text.index("by quality") < text.index("**GATE FAILED**: failed == 0") < text.index("| retrieve")
    assert sentence("{} cells failed", 12) + ": answer: ValueError: " + sentence("no answer {}", "to") in text
    assert "<script>" not in text
    assert sum(line.startswith("|") for line in text.splitlines()) <= 12

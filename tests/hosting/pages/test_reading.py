"""Pages beside the main figures, compared with the output of commands, and the controls that each role is offered."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.hosting.api.serving import TOKEN
from tests.hosting.pages.site import Site, served, take_picture
from tests.support.project import FLOW, Project
from tests.support.prose import sentence
from wtb.config.stack_file import Flower, Stack, forget_stack, write_stack
from wtb.core.roles import PERMISSIONS, Permission, Role

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = "<img src=x onerror='window.ran=1'>"
TAGGED = """
sweep: tagged
workflow: flow:wf
cases: cases.jsonl
vary: {A: [default, v1, v3], B: [default, v1]}
evaluate: ["flow:total"]
"""
UNSCORED = "sweep: unscored\nworkflow: flow:wf\ncases: cases.jsonl\nvary: {A: [default, v1]}\n"


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A sweep whose cases have tags, and one that scores nothing."""
    project = Project(tmp_path_factory.mktemp("reading"))
    cases = [
        {"id": f"c{number}", "input": {"x": number}, "tags": ["small"] if number < 6 else [HOSTILE]}
        for number in range(12)
    ]
    flow = FLOW.replace('"x": state["x"] + by', '"x": state["x"] + (by if state["x"] < 6 else -by)')
    project.write(
        {
            "flow.py": flow,
            "cases.jsonl": "\n".join(map(json.dumps, cases)),
            "tagged.yaml": TAGGED,
            "unscored.yaml": UNSCORED,
        }
    )
    project.inside("run", "tagged.yaml", "--quiet", check=0)
    project.inside("run", "unscored.yaml", "--quiet", check=0)
    yield project
    project.close()


@pytest.fixture(scope="module")
def serving(read: Project, browser: Browser) -> Iterator[Site]:
    with served(read, browser) as site:
        yield site


def matrix(project: Project, *options: str) -> Any:
    return project.inside("matrix", "tagged", *options, "--format", "json", check=0).json


def text_of(page: Page, selector: str) -> str:
    return " ".join(page.locator(selector).first.inner_text().split())


def test_differences_are_taken_from_any_row_and_the_address_holds_which(site: Site, read: Project) -> None:
    page = site.open("/sweeps/tagged?sort=number")
    page.get_by_label("Differences from").select_option(label="A=v3 B=v1")
    page.wait_for_url("**baseline=5")
    document = matrix(read, "--baseline", "5")
    assert document["baseline"] == document["rows"][5]["combination"] == {"A": "v3", "B": "v1"}
    page.get_by_text("which whoever looks chose").wait_for()
    page.reload()
    page.get_by_text("which whoever looks chose").wait_for()
    rows = page.locator("main table").first.locator("tbody tr")
    assert "baseline" in rows.nth(5).inner_text()
    assert "baseline" not in rows.first.inner_text()
    for row, line in zip(document["rows"][:5], rows.all(), strict=False):
        delta = row["metrics"]["total"]["delta"]
        assert f"{'−' if delta < 0 else '+' if delta > 0 else ''}{abs(delta):.3f}" in line.inner_text()
    site.check_readable(page)
    page.get_by_label("Differences from").select_option("")
    page.get_by_text("which whoever looks chose").wait_for(state="hidden")


def test_a_baseline_that_whoever_looks_chose_changes_no_claim_but_differences(read: Project) -> None:
    own, other = matrix(read), matrix(read, "--baseline", "4")
    assert own["baseline"] == own["rows"][0]["combination"]
    assert other["best"] == own["best"]
    assert [row["metrics"]["total"]["mean"] for row in other["rows"]] == [
        row["metrics"]["total"]["mean"] for row in own["rows"]
    ]
    for number, row in enumerate(other["rows"]):
        delta, before = row["metrics"]["total"]["delta"], own["rows"][number]["metrics"]["total"]["mean"]
        expected = None if number == 4 else before - own["rows"][4]["metrics"]["total"]["mean"]
        assert delta == (expected if expected is None else pytest.approx(expected))
    assert len(other["warnings"]) == len(own["warnings"]) + 1
    refused = read.inside("matrix", "tagged", "--baseline", "6", check=2)
    assert sentence("baseline {}: the sweep has the rows 0 to {}", 6, 5) in refused.output
    assert matrix(read) == own, "what is kept is that of the sweep's own baseline"


def test_rows_are_shown_within_the_cases_of_each_tag(site: Site, read: Project) -> None:
    slices = matrix(read)["slices"]
    assert {tag["tag"] for tag in slices["tags"]} == {"small", HOSTILE}
    page = site.open("/sweeps/tagged?sort=number")
    section = page.locator("section").filter(has=page.get_by_role("heading", name="total by tag"))
    section.wait_for()
    assert HOSTILE in section.inner_text()
    for number, row in enumerate(section.locator("tbody tr").all()):
        for tag in slices["tags"]:
            assert f"{tag['rows'][number]['mean']:.3f}" in row.inner_text()
    site.check_readable(page)


def test_a_sweep_that_scores_nothing_shows_its_cells(site: Site, read: Project) -> None:
    page = site.open("/sweeps/unscored")
    page.get_by_role("heading", name="Nothing to recommend: nothing is scored").wait_for()
    grid = page.get_by_role("grid")
    grid.focus()
    page.keyboard.press("ArrowRight")
    assert "succeeded, no score" in grid.get_by_role("gridcell").inner_text()
    site.check_readable(page)
    page.keyboard.press("Enter")
    page.wait_for_url("**/executions/*")
    assert page.url.rsplit("/", 1)[1] in {
        id
        for (id,) in read.query(
            "SELECT execution_id FROM cells JOIN sweeps s ON s.id = sweep_id AND s.name = 'unscored'"
        )
    }


def test_a_sweep_is_saved_as_one_file_that_needs_no_server(site: Site, read: Project, tmp_path: Path) -> None:
    page = site.open("/sweeps/tagged")
    with page.expect_download() as download:
        page.get_by_role("link", name="Save as one file").click()
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert saved.name == "tagged.html"
    alone = page.context.new_page()
    alone.context.set_offline(True)
    alone.goto(saved.as_uri())
    alone.get_by_role("heading", name="tagged").first.wait_for()
    assert HOSTILE in alone.locator("#slices").inner_text()
    assert alone.evaluate("window.ran") is None
    alone.context.set_offline(False)
    alone.close()


def test_a_list_says_what_each_sweep_has_cost(site: Site, read: Project) -> None:
    costs = {
        row["sweep_name"]: row["usd"] for row in read.inside("costs", "--by", "sweep", "--format", "json").json["rows"]
    }
    page = site.open("/")
    for name in ("tagged", "unscored"):
        page.locator("tbody tr", has_text=name).get_by_text(f"${costs[name]:.2f}").wait_for()
    site.check_readable(page)


def test_workers_lead_to_flower_where_a_stack_has_it(site: Site, read: Project) -> None:
    page = site.open("/workers")
    page.get_by_text("No worker is running").wait_for()
    assert page.get_by_role("link", name="Flower").count() == 0
    flower = Flower("http://127.0.0.1:5555", "user", "not to be shown")
    write_stack(Stack(read.folder, os.getpid(), time.time(), True, "", "", flower, ()))
    try:
        page.reload()
        link = page.get_by_role("link", name="Flower")
        link.wait_for()
        assert link.get_attribute("href") == flower.url
        answer = page.request.get(f"{site.url}/api/v1/stack")
        assert answer.json() == {"flower": flower.url}, "no password"
    finally:
        forget_stack(read.folder)


@pytest.fixture
def nightly(tmp_path: Path) -> Iterator[Project]:
    """A schedule that has run once."""
    project = Project(tmp_path / "nightly")
    project.write({"flow.py": FLOW, "cases.jsonl": Project.cases(3), "sweep.yaml": TAGGED})
    project.inside("schedule", "add", "nightly", "sweep.yaml", "--cron", "0 3 * * *", "--baseline", "last", check=0)
    project.inside("schedule", "run-now", "nightly")
    yield project
    project.close()


def test_a_schedule_explains_a_bad_night(nightly: Project, browser: Browser) -> None:
    nightly.write({"flow.py": FLOW.replace('state["x"] + by', "1 // 0")})
    nightly.inside("schedule", "run-now", "nightly")
    (fire,) = nightly.inside("schedule", "history", "nightly", "--format", "json", check=0).json["fires"][1:]
    assert fire["verdict"] in ("worse", "failed")
    with served(nightly, browser) as site:
        page = site.open("/schedules")
        page.get_by_role("heading", name=f"nightly: {fire['verdict']}").wait_for()
        reasons = page.locator(".why li").all_inner_texts()
        assert reasons == fire["because"]
        assert sentence("first differs at {}", "A") in reasons or fire["verdict"] == "failed"
        site.check_readable(page)
        page.get_by_role("link", name="Open the comparison").click()
        page.wait_for_url(f"**/compare/{fire['baseline']}/{fire['sweep']}")
        site.close()
        assert not site.faults


def test_a_schedule_shows_its_verdicts_as_a_strip(nightly: Project, browser: Browser) -> None:
    nightly.write({"flow.py": FLOW.replace('state["x"] + by', 'state["x"] + by + 1')})
    nightly.inside("schedule", "run-now", "nightly")
    fires = nightly.inside("schedule", "history", "nightly", "--format", "json", check=0).json["fires"]
    assert len(fires) == 2
    assert fires[1]["code_changed"] == ["A"]
    with served(nightly, browser) as site:
        page = site.open("/schedules")
        strip = page.get_by_role("list", name="Verdicts")
        strip.wait_for()
        marks = strip.get_by_role("listitem")
        assert marks.count() == 2
        for mark, fire in zip(marks.all(), fires, strict=True):
            assert (fire["verdict"] or "") in (mark.get_attribute("title") or "")
            assert mark.get_by_role("link").get_attribute("href") == f"/sweeps/{fire['sweep']}"
        assert sentence("code of {} changed", "A") in (marks.last.get_attribute("title") or "")
        drift = page.get_by_role("img", name="of nightly over 2 nights")
        drift.wait_for()
        assert sentence("in the fixed reference") in (drift.get_attribute("aria-label") or "")
        assert drift.locator(".night").count() == 2
        assert drift.locator(".fixed").count() == 1
        site.check_readable(page)
        page.set_viewport_size({"width": 360, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        site.close()
        assert not site.faults


CALLING = """
import time

from wtb import Workflow

wf = Workflow("calling", state=dict)


@wf.node
def think(state, ctx):
    for number in range(2):
        time.sleep(0.05)
        ctx.call(model=f"m{number}", prompt="why", response="because", usd=0.25, duration_s=0.05)
    return {"said": "because"}


@wf.node
def rest(state):
    time.sleep(0.05)
    return {}


wf.entry(think)
wf.edge(think, rest)
"""
LANE = "lane => [...lane.children].map((one) => [one.className, one.title, one.offsetLeft, one.offsetWidth])"


def test_calls_of_models_stand_on_the_axis_of_time_of_their_execution(tmp_path: Path, browser: Browser) -> None:
    project = Project(tmp_path / "calling")
    cases = "[{id: a, input: {x: 1}}]"
    project.write({"calling.py": CALLING, "sweep.yaml": f"workflow: calling:wf\ncases: {cases}\nvary: {{rest: all}}\n"})
    project.inside("run", "sweep.yaml", "--quiet", check=0)
    ((execution,),) = project.query("SELECT execution_id FROM cells")
    with served(project, browser) as site:
        page = site.open(f"/executions/{execution}")
        lane = page.locator(".steps .lane").first
        lane.wait_for()
        (kind, _, begin, size), first, second = lane.evaluate(LANE)
        assert (kind, first[:2], second[:2]) == ("succeeded", ["call", "m0 · 50.0 ms"], ["call", "m1 · 50.0 ms"])
        assert begin <= first[2] < first[2] + first[3] <= second[2] + 1
        assert second[2] + second[3] <= begin + size + 3  # times of calls and of the step come from two clocks
        page.locator(".steps summary").first.click()
        call = page.locator(".steps summary", has_text="m0")
        call.click()
        assert call.bounding_box()["height"] < 40, "its name stands on a line"  # type: ignore[index]
        site.check_readable(page)
        site.close()
        assert not site.faults
    project.close()


# What pages offer, by what it takes: the page, and the control on it.
OFFERED: tuple[tuple[str, str, str, Permission], ...] = (
    ("/", "link", "New sweep", Permission.submit),
    ("/submit", "link", "New sweep", Permission.submit),
    ("/sweeps/tagged", "link", "Label answers", Permission.answer),
    ("/sweeps/tagged", "button", "Pause|Resume|Retry|Cancel", Permission.steer),
    ("/sweeps/tagged/label", "button", "Skip|Take the last", Permission.answer),
    ("/executions/{execution}", "button", "Roll back to before", Permission.steer),
    ("/executions/{execution}", "button", "What if", Permission.steer),
    ("/executions/{execution}", "button", "Run it for every case", Permission.submit),
    ("/access", "heading", "Changes and rejected requests", Permission.administer),
)


def token_of(project: Project, role: Role) -> str:
    """A token of a user with a role, which leaves nothing out that the role allows."""
    project.inside("admin", "user", "create", f"a-{role}")
    project.inside("admin", "access", "grant", role, "--user", f"a-{role}", check=0)
    args = ("admin", "token", "create", f"of-{role}", "--user", f"a-{role}", "--scope", ",".join(Permission))
    return project.inside(*args, check=0).stdout.strip()


@pytest.mark.parametrize("role", Role)
def test_each_page_offers_a_role_what_it_allows_and_the_server_refuses_the_rest(
    site: Site, read: Project, role: Role
) -> None:
    allowed = PERMISSIONS[role]
    ((execution,),) = read.query(
        "SELECT execution_id FROM cells JOIN sweeps s ON s.id = sweep_id AND s.name = 'tagged' LIMIT 1"
    )
    page = site.open("/", token=token_of(read, role))
    offered = set[tuple[str, str]]()
    for path in dict.fromkeys(path for path, *_ in OFFERED):
        site.go(page, path.format(execution=execution))
        page.wait_for_load_state("networkidle")
        if path.startswith("/executions"):
            page.locator(".steps summary").first.click()
            page.get_by_role("heading", name="Changes to the state").wait_for()
            if page.get_by_role("button", name="What if").count():
                page.get_by_role("button", name="What if").click()
                page.get_by_role("button", name="Run it for this case").wait_for()
        if role is Role.admin:  # who is offered everything
            site.check_readable(page)
        assert page.get_by_role("alert").count() == 0, f"{path}: what one may not read is not asked for"
        for where, kind, name, _ in OFFERED:
            controls: Any = page.get_by_role(kind, name=re.compile(name))  # type: ignore[arg-type]
            if where == path and controls.count():
                offered.add((path, name))
    expected = {(path, name) for path, _, name, needs in OFFERED if needs in allowed}
    never = {("/submit", "New sweep"), ("/sweeps/tagged", "Pause|Resume|Retry|Cancel")}  # it has ended, and is there
    assert offered == expected - never
    for path, needs in {
        "/sweeps": Permission.submit,
        f"/executions/{execution}/row": Permission.submit,
        f"/executions/{execution}/fork": Permission.steer,
        f"/executions/{execution}/rollback": Permission.steer,
        f"/executions/{execution}/undo-rollback": Permission.steer,
        f"/executions/{execution}/pause": Permission.steer,
        "/sweeps/tagged/breakpoints": Permission.steer,
        "/sweeps/tagged/cancel": Permission.steer,
        "/sweeps/tagged/labelling": Permission.answer,
        "/answers": Permission.answer,
        "/tokens": Permission.administer,
        "/access/grant": Permission.administer,
    }.items():
        status, answer = site.post(page, path, {})
        assert (status == 403) == (needs not in allowed), (path, status, answer)
        assert (sentence("this takes the scope {}", needs) in answer) == (needs not in allowed), (path, answer)


def test_who_administers_sees_roles_and_what_was_refused(site: Site, read: Project) -> None:
    page = site.open("/access")
    page.get_by_role("heading", name="Changes and rejected requests").wait_for()
    roles = read.inside("admin", "access", "list", "--format", "json", check=0).json["access"]
    for role in roles:
        row = page.locator("tbody tr").filter(has_text=role["user"]).filter(has_text=role["role"]).first
        row.wait_for()
    calls = read.inside("admin", "audit", "list", "--limit", "50", "--format", "json", check=0).json["audit"]
    refused = [
        call for call in calls if call["outcome"] == "failed" and "this takes the scope" in (call["error"] or "")
    ]
    assert refused, "the roles of the tests before were refused something"
    page.get_by_role("cell", name=refused[0]["error"]).first.wait_for()
    site.check_readable(page)


def test_a_log_without_events_says_so(site: Site) -> None:
    page = site.open("/sweeps/tagged?tab=log")
    page.get_by_role("cell", name="sweep.completed").wait_for()
    page.get_by_label("From severity").select_option("error")
    page.get_by_text("Nothing of this severity has happened so far.").wait_for()
    site.check_readable(page)


def test_an_address_is_what_one_sees_after_signing_in(site: Site) -> None:
    page = site.open("/sweeps/tagged?tab=effects&metric=total", token=None)
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Each factor by itself").wait_for()
    assert page.url == f"{site.url}/sweeps/tagged?tab=effects&metric=total"


def test_a_command_that_knows_no_server_says_so(read: Project) -> None:
    refused = read.inside("matrix", "tagged", "--open", check=2)
    assert sentence("no server is configured") in refused.output
    assert "total" in refused.stdout


def test_a_command_beside_a_stack_leads_to_its_pages_if_they_show_the_same_database(read: Project) -> None:
    sweeps = read.inside("list", "--format", "json", check=0).json["sweeps"]
    sweep = next(row["id"] for row in sweeps if row["name"] == "tagged")
    own = "sqlite:///.wtb/wtb.db"
    write_stack(Stack(read.folder, os.getpid(), time.time(), True, own, "", None, (), api="http://127.0.0.1:9/api/v1"))
    try:
        output = read.inside("show", "tagged", "--open", env={"BROWSER": "true %s"}, check=0)
        assert f"http://127.0.0.1:9/sweeps/{sweep}" in output.output
        elsewhere = ("--db", f"sqlite:///{read.folder}/.wtb/wtb.db")
        assert (
            sentence("no server is configured") in read.inside("show", "tagged", "--open", *elsewhere, check=2).output
        )
    finally:
        forget_stack(read.folder)


def test_a_page_prints_what_is_read_and_nothing_to_press(site: Site) -> None:
    page = site.open("/sweeps/tagged")
    page.get_by_role("grid").wait_for()
    page.emulate_media(media="print")
    assert page.get_by_role("heading", name="tagged").is_visible()
    assert page.locator("main table").first.is_visible()
    assert not page.get_by_role("navigation").filter(visible=True).count()
    assert not page.get_by_role("button").filter(visible=True).count()
    take_picture(page)

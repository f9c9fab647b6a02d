"""The pages in a real browser, on a real server: what they show is what commands show, whatever users wrote."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.pages.tree import grown
from tests.hosting.api.serving import TOKEN, Server
from tests.hosting.pages.site import Site, served, take_picture
from tests.support.attempts import ATTEMPTS
from tests.support.deadlines import SLOW_S
from tests.support.project import Project, Running
from wtb.display.sentences import answers

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

HOSTILE = "<img src=x onerror='window.ran=1'><script>window.ran=1</script>"
GATED = """
import time
from pathlib import Path

from wtb import END, Workflow, evaluator

wf = Workflow("gated", state=dict)


@wf.node
def wait(state, *, by: int = 0):
    while not Path("{gate}").exists():
        time.sleep(0.01)
    return {{"x": state["x"] + by}}


wait.variant("more", by=1)
wf.entry(wait)
wf.edge(wait, END)


@evaluator(better="higher")
def total(case, result):
    return float(result.state["x"])
"""


@contextmanager
def gated(folder: Path, flow: str, cases: int, *keys: str) -> Iterator[tuple[Project, Server, Running]]:
    """Yield a sweep that waits for files of the folder, and a server of its project that is not started yet."""
    project = Project(folder / "gated")
    lines = (json.dumps({"id": f"c{number}", "input": {"x": number}}) for number in range(cases))
    sweep = "\n".join(("workflow: gated:wf", "cases: cases.jsonl", *keys))
    project.write({"gated.py": flow, "cases.jsonl": "\n".join(lines), "sweep.yaml": sweep})
    server = Server(project)
    with project.start("run", "sweep.yaml", "--quiet") as running:
        yield project, server, running
    server.kill()
    project.close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A sweep with hostile names, and the same again with other code."""
    project = Project(tmp_path_factory.mktemp("pages"))
    flow = (
        "from wtb import END, Workflow, evaluator\n\n"
        'wf = Workflow("<b>qa</b>", state=dict)\n\n'
        "@wf.node(retries=1)\ndef read(state, *, by: float = 0.0):\n"
        f"    print({HOSTILE!r})\n"
        f'    with open("note.html", "w") as file:\n        file.write({HOSTILE!r})\n'
        '    if by == 9 and state["x"] == 2:\n        raise ValueError(f"no <i>{state[\'x\']}</i>")\n'
        f'    return {{"text": {HOSTILE!r}, "x": state["x"] * (1 + by)}}\n\n'
        "@wf.node\ndef answer(state, *, more: float = 0.0):\n"
        '    return {"answer": state["x"] + more, "long": list(range(3000))}\n\n'
        f"read.variant({HOSTILE!r}, by=1.0)\nread.variant('broken', by=9)\nanswer.variant('more', more=0.5)\n"
        "wf.entry(read)\nwf.edge(read, answer)\nwf.edge(answer, END)\n\n"
        '@evaluator(better="higher")\ndef right(case, result):\n    return float(result.state["answer"] > 6)\n'
    )
    cases = [{"id": f"{HOSTILE}{number}", "input": {"x": number}} for number in range(12)]
    project.write(
        {
            "qa.py": flow,
            "cases.jsonl": "\n".join(map(json.dumps, cases)),
            "sweep.yaml": 'sweep: "<b>first</b>"\nworkflow: qa:wf\ncases: cases.jsonl\n'
            'vary: {read: all, answer: all}\nevaluate: ["qa:right"]\n',
        }
    )
    project.inside("run", "sweep.yaml", "--quiet")
    project.write({"qa.py": flow.replace("> 6", "> 8").replace("more: float = 0.0", "more: float = -0.25")})
    project.inside("run", "sweep.yaml", "--quiet")
    yield project
    project.close()


@pytest.fixture(scope="module")
def serving(finished: Project, browser: Browser) -> Iterator[Site]:
    with served(finished, browser) as site:
        yield site


def sweeps(project: Project) -> list[str]:
    """The ids of its sweeps, the oldest first."""
    return [id for (id,) in project.query("SELECT id FROM sweeps ORDER BY created_at")]


def execution_of(project: Project, sweep: str, case: str, row: int) -> str:
    query = "SELECT execution_id FROM cells JOIN cases ON cases.sweep_id = cells.sweep_id AND number = case_number "
    query += "WHERE cells.sweep_id = :sweep AND cases.id = :case AND combination = :row"
    ((id,),) = project.query(query, sweep=sweep, case=case, row=row)
    return str(id)


def that_ended(project: Project, status: str) -> str:
    """An execution of a cell with a status."""
    return str(project.query("SELECT execution_id FROM cells WHERE status = :status LIMIT 1", status=status)[0][0])


def module_of(page: Page, name: str) -> Any:
    """The address of a module of the pages."""
    return page.evaluate("document.querySelector('script').src").replace("main.js", name)


def test_who_is_not_known_signs_in_and_is_remembered_until_they_sign_out(site: Site) -> None:
    page = site.open("/", token=None)
    page.get_by_label("Token").fill("not a token")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("Token not accepted: wrong, revoked or expired.").wait_for()
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Sweeps").wait_for()
    page.reload()
    page.get_by_role("heading", name="Sweeps").wait_for()
    assert page.evaluate("document.cookie") == ""
    assert TOKEN not in page.evaluate("JSON.stringify([sessionStorage, localStorage])")
    other = page.context.new_page()
    other.goto(site.url)
    other.get_by_role("heading", name="Sweeps").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    page.reload()
    page.get_by_role("heading", name="Sign in").wait_for()


def test_the_address_that_serve_prints_signs_in_once_and_no_request_has_its_code(site: Site) -> None:
    assert site.server.running is not None
    printed = re.search(r"http://\S+#code=(\S+)", site.server.running.stderr)
    assert printed
    page = site.open("/", token=None)
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.goto(printed[0])
    page.get_by_role("heading", name="Sweeps").wait_for()
    assert page.url == f"{site.url}/"
    assert urls
    assert not [url for url in urls if printed[1] in url.partition("#")[0]]
    second_page = site.open("/", token=None)
    second_page.goto(printed[0])
    second_page.get_by_text("This address was used already").wait_for()
    assert "code" not in second_page.url


def test_serve_opens_a_browser_that_is_signed_in_and_no_argument_has_the_code(
    finished: Project, browser: Browser, tmp_path: Path
) -> None:
    script, saved = tmp_path / "browser", tmp_path / "kept"
    script.write_text(
        f'#!/bin/sh\ncp "${{1#file://}}" {saved}.part && mv {saved}.part {saved}\necho "$1" > {saved}.argument\n'
    )
    script.chmod(0o755)
    server = Server(finished)
    server.start({"BROWSER": f"{script} %s"}, ["--open"])
    finished.until(lambda: Path(f"{saved}.argument").exists(), "the browser is opened")
    assert "code" not in Path(f"{saved}.argument").read_text()
    site = Site(server, browser)
    page = site.open("/", token=None)
    page.goto(saved.rename(saved.with_suffix(".html")).as_uri())
    page.get_by_role("heading", name="Sweeps").wait_for()
    site.close()
    server.kill()


def test_who_may_steer_does_so_by_the_cookie_and_whose_token_is_revoked_is_asked_again(
    site: Site, finished: Project
) -> None:
    token = finished.inside("admin", "token", "create", "ann", "--scope", "read,steer", check=0).stdout.strip()
    page = site.open(f"/sweeps/{sweeps(finished)[0]}", token=token)
    page.get_by_role("heading", name="first").wait_for()
    refused = page.evaluate("fetch('/api/v1/sweeps/first/pause', {method: 'POST'}).then((answer) => answer.status)")
    assert refused == 403, "without the header, which no page of elsewhere can send"
    finished.inside("admin", "token", "revoke", "ann", check=0)
    page.goto(site.url)
    page.get_by_role("heading", name="Sign in").wait_for()


def test_a_list_of_sweeps_leads_to_each_and_is_filtered_in_its_address(site: Site, finished: Project) -> None:
    page = site.open("/")
    page.locator("tbody tr").nth(1).wait_for()
    page.keyboard.press("/")
    page.keyboard.type("nothing of this name")
    page.get_by_text("No sweep matches.").wait_for()
    assert "text=nothing" in page.url
    page.get_by_role("searchbox").fill("first")
    page.locator("tbody tr").first.get_by_role("link").click()
    page.wait_for_url(f"**/sweeps/{sweeps(finished)[-1]}")


def test_a_sweep_shows_the_answer_and_the_figures_of_the_command(site: Site, finished: Project) -> None:
    sweep = sweeps(finished)[0]
    document = finished.inside("matrix", sweep, "--format", "json").json
    page = site.open(f"/sweeps/{sweep}")
    page.get_by_text("Results by metric").click()
    for sentence in answers(document):
        page.get_by_text(sentence, exact=True).wait_for()
    rows = page.locator("main table").first.locator("tbody tr")
    assert rows.count() == len(document["rows"]) == 6
    text = " ".join(page.locator("main table").first.inner_text().split())
    for row in document["rows"]:
        assert f"{row['metrics']['right']['mean']:.3f}" in text
        assert row["combination"]["read"] in text
    assert rows.first.inner_text().lstrip("0123456789\t ").startswith(("★", "☆"))


def test_every_cell_can_be_reached_by_keyboard_whatever_the_pointer_crosses(site: Site, finished: Project) -> None:
    sweep = sweeps(finished)[0]
    page = site.open(f"/sweeps/{sweep}?sort=number")
    grid = page.get_by_role("grid")
    grid.focus()
    assert grid.get_attribute("aria-rowcount") == "6"
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    grid.hover(position={"x": 5, "y": 40})
    page.mouse.move(1, 1)
    assert f"{HOSTILE}2" in grid.get_by_role("gridcell").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url("**/executions/*")
    assert page.url.endswith(execution_of(finished, sweep, f"{HOSTILE}2", row=1))


def test_the_focus_stays_in_the_cells_while_they_are_scored_by_another_metric(site: Site, finished: Project) -> None:
    """As where nothing is scored when one begins to look, and then something is."""
    page = site.open("/")
    figures = f"{site.url}/api/v1/sweeps/{sweeps(finished)[0]}/figures"
    scored = page.context.request.get(figures).json()
    none = {**scored["matrix"], "primary": None, "metrics": {}, "best": {}}
    answered = [scored, {**scored, "matrix": none}]
    page.route(re.compile("/figures"), lambda route: route.fulfill(json=answered.pop()))
    routes: list[Route] = []
    page.route(re.compile(r"/columns\?metric="), lambda route: routes.append(route))
    page.goto(f"{site.url}/sweeps/{sweeps(finished)[0]}")
    grid = page.get_by_role("grid")
    grid.focus()
    page.keyboard.press("ArrowRight")
    assert "no score" in grid.get_by_role("gridcell").inner_text()
    module = module_of(page, "lib/router.js")
    page.evaluate("async (module) => (await import(module)).look({ baseline: '1' })", module)
    while not routes:
        page.wait_for_timeout(10)
    routes[0].continue_()
    grid.get_by_role("gridcell").get_by_text("right 0").wait_for()
    assert f"{HOSTILE}1" in grid.get_by_role("gridcell").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url("**/executions/*")


def test_cells_are_asked_for_once_by_the_metric_that_they_are_shown_by(site: Site, finished: Project) -> None:
    page = site.open("/")
    urls: list[str] = []
    page.on(
        "request",
        lambda request: urls.append(request.url) if "/api/v1/" in request.url and "/columns" in request.url else None,
    )
    site.go(page, f"/sweeps/{sweeps(finished)[0]}")
    page.get_by_role("grid").wait_for()
    assert [url.partition("/columns")[2] for url in urls] == ["?metric=right"]


def test_an_answer_that_takes_longer_than_the_next_question_is_shown(site: Site, finished: Project) -> None:
    page = site.open("/")
    page.get_by_role("heading", name="Sweeps").wait_for()
    module = module_of(page, "lib/resource.js")
    assert page.evaluate(SLOW_ANSWERS, module) == {"asked": 2, "shown": "answer 2"}


def test_rows_are_grouped_by_the_variants_of_a_node(site: Site, finished: Project) -> None:
    page = site.open(f"/sweeps/{sweeps(finished)[0]}")
    page.get_by_label("Group by").select_option("answer")
    page.wait_for_url("**group=answer**")
    page.reload()
    names = page.locator("main table").first.locator("tbody tr td:nth-child(3)")
    names.first.wait_for()
    assert sorted((variants := names.all_inner_texts())[:3]) != sorted(variants[3:])
    assert [len(set(variants[:3])), len(set(variants[3:]))] == [1, 1]
    page.get_by_role("grid").focus()
    page.keyboard.press("Home")
    assert f"answer={variants[0]}" in page.get_by_role("gridcell").inner_text().replace(" ", "")
    site.check_readable(page)


def test_two_cells_chosen_by_key_or_by_click_are_compared(site: Site, finished: Project) -> None:
    sweep = sweeps(finished)[0]
    case = f"{HOSTILE}1"
    first, second = (execution_of(finished, sweep, case, row) for row in (0, 1))
    page = site.open(f"/sweeps/{sweep}?sort=number")
    grid = page.get_by_role("grid")
    grid.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    page.get_by_role("status").get_by_text("To be compared").wait_for()
    assert grid.get_by_role("gridcell").get_attribute("aria-selected") == "true"
    page.reload()
    page.get_by_role("status").get_by_text(case).wait_for()
    site.check_readable(page)
    page.get_by_role("button", name="Choose none").click()
    page.get_by_role("status").get_by_text("To be compared").wait_for(state="hidden")
    box = grid.bounding_box()
    assert box
    of_case = 1.5 * min(64, box["width"] / 12)
    for row in (0, 1):
        grid.click(position={"x": of_case, "y": 9 + 18 * row}, modifiers=["Shift"])
    page.wait_for_url(f"**/executions/{first}/diff/{second}")


def test_two_cells_are_chosen_by_touch(site: Site, finished: Project) -> None:
    page = site.open(f"/sweeps/{sweeps(finished)[0]}", width=360, touch=True)
    page.get_by_label("Compare two cells").check()
    grid = page.get_by_role("grid")
    for row in (0, 1):
        grid.tap(position={"x": 20, "y": 9 + 18 * row})
        if row == 0:
            page.get_by_role("status").get_by_text("To be compared").wait_for()
    page.wait_for_url("**/executions/*/diff/*")


def test_wide_screens_are_used(site: Site, finished: Project) -> None:
    page = site.open(f"/sweeps/{sweeps(finished)[0]}", width=3840)
    page.get_by_role("grid").wait_for()
    table, cells = page.locator("main table").first.bounding_box(), page.get_by_role("grid").bounding_box()
    assert table
    assert cells
    assert table["y"] < cells["y"] + cells["height"]
    assert cells["x"] + cells["width"] < table["x"]
    assert table["x"] > 3840 / 2
    assert cells["width"] >= 12 * 64, "and a cell is no wider than its figure needs"
    take_picture(page)


# Of a resource that is asked for twenty times while its first answer is on its way.
SLOW_ANSWERS = """
async (path) => {
  const { useResource } = await import(path);
  const { html, render } = await import(path.replace("resource.js", "html.js"));
  const place = document.createElement("p"), pause = (ms) => new Promise((done) => setTimeout(done, ms));
  let asked = 0, reload, answer;
  const ask = () => new Promise((done) => { const number = ++asked; answer = () => done(`answer ${number}`); });
  const One = () => { const found = useResource(ask, []); reload = found.reload; return html`<b>${found.data}</b>`; };
  render(html`<${One} />`, place);
  while (!asked) await pause(1);
  for (let turn = 0; turn < 20; turn++) { reload(); await pause(1); }
  answer();
  while (asked === 1) await pause(1);
  answer();
  while (!place.textContent.includes("2")) await pause(1);
  return { asked, shown: place.textContent };
}
"""

MARKS = """
async (path) => {
  const { Difference } = await import(path);
  const of = (p) => Difference({ estimate: { delta: 0.2, delta_ci: [0.1, 0.3], p_adjusted: p }, better: "higher" });
  return [0.01, 0.095, null].map((p) => of(p).props.class);
}
"""


def test_a_difference_is_coloured_only_where_the_corrected_test_shows_it(site: Site) -> None:
    page = site.open("/")
    module = module_of(page, "views/intervals.js")
    assert page.evaluate(MARKS, module) == ["good", "", "good"], "an interval decides where nothing is corrected"


def test_an_address_of_nothing_is_a_page_for_people_and_a_problem_for_programs(site: Site) -> None:
    page = site.open("/nowhere/at/all")
    page.get_by_role("heading", name="There is nothing at this address.").wait_for()
    answer = page.goto(page.url)
    assert answer is not None
    assert answer.status == 404
    assert page.context.request.get(page.url).json()["status"] == 404
    page.get_by_role("link", name="All sweeps").click()
    page.get_by_role("heading", name="Sweeps").wait_for()


def test_an_execution_shows_what_each_step_wrote_and_said(site: Site, finished: Project) -> None:
    page = site.open(f"/executions/{that_ended(finished, 'succeeded')}")
    steps = page.locator(".steps > li")
    steps.first.locator("summary").first.click()
    steps.first.get_by_role("columnheader", name="after").wait_for()
    opened = steps.first.inner_text()
    assert opened.count(HOSTILE) >= 2  # what it wrote, and what it printed
    page.get_by_role("button", name="Show all of it").first.click()
    assert "2999" in page.locator("main").inner_text()


def test_files_of_nodes_are_shown_as_text_and_never_run(site: Site, finished: Project) -> None:
    execution = that_ended(finished, "succeeded")
    page = site.open(f"/executions/{execution}")
    page.get_by_role("button", name="Show note.html").click()
    page.locator("main pre, main code").get_by_text(HOSTILE).last.wait_for()
    download = page.get_by_role("link", name="Download note.html")
    answer = page.context.request.get(f"{site.url}{download.get_attribute('href')}")
    assert answer.text() == HOSTILE
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "attachment" in answer.headers["content-disposition"]
    assert answer.headers["content-security-policy"] == "sandbox"
    page.locator(".steps summary").first.click()
    page.get_by_role("heading", name="Files that differ").wait_for()
    site.check_readable(page)
    missing = page.context.request.get(f"{site.url}/api/v1/executions/{execution}/file?path=../../etc/passwd")
    assert missing.status in (400, 404)


def test_a_step_that_was_tried_again_shows_each_attempt_and_the_wait_between(site: Site, finished: Project) -> None:
    page = site.open(f"/executions/{that_ended(finished, 'failed')}")
    step = page.locator(".steps > li").first
    step.wait_for()
    assert step.locator(".lane i").count() == 2
    step.locator("summary").first.click()
    attempts = step.locator("tbody tr")
    attempts.last.wait_for()
    assert attempts.count() == 2
    assert "failed" in attempts.last.inner_text()
    assert attempts.last.locator("td").nth(2).inner_text() != ""


def test_two_sweeps_that_are_chosen_are_compared(site: Site, finished: Project) -> None:
    page = site.open("/")
    page.locator("tbody tr").nth(1).wait_for()
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare", exact=True).click()
    before, after = sweeps(finished)
    page.wait_for_url(f"**/compare/{before}/{after}")
    verdict = finished.inside("compare", before, after, "--format", "json").json["verdict"]
    page.get_by_text(f"Verdict: {verdict}").wait_for()
    page.get_by_text("code of answer = default").wait_for()


def difference(project: Project, first: str, second: str) -> Any:
    return project.inside("diff", first, second, "--format", "json").json


def test_cells_that_got_worse_are_listed_with_both_executions_and_how_many_there_are(
    site: Site, finished: Project
) -> None:
    before, after = sweeps(finished)
    cells = finished.inside("compare", before, after, "--format", "json").json["cells"]
    worse = [cell for cell in cells if cell["what"] == "worse"]
    page = site.open(f"/compare/{before}/{after}")
    page.get_by_role("heading", name=f"Got worse ({len(worse)})").wait_for()
    first, second = worse[0]["executions"]
    for execution in (first, second):
        assert page.locator(f'a[href="/executions/{execution}"]').count()
    page.locator(f'a[href="/executions/{first}/diff/{second}"]').first.click()
    page.wait_for_url("**/diff/*")
    page.get_by_text(f"They differ from step {difference(finished, first, second)['divergence']['step']}").wait_for()
    assert page.locator("tbody tr").filter(has_text="answer").count()
    page.reload()
    page.get_by_role("heading", level=1, name=" and ").wait_for()
    site.check_readable(page)
    page.set_viewport_size({"width": 360, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_two_rows_are_compared_over_all_cases_and_lead_to_both_executions(site: Site, finished: Project) -> None:
    sweep = sweeps(finished)[0]
    page = site.open(f"/sweeps/{sweep}")
    page.get_by_role("link", name="Compare two rows over all cases").click()
    page.get_by_role("combobox", name="Row").select_option("3")
    page.get_by_role("combobox", name="beside").select_option("0")
    page.wait_for_url("**/compare?row=3&other=0&metric=right")
    document = finished.inside("compare", sweep, "--row", "3", "--other", "0", "--format", "json").json
    summary = (
        f"wins {document['wins']} of {document['n_pairs']} cases, loses "
        f"{document['losses']} and ties in {document['ties']}."
    )
    page.get_by_text(summary).wait_for()
    rows = page.locator("tbody tr")
    page.locator(".case-beside").first.wait_for()
    names = [row.locator("td .case-beside .name").first.inner_text() for row in rows.all()]
    assert names == [case["case"] for case in document["cases"]]
    site.check_readable(page)
    first, second = document["cases"][0]["executions"]
    assert page.locator(f'a[href="/executions/{first}/diff/{second}"]').count() == 1
    page.set_viewport_size({"width": 360, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_cell_stands_beside_another_one_of_its_case_with_texts_side_by_side(site: Site, finished: Project) -> None:
    first, other = (execution_of(finished, sweeps(finished)[0], f"{HOSTILE}1", row) for row in (0, 2))
    page = site.open(f"/executions/{first}")
    page.get_by_text("Compare with another cell of this case").click()
    page.locator(f'a[href="/executions/{first}/diff/{other}"]').click()
    page.get_by_role("heading", level=1, name=" and ").wait_for()
    expected = finished.inside("diff", first, other, "--format", "json").json["state"]
    for key in expected["changed"]:
        page.locator("td.name").get_by_text(key, exact=True).wait_for()


RANDOM_TEXTS = """
async ([path, seed]) => {
  const { compare } = await import(path);
  const lcs = (a, b) => {
    const table = Array.from({ length: a.length + 1 }, () => new Int32Array(b.length + 1));
    for (let i = 1; i <= a.length; i++) for (let j = 1; j <= b.length; j++)
      table[i][j] = a[i - 1] === b[j - 1] ? table[i - 1][j - 1] + 1 : Math.max(table[i - 1][j], table[i][j - 1]);
    return table[a.length][b.length];
  };
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  for (let round = 0; round < 400; round++) {
    const list = () => Array.from({ length: Math.floor(random() * 14) }, () => "abc"[Math.floor(random() * 3)]);
    const [a, b] = [list(), list()];
    const made = [];
    let [at, edits] = [0, 0];
    for (const [fromA, toA, fromB, toB] of compare(a, b, 100)) {
      made.push(...a.slice(at, fromA), ...b.slice(fromB, toB));
      [at, edits] = [toA, edits + toA - fromA + toB - fromB];
    }
    made.push(...a.slice(at));
    const least = a.length + b.length - 2 * lcs(a, b);
    if (made.join() !== b.join() || edits !== least) return JSON.stringify([a, b, compare(a, b, 100)]);
    if (compare(a, b, 0).length > 1) return "more than one hunk beyond the most";
  }
  return "";
}
"""


def test_texts_differ_by_as_few_edits_as_there_can_be(site: Site) -> None:
    page = site.open("/")
    module = module_of(page, "lib/text_diff.js")
    assert page.evaluate(RANDOM_TEXTS, [module, 20261125]) == ""


def test_a_text_that_was_replaced_differs_in_one_block_and_long_lines_are_compared_at_once(site: Site) -> None:
    page = site.open("/")
    module = module_of(page, "lib/text_diff.js")
    pieces = page.evaluate(
        "async ([module, one, other]) => (await import(module)).compareTexts(one, other)",
        [module, "You can change it. Thanks.", "Please, ask our shop. Thanks."],
    )
    assert [(piece["kind"], piece["text"]) for piece in pieces] == [
        ("removed", "You can change it"),
        ("added", "Please, ask our shop"),
        ("same", ". Thanks."),
    ]
    milliseconds = page.evaluate(
        """async (module) => {
          const { compareLines, compareWords } = await import(module);
          const [one, other] = ["a ", "b "].map((word) => word.repeat(5_000_000));
          const before = performance.now();
          const { a, b, hunks } = compareLines(one, other);
          if (compareWords(a[0], b[0]).hunks.length !== 1 || hunks.length !== 1) throw new Error("not one hunk");
          return performance.now() - before;
        }""",
        module,
    )
    assert milliseconds < 2_000


def test_means_stand_against_what_they_cost_with_the_best_at_each_price_named(site: Site, finished: Project) -> None:
    sweep = sweeps(finished)[0]
    rows = finished.inside("matrix", sweep, "--format", "json").json["rows"]
    marks = [(row["latency_s"]["p50"], row["metrics"]["right"]["mean"], row["combination"]) for row in rows]
    marks = [mark for mark in marks if None not in mark]
    line = [mark for mark in marks if not any(o[0] <= mark[0] and o[1] >= mark[1] and o[:2] != mark[:2] for o in marks)]
    page = site.open(f"/sweeps/{sweep}")
    section = page.locator("section").filter(has=page.get_by_role("heading", name="right against time"))
    section.wait_for()
    assert section.locator("circle").count() == len(marks)
    named = section.locator("tbody tr").all_inner_texts()
    assert len(named) == len(line)
    for text, (_, _, best) in zip(named, sorted(line, key=lambda mark: mark[0]), strict=True):
        assert best["read"] in text


def test_what_makes_the_difference_is_told_by_node_and_by_pair(site: Site, finished: Project) -> None:
    sweep = sweeps(finished)[0]
    report = finished.inside("report", sweep, "--format", "json").json
    page = site.open(f"/sweeps/{sweep}?tab=effects")
    page.get_by_role("heading", name="Any two of the best").wait_for()
    text = " ".join(page.locator("main").inner_text().split())
    for sentence in report["attribution"]["right"]["sentences"]:
        assert " ".join(sentence.split()) in text
    rows = report["pairs"]["right"]["rows"]
    pairs = page.locator("section").filter(has=page.get_by_role("heading", name="Any two of the best"))
    assert pairs.locator("tbody tr").count() == len(rows)


def test_tabs_keep_the_metric_if_there_is_one_and_the_filter(site: Site, finished: Project) -> None:
    page = site.open(f"/sweeps/{sweeps(finished)[0]}?metric=of-before")
    page.locator("main table").first.get_by_role("columnheader", name="right").wait_for()
    site.go(page, f"/sweeps/{sweeps(finished)[0]}?metric=right&differ=1")
    page.get_by_role("link", name="Failures").click()
    page.get_by_role("link", name="Matrix").click()
    page.wait_for_url("**metric=right&differ=1&tab=matrix")
    assert page.get_by_label("Only what differs").is_checked()


@pytest.mark.parametrize("tab", ["tree", "log", "run"])
def test_what_a_report_has_is_there_before_one_is_written(site: Site, finished: Project, tab: str) -> None:
    page = site.open(f"/sweeps/{sweeps(finished)[0]}?tab={tab}")
    expected = {"tree": "without sharing", "log": "sweep.completed", "run": "Fingerprints"}
    page.get_by_text(expected[tab]).first.wait_for()


def test_a_prefix_of_the_tree_tells_its_share_of_time_and_what_failed(site: Site, finished: Project) -> None:
    sweep = sweeps(finished)[0]
    tree = finished.inside("report", sweep, "--format", "json").json["tree"]
    total = sum(node["seconds"] for node in tree["nodes"])
    broken = next(prefix for prefix in tree["levels"][0]["prefixes"] if prefix["variant"] == "broken")
    assert broken["failed"] == 1
    page = site.open(f"/sweeps/{sweep}?tab=tree")
    page.get_by_role("treeitem", name="read=broken").click()
    share = int(100 * broken["seconds"] / total + 0.5)
    page.get_by_role("status").get_by_text(f"; 1 failed, {share}% of the time").wait_for()


def test_one_zooms_into_a_part_of_the_tree_and_its_address_holds_that(site: Site, finished: Project) -> None:
    page = site.open(f"/sweeps/{sweeps(finished)[0]}?tab=tree")
    tree_items = page.get_by_role("treeitem")
    tree_items.first.wait_for()
    assert tree_items.count() == 3 + 6
    tree_items.last.press("Enter")
    page.get_by_text("1 of 6 combinations").wait_for()
    page.keyboard.press("0")
    page.get_by_text("1 of 6 combinations").wait_for(state="hidden")
    page.get_by_role("treeitem", name="read=broken").press("Enter")
    page.get_by_text("2 of 6 combinations").wait_for()
    assert tree_items.count() == 1 + 2
    page.reload()
    page.get_by_text("2 of 6 combinations").wait_for()
    tree_items.first.press("0")
    page.get_by_text("2 of 6 combinations").wait_for(state="hidden")
    assert tree_items.count() == 3 + 6


def test_prefixes_too_narrow_to_be_elements_are_painted_and_reached_by_click_and_key(
    site: Site, finished: Project
) -> None:
    """Those of 2 x 150 combinations are four pixels wide or so."""
    sweep = sweeps(finished)[0]
    page = site.open("/")
    report = page.context.request.get(f"{site.url}/api/v1/sweeps/{sweep}/report").json()
    document = json.dumps({**report, **grown((2, 150))})
    page.route("**/report", lambda route: route.fulfill(body=document, content_type="application/json"))
    site.go(page, f"/sweeps/{sweep}?tab=tree")
    tree_items = page.get_by_role("treeitem")
    tree_items.first.wait_for()
    assert tree_items.count() == 2
    painted = page.locator(".icicle .level canvas").nth(1)
    size = painted.bounding_box()
    assert size
    painted.click(position={"x": size["width"] * 100.5 / 300, "y": size["height"] / 2})
    status = page.get_by_role("status")
    status.get_by_text("B=v100: ").wait_for()
    assert tree_items.count() == 3
    site.check_readable(page)
    page.keyboard.press("ArrowRight")
    status.get_by_text("B=v101: ").wait_for()
    assert page.evaluate("document.activeElement.ariaLevel + document.activeElement.ariaPosInSet") == "2102"
    page.keyboard.press("ArrowUp")
    status.get_by_text("A=v0: ").wait_for()
    page.keyboard.press("Enter")
    page.get_by_text("150 of 300 combinations").wait_for()
    page.keyboard.press("End")
    status.get_by_text("B=v149: ").wait_for()
    page.keyboard.press("Enter")
    page.get_by_text("1 of 300 combinations").wait_for()
    assert tree_items.count() == 2
    assert page.evaluate("document.activeElement.ariaLevel") == "2"


LISTS = ("/inbox", "/schedules", "/workers", "/costs", "/access", "/sessions")
PLACES = ("/", "/submit", *LISTS, "/help/pages", "/nowhere")


def every_page(finished: Project) -> list[str]:
    """The address of each page, and of each tab of a sweep's."""
    sweep, other = sweeps(finished)
    failed, fine = that_ended(finished, "failed"), that_ended(finished, "succeeded")
    tabs = [f"/sweeps/{sweep}?tab={tab}" for tab in ("matrix", "outputs", "effects", "tree", "failures", "log", "run")]
    compared = [f"/executions/{failed}/diff/{fine}", f"/sweeps/{sweep}/compare", f"/compare/{sweep}/{other}"]
    forms = ["/sessions?form=new", "/sessions?form=%3Ddefault", "/access?form=token", f"/sweeps/{sweep}/label"]
    missing = ["/sweeps/no-such-sweep", "/executions/no-such-execution", "/help/no-such-page"]
    return [*PLACES, *tabs, f"/executions/{failed}", *compared, *forms, *missing]


LOOKS = [
    pytest.param({}, id="light"),
    pytest.param({"dark": True}, id="dark", marks=pytest.mark.slow),
    pytest.param({"width": 360}, id="telephone", marks=pytest.mark.slow),
    pytest.param({"width": 360, "dark": True}, id="dark-telephone", marks=pytest.mark.slow),
    pytest.param({"reads": True}, id="viewer", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.deadline(SLOW_S)  # every page, each looked at by axe-core
def test_nothing_is_in_the_way_of_those_who_read_otherwise(site: Site, finished: Project, look: dict[str, Any]) -> None:
    token, how = TOKEN, {key: setting for key, setting in look.items() if key != "reads"}
    if "reads" in look:
        token = finished.inside("admin", "token", "create", "viewer", "--scope", "read", check=0).stdout.strip()
    stranger = site.open(PLACES[0], token=None, **how)
    stranger.get_by_role("heading", name="Sign in").wait_for()
    site.check_readable(stranger)
    page = site.open(PLACES[0], token=token, **how)
    for path in every_page(finished):
        site.go(page, path)
        site.check_readable(page)
        page.set_viewport_size({"width": 360, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        if path.endswith("tab=matrix"):
            assert page.locator(".canvas").bounding_box()["width"] > 200, "cells have more room than their names"
        page.set_viewport_size({"width": how.get("width", 1280), "height": 900})


def hold(_: Route) -> None:
    """Answer nothing yet."""


def fail(route: Route) -> None:
    route.fulfill(status=500, content_type="application/problem+json", body=json.dumps({"detail": HOSTILE}))


def cut(route: Route) -> None:
    route.abort()


@pytest.mark.parametrize(
    ("answer", "role"),
    [
        pytest.param(hold, "status", id="loading", marks=pytest.mark.slow),
        pytest.param(fail, "alert", id="failed", marks=pytest.mark.slow),
        pytest.param(cut, "status", id="offline", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("look", [{}, {"dark": True}, {"width": 360}], ids=["light", "dark", "telephone"])
def test_each_page_says_in_a_way_that_can_be_read_that_it_loads_failed_or_is_offline(
    site: Site, finished: Project, answer: Callable[[Route], None], role: Any, look: dict[str, Any]
) -> None:
    page = site.open(PLACES[-1], **look)
    page.route(re.compile("/api/v1/(?!sign-in)"), answer)
    for path in every_page(finished):
        if path != "/nowhere":
            page.goto(site.url + path)
            page.locator("main").get_by_role(role).first.wait_for()
            site.check_readable(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= look.get("width", 1280), path


def test_who_may_only_read_is_offered_on_no_page_what_changes_something(site: Site, finished: Project) -> None:
    sweep, other = sweeps(finished)
    execution = that_ended(finished, "failed")
    reader = finished.inside("admin", "token", "create", "reader", "--scope", "read", check=0).stdout.strip()
    page, owners = site.open("/", token=reader), site.open("/")
    steering = re.compile("Pause|Resume|Retry|Cancel|Roll back|What if|Add|Remove|Undo|Plan|Submit")
    compared = f"/executions/{execution}/diff/{execution}", f"/sweeps/{sweep}/compare", f"/compare/{sweep}/{other}"
    for path in (*PLACES, f"/sweeps/{sweep}", f"/executions/{execution}", *compared):
        site.go(page, path)
        assert page.get_by_role("button", name=steering).count() == 0, path
        assert page.get_by_role("link", name="New sweep").count() == 0, path
    site.go(owners, f"/executions/{execution}")
    owners.get_by_role("button", name="Retry failed").wait_for()


def test_the_sheet_of_keys_is_readable_and_gives_the_focus_back_and_keys_go_to_pages(site: Site) -> None:
    page = site.open("/")
    opener = page.get_by_role("button", name="Keyboard")
    opener.press("Enter")
    page.get_by_role("dialog", name="Keyboard").wait_for()
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    site.check_readable(page)
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for(state="hidden")
    assert opener.evaluate("(it) => it === document.activeElement")
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    for key in ("Escape", "g", "i"):
        page.keyboard.press(key)
    page.get_by_role("heading", name="Inbox").wait_for()


@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["light", "dark"])
def test_a_page_that_is_empty_failed_or_offline_is_readable_and_comes_back(site: Site, dark: bool) -> None:
    page = site.open("/?text=nothing+of+this+name", dark=dark)
    page.get_by_text("No sweep matches.").wait_for()
    site.check_readable(page)
    page.goto(site.url + "/sweeps/no-such-sweep")
    page.get_by_role("alert").get_by_text("There is no sweep 'no-such-sweep'").wait_for()
    site.check_readable(page)
    page.goto(site.url)
    page.get_by_role("heading", name="Sweeps").wait_for()
    page.context.set_offline(True)
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.get_by_text("The server cannot be reached").first.wait_for()
    assert page.get_by_text("The server cannot be reached").count() == 1
    site.check_readable(page)
    page.context.set_offline(False)
    page.get_by_role("heading", name="Costs and budgets").wait_for()
    page.get_by_text("The server cannot be reached").first.wait_for(state="hidden")


def set_hidden(page: Page, is_hidden: bool) -> None:
    """Have a page believe that its tab is out of sight, or in sight again; without a screen all tabs are in sight."""
    page.evaluate(
        "value => { Object.defineProperty(document, 'hidden', { value, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        is_hidden,
    )


def look_at_more_tabs_than_a_browser_has_connections(first: Page) -> None:
    """Open six further tabs of a page that follows a sweep, one in sight at a time, and come back to the first."""
    tabs = [first]
    for _ in range(6):
        set_hidden(tabs[-1], True)
        tabs.append(first.context.new_page())
        tabs[-1].goto(first.url)
        tabs[-1].get_by_text("0 / 24").wait_for()
    for tab in tabs[1:]:
        tab.close()
    set_hidden(first, False)


def test_a_page_keeps_up_with_a_sweep_that_runs_and_with_a_server_that_is_killed(
    tmp_path: Path, browser: Browser
) -> None:
    gate = tmp_path / "gate"
    keys = ("vary: {wait: all}", 'evaluate: ["gated:total"]', "repeats: 2", "run: {concurrency: 1, pool: thread}")
    with gated(tmp_path, GATED.format(gate=gate), 6, *keys) as (project, server, running):
        project.until(lambda: project.query("SELECT 1 FROM executions WHERE status = 'running'"), "it runs")
        server.start()
        site = Site(server, browser)
        page = site.open("/sweeps/sweep")
        page.get_by_text("0 / 24").wait_for()
        page.get_by_role("button", name="Pause").wait_for()
        site.check_readable(page)
        reader = project.inside("admin", "token", "create", "reader", "--scope", "read", check=0).stdout.strip()
        theirs = site.open("/sweeps/sweep", token=reader)
        theirs.get_by_text("0 / 24").wait_for()
        assert theirs.get_by_role("button", name=re.compile("Pause|Cancel")).count() == 0, "of who may only read"
        theirs.close()
        with page.expect_request(lambda request: request.url.count("subscribe=") == 2):  # on one connection
            page.get_by_role("link", name="Log", exact=True).click()
        page.get_by_role("cell", name="sweep.running", exact=True).wait_for()
        page.go_back()
        page.get_by_role("log").wait_for(state="hidden")
        look_at_more_tabs_than_a_browser_has_connections(page)
        server.kill()
        page.get_by_text("The connection was lost").wait_for()
        site.check_readable(page)
        server.start()
        page.get_by_text("The connection was lost").wait_for(state="hidden")
        gate.touch()
        page.get_by_text("24 / 24").wait_for()
        page.get_by_text("completed").first.wait_for()
        page.locator("main table").first.get_by_role("cell", name="3.500", exact=True).wait_for()
        running.wait(check=0)
        page.get_by_role("grid").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="repeat 1").click()
        page.wait_for_url("**/executions/*")
        site.close()


def test_outcomes_are_drawn_as_events_tell_them_without_asking_for_all_cells(tmp_path: Path, browser: Browser) -> None:
    gate = tmp_path / "gate"
    flow = GATED.format(gate=gate).replace(f'Path("{gate}")', f"Path(f\"{gate}-{{state['x']}}\")")
    keys = ("vary: {wait: [default]}", 'evaluate: ["gated:total"]', "run: {concurrency: 3, pool: thread}")
    with gated(tmp_path, flow, 3, *keys) as (project, server, running):
        tmp_path.joinpath("gate-0").touch()
        project.until(lambda: project.query("SELECT 1 FROM cells WHERE status = 'succeeded'"), "one has ended")
        server.start()
        site = Site(server, browser)
        page = site.open("/sweeps/sweep")
        grid = page.get_by_role("grid")
        grid.focus()
        page.keyboard.press("Home")
        grid.get_by_role("gridcell").get_by_text("total 0").wait_for()
        page.route("**/columns*", lambda route: route.abort())
        page.keyboard.press("ArrowRight")
        tmp_path.joinpath("gate-1").touch()
        grid.get_by_role("gridcell").get_by_text("succeeded, total 1").wait_for()
        tmp_path.joinpath("gate-2").touch()
        running.wait(check=0)
        site.close()


def test_what_a_node_prints_is_there_before_its_attempt_ends(tmp_path: Path, browser: Browser) -> None:
    gate = tmp_path / "gate"
    flow = GATED.replace("    while", f"    print({HOSTILE!r})\n    while", 1).format(gate=gate)
    with gated(tmp_path, flow, 1, "vary: {wait: [default]}") as (project, server, running):
        project.until(lambda: project.query(f"SELECT 1 FROM {ATTEMPTS} WHERE stdout IS NOT NULL"), "it is written")
        ((execution,),) = project.query("SELECT id FROM executions WHERE status = 'running'")
        server.start()
        site = Site(server, browser)
        page = site.open(f"/executions/{execution}")
        region = page.get_by_role("region", name="wait is running")
        assert HOSTILE in region.locator("pre").inner_text()
        assert HOSTILE in project.inside("status", execution).stdout
        gate.touch()
        running.wait(check=0)
        region.wait_for(state="hidden")
        page.locator(".steps summary").first.click()
        page.locator(".steps pre").get_by_text(HOSTILE).wait_for()
        site.close()
        assert not site.faults
        assert [text for (text,) in project.query(f"SELECT stdout FROM {ATTEMPTS}")] == [f"{HOSTILE}\n"]


def columns(project: Project, ref: str, metric: str) -> Any:
    """Read the columns that a server sends without the code that wrote them."""
    import struct

    import numpy as np

    from wtb.operations.context import Context
    from wtb.operations.inspection.cells import cell_columns
    from wtb.store.database import Database

    database = Database(f"sqlite:///{project.file}")
    buffer = cell_columns(Context(database), ref, metric).encode()
    database.close()
    (size,) = struct.unpack_from("<I", buffer)
    head = json.loads(buffer[4 : 4 + size])
    shape = len(head["combinations"]), len(head["cases"]), head["repeats"]
    cells = shape[0] * shape[1] * shape[2]
    start = 4 + size
    status = np.frombuffer(buffer, np.uint8, cells, start).reshape(shape)
    score = np.frombuffer(buffer, "<f4", cells, start + cells + -cells % 4).reshape(shape)
    return head, status, score


def test_columns_hold_every_cell_as_the_command_lists_it(finished: Project) -> None:
    sweep = sweeps(finished)[0]
    head, status, score = columns(finished, sweep, "right")
    listed = finished.inside("show", sweep, "--cells", "--format", "json").json["cells"]
    assert len(listed) == status.size == 72
    for cell in listed:
        at = head["combinations"].index(cell["combination"]), head["cases"].index(cell["case"]), cell["repeat"]
        assert head["statuses"][status[at]] == cell["status"]
        points = cell["scores"].get("right")
        assert (score[at] != score[at]) if points is None else score[at] == points


@pytest.mark.skipif(shutil.which("npx") is None, reason="TypeScript needs Node")
@pytest.mark.slow
def test_types_in_comments_hold() -> None:
    import subprocess

    from wtb.display.report.bundle import WEB

    options = "--allowJs --checkJs --noEmit --strict --target es2022 --module esnext --moduleResolution bundler"
    files = [str(path) for path in WEB.rglob("*.js") if "vendor" not in path.parts]
    lib = "--lib es2022,dom,dom.iterable,dom.asynciterable --skipLibCheck"
    command = ["npx", "--yes", "--package", "typescript@7", "tsc", *options.split(), *lib.split(), *files]
    stdout = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert not [line for line in stdout.splitlines() if "/vendor/" not in line and ": error" in line]

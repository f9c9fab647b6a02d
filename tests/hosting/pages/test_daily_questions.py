"""Sixteen questions that people ask of a sweep every day, each answered in at most three steps from the sweep.

A step is a click, a keystroke or a command. What is true follows from the story in tests/support/helpdesk.py, so the
answers that are shown are compared with numbers that WTB did not compute.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.hosting.pages.site import Site, served, wait_until
from tests.support import helpdesk
from tests.support.project import Outcome, Project
from tests.support.prose import sentence

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.deadline(600)  # its fixture runs a sweep of a thousand cells

MOST_STEPS = 3
MODELS = ("small", "medium", "large")
COMBINATIONS = list(product(helpdesk.PROMPTS, MODELS, helpdesk.TEMPERATURES))
PRICES = {"small": (5, 20), "medium": (20, 80), "large": (80, 320)}
TICKETS = list(csv.DictReader(io.StringIO(helpdesk.tickets())))


@dataclass
class Walk:
    """The steps to an answer.

    Attributes:
        project: Where commands run.
        steps: What was done so far.
    """

    project: Project
    steps: list[str] = field(default_factory=list)

    def _count(self, step: str) -> None:
        self.steps.append(step)
        assert len(self.steps) <= MOST_STEPS, self.steps

    def click(self, locator: Locator) -> None:
        self._count(f"click {locator}")
        locator.click()

    def press(self, page: Page, key: str) -> None:
        self._count(f"press {key}")
        page.keyboard.press(key)

    def choose(self, locator: Locator, option: str) -> None:
        self._count(f"choose {option}")
        locator.select_option(label=option)

    def wtb(self, *args: str, check: int | None = 0) -> Outcome:
        self._count(f"wtb {' '.join(args)}")
        return self.project.inside(*args, check=check)


@dataclass(frozen=True)
class Desk:
    """The story after it was played.

    Attributes:
        project: Its folder.
        site: Its pages.
        provider: The models that it calls.
    """

    project: Project
    site: Site
    provider: helpdesk.Models

    def walk(self) -> Walk:
        return Walk(self.project)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Desk]:
    project = Project(tmp_path_factory.mktemp("helpdesk"))
    helpdesk.write(project.folder)
    with ExitStack() as stack:
        provider = stack.enter_context(helpdesk.models())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("MODELS_URL", provider.url)
        helpdesk.play_day(project.inside)
        site = stack.enter_context(served(project, browser, "--run"))
        yield Desk(project, site, provider)
    project.close()


@pytest.fixture(scope="module")
def nights(played: Desk) -> list[str]:
    """The ids of the sweeps of two nights, of which the second is worse."""
    project = played.project
    helpdesk.play_nights(project.folder, project.inside)
    fires = project.inside("schedule", "history", "nightly", "--format", "json", check=0).json["fires"]
    return [fire["sweep"] for fire in fires]


@pytest.fixture
def desk(played: Desk) -> Iterator[Desk]:
    played.site.faults.clear()
    yield played
    played.site.close()
    assert not played.site.faults


@pytest.fixture
def copy(played: Desk, tmp_path: Path) -> Iterator[Project]:
    """The story in another folder, to be changed."""
    shutil.copytree(played.project.folder, tmp_path / "copy")
    project = Project(tmp_path / "copy")
    yield project
    project.close()


def solves(ticket: dict[str, str], prompt: str, model: str, temperature: float) -> bool:
    """Return whether the answer to a ticket is the expected one."""
    has_room = model != "small" or ticket["ID"] not in helpdesk.LONG
    return has_room and helpdesk.is_solved(ticket["Ticket"], prompt, model, temperature)


def mean(combinations: Sequence[tuple[str, str, float]]) -> float:
    cells = [solves(ticket, *combination) for combination in combinations for ticket in TICKETS]
    return sum(cells) / len(cells)


def cost(ticket: dict[str, str], prompt: str, model: str, articles: str, reply: str) -> float:
    """US dollars of a call."""
    sent = len(helpdesk.PROMPTS[prompt]) + len(f"{articles}\n\nTicket: {ticket['Ticket']}")
    input_price, output_price = PRICES[model]
    return (sent // 4 * input_price + len(reply) // 4 * output_price) / 1e6


def words(locator: Locator) -> str:
    return " ".join(locator.inner_text().split())


def opened(desk: Desk, path: str = "/sweeps/helpdesk") -> Page:
    page = desk.site.open(path)
    page.get_by_role("region", name="The decision").wait_for()
    return page


def test_1_which_combination_to_ship_and_how_sure_that_is(desk: Desk) -> None:
    best = max(mean([combination]) for combination in COMBINATIONS)
    assert mean([("cited", "medium", 0)]) == best, "the cheapest of those that are best"
    page = opened(desk)
    card = words(page.get_by_role("region", name="The decision"))
    assert re.search(r"Recommended: answer.prompt=cited.md\S* answer.model=medium answer.temperature=0 ", card)
    interval = re.search(rf"contains {best:.3f}, 95% interval from (\S+) to (\S+) cost per answer \$", card)
    assert interval
    low, high = map(float, interval.groups())
    assert low < best < high
    assert "Ties with 3 others; this is the cheapest." in card
    walk = desk.walk()
    printed = " ".join(walk.wtb("matrix", "helpdesk").stdout.split())
    assert f"answer.temperature=0 (contains {best:.3f}, 95% interval from {low:.3f} to {high:.3f}" in printed


def test_2_which_factor_matters(desk: Desk) -> None:
    whole = mean(COMBINATIONS)

    def spread(place: int) -> float:
        levels = {combination[place] for combination in COMBINATIONS}
        return sum(
            (mean([combination for combination in COMBINATIONS if combination[place] == level]) - whole) ** 2
            for level in levels
        ) / len(levels)

    spreads = [spread(1), spread(0), spread(2)]
    all_of_it = sum((mean([combination]) - whole) ** 2 for combination in COMBINATIONS) / len(COMBINATIONS)
    page, walk = opened(desk), desk.walk()
    walk.click(page.get_by_role("link", name="Effects", exact=True))
    page.get_by_role("heading", name="Each factor by itself").wait_for()
    rows = page.locator("section table").first.locator("tbody tr")
    factors = [text.split()[:2] for text in rows.all_inner_texts() if text.startswith("answer.")]
    assert [name for name, _ in factors] == ["answer.model", "answer.prompt", "answer.temperature"]
    for (_, share), expected in zip(factors, spreads, strict=True):
        assert float(share.strip("<%")) == pytest.approx(100 * expected / all_of_it, abs=3)


def test_3_why_cells_failed(desk: Desk) -> None:
    page, walk = opened(desk), desk.walk()
    walk.click(page.get_by_role("link", name="Failures", exact=True))
    page.get_by_text("12 × answer BadRequestError").wait_for()
    text = words(page.locator("main"))
    assert f"maximum context length is {helpdesk.ROOM} characters" in text
    assert "6 × answer RuntimeError" in text
    assert "the answer was cut off" in text
    listed = page.get_by_role("list", name="Cases").first
    assert set(helpdesk.LONG) == set(listed.get_by_role("link").all_inner_texts()), "every ticket, not an example"
    desk.site.check_readable(page)
    page.set_viewport_size({"width": 390, "height": 900})
    desk.site.check_readable(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1280, "height": 900})
    walk.click(page.get_by_role("link", name="12 failed: show them").last)
    page.get_by_text("2 cases", exact=True).wait_for()
    assert set(helpdesk.LONG) == set(page.locator(".outputs .case b").all_inner_texts())
    columns = page.locator(".outputs .head-cell").all_inner_texts()
    assert columns
    assert all("small" in column for column in columns)
    page.go_back()
    ticket = page.get_by_role("list", name="Cases").first.get_by_role("link").first
    case = ticket.inner_text()
    ticket.click()
    page.wait_for_url("**/executions/*")
    page.get_by_role("heading", level=1).get_by_text(case).wait_for()
    page.get_by_text("maximum context length").first.wait_for()


def test_4_the_worst_case_with_prompt_reply_tokens_and_cost(desk: Desk) -> None:
    right = {ticket["ID"]: sum(solves(ticket, *each) for each in COMBINATIONS) for ticket in TICKETS}
    worst = {id for id, count in right.items() if count == min(right.values())}
    page, walk = opened(desk), desk.walk()
    walk.click(page.get_by_role("link", name="Worst cases first"))
    page.locator(".outputs .figures").first.wait_for()
    walk.press(page, "Enter")
    walk.click(page.get_by_role("dialog").get_by_role("link", name="How it came to that"))
    page.get_by_role("heading", level=1).get_by_text(" · answer.prompt=cited.md").wait_for()
    title = words(page.get_by_role("heading", level=1))
    ticket = next(ticket for ticket in TICKETS if ticket["ID"] == title.split()[0])
    assert ticket["ID"] in worst
    call = page.get_by_role("region", name="Model calls")
    call.wait_for()
    call_text = call.inner_text()
    reply = "I am sorry, I could not find that."
    for text in (*helpdesk.PROMPTS["cited"].splitlines(), f"Ticket: {ticket['Ticket']}", reply):
        assert text in call_text
    lines = call_text[call_text.index("user") : call_text.index("Ticket: ")].splitlines()
    articles = "\n".join(line for line in lines if ": " in line)
    sent = (len(helpdesk.PROMPTS["cited"]) + len(f"{articles}\n\nTicket: {ticket['Ticket']}")) // 4
    assert f"{sent} → {len(reply) // 4} tokens" in call_text
    assert f"${cost(ticket, 'cited', 'medium', articles, reply):.5f}" in call_text
    assert ticket["Expected Answer"] in words(page.get_by_role("region", name="Case"))
    desk.site.check_readable(page)


def test_4_cases_that_every_combination_gets_wrong_or_none(desk: Desk) -> None:
    right = {ticket["ID"]: sum(solves(ticket, *each) for each in COMBINATIONS) for ticket in TICKETS}
    expected = {
        "all": {id for id, count in right.items() if count == 0},
        "none": {id for id, count in right.items() if count == len(COMBINATIONS)},
    }
    assert all(expected.values())
    for which, ids in expected.items():
        document = desk.project.inside(
            "show", "helpdesk", "--wrong", which, "--row", "0", "--limit", "100", "-f", "json", check=0
        ).json
        assert {case["case"] for case in document["cases"]} == ids, "of the sweep, whichever rows are shown"
        assert document["total"] == len(ids)
    page, walk = opened(desk), desk.walk()
    walk.click(page.get_by_role("link", name="Outputs", exact=True))
    choice = page.get_by_role("combobox", name="Wrong")
    choice.locator("option").get_by_text(f"in all combinations ({len(expected['all'])})").wait_for(state="attached")
    choice.locator("option").get_by_text(f"in none ({len(expected['none'])})").wait_for(state="attached")
    walk.choose(choice, f"in all combinations ({len(expected['all'])})")
    page.get_by_text(f"{len(expected['all'])} case", exact=len(expected["all"]) == 1).first.wait_for()
    page.wait_for_url("**wrong=all*")
    page.locator(".outputs .figures").first.wait_for()
    assert set(page.locator(".outputs .case b").all_inner_texts()) <= expected["all"]
    desk.site.check_readable(page)
    page.set_viewport_size({"width": 390, "height": 900})
    desk.site.check_readable(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_5_what_differs_between_two_combinations(desk: Desk) -> None:
    pair = ("plain", "medium", 0), ("plain", "small", 0)
    differ = [(solves(ticket, *pair[0]), solves(ticket, *pair[1])) for ticket in TICKETS]
    wins, losses = differ.count((True, False)), differ.count((False, True))
    page, walk = opened(desk), desk.walk()
    walk.click(page.get_by_role("link", name="Compare two rows over all cases"))
    first, second = (page.locator("main .rows select").nth(place) for place in (0, 1))
    first.locator("option").last.wait_for(state="attached")
    names = first.locator("option").all_inner_texts()
    assert len(names) == len(COMBINATIONS)
    pair_names = [
        next(name for name in names if f"{prompt}.md" in name and f"={model} " in name and name.endswith(f"={heat}"))
        for prompt, model, heat in pair
    ]
    walk.choose(first, pair_names[0])
    walk.choose(second, pair_names[1])
    page.get_by_text(
        f"The first row wins {wins} of {len(TICKETS)} cases, loses {losses} and ties in {len(TICKETS) - wins - losses}."
    ).wait_for()
    beside = page.locator(".case-beside").first
    beside.get_by_text("Expected").wait_for()


def test_6_which_cheap_combination_is_good_enough(desk: Desk) -> None:
    page, walk = opened(desk), desk.walk()
    walk.click(page.get_by_label("Only shown to be within 0.1 of the best"))
    rows = page.locator("main table").first.locator("tbody tr")
    wait_until(page, f"document.querySelectorAll('main table')[0].querySelectorAll('tbody tr').length < {18}")
    texts = [re.sub(r"\s+", " ", text) for text in rows.all_inner_texts()]
    assert len(texts) == 4
    assert all("cited.md" in text and "≤ 0.09" in text for text in texts)
    assert not any(" small " in text for text in texts)
    costs = {text: float(re.search(r"\$([\d.]+)", text)[1]) for text in texts}  # type: ignore[index]
    cheapest = min(costs, key=lambda text: costs[text])
    assert " medium " in cheapest
    assert max(costs.values()) > 3.9 * costs[cheapest]


def test_7_what_the_whole_sweep_will_cost(desk: Desk, copy: Project) -> None:
    spent = desk.project.inside("status", "helpdesk", "--format", "json", check=0).json["cost"]["usd"]
    walk = Walk(copy)
    pilot = walk.wtb("pilot", "helpdesk.yaml", "--cases", "6", "--format", "json").json["pilot"]
    usd = pilot["estimate"]["usd"]
    assert usd["low"] < spent < usd["high"]
    assert usd["expected"] == pytest.approx(spent, rel=0.25)


def test_8_more_cases_without_running_the_others_again(copy: Project) -> None:
    before = copy.inside("status", "helpdesk", "--format", "json", check=0).json
    walk = Walk(copy)
    output = walk.wtb("extend", "helpdesk", "--cases", "more.csv", "--quiet", check=1)
    after = copy.inside("status", "helpdesk", "--format", "json", check=0).json
    assert after["cells"]["total"] - before["cells"]["total"] == 12 * len(COMBINATIONS)
    assert after["node_runs"]["executed"] - before["node_runs"]["executed"] == 12 + 12 * len(COMBINATIONS)
    assert " 72 " in output.stdout, "cases of the matrix that it prints"


def test_9_failed_cells_run_again(copy: Project) -> None:
    before = copy.inside("status", "helpdesk", "--format", "json", check=0).json["cells"]
    assert before["failed"] == 18
    walk = Walk(copy)
    walk.wtb("retry", "helpdesk", "--failed", "--quiet", check=1)
    after = copy.inside("status", "helpdesk", "--format", "json", check=0).json
    assert after["cells"]["failed"] == 12, "those for which the model has no room fail again"
    assert after["cells"]["succeeded"] == before["succeeded"] + 6


def test_9_failed_cells_run_again_at_the_press_of_a_button(copy: Project, browser: Browser) -> None:
    before = copy.inside("status", "helpdesk", "--format", "json", check=0).json["cells"]
    with served(copy, browser) as site:  # it imports no code
        page = site.open("/sweeps/helpdesk")
        page.get_by_text("18 cells failed: wtb retry").wait_for()
        assert page.get_by_role("button", name="Retry failed").count() == 0
        site.close()
    with served(copy, browser, "--run") as site:
        page = site.open("/sweeps/helpdesk")
        button = page.get_by_role("button", name="Retry failed")
        button.wait_for()
        assert page.get_by_text("wtb retry").count() == 0, "the button does it"
        site.check_readable(page)
        page.once("dialog", lambda dialog: dialog.dismiss())
        button.click()
        assert copy.inside("status", "helpdesk", "--format", "json", check=0).json["cells"] == before
        dialogs: list[str] = []
        page.once("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.accept()))
        button.click()
        page.get_by_text("12 failed: show them").first.wait_for()
        page.get_by_role("button", name="Retry failed").wait_for()
        assert dialogs[0].startswith("Run 18 cells again")
        after = copy.inside("status", "helpdesk", "--format", "json", check=0).json["cells"]
        assert (after["failed"], after["succeeded"]) == (12, before["succeeded"] + 6)
        reader = copy.inside("admin", "token", "create", "reader", "--scope", "read", check=0).stdout.strip()
        page = site.open("/sweeps/helpdesk", token=reader)
        page.get_by_text("12 cells failed").first.wait_for()
        assert page.get_by_role("button", name="Retry failed").count() == 0
        site.close()
        assert not site.faults


def test_10_a_sweep_every_night_with_an_alert(desk: Desk, nights: list[str], copy: Project) -> None:
    walk = Walk(copy)
    stdout = walk.wtb(
        *("schedule", "add", "morning", "nightly.yaml", "--cron", "0 6 * * *", "--tz", "Europe/Berlin"),
        *("--baseline", "main", "--notify", "./alert.sh"),
    ).stdout
    assert "At 06:00 every day (Europe/Berlin), first 20" in stdout
    (alert,) = [json.loads(line) for line in (desk.project.folder / "alerts.jsonl").read_text().splitlines()]
    assert alert["text"].startswith("nightly worse than the last good run")
    assert alert["sweep"] == nights[1]


def test_11_what_a_pull_request_changes(nights: list[str], copy: Project) -> None:
    (copy.folder / "search.py").write_text(helpdesk.WORSE_SEARCH, "utf-8")
    walk = Walk(copy)
    comment = walk.wtb("regress", "nightly.yaml", "--baseline", "main", "--format", "md", "--quiet", check=1).stdout
    right = mean([("cited", "medium", 0)])
    assert "worse" in comment.splitlines()[0].lower()
    assert f"from {right:.4g}" in comment
    assert "search:words" in comment


def test_12_a_colleague_without_access_gets_a_file(desk: Desk, tmp_path: Path) -> None:
    page, walk = opened(desk), desk.walk()
    with page.expect_download() as download:
        walk.click(page.get_by_role("link", name="Save as one file"))
    file = tmp_path / "helpdesk.html"
    download.value.save_as(file)
    context = desk.site.browser.new_context(offline=True)
    alone = context.new_page()
    alone.goto(file.as_uri())
    text = words(alone.locator("body"))
    assert "answer.model=medium" in text
    assert f"{mean([('cited', 'medium', 0)]):.3f}" in text
    context.close()


def test_13_why_the_last_night_is_worse(desk: Desk, nights: list[str]) -> None:
    page, walk = opened(desk, f"/sweeps/{nights[1]}"), desk.walk()
    right = mean([("cited", "medium", 0)])
    card = words(page.get_by_role("region", name="The decision"))
    assert sentence("{} in this run: {}", "fell", f"{right:.3f} ->") in card
    assert "first differs at retrieve; search:words changed" in card
    walk.click(page.get_by_role("link", name="Compare with the baseline"))
    page.get_by_text("search:words").wait_for()
    walk.click(page.get_by_role("link", name="compare").first)
    page.get_by_role("heading", level=1).get_by_text(" and ").wait_for()
    text = words(page.locator("main"))
    assert "They differ from step 1 on: the code of this step was changed." in text
    assert "articles" in text


def test_14_a_person_approves_a_step(desk: Desk) -> None:
    page, walk = opened(desk), desk.walk()
    walk.click(page.get_by_role("link", name=re.compile("Inbox")))
    page.get_by_text("Send the refund of 40 EUR?").wait_for()
    walk.click(page.get_by_role("button", name=re.compile("^send")))

    def sent() -> Any:
        document = desk.project.inside("show", "refund", "--format", "json", check=0).json
        return document["execution"]["status"] == "completed" and document["state"].get("sent")

    assert desk.project.until(sent, "the refund was sent")


def test_15_one_bad_combination_is_stopped(desk: Desk, copy: Project, browser: Browser) -> None:
    bad = "terse.md"
    desk.provider.calls_left = 10 * len(COMBINATIONS)
    with copy.start("run", "slow.yaml", "--quiet") as running, served(copy, browser) as site:
        copy.until(lambda: copy.query("SELECT 1 FROM sweeps WHERE name = 'slow'"), "the sweep is there")
        page, walk = site.open("/sweeps/slow"), Walk(copy)
        choice = page.get_by_label("Stop a combination; the others go on")
        choice.locator("option").nth(len(COMBINATIONS) - 1).wait_for(state="attached")
        option = next(
            text
            for text in choice.locator("option").all_inner_texts()
            if bad in text and "small" in text and "0.7" in text
        )
        walk.choose(choice, option)
        walk.click(page.get_by_role("button", name="Stop it"))
        page.locator("main table .tag").get_by_text("stopped by").wait_for()
        desk.provider.is_open.set()
        running.wait(1)
        site.close()
    matrix = copy.inside("matrix", "slow", "--format", "json", check=0).json
    (stopped,) = [row for row in matrix["rows"] if row.get("stopped")]
    assert bad in json.dumps(stopped["combination"])
    assert stopped["metrics"]["contains"]["n"] < len(TICKETS)
    running_rows = [row for row in matrix["rows"] if not row.get("stopped")]
    assert {row["metrics"]["contains"]["n"] for row in running_rows} == {len(TICKETS)}


def test_16_cells_as_a_data_frame(desk: Desk, tmp_path: Path) -> None:
    import pandas

    walk = desk.walk()
    walk.wtb(
        "show", "helpdesk", "--cells", "--format", "csv", "--key", "articles", "--output", str(tmp_path / "cells.csv")
    )
    frame = pandas.read_csv(tmp_path / "cells.csv")
    assert len(frame) == len(TICKETS) * len(COMBINATIONS)
    means = frame.groupby("answer.model")["contains.counted"].mean()
    for model in MODELS:
        assert means[model] == pytest.approx(
            mean([combination for combination in COMBINATIONS if combination[1] == model])
        )
    assert json.loads(frame["articles"].dropna().iloc[0])

"""A new sweep on a page, from files that people have: dropped, mapped, varied by factors, tried and submitted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.hosting.api.serving import Server
from tests.hosting.client.sending import Sending, submitted, until_it_is
from tests.hosting.pages.site import Site
from tests.planning.test_workbooks import book
from tests.support.cluster import Cluster
from tests.support.project import Project
from tests.support.prose import sentence

if TYPE_CHECKING:
    from playwright.sync_api import Page

HELPDESK = '''
from typing import Literal, TypedDict

from wtb import Workflow, evaluator

PROMPT = """You are a helpful assistant.
Answer in one word."""


class State(TypedDict, total=False):
    question: str
    docs: list[str]
    answer: str


wf = Workflow("helpdesk", state=State)


@wf.node
def retrieve(state, *, k: int = 3, rerank: bool = False):
    return {"docs": [state["question"]] * k}


@wf.node
def answer(state, *, prompt: str = PROMPT, model: Literal["mini", "large"] = "mini", temperature: float = 0.0):
    found = {"answer": f"{model} {temperature} {prompt} {state['question']}"}
    return found


@wf.node
def publish(state):
    return {}


wf.entry(retrieve)
wf.edge(retrieve, answer)
wf.edge(answer, publish)


@evaluator(better="higher", scale=(0, 1))
def polite(case, result, *, word: str = "please"):
    return float(word in result.state["answer"])
'''

SHEET = [
    ["ID", "Question ", "Expected Answer", "Area"],
    ["q1", "What is the capital of France?", "Paris", "geography"],
    [None, None, None, None],
    ["q2", "What is 2 + 2?", 4, "maths"],
]


@pytest.fixture(scope="module")
def sending(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sending]:
    project = module_cluster.project
    project.write({"helpdesk.py": HELPDESK})
    project.write({"wtb.toml": "[workflows]\nhelpdesk = 'helpdesk:wf'\n[publish]\nevaluators = ['helpdesk:polite']\n"})
    module_cluster.start_scheduler()
    module_cluster.start_worker(concurrency=2)
    server = Server(project)
    server.start(module_cluster.env)
    laptop = Project(tmp_path_factory.mktemp("laptop"))
    sending = Sending(module_cluster, server, laptop)
    published = ("workflow", "list", "--format", "json", "--published")
    module_cluster.until(lambda: sending.wtb(*published).json["evaluators"], "it is published")
    yield sending
    server.kill()
    laptop.close()


def drop(page: Page, *files: tuple[str, bytes], size: int | None = None) -> None:
    """Drop files on the field of cases. size: that the file has, of zeros."""
    target = page.get_by_role("group", name="Cases", exact=True)
    uploads = [[name, list(content)] for name, content in files]
    script = """([files, size]) => {
        const transfer = new DataTransfer();
        for (const [name, bytes] of files) {
            transfer.items.add(new File([size ? new Uint8Array(size) : new Uint8Array(bytes)], name));
        }
        return transfer;
    }"""
    transfer = page.evaluate_handle(script, [uploads, size])
    for event in ("dragover", "drop"):
        target.dispatch_event(event, {"dataTransfer": transfer})


def test_a_spreadsheet_is_dropped_mapped_and_submitted_with_factors(
    sending: Sending, site: Site, tmp_path: Path
) -> None:
    page = site.open("/submit?workflow=helpdesk")
    drop(page, ("helpdesk cases.xlsx", book(tmp_path / "c.xlsx", SHEET).read_bytes()))
    page.get_by_text("2 cases, 1 blank row skipped").wait_for()
    expected = page.get_by_label("Column Expected Answer is read as")
    assert expected.input_value() == "expected", "it is offered"
    assert page.get_by_label("Column Area is read as").input_value() == "ignore"
    page.get_by_label("Column Area is read as").select_option("tags")
    page.get_by_text("suggested").nth(1).wait_for(state="detached")
    prompts = page.get_by_role("group", name="answer", exact=True)
    prompts.get_by_role("button", name="Vary prompt").click()
    assert prompts.get_by_label("Level 1 of prompt", exact=True).input_value().endswith("Answer in one word."), (
        "the current one"
    )
    prompts.get_by_role("button", name="Add a level prompt").click()
    prompts.get_by_label("Level 2 of prompt", exact=True).fill("Be kind.\n\nSay please.")
    prompts.get_by_role("button", name="Vary model").click()
    prompts.get_by_label("large").check()
    prompts.get_by_role("button", name="Vary temperature").click()
    prompts.get_by_label("Levels of temperature").fill("0\n0.7")
    page.get_by_text("2 × 2 × 2 = 8 combinations").wait_for()
    pick = page.get_by_label("Add an evaluator")
    pick.select_option("contains")
    page.get_by_role("group", name="contains", exact=True).get_by_label("field").fill("answer")
    pick.select_option("helpdesk:polite")
    page.get_by_role("group", name="helpdesk:polite").get_by_label("word").fill("kind")
    page.get_by_role("button", name="Submit 16 cells").wait_for()
    site.check_readable(page)
    for width in (390, 360, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("button", name="Submit 16 cells").click()
    page.wait_for_url("**/sweeps/*")
    sweep = page.url.rsplit("/", 1)[1]
    sending.cluster.wait_completed(sweep)
    document = sending.wtb("show", sweep, "--format", "json").json
    assert document["definition"]["cases"] == 2
    assert document["definition"]["evaluate"] == [
        {"contains": {"field": "answer"}},
        {"helpdesk:polite": {"word": "kind"}},
    ]
    cells = sending.wtb("show", sweep, "--cells", "--format", "json").json["cells"]
    assert len(cells) == 16
    assert {cell["status"] for cell in cells} == {"succeeded"}
    params = [variant["params"] for variant in document["definition"]["variants"]["answer"].values()]
    assert {param["prompt"] for param in params} >= {"Be kind.\n\nSay please."}
    assert {param["temperature"] for param in params} == {0, 0.7}


def test_numbers_are_sent_as_they_were_typed(sending: Sending, site: Site) -> None:
    """1 and 1.0 are different levels."""
    page = site.open("/submit?workflow=helpdesk")
    page.get_by_label("Cases, each").fill('{"id": "q", "input": {"question": "why?"}}')
    nodes = page.get_by_role("group", name="answer", exact=True)
    nodes.get_by_role("button", name="Vary temperature").click()
    levels = nodes.get_by_label("Levels of temperature")
    assert levels.input_value() == "0.0", "as the workflow has it"
    levels.fill("1\n1.0\n2.50")
    page.get_by_role("button", name="Submit 3 cells").click()
    page.wait_for_url("**/sweeps/*")
    sweep = page.url.rsplit("/", 1)[1]
    sending.cluster.wait_completed(sweep)
    variants = sending.wtb("show", sweep, "--format", "json").json["definition"]["variants"]["answer"].values()
    values = [variant["params"]["temperature"] for variant in variants]
    assert values == [1, 1.0, 2.5]
    assert [type(number) for number in values] == [int, float, float]
    cells = sending.wtb("show", sweep, "--cells", "--format", "json").json["cells"]
    page = site.open(f"/executions/{cells[1]['execution']}")
    page.locator(".steps summary").first.click()
    page.get_by_role("button", name="What if").click()
    field = page.get_by_role("group", name="answer", exact=True).get_by_label("temperature")
    assert field.input_value() == "1.0", "as the cell ran"
    field.fill("2.0")
    page.get_by_role("button", name="Run it for this case").click()
    page.wait_for_url(lambda url: not url.endswith(cells[1]["execution"]))
    page.get_by_role("heading", level=1).get_by_text("temperature=2.0").wait_for()


@pytest.mark.parametrize(
    ("name", "content", "size", "problem"),
    [
        (
            "cat.png",
            b"\x89PNG\r\n\x1a\n",
            None,
            sentence("{} is no file of cases; expected a name that ends with {}", "cat.png", ".csv"),
        ),
        ("cat.csv", b"\x89PNG\r\n\x1a\n....", None, "cat.csv: a PNG picture; expected a table as text in UTF-8"),
        ("paper.xlsx", b"%PDF-1.7 ...", None, sentence("{}; expected an XLSX workbook", "paper.xlsx: a PDF document")),
        ("none.csv", b"", None, sentence("{} is empty; expected at least one case", "none.csv")),
        ("large.csv", b"", 50_000_000, sentence("{} has {}; expected at most {}", "large.csv", "50 MB", "32 MB")),
        ("half.jsonl", b'{"input": {"question": "a"}}\n{', None, "half.jsonl:2: not JSON"),
        ("typo.csv", b"question,question\na,b\n", None, sentence("column {} a second time", "'question'")),
    ],
)
def test_a_dropped_file_that_is_no_table_is_refused_in_words(
    site: Site, name: str, content: bytes, size: int | None, problem: str
) -> None:
    page = site.open("/submit?workflow=helpdesk")
    page.get_by_text("There are no cases yet").wait_for()
    drop(page, (name, content), size=size)
    page.get_by_role("alert").get_by_text(problem).wait_for()
    assert page.get_by_role("button", name="Submit").is_disabled()
    page.get_by_role("button", name="Remove the file").click()
    page.get_by_role("alert").wait_for(state="detached")


def test_several_files_are_one_too_many_and_the_page_stays_where_it_is(site: Site) -> None:
    page = site.open("/submit?workflow=helpdesk")
    page.get_by_text("There are no cases yet").wait_for()
    drop(page, ("a.csv", b"question\na\n"), ("b.csv", b"question\nb\n"))
    page.get_by_role("alert").get_by_text("Several files were dropped").wait_for()
    stopped = page.evaluate("!document.body.dispatchEvent(new DragEvent('drop', {bubbles: true, cancelable: true}))")
    assert stopped, "a browser would open a file that is dropped beside the field"


def test_cases_are_pasted_as_a_table_and_the_example_has_only_what_a_case_needs(site: Site) -> None:
    page = site.open("/submit?workflow=helpdesk", dark=True, width=390)
    text = page.get_by_label("Cases, each a line of JSON, or a table")
    example = json.loads(str(text.get_attribute("placeholder")))
    assert list(example["input"]) == ["question"], "nodes write the other keys"
    page.get_by_role("button", name="Fill in an example").click()
    page.get_by_text("pasted.jsonl: 1 case").wait_for()
    page.get_by_role("button", name="Submit 1 cell").wait_for()
    text.fill("Question\tExpected\nWhat?\tThat\nWho?\tShe")
    page.get_by_text("pasted.csv: 2 cases").wait_for()
    page.get_by_role("button", name="Submit 2 cells").wait_for()
    site.check_readable(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_levels_are_checked_before_anything_starts(sending: Sending, site: Site) -> None:
    page = site.open("/submit?workflow=helpdesk")
    page.get_by_role("button", name="Fill in an example").click()
    page.get_by_role("button", name="Submit 1 cell").wait_for()
    before = sending.cluster.scalar("SELECT count(*) FROM sweeps")
    node = page.get_by_role("group", name="retrieve", exact=True)
    node.get_by_role("button", name="Vary k").click()
    levels = node.get_by_label("Levels of k")
    assert levels.input_value() == "3"
    for typed, problem in (
        ("3\nmany", "k: “many” is no int"),
        ("3\n3", "retrieve.k: level “3” a second time"),
        ("3\n0.5", "0.5"),
    ):
        levels.fill(typed)
        page.get_by_role("alert").get_by_text(problem).first.wait_for()
        assert page.get_by_role("button", name="Submit").is_disabled()
    node.get_by_role("button", name="Keep as it is k").click()
    prompt = page.get_by_role("group", name="answer", exact=True)
    prompt.get_by_role("button", name="Vary prompt").click()
    prompt.get_by_label("Level 1 of prompt", exact=True).fill("file:///etc/passwd")
    page.get_by_role("alert").get_by_text("names a file, which the server does not read").wait_for()
    assert sending.cluster.scalar("SELECT count(*) FROM sweeps") == before


def test_an_evaluator_is_tried_on_an_output_of_a_case(site: Site) -> None:
    page = site.open("/submit?workflow=helpdesk")
    drop(page, ("c.csv", b"question,expected\nWhat is the capital of France?,Paris\n"))
    page.get_by_text("1 case", exact=False).first.wait_for()
    pick = page.get_by_label("Add an evaluator")
    pick.select_option("exact_match")
    match = page.get_by_role("group", name="exact_match", exact=True)
    match.get_by_label("field").fill("answer")
    match.get_by_text("Try it on an output").click()
    output = match.get_by_label("Output, the key answer of the final state")
    assert output.input_value() == "Paris", "the expected value of the first case"
    output.fill("paris")
    match.get_by_role("button", name="Score it").click()
    match.get_by_role("status").get_by_text("0.000").wait_for()
    match.get_by_label("ignore_case").select_option("true")
    match.get_by_role("button", name="Score it").click()
    match.get_by_role("status").get_by_text("1.000").wait_for()
    pick.select_option("regex")
    regex = page.get_by_role("group", name="regex", exact=True)
    regex.get_by_label("field").fill("answer")
    regex.get_by_label("pattern").fill("(a+)+$")
    regex.get_by_text("Try it on an output").click()
    regex.get_by_label("Output, the key answer of the final state").fill("a" * 60 + "b")
    regex.get_by_role("button", name="Score it").click()
    regex.get_by_role("alert").get_by_text("still searching").wait_for()
    pick.select_option("embedding_similarity")
    judged = page.get_by_role("group", name="embedding_similarity", exact=True)
    judged.get_by_label("field").fill("answer")
    judged.get_by_text("Try it on an output").click()
    judged.get_by_role("button", name="Score it").click()
    judged.get_by_text("Not tried: it takes a model").wait_for()
    pick.select_option("helpdesk:polite")
    own = page.get_by_role("group", name="helpdesk:polite")
    own.get_by_text("Your own evaluators run on workers").wait_for()
    site.check_readable(page)


def test_a_sweep_is_made_with_the_keyboard_alone(site: Site) -> None:
    page = site.open("/submit?workflow=helpdesk")
    page.get_by_label("Cases, each a line of JSON, or a table").focus()
    page.keyboard.type("question\nWhat?")
    page.get_by_text("pasted.csv: 1 case").wait_for()
    page.get_by_role("button", name="Vary rerank").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Submit 2 cells").wait_for()
    page.get_by_role("button", name="Submit 2 cells").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/sweeps/*")


def test_what_if_offers_the_prompt_that_ran_first(sending: Sending, site: Site) -> None:
    keys: dict[str, Any] = {
        "sweep": "what if",
        "workflow": "helpdesk",
        "vary": {"answer": {"prompt": ["Short.", "Long:\nplease"]}},
        "cases": [{"id": "a", "input": {"question": "Why?"}}, {"id": "b", "input": {"question": "Who?"}}],
        "evaluate": [{"contains": {"field": "answer", "text": "please"}}],
    }
    swept = submitted(sending, keys)
    cells = sending.wtb("show", swept, "--cells", "--case", "a", "--format", "json").json["cells"]
    cell = next(cell for cell in cells if "Long" in cell["combination"]["answer"])
    page = site.open(f"/executions/{cell['execution']}")
    step = page.locator(".steps > li", has_text="answer").first
    step.locator("summary").first.click()
    step.get_by_role("button", name="What if").click()
    first = step.get_by_role("group").first
    box = first.get_by_label("prompt")
    assert box.input_value() == "Long:\nplease", "what this combination ran with"
    assert box.evaluate("one => one.tagName") == "TEXTAREA"
    assert not step.get_by_label("question").is_visible(), "values of the state are folded"
    box.fill("Shorter, please.\nAt once.")
    first.get_by_label("model").select_option(label="large")
    site.check_readable(page)
    step.get_by_role("button", name="Run it for every case").click()
    page.wait_for_url(f"**/sweeps/{swept}")
    sending.cluster.wait_completed(swept)
    rows = sending.wtb("matrix", swept, "--format", "json").json["rows"]
    names = [row["combination"]["answer"] for row in rows]
    assert len(names) == 3
    assert "model=large" in names[2]
    assert names[2].startswith("prompt=Shorter-please"), "a point of the factors, as a sweep would name it"
    page.go_back()
    step = page.locator(".steps > li", has_text="answer").first
    step.locator("summary").first.click()
    step.get_by_role("button", name="What if").click()
    step.get_by_text("Other values in the state").click()
    step.get_by_label("question").fill("When?")
    step.get_by_role("button", name="Run it for this case").click()
    page.wait_for_url(lambda url: not url.endswith(cell["execution"]))
    fork = page.url.rsplit("/", 1)[1]
    until_it_is(sending, fork, "completed")
    assert sending.wtb("show", fork, "--format", "json").json["state"]["answer"] == "mini 0.0 Long:\nplease When?"


def test_a_server_reads_files_of_cases_for_clients_and_checks_permissions(
    sending: Sending, site: Site, tmp_path: Path
) -> None:
    file = book(tmp_path / "cases.xlsx", SHEET)
    document = sending.wtb("cases", str(file), "--workflow", "helpdesk", "--format", "json").json
    assert (document["cases"], document["mapping"]["expected"]) == (2, "Expected Answer")
    status, _, problem = sending.post("/case-files", {"cases": str(file), "workflow": "helpdesk"})
    assert (status, sentence("files of this machine are not read") in problem["detail"]) == (400, True)
    (tmp_path / "large.csv").write_bytes(b"question\n" + b"x" * 32_000_001)
    stderr = sending.wtb("cases", str(tmp_path / "large.csv"), check=2).output
    assert sentence("more than {} bytes", "32,000,000") in stderr
    stdout = sending.wtb("try", '{"contains": {"field": "a"}}', "--state", '{"a": "yes"}', "--expected", "yes").stdout
    assert stdout == "contains: 1 on a scale from 0 to 1\n"

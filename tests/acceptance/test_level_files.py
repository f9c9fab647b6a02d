"""Files as levels wherever a parameter may stand: the client reads them, and they have one identity."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import wtb
from tests.acceptance.test_factors_sweep import APP, BENCH
from tests.support.project import Project, forget_modules_of
from tests.support.prose import sentence
from wtb.core.errors import InputError
from wtb.operations.context import open_context
from wtb.operations.control.forks import fork
from wtb.operations.running.added_rows import add_row
from wtb.operations.running.extending import extend, plan_extension
from wtb.store.read import queries

SWEEP = """\
workflow: bench:wf
cases: [{id: a, input: {question: "returns?"}}, {id: b, input: {question: "hours?"}}]
vary:
  answer.prompt: [file://prompts/plain.md, file://prompts/terse.md]
  answer.model: [mini, large]
"""
CITED = "Answer, and cite the documents.\n"
PROMPTS = {"prompts/plain.md": "Answer it.\n", "prompts/terse.md": "Be terse.\n", "prompts/cited.md": CITED}


@pytest.fixture
def shop(empty_project: Project) -> Project:
    empty_project.write({"app.py": APP, "bench.py": BENCH, "sweep.yaml": SWEEP, **PROMPTS})
    return empty_project


@pytest.fixture
def ran(shop: Project) -> Project:
    shop.inside("run", "sweep.yaml", "--quiet", check=0)
    return shop


@pytest.fixture
def in_project(ran: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The project as the working directory of this process, and its modules for the time of a test."""
    monkeypatch.chdir(ran.folder)
    monkeypatch.syspath_prepend(str(ran.folder))
    yield
    forget_modules_of(ran.folder, list(sys.modules))


def rows_of(project: Project, sweep: str = "sweep") -> list[str]:
    matrix = project.inside("matrix", sweep, "--format", "json").json
    return [row["combination"]["answer"] for row in matrix["rows"]]


def cell_of(project: Project) -> dict[str, Any]:
    cells = project.cells("sweep")
    return next(cell for cell in cells if "terse" in cell["combination"]["answer"])


def as_in_a_sweep_file(project: Project) -> str:
    """The name that the grid point of cited.md has in a sweep whose file has it from the beginning."""
    project.write({"other.yaml": SWEEP.replace("terse", "cited")})
    project.inside("run", "other.yaml", "--quiet", check=0)
    return next(name for name in rows_of(project, "other") if "cited" in name and "mini" in name)


def test_an_added_file_has_the_name_and_the_text_that_it_has_in_a_sweep_file(ran: Project) -> None:
    ran.inside("extend", "sweep", "--vary", "answer.prompt=file://prompts/cited.md", "--quiet", check=0)
    name = as_in_a_sweep_file(ran)
    assert rows_of(ran).count(name) == 1
    assert len(rows_of(ran)) == 6
    outputs = ran.cells("sweep")
    (answer,) = {c["state"]["answer"] for c in outputs if c["combination"]["answer"] == name and c["case"] == "a"}
    assert answer.startswith("Answer, and cite the documents. ")
    compared = ran.inside("compare", "sweep", "other", "--format", "json").json
    assert compared["changed"]["combinations"]["common"] == 4
    assert "files" not in compared["changed"]
    ran.write({"prompts/cited.md": "Cite.\n"})
    ran.inside("run", "other.yaml", "--quiet", check=0)
    after = ran.json("list")["sweeps"][0]["id"]
    (file,) = ran.inside("compare", "sweep", after, "--format", "json").json["changed"]["files"]
    assert (file["path"], file["difference"][-2:]) == ("prompts/cited.md", [f"-{CITED.strip()}", "+Cite."])


@pytest.mark.parametrize("command", ["combination add", "fork"])
def test_a_fork_names_a_file_as_a_sweep_file_does(ran: Project, command: str) -> None:
    cell = cell_of(ran)
    change = ("--at", "retrieve", "--variant", "answer.prompt=file://prompts/cited.md", "--format", "json")
    forked = ran.inside(*command.split(), cell["execution"], *change, check=0).json
    model = "mini" if "mini" in cell["combination"]["answer"] else "large"
    name = as_in_a_sweep_file(ran).replace("mini", model)
    if command != "fork":
        assert forked["choices"]["answer"] == name
        assert name in rows_of(ran)
    else:
        assert forked["execution"]["combinations"][0]["answer"] == name
        rerun = ran.json("combination", "add", forked["execution"]["id"])
        assert rerun["choices"]["answer"] == name  # of the fork, whose text the sweep has by now
    (ran.folder / "prompts/cited.md").unlink()
    cells = ran.cells("sweep")
    answers = {cell["state"]["answer"][:16] for cell in cells if cell["combination"]["answer"] == name}
    assert answers == {"Answer, and cite"}


def test_a_prompt_that_was_edited_is_another_level_than_the_one_of_its_name(ran: Project) -> None:
    edited = "answer.prompt=file://prompts/terse.md"
    same = ran.inside("extend", "sweep", "--vary", edited, "--quiet", check=0)
    assert sentence("nothing new to add") in same.output
    ran.write({"prompts/terse.md": "Be very terse.\n"})
    ran.inside("extend", "sweep", "--vary", edited, "--quiet", check=0)
    names = {name.rpartition("prompt=")[2].partition(",")[0] for name in rows_of(ran)}
    assert len([name for name in names if name.startswith("terse.md#")]) == 2


def test_a_file_of_equal_content_under_another_name_is_rejected(ran: Project) -> None:
    ran.write({"prompts/copy.md": PROMPTS["prompts/terse.md"]})
    failed = ran.inside("extend", "sweep", "--vary", "answer.prompt=file://prompts/copy.md", "--quiet", check=2)
    assert "copy.md#" in failed.stderr
    assert sentence("are equal: the same function with the same parameters") in failed.stderr


def test_a_level_of_a_file_starts_one_input(shop: Project) -> None:
    options = ("--set", "question=why", "--variant", "answer.prompt=file://prompts/cited.md", "--format", "json", "-q")
    document = shop.inside("start", "bench:wf", *options, check=0).json
    assert document["state"]["answer"].startswith("Answer, and cite the documents. ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("extend", "sweep", "--vary"),
        ("extend", "sweep", "--dry-run", "--vary"),
        ("fork", "EXECUTION", "--at", "retrieve", "--variant"),
        ("combination", "add", "EXECUTION", "--at", "retrieve", "--variant"),
        ("start", "bench:wf", "--set", "question=why", "--variant"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_error(ran: Project, arguments: tuple[str, ...]) -> None:
    cell, before = cell_of(ran)["execution"], rows_of(ran)
    command = [cell if argument == "EXECUTION" else argument for argument in arguments]
    for path, problem in {
        "prompts/non.md": "no such file",
        "../x.md": "expected a path within the project",
        "/etc/passwd": "expected a path within the project",
        "prompts/binary.md": "is not UTF-8",
        "prompts/long.md": "expected at most 1,048,576",
        "prompts/out.md": "leads out of",
    }.items():
        (ran.folder / "prompts/binary.md").write_bytes(b"\xff\xfe\x00")
        (ran.folder / "prompts/long.md").write_text("x" * (1024 * 1024 + 1))
        if not (ran.folder / "prompts/out.md").is_symlink():
            (ran.folder / "prompts/out.md").symlink_to("/etc/hostname")
        failed = ran.inside(*command, f"answer.prompt=file://{path}", check=2)
        assert failed.stderr.count("file://") == 1
        assert problem in failed.stderr
        assert f"{command[-1]}: answer.prompt" in failed.stderr
    assert rows_of(ran) == before


def test_handles_in_python_read_files_relative_to_the_working_directory(ran: Project, in_project: None) -> None:
    bench = wtb.open(f"sqlite:///{ran.file}")
    sweep = bench.sweep("sweep")
    levels = {"answer.prompt": ["file://prompts/cited.md"]}
    assert sweep.plan_extension(vary=levels).cells == 4
    assert len(sweep.extend(vary=levels).combinations) == 2
    name = next(name for name in rows_of(ran) if "cited" in name)
    execution = bench.execution(cell_of(ran)["execution"])
    ran.write({"prompts/last.md": "Last.\n"})
    change = {"answer.prompt": "file://prompts/last.md"}
    forked = execution.fork("retrieve", variants=change, run=True)
    assert forked.state["answer"].startswith("Last. ")
    assert execution.fork_all_cases("retrieve", variants=change).choices["answer"].count("last.md#") == 1
    started = bench.start("bench:wf", {"question": "why"}, variants={"answer.prompt": "file://prompts/last.md"})
    assert started.wait().state["answer"].startswith("Last. ")
    for read in (
        lambda bad: sweep.extend(vary={"answer.prompt": [bad]}),
        lambda bad: execution.fork("retrieve", variants={"answer.prompt": bad}),
        lambda bad: execution.fork_all_cases("retrieve", variants={"answer.prompt": bad}),
        lambda bad: bench.start("bench:wf", {"question": "why"}, variants={"answer.prompt": bad}),
    ):
        with pytest.raises(InputError) as raised:
            read("file://prompts/none.md")
        assert len(raised.value.problems) == 1
    assert name.startswith("prompt=cited.md#")


def test_an_operation_reads_no_file_and_rejects_its_name_first(ran: Project) -> None:
    context = open_context(f"sqlite:///{ran.file}")
    before = queries.find_sweep(context.database, "sweep").spec
    secret = "file:///etc/passwd"
    for call in (
        lambda: extend(context, "none", vary={"answer.prompt": [secret, secret]}),
        lambda: plan_extension(context, "none", vary={"answer": [{"name": "x", "prompt": secret}]}),
        lambda: fork(context, "none", variants={"answer.prompt": secret}),
        lambda: add_row(context, "none", variants={"answer.prompt": secret}),
    ):
        with pytest.raises(InputError, match=sentence("which the server does not read")) as raised:
            call()
        assert len(raised.value.problems) == 1
        assert "root:" not in str(raised.value)
    wrong = {"0" * 64: "other"}
    with pytest.raises(InputError, match=sentence("a text with another SHA-256")):
        extend(context, "sweep", vary={"answer.prompt": [f"file://x.md#{'0' * 64}"]}, texts=wrong)
    assert queries.find_sweep(context.database, "sweep").spec == before


def test_a_link_within_the_project_is_read_once_as_what_it_leads_to(shop: Project) -> None:
    current = shop.folder / "prompts/current.md"
    current.symlink_to("terse.md")
    shop.write({"sweep.yaml": SWEEP.replace("terse", "current")})
    shop.inside("run", "sweep.yaml", "--quiet", check=0)
    current.unlink()
    current.symlink_to("cited.md")
    cells = shop.cells("sweep")
    linked = {cell["state"]["answer"][:9] for cell in cells if "current.md#" in cell["combination"]["answer"]}
    assert linked == {"Be terse."}
    ((spec,),) = shop.query("SELECT spec FROM sweeps")
    assert PROMPTS["prompts/terse.md"] in json.loads(spec)["texts"].values()

"""Commands that WTB prints for users to paste: a shell parses them into the intended words."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support.project import Project
from tests.support.prose import sentence
from wtb.core.factors import point_name
from wtb.core.tree.combinations import chosen_in_shell
from wtb.core.values import Json
from wtb.planning.prepare import matching

NAMED = "it's $HOME; `date` (1)"
CODE = f"""\
from wtb import Workflow

wf = Workflow("w")


@wf.node
def answer(state, *, m: str = "a", prompt: str = "p"):
    return {{"y": f"{{m}} {{prompt}}"}}


answer.variant("{NAMED}", m="other")
wf.entry(answer)
"""
LEVELS = [
    *["z, w", "it's", '"quoted"', "$HOME `date` $(id)", "a; b | c & d > e", "*", "~", "\\", "a=b", "line\nline", "#1"],
    *["ü é", "1", "1.5", "true", "null", "[1]", 1, 1.5, True, None, [1, 2], ["a, b"], {"a": 1}, "x" * 300],
]


def words_of(command: str) -> list[str]:
    """Return the words into which a real shell splits a command."""
    done = subprocess.run(["sh", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True, text=True)
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize("level", LEVELS, ids=repr)
def test_options_that_choose_a_combination_choose_only_that(level: Json) -> None:
    levels = {json.dumps(choice): choice for choice in (level, "other", 1, "1", True, "true", None, "null", 1.5, "1.5")}
    every = [{"answer": point_name({"m": m, "prompt": choice})} for m in ("a", "c") for choice in levels.values()]
    options = words_of(chosen_in_shell(every[0]))
    assert options[::2] == ["--combination"] * 2
    filters = dict(text.split("=", 1) for text in options[1::2])
    assert list(filters) == ["answer.m", "answer.prompt"]
    assert matching(every, filters) == [0]


def test_a_stopped_combination_runs_again_by_the_command_that_is_printed(empty_project: Project) -> None:
    grid = {"m": ["a", "c"], "prompt": ["z, w", "it's $HOME"]}
    sweep = {"workflow": "flow:wf", "cases": [{"id": "a", "input": {}}], "vary": {"answer": [grid, NAMED]}}
    empty_project.write({"flow.py": CODE, "s1.json": json.dumps(sweep)})
    empty_project.inside("run", "s1.json", "--break", "before answer", "--quiet")
    for selection, expected in [
        (['answer=m=c, prompt="z, w"'], ["answer.m=c", "answer.prompt=z, w"]),
        (["answer.m=a", "answer.prompt=it's $HOME"], ["answer.m=a", "answer.prompt=it's $HOME"]),
        ([f"answer={NAMED}"], [f"answer={NAMED}"]),
    ]:
        stopped = empty_project.inside("combination", "stop", "s1", *selection, check=0).output
        assert "1 cell skipped" in stopped
        _, *words = words_of(stopped[stopped.index("wtb extend") :].strip())
        assert words[2:] == [word for name in expected for word in ("--combination", name)]
        undone = empty_project.inside(*words, "--no-run", check=0)
        assert sentence("{} of stopped combinations run again", "1 cell") in undone.output


def test_a_name_with_spaces_is_quoted_in_a_command(empty_project: Project) -> None:
    sweep = {"workflow": "flow:wf", "cases": [{"id": "a", "input": {}}], "vary": {"answer": "all"}}
    empty_project.write({"flow.py": CODE, "s1.json": json.dumps(sweep)})
    empty_project.inside("run", "s1.json", "--quiet", check=0)
    failed = empty_project.inside("baseline", "show", "every night", check=2).stderr
    assert sentence("`wtb baseline set {} SWEEP`", "'every night'") in failed


def test_errors_quote_names_with_commas_and_count_those_that_they_leave_out(empty_project: Project) -> None:
    grid = {"m": ["a", "c"], "prompt": ["one", "two", "three", "z, w"]}
    sweep = {"workflow": "flow:wf", "cases": [{"id": "a", "input": {}}], "vary": {"answer": grid}}
    empty_project.write({"flow.py": CODE, "s1.json": json.dumps(sweep)})
    empty_project.inside("run", "s1.json", "--quiet", check=0)
    extended = empty_project.inside("extend", "s1", "--vary", "answer=boom", check=2).stderr
    assert "'m=a, prompt=one', 'm=a, prompt=two', " in extended
    assert extended.strip().endswith(" more)")
    row = empty_project.inside("compare", "s1", "--row", "answer=c", "--other", "0", check=2).stderr
    assert sentence("did you mean '{}={}'?", "answer.m", "c") in row
    row = empty_project.inside("compare", "s1", "--row", "answer=three", "--other", "0", check=2).stderr
    assert "did you mean 'answer.prompt=three'?" in row
    row = empty_project.inside("compare", "s1", "--row", "answer=huge", "--other", "0", check=2).stderr
    assert row.count("'m=") == 5
    assert row.strip().endswith("and 3 more")


@pytest.mark.parametrize("level", ["mini", 3, True])
def test_a_single_level_is_answered_with_a_list(empty_project: Project, level: Json) -> None:
    sweep = {"workflow": "flow:wf", "cases": [{"id": "a", "input": {}}], "vary": {"answer.m": level}}
    empty_project.write({"flow.py": CODE, "s1.json": json.dumps(sweep)})
    failed = empty_project.inside("plan", "s1.json", check=2).stderr
    assert sentence("expected a list of levels") in failed
    assert "'answer.m'" in failed
    if level == "mini":
        assert (
            sentence("{}; expected a list of levels{}, or a range", "'answer.m' has 'mini'", ", such as [mini]")
            in failed
        )

"""Gates, baselines, `wtb compare` and `wtb regress`, as a user meets them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from tests.support.prose import sentence

if TYPE_CHECKING:
    from tests.support.project import Project

FLOW = """
from wtb import END, Workflow

wf = Workflow("small")


@wf.node
def add(state, *, by: int = 0):
    if state["x"] == 2:
        raise ValueError("no twos")
    return {"x": state["x"] + by}


add.variant("more", by=1)
wf.entry(add)
wf.edge(add, END)


def score(case, result):
    return result.state["x"]
"""

SWEEP = """
sweep: nightly
workflow: small:wf
cases: [{input: {x: 0}}, {input: {x: 1}}, {input: {x: 4}}, {input: {x: 5}}]
vary: {add: all}
evaluate: ["small:score"]
run: {pool: thread}
"""


@pytest.fixture
def small(empty_project: Project) -> Project:
    """A folder with a small sweep that has run and is the baseline `main`."""
    empty_project.write({"small.py": FLOW, "sweep.yaml": SWEEP})
    empty_project.inside("run", "sweep.yaml", "-q", check=0)
    empty_project.inside("baseline", "set", "main", "nightly", check=0)
    return empty_project


@pytest.fixture
def seven(small: Project) -> Project:
    """The same with seven cases, the fewest with which a test can find a difference."""
    small.write(
        {"sweep.yaml": SWEEP.replace("{x: 5}}]", "{x: 5}}, {input: {x: 3}}, {input: {x: 6}}, {input: {x: 7}}]")}
    )
    small.inside("run", "sweep.yaml", "-q", check=0)
    small.inside("baseline", "set", "main", "nightly", check=0)
    return small


def words(text: str) -> str:
    """The text with its line breaks and columns as single spaces."""
    return " ".join(text.split())


def edit(project: Project, old: str, new: str) -> None:
    text = (project.folder / "small.py").read_text("utf-8")
    assert old in text
    project.write({"small.py": text.replace(old, new)})


def test_gates_that_do_not_hold_are_named_and_end_with_1(small: Project) -> None:
    small.write({"gated.yaml": SWEEP + 'gates: ["score.mean >= 3", "score.mean < 3", "failed == 0", "score.x > 1"]\n'})
    done = small.inside("run", "gated.yaml", "-q", check=1)
    assert "gate holds: score.mean >= 3 (3.5)" in done.stdout
    assert "GATE FAILED: score.mean < 3 (3.5)" in done.stdout
    assert sentence("gate cannot be decided") + ": score.x > 1: " + sentence(
        "nothing is scored by {}", "'score.x'"
    ) in words(done.stdout)
    document = small.json("matrix", "nightly")
    assert [gate["holds"] for gate in document["gates"]] == [True, False, True, None]
    assert "**GATE FAILED**: score.mean &lt; 3" in small.text("matrix", "nightly", "--format", "md")
    markdown = small.text("matrix", "nightly", "--format", "md")
    assert "**gate cannot be decided**: score.x &gt; 1: nothing is scored by" in markdown
    junit = small.text("report", "nightly", "--format", "junit")
    assert sentence("{} cannot be decided", "score.x &gt; 1:") in junit
    assert "score.mean &lt; 3: does not hold" in junit
    compared = small.inside("regress", "gated.yaml", "--baseline", "main", "--format", "md", "-q", check=1).stdout
    assert "**gate cannot be decided**: score.x" in compared
    assert "GATE FAILED: score.mean &lt; 3 (3.5)" in small.text("matrix", "nightly", "--format", "html")
    small.inside("resume", "nightly", check=1)
    assert "GATE FAILED: score.mean < 3" in small.inside("watch", "nightly", check=1).stderr
    small.write({"gated.yaml": SWEEP + 'gates: ["score.mean >= 3", "no_worse_than: main"]\n'})
    small.inside("run", "gated.yaml", "-q", check=0)


def test_a_metric_that_nothing_is_scored_by_is_refused_before_anything_runs(small: Project) -> None:
    keys = 'gates: ["scor.mean > 1", "failed == 0"]\nbest: {maximize: scroe, subject_to: total > 1}\nmargin: {y: 1}\n'
    small.write({"gated.yaml": SWEEP + keys})
    for command in ("plan", "run"):
        message = small.refusal(command, "gated.yaml")
        assert (
            "gated.yaml:8: " + sentence("no evaluator gives {}", "'scor'") + sentence("; did you mean '{}'?", "score")
            in message
        )
        assert (
            "gated.yaml:9: " + sentence("no evaluator gives {}", "'scroe'") + sentence("; did you mean '{}'?", "score")
            in message
        )
        assert "gated.yaml:9: " + sentence("no evaluator gives {}", "'total'") in message
        assert (
            "gated.yaml:10: " + sentence("no evaluator gives {}", "'y'") + sentence("; scored are {}", "score")
            in message
        )
    options = ("sweep.yaml", "--baseline", "main", "--margin", "scor=1")
    for command in (("regress",), ("schedule", "add", "nightly", "--cron", "0 3 * * *")):
        message = small.refusal(*command, *options)
        assert (
            "error: margin: " + sentence("no evaluator gives {}", "'scor'") + sentence("; did you mean '{}'?", "score")
            in message
        )


def test_a_part_of_a_sweep_becomes_no_baseline(small: Project) -> None:
    regress = ("regress", "sweep.yaml", "--baseline", "main", "-q")
    for part in (["--limit", "2"], ["--case", "1"], ["--combination", "add=more"]):
        assert sentence("only a whole sweep can become the baseline") in small.refusal(*regress, "--update", *part)
    done = small.inside(*regress, "--limit", "2", check=0)
    assert "): 4 of its 8 cells, no difference\n- left out: 2 cases of the earlier sweep only" in done.stdout
    small.write({"sweep.yaml": SWEEP.replace(", {input: {x: 5}}]", "]")})
    done = small.inside(*regress, "--update", check=0)
    assert (
        sentence("of which the comparison leaves out {}; `wtb baseline set {} {}", "1 case", "main", 1) in done.output
    )
    (baseline,) = small.json("baseline", "list")["baselines"]
    small.inside("baseline", "set", "main", "nightly", check=0)
    more = ", ".join(f"{{input: {{x: {n}}}}}" for n in range(10, 17))
    small.write({"sweep.yaml": SWEEP.replace("{input: {x: 5}}", more)})
    done = small.inside(*regress, check=0)
    assert f"sweep {baseline['sweep']['id']}" not in done.stdout
    assert sentence("{} of {} are compared with nothing", 14, "20 cells") in done.stdout


def test_a_gate_on_a_baseline_that_is_not_there_is_refused_before_anything_runs(small: Project) -> None:
    small.write({"gated.yaml": SWEEP + 'gates: ["failed == 0", "no_worse_than: mian"]\n'})
    before = small.query("SELECT count(*) FROM sweeps")
    for command in (("run",), ("regress", "--baseline", "main")):
        message = small.refusal(*command, "gated.yaml")
        assert (
            "gated.yaml:8: "
            + sentence("there is no baseline {} in session {}", "'mian'", "'default'")
            + sentence("; did you mean '{}'", "main")
            in message
        )
    assert small.query("SELECT count(*) FROM sweeps") == before


def test_baselines_are_set_listed_shown_and_removed(small: Project) -> None:
    (baseline,) = small.json("baseline", "list")["baselines"]
    assert (baseline["name"], baseline["session"], baseline["sweep"]["name"]) == ("main", "default", "nightly")
    first = baseline["sweep"]["id"]
    text = words(small.text("baseline", "show", "main"))
    assert "add=more (3.500, +1.000 over the baseline" in text
    assert sentence("is the baseline {}", "'main'") in small.refusal("delete", first, "--yes")
    small.inside("run", "sweep.yaml", "-q", check=0)
    assert sentence("it was sweep {}", first) in small.text("baseline", "set", "main", "nightly")
    small.inside("delete", first, "--yes", check=0)
    small.inside("baseline", "remove", "main", check=0)
    assert sentence("there are no baselines yet") in small.inside("baseline", "list", check=0).output
    assert "`wtb baseline set main SWEEP`" in small.refusal("baseline", "show", "main")
    small.write({"part.yaml": SWEEP + "limits: {node_runs: 3}\n"})
    small.inside("run", "part.yaml", "-q", check=1)
    assert "is paused, and" in small.refusal("baseline", "set", "part", "nightly")
    small.inside("baseline", "set", "part", "nightly", "--anyway", check=0)


def test_a_regression_is_told_cell_by_cell_and_no_change_in_one_line(seven: Project) -> None:
    (line,) = seven.text("regress", "sweep.yaml", "--baseline", "main", "-q").splitlines()
    assert line.startswith("no regression against main (sweep 1")
    assert line.endswith("): 14 cells, no difference")
    edit(seven, "+ by}", '+ by - 0.1 * (state["x"] + 1)}')
    done = seven.inside("regress", "sweep.yaml", "--baseline", "main", "-q", "--update", check=1)
    assert done.stdout.startswith("Worse: nightly (1")
    why = "score fell in 2 of 2 combinations, most in add=default: by 0.4714, from 3.714 to 3.243 (p = 0.023)"
    assert why in words(done.stdout)
    assert "over all 2 combinations, which share the changed node add" in words(done.stdout)
    assert "7 default score worse 7 6.2 -0.8 add" in words(done.stdout)
    assert "wtb diff 1" in done.stdout
    done = seven.inside("regress", "sweep.yaml", "--baseline", "main", "-q", "--margin", "score=1", check=0)
    assert "14 cells, not worse" in words(done.stdout)
    assert "- score is not worse in 2 combinations: it lost less than its margin of 1 (5% error)" in words(done.stdout)
    assert "code add=default, add=more" in words(done.stdout)
    compared = words(seven.text("compare", "main", "nightly"))
    assert compared.startswith("Not worse: nightly")
    assert sentence("{} {} (the later sweep's)", "margin", "score 1") in compared
    assert "14 cells that differ, the worst first" in compared
    assert seven.inside("compare", "main", "nightly", "--margin", "score=0.1", check=1).stdout.startswith("Worse")
    text = seven.inside("regress", "sweep.yaml", "--baseline", "main", "-q", "--format", "md", check=1).stdout
    assert text.startswith("### Worse: nightly")


def test_what_is_unclear_is_no_pass_in_words_and_fails_where_it_is_strict(seven: Project) -> None:
    edit(seven, "+ by}", '+ by - (state["x"] == 4)}')
    regress = ("regress", "sweep.yaml", "--baseline", "main", "-q")
    first = words(seven.text(*regress, "--margin", "score=0.5"))
    assert first.startswith("unclear against main (sweep 1")
    assert "a loss is neither shown nor ruled out - score differs in 2 combinations by what could be chance: 7" in first
    assert sentence("its margin of {} takes about", "0.5") in first
    assert "no regression" not in first
    seven.inside(*regress, "--strict", check=1)
    seven.inside("compare", "main", "nightly", check=0)
    assert seven.inside("compare", "main", "nightly", "--strict", check=1).stdout.startswith("Unclear: nightly")
    seven.write({"gated.yaml": (seven.folder / "sweep.yaml").read_text("utf-8") + 'gates: ["no_worse_than: main"]\n'})
    done = seven.inside("run", "gated.yaml", "-q", check=0)
    assert "gate unclear: no_worse_than: main: score differs in 2 combinations" in words(done.stdout)
    seven.inside("run", "gated.yaml", "-q", "--strict", check=1)


def test_a_sweep_that_is_no_worse_becomes_the_baseline(seven: Project) -> None:
    edit(seven, "+ by}", "+ by + 1}")
    done = seven.inside("regress", "sweep.yaml", "--baseline", "main", "-q", "--update", "--format", "json", check=0)
    assert (done.json["verdict"], done.json["because"]) == ("better", ["score rose in 2 combinations"])
    assert done.json["baseline"] == "main"
    (baseline,) = seven.json("baseline", "list")["baselines"]
    assert baseline["sweep"]["id"] == done.json["after"]["id"]


def test_cells_that_fail_as_before_are_no_regression_and_new_ones_are(small: Project) -> None:
    small.write({"sweep.yaml": SWEEP.replace("{x: 5}", "{x: 2}")})
    small.inside("run", "sweep.yaml", "-q", check=1)
    small.inside("baseline", "set", "broken", "nightly", check=0)
    assert small.text("regress", "sweep.yaml", "--baseline", "broken", "-q").count("\n") == 1
    done = small.inside("regress", "sweep.yaml", "--baseline", "main", "-q", check=1)
    assert sentence("{} cannot be compared", "2 cells that fail") in done.stdout


def test_any_sweep_can_be_held_against_and_bad_input_is_refused(small: Project) -> None:
    small.inside("regress", "sweep.yaml", "--baseline", "nightly", "-q", "--limit", "2", check=0)
    for options, message in (
        (["--baseline", "nightly", "--update"], "expected the name of a baseline"),
        (["--baseline", "mian"], "there is no baseline 'mian' in session 'default'; did you mean 'main'"),
        (["--baseline", "main", "--margin", "score"], "expected METRIC=X"),
        (["--baseline", "main", "--margin", "score=-1"], "expected METRIC=X with X at least 0"),
        (["--baseline", "main", "--margin", "score=nan"], "expected METRIC=X with X at least 0"),
    ):
        assert message in small.refusal("regress", "sweep.yaml", *options)


def test_two_sweeps_that_have_nothing_in_common_are_compared_honestly(small: Project) -> None:
    other = SWEEP.replace("add: all", "add: [{name: most, by: 9}]").replace("nightly", "other")
    small.write({"other.yaml": other})
    small.inside("run", "other.yaml", "-q", check=0)
    done = small.inside("compare", "nightly", "other", check=1)
    assert done.stdout.startswith("Cannot tell: other (1")
    assert "- the two sweeps have no combination in common" in done.stdout
    assert "variants added add=most" in words(done.stdout)
    assert small.inside("compare", "other", "nightly", "--format", "json", check=1).json["verdict"] == "cannot tell"
    message = small.refusal("compare", "nightly", "otter")
    assert sentence("there is no sweep {}", "'otter'") + sentence("; did you mean '{}'", "other") in message


def test_repeats_show_that_nothing_is_noise_and_then_any_fall_is_worse(small: Project) -> None:
    edit(small, "+ by}", '+ by - (state["x"] == 4)}')
    assert small.text("regress", "sweep.yaml", "--baseline", "main", "-q").startswith("unclear against main")
    message = small.refusal("baseline", "repeat", "main", "main", "--times", "2")
    assert sentence("there is no sweep {}", "'main'") in message
    first = small.json("baseline", "show", "main")["sweep"]["id"]
    message = small.refusal("baseline", "repeat", "main", first, "--times", "2")
    assert sentence("the code of {} has changed since it ran", "add=default, add=more") in message
    edit(small, ' - (state["x"] == 4)', "")
    done = small.inside("baseline", "repeat", "main", first, "--times", "2", "-q", check=0)
    assert done.stdout.splitlines()[1] == "2 repeats" + sentence("{} the same in every case", ": outcomes, score")
    floor = small.json("baseline", "show", "main")["noise_floor"]
    assert floor["metrics"] == {"score": {"compared": 16, "differ": 0.0, "sd": 0.0, "deterministic": True}}
    assert len(floor["sweeps"]) == 2
    assert small.query("SELECT count(*) FROM sweeps WHERE name = 'nightly-repeat'") == [(2,)]
    assert "none" in small.text("baseline", "list").splitlines()[-1]
    small.inside("baseline", "set", "main", first, check=0)
    assert "noise 2 repeats: outcomes, score the same" in words(small.inside("baseline", "show", "main").stdout)
    edit(small, "+ by}", '+ by - (state["x"] == 4)}')
    done = small.inside("regress", "sweep.yaml", "--baseline", "main", "-q", check=1)
    assert "(repeats came to the same in every case, so any fall counts)" in words(done.stdout)
    edit(small, 'state["x"] == 2', 'state["x"] == 5')
    done = small.inside("regress", "sweep.yaml", "--baseline", "main", "-q", "--margin", "score=5", check=1)
    assert sentence("{} that succeeded {} now", "2 cells", "fail") + sentence(
        "{} the same in every case", " (repeats came to"
    ) in words(done.stdout)


def test_repeats_show_how_far_a_workflow_differs_by_itself(small: Project) -> None:
    edit(small, "+ by}", "+ by + time.time_ns() % 1000}")
    edit(small, "from wtb", "import time\n\nfrom wtb")
    small.inside("run", "sweep.yaml", "-q", check=0)
    text = small.text("baseline", "repeat", "noisy", "nightly", "--times", "1", "-q")
    assert sentence("{} the same in every case", "outcomes") + sentence("{} differs in ", "; score") in text
    assert "(sd " in text
    assert "score" in small.text("baseline", "list").splitlines()[-1]


def test_a_plan_says_how_many_cases_a_margin_takes(small: Project) -> None:
    rated = FLOW + "\n\ndef right(case, result) -> bool:\n    return True\n"
    small.write({"small.py": rated})
    both = SWEEP.replace('"small:score"', '"small:score", "small:right"').replace("nightly", "new")
    small.write({"planned.yaml": f"{both}margin: {{score: 0.5, right: 0.05}}\n"})
    text = words(small.text("plan", "planned.yaml"))
    assert (
        sentence("Margin of {} in {}", "0.5", "score: ")
        + sentence("nobody knows how far {} differs by itself: run the sweep once", "score")
        in text
    )
    assert "Margin of 0.05 in right: about 1,664 cases show that none of 2 combinations lost as much" in text
    assert (
        "the sweep has 4 (the differences have a standard deviation of 0.707, at worst, on its scale from 0 to 1; "
        "a pilot (`wtb pilot`) gives a better estimate)" in text
    )
    small.inside("run", "planned.yaml", "-q", check=0)
    planned = small.json("plan", "planned.yaml")
    score = planned["margins"][0]
    assert (score["rows"], score["needed"], score["cases"]) == (2, 379, 4)
    assert score["because"].startswith("at most, if cases differ from run to run as from case to case in sweep 1")
    small.inside("baseline", "repeat", "new", "new", "--times", "1", "-q", check=0)
    (score, _) = small.json("plan", "planned.yaml")["margins"]
    assert (score["needed"], score["because"]) == (6, sentence("as the repeats of baseline {} differ", "new"))


def test_a_plan_says_what_the_last_sweep_leaves_open(small: Project) -> None:
    edit(small, "+ by}", '+ by * (state["x"] % 3)}')
    small.inside("run", "sweep.yaml", "-q", check=0)
    planned = small.json("plan", "sweep.yaml")
    last = planned["last_sweep"]
    assert (last["metric"], last["cases"]) == ("score", 4)
    text = words(small.text("plan", "sweep.yaml"))
    assert (
        sentence("No clear winner by {} so far ({}). ", "score", f"sweep {last['sweep']}, 4 cases")
        + sentence("If the lead")
        in text
    )
    assert last["next_step"] in words(small.text("matrix", "nightly"))


def test_a_margin_beyond_the_scale_of_its_metric_is_refused(small: Project) -> None:
    rated = FLOW + "\n\ndef right(case, result) -> bool:\n    return True\n"
    small.write({"small.py": rated, "sweep.yaml": SWEEP.replace("small:score", "small:right") + "margin: {right: 5}\n"})
    message = small.refusal("run", "sweep.yaml")
    assert (
        "sweep.yaml:8: 5 is more than its scale from 0 to 1; expected a loss in the unit of 'right', at most 1"
        in message
    )
    small.write({"sweep.yaml": SWEEP.replace("small:score", "small:right")})
    message = small.refusal("regress", "sweep.yaml", "--baseline", "main", "--margin", "right=2")
    assert sentence("{} is more than its scale from {} to {}", "margin: 2", 0, 1) in message


def test_a_comparison_refuses_margins_that_its_metrics_cannot_have(small: Project) -> None:
    rated = FLOW + "\n\ndef right(case, result) -> bool:\n    return True\n"
    small.write({"small.py": rated, "sweep.yaml": SWEEP.replace("small:score", "small:right")})
    small.inside("run", "sweep.yaml", "-q", check=0)
    for margin, problem in (("rigth=1", "did you mean 'right'?"), ("right=2", "2 is more than its scale from 0 to 1")):
        assert f"margin: {'neither' if 'did' in problem else ''}" in (
            message := small.refusal("compare", "nightly", "nightly", "--margin", margin)
        )
        assert problem in message


def test_a_comparison_is_told_to_ci_as_junit(seven: Project) -> None:
    edit(seven, "+ by}", '+ by - 0.1 * (state["x"] + 1) * by}')
    regress = ("regress", "sweep.yaml", "--baseline", "main", "-q", "--format", "junit")
    suite = ElementTree.fromstring(seven.inside(*regress, check=1).stdout)[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "3", "0")
    failures = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    every = "all 2 combinations, which share the changed node add"
    assert failures.pop(next(name for name in failures if name and name.startswith("against nightly ("))) == ["failure"]
    assert failures == {"add=default": [], "add=more": ["failure"], every: ["failure"]}
    assert "score fell by" in (suite.findtext("testcase/failure") or "")
    edit(seven, ' - 0.1 * (state["x"] + 1) * by', ' - (state["x"] == 4) * by')
    suite = ElementTree.fromstring(seven.text(*regress))[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "3")
    assert ElementTree.fromstring(seven.inside(*regress, "--strict", check=1).stdout)[0].get("failures") == "3"


def test_only_sweeps_are_repeated(small: Project) -> None:
    small.inside("start", "small:wf", "--set", "x=1", "-q", check=0)
    ((id,),) = small.query("SELECT id FROM sweeps WHERE kind = 'single'")
    message = small.refusal("baseline", "repeat", "one", id, "--times", "1")
    assert sentence("only a sweep can be repeated, and {} is a single execution", id) in message
    assert "one" not in small.text("baseline", "list").split()

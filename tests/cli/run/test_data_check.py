"""Findings of the data check before a sweep runs, from real commands: every surface shows the same sentences."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import wtb
from tests.support import prose

if TYPE_CHECKING:
    from tests.support.project import Project

FLOW = """
from wtb import END, Workflow

wf = Workflow("ask")


@wf.node
def answer(state, ctx, *, lucky: float = 0.0):
    return {"right": hash(str((state["q"], lucky))) % 2 == 0}


answer.variant("other", lucky=1.0)
wf.entry(answer)
wf.edge(answer, END)


def right(case, result) -> bool:
    return result.state["right"]
"""
SENTENCE = (
    "80 of 100 cases repeat the input of another case (such as 'q0-0' and 'q0-1'): cases with equal inputs count as "
    "one cluster, so figures rest on 20 clusters of cases (`equal_inputs: independent` counts each case)"
)


def sweep(name: str, cases: Any, **more: Any) -> str:
    return json.dumps(
        {
            "sweep": name,
            "workflow": "ask:wf",
            "cases": cases,
            "vary": {"answer": "all"},
            "evaluate": ["ask:right"],
            "run": {"pool": "thread"},
            **more,
        }
    )


def words(text: str) -> str:
    return " ".join(text.split())


def repeated() -> list[dict[str, Any]]:
    return [{"id": f"q{n}-{number}", "input": {"q": f"question {n}"}} for n in range(20) for number in range(5)]


@pytest.fixture(scope="module")
def ask(shared_project: Project) -> Project:
    lines = "".join(f"{json.dumps(case)}\n" for case in repeated())
    shared_project.write(
        {
            "ask.py": FLOW,
            "cases.jsonl": lines,
            "alike.yaml": sweep("alike", "cases.jsonl"),
            "each.yaml": sweep("each", "cases.jsonl", equal_inputs="independent"),
        }
    )
    return shared_project


def test_equal_inputs_are_told_before_and_after_in_the_same_words(ask: Project) -> None:
    assert words(ask.text("plan", "alike.yaml")).count(SENTENCE) == 1
    planned = ask.json("plan", "alike.yaml")
    assert planned["data"] == [{"kind": "equal_inputs", "cases": 80, "sentence": SENTENCE, "key": "equal_inputs"}]
    assert planned["notes"] == [SENTENCE]
    ran = ask.inside("run", "alike.yaml", check=0)
    assert ran.output.count(SENTENCE) == 1
    assert words(ran.stdout).count(SENTENCE) == 1
    matrix = ask.json("matrix", "alike")
    assert (matrix["clusters"], matrix["warnings"].count(SENTENCE)) == (20, 1)
    for name, options in (("alike.md", ["--format", "md"]), ("alike.html", [])):
        ask.inside("report", "alike", "--output", name, *options, check=0)
        assert SENTENCE in words((ask.folder / name).read_text("utf-8").replace("&#39;", "'").replace("\\", ""))


def test_a_key_of_the_sweep_counts_each_case(ask: Project) -> None:
    planned = ask.json("plan", "each.yaml")
    assert ("data" in planned, "notes" in planned) == (False, False)
    ask.inside("run", "each.yaml", "--quiet", check=0)
    assert ask.json("matrix", "each")["clusters"] is None
    ask.write({"bad.yaml": sweep("bad", "cases.jsonl", equal_inputs="no")})
    message = ask.refusal("plan", "bad.yaml")
    assert "'equal_inputs' is 'no'; expected 'cluster' or 'independent'" in message


def test_regressions_rest_on_clusters_of_equal_inputs(ask: Project) -> None:
    ask.inside("run", "alike.yaml", "--quiet", check=0)
    ask.inside("baseline", "set", "nightly", "alike", check=0)
    document = ask.json("regress", "alike.yaml", "--baseline", "nightly", "--quiet")
    assert document["verdict"] in ("same", "unclear")
    ask.inside("run", "each.yaml", "--quiet", check=0)
    compared = ask.json("compare", "alike", "each")
    assert compared["compared"]["cases"] == 100


def test_a_pilot_takes_the_clusters_of_its_cases(ask: Project) -> None:
    planned = ask.json("pilot", "alike.yaml", "--cases", "7")
    assert planned["pilot"]["cases"] == 7


def test_python_gives_the_same_document(ask: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ask.folder)
    monkeypatch.syspath_prepend(ask.folder)
    with wtb.open("sqlite:///:memory:") as bench:
        assert bench.plan("alike.yaml")["notes"] == [SENTENCE]


def ids(ask: Project, name: str) -> list[str]:
    cells = ask.json("show", name, "--cells", "--limit", "10000")["cells"]
    return list(dict.fromkeys(cell["case"] for cell in cells))


def different(name: str, **more: Any) -> str:
    return sweep(name, [{"id": f"c{n}", "input": {"q": f"{n}"}} for n in range(40)], **more)


def test_a_sample_is_drawn_with_the_seed_and_holds_smaller_ones(ask: Project) -> None:
    ask.write({"few.yaml": different("few"), "seeded.yaml": different("seeded", seed=3)})
    planned = ask.json("plan", "few.yaml", "--sample", "10")
    assert (planned["cases"], planned["cells"], planned["sampled_from"]) == (10, 20, 40)
    assert planned["notes"] == [prose.sentence("{} of {}, drawn at random with seed {}", 10, "40 cases", 0)]
    drawn = []
    for file, size in (("few", 10), ("few", 10), ("few", 20), ("seeded", 10)):
        ran = ask.inside("run", f"{file}.yaml", "--sample", f"{size}", check=0)
        assert f"{size} of 40 cases, drawn at random with seed {3 if file == 'seeded' else 0}" in ran.output
        drawn.append(ids(ask, file))
    first, second, more, seeded = drawn
    assert first == second != [f"c{n}" for n in range(10)]
    assert set(first) < set(more)
    assert set(seeded) != set(first)
    ask.inside("baseline", "set", "sampled", "few", check=0)
    document = ask.json("regress", "few.yaml", "--baseline", "sampled", "--sample", "10", "--quiet")
    assert document["compared"]["cases"] == 10


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            ("--sample", "41"),
            prose.sentence(
                "a sample of {} cases, and {} has {} to draw from; expected at most {}", 41, "few.yaml:1", 40, 40
            ),
        ),
        (("--sample", "0"), "sample is 0; expected a whole number of at least 1 (--sample)"),
        (("--sample", "-1"), "sample is -1; expected a whole number of at least 1 (--sample)"),
        (
            ("--sample", "3", "--limit", "3"),
            prose.sentence("both 'limit' and 'sample' are given; expected one of them"),
        ),
        (("--sample", "2", "--case", "none"), prose.sentence("there is no case {} in", "'none'")),
    ],
)
def test_a_sample_that_cannot_be_drawn_is_one_line(ask: Project, options: tuple[str, ...], problem: str) -> None:
    ask.write({"few.yaml": different("few")})
    for command in ("plan", "run"):
        outcome = ask.inside(command, "few.yaml", *options, check=2)
        assert problem in outcome.output
        assert len(outcome.stderr.strip().splitlines()) <= 2


def test_a_sample_leaves_the_cases_for_the_end_alone(ask: Project) -> None:
    ask.write({"kept.yaml": different("kept", holdout=0.5)})
    every = ask.json("plan", "kept.yaml")["cases"]
    assert f"has {every} to draw from" in ask.refusal("plan", "kept.yaml", "--sample", f"{every + 1}")
    ask.inside("run", "kept.yaml", "--sample", f"{every}", "--quiet", check=0)
    ask.inside("run", "kept.yaml", "--final", "--quiet", check=0)


def kinds(ask: Project, name: str, *options: str) -> dict[str, Any]:
    planned = ask.json("plan", name, *options)
    return {finding["kind"]: finding for finding in planned.get("data", ())}


def test_the_first_cases_of_a_sorted_file_are_told(ask: Project) -> None:
    listed = [{"id": f"c{n}", "input": {"q": f"{n:03}"}, "tags": ["easy" if n < 100 else "hard"]} for n in range(200)]
    ask.write({"sorted.yaml": sweep("sorted", listed)})
    finding = kinds(ask, "sorted.yaml", "--limit", "20")["sorted_file"]
    assert (finding["cases"], finding["key"]) == (20, "sample")
    sentence = (
        "the first 20 of 200 cases are no random sample, because the file is sorted by tag ('easy': 100% of the first, "
        "50% of all), so figures are not those of all cases: `sample` draws cases at random"
    )
    ran = ask.inside("run", "sorted.yaml", "--limit", "20", check=0)
    assert finding["sentence"] == sentence
    assert ran.output.count(sentence) == words(ran.stdout).count(sentence) == 1
    assert "sorted_file" not in kinds(ask, "sorted.yaml", "--sample", "20")
    assert "sorted_file" not in kinds(ask, "sorted.yaml")


def test_rare_classes_and_scales_and_clusters_are_told_before_anything_runs(ask: Project) -> None:
    listed = [
        {
            "id": f"c{n}",
            "input": {"q": f"{n}"},
            "expected": {"right": n % 10 == 0} if n else None,
            "cluster": f"doc {max(0, n - 20)}",
        }
        for n in range(40)
    ]
    evaluate = [
        {"class_recall": {"field": "right", "positive": True}},
        {"class_precision": {"field": "right", "positive": True}},
        {"macro_f1": {"field": "right"}},
        {"cohen_kappa": {"field": "right"}},
        {"auc": {"field": "right"}},
        "ask:right",
        "ask:length",
        "ask:scaled",
    ]
    more = FLOW + "\n\ndef length(case, result):\n    return 1.0\n\n\nfrom wtb import evaluator\n\n\n"
    more += "@evaluator(scale=(0, 9))\ndef scaled(case, result):\n    return 1.0\n"
    ask.write({"asked.py": more.replace('"ask"', '"asked"')})
    text = sweep("rare", listed, evaluate=evaluate).replace("ask:", "asked:")
    ask.write({"rare.yaml": text, "failing.yaml": text.replace('"rare"', '"failing", "on_failure": 0')})
    planned = ask.json("plan", "rare.yaml")
    by_kind: dict[str, list[str]] = {}
    for finding in planned["data"]:
        by_kind.setdefault(finding["kind"], []).append(finding["sentence"])
    assert by_kind["rare_class"] == [
        "class_recall rests on 2 clusters of the class: there are no intervals below 15",
        "macro_f1 rests on 2 clusters of 1, its rarest class: there are no intervals below 15",
        "cohen_kappa rests on 2 clusters that are not of its most common class: there are no intervals below 15",
        "auc rests on 2 clusters of positive, its rarest class: there are no intervals below 15",
    ]
    (scale,) = by_kind["no_scale"]
    assert scale.startswith("cells that fail are left out by length, so a combination that fails where it is hard")
    (dominant,) = by_kind["dominant_cluster"]
    assert dominant.startswith(
        "21 of 40 cases have the cluster 'doc 0', so figures rest mostly on it, as if there were"
    )
    assert len(by_kind["without_expected"]) == 5
    assert by_kind["without_expected"][0] == (
        prose.sentence(
            "{} of {} cases {} no expected value for {}: they get no score by it", 1, 40, "has", "class_recall"
        )
    )
    assert "no_scale" not in kinds(ask, "failing.yaml")


def test_equal_inputs_that_expect_different_values_are_told(ask: Project) -> None:
    listed = [{"id": f"c{n}", "input": {"q": f"{n // 2}"}, "expected": f"{n % 3}"} for n in range(20)]
    ask.write({"torn.yaml": sweep("torn", listed)})
    finding = kinds(ask, "torn.yaml")["contradictory_expected"]
    assert finding["sentence"].startswith("20 of 20 cases have an input of which another case expects another value")
    assert finding["key"] == "expected"

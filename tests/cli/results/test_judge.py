"""`wtb judge check`: the scores of a judge compared with labels, which these tests generate."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import wtb
from tests.support.prose import sentence
from wtb.analysis import judge_bias
from wtb.analysis.judge_agreement import cohens_kappa
from wtb.analysis.judge_bias import Held
from wtb.analysis.judge_rows import labelled_mean
from wtb.core.errors import InputError
from wtb.operations.context import current_user

if TYPE_CHECKING:
    from tests.support.project import Project

FLOW = """
from wtb import END, Workflow

wf = Workflow("judged")


@wf.node
def answer(state, *, better: int = 0):
    if state["x"] == 39:
        raise ValueError("no answer")
    return {"x": state["x"] + better}


answer.variant("long", better=1)
wf.entry(answer)
wf.edge(answer, END)


def helpful(case, result) -> bool:
    return result.state["x"] % 3 != 0
"""
CASES = 40
SWEEP = f"""
sweep: nightly
workflow: judged:wf
cases: [{", ".join(f"{{id: c{number}, input: {{x: {number}}}}}" for number in range(CASES))}]
vary: {{answer: all}}
evaluate: ["judged:helpful"]
run: {{pool: thread}}
"""
LABELS = [(number, float(number % 3 != 0) if number % 5 else 1.0) for number in range(0, 30, 2)]
HEADER = "case,answer,rater,label\n"


@pytest.fixture(scope="module")
def judged(shared_project: Project) -> Project:
    labels = HEADER + "".join(f"c{number},default,ana,{label}\n" for number, label in LABELS)
    shared_project.write({"judged.py": FLOW, "sweep.yaml": SWEEP, "labels.csv": labels})
    shared_project.inside("run", "sweep.yaml", "-q")
    return shared_project


def test_a_judge_is_held_against_labels_of_some_cases(judged: Project) -> None:
    document = judged.json("judge", "check", "nightly", "--labels", "labels.csv")
    numbers = np.array([number for number, _ in LABELS])
    people = np.array([label for _, label in LABELS])
    judge = np.array([float(number % 3 != 0) for number in range(CASES - 1)])  # the last has failed
    assert document["kappa"]["value"] == pytest.approx(cohens_kappa(judge[numbers], people).value)
    assert document["bias"]["value"] == pytest.approx((judge[numbers] - people).mean())
    assert (document["labels"], document["raters"], document["alpha"]["value"]) == (15, ["ana"], None)
    (row,) = document["rows"]
    labels = np.full(CASES - 1, np.nan)
    labels[numbers] = people
    expected = labelled_mean(labels, judge)
    assert row["combination"] == {"answer": "default"}
    assert row["people"]["value"] == pytest.approx(expected.mean)
    assert row["people"]["interval"] == pytest.approx(expected.interval)
    assert (row["labels"], row["cases"], row["has_few_labels"]) == (15, CASES - 1, True)


def test_no_interval_says_what_cannot_be(judged: Project) -> None:
    three = HEADER + "c1,default,ana,1\nc2,default,ana,0\nc3,default,ana,0\n"
    judged.write({"three.csv": three})
    document = judged.json("judge", "check", "nightly", "--labels", "three.csv")
    assert document["rows"][0]["people"]["interval"][0] == 0.0, "on a scale from 0 to 1"
    assert all(-1 <= end <= 1 for end in document["bias"]["interval"])
    why = "1 rating is not the most common one: there is no interval below 15"
    assert (document["kappa"]["interval"], document["kappa"]["because"]) == (None, why)
    assert f"({why})" in judged.text("judge", "check", "nightly", "--labels", "three.csv")


def test_the_command_says_what_the_intervals_are_worth(judged: Project) -> None:
    text = judged.text("judge", "check", "nightly", "--labels", "labels.csv")
    assert text.startswith("helpful against 15 labels of 1 rater")
    assert sentence("Agreement among raters (Krippendorff's alpha): {}", "unknown") in text
    assert sentence("fewer than 100 labels") in text


def test_the_curve_says_what_people_say_where_the_judge_gives_which_score(judged: Project) -> None:
    args = ("judge", "check", "nightly", "--labels", "labels.csv", "-f", "json", "--margin", "0.1")
    document = json.loads(judged.text(*args))
    people = {score: [label for number, label in LABELS if float(number % 3 != 0) == score] for score in (0.0, 1.0)}
    assert [(level["judge"], level["labels"]) for level in document["levels"]] == [
        (0, len(people[0])),
        (1, len(people[1])),
    ]
    assert [level["people"]["value"] for level in document["levels"]] == pytest.approx(
        [np.mean(people[0]), np.mean(people[1])]
    )
    (row,) = document["rows"]
    half = (row["people"]["interval"][1] - row["people"]["interval"][0]) / 2
    assert row["needed"] == pytest.approx(15 * (half / 0.1) ** 2, abs=1), "a root law, from the interval of 15"
    assert sentence("expected a number above 0") in judged.refusal(*args[:-1], "0")


def test_a_judge_below_a_stated_agreement_ends_with_1(judged: Project) -> None:
    args = ("judge", "check", "nightly", "--labels", "labels.csv", "--at-least")
    text = judged.inside(*args, "0.99", check=1).stderr
    assert sentence("{} is not shown to agree with people as far as {}", "helpful", "--at-least 0.99 (") in text
    assert "4 ratings of a rater are not the most common one: there is no interval below 15" in text
    assert text.rstrip().endswith("do not decide by it")
    many = [(number, row, float(number % 3 != 0 or number == 0)) for row in ("default", "long") for number in range(39)]
    judged.write({"many.csv": HEADER + "".join(f"c{number},{row},ana,{label}\n" for number, row, label in many)})
    args = ("judge", "check", "nightly", "--labels", "many.csv", "--at-least")
    assert judged.text(*args, "-0.9")
    assert "from -1 to 1" in judged.refusal(*args, "2")


def test_a_judge_with_many_scores_has_ten_groups_of_them() -> None:
    scores = np.arange(100) / 100
    levels = judge_bias.levels(Held(scores, scores, np.arange(100)), (0.0, 1.0))
    assert [level.labels for level in levels] == [10] * 10
    assert [level.judge for level in levels] == pytest.approx([level.people.value for level in levels])


def test_two_raters_are_held_against_each_other_and_json_lines_are_read_like_csv(judged: Project) -> None:
    lines = [
        json.dumps({"case": f"c{number}", "answer": "long", "rater": rater, "label": label == (rater == "ana")})
        for number, label in LABELS
        for rater in ("ana", "ben")
    ]
    judged.write({"labels.jsonl": "\n".join(lines)})
    bench = wtb.open(judged.url or f"sqlite:///{judged.file}")
    checked = bench.sweep("nightly").check_judge(judged.folder / "labels.jsonl", metric="helpful", scale="nominal")
    assert checked.raters == ("ana", "ben")
    assert checked.alpha.value is not None
    assert checked.alpha.value < 0, "they always say the opposite"
    assert checked.rows[0].people.value is not None
    bench.close()


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("", "no labels"),
        (HEADER, "no labels"),
        ("case,label\nc1,1\n", sentence("no {}; expected the variant of each node", "'answer'")),
        (
            HEADER + "c1,default,ana,good\n",
            sentence("{}: {} is {}; expected a number", "bad.csv:2", "'label'", "'good'"),
        ),
        (HEADER + "c1,default,ana,nan\n", sentence("'label' is {}", "'nan'")),
        (
            HEADER + "c1,default,ana,1.5\n",
            sentence("'label' is {}; expected a number on the scale of the metric, {} to {}", "1.5", 0, 1),
        ),
        (
            HEADER + "c1,default,ana,1\nc2,default,ben,4\n",  # who has another scale in mind
            sentence("{}; expected a number on the scale of the metric, {} to {}", "bad.csv:3: 'label' is 4", 0, 1),
        ),
        (HEADER + "c99,default,ana,1\n", sentence("the sweep has no case {}", "'c99'")),
        (HEADER + "c1,longer,ana,1\n", sentence("the sweep has no row {}", "answer=longer")),
        (
            HEADER + "c1,default,ana,1\nc1,default,ana,0\n",
            sentence("{} labels the cell a second time", "bad.csv:3: 'ana'"),
        ),
        (
            "case,answer,labels\nc1,default,1\n",
            sentence("unknown column {}", "'labels'") + sentence("; did you mean '{}'?", "label"),
        ),
        ("case,answer,repeat,label\nc1,default,-1,1\n", "'repeat' is '-1'"),
        (HEADER + "c39,default,ana,1\n", sentence("no label is of a cell that has a score of {}", "'helpful'")),
    ],
)
def test_labels_that_cannot_be_used_are_refused_with_their_line(judged: Project, labels: str, words: str) -> None:
    judged.write({"bad.csv": labels})
    assert words in judged.refusal("judge", "check", "nightly", "--labels", "bad.csv")


def test_metrics_and_files_that_are_not_there_are_named(judged: Project) -> None:
    check = ("judge", "check", "nightly", "--labels")
    assert sentence("cannot be read") in judged.refusal(*check, "nowhere.csv")
    text = judged.refusal(*check, "labels.csv", "--metric", "helpfull")
    assert sentence("no metric {}", "'helpfull'") + sentence("; did you mean '{}'?", "helpful") in text


LABEL = ("label", "answer", "weekly", "--rater", "ana", "--field", "x")


@pytest.fixture
def weekly(judged: Project) -> Project:
    """A sweep that nobody has labelled, without the case that fails: it may be drawn, and has no answer."""
    text = SWEEP.replace(f", {{id: c{CASES - 1}, input: {{x: {CASES - 1}}}}}", "")
    judged.write({"weekly.yaml": text.replace("sweep: nightly", "sweep: weekly")})
    judged.inside("run", "weekly.yaml", "-q")
    return judged


def written(judged: Project, sweep: str, name: str) -> list[dict[str, str]]:
    judged.inside("label", "export", sweep, name, check=0)
    return list(csv.DictReader((judged.folder / name).read_text("utf-8").splitlines()))


def test_a_person_labels_blind_continues_where_they_stopped_and_takes_labels_back(weekly: Project) -> None:
    assert sentence("nobody has labelled anything for {}", "'helpful'") in weekly.refusal("judge", "check", "weekly")
    some = ("--cases", "3")
    first = weekly.inside(*LABEL, *some, stdin="1\nnothing\n7\nb\n0\ns\nq\n", check=0)
    assert sentence("{} labelled, {} left", "1 answer", 5) in first.stdout
    assert (
        sentence("{} is no label", "'nothing'") + sentence("; expected {} from {} to {}", "a number", 0, 1)
        in first.stderr
    )
    assert sentence("{} is no label", "'7'") in first.stderr
    assert "default" not in first.stderr
    assert "long" not in first.stderr
    (row,) = written(weekly, "weekly", "by_hand.csv")
    assert (row["label"], row["rater"], row["asked"], row["probability"]) == (
        "0.0",
        "ana",
        "random",
        str(3 / (CASES - 1)),
    )
    assert sentence("{} labelled, {} left", "5 answers", 0) in weekly.text(*LABEL, *some, stdin="1\n" * 5)
    rows = written(weekly, "weekly", "by_hand.csv")
    assert len({(row["case"], row["answer"]) for row in rows}) == 6, "each cell of three cases once"
    check = ("judge", "check", "weekly", "-f", "json")
    output = weekly.text(*check)
    assert json.loads(output)["labels"] == 6
    assert weekly.text(*check, "--labels", "by_hand.csv") == output


def test_raters_get_the_same_cases_and_those_who_disagree_cost_no_interval(weekly: Project) -> None:
    def queue(rater: str, *more: str) -> dict[str, Any]:
        args = ("label", "draw", "weekly", "--rater", rater, "--cases", "5", "-f", "json", *more)
        document: dict[str, Any] = json.loads(weekly.text(*args))
        return document

    assert [question["case"] for question in queue("ana")["items"]] == [
        question["case"] for question in queue("ben")["items"]
    ]
    for rater, typed in (("ana", "1\n1\n"), ("ben", "0\n0\n")):
        weekly.inside("label", "answer", "weekly", "--rater", rater, "--cases", "1", stdin=typed, check=0)
    redrawn = queue("eva", "--again")
    assert (redrawn["asked"], redrawn["probability"], len(redrawn["items"])) == ("disagreement", None, 2)
    check = ("judge", "check", "weekly", "-f", "json")
    before = json.loads(weekly.text(*check))
    weekly.inside("label", "answer", "weekly", "--rater", "eva", "--again", stdin="1\n1\n", check=0)
    assert json.loads(weekly.text(*check)) == before | {"not_drawn": 2}


@pytest.mark.parametrize("name", ["all.csv", "all.jsonl"])
def test_labels_go_to_a_file_and_come_back_and_an_import_is_all_or_nothing(weekly: Project, name: str) -> None:
    weekly.inside("label", "answer", "weekly", "--rater", "ana", "--cases", "2", stdin="1\n0\n1\n0\n", check=0)
    weekly.inside("label", "export", "weekly", name, check=0)
    bench = wtb.open(weekly.url or f"sqlite:///{weekly.file}")
    sweep = bench.sweep("weekly")
    before = [replace(label, at=0) for label in sweep.labels()]
    assert len(before) == 4
    for label in sweep.labels():
        (drawn,) = [
            question
            for question in sweep.draw_labels(rater="nobody", cases=2).items
            if question.case == label.case and label.combination in [cell.combination for cell in question.cells]
        ]
        assert sweep.give_label(label.case, drawn.id, None, rater="ana", cases=2).cells == 1
    assert sweep.labels() == []
    text = (weekly.folder / name).read_text("utf-8")
    weekly.write({f"bad_{name}": re.sub(r"\b0\.0\b", "7.0", text, count=1)})
    assert "'label' is 7" in weekly.refusal("label", "import", "weekly", f"bad_{name}")
    assert sweep.labels() == []
    assert sweep.import_labels(weekly.folder / name).labels == 4
    sweep.import_labels(weekly.folder / name)
    assert [replace(label, at=0) for label in sweep.labels()] == before, "what comes twice counts once"
    bench.close()


def test_only_what_was_drawn_can_be_labelled_and_an_erased_case_takes_its_labels_along(weekly: Project) -> None:
    bench = wtb.open(weekly.url or f"sqlite:///{weekly.file}")
    sweep = bench.sweep("weekly")
    question = sweep.draw_labels(cases=1).items[0]
    other = next(f"c{number}" for number in range(CASES) if f"c{number}" != question.case)
    for case, answer, label, words in (
        (other, question.id, 1.0, "was not drawn"),
        ("c400", question.id, 1.0, "no case 'c400'"),
        (question.case, "0" * 16, 1.0, "has no answer"),
        (question.case, question.id, 7.0, "label is 7.0; expected a number from 0 to 1"),
    ):
        with pytest.raises(InputError, match=words):
            sweep.give_label(case, answer, label, cases=1)
    assert sweep.give_label(question.case, question.id, 1.0, cases=1).cells == 1
    assert sweep.labels()[0].rater == current_user()
    bench.erase(question.case, sweep="weekly")
    assert sweep.labels() == []
    bench.close()


def test_a_field_that_no_answer_has_is_refused(judged: Project) -> None:
    args = ("label", "draw", "nightly", "--rater", "ana", "--field", "y")
    assert sentence("no {} in the final state", "'y'") in judged.refusal(*args)


def test_a_judge_below_the_stated_agreement_decides_no_gate_unless_it_is_said_by_hand(weekly: Project) -> None:
    def gate(agreement: str, code: int) -> dict[str, Any]:
        more = f'gates: ["helpful.mean >= 0.1", "failed == 0"]\nagreement: {{helpful: {agreement}}}\n'
        weekly.write({"gated.yaml": (weekly.folder / "weekly.yaml").read_text("utf-8") + more})
        gates = json.loads(weekly.inside("run", "gated.yaml", "-q", "-f", "json", check=code).stdout)["gates"]
        assert (gates[1]["holds"], gates[1]["because"]) == (True, ""), "it does not rest on the judge"
        judge_gate: dict[str, Any] = gates[0]
        return judge_gate

    text = (weekly.folder / "weekly.yaml").read_text("utf-8")  # a judge that no other test labels
    weekly.write({"weekly.yaml": text.replace('["judged:helpful"]', '[{"judged:helpful": {timeout: 31s}}]')})
    unknown = gate("0.4", 1)
    assert (unknown["holds"], unknown["values"]["helpful.mean"] > 0.1) == (None, True)
    assert unknown["because"].startswith("nobody has labelled anything for helpful")
    assert gate("by hand", 0) == unknown | {
        "holds": True, "because": sentence("{} decides by hand, however far it agrees with people", "helpful"),
    }  # fmt: skip
    for agree, at_least, code, words in (
        (True, "0.75", 0, "helpful agrees with people: 1.000 (0.775 to 1.000)"),  # 1 - 3 / 30 / (2 * 1 / 3 * 2 / 3)
        (True, "0.78", 1, "helpful is not shown to agree with people as far as 0.78: 1.000 (0.775"),
        (False, "0.1", 1, "nothing is known of how far helpful agrees with people"),
    ):
        weekly.inside("run", "weekly.yaml", "-q", check=0)
        labels = HEADER + "".join(
            f"c{number},default,ana,{float((number % 3 != 0) == (agree or number % 2 == 0))}\n" for number in range(30)
        )
        weekly.write({"given.csv": labels})
        weekly.inside("label", "import", "weekly", "given.csv", check=0)
        document = gate(at_least, code)
        assert document["because"].startswith(words)
        assert "30 labels of weekly" in document["because"], "of an earlier sweep with the same judge"
        assert document["holds"] is (True if code == 0 else None)
    output = weekly.inside("run", "gated.yaml", "-q", check=1).stdout
    assert sentence("gate cannot be decided") + ": helpful.mean >= 0.1" in output
    assert "GATE FAILED" not in output


@pytest.mark.parametrize(
    ("agreement", "words"), [("7", sentence("expected an agreement")), ("true", sentence("expected an agreement"))]
)
def test_an_agreement_that_is_none_is_refused(weekly: Project, agreement: str, words: str) -> None:
    text = (weekly.folder / "weekly.yaml").read_text("utf-8")
    weekly.write({"wrong.yaml": f"{text}agreement: {{helpful: {agreement}}}\n"})
    assert words in weekly.refusal("run", "wrong.yaml", "-q")
    weekly.write({"wrong.yaml": f"{text}agreement: {{helpfull: 0.4}}\n"})
    assert sentence("no evaluator gives {}", "'helpfull'") + sentence(
        "; did you mean '{}'?", "helpful"
    ) in weekly.refusal("run", "wrong.yaml")


def test_a_judge_that_likes_long_answers_is_found_out() -> None:
    def by_length(more: Any, cases: Any, lengths: Any) -> judge_bias.Figure:
        return judge_bias.by_length(Held(more, np.zeros(len(more)), cases), lengths)

    draw = np.random.default_rng(5)
    cases = np.arange(200)
    lengths = [int(length) for length in 2 ** draw.uniform(3, 10, 200)]
    fair = draw.normal(0, 0.3, 200)
    biased_slope = by_length(fair + 0.25 * np.log2(lengths), cases, lengths)
    assert biased_slope.value == pytest.approx(0.25, abs=0.05)
    assert biased_slope.interval is not None
    assert biased_slope.interval[0] < 0.25 < biased_slope.interval[1]
    slope = np.polyfit(np.log2(lengths), fair, 1)[0]
    fair_slope = by_length(fair, cases, lengths)
    assert fair_slope.value == pytest.approx(slope), "as another implementation has it"
    assert fair_slope.interval is not None
    assert fair_slope.interval[0] < 0 < fair_slope.interval[1]
    assert by_length(fair, cases, [7] * 200).value is None, "of what is equally long nothing is known"
    assert by_length(fair[:2], cases[:2], lengths[:2]).value is None


MODELS = FLOW.replace("def answer(state, *, better: int = 0):", "def answer(state, ctx, *, better: int = 0):").replace(
    "    if state", "    ctx.call(model='gpt-4o-mini' if better else 'claude-sonnet-4-5', usd=0.0)\n    if state"
)
JUDGED_BY = {"field": "x", "model": "openai/gpt-4o", "criteria": "It is kind.", "url": "http://127.0.0.1:9/v1"}


def test_whose_family_an_answer_is_of_is_known_by_recorded_calls_or_said(judged: Project) -> None:
    """The judge is unreachable here: the check needs only the name of its model, and scores come from a function."""
    judge = f"evaluate: [{{judge: {json.dumps(JUDGED_BY | {'name': 'helpful', 'timeout': 1})}}}]"
    sweep = (
        SWEEP.replace('evaluate: ["judged:helpful"]', judge).replace("nightly", "called").replace("judged:", "called:")
    )
    judged.write({"called.py": MODELS, "called.yaml": sweep})
    judged.inside("run", "called.yaml", "-q")
    ((spec,),) = judged.query("SELECT spec FROM sweeps WHERE name = 'called'")
    judged.inside("score", "called", "-e", "called:helpful", check=0)
    with closing(sqlite3.connect(judged.file)) as database, database:  # as if the judge had given these scores
        database.execute("UPDATE sweeps SET spec = ? WHERE name = 'called'", [spec])
    lines = [f"c{number},{row},ana,{number % 2}\n" for number in range(30) for row in ("default", "long")]
    judged.write({"both.csv": HEADER + "".join(lines)})
    check = ("judge", "check", "called", "--labels", "both.csv")
    own_family = judged.json(*check)["own_family"]
    assert (own_family["families"], own_family["labels"]) == (["gpt"], 30)
    assert own_family["more"]["interval"] is not None
    text = judged.text(*check)
    assert (
        sentence("Extra score for its own family ({}) over other answers with the same label: ", "gpt, 30 labels")
        in text
    )
    named = judged.json(*check, "--own", "answer=default")["own_family"]
    assert (named["families"], named["more"]["value"]) == ([], pytest.approx(-own_family["more"]["value"]))
    assert sentence("did you mean '{}={}'", "answer", "long") in judged.refusal(*check, "--own", "answer=lang")
    plain = json.loads(judged.inside("judge", "check", "nightly", "--labels", "labels.csv", "-f", "json").stdout)
    assert plain["own_family"] is None, "of a judge that is no model nobody knows"
    assert [use["level"] for use in plain["uses"]] == [0, 1]


def test_cases_drawn_with_unequal_chances_count_by_them(judged: Project) -> None:
    drawn = [(number, label, 0.9 if label else 0.3) for number, label in LABELS]
    head = "case,answer,rater,label,probability\n"
    judged.write({"drawn.csv": head + "".join(f"c{n},default,ana,{label},{p}\n" for n, label, p in drawn)})
    check = ("judge", "check", "nightly", "-f", "json", "--labels")
    document = json.loads(judged.text(*check, "drawn.csv"))
    alike = json.loads(judged.text(*check, "labels.csv"))
    assert (document["is_weighted"], alike["is_weighted"]) == (True, False)
    people = [checked["rows"][0]["people"]["value"] for checked in (document, alike)]
    assert people[0] < people[1], "labels of 0 stand for three times as many cases"
    assert (
        sentence("count by one over these")
        in judged.inside("judge", "check", "nightly", "--labels", "drawn.csv").stdout
    )
    lacks = head + "".join(f"c{n},default,ana,{label},{p if n else ''}\n" for n, label, p in drawn)
    judged.write({"lacks.csv": lacks})
    assert sentence("expected 'probability' of all") in judged.refusal(*check, "lacks.csv")


def test_raters_who_draw_more_or_fewer_cases_of_the_one_order_leave_all_alike(weekly: Project) -> None:
    weekly.inside("label", "answer", "weekly", "--rater", "ana", "--cases", "4", stdin="1\n0\n" * 4, check=0)
    weekly.inside("label", "answer", "weekly", "--rater", "ben", "--cases", "8", stdin="1\n0\nq\n", check=0)
    document = weekly.json("judge", "check", "weekly")
    assert {row["probability"] for row in written(weekly, "weekly", "more.csv")} == {str(4 / 39), str(8 / 39)}
    assert (document["labels"], document["is_weighted"]) == (10, False)


def test_who_is_asked_again_takes_no_label_of_a_drawn_case_back(weekly: Project) -> None:
    for rater, typed in (("ana", "1\n1\n"), ("ben", "1\n1\n"), ("eva", "0\n0\n")):
        weekly.inside("label", "answer", "weekly", "--rater", rater, "--cases", "1", stdin=typed, check=0)
    bench = wtb.open(weekly.url or f"sqlite:///{weekly.file}")
    sweep = bench.sweep("weekly")
    before = sweep.labels()
    (question, _) = sweep.draw_labels(rater="nobody", again=True).items
    for label in (None, 1.0):
        with pytest.raises(InputError, match=sentence("{} labelled it when it was drawn", "'ana'")):
            sweep.give_label(question.case, question.id, label, rater="ana", again=True)
    rows = written(weekly, "weekly", "drawn.csv")
    csv_text = "case,answer,rater,label,asked\n" + "".join(
        f"{row['case']},{row['answer']},ana,1,disagreement\n" for row in rows[:1]
    )
    weekly.write({"again.csv": csv_text})
    assert sentence("{} labelled it when it was drawn", "'ana'") in weekly.refusal(
        "label", "import", "weekly", "again.csv"
    )
    assert sweep.labels() == before
    bench.close()


def test_what_people_would_say_of_the_difference_of_two_rows_is_by_the_labels_of_both(judged: Project) -> None:
    ratings = {("default", n): float(n % 4 != 0) for n in range(24)} | {
        ("long", n): float(n % 5 != 0) for n in range(20)
    }
    judged.write({"two.csv": HEADER + "".join(f"c{n},{row},ana,{label}\n" for (row, n), label in ratings.items())})
    check = ("judge", "check", "nightly", "--labels", "two.csv")
    base, other = judged.json(*check)["rows"]
    assert (base["combination"], base["difference"]) == ({"answer": "default"}, None)
    labels, judge = np.full(CASES, np.nan), np.full(CASES, np.nan)
    for n in range(CASES - 1):  # the last one fails
        judge[n] = float((n + 1) % 3 != 0) - float(n % 3 != 0)
        labels[n] = ratings["long", n] - ratings["default", n] if n < 20 else np.nan
    expected = labelled_mean(labels, judge)
    assert other["difference"]["value"] == pytest.approx(expected.mean)
    assert other["difference"]["interval"] == pytest.approx(expected.interval)
    text = judged.text(*check)
    assert sentence("difference: to {}", "answer=default") in text
    estimate = re.search(
        r"answer=long takes about (\d+) labels for the margin, (.+) h of work",
        judged.inside(*check, "--margin", "0.1").stdout,
    )
    assert estimate is not None
    assert float(estimate[2]) == pytest.approx(int(estimate[1]) / 60, abs=0.05)
    assert "difference" not in judged.text("judge", "check", "nightly", "--labels", "labels.csv")


def test_a_matrix_says_what_people_would_say_once_they_have_labelled_it(weekly: Project) -> None:
    matrix = ("matrix", "weekly", "-f", "json")
    assert "people" not in json.loads(weekly.text(*matrix))
    weekly.inside("label", "answer", "weekly", "--rater", "ana", "--cases", "12", stdin="1\n0\n1\n1\n" * 6, check=0)
    (people,) = json.loads(weekly.text(*matrix))["people"]
    assert (people["metric"], people["labels"], people["raters"]) == ("helpful", 24, 1)
    checked = weekly.json("judge", "check", "weekly")["rows"]
    assert [row["mean"] for row in people["rows"]] == [row["people"]["value"] for row in checked]
    assert [row["ci"] for row in people["rows"]] == [row["people"]["interval"] for row in checked]
    assert people["rows"][1]["delta_ci"] == checked[1]["difference"]["interval"]
    text = weekly.text("matrix", "weekly")
    assert "helpful above is the judge's; estimated human labels, by 24 labels of 1 rater" in " ".join(text.split())
    assert "answer=long: " in text

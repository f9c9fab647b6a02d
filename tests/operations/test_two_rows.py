"""Comparing two combinations over all cases: wins, differences and their significance."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.documents import validator
from tests.support.project import FLOW, Project
from tests.support.prose import sentence

SWEEP = """
sweep: rows
workflow: flow:wf
cases: cases.jsonl
vary: {A: [default, v1, v2]}
evaluate: ["flow:total", "flow:picky"]
primary: total
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("rows"))
    flow = FLOW.replace('{"x": state["x"] + by}', '{"x": state["x"] + (by if state["x"] < 8 else -20 * by)}')
    project.write({"flow.py": flow, "sweep.yaml": SWEEP})
    project.write({"cases.jsonl": "\n".join(json.dumps({"id": f"c{x}", "input": {"x": x}}) for x in range(10))})
    project.inside("run", "sweep.yaml")
    yield project
    project.close()


def test_who_wins_where_and_by_how_much_is_said_with_the_most_telling_cases_first(rows: Project) -> None:
    done = rows.inside("compare", "rows", "--row", "1", "--other", "0", "--limit", "3", "--format", "json", check=0)
    document = done.json
    validator("row-comparison").validate(document)
    assert (document["metric"], document["wins"], document["losses"], document["ties"]) == ("total", 8, 2, 0)
    assert document["delta"] == pytest.approx((8 * 1 - 2 * 20) / 10)
    assert document["ci"][0] < document["delta"] < document["ci"][1]
    assert 0.05 < document["p"] < 1
    assert [(case["case"], case["gain"]) for case in document["cases"]] == [("c8", -20), ("c9", -20), ("c0", 1)]
    assert document["more"] == 7
    diff = rows.inside("diff", *document["cases"][0]["executions"], "--format", "json", check=0)
    assert diff.json


def test_a_gain_is_one_whichever_way_the_metric_goes(rows: Project) -> None:
    document = rows.inside("compare", "rows", "--row", "1", "--metric", "picky", "--format", "json", check=0).json
    assert (document["better"], document["wins"] > 0, document["losses"] > 0) == ("lower", True, True)
    assert document["n_pairs"] + document["unpaired"] == 10, "the evaluator fails in some cases"
    assert document["unpaired"] > 0
    assert document["cases"][0]["gain"] == document["cases"][0]["other"] - document["cases"][0]["row"]


def test_people_read_it_in_a_table(rows: Project) -> None:
    text = rows.inside("compare", "rows", "--row", "2", "--other", "1", check=0).stdout
    assert "row 2 (A=v2) against row 1 (A=v1) by total (higher is better)" in text
    assert sentence("{} better, {} worse, {} the same", "10 cases of both: 8", 2, 0) in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--row", "9"), sentence("{} {}: the sweep has the rows 0 to {}", "row", 9, 2)),
        (("--row", "0"), sentence("row {} cannot be compared with itself", 0)),
        (("--row", "1", "--metric", "totl"), sentence("did you mean '{}'", "total")),
        (("rows", "--row", "1"), sentence("expected no other sweep")),
        ((), sentence("only one sweep is given")),
    ],
)
def test_what_cannot_be_compared_is_refused(rows: Project, options: tuple[str, ...], words: str) -> None:
    assert words in rows.inside("compare", "rows", *options, check=2).stderr


def test_there_is_no_test_before_the_end(rows: Project) -> None:
    rows.write({"open.yaml": SWEEP.replace("sweep: rows", "sweep: open")})
    rows.inside("run", "open.yaml", "--break", "after A if x < -1", check=1)
    document = rows.inside("compare", "open", "--row", "1", "--format", "json", check=0).json
    assert (document["p"], document["ci"]) == (None, None)
    assert sentence("the test is made at the end") in document["because"]


def test_rows_are_named_by_their_variants(rows: Project) -> None:
    by_number = rows.inside("compare", "rows", "--row", "1", "--other", "2", "--format", "json", check=0).json
    by_variant = rows.inside("compare", "rows", "--row", "A=v1", "--other", "A=v2", "--format", "json", check=0).json
    assert by_variant == by_number
    refused = rows.inside("compare", "rows", "--row", "v1", check=2).output
    assert "row 'v1': expected the number of a row, or its variants, such as A=v2 (--row)" in " ".join(refused.split())
    refused = rows.inside("compare", "rows", "--row", "A=v9", check=2).output
    assert sentence("node {} has no variant {} in this sweep", "'A'", "'v9'") + sentence(
        "; expected one of: {}", "default, v1, v2"
    ) in " ".join(refused.split())


def test_variants_that_several_rows_have_name_none(rows: Project) -> None:
    both = SWEEP.replace("sweep: rows", "sweep: both").replace("[default, v1, v2]}", "[default, v1], B: [default, v1]}")
    rows.write({"both.yaml": both})
    rows.inside("run", "both.yaml", "--quiet", check=None)
    message = " ".join(rows.inside("compare", "both", "--row", "A=v1", check=2).output.split())
    assert (
        sentence("{} {} is {} rows: ", "row", "'A=v1'", 2)
        + "2 (A=v1 B=default)"
        + sentence("{} ({}); expected one", "; 3", "A=v1 B=v1")
        in message
    )
    arguments = ("--row", "A=v1 B=v1", "--other", "A=v1,B=default", "--format", "json")
    document = rows.inside("compare", "both", *arguments, check=0).json
    assert (document["row"]["combination"], document["other"]["combination"]) == (3, 2)

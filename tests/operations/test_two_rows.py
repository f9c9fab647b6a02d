"""Two rows of a sweep over all cases: which wins where, by how much, and whether that may be chance."""

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
    found = done.json
    validator("row-comparison").validate(found)
    assert (found["metric"], found["wins"], found["losses"], found["ties"]) == ("total", 8, 2, 0)
    assert found["delta"] == pytest.approx((8 * 1 - 2 * 20) / 10)
    assert found["ci"][0] < found["delta"] < found["ci"][1]
    assert 0.05 < found["p"] < 1
    assert [(one["case"], one["gain"]) for one in found["cases"]] == [("c8", -20), ("c9", -20), ("c0", 1)]
    assert found["more"] == 7
    shown = rows.inside("diff", *found["cases"][0]["executions"], "--format", "json", check=0)
    assert shown.json


def test_a_gain_is_one_whichever_way_the_metric_goes(rows: Project) -> None:
    found = rows.inside("compare", "rows", "--row", "1", "--metric", "picky", "--format", "json", check=0).json
    assert (found["better"], found["wins"] > 0, found["losses"] > 0) == ("lower", True, True)
    assert found["n_pairs"] + found["unpaired"] == 10, "the evaluator fails in some cases"
    assert found["unpaired"] > 0
    assert found["cases"][0]["gain"] == found["cases"][0]["other"] - found["cases"][0]["row"]


def test_people_read_it_in_a_table(rows: Project) -> None:
    shown = rows.inside("compare", "rows", "--row", "2", "--other", "1", check=0).stdout
    assert "row 2 (A=v2) against row 1 (A=v1) by total (higher is better)" in shown
    assert sentence("{} better, {} worse, {} the same", "10 cases of both: 8", 2, 0) in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--row", "9"), sentence("{} {}: the sweep has the rows 0 to {}", "row", 9, 2)),
        (("--row", "0"), sentence("row {} cannot be compared with itself", 0)),
        (("--row", "1", "--metric", "totl"), sentence("did you mean '{}'", "total")),
        (("rows", "--row", "1"), sentence("expected no other sweep")),
        ((), sentence("what to compare with is missing")),
    ],
)
def test_what_cannot_be_compared_is_refused(rows: Project, options: tuple[str, ...], words: str) -> None:
    assert words in rows.inside("compare", "rows", *options, check=2).stderr


def test_there_is_no_test_before_the_end(rows: Project) -> None:
    rows.write({"open.yaml": SWEEP.replace("sweep: rows", "sweep: open")})
    rows.inside("run", "open.yaml", "--break", "after A if x < -1", check=1)
    found = rows.inside("compare", "open", "--row", "1", "--format", "json", check=0).json
    assert (found["p"], found["ci"]) == (None, None)
    assert sentence("the test is made at the end") in found["because"]


def test_rows_are_named_by_their_variants(rows: Project) -> None:
    by_number = rows.inside("compare", "rows", "--row", "1", "--other", "2", "--format", "json", check=0).json
    by_variant = rows.inside("compare", "rows", "--row", "A=v1", "--other", "A=v2", "--format", "json", check=0).json
    assert by_variant == by_number
    refused = rows.inside("compare", "rows", "--row", "v1", check=2).said
    assert "row 'v1': expected the number of a row, or its variants, such as A=v2 (--row)" in " ".join(refused.split())
    refused = rows.inside("compare", "rows", "--row", "A=v9", check=2).said
    assert sentence("node {} has no variant {} in this sweep", "'A'", "'v9'") + sentence(
        "; expected one of: {}", "default, v1, v2"
    ) in " ".join(refused.split())


def test_variants_that_several_rows_have_name_none(rows: Project) -> None:
    both = SWEEP.replace("sweep: rows", "sweep: both").replace("[default, v1, v2]}", "[default, v1], B: [default, v1]}")
    rows.write({"both.yaml": both})
    rows.inside("run", "both.yaml", "--quiet", check=None)
    said = " ".join(rows.inside("compare", "both", "--row", "A=v1", check=2).said.split())
    assert (
        sentence("{} {} is {} rows: ", "row", "'A=v1'", 2)
        + "2 (A=v1 B=default)"
        + sentence("{} ({}); expected one", "; 3", "A=v1 B=v1")
        in said
    )
    asked = ("--row", "A=v1 B=v1", "--other", "A=v1,B=default", "--format", "json")
    found = rows.inside("compare", "both", *asked, check=0).json
    assert (found["row"]["combination"], found["other"]["combination"]) == (3, 2)

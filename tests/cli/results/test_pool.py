"""`wtb pool`: the same rows over the same cases, run several times, as one sweep with so many repeats."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.results.test_looks import FLOW, looks, run, sweep
from tests.support.prose import sentence

if TYPE_CHECKING:
    from tests.support.project import Outcome, Project


@pytest.fixture
def answers(empty_project: Project) -> Project:
    empty_project.write({"answers.py": FLOW})
    return empty_project


def id_of(matrix: dict[str, Any]) -> str:
    return str(matrix["sweep"]["id"])


def pool(project: Project, *refs: str, name: str = "nights") -> str:
    """Pool sweeps. Returns the id of the pool."""
    output = project.text("pool", *refs, "--name", name)
    return output.partition("(")[2].partition(")")[0]


def test_a_pool_is_a_sweep_whose_repeats_are_the_runs_of_others(answers: Project) -> None:
    nights = [run(answers, sweep(10, "v1")) for _ in range(3)]
    answers.write({"sweep.yaml": sweep(10, "v1").replace("cases: [", "repeats: 2\ncases: [")})
    nights.append(answers.json("run", "sweep.yaml", "-q"))
    id = pool(answers, *map(id_of, nights))
    matrix = answers.json("matrix", id)

    assert (matrix["sweep"]["name"], matrix["sweep"]["status"], matrix["figures"]) == ("nights", "completed", "final")
    assert matrix["cells"]["total"] == 2 * 10 * 5
    for number, row in enumerate(matrix["rows"]):
        assert row["n"] == row["succeeded"] == 50
        assert row["metrics"]["right"]["n"] == 10
        means = [night["rows"][number]["metrics"]["right"]["mean"] for night in nights]
        assert row["metrics"]["right"]["mean"] == pytest.approx(mean([*means, means[-1]]))
    assert looks(matrix) == 5, "a pool is one more look"
    assert not any("wtb pool" in text for text in matrix["warnings"])

    for command in (("show", id), ("status", id), ("report", id, "--format", "html"), ("log", id), ("costs", id)):
        assert "nights" in answers.text(*command) or command[0] in ("log", "costs"), command
    cells = answers.json("show", id, "--cells")["cells"]
    assert sorted({cell["repeat"] for cell in cells}) == [0, 1, 2, 3, 4]
    answers.inside("history", cells[0]["execution"], check=0)
    answers.inside("compare", id_of(nights[0]), id, check=0)
    answers.inside("matrix", id, "--format", "csv", check=0)
    with_more = pool(answers, id, id_of(run(answers, sweep(10, "v1"))))
    assert answers.json("matrix", with_more)["cells"]["total"] == 2 * 10 * 6


def test_a_pool_is_read_only_and_keeps_its_sources(answers: Project) -> None:
    first, second = (id_of(run(answers, sweep(8, "v1"))) for _ in range(2))
    id = pool(answers, first, second)
    for what, *command in (
        ("resumed", "resume", id),
        ("retried", "retry", id),
        ("scored anew", "score", id, "--evaluate", "answers:wrong"),
        ("run again", "baseline", "repeat", "main", id),
    ):
        refused = answers.inside(*command, check=2 if what == "" else None)
        assert refused.code != 0
        message = f"sweep nights ({id}) is a pool, and cannot be {what}: its cells are those of {first}, {second}."
        assert message in refused.output, refused.stderr

    deletion = answers.inside("delete", first, "--yes")
    assert deletion.code != 0
    assert (
        sentence("is part of the pool {} ({}), which shows its cells: delete the pool first", "'nights'", id)
        in deletion.output
    )
    before = answers.json("matrix", id)
    answers.inside("score", first, "--evaluate", "answers:wrong", check=0)
    assert answers.json("matrix", id)["rows"] == before["rows"]
    answers.inside("delete", id, "--yes", check=0)
    answers.inside("delete", first, "--yes", check=0)


def refused(project: Project, *refs: str) -> Outcome:
    outcome = project.inside("pool", *refs)
    assert outcome.code != 0, outcome.stdout
    assert project.query("SELECT count(*) FROM pooled") == [(0,)]
    return outcome


def test_what_is_no_repeat_is_refused(answers: Project) -> None:
    first = id_of(run(answers, sweep(8, "v1")))
    assert sentence("a pool of {}; expected two or more", "1 sweep") in refused(answers, first).output
    assert sentence("is there {}; expected each once", "twice") in refused(answers, first, first[:10]).output
    assert sentence("there is no sweep {}", "'nobody'") in refused(answers, first, "nobody").output

    variations = {
        "have different cases: c8, c9": sweep(10, "v1"),
        "have different cases: c0, c1, c2 and 13 more": sweep(8, "v1", first=20),
        "compare different combinations": sweep(8, "v2"),
        "have different evaluators": sweep(8, "v1", evaluator="wrong"),
    }
    for expected, text in variations.items():
        message = refused(answers, first, id_of(run(answers, text))).output
        assert expected in message or sentence("have different code of {}", "answer") in message, message
        assert sentence("expected repeats of the same sweep") in message
    answers.write({"answers.py": FLOW.replace("< skill}", "<= skill}")})
    changed = id_of(run(answers, sweep(8, "v1")))
    assert (
        sentence("have different code of {}", "answer") + sentence("; expected repeats")
        in refused(answers, first, changed).output
    )
    assert f"answers ({first}) and answers ({changed})" in refused(answers, first, changed).output

    answers.write({"answers.py": FLOW})
    answers.inside("admin", "project", "create", "other", check=0)
    answers.inside("admin", "session", "create", "theirs", "--project", "other", check=0)
    elsewhere = id_of(run(answers, sweep(8, "v1") + "session: theirs\n"))
    assert sentence("belong to different projects") in refused(answers, first, elsewhere).output
    answers.write({"input.json": "{}"})
    answers.inside("start", "answers:wf", "--input", "input.json", check=0)
    ((single,),) = answers.query("SELECT id FROM sweeps WHERE kind = 'single'")
    assert sentence("is a single execution; expected a sweep") in refused(answers, first, str(single)).output
    answers.change("UPDATE sweeps SET status = 'paused' WHERE id = '" + first + "'")
    repeated = id_of(run(answers, sweep(8, "v1")))
    assert (
        sentence("is {}, with {} without an outcome; expected completed sweeps", "paused", "0 cells")
        in refused(answers, repeated, first).output
    )


def test_overlapping_pools_are_refused_and_disjoint_ones_are_flattened(answers: Project) -> None:
    a, b, c, d = (id_of(run(answers, sweep(6, "v1"))) for _ in range(4))
    first, other, third = pool(answers, a, b, name="one"), pool(answers, b, c, name="other"), pool(answers, c, d)
    overlapping = answers.inside("pool", first, other)
    assert overlapping.code != 0
    assert sentence("({}) is there {}; expected each once", b, f"in {first} and in {other}") in overlapping.output
    assert (
        sentence("({}) is there {}; expected each once", a, f"in {first} and in {a}")
        in answers.inside("pool", first, a).output
    )
    both = pool(answers, first, third)
    rows = answers.query("SELECT sweep_id FROM pooled WHERE pool_id = :id ORDER BY number", id=both)
    assert rows == [(a,), (b,), (c,), (d,)]


def test_a_session_goes_with_its_pools(answers: Project) -> None:
    answers.inside("admin", "session", "create", "mine", check=0)
    pool(answers, *(id_of(run(answers, sweep(6, "v1") + "session: mine\n")) for _ in range(2)))
    answers.inside("admin", "session", "delete", "mine", "--yes", check=0)
    assert answers.query("SELECT count(*) FROM pooled") == [(0,)]
    assert answers.query("SELECT count(*) FROM looks") == [(3,)], "what was seen is not unseen"

"""gc, pin and unpin, and the sizes that doctor shows, as a user meets them."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.prose import sentence

if TYPE_CHECKING:
    from tests.support.project import Outcome, Project

NOTHING = {"sweeps", "checkpoints", "node_runs", "outputs", "values", "files", "directories", "processes"}
NOTHING |= {"uploads", "answers", "judgements"}

FILES = """
from wtb import Workflow

wf = Workflow("files")


@wf.node
def write(state, ctx, *, text: str = "one"):
    (ctx.workspace / "made.txt").write_text(text)
    return {"said": text}


write.variant("two", text="two")
wf.entry(write)
"""

SWEEP = """
sweep: files
workflow: files:wf
cases: [{id: a, input: {x: 1}}]
vary: {write: all}
"""


def removed(outcome: Outcome) -> dict[str, Any]:
    """Return the counts of removed objects, without those that are 0."""
    assert outcome.code == 0, outcome.stderr
    assert set(outcome.json["removed"]) == NOTHING
    assert outcome.json["notes"] == []
    return {kind: amount["count"] for kind, amount in outcome.json["removed"].items() if amount["count"]}


def gc(project: Project, *options: str) -> dict[str, Any]:
    return removed(project.in_80_columns("admin", "gc", *options, "--format", "json"))


@pytest.fixture
def ran(empty_project: Project) -> Project:
    """A sweep that ran, whose nodes wrote a file each."""
    empty_project.write({"files.py": FILES, "sweep.yaml": SWEEP})
    empty_project.wtb("run", "sweep.yaml", "--quiet", check=0)
    return empty_project


def sweep_id(project: Project) -> str:
    ((sweep,),) = project.query("SELECT id FROM sweeps")
    return str(sweep)


def make_old(project: Project) -> None:
    """Move every time of the database ten days back."""
    project.change("UPDATE sweeps SET created_at = created_at - 864000, finished_at = finished_at - 864000")
    project.change("UPDATE checkpoints SET created_at = created_at - 864000")
    project.change("UPDATE attempts SET started_at = started_at - 864000")
    store = project.folder / ".wtb" / "files"
    for place in store.rglob("*"):
        os.utime(place, (place.stat().st_mtime - 864000,) * 2)


def test_a_fresh_sweep_leaves_nothing_to_collect(ran: Project) -> None:
    assert gc(ran) == {}
    make_old(ran)
    assert gc(ran) == {}  # it is old, but all of it can be reached, and sweeps go only where that is asked for


def test_old_sweeps_go_with_their_files_and_a_dry_run_says_so_before(ran: Project) -> None:
    make_old(ran)
    counted = {"sweeps": 1, "values": 3, "files": 4}

    assert gc(ran, "--sweeps", "7d", "--keep", "0", "--dry-run") == counted
    assert len(ran.query("SELECT id FROM sweeps")) == 1
    assert gc(ran, "--sweeps", "7d", "--keep", "0") == counted

    assert ran.query("SELECT id FROM sweeps") == []
    assert ran.query('SELECT digest FROM "values"') == ran.query("SELECT digest FROM files") == []
    assert not list((ran.folder / ".wtb" / "files").rglob("??/*"))
    assert gc(ran) == {}


def test_judgements_that_nobody_used_for_long_go_and_a_dry_run_counts_them(ran: Project) -> None:
    folder = ran.folder / ".wtb" / "files" / "judgements" / "ab"
    folder.mkdir(parents=True)
    for name, age_s in (("ab1", 91 * 86_400), ("ab2", 91 * 86_400), ("ab3", 89 * 86_400)):
        (folder / name).write_text("[1.0, 0.001, null]")
        os.utime(folder / name, (time.time() - age_s,) * 2)

    preview = ran.in_80_columns("admin", "gc", "--dry-run", "--format", "json")
    assert removed(preview) == {"judgements": 2}
    assert preview.json["removed"]["judgements"]["bytes"] == 2 * len("[1.0, 0.001, null]")
    assert len(list(folder.iterdir())) == 3
    assert gc(ran) == {"judgements": 2}
    assert [path.name for path in folder.iterdir()] == ["ab3"]
    assert gc(ran, "--dry-run") == {}


def test_the_table_says_what_would_be_removed_and_how_large_it_is(ran: Project) -> None:
    make_old(ran)

    table = ran.in_80_columns("admin", "gc", "--sweeps", "7d", "--keep", "0", "--dry-run").stdout
    lines = [line.split() for line in table.splitlines()]

    assert lines[0] == ["would", "be", "removed", "how", "many", "bytes"]
    assert ["sweeps", "1"] in lines
    assert ["values", "3", "11", "B"] in lines  # 1, "one" and "two"
    assert next(line for line in lines if line[:2] == ["stored", "files"])[2] == "4"
    assert all(len(line) <= 80 for line in table.splitlines())


def test_the_policy_stands_in_wtb_toml(ran: Project) -> None:
    make_old(ran)
    (ran.folder / "wtb.toml").write_text('[retention]\nsweeps = "7d"\nkeep = 0\n')

    preview = ran.in_80_columns("admin", "gc", "--dry-run", "--keep", "1", "--format", "json")
    assert removed(preview) == {}
    assert (preview.json["policy"]["sweeps"], preview.json["policy"]["keep"]) == (7 * 86400.0, 1)
    assert gc(ran)["sweeps"] == 1

    (ran.folder / "wtb.toml").write_text('[retention]\nsweep = "7d"\n')
    refused = ran.in_80_columns("admin", "gc")
    assert refused.code == 2
    assert sentence("has no setting {}", "'sweep'") + sentence("; did you mean '{}'?", "sweeps") in refused.output


@pytest.mark.parametrize("option", ["--outputs", "--superseded", "--sweeps", "--files"])
def test_an_age_that_cannot_be_read_is_refused(ran: Project, option: str) -> None:
    refused = ran.in_80_columns("admin", "gc", option, "soon")
    assert refused.code == 2
    assert sentence("{} = {}: expected a duration such as 12h, 7d or 2w", option, "'soon'") in refused.output


def test_a_pinned_sweep_stays_until_it_is_unpinned(ran: Project) -> None:
    make_old(ran)
    options = ("--sweeps", "7d", "--keep", "0")

    assert ran.in_80_columns("admin", "pin", "files").stdout == f"pinned sweep files ({sweep_id(ran)})\n"
    assert gc(ran, *options) == {}
    assert ran.in_80_columns("admin", "unpin", "files").stdout == f"unpinned sweep files ({sweep_id(ran)})\n"
    assert gc(ran, *options)["sweeps"] == 1


def test_a_checkpoint_is_pinned_by_its_id_or_as_the_head_of_an_execution(ran: Project) -> None:
    execution, head = ran.query("SELECT id, head_id FROM executions WHERE status = 'completed' ORDER BY id")[0]

    assert ran.in_80_columns("admin", "pin", head, "--name", "before the change").stdout == (
        f"pinned checkpoint {head} as before the change\n"
    )
    pinned = ran.query("SELECT id, name FROM checkpoints WHERE pinned")
    assert pinned == [(head, "before the change")]
    history = ran.in_80_columns("history", execution, "--format", "json").json
    assert history["checkpoints"][-1]["name"] == "before the change"
    make_old(ran)
    assert gc(ran, "--sweeps", "7d", "--keep", "0") == {}
    assert ran.in_80_columns("admin", "unpin", execution).stdout == f"unpinned checkpoint {head}\n"
    assert gc(ran, "--sweeps", "7d", "--keep", "0")["sweeps"] == 1


def test_what_cannot_be_pinned_is_refused(ran: Project) -> None:
    nothing = ran.in_80_columns("admin", "pin", "filse")
    assert (nothing.code, sentence("did you mean '{}'?", "files") in nothing.output) == (2, True)
    named = ran.in_80_columns("admin", "pin", "files", "--name", "x")
    assert (named.code, sentence("a name is for checkpoints") in named.output) == (2, True)
    assert ran.in_80_columns("admin", "pin", "files", "--name", " ").code == 2


def test_a_collection_without_a_database_says_how_to_make_one(empty_project: Project) -> None:
    refused = empty_project.in_80_columns("admin", "gc")
    assert (refused.code, sentence("`wtb run` creates one") in refused.output) == (2, True)
    assert list(empty_project.folder.iterdir()) == []


def test_doctor_shows_how_much_is_stored_and_what_was_left_behind(ran: Project) -> None:
    (ran.folder / ".wtb" / "sessions" / "default" / "sweep" / "nobody").mkdir(parents=True)
    place = ran.folder / ".wtb" / "sessions" / "default" / "sweep" / "nobody"
    os.utime(place, (0, 0))

    outcome = ran.in_80_columns("doctor", "--format", "json")
    checks = {check["name"]: check for check in outcome.json["checks"]}

    assert checks["values"]["found"] == "11 B in 3 values"
    assert checks["left behind"]["found"].startswith("directories of dead runners: 1, processes: 0")
    assert place.exists()
    assert gc(ran) == {"directories": 1}
    assert not place.exists()
    after = json.loads(ran.in_80_columns("doctor", "--format", "json").stdout)
    assert "left behind" not in {check["name"] for check in after["checks"]}
    assert {check["found"] for check in after["checks"] if check["name"] == "files of default"} <= {
        f"{size} B in 4 stored files" for (size,) in ran.query("SELECT sum(size) FROM files")
    }


# Stores of earlier releases, in which projects shared a folder


def flatten(project: Project) -> dict[str, bytes]:
    """Lay out the store as earlier releases did. Returns its contents by digest."""
    top, contents = project.folder / ".wtb" / "files", {}
    for place in sorted((top / "projects").glob("*/??/*")):
        contents[place.parent.name + place.name] = place.read_bytes()
        (top / place.parent.name).mkdir(exist_ok=True)
        place.replace(top / place.parent.name / place.name)
    shutil.rmtree(top / "projects")
    (top / "judgements" / "ab").mkdir(parents=True)
    (top / "judgements" / "ab" / "reply").write_text("[1, null]")
    return contents


def stored(project: Project, folder: str) -> set[str]:
    top = project.folder / ".wtb" / "files"
    return {place.parent.name + place.name for place in (top / folder).glob("??/*")}


def test_what_earlier_releases_left_is_the_only_projects_once_it_runs_something(ran: Project) -> None:
    contents = flatten(ran)
    assert ran.in_80_columns("files", "files", "--combination", "write=two", "made.txt").stdout == "two"
    ran.wtb("run", "sweep.yaml", "--quiet", check=0)
    assert stored(ran, "projects/default") == contents.keys()
    assert not stored(ran, ".")
    assert (ran.folder / ".wtb" / "files" / "projects" / "default" / "judgements" / "ab" / "reply").exists()
    assert ran.in_80_columns("files", "files", "--combination", "write=two", "made.txt").stdout == "two"


def test_of_several_projects_each_gets_its_own_copy_of_what_earlier_releases_left(ran: Project) -> None:
    ran.write({"other.yaml": SWEEP.replace("sweep: files", "sweep: other") + "project: alpha\n"})
    ran.wtb("run", "other.yaml", "--quiet", check=0)
    contents = flatten(ran)
    make_old(ran)
    ran.wtb("run", "sweep.yaml", "--quiet", check=0)  # which leaves alone what may be the other's
    assert ran.in_80_columns("files", "other", "--combination", "write=two", "made.txt").stdout == "two"

    assert gc(ran) == {}

    assert not stored(ran, ".")
    for folder in ("projects/default", "projects/alpha"):
        assert stored(ran, folder) == contents.keys()
    places = [ran.folder / ".wtb" / "files" / "projects" / name for name in ("default", "alpha")]
    for digest, content in contents.items():
        copies = [place / digest[:2] / digest[2:] for place in places]
        assert [copy.read_bytes() for copy in copies] == [content] * 2
        assert not copies[0].samefile(copies[1])
    for sweep in ("files", "other"):
        assert ran.in_80_columns("files", sweep, "--combination", "write=two", "made.txt").stdout == "two"


def test_a_case_is_erased_from_where_earlier_releases_kept_it(ran: Project) -> None:
    flatten(ran)
    ran.in_80_columns("admin", "erase", "a", "--yes")
    assert not stored(ran, ".")
    assert not stored(ran, "projects/default")

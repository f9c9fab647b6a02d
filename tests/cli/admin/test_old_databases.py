"""A database of early development, as a user finds it who has installed this WTB."""

from __future__ import annotations

import pytest

from tests import old_databases
from tests.support.project import Project
from tests.support.prose import sentence
from wtb.store.squashed import LAST
from wtb.store.tables.schema import REVISION


@pytest.fixture
def old(empty_project: Project, database_url: str) -> Project:
    old_databases.restore(database_url)
    empty_project.url = database_url
    return empty_project


def test_its_sweeps_are_there_after_the_upgrade(old: Project) -> None:
    refused = old.inside("matrix", "first", check=2)
    assert sentence("is of version {}; this WTB expects {}: {}", LAST, REVISION, "run `wtb db upgrade`") in " ".join(
        refused.said.split()
    )
    assert old.inside("db", "version", check=1).stdout.startswith(f"{LAST}; this WTB expects {REVISION}")

    assert sentence("upgraded from version {} to {}", LAST, REVISION) in old.inside("db", "upgrade", check=0).stdout
    assert "nothing to do" in old.inside("db", "upgrade", check=0).stdout

    assert old.inside("db", "version", check=0).stdout == f"{REVISION}\n"
    (listed,) = old.inside("list", "--format", "json", check=0).json["sweeps"]
    assert (listed["name"], listed["status"], listed["cells"]["total"]) == ("first", "completed", 8)
    shown = old.inside("show", "first", check=0).stdout
    assert "8: 6 succeeded, 2 failed" in shown
    assert "ValueError: no twelve, please" in shown
    rows = old.inside("matrix", "first", "--format", "json", check=0).json["rows"]
    means = {tuple(row["combination"].values()): row["metrics"]["total"]["mean"] for row in rows}
    assert means == {("v1", "v2"): 206.0, ("v1", "v1"): 106.0, ("v2", "v2"): 202.0, ("v2", "v1"): 102.0}
    assert "stable" in old.inside("baseline", "list", check=0).stdout
    assert "nightly" in old.inside("schedule", "list", check=0).stdout
    assert "$1.25" in old.inside("budget", "list", check=0).stdout


def test_one_that_somebody_changed_is_refused(old: Project) -> None:
    old.change("DROP TABLE alerts")

    refused = old.inside("db", "upgrade", check=4)

    assert sentence("table {} is missing", "alerts") + sentence("; nothing was changed") in " ".join(
        refused.said.split()
    )
    assert old.inside("db", "version", check=1).stdout.startswith(LAST)


def test_an_older_one_is_refused(old: Project) -> None:
    old.change("UPDATE alembic_version SET version_num = '0007'")

    refused = old.inside("db", "upgrade", check=2)

    said = " ".join(refused.said.split())
    assert (
        sentence(
            "of version {}, and this WTB upgrades from {} on: upgrade it to {} with an earlier WTB", "0007", LAST, LAST
        )
        in said
    )


def test_an_upgrade_can_be_undone(old: Project) -> None:
    upgraded = old.inside("db", "upgrade", check=0)
    kept = upgraded.said.partition("to go back: wtb db restore ")[2].split()[0]

    assert "give --yes" in old.inside("db", "restore", kept, check=2).said
    restored = old.inside("db", "restore", kept, "--yes", check=0)

    assert restored.stdout.endswith(f"restored, version {LAST}\n")
    assert sentence("this WTB expects version {}", REVISION) in restored.said
    assert old.inside("db", "version", check=1).stdout.startswith(LAST)
    assert sentence("there is no such file") in old.inside("db", "restore", "nowhere.db", "--yes", check=2).said
    assert "to go back" not in old.inside("db", "upgrade", "--no-backup", check=0).said
    assert old.inside("list", check=0).stdout

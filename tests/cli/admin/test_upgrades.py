"""A database of an earlier version, as a user finds it who has installed this WTB."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.project import Project
from tests.support.prose import sentence
from wtb.hosting.servers.up import _bring_up_to_date
from wtb.store.database import INITIAL, TAG_OF_OLDER
from wtb.store.tables.schema import REVISION


@pytest.fixture
def earlier(project: Project, next_version: Callable[[], str]) -> Project:
    """A project whose sweep ran before this WTB became the next version."""
    project.inside("run", "sweep.yaml", "--quiet")
    next_version()
    return project


def test_its_sweeps_are_there_after_the_upgrade(earlier: Project) -> None:
    refused = earlier.inside("matrix", "first", check=2)
    expected = sentence("is of version {}; this WTB expects {}: {}", INITIAL, "2001", "run `wtb admin db upgrade`")
    assert expected in " ".join(refused.output.split())
    assert earlier.inside("admin", "db", "version", check=1).stdout.startswith(f"{INITIAL}; this WTB expects 2001")

    assert sentence("upgraded from version {} to {}", INITIAL, "2001") in earlier.text("admin", "db", "upgrade")
    assert "nothing to do" in earlier.text("admin", "db", "upgrade")

    assert earlier.text("admin", "db", "version") == "2001\n"
    (listed,) = earlier.json("list")["sweeps"]
    assert (listed["name"], listed["status"]) == ("first", "completed")
    assert earlier.text("matrix", "first")


def test_an_upgrade_can_be_undone(earlier: Project) -> None:
    upgraded = earlier.inside("admin", "db", "upgrade", check=0)
    backup = upgraded.output.partition("to go back: wtb admin db restore ")[2].split()[0]

    assert "give --yes" in earlier.refusal("admin", "db", "restore", backup)
    restored = earlier.inside("admin", "db", "restore", backup, "--yes", check=0)

    assert restored.stdout.endswith(f"restored, version {INITIAL}\n")
    assert sentence("this WTB expects version {}", "2001") in restored.output
    assert earlier.inside("admin", "db", "version", check=1).stdout.startswith(INITIAL)
    assert sentence("there is no such file") in earlier.refusal("admin", "db", "restore", "nowhere.db", "--yes")
    assert "to go back" not in earlier.inside("admin", "db", "upgrade", "--no-backup", check=0).output
    assert earlier.text("list")


def test_a_stack_upgrades_its_database(earlier: Project) -> None:
    reports: list[str] = []
    url = f"sqlite:///{earlier.file}"
    _bring_up_to_date(url, reports.append)
    _bring_up_to_date(url, reports.append)
    assert reports == [sentence("database upgraded from version {} to {}", INITIAL, "2001")]


@pytest.mark.parametrize("arguments", [["list"], ["admin", "db", "upgrade"], ["run", "sweep.yaml"]], ids=" ".join)
def test_one_from_before_the_first_release_names_the_tag_that_opens_it(project: Project, arguments: list[str]) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    project.change("UPDATE alembic_version SET version_num = '1054'")

    refused = " ".join(project.refusal(*arguments).split())

    assert sentence("is of version {}; this WTB expects {}: {}", "1054", REVISION, "use a new database") in refused
    assert f"the tag {TAG_OF_OLDER}" in refused

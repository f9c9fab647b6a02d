"""Files by project: isolation, files handed over by nodes, and files of earlier releases."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.test_workspaces import contents, fill, sha, snapshot
from tests.support.inputs import name_in_errors
from tests.support.prose import sentence
from wtb.core.errors import InputError, StateError, StoreError
from wtb.store.files.cache import FileCache
from wtb.store.files.locations import check_outside
from wtb.store.files.shared_store import OUTBOX, Handover, Outbox, SharedFiles, store_at
from wtb.store.files.store import FileStore, folder_of
from wtb.store.files.workspaces import Bounds, Workspaces


@pytest.fixture
def home(tmp_path: Path) -> Workspaces:
    return Workspaces(FileStore(tmp_path / "home" / "files"), tmp_path / "home" / "sessions")


class Node:
    """A node process of a project, and its runner."""

    def __init__(self, home: Workspaces) -> None:
        self.runner = home.of_project("alpha").of_runner("r1", "sweep", "r1")
        self.runner.files.make()
        self.directory = self.runner.root / "process"
        self.outbox = self.directory / OUTBOX
        self.workspaces = Workspaces(Outbox(store_at(self.runner.files.place()), self.outbox), self.directory)

    def leave(self, files: dict[str, str | bytes], begun_with: str | None = None) -> tuple[str, dict[str, int]]:
        """Write files as an attempt, and return its snapshot and the digests with their sizes."""
        workspace = self.workspaces.open(begun_with)
        fill(workspace.path, files)
        tree = workspace.close(keep=True)
        assert tree.digest is not None
        return tree.digest, dict(tree.new)

    def take(self, snapshot: str | None, files: dict[str, int], begun_with: str | None = None) -> None:
        Handover(self.runner, self.outbox, begun_with).take(snapshot, tuple(files.items()))


@pytest.fixture
def node(home: Workspaces) -> Node:
    return Node(home)


# Of each project its own


def test_content_that_two_projects_have_is_stored_for_each(home: Workspaces) -> None:
    alpha, beta = home.of_project("alpha"), home.of_project("beta")
    trees = [snapshot(workspaces, {"a": "same", "b": name}) for workspaces, name in ((alpha, "alpha"), (beta, "beta"))]
    places = [Path(workspaces.files.path(sha("same"))) for workspaces in (alpha, beta)]
    assert places[0] != places[1]
    assert places[0].stat().st_ino != places[1].stat().st_ino
    assert contents(beta, trees[1].digest) == {"a": "same", "b": "beta"}
    with pytest.raises(StoreError, match="is missing"):
        contents(beta, trees[0].digest)
    assert alpha.files.remove(sha("same"))
    assert contents(beta, trees[1].digest) == {"a": "same", "b": "beta"}


def test_any_name_of_a_project_is_a_folder_of_its_own() -> None:
    for name in ("..", "a/b", "Alpha", "~0", "ünï", "a" * 200, "CON:", ".hidden", "-x"):
        assert re.fullmatch(r"~[^/A-Z]{1,62}", folder_of(name)), name
    assert folder_of("alpha-2") == "alpha-2"


def test_the_cache_is_by_project_and_bounded_for_all_together(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    files = SharedFiles(tmp_path / "shared" / "files", FileCache(tmp_path / "cache", 10_000))
    alpha, beta = files.of_project("alpha"), files.of_project("beta")
    source = tmp_path / "source"
    for store, letter in ((alpha, b"a"), (beta, b"b"), (beta, b"c")):
        source.write_bytes(letter * 4000)
        store.add(source)
    assert alpha.cache.open(sha(b"a" * 4000)) is None, "which was not used for longest"
    assert beta.cache.open(sha(b"c" * 4000)) is not None
    assert alpha.cache.open(sha(b"c" * 4000)) is None
    same_store = store_at(beta.place())
    assert isinstance(same_store, SharedFiles)
    assert same_store.cache.folder == tmp_path / "cache" / "projects" / "beta"


# Handing over


def test_what_a_node_leaves_is_in_the_store_once_its_runner_has_taken_it(node: Node) -> None:
    snapshot, files = node.leave({"a.txt": "one", "b/c": "two"})
    assert not list(node.runner.files.stored())
    node.take(snapshot, files)
    assert contents(node.runner, snapshot) == {"a.txt": "one", "b/c": "two"}
    assert not list(node.outbox.iterdir())
    more, added = node.leave({"d": "three"}, snapshot)
    node.take(more, added, snapshot)
    assert contents(node.runner, more) == {"a.txt": "one", "b/c": "two", "d": "three"}


def test_two_attempts_of_a_process_may_leave_the_same(node: Node) -> None:
    first, second = node.leave({"a": "same"}), node.leave({"a": "same"})
    node.take(*first)
    node.take(*second)
    assert contents(node.runner, first[0]) == {"a": "same"}


@pytest.mark.parametrize(
    "change",
    [
        lambda place, outside: (place.unlink(), place.symlink_to(outside)),
        lambda place, outside: (place.unlink(), place.mkdir()),
        lambda place, outside: (place.unlink(), os.mkfifo(place)),
        lambda place, outside: (place.unlink(), place.write_text("two")),
        lambda place, outside: (place.unlink(), place.write_text("one" * 100)),
        lambda place, outside: (place.parent.rename(f"{place.parent}-aside"), place.parent.symlink_to(outside.parent)),
        lambda place, outside: place.unlink(),
    ],
    ids=["link", "folder", "pipe", "other", "longer", "linked outbox", "missing"],
)
def test_what_is_not_what_a_node_says_of_it_is_refused(
    node: Node, tmp_path: Path, change: Callable[[Path, Path], object]
) -> None:
    outside = tmp_path / "outside" / sha("one")
    outside.parent.mkdir()
    outside.write_text("one")
    snapshot, files = node.leave({"a": "one"})
    change(node.outbox / sha("one"), outside)
    with pytest.raises(StateError):
        node.take(snapshot, files)
    assert not list(node.runner.files.stored())
    assert outside.read_text() == "one"


def test_a_snapshot_names_nothing_but_what_its_attempt_had_and_left(node: Node, home: Workspaces) -> None:
    other, files = node.leave({"secret": "of another sweep"})
    node.take(other, files)
    manifest = b'{"mine":["%s",16,420]}' % sha("of another sweep").encode()
    forged = sha(manifest)
    node.outbox.mkdir(parents=True, exist_ok=True)
    (node.outbox / forged).write_bytes(manifest)
    with pytest.raises(StateError, match=sentence("which it did not have")):
        node.take(forged, {forged: len(manifest)})
    with pytest.raises(StateError, match=sentence("without its list of files")):
        node.take(other, {})


def test_more_than_a_workspace_may_have_is_not_read(node: Node) -> None:
    snapshot, files = node.leave({"a": "x" * 1000})
    node.runner.bounds = Bounds(size=999)
    with pytest.raises(StateError, match=r"more than 999 bytes, which run\.workspace\.size"):
        node.take(snapshot, files)


# What earlier releases left


def test_what_lies_beside_that_of_others_is_read_and_provided(home: Workspaces) -> None:
    old = snapshot(home, {"a": "old", "b": "too"})
    alpha = home.of_project("alpha")
    assert contents(alpha, old.digest) == {"a": "old", "b": "too"}
    assert not list(alpha.files.stored())
    assert old.digest is not None
    alpha.files.provide(old.digest)
    assert {digest for digest, _, _ in alpha.files.stored()} == {old.digest, sha("old"), sha("too")}
    assert Path(alpha.files.path(sha("old"))).stat().st_nlink == 1
    nodes = Workspaces(Outbox(store_at(alpha.files.place()), home.root / "out"), home.root / "process")
    assert contents(nodes, old.digest) == {"a": "old", "b": "too"}


def test_a_damaged_one_is_not_provided(home: Workspaces) -> None:
    old = snapshot(home, {"a": "old"})
    place = Path(home.files.path(sha("old")))
    place.chmod(0o600)
    place.write_text("odd")
    assert old.digest is not None
    with pytest.raises(StoreError, match="is damaged"):
        home.of_project("alpha").files.provide(old.digest)


# Outside of the store


def test_nothing_is_written_among_stored_files(home: Workspaces) -> None:
    folder = home.files.top.parent
    folder.mkdir(exist_ok=True)
    (folder / "link").symlink_to(folder / "files")
    for place in ("files", "files/backup", "files/projects/x/../y", "sessions/out", "link/backup"):
        why = sentence("in which WTB stores its own files; name a path outside of it")
        with name_in_errors(place), pytest.raises(InputError, match=why):
            check_outside(home, folder / place)
    check_outside(home, folder / "backup")
    check_outside(home, folder / "files-of-mine")

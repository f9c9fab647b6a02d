"""Workspaces and the store of files on a real disk: snapshots, rejected files and crashes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import signal
import socket
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import orjson
import pytest

from tests.support.forkserver import Script
from tests.support.inputs import name_in_errors
from tests.support.prose import sentence
from tests.support.waiting import until
from wtb.core.errors import InputError, StateError, StoreError
from wtb.store.files import safe_directories
from wtb.store.files.manifest import Entry
from wtb.store.files.store import FileStore
from wtb.store.files.workspaces import Snapshot, Workspace, Workspaces

NOBODY = 65534
NOT_UTF8 = os.fsdecode(b"planted\xff")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Use a disk, because in memory, as in temporary directories, every file is read again."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return Workspaces(FileStore(tmp_path / "home" / "files"), tmp_path / "home" / "attempts")


def fill(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def snapshot(workspaces: Workspaces, files: dict[str, str | bytes], parent: str | None = None) -> Snapshot:
    workspace = workspaces.open(parent)
    fill(workspace.path, files)
    return workspace.close(keep=True)


def contents(workspaces: Workspaces, digest: str | None) -> dict[str, str]:
    manifest = workspaces.files.manifest(digest)
    return {path: b"".join(workspaces.files.read(entry.digest)).decode() for path, entry in manifest.items()}


def stored(workspaces: Workspaces) -> set[str]:
    return {digest for digest, _, _ in workspaces.files.stored()}


def leftovers(workspaces: Workspaces) -> list[Path]:
    """Temporary files of the store and directories of attempts."""
    return [*workspaces.files.root.glob(".new-*"), *workspaces.root.glob("*")]


def sha(content: str | bytes) -> str:
    return hashlib.sha256(content if isinstance(content, bytes) else content.encode()).hexdigest()


# What is kept


def test_what_a_node_leaves_is_there_for_the_next(workspaces: Workspaces) -> None:
    first = snapshot(workspaces, {"a.txt": "one", "deep/er/b.txt": "two", "empty": ""})
    workspace = workspaces.open(first.digest)
    assert (workspace.path / "a.txt").read_text() == "one"
    assert (workspace.path / "deep" / "er" / "b.txt").read_text() == "two"
    (workspace.path / "a.txt").unlink()
    (workspace.path / "c.txt").write_text("three")
    second = workspace.close(keep=True)
    assert contents(workspaces, second.digest) == {"c.txt": "three", "deep/er/b.txt": "two", "empty": ""}
    assert contents(workspaces, first.digest)["a.txt"] == "one"
    assert leftovers(workspaces) == []


def test_a_directory_is_private_and_so_are_those_above_it(workspaces: Workspaces, tmp_path: Path) -> None:
    place = tmp_path / "home" / "sessions" / "s" / "sweep" / "runner" / "1"
    workspace = workspaces.open(None, place)
    assert workspace.path == place
    with pytest.raises(FileExistsError):  # what is there is not taken
        workspaces.open(None, place)
    for path in (place, *list(place.parents)[:5]):
        assert path.stat().st_mode & 0o777 == 0o700, path
    workspace.close(keep=True)
    assert not place.exists()
    assert place.parent.exists()


def test_an_untouched_workspace_keeps_its_snapshot_and_adds_nothing(workspaces: Workspaces) -> None:
    first = snapshot(workspaces, {"a": "1", "b/c": "2"})
    before = stored(workspaces)
    assert workspaces.open(first.digest).close(keep=True) == Snapshot(first.digest)
    assert workspaces.open(None).close(keep=True) == Snapshot(None)
    assert stored(workspaces) == before


def test_no_file_left_is_no_snapshot(workspaces: Workspaces) -> None:
    first = snapshot(workspaces, {"a": "1", "b/c": "2"})
    workspace = workspaces.open(first.digest)
    (workspace.path / "a").unlink()
    (workspace.path / "b" / "c").unlink()  # an empty folder stays: folders are not kept
    assert workspace.close(keep=True) == Snapshot(None)
    workspace = workspaces.open(first.digest)
    safe_directories.remove_tree(workspace.path)
    assert workspace.close(keep=True) == Snapshot(None)


def test_what_is_not_kept_is_gone(workspaces: Workspaces) -> None:
    first = snapshot(workspaces, {"a": "1"})
    before = stored(workspaces)
    workspace = workspaces.open(first.digest)
    fill(workspace.path, {"a": "failed", "new": "failed"})
    (workspace.path / "link").symlink_to("/")  # nobody looks
    assert workspace.close(keep=False) == Snapshot(first.digest)
    assert stored(workspaces) == before
    assert leftovers(workspaces) == []


def test_modes_come_back_without_setuid(workspaces: Workspaces) -> None:
    workspace = workspaces.open(None)
    for name, mode in {"run": 0o4755, "closed": 0o400, "open": 0o2666}.items():
        fill(workspace.path, {name: name})
        (workspace.path / name).chmod(mode)
    tree = workspace.close(keep=True)
    second = workspaces.open(tree.digest)
    assert {path.name: path.stat().st_mode & 0o7777 for path in second.path.iterdir()} == {
        "run": 0o755,
        "closed": 0o400,
        "open": 0o666,
    }
    (second.path / "open").chmod(0o600)
    changed = second.close(keep=True)
    assert workspaces.files.manifest(changed.digest)["open"] == Entry(sha("open"), 4, 0o600)
    assert [digest for digest, _ in changed.new] == [changed.digest]


def test_new_names_what_was_added_with_its_size(workspaces: Workspaces) -> None:
    first = snapshot(workspaces, {"a": "same", "b": "same"})
    manifest = workspaces.files.root / first.digest[:2] / first.digest[2:]
    assert first.new == ((sha("same"), 4), (first.digest, manifest.stat().st_size))
    second = snapshot(workspaces, {"moved": "same", "c": "other"}, first.digest)
    assert dict(second.new).keys() == {sha("other"), second.digest}


def test_of_many_files_ten_that_change_are_ten_contents_and_a_manifest(workspaces: Workspaces) -> None:
    first = snapshot(workspaces, {f"{n % 20}/{n}": f"file {n}" for n in range(200)})
    assert len(first.new) == len(stored(workspaces)) == 201
    before = stored(workspaces)
    second = snapshot(workspaces, {f"{n % 20}/{n}": f"changed {n}" for n in range(10)}, first.digest)
    assert {digest for digest, _ in second.new} == stored(workspaces) - before
    assert len(second.new) == 11


def test_only_what_changed_is_read_again(workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch) -> None:
    first = snapshot(workspaces, {f"{n}": f"file {n}" for n in range(20)})
    read: list[str] = []
    original = safe_directories.read_entry

    def noting(path: str, *rest: object) -> Entry:
        read.append(path)
        return original(path, *rest)

    monkeypatch.setattr(safe_directories, "read_entry", noting)
    workspace = workspaces.open(first.digest)
    fill(workspace.path, {"3": "FILE 3", "new": "new"})
    os.rename(workspace.path / "4", workspace.path / "5")
    workspace.close(keep=True)
    assert read == ["3", "5", "new"]


def test_a_rewrite_of_the_same_size_right_after_restoring_is_seen(workspaces: Workspaces) -> None:
    first = snapshot(workspaces, {"a": "old", "b": "old"})
    for _ in range(20):
        workspace = workspaces.open(first.digest)
        with (workspace.path / "a").open("r+b") as stream:
            stream.write(b"new")
        status = (workspace.path / "b").stat()
        (workspace.path / "b").write_text("NEW")
        os.utime(workspace.path / "b", ns=(status.st_atime_ns, status.st_mtime_ns))  # a node that hides its traces
        assert contents(workspaces, workspace.close(keep=True).digest) == {"a": "new", "b": "NEW"}


@pytest.mark.parametrize("place", ["disk", "/dev/shm"])
def test_a_write_through_memory_is_seen(workspaces: Workspaces, place: str, request: pytest.FixtureRequest) -> None:
    """tmpfs does not report a write to a page that was mapped for reading before."""
    import mmap

    if place != "disk":
        folder = Path(place) / f"wtb-test-{os.getpid()}"
        workspaces = Workspaces(FileStore(folder / "files"), folder / "attempts")
        request.addfinalizer(lambda: safe_directories.remove_tree(folder))
    first = snapshot(workspaces, {"array": "0" * 5000})
    workspace = workspaces.open(first.digest)
    with (workspace.path / "array").open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
        assert mapped[0:1] == b"0"
        mapped[0:1] = b"1"
    assert contents(workspaces, workspace.close(keep=True).digest) == {"array": "1" + "0" * 4999}


def test_stamps_are_not_trusted_where_the_clock_does_not_move(
    workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_directories, "wait_beyond", lambda newest, folder: newest)
    first = snapshot(workspaces, {"a": "1", "b": "2"})
    workspace = workspaces.open(first.digest)
    newest = max((workspace.path / name).stat().st_ctime_ns for name in "ab")
    assert all(stamp[2] < newest for stamp in workspace._stamps.values())
    workspace.close(keep=False)


def test_names_of_all_scripts_are_kept(workspaces: Workspaces) -> None:
    files: dict[str, str | bytes] = {"ключ/naïve 模型.txt": "1", "line\nbreak": "2", " ": "3", "..a": "4", "-rf": "5"}
    tree = snapshot(workspaces, files)
    second = workspaces.open(tree.digest)
    assert contents(workspaces, second.close(keep=True).digest) == files


# What a node can plant


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A file that no workspace may read, change or remove."""
    path = tmp_path / "outside"
    fill(path, {"secret": "secret"})
    yield path
    assert (path / "secret").read_text() == "secret"
    assert sorted(os.listdir(path)) == ["secret"]


def bind_socket(path: Path, outside: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(path.parent):
        listener.bind(path.name)


@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (lambda path, outside: os.mkfifo(path), sentence("is not a regular file")),
        (bind_socket, sentence("is not a regular file")),
        (lambda path, outside: path.symlink_to(outside / "secret"), "is a symbolic link"),
        (lambda path, outside: path.symlink_to(outside), "is a symbolic link"),
        (lambda path, outside: path.symlink_to("nowhere"), "is a symbolic link"),
        (lambda path, outside: os.link(outside / "secret", path), sentence("has several hard links; make it a copy")),
        (lambda path, outside: fill(path.parent, {NOT_UTF8: "x"}), sentence("has a name that is not UTF-8")),
        (lambda path, outside: fill(path.parent / NOT_UTF8, {"x": "x"}), sentence("has a name that is not UTF-8")),
        (lambda path, outside: os.makedirs(path / "/".join("d" * 150)), sentence("nested more than {} deep", 100)),
    ],
)
def test_what_cannot_be_kept_is_named_and_nothing_is_stored(
    workspaces: Workspaces, outside: Path, plant: Callable[[Path, Path], None], why: str
) -> None:
    workspace = workspaces.open(None)
    fill(workspace.path, {"a/first": "fine", "z": "fine"})
    plant(workspace.path / "a" / "planted", outside)
    with pytest.raises(StateError, match=rf"a/planted.*{why}"):
        workspace.close(keep=True)
    assert stored(workspaces) == set()
    assert leftovers(workspaces) == []


def test_links_among_restored_files_are_found_too(workspaces: Workspaces, outside: Path) -> None:
    first = snapshot(workspaces, {"a": "1", "b": "2", "c/d": "3"})
    workspace = workspaces.open(first.digest)
    os.link(workspace.path / "a", workspace.path / "other")
    with pytest.raises(StateError, match=sentence("{} has several hard links", "'a'")):
        workspace.close(keep=True)
    workspace = workspaces.open(first.digest)
    (workspace.path / "c" / "d").unlink()
    (workspace.path / "c").rmdir()
    (workspace.path / "c").symlink_to(outside)
    with pytest.raises(StateError, match="'c' is a symbolic link"):
        workspace.close(keep=True)


def test_a_workspace_replaced_by_a_link_leads_nowhere(workspaces: Workspaces, outside: Path) -> None:
    for keep in (True, False):
        workspace = workspaces.open(None)
        workspace.path.rmdir()
        workspace.path.symlink_to(outside)
        with pytest.raises(StateError, match="replaced") if keep else contextlib.nullcontext():
            workspace.close(keep=keep)
    assert leftovers(workspaces) == []


def test_a_folder_replaced_by_a_link_during_the_walk_does_not_lead_out(
    workspaces: Workspaces, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspaces.open(None)
    fill(workspace.path, {"folder/secret": "mine", "folder2/x": "x"})
    original = safe_directories.open_folder

    def swapping(path: str, within: int | None = None) -> contextlib.AbstractContextManager[int]:
        if path == "folder":
            (workspace.path / "folder" / "secret").unlink()
            (workspace.path / "folder").rmdir()
            (workspace.path / "folder").symlink_to(outside)
        return original(path, within)

    monkeypatch.setattr(safe_directories, "open_folder", swapping)
    with pytest.raises(StateError, match=sentence("'{}' cannot be read", "folder")):
        workspace.close(keep=True)
    assert stored(workspaces) == set()


def test_a_file_replaced_by_a_link_before_it_is_read_does_not_lead_out(
    workspaces: Workspaces, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspaces.open(None)
    fill(workspace.path, {"a": "mine"})
    original = safe_directories.read_entry

    def swapping(path: str, *rest: object) -> Entry:
        (workspace.path / path).unlink()
        (workspace.path / path).symlink_to(outside / "secret")
        return original(path, *rest)

    monkeypatch.setattr(safe_directories, "read_entry", swapping)
    with pytest.raises(StateError, match=sentence("'{}' cannot be read", "a")):
        workspace.close(keep=True)
    assert stored(workspaces) == set()


def in_child(uid: int | None, limit: int | None, act: Callable[[], None]) -> None:
    """Act in a forked process, as another user or with a limit on the size of files. A failure there fails here."""
    import resource
    import traceback

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if limit is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            if uid is not None and os.getuid() == 0:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_unwritable_and_unreadable_folders_are_removed_by_their_owner(tmp_path: Path) -> None:
    home = tmp_path / "theirs"
    home.mkdir()
    for path in (home, *home.parents):
        if path == Path("/tmp"):
            break
        path.chmod(0o755)
    if os.getuid() == 0:
        os.chown(home, NOBODY, NOBODY)

    def act() -> None:
        workspaces = Workspaces(FileStore(home / "files"), home / "attempts")
        workspace = workspaces.open(None)
        fill(workspace.path, {"a/b/c": "1", "x/y": "2"})
        (workspace.path / "a" / "b").chmod(0o500)
        (workspace.path / "a").chmod(0o500)
        tree = workspace.close(keep=True)
        assert workspaces.files.manifest(tree.digest).keys() == {"a/b/c", "x/y"}
        assert leftovers(workspaces) == []
        workspace = workspaces.open(tree.digest)
        os.makedirs(workspace.path / "p" / "/".join("d" * 230))
        (workspace.path / "a" / "b").chmod(0)
        (workspace.path / "p").chmod(0)
        workspace.path.chmod(0o500)
        with pytest.raises(StateError, match=r"'a/b' cannot be read: Permission denied"):
            workspace.close(keep=True)
        assert leftovers(workspaces) == []

    in_child(NOBODY, None, act)


def test_removal_does_not_follow_links(workspaces: Workspaces, outside: Path) -> None:
    workspace = workspaces.open(None)
    (workspace.path / "to-folder").symlink_to(outside)
    (workspace.path / "to-file").symlink_to(outside / "secret")
    os.link(outside / "secret", workspace.path / "hard")
    workspace.close(keep=False)
    assert leftovers(workspaces) == []


# Quota and full disks


def test_more_than_allowed_is_refused_before_anything_is_stored(workspaces: Workspaces) -> None:
    first = snapshot(workspaces, {"a": "1"})
    before = stored(workspaces)
    workspace = workspaces.open(first.digest)
    fill(workspace.path, {"big": b"x" * 12_300_000, "small": "s"})
    with pytest.raises(StateError, match=r"the workspace adds 12\.3 MB, and the quota .* leaves 10\.0 MB; .*"):
        workspace.close(keep=True, allowed=10_000_000)
    assert stored(workspaces) == before
    assert leftovers(workspaces) == []


def test_what_the_parent_has_and_what_is_there_twice_counts_once(workspaces: Workspaces) -> None:
    first = snapshot(workspaces, {"a": b"a" * 100_000})
    workspace = workspaces.open(first.digest)
    files: dict[str, str | bytes] = {"copy": b"a" * 100_000, "b": b"b" * 1000, "c": b"b" * 1000}
    fill(workspace.path, files)
    exact = sum(size for _, size in workspace.close(keep=True, allowed=2000).new)
    assert exact <= 2000
    for allowed, fine in ((exact, True), (exact - 1, False)):
        workspace = workspaces.open(first.digest)
        fill(workspace.path, files)
        with contextlib.nullcontext() if fine else pytest.raises(StateError, match=sentence("the workspace adds")):
            workspace.close(keep=True, allowed=allowed)


def test_at_the_quota_what_adds_nothing_is_still_fine(workspaces: Workspaces) -> None:
    first = snapshot(workspaces, {"a": "1"})
    assert workspaces.open(first.digest).close(keep=True, allowed=0) == Snapshot(first.digest)
    workspace = workspaces.open(first.digest)
    (workspace.path / "a").unlink()
    assert workspace.close(keep=True, allowed=0) == Snapshot(None)


def test_a_write_that_fails_half_way_leaves_nothing(workspaces: Workspaces) -> None:
    workspace = workspaces.open(None)
    fill(workspace.path, {"a": "fine", "big": b"x" * 3_000_000})

    def act() -> None:
        with pytest.raises(OSError, match="File too large"):
            workspace.close(keep=True)

    in_child(None, 1_500_000, act)
    assert stored(workspaces) == set()
    assert leftovers(workspaces) == []


# Damage


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(change(content))


def damage(workspaces: Workspaces, digest: str, change: Callable[[bytes], bytes]) -> None:
    rewrite(workspaces.files.root / digest[:2] / digest[2:], change)


def flipped(content: bytes) -> bytes:
    return bytes([content[0] ^ 1]) + content[1:]


damaging = pytest.mark.parametrize("change", [flipped, lambda content: content[:-1], lambda content: content + b"x"])


@damaging
def test_damaged_content_is_refused(workspaces: Workspaces, tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    tree = snapshot(workspaces, {"a": "fine", "b": "to be damaged"})
    digest = sha("to be damaged")
    damage(workspaces, digest, change)
    for act in (
        lambda: workspaces.open(tree.digest),
        lambda: b"".join(workspaces.files.read(digest)),
        lambda: workspaces.files.copy(digest, tmp_path / "copy"),
        lambda: workspaces.export(tree.digest, tmp_path / "out"),
    ):
        with pytest.raises(StoreError, match=f"stored file {digest} is damaged"):
            act()
    assert not (tmp_path / "copy").exists()
    assert leftovers(workspaces) == []


def test_missing_content_is_refused(workspaces: Workspaces) -> None:
    tree = snapshot(workspaces, {"a": "fine"})
    assert workspaces.files.remove(sha("fine"))
    for digest, missing in ((tree.digest, sha("fine")), ("0" * 64, "0" * 64)):
        with pytest.raises(StoreError, match=f"stored file {missing} is missing"):
            workspaces.open(digest)
    assert leftovers(workspaces) == []


def test_adding_a_content_again_repairs_one_that_was_cut_short(workspaces: Workspaces) -> None:
    tree = snapshot(workspaces, {"a": "whole"})
    damage(workspaces, sha("whole"), lambda content: content[:2])
    snapshot(workspaces, {"b": "whole"})
    assert contents(workspaces, tree.digest) == {"a": "whole"}


GOOD = [sha("fine"), 4, 0o644]


PATHS = ("../out", "/tmp/out", "a/../../out", "a//b", "", ".", "a/", "nul\0")
ENTRIES = (["../../../etc/passwd", 4, 0o644], [sha("fine"), -1, 0o644], [sha("fine"), "4", 0o644], [sha("fine"), 4])


def test_manifests_that_lead_out_are_refused(workspaces: Workspaces, tmp_path: Path) -> None:
    fill(tmp_path, {"fine": "fine"})
    workspaces.files.add(tmp_path / "fine")
    documents: list[object] = [{path: GOOD} for path in PATHS]
    documents += [{"a": entry} for entry in ENTRIES]
    for document in [*documents, {"a": GOOD, "a/b": GOOD}, ["a"], "a"]:
        fill(tmp_path, {"planted": orjson.dumps(document)})
        digest, _ = workspaces.files.add(tmp_path / "planted")
        with name_in_errors(document), pytest.raises(StoreError, match="is damaged"):
            workspaces.open(digest)
    assert leftovers(workspaces) == []


def test_snapshots_have_the_form_that_they_always_had(workspaces: Workspaces) -> None:
    tree = snapshot(workspaces, {"b/c": "two", "a": "one"})
    assert tree.digest is not None
    path = workspaces.files.root / tree.digest[:2] / tree.digest[2:]
    mode = workspaces.files.manifest(tree.digest)["a"].mode
    expected = {"a": [sha("one"), 3, mode], "b/c": [sha("two"), 3, mode]}
    assert path.read_bytes() == orjson.dumps(expected)
    assert (workspaces.files.root / sha("one")[:2] / sha("one")[2:]).stat().st_mode & 0o777 == 0o444


# The store


def test_the_same_content_is_stored_once_and_made_young(workspaces: Workspaces) -> None:
    snapshot(workspaces, {"a": "same"})
    path = workspaces.files.root / sha("same")[:2] / sha("same")[2:]
    os.utime(path, (1000, 1000))
    inode = path.stat().st_ino
    snapshot(workspaces, {"x": "same", "y": "same"})
    assert path.stat().st_ino == inode
    assert path.stat().st_mtime > 1000
    assert len(stored(workspaces)) == 3


def test_reflinks_are_tried_once_where_the_file_system_has_none(
    workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = snapshot(workspaces, {"a": "1", "b": "2", "c": "3"})
    calls = []

    def refusing(*arguments: object) -> None:
        calls.append(arguments)
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr("wtb.store.files.store.fcntl.ioctl", refusing)
    for _ in range(2):
        workspaces.open(tree.digest).close(keep=False)
    assert len(calls) == 1


def clone(out: int, request: int, source: int) -> int:
    """Copy what the kernel would share, because disks of tests usually have no reflinks."""
    assert request == 0x40049409
    os.sendfile(out, source, 0, os.fstat(source).st_size)
    return 0


def test_reflinks_are_taken_and_checked_by_size(workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtb.store.files.store.fcntl.ioctl", clone)
    tree = snapshot(workspaces, {"a": "one", "folder/b": "two", "empty": ""})
    workspace = workspaces.open(tree.digest)
    assert (workspace.path / "folder" / "b").read_text() == "two"
    fill(workspace.path, {"a": "other"})
    assert contents(workspaces, workspace.close(keep=True).digest) == {"a": "other", "empty": "", "folder/b": "two"}
    damage(workspaces, sha("two"), lambda content: content[:-1])
    with pytest.raises(StoreError, match=sentence("is damaged: it has {} bytes, expected {}", 2, 3)):
        workspaces.open(tree.digest)


def test_large_files_are_streamed(workspaces: Workspaces) -> None:
    workspace = workspaces.open(None)
    with (workspace.path / "large").open("wb") as stream:
        stream.truncate(50_000_000)
    tracemalloc.start()
    tree = workspace.close(keep=True)
    second = workspaces.open(tree.digest)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (second.path / "large").stat().st_size == 50_000_000
    assert peak < 10_000_000
    second.close(keep=False)


def test_two_writers_of_one_content_at_once_both_have_it(workspaces: Workspaces, tmp_path: Path) -> None:
    fill(tmp_path, {"content": os.urandom(1_000_000)})
    ready = Barrier(8)

    def add(_: int) -> tuple[str, int]:
        ready.wait()
        return workspaces.files.add(tmp_path / "content")

    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            (content,) = set(pool.map(add, range(8)))
            assert [(digest, size) for digest, size, _ in workspaces.files.stored()] == [content]
            assert leftovers(workspaces) == []
            assert workspaces.files.remove(content[0])


def test_a_killed_writer_leaves_nothing_that_can_be_seen(workspaces: Workspaces) -> None:
    code = (
        "import os, sys; from pathlib import Path; from wtb.store.files.store import FileStore; r, w = os.pipe()\n"
        "os.write(w, b'half of it'); print('writing', flush=True)\n"
        "FileStore(Path(sys.argv[1])).add(r)"  # waits for the rest, which never comes
    )
    files = workspaces.files
    with Script(code, files.root) as writer:
        writer.stdout.readline()
        until(lambda: any(path.stat().st_size for path in files.root.glob(".new-*")), "half of it", pause=0.02)
        writer.kill()
    assert stored(workspaces) == set()
    assert files.remove_leftovers(3600) == 0  # it may still be written to, as far as one can tell
    assert files.remove_leftovers(-1) == 1
    assert leftovers(workspaces) == []


def test_removing_spares_what_was_added_again(workspaces: Workspaces) -> None:
    tree = snapshot(workspaces, {"a": "1"})
    files = workspaces.files
    (old,) = {at for digest, _, at in files.stored() if digest == sha("1")}
    os.utime(files.path(sha("1")), (1000, 1000))
    snapshot(workspaces, {"again": "1"})
    assert not files.remove(sha("1"), unless_added_since=old)
    assert contents(workspaces, tree.digest) == {"a": "1"}
    os.utime(files.path(sha("1")), (1000, 1000))
    assert files.remove(sha("1"), unless_added_since=old)
    assert not files.remove(sha("1"))


def test_a_copy_does_not_overwrite(workspaces: Workspaces, tmp_path: Path) -> None:
    snapshot(workspaces, {"a": "1"})
    workspaces.files.copy(sha("1"), tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "1"
    with pytest.raises(FileExistsError):
        workspaces.files.copy(sha("1"), tmp_path / "copy")


# Merging, comparing, exporting


def changed(workspaces: Workspaces, parent: str | None, act: Callable[[Path], object]) -> str | None:
    workspace: Workspace = workspaces.open(parent)
    act(workspace.path)
    return workspace.close(keep=True).digest


def test_files_of_one_step_are_merged(workspaces: Workspaces) -> None:
    parent = snapshot(workspaces, {"keep": "1", "change": "1", "drop": "1"}).digest
    b = changed(workspaces, parent, lambda path: (path / "change").write_text("2"))
    c = changed(workspaces, parent, lambda path: ((path / "drop").unlink(), (path / "new").write_text("3")))
    before = stored(workspaces)
    merged = workspaces.merge(parent, {"B": b, "C": c, "D": parent})
    assert contents(workspaces, merged.digest) == {"keep": "1", "change": "2", "new": "3"}
    assert {digest for digest, _ in merged.new} == stored(workspaces) - before
    assert workspaces.merge(parent, {"B": b, "D": parent}) == Snapshot(b)
    assert workspaces.merge(parent, {"B": b, "C": b}) == Snapshot(b)
    assert workspaces.merge(parent, {"D": parent}) == Snapshot(parent)


@pytest.mark.parametrize(
    ("change", "other"),
    [
        (lambda path: (path / "a").write_text("2"), lambda path: (path / "a").write_text("3")),
        (lambda path: (path / "a").write_text("2"), lambda path: (path / "a").unlink()),
        (lambda path: (path / "n").write_text("1"), lambda path: fill(path, {"n/m": "2"})),
    ],
)
def test_one_path_changed_differently_names_both_nodes(
    workspaces: Workspaces, change: Callable[[Path], object], other: Callable[[Path], object]
) -> None:
    parent = snapshot(workspaces, {"a": "1"}).digest
    after = {"B": changed(workspaces, parent, change), "C": changed(workspaces, parent, other)}
    with pytest.raises(StateError, match=r"nodes 'B' and 'C' changed .*'[an]' differently"):
        workspaces.merge(parent, after)


def test_given_files_make_a_snapshot(workspaces: Workspaces, tmp_path: Path) -> None:
    fill(tmp_path, {"given": "1"})
    tree = workspaces.snapshot_of({"in/a": tmp_path / "given", "in/b": tmp_path / "given"})
    assert contents(workspaces, tree.digest) == {"in/a": "1", "in/b": "1"}
    assert [digest for digest, _ in tree.new] == [sha("1"), tree.digest]
    assert workspaces.snapshot_of({}) == Snapshot(None)
    with pytest.raises(StateError, match=sentence("is not a path in a workspace")):
        workspaces.snapshot_of({"../a": tmp_path / "given"})


def test_what_changed_is_told_with_sizes(workspaces: Workspaces) -> None:
    a = snapshot(workspaces, {"same": "1", "gone": "12", "more": "1"})
    b = changed(workspaces, a.digest, lambda path: ((path / "gone").unlink(), fill(path, {"more": "123", "new": ""})))
    changes = [(change.path, change.kind, change.before, change.after) for change in workspaces.compare(a.digest, b)]
    assert changes == [("gone", "removed", 2, None), ("more", "changed", 1, 3), ("new", "added", None, 0)]
    assert workspaces.compare(a.digest, a.digest) == []
    assert {change.kind for change in workspaces.compare(None, b)} == {"added"}


def test_files_are_exported_to_an_empty_place_only(workspaces: Workspaces, tmp_path: Path) -> None:
    tree = snapshot(workspaces, {"a": "1", "b/c": "2", "bc": "3"})
    workspaces.export(tree.digest, tmp_path / "new" / "all")
    assert (tmp_path / "new" / "all" / "b" / "c").read_text() == "2"
    assert workspaces.export(tree.digest, tmp_path / "part", "b").keys() == {"b/c"}
    assert os.listdir(tmp_path / "part") == ["b"]
    with pytest.raises(InputError, match="is not empty"):
        workspaces.export(tree.digest, tmp_path / "part")
    with pytest.raises(InputError, match=sentence("is not a directory")):
        workspaces.export(tree.digest, tmp_path / "part" / "b" / "c")
    with pytest.raises(InputError, match=sentence("there is no file or folder {}", "'b/d'; did you mean 'b/c'")):
        workspaces.export(tree.digest, tmp_path / "other", "b/d")
    assert not (tmp_path / "other").exists()

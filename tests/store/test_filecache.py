"""Files in a shared directory: two homes on it, each with a cache, on a real disk and with real processes."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.store.test_workspaces import clone, contents, damaging, fill, rewrite, sha, snapshot
from tests.support.forkserver import Script
from tests.support.inputs import name_in_errors
from tests.support.project import Project
from tests.support.prose import sentence
from tests.support.waiting import until
from wtb.config.retention_policy import Policy
from wtb.core.errors import InputError, OutOfReach, StoreError
from wtb.operations.garbage_collection import apply_policy
from wtb.store.database import Database
from wtb.store.files import cache as filecache
from wtb.store.files.cache import FileCache
from wtb.store.files.locations import CACHE_BYTES, Sharing, check_files, sharing, workspaces_of
from wtb.store.files.shared_store import SharedFiles, store_at
from wtb.store.files.store import FileStore
from wtb.store.files.workspaces import Workspaces
from wtb.store.housekeeping.contents import mark

ROOMY = 10**9
PATIENCE_S = 60.0


class Home:
    """A machine's own folder, and its workspaces on the shared directory."""

    def __init__(self, shared: Path, folder: Path, max_bytes: int = ROOMY) -> None:
        self.files = SharedFiles(shared / "files", FileCache(folder / "cache", max_bytes))
        self.workspaces = Workspaces(self.files, folder / "sessions")
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def cache(self) -> FileCache:
        return self.files.cache

    def cached(self, content: str | bytes) -> Path:
        digest = sha(content)
        return self.cache.root / digest[:2] / digest[2:]

    def stored(self, content: str | bytes) -> Path:
        return Path(self.files.path(sha(content)))

    def used(self) -> int:
        return sum(size for _, size, _ in self.cache.stored())

    def counted(self) -> int:
        return int((self.cache.root / ".bytes").read_text())

    def leftovers(self) -> list[Path]:
        return [*self.files.root.glob(".new-*"), *self.cache.root.glob(".new-*"), *self.workspaces.root.glob("*")]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


@pytest.fixture
def home(shared: Path, tmp_path: Path) -> Home:
    return Home(shared, tmp_path / "here")


@pytest.fixture
def other_home(shared: Path, tmp_path: Path) -> Home:
    return Home(shared, tmp_path / "there")


@pytest.fixture
def mount() -> Iterator[Callable[[Path, int], None]]:
    """Mounts a disk of so many bytes. Where that cannot be done the test fails: nothing hides it."""
    mounted: list[Path] = []
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]

    def mounting(place: Path, size: int) -> None:
        place.mkdir(parents=True, exist_ok=True)
        options = f"size={size},mode=0700,uid={os.geteuid()}"
        subprocess.run([*sudo, "mount", "-t", "tmpfs", "-o", options, "wtb-small-disk", str(place)], check=True)
        mounted.append(place)

    yield mounting
    for place in mounted:
        subprocess.run([*sudo, "umount", "--lazy", str(place)], check=True)


def read_only(place: Path) -> None:
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    subprocess.run([*sudo, "mount", "-o", "remount,ro", str(place)], check=True)


def started(code: str, *args: object, **environment: str) -> Script:
    """A Python process with `files` and `workspaces`, of a shared directory and a home."""
    begin = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from wtb.store.files.cache import FileCache\n"
        "from wtb.store.files.shared_store import SharedFiles\n"
        "from wtb.store.files.workspaces import Workspaces\n"
        "shared, home, most = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])\n"
        "files = SharedFiles(shared / 'files', FileCache(home / 'cache', most))\n"
        "workspaces = Workspaces(files, home / 'sessions')\n"
        "args = sys.argv[4:]\n"
    )
    return Script(begin + code, *args, env=environment)


def wait_for_word(process: Script, word: str) -> None:
    assert process.stdout.readline().strip() == word


# Round trips


def test_files_published_by_one_process_are_read_by_another(home: Home, other_home: Home, tmp_path: Path) -> None:
    code = (
        "workspace = workspaces.open(None)\n"
        "(workspace.path / 'a').write_text('of another process')\n"
        "(workspace.path / 'b').write_text('too')\n"
        "print(workspace.close(keep=True).digest)\n"
    )
    with started(code, tmp_path / "shared", tmp_path / "home", ROOMY) as writer:
        digest = writer.communicate(timeout=PATIENCE_S).strip()
    for each_home in (other_home, home):
        assert contents(each_home.workspaces, digest) == {"a": "of another process", "b": "too"}


def test_what_was_published_or_fetched_is_not_fetched_again(home: Home, other_home: Home) -> None:
    tree = snapshot(home.workspaces, {"a": "one", "b": "two"})
    assert contents(other_home.workspaces, tree.digest) == {"a": "one", "b": "two"}
    shutil.rmtree(home.files.root)
    home.files.root.mkdir()
    for each_home in (home, other_home):
        workspace = each_home.workspaces.open(tree.digest)
        assert sorted(path.name for path in workspace.path.iterdir()) == ["a", "b"]
        workspace.close(keep=False)


def test_a_content_is_published_though_the_cache_has_it_already(home: Home, other_home: Home) -> None:
    """Publishing writes to the shared directory, because another machine may have removed the content."""
    snapshot(home.workspaces, {"a": "again"})
    assert other_home.files.remove(sha("again"))
    assert home.cached("again").exists()
    tree = snapshot(home.workspaces, {"b": "again"})
    assert other_home.stored("again").read_text() == "again"
    assert contents(other_home.workspaces, tree.digest) == {"b": "again"}


def test_restored_files_share_nothing_with_the_cache(home: Home) -> None:
    tree = snapshot(home.workspaces, {"a": "kept"})
    workspace = home.workspaces.open(tree.digest)
    (workspace.path / "a").chmod(0o600)
    (workspace.path / "a").write_text("lost")
    workspace.close(keep=False)
    assert home.cached("kept").read_text() == "kept"
    assert home.cached("kept").stat().st_mode & 0o777 == 0o444


def test_a_store_is_passed_to_another_process_of_the_machine_as_text(home: Home, tmp_path: Path) -> None:
    store = store_at(home.files.place())
    assert isinstance(store, SharedFiles)
    assert (store.root, store.cache.root, store.cache.max_bytes) == (home.files.root, home.cache.root, ROOMY)
    assert type(store_at(FileStore(tmp_path / "files").place())) is FileStore


def test_what_is_no_hash_leads_nowhere(home: Home, tmp_path: Path) -> None:
    snapshot(home.workspaces, {"a": "one"})
    for act in (home.cache.open, home.cache.drop, home.files.manifest, FileStore(tmp_path / "files").manifest):
        for ref in ("../../etc/passwd", "", "abc", "A" * 64):
            with name_in_errors((act, ref)), pytest.raises(StoreError, match=sentence("is not the hash")):
                act(ref)


# Damage


@damaging
def test_damage_in_the_shared_directory_is_named_and_not_cached(
    home: Home, other_home: Home, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    tree = snapshot(home.workspaces, {"a": "fine", "b": "to be damaged"})
    rewrite(home.stored("to be damaged"), change)
    digest = sha("to be damaged")
    for act in (
        lambda: other_home.workspaces.open(tree.digest),
        lambda: b"".join(other_home.files.read(digest)),
        lambda: other_home.files.copy(digest, tmp_path / "copy"),
    ):
        with pytest.raises(StoreError, match=f"stored file {digest} is damaged"):
            act()
        assert not other_home.cached("to be damaged").exists()
    assert not (tmp_path / "copy").exists()
    assert other_home.leftovers() == []
    assert contents(home.workspaces, tree.digest)["b"] == "to be damaged", "what was cached before is whole"


@damaging
def test_damage_in_a_cache_is_noticed_and_fetched_again(home: Home, change: Callable[[bytes], bytes]) -> None:
    tree = snapshot(home.workspaces, {"a": "fine", "b": "to be damaged"})
    place = home.cached("to be damaged")
    rewrite(place, change)
    workspace = home.workspaces.open(tree.digest)
    assert (workspace.path / "b").read_text() == place.read_text() == "to be damaged"
    workspace.close(keep=False)
    rewrite(place, change)
    assert b"".join(home.files.read(sha("to be damaged"))) == b"to be damaged"
    assert place.read_text() == "to be damaged"
    assert home.leftovers() == []


def test_a_damaged_manifest_in_a_cache_is_fetched_again(home: Home) -> None:
    tree = snapshot(home.workspaces, {"a": "fine"})
    assert tree.digest is not None
    place = home.cache.root / tree.digest[:2] / tree.digest[2:]
    place.chmod(0o600)
    place.write_text("{}")
    assert contents(home.workspaces, tree.digest) == {"a": "fine"}


def test_a_cut_short_content_of_a_cache_is_noticed_where_files_are_reflinks(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = snapshot(home.workspaces, {"a": "whole"})
    home.cached("whole").chmod(0o600)
    os.truncate(home.cached("whole"), 3)
    monkeypatch.setattr("wtb.store.files.store.fcntl.ioctl", clone)
    workspace = home.workspaces.open(tree.digest)
    assert (workspace.path / "a").read_text() == "whole"
    workspace.close(keep=False)
    assert home.cached("whole").read_text() == "whole"


def test_a_missing_content_is_named(home: Home, other_home: Home) -> None:
    tree = snapshot(home.workspaces, {"a": "fine"})
    home.stored("fine").unlink()
    with pytest.raises(StoreError, match=f"stored file {sha('fine')} is missing"):
        other_home.workspaces.open(tree.digest)
    assert other_home.leftovers() == []


# The bound


def test_what_was_not_used_for_longest_goes_first(shared: Path, tmp_path: Path, home: Home) -> None:
    small = Home(shared, tmp_path / "small", max_bytes=1000)
    texts = [f"{number}" * 90 for number in range(9)]  # 90 bytes each, but for rounding: all of them fit
    for number, text in enumerate(texts):
        fill(tmp_path, {"content": text})
        small.files.add(tmp_path / "content")
        os.utime(small.cached(text), (1000 + number, 1000 + number))
    os.close(small.cache.open(sha(texts[0])) or -1)  # used just now
    fill(tmp_path, {"content": "x" * 200})
    small.files.add(tmp_path / "content")
    cached_numbers = [number for number, text in enumerate(texts) if small.cached(text).exists()]
    assert cached_numbers == [0, 3, 4, 5, 6, 7, 8]
    assert small.cached("x" * 200).exists()
    assert small.counted() == small.used() <= 1000
    assert all(small.stored(text).exists() for text in texts), "the shared directory keeps all"


def test_what_is_being_read_is_not_removed(shared: Path, tmp_path: Path) -> None:
    small = Home(shared, tmp_path / "small", max_bytes=1000)
    fill(tmp_path, {"read": "r" * 400, "new": "n" * 900, "other": "o" * 500})
    small.files.add(tmp_path / "read")
    reading = small.cache.open(sha("r" * 400))
    assert reading is not None
    small.files.add(tmp_path / "new")
    assert small.cached("r" * 400).exists()
    assert not small.cached("n" * 900).exists(), "there was no room for it"
    small.files.add(tmp_path / "other")
    assert small.cached("o" * 500).exists()
    os.close(reading)
    small.files.add(tmp_path / "new")
    assert not small.cached("r" * 400).exists()
    assert small.counted() == small.used() == 900


def test_what_is_larger_than_the_cache_goes_past_it(shared: Path, tmp_path: Path, home: Home) -> None:
    small = Home(shared, tmp_path / "small", max_bytes=1000)
    tree = snapshot(small.workspaces, {"large": "l" * 5000, "small": "s"})
    assert contents(home.workspaces, tree.digest) == {"large": "l" * 5000, "small": "s"}
    third = Home(shared, tmp_path / "again", max_bytes=1000)
    assert contents(third.workspaces, tree.digest) == {"large": "l" * 5000, "small": "s"}
    for each_home in (small, third):
        assert not each_home.cached("l" * 5000).exists()
        assert each_home.cached("s").exists()


CONTENTS, SIZE, MAX_BYTES = 40, 100_000, 1_000_000

CHURN = """
import hashlib, random
chance = random.Random(int(args[0]))
for _ in range(60):
    digest = chance.choice(args[1:])
    out = os.open(home / f"out{args[0]}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    files.copy_into(digest, None, out)
    os.lseek(out, 0, os.SEEK_SET)
    assert hashlib.sha256(os.read(out, 1 << 20)).hexdigest() == digest
    os.close(out)
print("done", flush=True)
"""


def test_several_processes_share_one_cache_and_keep_to_its_bound(home: Home, shared: Path, tmp_path: Path) -> None:
    chance = random.Random(1)
    digests = []
    for _ in range(CONTENTS):
        fill(tmp_path, {"content": chance.randbytes(SIZE)})
        digests.append(home.files.add(tmp_path / "content")[0])
    busy = Home(shared, tmp_path / "busy", max_bytes=MAX_BYTES)
    busy.cache.root.mkdir(parents=True)
    with ExitStack() as stack:
        processes = [
            stack.enter_context(started(CHURN, shared, tmp_path / "busy", MAX_BYTES, number, *digests))
            for number in range(4)
        ]
        highest = 0

        def have_ended() -> bool:
            nonlocal highest
            with busy.cache._counted():  # nothing begins or is removed meanwhile
                highest = max(highest, on_disk(busy.cache.root))
            return all(process.poll() is not None for process in processes)

        until(have_ended, "the processes to end", pause=0.01)
        for process in processes:
            wait_for_word(process, "done")
    assert MAX_BYTES / 2 < highest <= MAX_BYTES
    assert list(busy.cache.root.glob(".new-*")) == []
    assert busy.used() <= busy.counted() <= MAX_BYTES
    busy.cache.clean_up()
    assert busy.counted() == busy.used()
    for digest, _, _ in busy.cache.stored():
        assert sha((busy.cache.root / digest[:2] / digest[2:]).read_bytes()) == digest


def on_disk(folder: Path) -> int:
    """Bytes of the files in a cache, each once, though some get their names at this moment."""
    sizes = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            status = path.stat()
            if path.is_file() and path.name != ".bytes":
                sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


COUNTED = """
read = SharedFiles._read
total = 0
def counting(self, source):
    global total
    block = read(self, source)
    total += len(block)
    return block
SharedFiles._read = counting
print("ready", flush=True)
sys.stdin.readline()
files.copy(args[0], home / args[1])
print(total, flush=True)
"""


def test_what_several_want_at_once_is_fetched_once(home: Home, other_home: Home, shared: Path, tmp_path: Path) -> None:
    fill(tmp_path, {"content": os.urandom(12_000_000)})
    digest, size = home.files.add(tmp_path / "content")
    with ExitStack() as stack:
        processes = [
            stack.enter_context(started(COUNTED, shared, tmp_path / "there", ROOMY, digest, number))
            for number in range(3)
        ]
        for process in processes:
            wait_for_word(process, "ready")
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        fetched = [int(process.communicate(timeout=PATIENCE_S)) for process in processes]
    assert sum(fetched) == size
    assert all(sha((tmp_path / "there" / str(number)).read_bytes()) == digest for number in range(3))


def test_what_is_being_published_is_not_reclaimed_while_its_lock_changes(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux ends a lock before it makes another kind of it: for a moment, others get it."""
    lock, other_arrivals = fcntl.flock, []
    arriving = home.cache.begin(3, sha("one"))
    assert arriving is not None

    def change(descriptor: int, kind: int) -> None:
        if descriptor == arriving._descriptor:
            lock(descriptor, fcntl.LOCK_UN)
            other_arrivals.append(FileCache(home.cache.root, ROOMY).begin(3, sha("one")))
        lock(descriptor, kind)

    arriving.write(b"one")
    monkeypatch.setattr(filecache.fcntl, "flock", change)
    with arriving, os.fdopen(arriving.keep(sha("one")) or 0, "rb") as file:
        assert file.read() == b"one"
    assert other_arrivals == [None]


def test_what_another_process_publishes_in_between_is_not_fetched_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = home.cache._create

    def create_late(temporary: str, size: int) -> int | None:
        monkeypatch.undo()
        with FileCache(home.cache.root, ROOMY).begin(3, sha("one")) as arriving:  # type: ignore[union-attr]
            arriving.write(b"one")
            os.close(arriving.keep(sha("one")) or 0)
        return create(temporary, size)

    monkeypatch.setattr(home.cache, "_create", create_late)
    assert home.cache.begin(3, sha("one")) is None
    assert home.cached("one").read_text() == "one"
    assert home.counted() == 3
    assert home.leftovers() == []


# Death, and those who are as good as dead

FETCHING = """
read = SharedFiles._read
def stuck(self, source):
    block = read(self, source)
    if os.lseek(source, 0, os.SEEK_CUR) >= 2_000_000:
        print("fetching", flush=True)
        time.sleep(3600)
    return block
SharedFiles._read = stuck
files.copy(args[0], home / "copy")
"""


@pytest.fixture
def content(home: Home) -> bytes:
    """A content that the shared directory has."""
    content = os.urandom(5_000_000)
    snapshot(home.workspaces, {"a": content})
    return content


@pytest.fixture
def fetcher(content: bytes, other_home: Home, shared: Path, tmp_path: Path) -> Iterator[Script]:
    """A process of the other home that is fetching it."""
    with started(FETCHING, shared, tmp_path / "there", ROOMY, sha(content)) as process:
        wait_for_word(process, "fetching")
        yield process
        process.kill()


def test_a_process_killed_while_it_fetches_leaves_nothing_wrong(
    content: bytes, fetcher: Script, other_home: Home, tmp_path: Path
) -> None:
    fetcher.kill()
    fetcher.wait(PATIENCE_S)
    assert len(list(other_home.cache.root.glob(".new-*"))) == 1
    assert not other_home.cached(content).exists()
    other_home.files.copy(sha(content), tmp_path / "copied")
    assert (tmp_path / "copied").read_bytes() == other_home.cached(content).read_bytes() == content
    assert other_home.leftovers() == []
    assert other_home.counted() == other_home.used()


def test_what_a_dead_process_left_in_a_cache_goes_when_there_is_to_be_room(fetcher: Script, other_home: Home) -> None:
    other_home.files.remove_leftovers(3600)
    assert len(list(other_home.cache.root.glob(".new-*"))) == 1, "its writer lives"
    fetcher.kill()
    fetcher.wait(PATIENCE_S)
    other_home.files.remove_leftovers(3600)
    assert list(other_home.cache.root.glob(".new-*")) == []
    assert other_home.counted() == 0


def test_a_process_that_was_stopped_while_it_fetches_holds_up_nobody_for_long(
    content: bytes, fetcher: Script, other_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filecache, "PATIENCE_S", 0.2)
    fetcher.send_signal(signal.SIGSTOP)
    other_home.files.copy(sha(content), tmp_path / "copied")
    assert (tmp_path / "copied").read_bytes() == content
    assert not other_home.cached(content).exists()


def test_a_count_that_somebody_holds_costs_the_cache_and_nothing_else(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filecache, "PATIENCE_S", 0.1)
    with home.cache._counted():
        tree = snapshot(home.workspaces, {"a": "one"})
        assert contents(home.workspaces, tree.digest) == {"a": "one"}
    assert list(home.cache.stored()) == []


@pytest.mark.parametrize("passing", [1, 2, 3])
def test_a_process_killed_while_it_publishes_shows_no_half_of_anything(
    home: Home, other_home: Home, shared: Path, tmp_path: Path, passing: int
) -> None:
    code = (
        "workspace = workspaces.open(None)\n"
        "(workspace.path / 'a').write_text('one' * 1000)\n"
        "(workspace.path / 'b').write_text('two' * 1000)\n"
        "workspace.close(keep=True)\n"
    )
    with started(code, shared, tmp_path / "here", ROOMY, WTB_FAULT=f"files.publishing:{passing}") as writer:
        assert writer.wait(PATIENCE_S) == -signal.SIGKILL
    for digest, _, _ in other_home.files.stored():
        b"".join(other_home.files.read(digest))
    assert len(list(other_home.files.stored())) == passing - 1
    tree = snapshot(other_home.workspaces, {"a": "one" * 1000, "b": "two" * 1000})
    assert contents(home.workspaces, tree.digest) == {"a": "one" * 1000, "b": "two" * 1000}
    assert home.files.remove_leftovers(-1) == 4 - passing
    assert list(home.files.root.glob(".new-*")) == list(home.cache.root.glob(".new-*")) == []


# Disks


def test_a_full_disk_of_the_cache_costs_the_cache_and_nothing_else(
    home: Home, shared: Path, tmp_path: Path, mount: Callable[[Path, int], None]
) -> None:
    mount(tmp_path / "tight" / "cache", 1 << 20)
    tight = Home(shared, tmp_path / "tight")
    large, small = os.urandom(3_000_000), os.urandom(100_000)
    tree = snapshot(home.workspaces, {"large": large, "small": small})
    for _ in range(2):
        workspace = tight.workspaces.open(tree.digest)
        assert (workspace.path / "large").read_bytes() == large
        assert (workspace.path / "small").read_bytes() == small
        workspace.close(keep=False)
    own = snapshot(tight.workspaces, {"large": large[::-1]})
    assert (home.workspaces.open(own.digest).path / "large").read_bytes() == large[::-1]
    assert list(tight.cache.root.glob(".new-*")) == []
    assert tight.counted() == tight.used() < 1 << 20


def test_a_full_disk_makes_the_cache_smaller(
    home: Home, shared: Path, tmp_path: Path, mount: Callable[[Path, int], None]
) -> None:
    """Other programs need the disk, too: the cache shrinks before work stops."""
    mount(tmp_path / "tight" / "cache", 1 << 20)
    tight = Home(shared, tmp_path / "tight")
    for _ in range(20):
        fill(tmp_path, {"content": os.urandom(100_000)})
        tight.files.add(tmp_path / "content")
        assert tight.counted() == tight.used() < 1 << 20
    assert tight.cached((tmp_path / "content").read_bytes()).exists() or tight.used() <= 850_000


def test_a_cache_that_cannot_be_written_is_none(
    home: Home, shared: Path, tmp_path: Path, mount: Callable[[Path, int], None]
) -> None:
    mount(tmp_path / "locked" / "cache", 1 << 20)
    read_only(tmp_path / "locked" / "cache")
    locked = Home(shared, tmp_path / "locked")
    tree = snapshot(locked.workspaces, {"a": "one"})
    assert contents(locked.workspaces, tree.digest) == contents(home.workspaces, tree.digest) == {"a": "one"}


def test_a_full_shared_directory_is_named_and_takes_no_half(tmp_path: Path, mount: Callable[[Path, int], None]) -> None:
    mount(tmp_path / "full", 1 << 20)
    home = Home(tmp_path / "full", tmp_path / "home")
    workspace = home.workspaces.open(None)
    fill(workspace.path, {"a": "fine", "big": os.urandom(2_000_000)})
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/full/files'") as caught:
        workspace.close(keep=True)
    assert caught.value.errno == errno.ENOSPC
    assert list(home.files.stored()) == []
    assert home.leftovers() == []
    assert contents(home.workspaces, snapshot(home.workspaces, {"a": "fits"}).digest) == {"a": "fits"}


def test_a_shared_directory_that_goes_away_is_named_and_not_made_again(
    home: Home, other_home: Home, shared: Path
) -> None:
    tree = snapshot(home.workspaces, {"a": "one"})
    workspace = home.workspaces.open(None)
    fill(workspace.path, {"b": "two"})
    shared.rename(shared.with_name("unmounted"))
    shared.mkdir()  # as the place of a mount is
    with pytest.raises(OutOfReach, match=f"the shared directory of files {shared}.* is not there"):
        workspace.close(keep=True)
    with pytest.raises(OutOfReach, match=f"the shared directory of files {shared}.* is not there"):
        Home(shared, shared.parent / "third").workspaces.open(tree.digest)
    assert list(shared.iterdir()) == []
    assert issubclass(OutOfReach, StoreError)
    assert OutOfReach.exit_code == 4


# What is said before work starts


@pytest.fixture
def database(tmp_path: Path) -> Database:
    new_database = Database(f"sqlite:///{tmp_path / 'home' / 'wtb.db'}")
    new_database.prepare()
    return new_database


@pytest.fixture(autouse=True)
def _nothing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WTB_FILES", "WTB_FILES_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def current_sharing() -> Sharing:
    settings = sharing()
    assert settings is not None
    return settings


def test_nothing_said_is_a_store_at_home(database: Database, tmp_path: Path) -> None:
    workspaces = workspaces_of(database)
    assert type(workspaces.files) is FileStore
    assert workspaces.files.root == tmp_path / "home" / "files"
    check_files(database, workspaces)
    assert not workspaces.files.root.exists()


def test_the_environment_names_the_shared_directory(
    database: Database, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WTB_FILES", str(shared))
    workspaces = workspaces_of(database)
    assert isinstance(workspaces.files, SharedFiles)
    assert workspaces.files.root == shared / "files"
    assert workspaces.root == tmp_path / "home" / "sessions"
    assert workspaces.files.cache.root == tmp_path / "home" / "cache"
    assert workspaces.files.cache.max_bytes == CACHE_BYTES
    monkeypatch.setenv("WTB_FILES_CACHE", "2GiB")
    assert current_sharing().cache_bytes == 2 << 30
    check_files(database, workspaces)
    assert list((shared / "files").iterdir()) == []


@pytest.mark.parametrize(("file", "title"), [("wtb.toml", "files"), ("pyproject.toml", "tool.wtb.files")])
def test_the_settings_of_a_project_name_it_and_the_environment_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, title: str
) -> None:
    (tmp_path / file).write_text(f'[{title}]\nshared = "common"\ncache = "5MB"\n')
    settings = current_sharing()
    assert (settings.folder, settings.cache_bytes) == (tmp_path / "common", 5_000_000)
    assert f"{file}: [{title}] shared" in settings.named_by
    monkeypatch.setenv("WTB_FILES", "/elsewhere")
    monkeypatch.setenv("WTB_FILES_CACHE", "7MB")
    settings = current_sharing()
    assert (settings.folder, settings.cache_bytes, settings.named_by) == (Path("/elsewhere"), 7_000_000, "WTB_FILES")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[files]\nshare = 'x'\n", sentence("no setting {}", "'share'") + sentence("; did you mean '{}'?", "shared")),
        ("files = 3\n", sentence("must be a table with some of: {}", "shared, cache")),
        ("[files]\nshared = 3\n", sentence("{} = {}: expected the path of a directory", "shared", 3)),
        ("[files]\nshared = '.'\ncache = 'much'\n", sentence("{} is not a size; expected", "cache: 'much'")),
        ("[files]\nshared = '.'\ncache = 0\n", sentence("{} is not a size; expected", "cache: 0")),
        ("[files]\nshared = '.'\ncache = true\n", sentence("is not a size; expected")),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "wtb.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        sharing()
    assert says in str(caught.value)
    assert str(tmp_path / "wtb.toml") in str(caught.value)


def test_a_directory_that_is_not_there_is_said(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WTB_FILES", str(tmp_path / "nowhere"))
    with pytest.raises(StoreError, match=f"WTB_FILES: there is no directory {tmp_path}/nowhere; mount or create it"):
        workspaces_of(database)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("what", ["full", "read-only"])
def test_a_directory_that_takes_nothing_is_said(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: Callable[[Path, int], None], what: str
) -> None:
    place = tmp_path / "place"
    mount(place, 1 << 20)
    if what == "full":
        (place / "filler").write_bytes(bytes(1 << 20))
    else:
        read_only(place)
    monkeypatch.setenv("WTB_FILES", str(place))
    workspaces = workspaces_of(database)
    why = "No space left on device" if what == "full" else "Read-only file system"
    with pytest.raises(StoreError, match=f"WTB_FILES: nothing can be written in {place} .*{why}") as caught:
        check_files(database, workspaces)
    assert caught.value.exit_code == 4


# Whole sweeps, and collecting

FLOW = """
from pathlib import Path

from wtb import END, Workflow

wf = Workflow("flow")


@wf.node
def one(state, ctx):
    Path("one.txt").write_text(f"one of {ctx.case.id}")


@wf.node
def two(state, ctx, *, by: int = 0):
    Path("two.txt").write_text(Path("one.txt").read_text() + f", two by {by}")


two.variant("other", by=1)
wf.entry(one)
wf.edge(one, two)
wf.edge(two, END)
"""
SWEEP = """
sweep: shared
workflow: flow:wf
cases: cases.jsonl
vary: {two: all}
run: {concurrency: 2}
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    new_project = Project(tmp_path / "project")
    new_project.write({"flow.py": FLOW, "sweep.yaml": SWEEP, "cases.jsonl": new_project.cases(3)})
    yield new_project
    new_project.close()


def test_a_sweep_whose_files_are_shared_is_read_from_another_home(
    project: Project, shared: Path, tmp_path: Path
) -> None:
    env = {"WTB_FILES": str(shared)}
    project.wtb("run", "sweep.yaml", "--quiet", env=env, check=0)
    home = project.folder / ".wtb"
    assert not (home / "files").exists()
    assert (shared / "files" / ".databases").is_dir()
    assert list((home / "cache").glob(".new-*")) == list((shared / "files").glob(".new-*")) == []
    shutil.rmtree(home / "cache")
    arguments = ("shared", "--case", "c1", "--combination", "two=other", "two.txt")
    assert project.wtb("files", *arguments, env=env, check=0).stdout == "one of c1, two by 1"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(project.file, elsewhere)
    other = workspaces_of(Database(f"sqlite:///{elsewhere / 'wtb.db'}"), elsewhere)
    assert type(other.files) is FileStore
    collected = project.wtb("admin", "gc", "--format", "json", env=env, check=0).json
    assert collected["removed"]["files"]["count"] == 0
    assert collected["notes"] == []


def test_a_shared_directory_that_is_not_there_is_a_sentence_and_exit_code_4(project: Project, tmp_path: Path) -> None:
    done = project.wtb("run", "sweep.yaml", "--quiet", env={"WTB_FILES": str(tmp_path / "nowhere")}, check=4)
    assert "Traceback" not in done.stderr
    assert sentence("{}: there is no directory {}", "WTB_FILES", f"{tmp_path}/nowhere") in done.output


def test_a_collection_spares_what_another_machine_has_published_and_not_yet_committed(
    database: Database, home: Home, other_home: Home
) -> None:
    policy = Policy(outputs=None, superseded=None, sweeps=None)
    snapshot(home.workspaces, {"old": "long forgotten"})
    for digest, _, _ in home.files.stored():
        os.utime(home.files.path(digest), (1000, 1000))
    tree = snapshot(other_home.workspaces, {"new": "not yet committed"})
    mark(database, home.files)
    apply_policy(database, home.files, policy)
    assert not home.stored("long forgotten").exists()
    assert contents(Home(home.files.root.parent, home.cache.root / "x").workspaces, tree.digest) == {
        "new": "not yet committed"
    }


def test_what_was_added_again_elsewhere_between_survey_and_removal_stays(home: Home, other_home: Home) -> None:
    snapshot(home.workspaces, {"a": "wanted again"})
    os.utime(home.stored("wanted again"), (1000, 1000))
    before = time.time() - 60
    assert [digest for digest, _, added in home.files.stored() if added < before] == [sha("wanted again")]
    snapshot(other_home.workspaces, {"b": "wanted again"})
    assert not home.files.remove(sha("wanted again"), unless_added_since=before)
    assert home.stored("wanted again").exists()


def test_adding_while_another_machine_removes_never_loses_what_was_added(home: Home, other_home: Home) -> None:
    """Stored content exists, except for the moment in which the other machine reads its age."""
    grace, ends = 0.3, time.monotonic() + 1.5
    fill(home.cache.root.parent, {"content": "wanted"})
    removed = 0

    def remove() -> None:
        nonlocal removed
        while time.monotonic() < ends:
            removed += other_home.files.remove(sha("wanted"), unless_added_since=time.time() - grace)

    removing = threading.Thread(target=remove)
    removing.start()
    lost = 0
    while time.monotonic() < ends:
        added_at = time.monotonic()  # it is young at least from now on
        home.files.add(home.cache.root.parent / "content")
        looked = time.monotonic()
        while not home.stored("wanted").exists() and (now := time.monotonic()) < added_at + 0.8 * grace:
            if now - looked > 0.2:
                lost += 1
                break
        if random.random() < 0.01:
            time.sleep(1.2 * grace)
    removing.join()
    assert lost == 0
    assert removed


def test_the_clock_of_the_store_is_compared_with_that_of_this_machine(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert home.files.clock_ahead() == 0.0
    snapshot(home.workspaces, {"a": "one"})
    assert abs(home.files.clock_ahead()) < 1.0
    real = time.time
    monkeypatch.setattr("wtb.store.files.store.time.time", lambda: real() + 7200)
    assert -7201 < home.files.clock_ahead() < -7199
    (home.files.root / ".new-young").write_text("being written")
    assert home.files.remove_leftovers(3600) == 0, "an hour by the clock that gave it its time"

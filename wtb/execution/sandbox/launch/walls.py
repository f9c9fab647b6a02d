"""Walls around a node process: ways to the database are closed, and directories that it can only read.

Linux only, in one of two ways, both without privileges. A user and a mount namespace: empty file systems lie over what
is hidden, mounts of code are read-only, and processes outside cannot be looked into. Where the system forbids
namespaces, as containers do, Landlock: hidden files cannot be read, moved or removed, code cannot be written, nor can
processes outside be looked into. Either is inherited by all processes of a node and is permanent: no capability
is left, so that of root's powers a node has none.

Within a hidden directory, places can stay open: the files of one project among those of all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

# Settings of the kernel that root could change name programs that the kernel runs outside of all walls.
KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/sys")
SYSTEM = ("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/sbin", "/usr", "/var/spool", *KERNEL)
_MS_BIND, MS_REC = 0x1000, 0x4000  # linux/mount.h
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = 442, -100, 0x8000, 1


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class ReadOnly(NamedTuple):
    """Real paths of directories.

    Attributes:
        closed: Directories that cannot be written.
        open: Directories that can be written although a closed one contains them.
    """

    closed: Sequence[str] = ()
    open: Sequence[str] = ()


NOTHING_CLOSED = ReadOnly()


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder, or lies in it."""
    return path == folder or path.startswith(os.path.join(folder, ""))


def read_only(folder: str, path: Sequence[str], writable: Sequence[str]) -> ReadOnly:
    """Find the directories that node processes must not write.

    Args:
        folder: The directory of the project.
        path: The search path for modules.
        writable: Directories that nodes write, wherever they are, with all that they contain.
    """
    own = os.path.realpath(os.path.join(__file__, *[os.pardir] * 5))  # the folder that contains the package
    places = (folder, sys.prefix, sys.base_prefix, own, *path, *SYSTEM)
    closed = {real for place in places if os.path.isdir(real := os.path.realpath(place)) and real != "/"}
    named = {os.path.realpath(place) for place in writable}
    closed = {place for place in closed if not any(is_below(place, parent) for parent in named)}
    open_places = named | {os.path.realpath(place) for place in (tempfile.gettempdir(), "/dev/shm", "/var/tmp")}
    return ReadOnly(sorted(closed - open_places), sorted(place for place in open_places if os.path.isdir(place)))


def close_by_mounts(libc: ctypes.CDLL, places: ReadOnly) -> None:
    """Make directories read-only in the mount namespace of this process. Raises OSError if that is impossible."""
    # Sorted, so that a directory comes before those that it contains: a later mount covers what was mounted below it.
    for path in sorted({*places.closed, *places.open}):
        is_closed = path in places.closed
        if is_closed or any(is_below(path, place) for place in places.closed):
            target = os.fsencode(path)
            checked(libc.mount(target, target, None, _MS_BIND | MS_REC, None))
            attributes = _MountAttr(_ATTR_RDONLY, 0, 0, 0) if is_closed else _MountAttr(0, _ATTR_RDONLY, 0, 0)
            size = ctypes.sizeof(attributes)
            # An open directory may have been read-only before, and then cannot be made writable.
            with contextlib.nullcontext() if is_closed else contextlib.suppress(OSError):
                checked(libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, target, _AT_RECURSIVE, ctypes.byref(attributes), size))
    # The working directory still refers to the writable one below the new mounts.
    os.chdir(os.getcwd())


def writable_by_rules(places: ReadOnly, hidden: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield the paths that Landlock must allow to be written, and whether each is a directory.

    That is all beside closed and hidden paths, and what is open in closed ones. A rule holds for all that a directory
    contains: one that is closed within an open one stays open.
    """
    whole = [place for place in places.open if not any(is_below(path, place) for path in hidden)]
    closed = [path for path in places.closed if not any(is_below(path, place) for place in whole)]
    barred = (*closed, *hidden)
    yield from beside([path for path in barred if not any(is_below(path, other) for other in barred if other != path)])
    yield from ((path, True) for path in whole)


def beside(paths: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield everything beside paths and the directories that lead to them, and whether it is a directory."""
    above: set[str] = set()
    for path in paths:
        while (parent := os.path.dirname(path)) != path:
            above.add(parent)
            path = parent
    if not above:
        yield "/", True
    for folder in above:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            siblings = (child for child in entries if child.path not in above and child.path not in paths)
            yield from (
                (child.path, child.is_dir(follow_symlinks=False)) for child in siblings if not child.is_symlink()
            )


Way = Literal["namespaces", "landlock", "none"]

_CLONE_NEWUSER, _CLONE_NEWNS = 0x10000000, 0x00020000  # linux/sched.h
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, MS_BIND = 1, 2, 4, 0x20, 0x1000  # linux/mount.h
_MS_SLAVE = 1 << 19
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4  # linux/prctl.h
CAPABILITY_VERSION_3 = 0x20080522  # linux/capability.h
_MOST_CAPABILITIES = 64
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # of all architectures that have them
_WRITE_FILE, _READ_FILE = 1 << 1, 1 << 2  # linux/landlock.h
_CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))  # to remove, and to make, all kinds of files in it
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_VERSION_OF_REFER, _VERSION_OF_TRUNCATE = 2, 3
_BLOCK_DEVICES = "/sys/class/block"


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


class Displaced(Exception):
    """A directory is not the one that it was, so that hidden files may be elsewhere now."""


class Hidden(NamedTuple):
    """A file or directory to hide. `device` and `inode` identify the directory that it is in."""

    path: str
    device: int
    inode: int


class Opened(NamedTuple):
    """A directory within a hidden one that stays open, for reading alone or for writing, too."""

    path: str
    writable: bool


def hide(path: str) -> Hidden | None:
    """Describe a path to hide; None if it does not exist."""
    real = os.path.realpath(path)
    return Hidden(real, *_place(os.path.dirname(real))) if os.path.exists(real) else None


class Raised(NamedTuple):
    """The kind of walls, and whether code is read-only."""

    way: Way
    read_only: bool


def raise_walls(hidden: Sequence[Hidden], places: ReadOnly = NOTHING_CLOSED, opened: Sequence[Opened] = ()) -> Raised:
    """Hide paths, and all processes outside, from this process and all that it starts.

    Args:
        hidden: Paths to hide.
        places: Directories to make read-only.
        opened: Directories that stay open within hidden ones. A directory comes before those that it contains.

    Returns:
        The kind of walls; "none" if the system has neither.

    Raises:
        Displaced: A directory that contains a hidden path was moved.
    """
    if sys.platform != "linux":
        return Raised("none", read_only=False)
    for path, *identity in hidden:
        if _place(os.path.dirname(path)) != identity:
            raise Displaced(f"{os.path.dirname(path)} was replaced by another directory")
    libc = ctypes.CDLL(None, use_errno=True)
    everything = [*(hidden_path for hidden_path, _, _ in hidden), *(block_devices() if os.geteuid() == 0 else ())]
    with contextlib.suppress(OSError):
        enter_namespaces(libc)
        is_read_only = False
        # Opened before anything is covered, because their paths then lead into the covers.
        with _descriptors(opened) as descriptors:
            with contextlib.suppress(OSError):  # Linux before 5.12
                close_by_mounts(libc, places)
                is_read_only = True
            for path in everything:
                _cover(libc, path, passed=any(is_below(place, path) for place, _ in opened))
            for (path, writable), descriptor in descriptors:
                _open_again(libc, path, descriptor, writable=writable)
            for path in everything if opened else ():
                if os.path.isdir(path):
                    close_for_writing(libc, path)
        _give_up_capabilities(libc)
        return Raised("namespaces", is_read_only)
    try:
        ruleset = _ruleset(libc, everything, places, opened)
    except OSError:
        return Raised("none", read_only=False)
    try:
        _give_up_capabilities(libc)
        # After the capabilities are gone: without CAP_SYS_ADMIN, the kernel requires no_new_privs, which that sets.
        checked(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    except OSError:
        return Raised("none", read_only=False)
    finally:
        os.close(ruleset)
    return Raised("landlock", read_only=True)


def _place(folder: str) -> list[int]:
    """Return device and inode of a directory; an empty list if there is none."""
    try:
        status = os.stat(folder)
    except OSError:
        return []
    return [status.st_dev, status.st_ino]


def checked(code: int) -> int:
    """Return the result of a call. Raises OSError if it failed."""
    if code < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return code


def block_devices() -> Iterator[str]:
    """Yield the disks, which root can read whatever lies over their files."""
    with contextlib.suppress(OSError):
        yield from (path for name in os.listdir(_BLOCK_DEVICES) if os.path.exists(path := f"/dev/{name}"))


def enter_namespaces(libc: ctypes.CDLL) -> None:
    """Enter a user and a mount namespace, wholly or not at all. Raises OSError.

    Some systems let a process make them and then forbid to use them, which would leave it without a user.
    So another process tries first.
    """
    if (trying := os.fork()) == 0:
        try:
            _enter_namespaces(libc)
            checked(libc.mount(None, b"/", None, MS_REC | _MS_SLAVE, None))
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(trying, 0)[1] != 0:
        raise OSError("this system does not let processes use namespaces")
    _enter_namespaces(libc)


def _enter_namespaces(libc: ctypes.CDLL) -> None:
    # Read before unshare(): afterwards both are those of nobody, until the maps are written.
    user, group = os.geteuid(), os.getegid()
    checked(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    # The kernel accepts a gid_map from an unprivileged process only after setgroups is denied.
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _descriptors(opened: Sequence[Opened]) -> Iterator[list[tuple[Opened, int]]]:
    """Open descriptors of places as they are before something covers them."""
    with contextlib.ExitStack() as stack:
        descriptors = []
        for place in opened:
            descriptor = os.open(place.path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            descriptors.append((place, descriptor))
        yield descriptors


def _cover(libc: ctypes.CDLL, path: str, *, passed: bool) -> None:
    """Cover a path with something empty, in this namespace only: inherited mounts propagate nothing upwards.

    With `passed`, something stays open in it, so the cover can be passed through.
    """
    target = os.fsencode(path)
    if os.path.isdir(path):
        flags = _MS_NOSUID | _MS_NODEV | (0 if passed else _MS_RDONLY)
        checked(libc.mount(b"none", target, b"tmpfs", flags, b"size=64k,mode=" + (b"711" if passed else b"000")))
    elif os.path.exists(path):
        checked(libc.mount(b"/dev/null", target, None, MS_BIND, None))


def _open_again(libc: ctypes.CDLL, path: str, descriptor: int, *, writable: bool) -> None:
    """Mount a directory at its path again, as it was before the path was covered."""
    os.makedirs(path, exist_ok=True)
    checked(libc.mount(b"/proc/self/fd/%d" % descriptor, os.fsencode(path), None, MS_BIND, None))
    if not writable:
        close_for_writing(libc, path)


def close_for_writing(libc: ctypes.CDLL, path: str) -> None:
    """Make a mount read-only. It keeps its flags, which a user namespace may not remove."""
    # MS_BIND with MS_REMOUNT changes this mount only, not the file system below it.
    flags = os.statvfs(path).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
    checked(libc.mount(None, os.fsencode(path), None, flags | _MS_REMOUNT | MS_BIND | _MS_RDONLY, None))


def _give_up_capabilities(libc: ctypes.CDLL) -> None:
    """Give up all capabilities that could remove a mount, for this process and its descendants."""
    for number in range(_MOST_CAPABILITIES):
        if libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) < 0:  # it may not, or there are no more
            break
    give_up_privileges(libc)


def give_up_privileges(libc: ctypes.CDLL) -> None:
    """Give up all capabilities of this process and of the programs that it starts.

    Programs whose files have capabilities still start, without these. Where root is, it gets them back with a program.
    """
    checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header, nothing = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    checked(libc.capset(header, nothing))


def _ruleset(libc: ctypes.CDLL, hidden: Sequence[str], places: ReadOnly, opened: Sequence[Opened]) -> int:
    """Make rules that allow reading and writing everything that exists now and is not hidden or closed.

    Returns their descriptor.
    """
    if platform.machine() == "alpha":
        raise OSError
    # With the flag 1, the call returns the version of the interface instead of a descriptor.
    version = checked(libc.syscall(_CREATE_RULESET, None, 0, 1))
    refer = _REFER if version >= _VERSION_OF_REFER else 0  # else nothing could be moved between directories
    truncate = _TRUNCATE if version >= _VERSION_OF_TRUNCATE else 0
    write = _WRITE_FILE | truncate
    change = write | _CHANGE_FOLDER | refer  # what is moved may be read where it is then
    attributes = _Ruleset(_READ_FILE | change)
    ruleset = checked(libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0))
    try:
        for path, _ in beside(hidden):
            with contextlib.suppress(OSError):  # it is gone
                _allow(libc, ruleset, path, _READ_FILE)
        for path, is_directory in writable_by_rules(places, hidden):
            with contextlib.suppress(OSError):
                _allow(libc, ruleset, path, change if is_directory else write)
        for path, writable in opened:
            _allow(libc, ruleset, path, _READ_FILE | change if writable else _READ_FILE)
    except OSError:
        os.close(ruleset)
        raise
    return ruleset


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        rule = _PathBeneath(access, descriptor)
        checked(libc.syscall(_ADD_RULE, ruleset, 1, ctypes.byref(rule), 0))
    finally:
        os.close(descriptor)


if __name__ == "__main__":  # what `wtb doctor` asks
    raised = raise_walls((), read_only(os.getcwd(), sys.path, ()))
    print(raised.way, "read-only" if raised.read_only else "writable")

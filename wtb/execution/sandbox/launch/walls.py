"""Walls between a node process and what leads to the database: files with passwords, processes that know them, and
code that those processes will run.

Linux only, in one of two ways, both without privileges. A user and a mount namespace: empty file systems lie over what
is hidden, mounts of code are read-only, and processes outside cannot be looked into. Where the system forbids
namespaces, as containers do, Landlock: what is hidden cannot be read, moved or removed, code cannot be written, nor can
processes outside be looked into. Either is inherited by whatever a node starts, and cannot be taken back: no capability
is left, so that of root's powers a node has none.

Within a hidden directory, places can stay open: the files of one project among those of all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from wtb.execution.sandbox.launch.read_only import (
    NOTHING_CLOSED,
    ReadOnly,
    beside,
    close_by_mounts,
    is_below,
    read_only,
    writable_by_rules,
)

Way = Literal["namespaces", "landlock", "none"]

_CLONE_NEWUSER, _CLONE_NEWNS = 0x10000000, 0x00020000  # linux/sched.h
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, MS_BIND = 1, 2, 4, 0x20, 0x1000  # linux/mount.h
_MS_REC, _MS_SLAVE = 0x4000, 1 << 19
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
    """A directory is not the one that it was: what is hidden may be elsewhere now."""


class Hidden(NamedTuple):
    """A file or directory that is to be hidden. device, inode: the directory that it is in, to know that one by."""

    path: str
    device: int
    inode: int


class Opened(NamedTuple):
    """A directory within a hidden one that stays open, for reading alone or for writing, too."""

    path: str
    writable: bool


def hide(path: str) -> Hidden | None:
    """What stands for a path that is to be hidden; None where nothing is there."""
    real = os.path.realpath(path)
    return Hidden(real, *_place(os.path.dirname(real))) if os.path.exists(real) else None


class Raised(NamedTuple):
    """By which means there are walls, and whether code is read-only."""

    way: Way
    read_only: bool


def raise_walls(hidden: Sequence[Hidden], places: ReadOnly = NOTHING_CLOSED, opened: Sequence[Opened] = ()) -> Raised:
    """Hide paths, and all processes outside, from this process and all that it starts.

    Args:
        hidden: What is to be hidden.
        places: What is to be read-only.
        opened: What stays open within what is hidden. A directory comes before those that it contains.

    Returns:
        How; "none" where the system has no way.

    Raises:
        Displaced: Where a directory with something that is to be hidden was put elsewhere.
    """
    if sys.platform != "linux":
        return Raised("none", read_only=False)
    for path, *known in hidden:
        if _place(os.path.dirname(path)) != known:
            raise Displaced(f"{os.path.dirname(path)} is not the directory that it was")
    libc = ctypes.CDLL(None, use_errno=True)
    everything = [*(one for one, _, _ in hidden), *(block_devices() if os.geteuid() == 0 else ())]
    with contextlib.suppress(OSError):
        enter_namespaces(libc)
        is_read_only = False
        with _descriptors(opened) as kept:
            with contextlib.suppress(OSError):  # Linux before 5.12
                close_by_mounts(libc, places)
                is_read_only = True
            for path in everything:
                _cover(libc, path, passed=any(is_below(place, path) for place, _ in opened))
            for (path, writable), descriptor in kept:
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
        checked(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    except OSError:
        return Raised("none", read_only=False)
    finally:
        os.close(ruleset)
    return Raised("landlock", read_only=True)


def _place(folder: str) -> list[int]:
    """Device and inode of a directory; nothing where there is none."""
    try:
        found = os.stat(folder)
    except OSError:
        return []
    return [found.st_dev, found.st_ino]


def checked(result: int) -> int:
    """The result of a call. Raises OSError where it says that it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def block_devices() -> Iterator[str]:
    """Disks as root may read them, whatever lies over their files."""
    with contextlib.suppress(OSError):
        yield from (path for name in os.listdir(_BLOCK_DEVICES) if os.path.exists(path := f"/dev/{name}"))


def enter_namespaces(libc: ctypes.CDLL) -> None:
    """Enter a user and a mount namespace, wholly or not at all. Raises OSError.

    Some systems let a process make them and then forbid what makes them of use: there it would be left without a user.
    So another process tries first.
    """
    if (trying := os.fork()) == 0:
        try:
            _enter_namespaces(libc)
            checked(libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None))
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(trying, 0)[1] != 0:
        raise OSError("this system does not let processes use namespaces")
    _enter_namespaces(libc)


def _enter_namespaces(libc: ctypes.CDLL) -> None:
    user, group = os.geteuid(), os.getegid()
    checked(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _descriptors(opened: Sequence[Opened]) -> Iterator[list[tuple[Opened, int]]]:
    """Descriptors of places as they are before something lies over them."""
    with contextlib.ExitStack() as kept:
        descriptors = []
        for place in opened:
            descriptor = os.open(place.path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            kept.callback(os.close, descriptor)
            descriptors.append((place, descriptor))
        yield descriptors


def _cover(libc: ctypes.CDLL, path: str, *, passed: bool) -> None:
    """Lay what is empty over a path: of these namespaces alone, since mounts that are inherited pass nothing up.

    passed: whether something stays open in it, so that whoever reaches that passes through it.
    """
    target = os.fsencode(path)
    if os.path.isdir(path):
        flags = _MS_NOSUID | _MS_NODEV | (0 if passed else _MS_RDONLY)
        checked(libc.mount(b"none", target, b"tmpfs", flags, b"size=64k,mode=" + (b"711" if passed else b"000")))
    elif os.path.exists(path):
        checked(libc.mount(b"/dev/null", target, None, MS_BIND, None))


def _open_again(libc: ctypes.CDLL, path: str, descriptor: int, *, writable: bool) -> None:
    """Lay a directory over its path, as it was before that was covered."""
    os.makedirs(path, exist_ok=True)
    checked(libc.mount(b"/proc/self/fd/%d" % descriptor, os.fsencode(path), None, MS_BIND, None))
    if not writable:
        close_for_writing(libc, path)


def close_for_writing(libc: ctypes.CDLL, path: str) -> None:
    """Make a mount read-only. The flags that it has stay, since a namespace may not take them away."""
    flags = os.statvfs(path).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
    checked(libc.mount(None, os.fsencode(path), None, flags | _MS_REMOUNT | MS_BIND | _MS_RDONLY, None))


def _give_up_capabilities(libc: ctypes.CDLL) -> None:
    """Leave nothing by which a mount could be taken away, for this process and whatever it starts."""
    for number in range(_MOST_CAPABILITIES):
        if libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) < 0:  # it may not, or there are no more
            break
    give_up_privileges(libc)


def give_up_privileges(libc: ctypes.CDLL) -> None:
    """Leave this process without capabilities, which no program that it starts has then either.

    Programs whose files have capabilities still start, without these. Where root is, it gets them back with a program.
    """
    checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header, nothing = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    checked(libc.capset(header, nothing))


def _ruleset(libc: ctypes.CDLL, hidden: Sequence[str], places: ReadOnly, opened: Sequence[Opened]) -> int:
    """A descriptor of rules by which everything may be read, and written, that is not hidden or closed, and was there
    before.
    """
    if platform.machine() == "alpha":  # where other numbers stand for these calls
        raise OSError
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

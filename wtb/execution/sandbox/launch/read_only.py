"""Directories that a node process can read and not write: the project's, Python's, and those of the system.

Code that later runs outside of node processes lies there: modules of the project, WTB and its dependencies, programs.
A user and a mount namespace make them read-only at once; Landlock does by rules, which walls.py beside this makes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# What root could change beside files: settings of the kernel name programs that it runs outside of all walls.
KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/sys")
SYSTEM = ("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/sbin", "/usr", "/var/spool", *KERNEL)
_MS_BIND, _MS_REC = 0x1000, 0x4000  # linux/mount.h
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

    closed: not to be written. open: to be written, although a closed one contains it.
    """

    closed: Sequence[str] = ()
    open: Sequence[str] = ()


NOTHING_CLOSED = ReadOnly()


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder, or lies in it."""
    return path == folder or path.startswith(os.path.join(folder, ""))


def read_only(folder: str, path: Sequence[str], writable: Sequence[str]) -> ReadOnly:
    """Find out what node processes of this process must not write.

    Args:
        folder: That of the project.
        path: Where Python finds modules.
        writable: Directories that nodes write, wherever they are, with all that they contain.
    """
    own = os.path.dirname(os.path.dirname(os.path.realpath(sys.modules["wtb"].__file__ or "")))
    places = (folder, sys.prefix, sys.base_prefix, own, *path, *SYSTEM)
    closed = {real for place in places if os.path.isdir(real := os.path.realpath(place)) and real != "/"}
    named = {os.path.realpath(place) for place in writable}
    closed = {place for place in closed if not any(is_below(place, one) for one in named)}
    kept = named | {os.path.realpath(place) for place in (tempfile.gettempdir(), "/dev/shm", "/var/tmp")}
    return ReadOnly(sorted(closed - kept), sorted(place for place in kept if os.path.isdir(place)))


def close_by_mounts(libc: ctypes.CDLL, places: ReadOnly) -> None:
    """Make directories read-only in the mount namespace of this process. Raises OSError where that cannot be done."""
    for path in sorted({*places.closed, *places.open}):  # a directory comes before what it contains
        is_closed = path in places.closed
        if is_closed or any(is_below(path, place) for place in places.closed):
            target = os.fsencode(path)
            _checked(libc.mount(target, target, None, _MS_BIND | _MS_REC, None))
            wanted = _MountAttr(_ATTR_RDONLY, 0, 0, 0) if is_closed else _MountAttr(0, _ATTR_RDONLY, 0, 0)
            size = ctypes.sizeof(wanted)
            with contextlib.nullcontext() if is_closed else contextlib.suppress(OSError):  # it was read-only before
                _checked(libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, target, _AT_RECURSIVE, ctypes.byref(wanted), size))
    os.chdir(os.getcwd())  # from the directory below the mounts to the one that is seen now


def writable_by_rules(places: ReadOnly, hidden: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield what Landlock is to let be written, and whether it is a directory.

    That is all beside closed and hidden paths, and what is open in closed ones. A rule holds for all that a directory
    contains: one that is closed within an open one stays open.
    """
    whole = [place for place in places.open if not any(is_below(path, place) for path in hidden)]
    closed = [path for path in places.closed if not any(is_below(path, place) for place in whole)]
    barred = (*closed, *hidden)
    yield from beside([path for path in barred if not any(is_below(path, one) for one in barred if one != path)])
    yield from ((path, True) for path in whole)


def beside(paths: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield what lies beside paths and the directories that lead to them, and whether it is a directory."""
    above: set[str] = set()
    for path in paths:
        while (parent := os.path.dirname(path)) != path:
            above.add(parent)
            path = parent
    if not above:
        yield "/", True
    for folder in above:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            others = (entry for entry in entries if entry.path not in above and entry.path not in paths)
            yield from ((entry.path, entry.is_dir(follow_symlinks=False)) for entry in others if not entry.is_symlink())


def _checked(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

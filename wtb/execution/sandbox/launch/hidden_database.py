"""The wall that node processes have by default: only the SQLite files of their runner are hidden.

In a mount namespace of the process a notice lies over each file. Where the process can make that namespace by itself,
as root can, it then gives up the capabilities by which it could look past the notice, and keeps the others. Else a user
namespace comes with it. Where the system allows neither, nothing is hidden. Never by Landlock, which makes files that
are created later unreadable.

This is a wall against nodes that read what they find. Nodes can still change code that runs outside: see walls.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Sequence

from wtb.config.credentials import HIDING_NOTICE
from wtb.execution.sandbox.launch.walls import (
    CAPABILITY_VERSION_3,
    MS_BIND,
    block_devices,
    checked,
    close_for_writing,
    enter_namespaces,
    give_up_privileges,
)

_CLONE_NEWNS = 0x00020000  # linux/sched.h
_MS_REC, _MS_SLAVE = 0x4000, 1 << 19  # linux/mount.h
_PR_CAPBSET_DROP = 24  # linux/prctl.h
# linux/capability.h: what leads past a mount. The others stay: chown, other users, low ports, signals, and so on.
_DAC_READ_SEARCH = 2  # opens files by their handles, from any mount
_SYS_MODULE, _SYS_RAWIO = 16, 17  # code in the kernel; memory and disks
_SYS_PTRACE = 19  # /proc/PID/root and descriptors of processes outside
_SYS_ADMIN = 21  # unmounts, and enters other namespaces
_SYS_BOOT, _MKNOD = 22, 27  # another kernel; device files of disks
_PERFMON, _BPF, _CHECKPOINT_RESTORE = 38, 39, 40  # memory of the kernel and of processes
_LEAD_PAST = (
    *(_DAC_READ_SEARCH, _SYS_MODULE, _SYS_RAWIO, _SYS_PTRACE, _SYS_ADMIN, _SYS_BOOT, _MKNOD),
    *(_PERFMON, _BPF, _CHECKPOINT_RESTORE),
)
_EINVAL = 22


class HiddenFiles:
    """Files that this process cannot read, nor those that it starts.

    Attributes:
        paths: Real paths of files that are to be hidden, whether or not they are there.
        are_hidden: Whether those that were there have been hidden.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)
        self.are_hidden = False
        self._notice = os.stat(HIDING_NOTICE) if self.paths else None
        if sys.platform == "linux" and self.paths:
            with contextlib.suppress(OSError):
                _hide(ctypes.CDLL(None, use_errno=True), [path for path in self.paths if os.path.isfile(path)])
                self.are_hidden = True

    def are_bare(self) -> bool:
        """Return whether one of them can be read: it was created, or replaced by another file, outside."""
        return self.are_hidden and any(self._is_bare(path) for path in self.paths)

    def _is_bare(self, path: str) -> bool:
        try:
            state = os.stat(path)
        except OSError:
            return False
        return self._notice is not None and not os.path.samestat(state, self._notice)


def _hide(libc: ctypes.CDLL, paths: Sequence[str]) -> None:
    """Lay the notice over files. Raises OSError if the system does not allow it; then files may be readable."""
    is_privileged = libc.unshare(_CLONE_NEWNS) == 0
    if is_privileged:
        # Otherwise the mounts would also appear in the namespace of the runner, which shares the mount points.
        checked(libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None))
    elif os.geteuid() == 0 or any(_capabilities(libc)[1::3]):
        # A user namespace would take away capabilities that nodes may rely on.
        raise OSError
    else:
        enter_namespaces(libc)
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # it was removed just now
            checked(libc.mount(os.fsencode(HIDING_NOTICE), os.fsencode(path), None, MS_BIND, None))
            close_for_writing(libc, path)
    # Root could read the file from the disk itself.
    for path in block_devices() if os.geteuid() == 0 else ():
        checked(libc.mount(b"/dev/null", os.fsencode(path), None, MS_BIND, None))
    if is_privileged:
        _keep_others(libc)
    else:
        give_up_privileges(libc)


def _capabilities(libc: ctypes.CDLL) -> list[int]:
    """Return the capabilities of this process: effective, permitted and inheritable, lower and upper 32 bits."""
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    checked(libc.capget(header, sets))
    return list(sets)


def _keep_others(libc: ctypes.CDLL) -> None:
    """Give up the capabilities that lead past a mount, for this process and all that it starts."""
    capabilities = _capabilities(libc)
    for number in _LEAD_PAST:
        if libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) < 0 and ctypes.get_errno() != _EINVAL:  # of an older kernel
            checked(-1)
        word, bit = divmod(number, 32)
        for place in range(3 * word, 3 * word + 3):
            capabilities[place] &= ~(1 << bit)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    checked(libc.capset(header, (ctypes.c_uint32 * 6)(*capabilities)))


if __name__ == "__main__":  # for `wtb doctor`
    wall = HiddenFiles([os.path.realpath(__file__)])
    print("hidden" if wall.are_hidden and not wall.are_bare() else "bare")

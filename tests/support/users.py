"""Shell commands as another user runs them, or where the system forbids namespaces."""

from __future__ import annotations

import shlex
from pathlib import Path

NOBODY = 65533


def without_namespaces(command: str, *, is_root: bool) -> str:
    """The command where nobody may make a namespace, as in a container."""
    if not is_root:
        command = f"exec setpriv --ambient-caps -all --inh-caps -all sh -c {shlex.quote(command)}"
    command = f"for kind in user mnt; do echo 0 > /proc/sys/user/max_${{kind}}_namespaces; done && {command}"
    user = "--map-root-user" if is_root else "--map-current-user --keep-caps"
    return f"exec unshare --user {user} sh -c {shlex.quote(command)}"


def reachable(command: str, needed: Path) -> str:
    """The command in a mount namespace where others than its owner reach what it needs, too."""
    closed = next((folder for folder in reversed(needed.parents) if not folder.stat().st_mode & 0o001), None)
    if closed is None:
        return command
    return (
        f"keep=$(mktemp -d) && mkdir $keep/in && mount --bind {needed} $keep/in && mount -t tmpfs none {closed} && "
        f"mkdir -p {needed} && mount --bind $keep/in {needed} && umount $keep/in && rm -r $keep && {command}"
    )

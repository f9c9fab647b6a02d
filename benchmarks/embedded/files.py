"""Workspaces: a node that changes 10 of 1,000 files (100 MB), against `cp -a` of the same files, in turns.

A round makes the workspace, lets the node write, takes the snapshot and removes the directory; what the node itself
takes is not counted. `cp -a` only copies. Both sides leave writing back to the kernel, so disks that are slow at the
moment slow both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds, ratios
from wtb.store.files.store import FileStore
from wtb.store.files.workspaces import Workspaces

FILES = 1000
SIZE = 100_000
CHANGED = 10
EMPTY = 1000


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    home = environment.folder / "workspaces"
    workspaces = Workspaces(FileStore(home / "files"), home / "attempts")
    names = [f"{number % 20}/{number}" for number in range(FILES)]
    tree = home / "tree"
    for name in names:
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(SIZE))
    parent = workspaces.snapshot_of({name: tree / name for name in names}).digest
    own, copies, added, empty, bare = [], [], [], [], []
    for number in range(runs + 1):
        seconds, new = _node_run(workspaces, parent, names[:CHANGED])
        copied = _copy(tree, home / "copy")
        if number:  # the first warms up
            own.append(seconds)
            copies.append(copied)
            added.append(new - CHANGED * SIZE)
            empty.append(_empty(workspaces) * 1e6)
            bare.append(_bare(home / "bare") * 1e6)
    reflinks = bool(workspaces.files._clones)
    yield of_rounds(
        "files, a node run that changes 10 of 1,000", [1000 * s for s in own], "ms", 30 if reflinks else None
    )
    yield of_rounds("files, `cp -a` of the 1,000", [1000 * s for s in copies], "ms")
    yield of_rounds("files, node run / `cp -a`", ratios(own, copies), "x", 3)
    yield of_rounds("files, bytes added beside the 10 files (a manifest)", added, "bytes", 150 * FILES)
    yield of_rounds("files, an empty workspace opened and closed", empty, "microseconds")
    yield of_rounds("files, mkdir and rmdir of it", bare, "microseconds")


def _node_run(workspaces: Workspaces, parent: str | None, changed: list[str]) -> tuple[float, int]:
    """Return (seconds without the node's own writing, bytes added to the store)."""
    start = time.perf_counter()
    workspace = workspaces.open(parent)
    seconds = time.perf_counter() - start
    for name in changed:
        (workspace.path / name).write_bytes(os.urandom(SIZE))
    start = time.perf_counter()
    snapshot = workspace.close(keep=True)
    return seconds + time.perf_counter() - start, sum(size for _, size in snapshot.new)


def _copy(tree: Path, target: Path) -> float:
    start = time.perf_counter()
    subprocess.run(["cp", "-a", tree, target], check=True)
    seconds = time.perf_counter() - start
    shutil.rmtree(target)
    return seconds


def _empty(workspaces: Workspaces) -> float:
    start = time.perf_counter()
    for _ in range(EMPTY):
        workspaces.open(None).close(keep=True)
    return (time.perf_counter() - start) / EMPTY


def _bare(path: Path) -> float:
    start = time.perf_counter()
    for _ in range(EMPTY):
        os.mkdir(path, 0o700)
        os.rmdir(path)
    return (time.perf_counter() - start) / EMPTY

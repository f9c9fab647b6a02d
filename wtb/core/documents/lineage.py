"""Lines of checkpoints: the documents of `wtb history`, `wtb tree`, `wtb diff` and `wtb files`."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.executions import CheckpointHeading, ExecutionHeading, LeftLine, NodeRunDocument, TotalsDocument
from wtb.core.documents.shared_types import Combination, RouteDocument
from wtb.core.documents.sweeps import SweepName, SweepReason
from wtb.core.values import Json


class CheckpointDocument(TypedDict):
    """A checkpoint with its writers; `made` is the event by which a person made it, `state` is present on request."""

    id: str
    parent: str | None
    step: int
    name: str | None
    note: NotRequired[str]
    trigger: str
    created_at: str
    made: dict[str, Json] | None
    writers: list[NodeRunDocument]
    next: list[str]
    decisions: list[RouteDocument]
    totals: TotalsDocument | None
    state: NotRequired[dict[str, Json]]


class InsideDocument(TypedDict):
    """A checkpoint taken inside a node, for example after a call of a tool; its visit began at the parent."""

    id: str
    parent: str | None
    node: str
    variant: str
    node_run: str
    name: str | None
    trigger: str
    created_at: str


class BoundaryDocument(TypedDict):
    """A visit of a node: the checkpoints it started from and wrote, and the time of its node run.

    `input` is the state at its entry, `output` its writes; both are present on request.
    """

    node: str
    visit: int
    entry: str
    exit: str | None
    status: str
    started_at: NotRequired[str | None]
    ended_at: NotRequired[str | None]
    duration_s: float | None
    error: NotRequired[str | None]
    input: NotRequired[dict[str, Json]]
    output: NotRequired[dict[str, Json]]


class LineDocument(TypedDict):
    """A line of checkpoints, the visits of its nodes, and the checkpoints inside them."""

    checkpoints: list[CheckpointDocument]
    boundaries: list[BoundaryDocument]
    rollback_targets: dict[str, str]  # node -> checkpoint
    inside: NotRequired[list[InsideDocument]]


class HistoryDocument(LineDocument):
    """The line of checkpoints of an execution."""

    execution: ExecutionHeading
    left: list[LeftLine]


class TreeNode(TypedDict):
    """A node run of a segment; `varied` if its variant is not the node's usual one."""

    node: str
    variant: str
    node_run: str
    varied: bool


class SegmentDocument(TypedDict):
    """The checkpoints between two places where lines part; the id is that of the last."""

    id: str
    parent: str | None
    input: bool
    nodes: list[TreeNode]
    left: bool
    left_by: str | None
    made: dict[str, Json] | None
    step: int
    heads: list[str]  # executions
    inside: NotRequired[list[InsideDocument]]  # in the tree of an execution: taken inside nodes that start here


class TreeOfCase(TypedDict):
    """The lines of one case and repeat, and executions that have not begun."""

    case: str
    repeat: int
    segments: list[SegmentDocument]
    not_begun: list[str]


class TreeExecution(TypedDict):
    """An execution of a tree."""

    status: str
    reason: str | None
    origin: str
    parent: str | None
    cells: int
    edited: bool
    superseded: bool


class TreeDocument(TypedDict):
    """The tree of executions that share, fork and were rolled back; and how many segments and cases are not listed."""

    sweep: SweepReason
    execution: str | None
    trees: list[TreeOfCase]
    executions: dict[str, TreeExecution]
    left_out: int
    cases_left_out: int


class CheckpointSide(CheckpointHeading):
    """A checkpoint that is compared."""

    totals: TotalsDocument | None
    path: list[str]  # NODE=VARIANT


class ExecutionSide(ExecutionHeading):
    """An execution that is compared."""

    totals: TotalsDocument | None
    path: list[str]  # NODE=VARIANT


class DivergenceDocument(TypedDict):
    """The first step that differs, and its difference: input, path, variant, code, result, or end if only one
    continues.
    """

    step: int
    why: str
    a: list[str]
    b: list[str]


class ChangedValue(TypedDict):
    """A key of both states."""

    a: Any
    b: Any


class StateDifference(TypedDict):
    """Two states, key by key."""

    same: list[str]
    changed: dict[str, ChangedValue]
    only_a: dict[str, Json]
    only_b: dict[str, Json]


class FileDifference(TypedDict):
    """A file that differs: its bytes in a and b."""

    path: str
    kind: str
    a: int | None
    b: int | None


class DiffDocument(TypedDict):
    """A comparison of two executions or checkpoints: where they part, and the differences of their heads."""

    a: ExecutionSide | CheckpointSide
    b: ExecutionSide | CheckpointSide
    shared_steps: int
    common_checkpoint: str | None
    divergence: DivergenceDocument | None
    state: StateDifference
    files: list[FileDifference] | None


class FilesHeading(TypedDict):
    """The owner of files, and the checkpoint at which they are shown."""

    execution: str | None
    sweep: str
    case: str | None
    repeat: int | None
    combinations: list[Combination]
    checkpoint: str | None
    step: int | None
    after: list[str]  # nodes
    snapshot: str | None


class FileDocument(TypedDict):
    """A file: its size in bytes, its mode in octal digits, the SHA-256 of its content."""

    path: str
    size: int
    mode: str
    sha256: str


class CheckpointDetails(TypedDict):
    """A checkpoint with its state and files, and its execution; `saved` has the values that a node saved inside it."""

    sweep: SweepName
    execution: str
    checkpoint: CheckpointDocument
    inside: InsideDocument | None
    saved: dict[str, Json]
    files: list[FileDocument]


class CheckpointNameDocument(TypedDict):
    """A checkpoint that was named, with the name that it had before."""

    execution: str
    checkpoint: str
    name: str
    note: str | None
    previous: str | None


class FilesDocument(FilesHeading):
    """The files of a workspace."""

    bytes: int
    files: list[FileDocument]


class FileChange(TypedDict):
    """A file that differs: its bytes before and after."""

    path: str
    kind: str
    before: int | None
    after: int | None


class FileChangesDocument(TypedDict):
    """The changes from the files of one execution or checkpoint to those of another."""

    a: FilesHeading
    b: FilesHeading
    changes: list[FileChange]

"""The history of an execution as a value: its line of checkpoints, and figures that follow from it. Pure: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from wtb.core.errors import InputError, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import iso
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId, Writer, visible_state
from wtb.core.tree.recorded_runs import (
    Decision,
    NodeBoundary,
    RecordedRun,
    inside_document,
    run_document,
    totals_document,
    with_runs,
)
from wtb.core.values import Json

if TYPE_CHECKING:
    from wtb.core.documents.executions import NodeRunDocument
    from wtb.core.documents.lineage import (
        BoundaryDocument,
        CheckpointDocument,
        LineDocument,
    )

Granularity = Literal["node", "tool"]
_LISTED = 20  # names in an error


@frozen(slots=True)
class RollbackCheck:
    """The result of a check whether a rollback can lead to a target. It is true if it can.

    Attributes:
        checkpoint: The checkpoint that the target names, or None.
        reason: Why it can, or cannot.

    Example:
        >>> from wtb import Workflow, start
        >>> wf = Workflow("counting")
        >>> wf.entry(wf.node(lambda state: {"n": state["n"] + 1}, name="count"))
        >>> history = start(wf, {"n": 1}, db="sqlite:///:memory:").wait().history()
        >>> bool(history.can_rollback_to("count")), bool(history.can_rollback_to("add"))
        (True, False)
    """

    checkpoint: Checkpoint | None
    reason: str

    def __bool__(self) -> bool:
        return self.checkpoint is not None


@frozen
class ExecutionHistory:
    """The line of checkpoints from the input of an execution to its head, oldest first.

    Iterating over it gives its checkpoints, and `len` is their number.

    Attributes:
        checkpoints: The line.
        inside: Checkpoints taken inside nodes of the line: by tools, by time, or by `ctx.checkpoint`.
        left: Checkpoints of lines that rollbacks left.
        runs: The node runs that wrote the line, by id.
        unfinished: Node runs at the head that have not succeeded.
        decisions: Why it went where it went, by checkpoint.
        manual_events: Events by which people made checkpoints, by checkpoint.
        notes: Notes that people gave with names, by checkpoint.
        execution: Whose history it is, in messages.

    Raises:
        ValueError: If the checkpoints do not form a line by parent.

    Example:
        >>> from wtb import Workflow, start
        >>> wf = Workflow("counting")
        >>> wf.entry(wf.node(lambda state: {"n": state["n"] + 1}, name="count"))
        >>> history = start(wf, {"n": 1}, db="sqlite:///:memory:").wait().history()
        >>> history.path, history.completed_nodes, len(history)
        (('count',), ('count',), 2)
        >>> history.can_rollback_to("count").reason
        'it is the head: what comes next runs again'
    """

    checkpoints: Sequence[Checkpoint]
    inside: Sequence[Checkpoint] = ()
    left: Sequence[Checkpoint] = ()
    runs: Mapping[str, RecordedRun] = field(default_factory=dict)
    unfinished: Sequence[RecordedRun] = ()
    decisions: Mapping[str, Sequence[Decision]] = field(default_factory=dict)
    manual_events: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    execution: str | None = None

    def __post_init__(self) -> None:
        for name in ("checkpoints", "inside", "left", "unfinished"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for parent, child in zip(self.checkpoints, self.checkpoints[1:], strict=False):
            if child.parent != parent.id:
                raise ValueError(f"checkpoint {child.id} follows {parent.id} but its parent is {child.parent}")

    def __iter__(self) -> Iterator[Checkpoint]:
        return iter(self.checkpoints)

    def __len__(self) -> int:
        return len(self.checkpoints)

    @property
    def latest(self) -> Checkpoint | None:
        """The checkpoint at the head."""
        return self.checkpoints[-1] if self.checkpoints else None

    @cached_property
    def _by_id(self) -> dict[str, Checkpoint]:
        return {checkpoint.id: checkpoint for checkpoint in (*self.left, *self.inside, *self.checkpoints)}

    def get(self, id: str) -> Checkpoint | None:
        """Return a checkpoint by its id.

        Args:
            id: The whole id.

        Returns:
            A checkpoint of the line, inside one of its nodes, or on a line that a rollback left; None if there is none.
        """
        return self._by_id.get(id)

    @property
    def path(self) -> tuple[str, ...]:
        """Nodes in the order in which they ran; those of one step in the order of declaration."""
        return tuple(writer.node for checkpoint in self.checkpoints for writer in checkpoint.writers)

    @property
    def completed_nodes(self) -> tuple[str, ...]:
        """The nodes that have run, each once, in the order of their first exits."""
        return tuple(dict.fromkeys(self.path))

    @cached_property
    def boundaries(self) -> tuple[NodeBoundary, ...]:
        """One boundary a visit, in the order of entry: entry among the next nodes, exit among the writers.

        A checkpoint taken inside a node has no writers, so the visit that it interrupts stays open.
        """
        boundaries: list[NodeBoundary] = []
        open_at: dict[str, int] = {}
        visits: Counter[str] = Counter()
        for checkpoint in self.checkpoints:
            for writer in checkpoint.writers:
                if writer.node in open_at:
                    number = open_at.pop(writer.node)
                    boundaries[number] = self._closed(boundaries[number], checkpoint)
            for node in checkpoint.position.next:
                if node not in open_at:
                    open_at[node] = len(boundaries)
                    boundaries.append(NodeBoundary(node, visits[node], checkpoint.id, None))
                    visits[node] += 1
        for node, number in open_at.items():
            runs = [run for run in self.unfinished if run.node == node]
            boundaries[number] = with_runs(boundaries[number], runs)
        return tuple(boundaries)

    def _closed(self, boundary: NodeBoundary, checkpoint: Checkpoint) -> NodeBoundary:
        """Close a visit at the checkpoint that it wrote."""
        ids = [writer.node_run for writer in checkpoint.writers if writer.node == boundary.node]
        closed = replace(boundary, exit=checkpoint.id, status="succeeded")
        return with_runs(closed, [self.runs[id] for id in ids if id in self.runs])

    def boundary(self, node: str, visit: int | None = None) -> NodeBoundary:
        """Return a visit of a node.

        Args:
            node: The node.
            visit: Which visit, from 0; by default its last.

        Returns:
            The boundary.

        Raises:
            InputError: If the execution has not come to it, or not as often.
        """
        visits = [boundary for boundary in self.boundaries if boundary.node == node]
        return self._visit(
            node, visit, visits, "has not reached", tuple(dict.fromkeys(b.node for b in self.boundaries))
        )

    def _visit(
        self, node: str, visit: int | None, visits: Sequence[NodeBoundary], how: str, nodes: Sequence[str]
    ) -> NodeBoundary:
        """Choose one of the visits of a node. Raises InputError that names the existing nodes or visits."""
        if not visits:
            hint = f"; it has: {_listed(nodes)}" if nodes else ""
            raise InputError(f"{self._name} {how} node {node!r}{did_you_mean(node, nodes)}{hint}")
        if visit is None:
            return visits[-1]
        by_visit = {boundary.visit: boundary for boundary in visits}
        if visit not in by_visit:
            visits_text = ", ".join(map(str, by_visit))
            raise InputError(f"{self._name} {how} visit {visit} of node {node!r}; expected one of {visits_text}")
        return by_visit[visit]

    @property
    def _name(self) -> str:
        return "this history" if self.execution is None else f"execution {self.execution}"

    # Targets

    @cached_property
    def _exits(self) -> dict[str, Checkpoint]:
        """The exit of the last completed visit of each node."""
        return {writer.node: checkpoint for checkpoint in self.checkpoints for writer in checkpoint.writers}

    @cached_property
    def _names(self) -> dict[str, Checkpoint]:
        """Checkpoints by name; of several of one name, the newest."""
        named = [checkpoint for checkpoint in self._by_id.values() if checkpoint.name is not None]
        named.sort(key=lambda checkpoint: (checkpoint.created_at, checkpoint.id))
        return {str(checkpoint.name): checkpoint for checkpoint in named}

    def rollback_targets(self, granularity: Granularity = "node") -> dict[str, CheckpointId]:
        """Return where rolling back can lead.

        Args:
            granularity: `node` for the exits of nodes; `tool` for checkpoints inside nodes, such as of tool calls, too.

        Returns:
            Node -> the exit of its last completed visit. With `tool` also the name, else the id, of each checkpoint
            inside a node -> its id; of several of one name, the newest.

        Raises:
            InputError: For another granularity.
        """
        if granularity not in ("node", "tool"):
            raise InputError(f"granularity {granularity!r}: expected 'node' or 'tool'")
        targets = {node: checkpoint.id for node, checkpoint in self._exits.items()}
        if granularity == "tool":
            inside = {checkpoint.name or checkpoint.id: checkpoint.id for checkpoint in self.inside}
            targets = {**inside, **targets}
        return targets

    def resolve(self, target: str) -> Checkpoint:
        """Return the checkpoint that a target names, as `wtb rollback`, `wtb fork` and `wtb files` read it.

        Args:
            target: The id of a checkpoint or its beginning, a name, or the node that wrote it last.

        Returns:
            A checkpoint of the line, inside one of its nodes, or on a line that a rollback left.

        Raises:
            InputError: If there is none, or if the beginning of an id is ambiguous.
        """
        if not self.checkpoints:
            raise InputError(f"{self._name} has not begun: it has no checkpoint")
        for index in (self._by_id, self._exits, self._names):
            if target in index:
                return index[target]
        starting = [checkpoint for id, checkpoint in self._by_id.items() if target and id.startswith(target)]
        if len(starting) == 1:
            return starting[0]
        if starting:
            raise InputError(f"{target!r} is the beginning of {len(starting)} checkpoints' ids; give more of it")
        names = [*self._exits, *self._names]
        listed = f"; expected one of: {_listed(names)}" if names else "; no node of it has run yet"
        where = f" (or a checkpoint of `wtb history {self.execution}`)" if self.execution else ""
        raise InputError(
            f"{self._name} has no checkpoint {target!r} on its line{did_you_mean(target, names)}{listed}{where}"
        )

    def can_rollback_to(self, target: str) -> RollbackCheck:
        """Return whether a rollback can lead to a target, and why.

        Args:
            target: As `resolve` takes it.

        Returns:
            The checkpoint and the reason. It is true if the target is a checkpoint of this history; an execution whose
            cells another one has by now is rejected only by the rollback itself.
        """
        try:
            checkpoint = self.resolve(target)
        except InputError as error:
            return RollbackCheck(None, str(error))
        if self.latest is not None and checkpoint.id == self.latest.id:
            return RollbackCheck(checkpoint, "it is the head: what comes next runs again")
        if checkpoint.inside is not None:
            where = f"it was taken inside node {checkpoint.inside.node!r}, which continues from there"
        else:
            on_line = checkpoint in self.checkpoints
            where = f"it is step {checkpoint.step} of {'the line' if on_line else 'a line that a rollback left'}"
        return RollbackCheck(checkpoint, where)

    def at(self, target: str, visit: int | None = None) -> Checkpoint:
        """Return a checkpoint, or the one that a visit of a node wrote.

        Args:
            target: As `resolve` takes it.
            visit: For a node: which visit, from 0; by default its last completed one.

        Returns:
            The checkpoint.

        Raises:
            InputError: If there is none, or if the node has not run, or not as often.
        """
        if visit is None and (target in self._by_id or target in self._exits or target in self._names):
            return self.resolve(target)
        # A reached node without an exit is meant as a node, even if its name is the beginning of an id.
        reached = {boundary.node for boundary in self.boundaries}
        if visit is None and target not in reached and any(id.startswith(target) for id in self._by_id if target):
            return self.resolve(target)
        completed = [b for b in self.boundaries if b.node == target and b.exit is not None]
        boundary = self._visit(target, visit, completed, "has not run", self.completed_nodes)
        return self._by_id[str(boundary.exit)]

    def between(self, a: str, b: str) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of the line after one up to another.

        Args:
            a: The earlier one, as `resolve` takes it; it is left out.
            b: The later one, which comes last.

        Returns:
            The checkpoints, oldest first; none if both are the same.

        Raises:
            InputError: If one is not on the line, or if `b` comes before `a`.
        """
        places = {checkpoint.id: number for number, checkpoint in enumerate(self.checkpoints)}
        ends = [self.resolve(target) for target in (a, b)]
        for target, end in zip((a, b), ends, strict=True):
            if end.id not in places:
                raise InputError(f"{target!r} is not on the line of {self._name}; expected one of its checkpoints")
        start, stop = (places[end.id] for end in ends)
        if start > stop:
            raise InputError(f"{b!r} comes before {a!r} in {self._name}; expected the earlier one first")
        return tuple(self.checkpoints[start + 1 : stop + 1])

    # As JSON

    def document(self, values: Mapping[str, Json] | None = None) -> LineDocument:
        """Return it as plain JSON.

        Args:
            values: Values by SHA-256 as plain JSON, to add states, and the input and output of each visit.

        Returns:
            Its checkpoints, boundaries, rollback targets and checkpoints inside nodes.
        """
        return {
            "checkpoints": [self.checkpoint_document(checkpoint, values) for checkpoint in self.checkpoints],
            "boundaries": [self._boundary(boundary, values) for boundary in self.boundaries],
            "rollback_targets": {**self.rollback_targets()},
            "inside": [inside_document(checkpoint) for checkpoint in self.inside],
        }

    def writers_of(self, checkpoint: Checkpoint) -> list[NodeRunDocument]:
        """Return the node runs that wrote a checkpoint as plain JSON.

        Args:
            checkpoint: A checkpoint of the line.

        Returns:
            A document for each node run, in the order of declaration.
        """
        count = Counter(writer.node for writer in checkpoint.writers)
        return [run_document(self._run_of(writer, checkpoint), count[writer.node]) for writer in checkpoint.writers]

    def _run_of(self, writer: Writer, checkpoint: Checkpoint) -> RecordedRun:
        """Return the node run of a writer; without recorded runs, one with the data of the checkpoint."""
        if writer.node_run in self.runs:
            return self.runs[writer.node_run]
        node, visit = writer.node, max(0, checkpoint.position.visits.get(writer.node, 1) - 1)
        return RecordedRun(writer.node_run, node, node, writer.variant, visit, "succeeded", checkpoint.created_at, 0.0)

    def checkpoint_document(
        self, checkpoint: Checkpoint, values: Mapping[str, Json] | None = None
    ) -> CheckpointDocument:
        """Return one of its checkpoints as plain JSON.

        Args:
            checkpoint: A checkpoint of the line.
            values: Values by SHA-256 as plain JSON, to add its state.

        Returns:
            The checkpoint as in `document`.
        """
        manual_event = self.manual_events.get(checkpoint.id)
        document: CheckpointDocument = {
            "id": checkpoint.id,
            "parent": checkpoint.parent,
            "step": checkpoint.step,
            "name": checkpoint.name,
            "trigger": checkpoint.trigger,
            "created_at": iso(checkpoint.created_at),
            "made": None if manual_event is None else dict(manual_event),
            "writers": self.writers_of(checkpoint),
            "next": list(checkpoint.position.next),
            "decisions": [decision.document() for decision in self.decisions.get(checkpoint.id, ())],
            "totals": totals_document(checkpoint),
        }
        if checkpoint.id in self.notes:
            document["note"] = self.notes[checkpoint.id]
        if values is not None:
            document["state"] = _valued(checkpoint.state, values)
        return document

    def _boundary(self, boundary: NodeBoundary, values: Mapping[str, Json] | None) -> BoundaryDocument:
        document: BoundaryDocument = {
            "node": boundary.node,
            "visit": boundary.visit,
            "entry": boundary.entry,
            "exit": boundary.exit,
            "status": boundary.status,
            "started_at": iso(boundary.started),
            "ended_at": iso(boundary.ended),
            "duration_s": boundary.duration,
            "error": boundary.error,
        }
        if values is not None:
            document["input"] = _valued(self._by_id[boundary.entry].state, values)
            document["output"] = _valued(boundary.output, values)
        return document


def _valued(state: Mapping[str, str], values: Mapping[str, Json]) -> dict[str, Json]:
    return {key: values[digest] for key, digest in visible_state(state).items()}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_LISTED])) + (", ..." if len(names) > _LISTED else "")

"""The port of stores of checkpoints, and the store in memory. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from wtb.core.errors import ConflictError, InputError, NotFound
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId
from wtb.core.tree.history import ExecutionHistory
from wtb.core.values import Value


class CheckpointStore(Protocol):
    """Keep the checkpoints of executions, and give their histories.

    `wtb.history.InMemoryCheckpoints`, `Bench.checkpoints` (a database) and
    `wtb.integrations.langgraph.ThreadCheckpoints` (any saver of LangGraph) are such stores. They pass one suite of
    tests.

    Example:
        >>> import wtb
        >>> from wtb.history import CheckpointStore, InMemoryCheckpoints
        >>> def path(store: CheckpointStore, execution: str) -> str:
        ...     return " > ".join(store.history(execution).path)
        >>> wf = wtb.Workflow("counting")
        >>> wf.entry(wf.node(lambda state: {"n": state["n"] + 1}, name="count"))
        >>> with wtb.open("sqlite:///:memory:") as bench:
        ...     path(bench.checkpoints, bench.start(wf, {"n": 1}).wait().id)
        'count'
    """

    def save(
        self, execution: str, checkpoint: Checkpoint, values: Iterable[Value] = (), *, token: int = 0
    ) -> CheckpointId:
        """Add a checkpoint to an execution and move the head of the execution to it.

        Args:
            execution: The execution's id.
            checkpoint: The checkpoint; its parent is in the history of the execution, or None for the first one.
            values: The values that its state names and that the store may not have.
            token: The fencing token under which the execution was claimed.

        Returns:
            The id by which the store has it.

        Raises:
            ConflictError: If the parent is not in the history of the execution, or if the token is not the current one.
            NotFound: If there is no such execution.
        """

    def load(self, id: str) -> Checkpoint:
        """Return a checkpoint by its id.

        Args:
            id: The checkpoint's id.

        Returns:
            The checkpoint.

        Raises:
            NotFound: If there is none.
        """

    def history(self, execution: str) -> ExecutionHistory:
        """Return the line that leads to the head of an execution.

        Args:
            execution: The execution's id.

        Returns:
            The history of the execution.

        Raises:
            NotFound: If there is no such execution.
        """

    def delete(self, id: str) -> tuple[CheckpointId, ...]:
        """Delete a line that ends at a checkpoint, as far as nothing else reaches it.

        Args:
            id: The last checkpoint of the line, such as one that a rollback left.

        Returns:
            The deleted checkpoints, the last of the line first.

        Raises:
            ConflictError: If it is the head of an execution, if a checkpoint follows it, or if it is pinned.
            NotFound: If there is none.
        """


class InMemoryCheckpoints:
    """A `CheckpointStore` in the memory of this process, for tests and for programs without a database.

    Example:
        >>> from wtb.history import Checkpoint, CheckpointId, InMemoryCheckpoints, Position
        >>> store = InMemoryCheckpoints()
        >>> token = store.claim("e1")
        >>> store.save("e1", Checkpoint(CheckpointId("c0"), None, Position(0, ("count",)), {}), token=token)
        'c0'
        >>> store.history("e1").latest.position.next
        ('count',)
    """

    def __init__(self) -> None:
        self._checkpoints: dict[str, Checkpoint] = {}
        self._executions: dict[str, str] = {}
        self._heads: dict[str, str] = {}
        self._tokens: dict[str, int] = {}

    def claim(self, execution: str) -> int:
        """Claim an execution, which begins to exist by that.

        Args:
            execution: An id of your choice.

        Returns:
            The fencing token for `save`; earlier ones are of no more use.
        """
        self._tokens[execution] = self._tokens.get(execution, 0) + 1
        return self._tokens[execution]

    def save(
        self, execution: str, checkpoint: Checkpoint, values: Iterable[Value] = (), *, token: int = 0
    ) -> CheckpointId:
        """Add a checkpoint to an execution and move the head of the execution to it.

        Args:
            execution: The id of an execution that was claimed.
            checkpoint: The checkpoint, below another one of the execution.
            values: Not kept.
            token: The fencing token of the claim.

        Returns:
            The checkpoint's id.

        Raises:
            ConflictError: If the parent is not in the history of the execution, or if the claim is lost.
            NotFound: If there is no such execution.
        """
        if token != self._token_of(execution):
            raise ConflictError(f"execution {execution} was claimed by another one meanwhile; nothing was saved")
        if checkpoint.id in self._checkpoints:
            raise ConflictError(f"there is a checkpoint {checkpoint.id} already; each one is saved once")
        check_parent(execution, checkpoint, {id for id, of in self._executions.items() if of == execution})
        self._checkpoints[checkpoint.id] = checkpoint
        self._executions[checkpoint.id] = execution
        self._heads[execution] = checkpoint.id
        return checkpoint.id

    def load(self, id: str) -> Checkpoint:
        """Return a checkpoint by its id.

        Args:
            id: The checkpoint's id.

        Returns:
            The checkpoint.

        Raises:
            NotFound: If there is none.
        """
        if id not in self._checkpoints:
            raise no_checkpoint(id)
        return self._checkpoints[id]

    def history(self, execution: str) -> ExecutionHistory:
        """Return the line that leads to the head of an execution, and the lines that it left.

        Args:
            execution: The execution's id.

        Returns:
            The history of the execution.

        Raises:
            NotFound: If there is no such execution.
        """
        self._token_of(execution)
        line: list[Checkpoint] = []
        id: str | None = self._heads.get(execution)
        while id is not None:
            line.append(self._checkpoints[id])
            id = line[-1].parent
        on_line = {checkpoint.id for checkpoint in line}
        mine = [self._checkpoints[id] for id, of in self._executions.items() if of == execution and id not in on_line]
        return ExecutionHistory(line[::-1], left=mine, execution=execution)

    def delete(self, id: str) -> tuple[CheckpointId, ...]:
        """Delete a line that ends at a checkpoint, as far as nothing else reaches it.

        Args:
            id: The last checkpoint of the line.

        Returns:
            The deleted checkpoints, the last of the line first.

        Raises:
            ConflictError: If it is the head of an execution, or if a checkpoint follows it.
            NotFound: If there is none.
        """
        self.load(id)
        heads = {head: execution for execution, head in self._heads.items()}
        parents = {id: checkpoint.parent for id, checkpoint in self._checkpoints.items()}
        deleted = unreached_line(id, parents, heads)
        for checkpoint_id in deleted:
            del self._checkpoints[checkpoint_id], self._executions[checkpoint_id]
        return deleted

    def _token_of(self, execution: str) -> int:
        if execution not in self._tokens:
            raise NotFound(f"there is no execution {execution!r}; `claim` makes one")
        return self._tokens[execution]


def no_checkpoint(id: str) -> InputError:
    """Return the error for a checkpoint that does not exist."""
    return NotFound(f"there is no checkpoint {id!r}; the history of its execution lists those that are there")


def check_parent(execution: str, checkpoint: Checkpoint, history_ids: set[str]) -> None:
    """Raise ConflictError if a checkpoint does not continue one that its execution has.

    Args:
        execution: The execution's id.
        checkpoint: The new checkpoint.
        history_ids: Ids of the checkpoints that the execution has.
    """
    if checkpoint.parent is None and history_ids:
        raise ConflictError(f"execution {execution} has begun; expected a checkpoint that names its parent")
    if checkpoint.parent is not None and checkpoint.parent not in history_ids:
        raise ConflictError(
            f"the parent of checkpoint {checkpoint.id}, {checkpoint.parent}, is not in the history of execution "
            f"{execution}; expected a checkpoint of it"
        )


def check_end(id: str, head_of: str | None, children: set[str], *, is_pinned: bool = False) -> None:
    """Raise ConflictError if a checkpoint is not the end of a line that nothing else reaches.

    Args:
        id: The checkpoint.
        head_of: The execution whose head it is, if it is one.
        children: Ids of the checkpoints that follow it.
        is_pinned: Whether it is pinned.
    """
    if head_of is not None:
        raise ConflictError(f"checkpoint {id} is the head of execution {head_of}; expected the end of a line it left")
    if children:
        raise ConflictError(f"checkpoint {min(children)} follows {id}; expected the end of a line")
    if is_pinned:
        raise ConflictError(f"checkpoint {id} is pinned; unpin it first with `wtb admin unpin {id}`")


def unreached_line(end: str, parents: Mapping[str, str | None], heads: Mapping[str, str]) -> tuple[CheckpointId, ...]:
    """Return the line that ends at a checkpoint as far as nothing else reaches it, the end first.

    Args:
        end: The last checkpoint of the line.
        parents: Checkpoint -> its parent, of all checkpoints that may reach the line.
        heads: Checkpoint -> the execution whose head it is.

    Raises:
        ConflictError: If the end is a head, or if a checkpoint follows it.
    """
    children: dict[str | None, set[str]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, set()).add(child)
    check_end(end, heads.get(end), children.get(end, set()))
    line: list[CheckpointId] = []
    at: str | None = end
    while at is not None and at not in heads and not children.get(at, set()) - set(line):
        line.append(CheckpointId(at))
        at = parents[at]
    return tuple(line)

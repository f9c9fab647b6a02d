"""LangGraph's own algorithm, one task at a time.

LangGraph's functions prepare tasks and apply their writes. WTB adds that they can stop after each task, and continue in
another process from the stored state.

The modules of LangGraph are not public, so `versions.py` names the versions that were tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph._internal._config import DEFAULT_RECURSION_LIMIT, merge_configs, patch_configurable, recast_checkpoint_ns
from langgraph._internal._constants import CONF, CONFIG_KEY_CHECKPOINT_NS, CONFIG_KEY_SCRATCHPAD, PULL, PUSH
from langgraph.constants import START
from langgraph.errors import GraphRecursionError
from langgraph.pregel._algo import PregelTaskWrites, apply_writes, increment, prepare_next_tasks
from langgraph.pregel._io import map_input, read_channels
from langgraph.pregel._read import PregelNode
from langgraph.runtime import Runtime
from langgraph.types import Command, PregelExecutableTask

from wtb.authoring.context.ask import Questioner
from wtb.core.errors import InputError, Rejected, StateError
from wtb.core.frozen import frozen
from wtb.core.questions import Answer, Question
from wtb.core.serialization.codec import decode
from wtb.core.values import State
from wtb.integrations.langgraph.frames import IN_PLACE, Branch, Frame, open_channels, path_to
from wtb.integrations.langgraph.nodes import Graph
from wtb.integrations.langgraph.task_runner import executable, invoke

_WORDS = ("question", "message", "description", "prompt", "text", "title")


class Interrupts:
    """The values that calls of `interrupt` in one attempt return, in their order.

    Questions of `ctx.ask` may come in between. They are counted by the same questioner, so that each question has its
    place in a pass through the node's code; but only an answer to an `interrupt` is returned by one.

    Raises:
        Asked: If the question of an interrupt no longer has an answer.
        Rejected: If a person rejected it.
    """

    def __init__(self, questioner: Questioner, questions: Iterable[Question]) -> None:
        self._questioner = questioner
        self._resumed: list[tuple[Question, Any]] = []
        self._next = 0
        for question in questions:
            self._add(question)

    def restart(self) -> None:
        """Begin with the first one, because the node's code starts again within the attempt."""
        self._next = 0
        self._questioner.restart()

    def ask(self, content: Any) -> None:
        """Ask the question of the last interrupt, so that the next pass has the answer. Raises as the class does."""
        self._add(self._questioner.question(*question_of(content)))

    def resume(self, consume: bool = False) -> Any:
        """Return the value of the next call of `interrupt`; None if it has no answer yet. LangGraph calls this."""
        if self._next >= len(self._resumed):
            return None
        question, value = self._resumed[self._next]
        if consume:
            self._next += 1
            self._questioner.count(question.key)
        return value

    def __bool__(self) -> bool:
        return bool(self._resumed)

    def _add(self, question: Question) -> None:
        content = None if question.context is None else decode(question.context)
        try:
            resumed = resume_value(content, self._questioner.interrupt(question))
        except Rejected as rejected:
            if (resumed := rejection_value(content, str(rejected))) is None:
                raise
        self._resumed.append((question, resumed))


def question_of(content: Any) -> tuple[str, tuple[str, ...], Any]:
    """Return the text of a question, its options, and its context."""
    if isinstance(content, str) and content.strip():
        return content, (), None
    options: tuple[str, ...] = ()
    if isinstance(content, Mapping):
        choices = content.get("options")
        if (
            isinstance(choices, Sequence)
            and not isinstance(choices, str)
            and all(isinstance(choice, str) for choice in choices)
        ):
            options = tuple(choices)
        for word in _WORDS:
            if isinstance(text := content.get(word), str) and text.strip():
                return text, options, content
        if actions := _actions(content):
            return "; ".join(f"{name}?" for name in actions), (), content
    return "go on?", options, content


def resume_value(content: Any, answer: Answer) -> Any:
    """Return the value of an answer for the node: the given value, the choice, the feedback, or True.

    content: The value of the interrupt. Middleware that asks to approve actions gets its decisions.
    Raises InputError for the value null.
    """
    if answer.value is not None:
        # LangGraph takes None for an answer that is not there yet, and would interrupt again.
        if (answer_value := answer.given) is None:
            raise InputError("LangGraph cannot resume with null; answer with another value, such as false or {}")
        return answer_value
    if answer.choice is not None:
        return answer.choice
    if actions := _actions(content):
        return {"decisions": [{"type": "approve"} for _ in actions]}
    return True if answer.feedback is None else answer.feedback


def rejection_value(content: Any, words: str) -> Any:
    """Return the decisions that reject the actions of middleware; None for other questions."""
    actions = _actions(content)
    return {"decisions": [{"type": "reject", "message": words} for _ in actions]} if actions else None


def _actions(content: Any) -> list[str]:
    """Return the names of the actions that LangChain's human-in-the-loop middleware asks about, if it does."""
    requests = content.get("action_requests") if isinstance(content, Mapping) else None
    if not isinstance(requests, list):
        return []
    return [str(request.get("name", "an action")) for request in requests if isinstance(request, Mapping)]


Nodes = Mapping[str, PregelNode]


@frozen
class Stepper:
    """Steps through graphs.

    Attributes:
        inner: The graphs that are stepped through, by the names of their nodes.
        config: The config of every task. Its `recursion_limit` holds for each graph, except that a graph's own limit
            replaces LangGraph's default.
        runtime: The runtime of every task.
    """

    inner: Mapping[str, Graph]
    config: RunnableConfig
    runtime: Runtime[Any]

    def begin(self, graph: Graph, name: str, label: str, graph_input: Any, config: RunnableConfig) -> Frame:
        """Make a frame at its first step. Conditional entry edges run here, and their errors are raised.

        config: That of the task around the frame, or the stepper's own.
        """
        frame, start = self._started(graph, name, label, graph_input, self._limit_of(graph, config), config)
        if start is not None:
            invoke(start.proc, start.input, start.config)
            self._has_started(frame, start)
            self._next_step(frame, config)
        return frame

    def _started(
        self, graph: Graph, name: str, label: str, graph_input: Any, stop: int, config: RunnableConfig
    ) -> tuple[Frame, PregelExecutableTask | None]:
        """Make a frame with its input, and the task that takes it in; None if there is no input."""
        channels, managed = open_channels(graph, {})
        frame = Frame(graph, name, label, channels, managed, {}, {}, -1, stop)
        self._apply(frame, [PregelTaskWrites((), "__input__", list(map_input(graph.input_channels, graph_input)), ())])
        frame.step = 0
        return frame, self._executable(frame, Branch((PULL, START), START), graph.nodes, config)

    def _has_started(self, frame: Frame, start: PregelExecutableTask) -> None:
        self._apply(frame, [PregelTaskWrites((PULL, START), START, list(start.writes), start.triggers)])

    def at_nodes(self, graph: Graph, name: str, values: State, nodes: Sequence[str]) -> Frame:
        """Make a frame with these values of channels and these next nodes, as if an edge had led to them."""
        to = {f"branch:to:{node}": None for node in nodes}
        channels, managed = open_channels(graph, values)
        frame = Frame(
            graph, name, "", channels, managed, dict.fromkeys(values, 1), {}, 0, self._limit_of(graph, self.config)
        )
        self._apply(frame, [PregelTaskWrites((), "__input__", list(to.items()), ())])
        for channel in to:
            frame.channels[channel].finish()  # a deferred node waits for nothing else here
        self._next_step(frame, self.config)
        return frame

    def refresh(self, frame: Frame, config: RunnableConfig, all_of_it: bool = False) -> None:
        """Update graphs that have not run yet with changes of the state around them since they were entered."""
        for branch in frame.branches:
            if branch.inner is not None and (all_of_it or branch.stale or branch.inner.is_stale()):
                task = self._task(frame, branch, config)
                if all_of_it or branch.stale:
                    self._take_in(branch.inner, task.input, task.config)
                self.refresh(branch.inner, task.config, all_of_it or branch.stale)

    def _take_in(self, inner: Frame, graph_input: Any, config: RunnableConfig) -> None:
        """Give a graph within the values of its beginning again, without taking its entry edges."""
        graph = inner.graph
        anew, start = self._started(graph, inner.name, inner.label, graph_input, inner.stop, config)
        assert start is not None, "a graph that was entered once can be entered again"
        # The first writer takes the input in. The others are the entry edges, which have run already.
        invoke(graph.nodes[START].writers[0], start.input, start.config)
        self._has_started(anew, start)
        state_channels = graph.builder.channels  # type: ignore[attr-defined]
        given_anew = set(state_channels) - inner.edited
        inner.channels = {n: anew.channels[n] if n in given_anew else channel for n, channel in inner.channels.items()}
        inner.changed |= given_anew

    def finish_step(self, frame: Frame, config: RunnableConfig) -> bool:
        """Apply the writes once all tasks of a step are done, and prepare the next step. Return False at the end."""
        for branch in frame.branches:
            if branch.inner is not None and branch.writes is None:
                self._advance_inner(frame, branch, config)
        if any(branch.writes is None for branch in frame.branches):
            return True
        frame.apply_in_place_changes()
        self._apply(frame, [self._written(frame, branch) for branch in frame.branches])
        self._next_step(frame, config)
        return bool(frame.branches)

    def command(self, root: Frame, within: Frame, command: Command[Any]) -> None:
        """Give a command for an outer graph, raised in `within`, to the task that leads there. Raises ValueError."""
        line = list(path_to(root, within))
        if not line and within is not root:
            return  # another task of that graph has left it already
        config = self.config
        tasks = []
        for outer, branch in line:
            tasks.append((branch, self._task(outer, branch, config)))
            config = tasks[-1][1].config
        # From the inside out: of graphs with the same name the nearest one takes the command.
        for branch, task in reversed(tasks):
            ns = task.config[CONF][CONFIG_KEY_CHECKPOINT_NS]
            if command.graph in (ns, recast_checkpoint_ns(ns), task.name):
                for writer in task.writers:
                    invoke(writer, command, task.config)
                branch.writes, branch.inner = list(task.writes), None
                return
        raise ValueError(f"a Command for the graph {command.graph!r}, and no graph around it has that name")

    def prepare(
        self, root: Frame, frame: Frame, branch: Branch, nodes: Nodes, interrupts: Interrupts
    ) -> PregelExecutableTask:
        """Prepare a task to be run. interrupts: The values that `interrupt` returns, in their order.

        nodes: Those of the graph, with the variant that is to be run.
        """
        config = self.config
        for outer, towards in path_to(root, frame):
            config = self._task(outer, towards, config).config
        task = self._executable(frame, branch, nodes, config)
        assert task is not None, "a task that was prepared once can be prepared again"
        if not interrupts:
            return task
        pad = replace(task.config[CONF][CONFIG_KEY_SCRATCHPAD], get_null_resume=interrupts.resume)
        return replace(task, config=patch_configurable(task.config, {CONFIG_KEY_SCRATCHPAD: pad}))

    def _advance_inner(self, frame: Frame, branch: Branch, config: RunnableConfig) -> None:
        inner = branch.inner
        assert inner is not None
        task = self._task(frame, branch, config)
        if self.finish_step(inner, task.config):
            return
        output = read_channels(inner.channels, inner.graph.output_channels)
        for writer in task.writers:
            output = invoke(writer, output, task.config)
        branch.writes, branch.inner = list(task.writes), None

    def _next_step(self, frame: Frame, config: RunnableConfig) -> None:
        frame.step += 1
        prepared = prepare_next_tasks(
            frame.checkpoint(),
            [],
            frame.graph.nodes,
            frame.channels,
            frame.managed,
            self._config_of(frame, config),
            frame.step,
            frame.stop,
            # Only the names of tasks: each is prepared again where it runs, perhaps in another process.
            for_execution=False,
            trigger_to_nodes=frame.graph.trigger_to_nodes,
            # LangGraph then checks only nodes that these channels trigger, not all.
            updated_channels=frame.updated,
        )
        frame.branches = [Branch(tuple(task.path[:2]), task.name) for task in prepared.values()]
        if frame.step > frame.stop:  # also where nothing is left to do, as LangGraph has it
            raise GraphRecursionError(f"Recursion limit of {frame.stop} reached without hitting a stop condition")
        for number, branch in enumerate(frame.branches):
            name = frame.node_name(branch.node)
            if (graph := self.inner.get(name)) is not None:
                if graph.checkpointer is True and branch.node in frame.seen:
                    raise StateError(
                        f"graph {name!r} was compiled with checkpointer=True, to remember its last visit, and is "
                        f"visited again, where it starts anew; keep such values in the state of the outer graph"
                    )
                task = self._task(frame, branch, config)
                # No node has '|' in its name, so two labels never clash.
                label = f"{frame.label}{branch.node}{f'|{number}' if len(frame.branches) > 1 else ''}."
                branch.inner = self.begin(graph, name, label, task.input, task.config)
        if any(branch.inner is not None and not branch.inner.branches for branch in frame.branches):
            self.finish_step(frame, config)  # a graph that had nothing to do

    def _apply(self, frame: Frame, tasks: Sequence[PregelTaskWrites]) -> None:
        before = dict(frame.versions)
        to = frame.graph.trigger_to_nodes
        frame.updated = apply_writes(frame.checkpoint(), frame.channels, tasks, increment, to)
        frame.changed |= {name for name, version in frame.versions.items() if before.get(name) != version}

    def _written(self, frame: Frame, branch: Branch) -> PregelTaskWrites:
        triggers = (PUSH,) if branch.path[0] == PUSH else tuple(sorted(frame.graph.nodes[branch.node].triggers))
        writes = [write for write in branch.writes or () if not write[0].startswith(IN_PLACE)]
        return PregelTaskWrites(branch.path, branch.node, writes, triggers)

    def _task(self, frame: Frame, branch: Branch, config: RunnableConfig) -> PregelExecutableTask:
        task = self._executable(frame, branch, frame.graph.nodes, config)
        assert task is not None, "a task that was prepared once can be prepared again"
        return task

    def _executable(
        self, frame: Frame, branch: Branch, nodes: Nodes, config: RunnableConfig
    ) -> PregelExecutableTask | None:
        return executable(frame, branch.path, nodes, self._config_of(frame, config), self.runtime.store)

    def _limit_of(self, graph: Graph, config: RunnableConfig) -> int:
        limit: int = merge_configs(graph.config, config).get("recursion_limit", DEFAULT_RECURSION_LIMIT)
        return limit

    def _config_of(self, frame: Frame, config: RunnableConfig) -> RunnableConfig:
        own = frame.graph.config
        return merge_configs(own, config) if own else config

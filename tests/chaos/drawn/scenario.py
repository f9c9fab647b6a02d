"""Draws sweeps: the shape of a workflow, what its nodes do, and the options under which it runs. Seeded and pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Literal

Kind = Literal["sync", "async", "threads"]
Choices = dict[str, int]  # varied node -> number of its variant
MOST_COMBINATIONS = 24
PATIENT_CELLS = (24, 96)  # of a sweep whose nodes take their time
QUICK_CELLS = (160, 640)  # of one whose nodes take none, which travel many in a message
SINGLE_SHARE = 0.1  # of sweeps that are one execution of `wtb start`
SIDE_QUEUE = "side"
FEATURES = ("durable", "fails", "fatal", "tool", "asks", "limit", "queue", "bulk")  # of nodes, named in logs


@dataclass(frozen=True)
class Node:
    """A node and what it does. Every node writes its value, a mark of its attempt, and (if `file`) a file.

    Attributes:
        variants: How many variants it has, the default included.
        fails: How many attempts fail before one succeeds.
        fatal: The variant that fails every attempt, in cases with an odd number.
        usd: What an attempt that succeeds costs; a power of two, so that sums are exact.
        bulk: Bytes that it writes beside its value.
        limit: How many runs of it there may be at a time.
    """

    name: str
    kind: Kind = "sync"
    variants: int = 1
    durable: bool = False
    fails: int = 0
    fatal: int | None = None
    tool: bool = False
    asks: bool = False
    file: bool = True
    usd: float = 0.0
    bulk: int = 0
    limit: int | None = None
    queue: str | None = None


class _Block:
    """A part of a graph: its fields are its nodes, in their order."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(vars(self).values())

    @property
    def entries(self) -> tuple[Node, ...]:
        return self.nodes[:1]

    @property
    def exits(self) -> tuple[Node, ...]:
        return self.nodes[-1:]


@dataclass(frozen=True)
class Step(_Block):
    """One node."""

    node: Node


@dataclass(frozen=True)
class Fan(_Block):
    """Nodes that run in parallel, and one that joins them."""

    arms: tuple[Node, ...]
    join: Node

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (*self.arms, self.join)

    @property
    def entries(self) -> tuple[Node, ...]:
        return self.arms


@dataclass(frozen=True)
class Branch(_Block):
    """A node whose value decides which of two others follows."""

    chooser: Node
    even: Node
    odd: Node

    @property
    def exits(self) -> tuple[Node, ...]:
        return (self.even, self.odd)


@dataclass(frozen=True)
class Loop(_Block):
    """A node that runs one to three times, as its first value says, and one that follows."""

    node: Node
    after: Node


Block = Step | Fan | Branch | Loop


@dataclass(frozen=True)
class Scenario:
    """A sweep, or a single execution, as it is drawn.

    Attributes:
        combinations: What the cells vary: numbers of variants by node. A single execution has one.
        reversible: Whether the workflow's tool has a reverse, without which each run has a process of its own.
        paced: Whether nodes take as long as the storm says, or no time at all.
    """

    name: str
    blocks: tuple[Block, ...]
    langgraph: bool
    cases: int
    repeats: int
    combinations: tuple[Choices, ...]
    single: bool
    share: bool
    evaluated: bool
    durability: str
    pool: Literal["process", "thread"]
    checkpoints: str
    per_process: int
    budget: bool
    reversible: bool
    paced: bool
    priority: int
    concurrency: int

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for block in self.blocks for node in block.nodes)

    @property
    def cells(self) -> int:
        return self.cases * self.repeats * len(self.combinations)

    @property
    def has_tool(self) -> bool:
        return any(node.tool for node in self.nodes)

    @property
    def asks(self) -> list[str]:
        """The nodes that ask a person."""
        return [node.name for node in self.nodes if node.asks]

    def __str__(self) -> str:
        """In one line, for the log of a storm."""
        shape = "-".join(f"{type(block).__name__.lower()}{len(block.nodes)}" for block in self.blocks)
        options = {
            "langgraph": self.langgraph,
            "scored": self.evaluated,
            "unshared": not self.share,
            "budget": self.budget,
            "quick": not self.paced,
            self.checkpoints: self.has_tool,
        }
        size = "single" if self.single else f"{self.cells} cells"
        words = [
            self.name,
            size,
            shape,
            self.durability,
            self.pool,
            *(word for word, is_so in options.items() if is_so),
        ]
        features = {name for node in self.nodes for name in FEATURES if getattr(node, name) not in (None, 0)}
        return f"{' '.join(words)}: {' '.join(sorted(features | {node.kind for node in self.nodes}))}"


def draw_scenarios(seed: int, cells: int, *, on_workers: bool = True) -> list[Scenario]:
    """Sweeps of so many cells together, at least. The same seed draws the same ones.

    Args:
        on_workers: Whether workers run them, or `wtb run`.
    """
    drawn, sum_of_cells = list[Scenario](), 0
    while sum_of_cells < cells:
        dice = random.Random(f"{seed}/{len(drawn)}")
        cells_left = max(8, cells - sum_of_cells)
        drawn.append(_draw(dice, f"storm{len(drawn)}", on_workers=on_workers, first=not drawn, max_cells=cells_left))
        sum_of_cells += drawn[-1].cells
    return drawn


def _draw(dice: random.Random, name: str, *, on_workers: bool, first: bool, max_cells: int) -> Scenario:
    """Draw one of at most so many cells, about.

    The first of a storm is short, patient, without evaluators and commits each step. A state from before the last node
    can be accepted only where there are no evaluators, and most storms of a few sweeps would have none of that kind.
    """
    chance = dice.random
    langgraph = not first and chance() < 0.25
    single = not first and chance() < SINGLE_SHARE and on_workers
    blocks = tuple(_blocks(dice, 1 if first else dice.randint(2, 4), langgraph=langgraph, queues=on_workers))
    paced = first or chance() < 0.6
    combinations = _combinations(dice, blocks, 1 if single else MOST_COMBINATIONS)
    repeats = 1 if single else dice.choice((1, 1, 2, 3))
    cells = min(max_cells, dice.randint(*(PATIENT_CELLS if paced else QUICK_CELLS)))
    return Scenario(
        name=name,
        blocks=blocks,
        langgraph=langgraph,
        cases=1 if single else max(1, round(cells / (repeats * len(combinations)))),
        repeats=repeats,
        combinations=combinations,
        single=single,
        share=single or chance() < 0.85,
        evaluated=not (first or single) and chance() < 0.5,
        durability="sync" if first else dice.choice(("sync", "20ms", "20ms", "200ms", "1s")),
        pool="thread" if not first and chance() < 0.15 and not on_workers else "process",  # workers run no code
        checkpoints=dice.choice(("coarse", "fine")),
        per_process=dice.choice((64, 4, 1)),
        budget=not single and chance() < 0.3,
        reversible=chance() < 0.5,
        paced=paced,
        priority=dice.choice((0, 0, 1)),
        concurrency=dice.choice((1, 2, 8)),
    )


def _blocks(dice: random.Random, count: int, *, langgraph: bool, queues: bool) -> Iterator[Block]:
    """So many blocks, and a node that ends them."""
    names = (f"n{number:02}" for number in range(1, 100))
    draw = partial(_node, dice, langgraph=langgraph, queues=queues)
    for _ in range(count):
        match dice.choice(("step", "step", "fan", "branch", "loop")):
            case "step":
                yield Step(draw(next(names), alone=True))
            case "fan":
                yield Fan(tuple(draw(next(names)) for _ in range(dice.randint(2, 3))), draw(next(names)))
            case "branch":
                yield Branch(draw(next(names)), draw(next(names)), draw(next(names)))
            case _:
                yield Loop(draw(next(names)), draw(next(names)))
    last = draw(next(names), alone=True)
    yield Step(replace(last, fatal=last.variants - 1, fails=0) if dice.random() < 0.15 else last)


def _node(dice: random.Random, name: str, *, langgraph: bool, queues: bool, alone: bool = False) -> Node:
    """Draw a node. alone: no other node runs in its step, so that it may ask and move to another queue."""
    chance = dice.random
    node = Node(
        name,
        kind=dice.choice(("sync", "sync", "async", "threads")),
        variants=dice.choice((1, 1, 2, 3, 4)),
        fails=dice.choice((0, 0, 0, 0, 1, 2)),
        usd=dice.choice((0.0, 0.25, 0.5)),
        bulk=dice.choice((0, 0, 0, 20_000)),
        file=chance() < 0.7,
    )
    if langgraph:  # whose nodes have no such options, and ask by `interrupt`
        return replace(node, kind="async" if node.kind == "async" else "sync")
    return replace(
        node,
        durable=chance() < 0.1,
        tool=chance() < 0.15,
        limit=3 if chance() < 0.1 else None,
        queue=SIDE_QUEUE if chance() < 0.2 and queues and alone else None,
        asks=chance() < 0.15 and alone,
    )


def _combinations(dice: random.Random, blocks: tuple[Block, ...], count: int) -> tuple[Choices, ...]:
    """Some of all combinations of variants, the baseline among them."""
    varied = {node.name: range(node.variants) for block in blocks for node in block.nodes if node.variants > 1}
    some = [dict(zip(varied, numbers, strict=True)) for numbers in _mixed(dice, [*varied.values()], 4 * count)]
    baseline = dict.fromkeys(varied, 0)
    varied_choices = [choices for choices in some if choices != baseline]
    return (baseline, *varied_choices[: count - 1])


def _mixed(dice: random.Random, levels: list[range], count: int) -> list[tuple[int, ...]]:
    """All combinations in a mixed order, or so many of them where there are more."""
    total = 1
    for level in levels:
        total *= len(level)
    if total <= count:
        every = list(product(*levels))
        dice.shuffle(every)
        return every
    return list(dict.fromkeys(tuple(dice.choice(level) for level in levels) for _ in range(count)))

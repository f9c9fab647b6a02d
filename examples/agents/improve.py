"""An agent that improves the retrieval example within a budget, one move at a time, and claims only proven gains.

    python -m examples.agents.improve [--cells 500] [--model]

A move tries all variants of one node, with what was adopted so far as the baseline. What is clearly best is adopted.
With `--model` a small language model of this machine chooses the next move among those that are left, under a grammar:
it can choose badly, but nothing that is not a move.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import wtb

MOVES: Mapping[str, Sequence[str]] = {
    "chunk": ("whole", "sentences", "windows"),
    "query": ("whole", "lead"),
    "retrieve": ("tfidf", "bm25", "dirichlet", "lsa"),
}
METRIC = "ndcg"

Chooser = Callable[[Sequence[str]], str]


@dataclass
class Search:
    """The state of a search: adopted variants, claims with their evidence, and the budget that is left."""

    cells: int  # that it may still run
    adopted: dict[str, str] = field(default_factory=lambda: {node: variants[0] for node, variants in MOVES.items()})
    claims: list[str] = field(default_factory=list)
    tried_nodes: list[str] = field(default_factory=list)


def improve(bench: wtb.Bench, search: Search, choose: Chooser) -> Search:
    """Make moves until none is left or the budget is too small for the next."""
    while remaining := [node for node in MOVES if node not in search.tried_nodes]:
        node = choose(remaining)
        if node not in remaining:
            raise ValueError(f"{node!r} is no move; expected one of: {', '.join(remaining)}")
        sweep = sweep_of(node, search.adopted)
        cells = bench.plan(sweep)["cells"]
        if cells > search.cells:
            search.claims.append(f"{node}: not tried; {cells} cells, and {search.cells} are left")
            break
        search.cells -= cells
        search.tried_nodes.append(node)
        best = bench.run(sweep).matrix()["best"][METRIC]
        search.claims.append(adopt(search.adopted, node, best))
    return search


def sweep_of(node: str, adopted: Mapping[str, str]) -> wtb.Sweep:
    """Return the sweep that tries all variants of a node and keeps those of the other nodes."""
    return wtb.Sweep(
        name=f"improve-{node}",
        workflow="examples.retrieval.workflow:wf",
        cases="examples.retrieval.cases:queries",
        vary={name: list(MOVES[name]) if name == node else [variant] for name, variant in adopted.items()},
        baseline=dict(adopted),
        evaluate=["examples.retrieval.scores:ndcg"],
    )


def adopt(adopted: dict[str, str], node: str, best: Mapping[str, Any]) -> str:
    """Adopt the best variant if it is a clear winner, and return the claim in words."""
    winner = best["combination"][node] if best["clear"] else None
    if winner is None:
        return f"{node}: no clear best; {adopted[node]} stays"
    if winner == adopted[node]:
        return f"{node}: {winner} is clearly best, and stays"
    adopted[node] = winner
    return f"{node}: {winner} is clearly best by {METRIC}"


def ask_model(moves: Sequence[str]) -> str:
    """Let the small model choose a move; the grammar allows no other reply."""
    from examples.model.small import SmallModel

    small = SmallModel()  # serves as long as it is held
    answer = small.client.chat.completions.create(
        model="smollm2-135m",
        messages=[{"role": "user", "content": f"Which part of a search engine to improve next: {', '.join(moves)}?"}],
        extra_body={"grammar": "root ::= " + " | ".join(f'"{move}"' for move in moves)},
        max_tokens=8,
        temperature=0,
    )
    return str(answer.choices[0].message.content)


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, and print the claims."""
    parser = argparse.ArgumentParser(prog="python -m examples.agents.improve", description=__doc__)
    parser.add_argument("--cells", type=int, default=500, help="that it may run (default: %(default)s)")
    parser.add_argument("--model", action="store_true", help="a small model chooses the moves")
    options = parser.parse_args(arguments)
    with wtb.open() as bench:
        search = improve(bench, Search(options.cells), ask_model if options.model else lambda moves: moves[-1])
    print(*search.claims, f"adopted: {search.adopted}; {search.cells} cells left", sep="\n")


if __name__ == "__main__":
    main()

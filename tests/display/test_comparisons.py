"""Comparisons as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wtb
from wtb.display.text.comparisons import as_markdown, comparison


def by_a(case: Any, result: Any) -> float:
    return float(result.state["a"] == "x")


def by_b(case: Any, result: Any) -> float:
    return float(result.state["b"] == "x")


def test_cells_that_differ_by_several_metrics_have_a_line_for_each(tmp_path: Path) -> None:
    """Combinations share a column here, because the node is called as a column of figures is."""

    def workflow(letter: str) -> wtb.Workflow:
        wf = wtb.Workflow("named")
        node = wf.node(lambda state: {"a": letter, "b": letter}, name="before")
        node.variant("same", lambda state: {"a": letter, "b": letter})
        wf.entry(node)
        return wf

    cases: list[Any] = [{"id": f"c{n}", "input": {}} for n in range(13)]
    with wtb.open(f"sqlite:///{tmp_path / 'wtb.db'}") as bench:
        first, second = (
            bench.run(
                wtb.Sweep(
                    workflow=workflow(letter), cases=cases, vary={"before": "all"}, evaluate=[by_a, by_b], name=letter,
                    run={"pool": "thread"},
                )
            )
            for letter in ("x", "y")
        )  # fmt: skip
        document = bench.compare(first.id, second.id)
    lines = [line for line in comparison(document, 100, cells=13).splitlines() if " worse " in line and "by_" in line]
    assert len(lines) == 2 * 13
    assert as_markdown(document, cells=13).count("| c1 ") == 2

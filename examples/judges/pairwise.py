"""Rank the six rows by pairs of answers: which one is nearer to the query text?

    python -m examples.judges.pairwise [--output FOLDER] [options of `wtb run`]

Nobody is asked and no model: `embedded` prefers the answer whose embedding is nearer to that of the text that asked,
`mean-of-people` the one that people found more similar to it, on average. Neither looks at which is shown first.
"""

import argparse
import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, permutations
from pathlib import Path
from typing import Any

from examples.judges.demo import SWEEP_FILE, wtb

NODES = ("retrieve", "grade")  # by which rows differ
RATERS = {"embedded": "embedded", "mean-of-people": "people"}  # by the metric that each goes by


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sweep without the small model, and rank its rows by comparisons; files go to the folder."""
    parser = argparse.ArgumentParser(prog="python -m examples.judges.pairwise", allow_abbrev=False)
    parser.add_argument("--output", type=Path, default=Path("out/judges"), help="folder for the files")
    options, for_run = parser.parse_known_args(arguments)
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    sweep_file, pairs = folder / "pairwise.yaml", folder / "pairs.csv"
    sweep_file.write_text(without_model(SWEEP_FILE.read_text("utf-8")), "utf-8")
    sweep = json.loads(wtb("run", str(sweep_file), "--quiet", "--format", "json", *for_run))["sweep"]["id"]
    cells = json.loads(wtb("show", sweep, "--cells", "--format", "json"))["cells"]
    with pairs.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.DictWriter(stream, ("case", "first", "second", "preferred", "rater"))
        rows.writeheader()
        rows.writerows(comparisons(cells))
    for rater in RATERS:
        print(wtb("judge", "rank", sweep, "--comparisons", str(pairs), "--rater", rater))


def without_model(text: str) -> str:
    """Return the sweep file with another name and without the model judge."""
    text = text.replace("sweep: judged", "sweep: compared")
    return re.sub(r"  - judge:\n.*(?=  - embedding_similarity)", "", text, flags=re.DOTALL)


def comparisons(cells: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, str]]:
    """Yield the comparison of each two rows in each case, in both orders, for each rater."""
    for case, of_case in groupby(sorted(cells, key=lambda cell: str(cell["case"])), lambda cell: cell["case"]):
        for first, second in permutations(of_case, 2):
            for rater, metric in RATERS.items():
                first_score, second_score = first["scores"][metric], second["scores"][metric]
                preferred = (
                    "tie" if first_score == second_score else "first" if first_score > second_score else "second"
                )
                names = {"first": _row(first), "second": _row(second)}
                yield {"case": case, **names, "preferred": preferred, "rater": rater}


def _row(cell: Mapping[str, Any]) -> str:
    return ", ".join(f"{node}={cell['combination'][node]}" for node in NODES)


if __name__ == "__main__":
    main()

"""Judge a sweep by a small local model, and compare the judge with human ratings, by the commands of a user.

    python -m examples.judges.demo [--output FOLDER] [--labelled 20] [--port 8793] [options of `wtb run`]

The human side is the mean over people that Lee's file has of two documents; what single people said is not in it. So
the labels in `means.csv` are such means, of cases drawn at random. The three raters in `simulated.csv` are nobody:
each label of theirs is such a mean with normal noise of 0.2, at the nearest level of the judge's rubric.
"""

import argparse
import csv
import json
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.judges.compared import similarity
from examples.judges.picture import draw
from examples.model.server import serve

SWEEP_FILE = Path(__file__).with_name("sweep.yaml")
PORT = 8793  # which the sweep file names
JUDGES = ("small_model", "embedded")
LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
NOISE = 0.2  # of a simulated rater; chosen, not measured
RATERS = ("simulated-1", "simulated-2", "simulated-3")

Cell = Mapping[str, Any]
Label = dict[str, str | float]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sweep, label some of its cases, and compare both judges with the labels; files go to the folder."""
    parser = argparse.ArgumentParser(prog="python -m examples.judges.demo", allow_abbrev=False)
    parser.add_argument("--output", type=Path, default=Path("out/judges"), help="folder for the files")
    parser.add_argument("--labelled", type=int, default=20, help="cases that have labels (default: %(default)s)")
    parser.add_argument("--port", type=int, default=PORT, help="that the model has (default: %(default)s)")
    options, for_run = parser.parse_known_args(arguments)
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)

    sweep_file = folder / "sweep.yaml"
    sweep_file.write_text(SWEEP_FILE.read_text("utf-8").replace(f":{PORT}/", f":{options.port}/"), "utf-8")
    serving = serve(port=options.port, context=2048, most_tokens=200)  # serves as long as it is held
    matrix = json.loads(wtb("run", str(sweep_file), "--quiet", "--format", "json", *for_run))
    del serving
    sweep = matrix["sweep"]["id"]
    print(wtb("matrix", sweep))

    cells = json.loads(wtb("show", sweep, "--cells", "--format", "json"))["cells"]
    write(folder / "means.csv", means(cells, options.labelled))
    write(folder / "simulated.csv", simulated(cells, options.labelled))
    checked = {}
    for judge in JUDGES:
        command = ("judge", "check", sweep, "--labels", str(folder / "means.csv"), "--metric", judge)
        print(wtb(*command, "--scale", "interval"))
        checked[judge] = json.loads(wtb(*command, "--scale", "interval", "--format", "json"))
    print("Raters who are simulated, and no people:")
    print(wtb("judge", "check", sweep, "--labels", str(folder / "simulated.csv"), "--metric", JUDGES[1]))
    truth = [row["metrics"]["people"]["mean"] for row in matrix["rows"]]
    (folder / "judged.svg").write_text(draw(checked, matrix["rows"], truth), "utf-8")
    print(f"Files: {', '.join(str(folder / name) for name in ('means.csv', 'simulated.csv', 'judged.svg'))}")


def drawn(cells: Iterable[Cell], count: int) -> list[Cell]:
    """Return the cells of randomly drawn cases, always the same ones."""
    cells = list(cells)
    cases = sorted({cell["case"] for cell in cells})
    sampled = set(random.Random(0).sample(cases, min(count, len(cases))))
    return [cell for cell in cells if cell["case"] in sampled]


def means(cells: Iterable[Cell], count: int) -> list[Label]:
    """Return labels with the mean human rating of each answer, for drawn cases."""
    return [_label(cell, "mean-of-people", _mean(cell)) for cell in drawn(cells, count)]


def simulated(cells: Iterable[Cell], count: int) -> list[Label]:
    """Return labels of simulated raters for drawn cases."""
    labels = []
    for rater in RATERS:
        for cell in drawn(cells, count):
            noise = random.Random(f"{rater} {cell['case']} {cell['state']['ranking'][0]}").gauss(0, NOISE)
            opinion = _mean(cell) + noise
            labels.append(_label(cell, rater, min(LEVELS, key=lambda level: abs(level - opinion))))
    return labels


def _mean(cell: Cell) -> float:
    return similarity(cell["case"], cell["state"]["ranking"][0])


def _label(cell: Cell, rater: str, label: float) -> Label:
    return {"case": cell["case"], **cell["combination"], "rater": rater, "label": label}


def write(file: Path, labels: Sequence[Label]) -> None:
    """Write labels as `wtb judge check` and `wtb label import` read them."""
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, list(labels[0]))
        writer.writeheader()
        writer.writerows(labels)


def wtb(*arguments: str) -> str:
    """Run one `wtb` command with this Python and return its output; exit if it fails."""
    done = subprocess.run([sys.executable, "-m", "wtb", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


if __name__ == "__main__":
    main()

"""Run the sweep, then its matrix and its report, by the commands of a user: `make demo`.

    python -m examples.retrieval.demo [--output FOLDER] [options of `wtb run`]

Exits as `wtb run` does. To use another database, set WTB_DATABASE_URL: every command needs to find it.
"""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SWEEP_FILE = Path(__file__).with_name("sweep.yaml")
FORMATS = ("csv", "md")
WITH_RESULTS = (0, 1)
"""Exit codes of `wtb run` that leave a matrix behind: all well, and some cells failed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sweep and write `matrix.json`, `.csv` and `.md`, and `report.html`; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.retrieval.demo", allow_abbrev=False)
    parser.add_argument("--output", type=Path, default=Path("out/demo"), help="folder for the files")
    options, for_run = parser.parse_known_args(arguments)
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    first = folder / "matrix.json"
    # A matrix left by an earlier run must not be taken for that of this one.
    first.unlink(missing_ok=True)

    code = _wtb("run", str(SWEEP_FILE), "--format", "json", "--output", str(first), *for_run)
    if code not in WITH_RESULTS or not first.exists():
        return code or 1
    sweep = json.loads(first.read_text(encoding="utf-8"))["sweep"]["id"]
    files = [folder / f"matrix.{name}" for name in FORMATS]
    followed = [_wtb("matrix", sweep)]
    for name, file in zip(FORMATS, files, strict=True):
        followed.append(_wtb("matrix", sweep, "--format", name, "--output", str(file)))
    report = folder / "report.html"
    followed.append(_wtb("report", sweep, "--output", str(report)))
    print("\nThe report to look at, and the matrix to send or to load:")
    for file in (report, *reversed(files), first):
        print(f"  {file}")
    return code or max(followed)


def _wtb(*arguments: str) -> int:
    """Run one `wtb` command with this Python on our own stdout and stderr; return the exit code."""
    sys.stdout.flush()
    return subprocess.run([sys.executable, "-m", "wtb", *arguments], check=False).returncode


if __name__ == "__main__":
    # Ctrl-C reaches the command as well, which finishes in its own time and says how to go on; it
    # would be killed at once if it also ended this process. A function, as SIG_IGN is inherited.
    signal.signal(signal.SIGINT, lambda *_: None)
    sys.exit(main())

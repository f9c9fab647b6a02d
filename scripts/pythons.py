"""Run the unit tests and one sweep with each installed Python: `make pythons`.

They are looked for on the PATH, and among those that pyenv keeps. Each gets an environment of its own in out/pythons.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "out" / "pythons"
UNIT = [f"tests/{name}" for name in ("core", "config", "planning", "authoring", "display")]
INSTALLED = ["--editable", ".[examples,langgraph,pandas,stack]", "--group", "test"]
ASK_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def declared() -> list[str]:
    """Return the versions that the classifiers name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", name) for name in project["classifiers"])
    return [name[1] for name in names if name]


def interpreters() -> dict[str, Path]:
    """Return the first interpreter of each version that starts; a shim of pyenv can exist and not start."""
    pyenv_folders = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin")
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    by_version: dict[str, Path] = {}
    for folder in [*folders, *sorted(pyenv_folders, reverse=True)]:
        for file in sorted(folder.glob("python3.*")):
            if re.fullmatch(r"python3\.\d+", file.name):
                process = subprocess.run([file, "-c", ASK_VERSION], capture_output=True, text=True, check=False)
                if process.returncode == 0:
                    by_version.setdefault(process.stdout.strip(), file)
    return by_version


def run(what: str, command: list[str | Path], cwd: Path = ROOT) -> bool:
    """Run a command; its output is shown only if it fails."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        print(f"{done.stdout[-8000:]}\n{what}: exit code {done.returncode}", flush=True)
    else:
        print(f"{what}: {done.stdout.strip().splitlines()[-1] if done.stdout.strip() else 'done'}", flush=True)
    return done.returncode == 0


def passes(version: str, interpreter: Path) -> bool:
    """Return whether the unit tests and a sweep succeed with a Python."""
    binaries = ENVIRONMENTS / version / "bin"
    python = binaries / "python"
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", ENVIRONMENTS / version], check=True)
    upgrade = [python, "-m", "pip", "install", "-qq", "--upgrade", "pip>=25.1"]
    install = [python, "-m", "pip", "install", "-qq", *INSTALLED]
    if not (run(f"{version} pip", upgrade) and run(f"{version} packages", install)):
        return False
    tests = run(f"{version} unit tests", [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *UNIT])
    with tempfile.TemporaryDirectory() as folder:
        demo = Path(folder)
        created = run(f"{version} wtb init", [binaries / "wtb", "init", "."], demo)
        swept = created and run(f"{version} wtb run", [binaries / "wtb", "run", "sweep.yaml", "--quiet"], demo)
    return tests and swept


def main() -> int:
    interpreter_of, versions = interpreters(), declared()
    installed = [f"{version} ({interpreter_of[version]})" for version in versions if version in interpreter_of]
    print(f"found: {', '.join(installed) or 'none'}")
    missing = [version for version in versions if version not in interpreter_of]
    print(f"not found: {', '.join(missing) or 'none of those that pyproject.toml names'}", flush=True)
    tried = [version for version in versions if version in interpreter_of]
    failed = [version for version in tried if not passes(version, interpreter_of[version])]
    print(f"passed: {', '.join(version for version in tried if version not in failed) or 'none'}")
    print(f"failed: {', '.join(failed) or 'none'}; not run: {', '.join(missing) or 'none'}")
    return 1 if failed or missing == versions else 0


if __name__ == "__main__":
    sys.exit(main())

"""W as promptfoo does it: its provider is a function that waits."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from benchmarks.workloads.waiting import CASES, WAIT_S, WIDTH

VERSION = "0.121.20"  # the last one for Node 20
PROGRAM = ["npx", "--yes", f"promptfoo@{VERSION}"]
PROVIDER = """
module.exports = class {
  id() { return "wait"; }
  async callApi(prompt) {
    await new Promise((resolve) => setTimeout(resolve, %d));
    return { output: prompt };
  }
};
"""
QUIET = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
    "PUPPETEER_SKIP_DOWNLOAD": "1",
}


def install(folder: Path) -> None:
    """Fetch it by npx, unless it is there. Raise CalledProcessError."""
    subprocess.run([*PROGRAM, "--version"], cwd=folder, env=_environment(folder), check=True, capture_output=True)


def command(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Write its configuration to a folder. Return the command and its environment."""
    config = {
        "prompts": ["{{x}}"],
        "providers": ["file://provider.cjs"],
        "tests": [{"vars": {"x": str(number)}} for number in range(CASES)],
    }
    (folder / "provider.cjs").write_text(PROVIDER % (WAIT_S * 1000))
    (folder / "promptfooconfig.json").write_text(json.dumps(config))
    arguments = ["eval", "-c", "promptfooconfig.json", "-o", "found.json", "-j", str(WIDTH)]
    return [*PROGRAM, *arguments, "--no-cache", "--no-table", "--no-progress-bar"], _environment(folder)


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, **QUIET, "PROMPTFOO_CONFIG_DIR": str(folder / "promptfoo")}


def check(folder: Path) -> None:
    """Raise RuntimeError unless every case is there."""
    results = json.loads((folder / "found.json").read_text())["results"]["results"]
    done = sorted(int(output["response"]["output"]) for output in results)
    if done != list(range(CASES)):
        raise RuntimeError(f"promptfoo has {len(done)} results")

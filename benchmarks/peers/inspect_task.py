"""W as Inspect AI does it: `python -m benchmarks.peers.inspect_task FOLDER`, which it logs to."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.solver import Generate, TaskState, solver

from benchmarks.workloads.waiting import CASES, WAIT_S, WIDTH


@solver
def wait() -> Any:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await asyncio.sleep(WAIT_S)
        state.output.completion = state.input_text
        return state

    return solve


def main(folder: str) -> None:
    samples = MemoryDataset([Sample(input=str(number), id=str(number)) for number in range(CASES)])
    (log,) = eval(Task(dataset=samples, solver=wait()), max_samples=WIDTH, display="none", log_dir=folder)
    done = [sample.output.completion for sample in log.samples or ()]
    if log.status != "success" or sorted(map(int, done)) != list(range(CASES)):
        raise RuntimeError(f"Inspect AI ended as {log.status} with {len(done)} samples")


if __name__ == "__main__":
    main(sys.argv[1])

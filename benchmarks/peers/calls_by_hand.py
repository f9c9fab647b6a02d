"""L by hand: `python -m benchmarks.peers.calls_by_hand CLIENT PROCESSES` prints its figures as JSON.

Each process makes the calls of its share of the cases, with its share of the places.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from statistics import median

from benchmarks.workloads.model_calls import CALLS, CASES, WIDTH, call_by_hand


def main(client: str, processes: int) -> None:
    """Print seconds of the clock and of the processors, without start-up, and the median seconds of a call."""
    share = [sys.executable, "-m", "benchmarks.peers.calls_by_hand", client]
    children = [
        subprocess.Popen(
            [*share, str(processes), str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(processes)
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()  # it is ready
    start = time.perf_counter()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    shares = [json.loads(child.communicate()[0]) for child in children]
    seconds = [seconds_of_call for share in shares for seconds_of_call in share["seconds"]]
    if len(seconds) != CALLS:
        raise RuntimeError(f"{len(seconds)} calls of {CALLS}")
    whole_s = time.perf_counter() - start
    print(json.dumps({"run_s": whole_s, "cpu_s": sum(share["cpu_s"] for share in shares), "call_s": median(seconds)}))


def _share(client: str, processes: int, number: int) -> None:
    """Make the calls of one process once a line arrives, and print their seconds."""
    asyncio.run(call_by_hand(client, range(-1, -1), 1))  # whatever is imported by then
    print("ready", flush=True)
    sys.stdin.readline()
    cpu = time.process_time()
    seconds = asyncio.run(call_by_hand(client, range(number, CASES, processes), WIDTH // processes))
    print(json.dumps({"cpu_s": time.process_time() - cpu, "seconds": seconds}))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(sys.argv[1], int(sys.argv[2]))
    else:
        _share(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

"""Execute, stream, resume and cancel a workflow over HTTP, with nothing but httpx.

Run it beside a server that executes what is started:

    wtb serve --run
    python -m examples.http.client http://127.0.0.1:8765 TOKEN
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import httpx


def orders(server: httpx.Client) -> None:
    """Execute, stream, answer and cancel, and print the outcome of each."""
    # Execute: the answer has the outcome, because the execution ends in time.
    outcome = start(server, {"items": 4})
    print("executed:", outcome["status"], outcome["state"])

    # A large order waits for a person. The answer over HTTP resumes it.
    waiting = start(server, {"items": 60})
    (question,) = waiting["questions"]
    print("waiting:", question["question"])
    answer(server, question["id"], "no")
    print("resumed:", result(server, waiting["execution"])["state"])

    # Stream: every event under its own kind, and the result at the end.
    events = list(stream(server, {"items": 2}))
    print("streamed:", *(kind for kind, _ in events))
    print("result:", events[-1][1]["result"])

    # Pause at a breakpoint, change the state, and resume.
    paused = start(server, {"items": 3}, breakpoints=["pack"])
    print("paused:", paused["status"], paused["state"])
    post(server, f"/executions/{paused['execution']}/resume", {"set": {"approved": False}})
    print("resumed:", result(server, paused["execution"])["state"])

    # Cancel: leaving the stream cancels the execution.
    for kind, document in stream(server, {"items": 30}, cancel_on_disconnect=True):
        if kind == "node_run.started" and document["data"]["node"] == "pack":
            break
    print("cancelled:", result(server, document["execution"])["status"])


def start(server: httpx.Client, input: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Execute an order, and return its outcome when it has ended or waits."""
    return post(server, "/executions", {"workflow": "orders", "input": input, **options}, wait=30)


def stream(server: httpx.Client, input: dict[str, Any], **params: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Execute an order, and yield the kind and the document of each event, the result last."""
    body, headers = {"workflow": "orders", "input": input}, {"Accept": "text/event-stream"}
    with server.stream("POST", "/executions", json=body, headers=headers, params=params) as response:
        response.raise_for_status()
        kind = ""
        for line in response.iter_lines():
            name, _, content = line.partition(": ")
            if name == "event":
                kind = content
            elif name == "data":
                yield kind, json.loads(content)


def answer(server: httpx.Client, question: str, choice: str) -> None:
    """Answer a question of an execution, which continues then."""
    post(server, f"/approvals/{question}/answer", {"action": choice})


def result(server: httpx.Client, execution: str) -> dict[str, Any]:
    """Return the outcome of an execution when it has ended or waits."""
    response = server.get(f"/executions/{execution}/result", params={"wait": 30})
    return dict(response.raise_for_status().json())


def post(server: httpx.Client, path: str, body: dict[str, Any], **params: Any) -> dict[str, Any]:
    """Send a request that changes something, and return its document."""
    response = server.post(path, json=body, params=params)
    return dict(response.raise_for_status().json())


if __name__ == "__main__":
    url, token = sys.argv[1:]
    with httpx.Client(base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        orders(client)

"""The `json_schema` evaluator: it uses the schema in the sweep file, and fetches no other."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.cli.run.test_bad_input import refused, sweep

if TYPE_CHECKING:
    from tests.support.project import Project


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A server that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


def judged(schema: str) -> str:
    return sweep(evaluate=f"\n  - flow:total\n  - json_schema: {{field: x, schema: {schema}}}")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_reference_to_a_server_is_refused_and_never_followed(
    project: Project, server: socket.socket, scheme: str
) -> None:
    url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/schema.json"
    project.write({"sweep.yaml": judged(f"{{properties: {{a: {{$ref: '{url}'}}}}}}")})
    done = project.inside("run", "sweep.yaml", "--limit", "1")
    with pytest.raises(BlockingIOError):
        server.accept()
    refused(done, project, ["sweep.yaml:6: evaluator 'json_schema'", "a $ref to 'http", "WTB fetches nothing"])


def test_a_reference_to_a_file_is_refused_also_below_an_id(project: Project) -> None:
    project.write({"schema.json": '{"type": "integer"}'})
    for schema, message in (
        (f"{{$ref: 'file://{project.folder}/schema.json'}}", "a path within the project"),
        (f"{{$id: 'file://{project.folder}/', $ref: schema.json}}", "a path within the project"),
        ("{$id: 'urn:example:a', $ref: schema.json}", "a $ref to "),
        ("{$ref: schema.json}", "a $ref to "),
    ):
        project.write({"sweep.yaml": judged(schema)})
        refused(project.inside("run", "sweep.yaml", "--limit", "1"), project, ["sweep.yaml:6: ", message])


def test_a_schema_that_is_none_is_refused(project: Project) -> None:
    for schema, message in (
        ("{type: strin}", "'schema.type' is not a JSON schema of draft 2020-12: 'strin'"),
        ("{pattern: '('}", "'schema.pattern' is not a JSON schema"),
        ("3", "'schema' is 3; expected a mapping"),
    ):
        project.write({"sweep.yaml": judged(schema)})
        refused(project.inside("run", "sweep.yaml", "--limit", "1"), project, ["sweep.yaml:6: evaluator", message])


def test_a_schema_that_refers_to_itself_judges(project: Project) -> None:
    schema = "{$ref: '#/$defs/small', $defs: {small: {type: integer, maximum: 2}}}"
    project.write({"sweep.yaml": judged(schema)})
    project.inside("run", "sweep.yaml", "--limit", "1", "--quiet", check=0)
    cells = project.json("show", "sweep", "--cells")["cells"]
    assert {cell["scores"]["json_schema"] for cell in cells} == {0.0, 1.0}
    assert all(cell["scores"]["json_schema"] == (cell["state"]["x"] <= 2) for cell in cells)

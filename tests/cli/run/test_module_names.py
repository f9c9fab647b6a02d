"""Files of a project that have the names of other modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.project import Outcome, Project
from tests.support.prose import sentence

pytestmark = pytest.mark.nodes("started")  # those of tests have imported most libraries before

FLOW = """
from wtb import END, Workflow

{imports}
wf = Workflow("flow")


@wf.node
def answer(state):
    import statistics

    return {{"y": {value}}}


wf.entry(answer)
wf.edge(answer, END)
"""
SWEEP = """
workflow: {module}:wf
cases: [{{id: c0, input: {{x: 1}}}}]
vary: {{answer: all}}
"""
# Of Python, of what WTB imports at once, later, in node processes only, and with Celery and Flower.
_BYSTANDERS = """
alembic billiard calendar celery cmd code concurrent contextlib csv ctypes dataclasses email enum flower html http json
kombu logging numbers orjson platform profile pydantic queue redis resource rich secrets selectors signal sqlalchemy
statistics tempfile tornado types typer typing uuid yaml
"""


# As of the command that is installed: `python -m wtb` is up to Python until WTB's own first line.
INSTALLED = {"PYTHONSAFEPATH": "1"}


def flow(imports: str = "", expression: str = "1") -> str:
    return FLOW.format(imports=imports, value=expression)


def run(project: Project, *, module: str = "flow", env: dict[str, str] | None = None) -> Outcome:
    """Run a sweep by a new interpreter, as a user does."""
    project.write({"sweep.yaml": SWEEP.format(module=module)})
    with project.start("run", "sweep.yaml", "--format", "json", own=True, env=INSTALLED | (env or {})) as running:
        return running.wait()


def value_of(project: Project) -> object:
    """Return the update that the node of the only cell returned."""
    (cell,) = project.wtb("show", "sweep", "--cells", "--format", "json", check=0).json["cells"]
    return cell["state"]["y"]


@pytest.fixture
def crowded(empty_project: Project) -> Project:
    """A project with a file that exits for each name, and nothing that imports them."""
    empty_project.write({f"{name}.py": f"raise SystemExit('{name} was imported')\n" for name in _BYSTANDERS.split()})
    empty_project.write({"flow.py": flow()})
    return empty_project


def test_nobody_imports_a_bystander_in_place_of_the_module_of_its_name(crowded: Project) -> None:
    outcome = run(crowded)

    assert outcome.code == 0, outcome.stderr + outcome.stdout
    assert "was imported" not in outcome.stdout + outcome.stderr


def test_nor_does_a_worker(cluster: Cluster) -> None:
    folder = cluster.project.folder
    for name in _BYSTANDERS.split():
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')\n")
    cluster.project.write({"flow.py": flow(), "sweep.yaml": SWEEP.format(module="flow")})
    cluster.start_worker(own=True, env=INSTALLED)

    outcome = cluster.project.wtb("submit", "sweep.yaml", "--wait", "--quiet", env=cluster.env)

    assert outcome.code == 0, outcome.stderr + outcome.stdout


@pytest.mark.parametrize("name", ["types", "secrets", "yaml", "flower"])
def test_a_workflow_with_the_name_of_a_module_is_one_line_that_says_to_rename_it(
    empty_project: Project, name: str
) -> None:
    empty_project.write({f"{name}.py": flow()})

    outcome = run(empty_project, module=name)

    assert outcome.code == 2
    assert len(outcome.stderr.splitlines()) == 1
    assert sentence("{} is not imported", f"{name}.py") in outcome.stderr
    assert outcome.stderr.rstrip().endswith("rename the file")


@pytest.mark.parametrize("imports", ["from secrets import OPENAI_KEY", "import secrets\nsecrets.OPENAI_KEY"])
def test_a_helper_with_the_name_of_a_module_is_named_where_it_is_missed(empty_project: Project, imports: str) -> None:
    empty_project.write({"secrets.py": "OPENAI_KEY = 'key'\n", "flow.py": flow(imports)})

    outcome = run(empty_project)

    assert outcome.code == 2
    assert "OPENAI_KEY" in outcome.stderr
    assert sentence("{} is not imported", "secrets.py") in outcome.stderr
    assert sentence("rename the file") in outcome.stderr


@pytest.mark.parametrize("name", ["tools", "test"])
def test_a_project_has_the_first_right_to_other_names(empty_project: Project, tmp_path: Path, name: str) -> None:
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / f"{name}.py").write_text("VALUE = 'installed'\n")
    helper = {f"{name}.py": "VALUE = 'of the project'\n", "flow.py": flow(f"from {name} import VALUE", "VALUE")}
    empty_project.write(helper)

    outcome = run(empty_project, env={"PYTHONPATH": str(installed)})

    assert outcome.code == 0, outcome.stderr + outcome.stdout
    assert value_of(empty_project) == sentence("of the project")


def test_the_search_path_of_the_user_stands(empty_project: Project) -> None:
    """A folder that PYTHONPATH has stays first, in node processes, too."""
    empty_project.write({"requests.py": "VALUE = 1\n", "flow.py": flow("import requests", "requests.VALUE")})

    outcome = run(empty_project, env={"PYTHONPATH": str(empty_project.folder)})

    assert outcome.code == 0, outcome.stderr + outcome.stdout
    assert value_of(empty_project) == 1, outcome.stdout

"""The layout of the packages: `ls wtb` tells the story, and nothing imports itself, however far around."""

from __future__ import annotations

import ast
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from wtb.cli.commands import ENTRIES

ROOT = Path(__file__).parents[2]
PACKAGES = {"wtb": ROOT, "wtb_workers": ROOT / "workers", "wtb_scheduler": ROOT / "scheduler"}
MOST_PACKAGES = 14  # at the top of wtb
MOST_MODULES = 20  # in a package
MOST_ARGUMENTS = 6  # that a function asks for: those with defaults are there to be left out
MOST_KNOWN = 12  # modules, those of commands left out, that a module of commands imports
AT_THE_TOP = {"__init__", "__main__", "history", "testing"}  # what users import by these names, and how it starts
MIGRATIONS = "wtb.store.migrations"  # they are a list that grows, and nothing is looked for in it


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """The imports between modules, including those inside functions and for type checkers."""
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def test_few_packages_stand_at_the_top() -> None:
    packages = {path.parent.name for path in (ROOT / "wtb").glob("*/__init__.py")}
    assert 0 < len(packages) <= MOST_PACKAGES, sorted(packages)


def test_no_module_stands_at_the_top_but_these() -> None:
    assert {path.stem for path in (ROOT / "wtb").glob("*.py")} == AT_THE_TOP


def test_no_package_has_more_modules_than_a_page_lists() -> None:
    sizes = Counter(
        ".".join(path.relative_to(place).parent.parts)
        for name, place in PACKAGES.items()
        for path in (place / name).rglob("*.py")
        if path.stem != "__init__"
    )
    assert sizes.keys() >= PACKAGES.keys(), "the packages are somewhere else"
    assert {name: n for name, n in sizes.items() if n > MOST_MODULES and not name.startswith(MIGRATIONS)} == {}


def test_every_module_of_the_toolkit_of_commands_has_a_layer() -> None:
    """The contract names them one by one, because commands are above features and their toolkit is below."""
    contract = (ROOT / "pyproject.toml").read_text("utf-8").partition("layers = [")[2].partition("]\n")[0]
    names = {path.stem for path in (ROOT / "wtb/cli").iterdir() if path.stem not in ("__init__", "__pycache__")}
    assert {name for name in names - {"templates"} if f"wtb.cli.{name}" not in contract} == set()


def test_every_module_is_in_the_graph(graph: grimp.ImportGraph) -> None:
    """No contract would check a folder without `__init__.py`."""
    modules = {
        ".".join((path.parent if path.stem == "__init__" else path.with_suffix("")).relative_to(place).parts)
        for name, place in PACKAGES.items()
        for path in (place / name).rglob("*.py")
    }
    assert {name for name in modules - graph.modules if ".templates." not in name and MIGRATIONS not in name} == set()


def test_a_module_of_commands_knows_few_others(graph: grimp.ImportGraph) -> None:
    """A command parses, calls operations and presents; `make rooms` lists the imports of each."""
    commands = graph.find_descendants("wtb.cli") | {f"wtb.{command.module}" for command in ENTRIES.values()}
    imports = {name: graph.find_modules_directly_imported_by(name) - commands for name in commands}
    rooms = {name: sum(module.startswith("wtb.") for module in imported) for name, imported in imports.items()}
    assert rooms["wtb.cli.run.sweeps"] > 5, "`wtb run` is somewhere else"
    assert {name: n for name, n in rooms.items() if n > MOST_KNOWN} == {}


def test_no_module_imports_itself_around_a_circle(graph: grimp.ImportGraph) -> None:
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert cycle_in(imports) == []


def test_imports_in_functions_and_for_type_checkers_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would find a circle that hangs on them."""
    package = tmp_path / "round_about"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text("def later():\n    from round_about import b\n")
    (package / "b.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from round_about import a\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    graph = grimp.build_graph("round_about", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert set(cycle_in(imports)) == {"round_about.a", "round_about.b"}


def cycle_in(imports: dict[str, set[str]]) -> list[str]:
    """The modules of one circle, the first of them also at the end; none where there is no circle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_function_asks_for_at_most_six_arguments() -> None:
    asking = {}
    for name, place in PACKAGES.items():
        for path in (place / name).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    asking[f"{path.relative_to(place)}:{node.lineno} {node.name}"] = _asked_for(node.args)
    assert len(asking) > 1000, "the packages are somewhere else"
    assert {where: count for where, count in asking.items() if count > MOST_ARGUMENTS} == {}


def _asked_for(arguments: ast.arguments) -> int:
    positional = [argument.arg for argument in arguments.posonlyargs + arguments.args]
    own = positional[:1] in (["self"], ["cls"])
    return len(positional) - own - len(arguments.defaults) + arguments.kw_defaults.count(None)

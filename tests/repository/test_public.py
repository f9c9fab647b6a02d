"""The public surface is small, changes on purpose only, and is documented with examples that run."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.support.project import run_program

ROOT = Path(__file__).parents[2]
PUBLIC = {
    "wtb": {
        "END", "Backoff", "Bench", "Context", "ExecutionHandle", "ExecutionRecord", "FinalError", "InputError", "Node",
        "NodeError", "Progress", "QuestionHandle", "QuestionRecord", "Rejected", "RunRecord", "Score", "StateError",
        "Sweep", "SweepHandle", "SweepRecord", "ToolDenied", "Variant", "WTBError", "Workflow", "current_context",
        "evaluator", "open", "start", "submit",
    },
    "wtb.history": {
        "Checkpoint", "CheckpointId", "CheckpointStore", "ExecutionHistory", "InMemoryCheckpoints", "NodeBoundary",
        "Position", "RollbackCheck", "Value", "Writer",
    },
    "wtb.testing": {"Answer", "CellResult", "ScoredCase", "run_cell", "run_node", "stub"},
    "wtb.integrations.mcp": {"ServerLost", "ToolFailed", "use_server"},
    "wtb.integrations.models": {"ActionNode", "complete", "record_calls"},
    "wtb.integrations.langgraph": {"Saver", "Serializer", "ThreadCheckpoints", "Variants", "history", "variants"},
    "wtb.integrations.pytest_plugin": {"SweepTester"},
}  # fmt: skip
# WTB makes these objects and gives them to users, so their attributes are documented, and not their construction.
NOT_CONSTRUCTED = {
    "Bench", "Checkpoint", "CheckpointStore", "Context", "ExecutionHandle", "ExecutionHistory", "ExecutionRecord",
    "Node", "NodeBoundary", "Progress", "QuestionHandle", "QuestionRecord", "RollbackCheck", "RunRecord", "SweepHandle",
    "SweepRecord", "SweepTester", "Variant", "Variants",
}  # fmt: skip
SECTION = re.compile(r"(?m)^(Args|Attributes|Returns|Raises|Example):$")


@pytest.mark.parametrize("module", PUBLIC)
def test_the_exported_names_are_these(module: str) -> None:
    imported = import_module(module)
    assert set(imported.__all__) == PUBLIC[module] - {"open"}  # which is Python's own, too
    assert all(getattr(imported, name) is not None for name in imported.__all__)
    assert list(imported.__all__) == sorted(imported.__all__, key=lambda name: (not name.isupper(), name))


def test_a_star_import_leaves_the_built_in_open() -> None:
    names: dict[str, Any] = {}
    exec("from wtb import *", names)
    assert "Bench" in names
    assert "open" not in names
    assert wtb.open("sqlite:///:memory:").sweeps() == []


def test_a_name_that_is_not_exported_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'wtb' has no attribute 'sweep_of_gold'"):
        wtb.sweep_of_gold  # noqa: B018


# Examples for users import public names only


def python_shown() -> Iterator[tuple[str, str]]:
    """Yield the places of Python code in pages and examples, with the code."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("examples/**/*.md"))]:
        for number, block in enumerate(re.findall(r"(?ms)^```python.*?\n(.*?)^```$", page.read_text("utf-8"))):
            yield f"{page.relative_to(ROOT)}, block {number}", block
    for file in [*sorted((ROOT / "examples").rglob("*.py")), *sorted((ROOT / "wtb/cli/templates").rglob("*.py"))]:
        yield str(file.relative_to(ROOT)), file.read_text("utf-8")


def imports(code: str) -> Iterator[tuple[str, str | None]]:
    """The modules of WTB that are imported, with the names that are imported from them."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "wtb":
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.partition(".")[0] == "wtb")


def test_docs_and_examples_import_public_names_only() -> None:
    uses = [(where, *use) for where, code in python_shown() for use in imports(code)]
    assert len(uses) > 40
    assert [use for use in uses if use[2] not in PUBLIC.get(use[1], set()) and use[1:] != ("wtb", None)] == []


def test_pages_name_public_paths_only() -> None:
    """A dotted path in the text of a page leads to a public name, a public module or something of a public object."""
    public = {f"{module}.{name}" for module, names in PUBLIC.items() for name in names} | PUBLIC.keys()
    private = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if page.name == "decisions.md":  # for people who change WTB
            continue
        for path in re.findall(r"`(wtb(?:\.\w+)+)", page.read_text("utf-8")):
            is_public = any(path == prefix or path.startswith(f"{prefix}.") for prefix in public - {"wtb"})
            if not is_public and path not in ("wtb.db", "wtb.toml"):
                private.append(f"{page.name}: {path}")
    assert private == []


# Docstrings


class Doc:
    """A docstring in Google style."""

    def __init__(self, text: str) -> None:
        self.text = inspect.cleandoc(text)

    @cached_property
    def sections(self) -> dict[str, str]:
        parts = SECTION.split(self.text)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    def names(self, section: str) -> set[str]:
        """Return the names that a section lists."""
        return set(re.findall(r"(?m)^    \*{0,2}(\w+):", self.sections.get(section, "")))

    @property
    def summary(self) -> str:
        return self.text.partition("\n")[0]


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties that a public class has from WTB."""
    for base in owner.__mro__:
        if base.__module__.startswith("wtb."):
            for name, member in vars(base).items():
                function = getattr(member, "fget", None) or getattr(member, "func", None) or member
                if name in getattr(owner, "__dataclass_fields__", ()):
                    continue  # a function as the default of an attribute
                if not name.startswith("_") and inspect.isfunction(inspect.unwrap(function)):
                    yield name, member


def outer_bases(owner: type) -> list[type]:
    """Return the bases from other packages, which document their own attributes."""
    return [base for base in owner.__mro__ if not base.__module__.startswith("wtb.") and base is not object]


def objects() -> dict[str, Any]:
    exported = {}
    for module, names in PUBLIC.items():
        exported |= {f"{module}.{name}": getattr(import_module(module), name) for name in names - {"END"}}
    return exported


def functions() -> dict[str, Callable[..., Any]]:
    """Public functions, and public methods that no other package documents."""
    callables = {}
    for path, public in objects().items():
        if inspect.isfunction(public):
            callables[path] = public
        elif inspect.isclass(public):
            inherited = {name for base in outer_bases(public) for name in vars(base)}
            for name, member in members(public):
                if inspect.isfunction(member) and name not in inherited:
                    callables.setdefault(f"{path}.{name}", member)
    return callables


def problems_of(function: Callable[..., Any]) -> list[str]:
    """Return the problems of a function's docstring."""
    doc = Doc(function.__doc__ or "")
    signature = inspect.signature(function)
    parameters = {name for name in signature.parameters if name != "self"}
    is_sentence = doc.summary.endswith((".", ":")) and len(doc.summary) <= 120
    problems = [] if is_sentence else ["its summary is no sentence in one line"]
    if doc.names("Args") != parameters:
        problems.append(f"Args are {sorted(doc.names('Args'))}, parameters {sorted(parameters)}")
    if (signature.return_annotation in ("None", None)) == ("Returns" in doc.sections):
        problems.append(f"it returns {signature.return_annotation}, which Returns does not say")
    return problems


@pytest.mark.parametrize("path", sorted(functions()))
def test_a_function_names_its_arguments_and_what_it_returns(path: str) -> None:
    assert problems_of(functions()[path]) == []


CLASSES = sorted(path for path, public in objects().items() if inspect.isclass(public))


@pytest.mark.parametrize("path", CLASSES)
def test_a_class_names_its_arguments_or_its_attributes(path: str) -> None:
    owner = objects()[path]
    doc = Doc(owner.__doc__ or "")
    assert doc.summary.endswith(".") or doc.summary.endswith("`.")
    if owner.__name__ not in NOT_CONSTRUCTED and "__init__" in vars(owner):
        assert doc.names("Args") == set(inspect.signature(owner).parameters)
    for name, member in members(owner):
        if not inspect.isfunction(member):
            assert (inspect.getdoc(member) or "").endswith(".") or Doc(inspect.getdoc(member) or "").sections, name


def described(path: str) -> Iterator[tuple[str, str]]:
    public = objects()[path]
    yield path, public.__doc__ or ""
    if inspect.isclass(public):
        yield from ((f"{path}.{name}", inspect.getdoc(member) or "") for name, member in members(public))


@pytest.mark.parametrize("path", sorted(objects()))
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # an example need not close its database in memory
def test_the_examples_run(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "Example" in Doc(objects()[path].__doc__ or "").sections
    parser, count = doctest.DocTestParser(), 0
    for name, text in described(path):
        example = parser.get_doctest(text, {"__name__": "__main__"}, name, None, None)
        report: list[str] = []
        failed, run = doctest.DocTestRunner(verbose=False).run(example, out=report.append)
        assert not failed, "".join(report)
        count += run
    assert count > 0


# Starting


@pytest.mark.parametrize("module", ["wtb.execution.runtime.sweep_run", "wtb_workers.process", "wtb_scheduler.rounds"])
def test_who_runs_sweeps_starts_without_what_only_conclusions_need(module: str) -> None:
    code = f"import sys, {module}; print('numpy' in sys.modules)"
    assert run_program([sys.executable, "-c", code], code=0).stdout == "False\n"


def test_importing_wtb_imports_nothing_heavy() -> None:
    heavy = "{'sqlalchemy', 'pydantic', 'numpy', 'typer', 'rich', 'orjson', 'psycopg'}"
    code = f"import sys, wtb; print(sorted({heavy} & set(sys.modules)))"
    assert run_program([sys.executable, "-c", code], code=0).stdout == "[]\n"

"""Input that is unusual, huge or hostile: each works, or is refused with exit code 2 in a line that says where."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.run.test_bad_input import refused, sweep
from tests.support.forkserver import COMMAND
from tests.support.project import Outcome, Project, _project
from tests.support.prose import sentence

HUGE = 2**70


@pytest.fixture
def either(database_url: str, tmp_path: Path) -> Iterator[Project]:
    """The project with a database of either kind."""
    for project in _project(tmp_path / "project"):
        if database_url.startswith("postgresql"):
            project.url = database_url
        yield project


def said_in_one_line(done: Outcome, *texts: str, code: int = 2) -> None:
    assert done.code == code, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert len(done.stderr) < 1_500
    for text in texts:
        assert text in done.output, done.stderr


class TestNumbers:
    @pytest.mark.parametrize(
        ("key", "number", "place"),
        [
            ("vary", f"{{A: [{{name: b, by: {HUGE}}}]}}", f"sweep.yaml:3: {HUGE} has more than 64 bits"),
            ("vary", "{A: [{name: b, by: .nan}]}", sentence("{} is no number in JSON", "sweep.yaml:3: .nan")),
            ("params", f"{{deep: [1, {{q: {HUGE}}}]}}", f"sweep.yaml:4: {HUGE} has more than 64 bits"),
            ("params", "{q: .inf}", sentence("{} is no number in JSON", "sweep.yaml:4: .inf")),
        ],
        ids=["of a variant", "not a number", "within parameters", "infinite"],
    )
    def test_that_no_database_keeps_are_refused_with_their_key(
        self, project: Project, key: str, number: str, place: str
    ) -> None:
        project.write({"sweep.yaml": sweep(**{key: number})})
        done = project.inside("run", "sweep.yaml")
        refused(done, project, [place])
        said_in_one_line(done)

    def test_ids_and_values_in_a_sweep_file_keep_their_spelling(self, project: Project) -> None:
        cases = "[{id: 007, input: {x: 01234}, expected: 01234}, {id: 7, input: {x: 0x10}, expected: 1_000}]"
        node = "@wf.node\ndef A(state):\n    return {'y': state['x']}\n"
        flow = f"from wtb import Workflow\nwf = Workflow('w')\n{node}wf.entry(A)\n"
        file = f"workflow: flow:wf\ncases: {cases}\nvary: {{A: all}}\nevaluate: [{{exact_match: {{field: y}}}}]\n"
        project.write({"flow.py": flow, "sweep.yaml": file})
        project.inside("run", "sweep.yaml", "--quiet", check=0)
        cells = project.json("show", "sweep", "--cells")["cells"]
        assert [(cell["case"], cell["state"]["y"], cell["scores"]["exact_match"]) for cell in cells] == [
            ("007", "01234", 1),
            ("7", "0x10", 0),
        ]

    def test_of_70_bits_in_cases_are_kept(self, either: Project) -> None:
        case = {"id": "big", "input": {"x": HUGE}, "expected": {"x": HUGE + 1}}
        either.write({"cases.jsonl": json.dumps(case) + "\n", "sweep.yaml": sweep(vary="{A: [v1]}")})
        either.inside("run", "sweep.yaml", "--quiet", check=0)
        (cell,) = either.json("show", "sweep", "--cells")["cells"]
        assert int(cell["state"]["x"]) == HUGE + 1

    def test_of_70_bits_as_parameter_of_a_variant_in_code_work(self, either: Project) -> None:
        code = (either.folder / "flow.py").read_text() + f"\nA.variant('huge', by={HUGE})\n"
        either.write({"flow.py": code, "sweep.yaml": sweep(vary="{A: [huge]}")})
        either.inside("run", "sweep.yaml", "--limit", "1", "--quiet", check=0)
        (cell,) = either.json("show", "sweep", "--cells")["cells"]
        assert int(cell["state"]["x"]) == HUGE

    def test_of_a_hundred_million_slots_are_refused(self, project: Project) -> None:
        project.write({"sweep.yaml": sweep(run="{concurrency: 100000000}")})
        done = project.inside("run", "sweep.yaml")
        refused(done, project, ["sweep.yaml:4: 'run.concurrency' is 100000000; expected at most 1000"])
        project.write({"sweep.yaml": sweep()})
        for command in (["run", "sweep.yaml"], ["worker"], ["up"]):
            done = project.inside(*command, "--concurrency", "100000000")
            refused(done, project, ["--concurrency", "1000"])


class TestText:
    @pytest.mark.parametrize(
        ("case", "message"),
        [
            ({"input": {"x": 1, "a\0b": 2}}, "cases.jsonl:1: key 'a\\x00b' of 'input' has a NUL character"),
            (
                {"input": {"x": 1}, "tags": ["a\0b"]},
                "cases.jsonl:1: " + sentence("{} has a NUL character", "tag 'a\\x00b'"),
            ),
            ({"input": {"x": 1}, "id": "a\0b"}, "cases.jsonl:1: 'id' is 'a\\x00b'"),
            ({"input": {"x": 1}, "files": ["a\0b"]}, "cases.jsonl:1: file 'a\\x00b'"),
            ({"input": {"x": 1}, "tags": ["\ud800"]}, "cases.jsonl:1: " + sentence("half of a surrogate pair")),
            ({"input": {"x": "\ud800"}}, "cases.jsonl:1: " + sentence("half of a surrogate pair")),
        ],
        ids=["a key", "a tag", "an id", "a file", "half a pair", "half a pair in a value"],
    )
    def test_that_no_database_keeps_is_refused_with_its_place(
        self, either: Project, case: dict[str, object], message: str
    ) -> None:
        either.write({"cases.jsonl": json.dumps(case) + "\n"})
        done = either.inside("run", "sweep.yaml")
        said_in_one_line(done, message)
        assert either.query("SELECT id FROM sweeps") == []

    def test_of_cases_from_code_is_refused_alike(self, either: Project) -> None:
        code = "def rows():\n    yield {'input': {'x': 1}, 'tags': ['a\\0b']}\n    yield {'input': {'\\ud800': 1}}\n"
        either.write({"other.py": code, "sweep.yaml": sweep(cases="other:rows")})
        done = either.inside("run", "sweep.yaml", check=2)
        assert "other:rows: case 1: tag 'a\\x00b' has a NUL character" in done.output
        assert "other:rows: case 2: key '\\ud800' of 'input' has half of a surrogate pair" in done.output

    def test_with_nul_in_a_value_is_kept(self, either: Project) -> None:
        case = {"id": "nul", "input": {"x": 1, "text": "a\0b"}, "expected": "\0"}
        code = (either.folder / "flow.py").read_text().replace("x: int", "x: int\n    text: str")
        either.write({"flow.py": code, "cases.jsonl": json.dumps(case) + "\n", "sweep.yaml": sweep(vary="{A: [v1]}")})
        either.inside("run", "sweep.yaml", "--quiet", check=0)
        (cell,) = either.json("show", "sweep", "--cells")["cells"]
        assert cell["state"]["text"] == "a\0b"


class TestOutput:
    @pytest.mark.parametrize(
        "environment",
        [
            pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.slow),
            pytest.param({"PYTHONIOENCODING": "latin-1"}, marks=pytest.mark.slow),
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        ],
        ids=["ascii", "latin-1", "the locale C"],
    )
    def test_that_is_not_utf_8_lets_a_good_run_end_well(self, project: Project, environment: dict[str, str]) -> None:
        project.write({"cases.jsonl": '{"id": "\u00e9\u2605\U0001f600", "input": {"x": 1}}\n'})
        ran = _bytes(project, environment, "run", "sweep.yaml", "--limit", "1")
        assert b"\\u0394" in ran
        document = json.loads(
            _bytes(project, environment, "show", "first", "--cells", "--format", "json").decode("latin-1")
        )
        assert {cell["case"] for cell in document["cells"]} == {"\u00e9\u2605\U0001f600"}

    def test_to_a_working_directory_that_is_gone_is_refused(self, tmp_path: Path) -> None:
        folder = tmp_path / "gone"
        folder.mkdir()
        script = 'rmdir "$PWD" && exec "$@"'
        done = subprocess.run(
            ["sh", "-c", script, "sh", *COMMAND, "list"], cwd=folder, capture_output=True, text=True, check=False
        )
        said_in_one_line(Outcome(done.returncode, done.stdout, done.stderr), "the working directory is gone")


def _bytes(project: Project, environment: dict[str, str], *args: str) -> bytes:
    done = subprocess.run(
        [*COMMAND, *args], cwd=project.folder, env=project.environment(environment), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestNames:
    @pytest.mark.parametrize(
        "path",
        ["a" * 3000 + ":wf", "a." * 1500 + "a:wf", "flow:" + "a." * 1490 + "a"],
        ids=["of a module", "of packages", "of attributes"],
    )
    def test_of_three_thousand_characters_are_refused_in_a_line(self, project: Project, path: str) -> None:
        for keys in ({"workflow": path}, {"cases": path}, {"vary": f"{{A: [{{name: v, with: '{path}'}}]}}"}):
            project.write({"sweep.yaml": sweep(**keys)})
            done = project.inside("run", "sweep.yaml")
            refused(done, project, ["sweep.yaml:", "expected an import path of at most 500"])
            said_in_one_line(done)

    @pytest.mark.parametrize(
        "text",
        ["-" * 900 + "x > 0", "x+" * 450 + "x > 0", "x." * 450 + "x > 0", "(" * 900 + "x > 0", "not " * 240 + "x > 0"],
        ids=["signs", "sums", "dots", "brackets", "negations"],
    )
    def test_of_figures_in_conditions_of_900_operators_are_refused_in_a_line(self, project: Project, text: str) -> None:
        project.write({"sweep.yaml": sweep(gates=f"['{text}']")})
        said_in_one_line(project.inside("run", "sweep.yaml"), "sweep.yaml:4: 'gates[0]' ")
        project.write({"sweep.yaml": sweep()})
        said_in_one_line(project.inside("run", "sweep.yaml", "--break", f"A if {text}"), "breakpoint 'A if ")


SECRET = "sesame"
DATABASES = [
    ("postgresql://u:sesame@h:port/n", "has a port that is not a number"),
    ("postgresql://u:sesame@h:99999/n", "has the port 99999"),
    ("postgresql://u:sesame", "has a port that is not a number"),
    ("postgresql://u:open@sesame@127.0.0.1/n", "has more than one @; write %40"),
    ("postgresql://h/n?password=sesame&port=x", "has a host or port that cannot be read"),
    ("postgresql://h/n?pasword=sesame", "has the option 'pasword', which PostgreSQL does not know; did you mean"),
    ("postgresql:sesame", "cannot be read"),
    ("u:sesame@h/n", "cannot be read"),
    ("postgresql//u:sesame@h/n", "cannot be read"),
    ("mysql://u:sesame@h/n", "'mysql' is not supported"),
    ("sqlite://host/x.db", "names a host"),
    ("sqlite:///x.db?mode=ro", "has the option 'mode'"),
    ("sqlite+aiosqlite:///x.db", "the driver 'aiosqlite'"),
    ("sqlite:///a\nb.db", "a character that cannot be printed"),
]


class TestAddresses:
    @pytest.mark.parametrize(("url", "message"), DATABASES, ids=[url for url, _ in DATABASES])
    def test_of_a_database_that_are_none_are_refused_without_their_password(
        self, project: Project, url: str, message: str
    ) -> None:
        for source in ({"args": ["--db", url], "env": {}}, {"args": [], "env": {"WTB_DATABASE_URL": url}}):
            done = project.inside("run", "sweep.yaml", *source["args"], env=dict(source["env"]))
            said_in_one_line(done, "database URL", message)
            assert SECRET not in done.stderr
        assert not project.file.exists()

    def test_of_a_database_out_of_reach_are_shown_without_any_password(self, project: Project) -> None:
        for url in ("postgresql://127.0.0.1:1/n?password=sesame", "postgresql://u:sesame@127.0.0.1:1/n?sslmode=allow"):
            done = project.inside("run", "sweep.yaml", "--db", url)
            said_in_one_line(done, "***", code=4)
            assert SECRET not in done.stderr

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("rediss://:sesame@127.0.0.1:1/0?nonsense=1", sentence("has the unknown option {}", "'nonsense'")),
            ("redis://:sesame@127.0.0.1:port/0", sentence("has a host or port that cannot be read")),
            ("redis://:sesame", sentence("has a host or port that cannot be read")),
            ("redis://:open@sesame@127.0.0.1:1/0", sentence("has more than one @; write %40")),
            ("redis://127.0.0.1:1/0?pasword=sesame", sentence("has the unknown option {}", "'pasword'")),
            ("redis://127.0.0.1:1/0?socket_timeout=soon", sentence("cannot be read")),
            ("amqp://u:sesame@127.0.0.1:1//", sentence("is not that of a Redis")),
            (":sesame@127.0.0.1", sentence("is not that of a Redis")),
        ],
    )
    def test_of_a_broker_that_are_none_are_refused_without_their_password(
        self, project: Project, fresh_postgres_url: str, url: str, message: str
    ) -> None:
        for command in (["worker"], ["submit", "sweep.yaml", "--anyway"], ["watch"]):
            project.url = fresh_postgres_url
            done = project.inside(*command, env={"WTB_BROKER_URL": url})
            said_in_one_line(done, "broker URL", message)
            assert SECRET not in done.stderr + done.stdout
        outcome = project.inside("doctor", env={"WTB_BROKER_URL": url}, check=1)
        assert message in " ".join(outcome.stdout.split())
        assert SECRET not in outcome.stderr + outcome.stdout
        assert project.query("SELECT id FROM sweeps") == []


class TestFiles:
    def sweep_with(self, project: Project, name: str, **keys: str) -> None:
        project.write({"data/cases.jsonl": json.dumps({"input": {"x": 1}, "files": {"given.txt": name}}) + "\n"})
        project.write({"data/own.txt": "own", "shared/more.txt": "more", "secret.txt": "secret"})
        project.write({"sweep.yaml": sweep(cases="data/cases.jsonl", vary="{A: [v1]}", **keys)})

    @pytest.mark.parametrize("name", ["../secret.txt", "/etc/hosts", "link.txt", "folder/secret.txt"])
    def test_of_cases_outside_of_their_folder_are_refused(self, project: Project, name: str) -> None:
        self.sweep_with(project, name)
        (project.folder / "data" / "link.txt").symlink_to("../secret.txt")
        (project.folder / "data" / "folder").symlink_to("..")
        done = project.inside("run", "sweep.yaml")
        refused(done, project, ["cases.jsonl:1: file '", "is outside of '", "lists under 'files_from'"])
        said_in_one_line(done)

    def test_of_cases_in_a_folder_that_the_sweep_allows_are_taken(self, project: Project) -> None:
        for name in ("own.txt", "../shared/more.txt"):
            self.sweep_with(project, name, files_from="[shared]")
            project.inside("run", "sweep.yaml", "--quiet", check=0)
        self.sweep_with(project, "../secret.txt", files_from="[shared]")
        assert "is outside of" in project.refusal("run", "sweep.yaml")

    def test_that_lead_to_themselves_are_refused(self, project: Project) -> None:
        self.sweep_with(project, "loop.txt")
        os.symlink("loop.txt", project.folder / "data" / "loop.txt")
        said_in_one_line(project.inside("run", "sweep.yaml"), "cases.jsonl:1: file '")


@pytest.mark.parametrize(
    "command", [["show", "sweep"], ["show", "sweep", "--cells"], ["matrix", "sweep"]], ids=" ".join
)
def test_a_state_as_deep_as_can_be_stored_is_shown(project: Project, command: list[str]) -> None:
    code = (project.folder / "flow.py").read_text().replace("x: int", "x: int\n    deep: list")
    deep: list[object] = []
    for _ in range(250):
        deep = [deep]
    case = json.dumps({"id": "deep", "input": {"x": 1, "deep": deep}}) + "\n"
    project.write({"flow.py": code, "cases.jsonl": case, "sweep.yaml": sweep(vary="{A: [v1]}")})
    project.inside("run", "sweep.yaml", "--quiet", check=0)
    (execution,) = project.query("SELECT execution_id FROM cells")[0]
    for words in (command, ["show", str(execution)]):
        project.inside(*words, check=0)
        project.json(*words)

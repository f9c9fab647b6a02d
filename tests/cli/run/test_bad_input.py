"""Bad input is refused before anything starts, with exit code 2, on one screen, and leaves nothing behind."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.support.prose import sentence

if TYPE_CHECKING:
    from tests.support.project import Outcome, Project

SCREEN = 24


def sweep(**keys: str | None) -> str:
    """A sweep file that is right but for the keys given as YAML; None leaves a key out."""
    right = {"workflow": "flow:wf", "cases": "cases.jsonl", "vary": "{A: all, B: [default, v1]}"}
    return "".join(f"{key}: {text}\n" for key, text in {**right, **keys}.items() if text is not None)


@dataclass
class Bad:
    """Bad input, and the texts that the message must contain. `{file}` stands for the sweep file's name."""

    name: str
    sweep: str
    words: list[str]
    files: dict[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()


def module(code: str) -> dict[str, str]:
    return {"other.py": code}


def workflow(state: str) -> dict[str, str]:
    """A module `other` with a workflow of one node, `a`, whose state and input are the class `state`."""
    return module(
        f"from typing import TypedDict\nfrom pydantic import BaseModel\nfrom wtb import END, Workflow\n{state}\n"
        "wf = Workflow('w', state=S, input=S)\n@wf.node\ndef a(state): ...\nwf.entry(a)\nwf.edge(a, END)\n"
    )


LOST = """
from wtb import Workflow
wf = Workflow('w')
@wf.node
def a(state): ...
@wf.node
def lost(state): ...
wf.entry(a)
"""


EXITING_THREAD = """
import os, threading
thread = threading.Thread(target=os._exit, args=(0,))
threading.excepthook = lambda _: None
thread.start()
thread.join()
"""
BOMB = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else '1'}]\n" for n in range(9))
TWO = '{"id": "one", "input": {"x": 1}}\n'

BAD = [
    # the file itself
    Bad("no such sweep file", sweep(), ["sweep.yml: no such file", "did you mean 'sweep.yaml'?"], args=("sweep.yml",)),
    Bad("an empty file", "", ["sweep.yaml:1", "empty", "expected a mapping"]),
    Bad("unparsable YAML", sweep(vary="{A: all"), ["sweep.yaml:4: not YAML", "expected"]),
    Bad("a duplicate key", sweep() + "cases: more.jsonl\n", ["sweep.yaml:4: key 'cases' twice (first in line 2)"]),
    Bad("an alias", sweep(params="{a: &x 1, b: *x}"), ["sweep.yaml:4: anchor '&x'", "without an anchor"]),
    Bad("a bomb", BOMB, ["sweep.yaml:1: anchor '&a0'"]),
    Bad("a tag", sweep(params="!!python/object:os.system {}"), ["sweep.yaml:4: tag ", "expected a plain value"]),
    Bad("a file over the cap", sweep() + "#" * 2**20, ["sweep.yaml:1: the file has 1,048,", "at most 1,048,576"]),
    # keys and values
    Bad(
        "no keys", "seed: 1\n", ["key 'workflow' is missing", "import path", "'cases' is missing", "'vary' is missing"]
    ),
    Bad(
        "keys that are not known and values that they cannot have",
        sweep(
            vary="{A: []}",
            repeat="3",
            usd="3",
            repeats="1.5",
            limits="{cel_timeout: 1s, usd: 0, node_runs: 0, cell_timeout: 0s, wall: -1h}",
            run="{concurrency: 0, pool: proces}",
            stop="when_bored",
            on_failure="worst",
            failure_kinds="{tiemout: missing}",
            margin="{total: -0.1}",
            best="{maximize: total, indifferent: 0.1}",
            gates="[contains >= 90%]",
        ),
        [
            "sweep.yaml:3: 'vary.A' is an empty list",
            "sweep.yaml:4: key 'repeat' is not known; did you mean 'repeats'?",
            "sweep.yaml:5: key 'usd' is not known; expected under 'limits'",
            "sweep.yaml:6: 'repeats' is 1.5; expected a whole number",
            "key 'limits.cel_timeout' is not known; did you mean 'cell_timeout'?",
            "'limits.usd' is 0; expected more than 0",
            "'limits.node_runs' is 0; expected at least 1",
            "'limits.cell_timeout' is '0s'; expected a positive",
            "sweep.yaml:7: 'limits.wall' is '-1h'; expected a positive",
            "'run.concurrency' is 0; expected at least 1",
            "sweep.yaml:8: 'run.pool' is 'proces'; expected 'process' or 'thread'",
            "sweep.yaml:9: 'stop' is 'when_bored'; expected 'when_known'",
            "sweep.yaml:10: 'on_failure' is 'worst'; expected a finite number or left_out",
            "'failure_kinds.tiemout' is 'tiemout'; expected a kind of failure: error, timeout",
            "sweep.yaml:12: 'margin.total' is -0.1; expected at least 0",
            "key 'best.indifferent' is called 'margin' now",
            "write margin: {METRIC: NUMBER} at the top",
            "'gates[0]' is 'contains >= 90%'; expected METRIC.STATISTIC >= NUMBER",
            "write 90% as 0.9",
        ],
    ),
    Bad("negative repeats", sweep(repeats="-1"), ["sweep.yaml:4: 'repeats' is -1; expected at least 1"]),
    Bad("an empty vary", sweep(vary="{}"), ["sweep.yaml:3: 'vary' is an empty mapping; expected at least one"]),
    Bad("nothing to know", sweep(stop="when_known"), ["sweep.yaml:4: 'when_known' needs a metric"]),
    Bad(
        "no scale to know it by",
        sweep(stop="when_known", evaluate="['flow:total']"),
        ["sweep.yaml:4: 'when_known' needs a metric whose scale is declared, and 'total'", "expected 'scale: [0, 1]'"],
    ),
    # code
    Bad(
        "names that the workflow does not have",
        sweep(
            vary="{AA: all, A: [default, v11, {name: wide, bye: 3}], B: [{name: wide, by: many}]}",
            baseline="{C: v1}",
            evaluate="[exact_mach: {field: x}, exact_match: {feld: x}, 'flow:total': {scale: [1, 0]}, exact_match, "
            "'flow:totl', 'flow:picky': {scale: [0, 1], on_failure: -1}]",
        ),
        [
            "sweep.yaml:3: workflow 'flow' has no node 'AA'; did you mean 'A'?",
            "no variant 'v11'; did you mean 'v1'?",
            "takes no parameter 'bye'; did you mean 'by'?",
            "parameter 'by' is 'many'; expected int",
            "sweep.yaml:4: the baseline names node 'C', which is not varied; expected one of: A, B",
            "sweep.yaml:5: there is no evaluator 'exact_mach'; did you mean 'exact_match'?",
            "takes no option 'feld'; did you mean 'field'?",
            "evaluator 'flow:total': scale is [1, 0]; expected two finite numbers, the lower one first",
            "needs the option 'field'",
            "has no 'totl'; did you mean 'total'?",
            "on_failure is -1; expected a score on its scale, 0 to 1, or left_out",
        ],
    ),
    Bad(
        "keys of node processes for threads",
        sweep(run="{pool: thread, env: [HOME], rlimits: {files: 64}}"),
        [
            "sweep.yaml:4: 'run.env' needs node processes; the thread pool shares this process",
            "sweep.yaml:4: 'run.rlimits' needs node processes",
        ],
    ),
    Bad(
        "no such module", sweep(workflow="flaw:wf"), ["sweep.yaml:1: ", "no module 'flaw' in ", "did you mean 'flow'?"]
    ),
    Bad("no such attribute", sweep(workflow="flow:wff"), ["sweep.yaml:1: ", "has no 'wff'; did you mean 'wf'?"]),
    Bad(
        "no such name",
        sweep(workflow="serch"),
        ["there is no workflow 'serch'; did you mean 'search'?"],
        {"wtb.toml": '[workflows]\nsearch = "flow:wf"\n'},
    ),
    Bad("not a workflow", sweep(workflow="flow:total"), ["'flow:total' takes case, result; expected a wtb.Workflow"]),
    Bad("a graph that leads nowhere", sweep(workflow="other:wf"), ["workflow 'w': ", "'lost'"], module(LOST)),
    Bad(
        "evaluators of keys that the state does not have",
        sweep(
            workflow="'other:wf'",
            cases="[{id: a, input: {answer: b}}]",
            vary="{a: all}",
            evaluate="[exact_match: {field: anser}, all_of: [contains: {field: text, text: b}]]",
        ),
        ["sweep.yaml:4: the state of workflow 'w' has no key 'anser'; did you mean 'answer'?", "no key 'text'"],
        workflow("class S(TypedDict, total=False):\n    answer: str"),
    ),
    Bad(
        "a metric that decides and is not there",
        sweep(evaluate="['flow:total']", primary="totl"),
        ["sweep.yaml:5: ", "no evaluator gives 'totl'; did you mean 'total'?"],
    ),
    Bad(
        "a variable that is not set",
        sweep(run="{env: [HOME, NOBODY_SET_THIS]}"),
        ["sweep.yaml:4: not set in this environment: NOBODY_SET_THIS"],
    ),
    # combinations
    Bad(
        "a baseline that is excluded",
        sweep(exclude="[{A: v1}]", baseline="{A: v1}"),
        ["sweep.yaml:5: ", "baseline that is not in the sweep (A=v1, B=default)", "it is excluded"],
    ),
    Bad("a baseline of an unknown variant", sweep(baseline="{A: v9}"), ["sweep.yaml:4: ", "no variant 'v9'"]),
    Bad("an unknown node in exclude", sweep(exclude="[{AB: v1}]"), ["sweep.yaml:4: ", "no node 'AB'"]),
    Bad("nothing left", sweep(exclude="[{A: [default, v1, v2, v3]}]"), ["sweep.yaml:4: every combination is excluded"]),
    Bad(
        "too many cells",
        sweep(repeats="1000000"),
        [
            "sweep.yaml:3: ",
            "8 combinations x 10 cases x 1,000,000 repeats = 80,000,000 cells",
            "at most 10,000,000",
            "--max-cells",
        ],
    ),
    Bad(
        "more cells than allowed",
        sweep(),
        ["8 combinations x 10 cases x 1 repeats = 80 cells", "at most 79"],
        args=("sweep.yaml", "--max-cells", "79"),
    ),
    # habits from elsewhere
    Bad(
        "a tab in the indentation",
        "workflow: flow:wf\ncases: cases.jsonl\nvary:\n\tA: all\n",
        ["sweep.yaml:4: a tab in the indentation; expected spaces"],
    ),
    Bad(
        "a file as the workflow",
        sweep(workflow="sub/flow.py:wf"),
        ["sweep.yaml:1: 'sub/flow.py:wf' names a file; expected an import path: write 'sub.flow:wf'"],
    ),
    Bad(
        "assertions of promptfoo, and another unknown evaluator",
        sweep(evaluate="[icontains, {llm-rubric: is polite}, exact_mach, {contains: text}]"),
        [
            "there is no evaluator 'icontains'; use regex: ",
            "there is no evaluator 'llm-rubric'; use judge: {field: KEY, criteria: TEXT}",
            "there is no evaluator 'exact_mach'; did you mean 'exact_match'?",
            "'evaluate[3].contains' has 'text'; expected a mapping of options",
        ],
    ),
    Bad(
        "a Python file as the sweep",
        sweep(),
        ["flow.py: a Python file; expected a YAML file, such as sweep.yaml"],
        args=("flow.py",),
    ),
    # cases
    Bad(
        "no such cases file",
        sweep(cases="case.jsonl"),
        ["sweep.yaml:2: cases file 'case.jsonl' does not exist", "did you mean 'cases.jsonl'?"],
    ),
    Bad(
        "cases of an unknown kind",
        sweep(cases="flow.py"),
        ["sweep.yaml:2: ", "'flow.py'; expected a .jsonl, .csv, .json or .xlsx file"],
    ),
    Bad("an empty cases file", sweep(), ["cases.jsonl: no cases; expected at least one"], {"cases.jsonl": "\n"}),
    Bad("a case that is not JSON", sweep(), ["cases.jsonl:2: not JSON"], {"cases.jsonl": TWO + "{oops\n"}),
    Bad(
        "an unknown key of a case",
        sweep(),
        ["cases.jsonl:1: key 'expect'", "did you mean 'expected'?"],
        {"cases.jsonl": '{"input": {"x": 1}, "expect": 2}\n'},
    ),
    Bad(
        "a case without its input",
        sweep(),
        ["cases.jsonl", "case 'one'", "key 'x' is missing"],
        {"cases.jsonl": '{"id": "one", "input": {}}\n'},
    ),
    Bad(
        "a misspelt input",
        sweep(workflow="other:wf", vary="{a: all}"),
        ["cases.jsonl", "case 'one'", "'question'", "did you mean"],
        {"cases.jsonl": '{"id": "one", "input": {"qestion": "?"}}\n', **workflow("class S(TypedDict): question: str")},
    ),
    Bad(
        "an input of another type",
        sweep(workflow="other:wf", vary="{a: all}"),
        ["cases.jsonl", "case 'one'", "'x'", "found 'many'"],
        {"cases.jsonl": '{"id": "one", "input": {"x": "many"}}\n', **workflow("class S(BaseModel): x: int")},
    ),
    Bad(
        "cases that fail",
        sweep(cases="other:rows"),
        ["sweep.yaml:2: 'other:rows' failed; expected cases: KeyError: 'boom'", 'other.py", line 3, in rows'],
        module("def rows():\n    yield {'input': {'x': 1}}\n    raise KeyError('boom')\n"),
    ),
    Bad(
        "cases that are no cases",
        sweep(cases="other:rows"),
        ["'other:rows' gave 3; expected a callable that returns an iterable of cases"],
        module("def rows(): return 3\n"),
    ),
    Bad("the same id twice", sweep(), ["cases.jsonl:2: id 'one' a second time"], {"cases.jsonl": TWO * 2}),
    Bad(
        "a missing file of a case",
        sweep(),
        ["cases.jsonl:1: file '", "a.txt'", "expected a file"],
        {"cases.jsonl": '{"input": {"x": 1}, "files": ["a.txt"]}\n'},
    ),
    # options
    Bad(
        "an unknown case",
        sweep(),
        ["there is no case 'c11'", "did you mean 'c1'?"],
        args=("sweep.yaml", "--case", "c11"),
    ),
    Bad(
        "an unknown combination",
        sweep(),
        ["combination: node 'A' has no variant 'v8'", "expected one of: default, v1"],
        args=("sweep.yaml", "--combination", "A=v8"),
    ),
    Bad(
        "a combination of an unknown node",
        sweep(),
        ["combination: the sweep does not vary a node 'C'; expected one of: A, B"],
        args=("sweep.yaml", "--combination", "C=v1"),
    ),
    Bad(
        "half a combination",
        sweep(),
        ["--combination 'A': expected NODE=VARIANT"],
        args=("sweep.yaml", "--combination", "A"),
    ),
    Bad(
        "the debugger on many cells",
        sweep(),
        ["the debugger runs one cell, but 80 are chosen"],
        args=("sweep.yaml", "--pdb"),
    ),
    Bad(
        "an unknown option of the command",
        sweep(),
        ["No such option", "--limt", "--limit"],
        args=("sweep.yaml", "--limt", "3"),
    ),
    Bad(
        "no cases at all",
        sweep(),
        ["limit is 0; expected a whole number of at least 1"],
        args=("sweep.yaml", "--limit", "0"),
    ),
    Bad(
        "another kind of database",
        sweep(),
        ["'mysql' is not supported; expected sqlite or postgresql"],
        args=("sweep.yaml", "--db", "mysql://host/name"),
    ),
    Bad(
        "a server in place of a database",
        sweep(),
        ["is a server, not a database", "wtb --server http://127.0.0.1:8642", "wtb.open("],
        args=("sweep.yaml", "--db", "http://127.0.0.1:8642"),
    ),
    Bad("not a database URL", sweep(), ["expected sqlite:///path/to/file.db"], args=("sweep.yaml", "--db", "wtb.db")),
    Bad("a folder to write to", sweep(), ["--output", "is a directory"], args=("sweep.yaml", "--output", ".")),
]


def refused(outcome: Outcome, project: Project, words: list[str]) -> None:
    """Assert that the outcome is a refusal on one screen with these texts, which leaves nothing behind."""
    assert outcome.code == 2, outcome.stderr
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr
    assert 0 < len(outcome.stderr.splitlines()) <= SCREEN
    for text in words:
        assert text in outcome.output, f"{text!r} is not in: {outcome.stderr}"
    assert project.query("SELECT id FROM sweeps") == []
    assert not project.file.parent.exists()


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name.replace(" ", "-"))
def test_it_is_refused(project: Project, bad: Bad) -> None:
    project.write({"sweep.yaml": bad.sweep, **bad.files})
    out = project.inside("run", *(bad.args or ("sweep.yaml",)))
    refused(out, project, bad.words)


def test_a_hundred_problems_fit_on_one_screen(project: Project) -> None:
    project.write({"sweep.yaml": sweep() + "".join(f"k{n}: 1\n" for n in range(100))})
    refused(project.inside("run", "sweep.yaml"), project, ["key 'k0'", "and 80 more problems"])
    project.write({"sweep.yaml": sweep(), "cases.jsonl": "oops\n" * 100})
    refused(project.inside("run", "sweep.yaml"), project, ["cases.jsonl:1 and 99 more: not JSON"])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "def load():\n    raise RuntimeError('no key')\n\nload()\n",
            ["RuntimeError: no key", sentence("line {}, in {}", 4, "<module>"), sentence("line {}, in {}", 2, "load")],
        ),
        ("def load(:\n", ["SyntaxError", 'other.py", line 1']),
        ("import flow, not_there_at_all\n", ["No module named 'not_there_at_all'", 'other.py", line 1']),
        ("import sys\nsys.exit(0)\n", ["SystemExit: 0", 'other.py", line 2']),
        (
            "import os\nos._exit(0)\n",
            [sentence("{} was called in code that the command runs", "os._exit(0)"), 'other.py", line 2'],
        ),
        (
            "import os\ntry: os._exit(0)\nexcept BaseException: pass\n",
            [sentence("{} was called in code that the command runs", "os._exit(0)")],
        ),
        (
            "import os\nos.execlp('true', 'true')\n",
            [sentence("was called in code that the command runs"), 'other.py", line 2'],
        ),
        (EXITING_THREAD, [sentence("{} was called in code that the command runs", "os._exit(0)")]),
        (
            "from wtb import Workflow\ndef wf():\n    import os\n    os._exit(0)\n",
            [sentence("{} was called in code", "os._exit(0)")],
        ),
        ("import helper\n", ["ZeroDivisionError", 'helper.py", line 2, in <module>']),
    ],
    ids=[
        *("an error", "a syntax error", "a missing dependency", "an exit", "an exit at once", "a caught exit"),
        *("another program", "a thread that exits", "a factory that exits", "an error further down"),
    ],
)
def test_a_module_that_fails_to_import_shows_its_own_frames_only(project: Project, code: str, words: list[str]) -> None:
    project.write({"other.py": code, "helper.py": "\n1 / 0\n", "sweep.yaml": sweep(workflow="other:wf")})
    done = project.inside("run", "sweep.yaml")
    refused(done, project, ["sweep.yaml:1: 'other:wf' cannot be ", *words])
    frames = [line for line in done.stderr.splitlines() if line.startswith("  File")]
    assert all(f'File "{project.folder}{os.sep}' in line for line in frames)


def test_a_user_s_folder_may_be_called_almost_as_ours(project: Project) -> None:
    wtb_like = os.path.dirname(__import__("wtb").__file__) + "_notes"
    code = compile("1 / 0", os.path.join(wtb_like, "maths.py"), "exec")
    from wtb.authoring.code.import_paths import own_frames
    from wtb.core.failures import user_trace

    with pytest.raises(ZeroDivisionError) as raised:
        exec(code)
    assert "maths.py" in own_frames(raised.value)
    assert "maths.py" in user_trace(raised.value)


def test_a_huge_file_is_refused_at_once(project: Project) -> None:
    with (project.folder / "sweep.yaml").open("wb") as file:
        file.truncate(100 * 2**20)
    started = time.process_time()
    refused(project.inside("run", "sweep.yaml"), project, ["104,857,600 bytes"])
    assert time.process_time() - started < 1


def test_plan_refuses_what_run_refuses(project: Project) -> None:
    project.write({"sweep.yaml": sweep(vary="{A: [v11]}")})
    refused(project.inside("plan", "sweep.yaml"), project, ["no variant 'v11'; did you mean 'v1'?"])


@pytest.mark.parametrize("command", ["resume", "retry", "matrix", "score"])
def test_a_sweep_that_is_not_there_makes_no_database(project: Project, command: str) -> None:
    refused(project.inside(command, "nightly"), project, ["there is no database at", "`wtb run` creates one"])


class TestWithADatabase:
    """Refusals that need an existing sweep, which they do not change."""

    @pytest.fixture
    def ran(self, project: Project) -> Project:
        project.write({"sweep.yaml": sweep()})
        project.inside("run", "sweep.yaml", "--limit", "1", check=0)
        return project

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (
                ["matrix", "sweeep"],
                [sentence("there is no sweep {}", "'sweeep'"), sentence("did you mean '{}'?", "sweep")],
            ),
            (["resume", "sweep", "--limits", "usd"], [sentence("--limits {}: expected KEY=VALUE", "'usd'")]),
            (
                ["resume", "sweep", "--limits", "used=3"],
                ["--limits", sentence("'{}' is not known", "limits.used") + sentence("; did you mean '{}'?", "usd")],
            ),
            (
                ["retry", "sweep", "--limits", "usd=-3"],
                ["--limits", sentence("{} is {}; expected more than 0", "'limits.usd'", "-3")],
            ),
            (["score", "sweep"], [sentence("no evaluator is given")]),
            (
                ["score", "sweep", "--evaluate", "latencyy"],
                [sentence("no evaluator {}", "'latencyy'") + sentence("; did you mean '{}'?", "latency")],
            ),
            (["run", "sweep.yaml", "--case", "c99"], [sentence("there is no case {}", "'c99'")]),
        ],
        ids=lambda argument: " ".join(argument) if argument[0] in ("matrix", "resume", "retry", "score", "run") else "",
    )
    def test_it_is_refused(self, ran: Project, args: list[str], words: list[str]) -> None:
        before = ran.query("SELECT id, status FROM sweeps"), ran.query("SELECT count(*) FROM events")
        done = ran.inside(*args)
        assert (done.code, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr
        for text in words:
            assert text in done.output, done.stderr
        assert (ran.query("SELECT id, status FROM sweeps"), ran.query("SELECT count(*) FROM events")) == before

    @pytest.mark.parametrize("args", [["run", "sweep.yaml"], ["matrix", "sweep"], ["resume", "sweep"]], ids=" ".join)
    def test_a_database_of_another_version_says_what_to_do(self, ran: Project, args: list[str]) -> None:
        ran.change("UPDATE alembic_version SET version_num = '9999'")
        done = ran.inside(*args)
        assert (done.code, done.stdout) == (2, "")
        assert sentence("is of version {}", "9999") in done.output
        assert sentence("use the newer WTB that made it") in done.output
        assert len(ran.query("SELECT id FROM sweeps")) == 1


@pytest.mark.parametrize("args", [["run", "sweep.yaml"], ["matrix", "first"], ["resume", "first"]], ids=" ".join)
def test_a_server_out_of_reach_is_told_quickly_and_without_its_password(project: Project, args: list[str]) -> None:
    with socket.socket() as bound:  # bound and never listened to: connections are refused
        bound.bind(("127.0.0.1", 0))
        url = f"postgresql://me:hush@127.0.0.1:{bound.getsockname()[1]}/bench"
        started = time.monotonic()
        done = project.inside(*args, "--db", url)
    assert time.monotonic() - started < 6
    assert (done.code, done.stdout) == (4, "")
    assert "Traceback" not in done.stderr
    assert "hush" not in done.stderr
    assert "me:***@127.0.0.1" in done.output
    assert "refused" in done.output


def test_a_file_that_is_no_database_is_left_as_it_is(project: Project) -> None:
    before = (project.folder / "flow.py").read_bytes()
    for url, message in (("sqlite:///flow.py", "file is not a database"), ("sqlite:///flow.py/x.db", "cannot be made")):
        done = project.inside("run", "sweep.yaml", "--db", url)
        assert (done.code, done.stdout) == (4, "")
        assert f"error: database {url}: " in done.output
        assert message in done.output
        assert len(done.stderr.splitlines()) == 1
    assert (project.folder / "flow.py").read_bytes() == before


@pytest.mark.parametrize(
    ("expression", "message"),
    [("lambda: 1", "function"), ("'\\ud800'", "surrogate"), ("object()", "object"), ("{'deep': [print]}", "function")],
)
def test_state_that_cannot_be_stored_fails_the_node_that_wrote_it(
    project: Project, expression: str, message: str
) -> None:
    code = f"""
from wtb import END, Workflow
wf = Workflow("w")
@wf.node
def first(state): return {{"y": 1}}
@wf.node
def second(state): return {{"odd": {expression}}}
@second.variant("fine")
def _(state): return {{"odd": 1}}
wf.entry(first)
wf.edge(first, second)
wf.edge(second, END)
"""
    project.write({"other.py": code, "sweep.yaml": sweep(workflow="other:wf", vary="{second: all}")})
    done = project.inside("run", "sweep.yaml", "--limit", "1", "--format", "json", check=1)
    assert (done.json["cells"]["succeeded"], done.json["cells"]["failed"]) == (1, 1)
    ((failure,),) = project.query("SELECT failure FROM cells WHERE status = 'failed'")
    assert "node 'second' key 'odd' cannot be stored" in failure
    assert message in failure

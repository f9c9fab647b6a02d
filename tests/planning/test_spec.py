"""The sweep file: keys, defaults and errors."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.config.field_types import is_import_path, variant_name
from wtb.core.errors import InputError
from wtb.core.tree.combinations import Random
from wtb.planning.sweep_spec import EvaluatorRef, SweepSpec, VariantRef, load_spec, parse_spec

LEAST: dict[str, Any] = {"workflow": "a.b:wf", "cases": "cases.jsonl", "vary": {"answer": "all"}}

FULL = """\
sweep: rag-nightly
project: search
session: team
workflow: examples.retrieval.workflow:wf
params: {model: small}
cases: cases.jsonl
vary:
  retrieve: [default, bm25, {name: wide, k: 50}]
  answer: all
exclude: [{retrieve: bm25, answer: terse}]
combinations: grid
repeats: 3
seed: 0
baseline: {retrieve: default}
evaluate: [exact_match: {field: answer}, latency, cost, "examples.retrieval.scores:ndcg"]
limits:
  {cell_timeout: 60s, node_runs: 5000, usd: 5, tokens: 100000, wall: 1h, nodes: {answer: {usd: 1}}, judging: {usd: 2}}
run:
  concurrency: 8
  pool: process
  rlimits: {memory: 4GB, files: 256, file_size: 100MB, processes: 20}
  recycle: {runs: 500, memory: 200MB}
  workspace: {size: 50GB, stored: null, entries: 100}
  set_aside_after: 2
  durability: 20ms
  share: true
  env: [HOME]
  grace: 2m
  priority: 5
"""


def parsed(**changes: Any) -> SweepSpec:
    return parse_spec(LEAST | changes)


def refusals(**changes: Any) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        parse_spec(LEAST | changes)
    assert all("\n" not in problem for problem in caught.value.problems)
    return caught.value.problems


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    path = tmp_path / "rag.sweep.yaml"
    path.write_text(FULL)
    return path


def file_refusals(path: Path, text: str) -> tuple[str, ...]:
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_spec(path)
    return tuple(problem.removeprefix(f"{path}:") for problem in caught.value.problems)


def test_every_key_of_the_file_is_read(sweep_file: Path) -> None:
    spec = load_spec(sweep_file)
    assert (spec.sweep, spec.project, spec.session) == ("rag-nightly", "search", "team")
    assert spec.workflow == "examples.retrieval.workflow:wf"
    assert (spec.params, spec.cases) == ({"model": "small"}, "cases.jsonl")
    assert spec.exclude == ({"retrieve": ("bm25",), "answer": ("terse",)},)
    assert (spec.combinations, spec.repeats, spec.seed) == ("grid", 3, 0)
    assert spec.baseline == {"retrieve": "default"}
    limits = spec.limits.model_dump(exclude_none=True)
    assert limits.pop("nodes") == {"answer": {"usd": 1}}
    assert limits.pop("judging") == {"usd": 2}
    assert limits == {"cell_timeout": 60, "node_runs": 5000, "usd": 5, "tokens": 100_000, "wall": 3600}
    assert spec.run.model_dump() == {
        "concurrency": 8,
        "per_process": None,
        "pool": "process",
        "rlimits": {"memory": 4 * 10**9, "files": 256, "file_size": 10**8, "processes": 20},
        "recycle": {"runs": 500, "memory": 2 * 10**8},
        "workspace": {"size": 50_000_000_000, "stored": None, "entries": 100},
        "set_aside_after": 2,
        "durability": 0.02,
        "share": True,
        "env": ("HOME",),
        "grace": 120,
        "priority": 5,
        "approval": None,
        "mode": None,
        "checkpoints": "coarse",
        "stall": None,
        "provider_wait": 900.0,
        "free_hosts": (),
    }


def test_every_key_has_a_default_but_workflow_cases_and_vary() -> None:
    spec = parsed()
    assert (spec.project, spec.session, spec.params, spec.exclude, spec.baseline) == (None, None, {}, (), {})
    assert (spec.combinations, spec.repeats, spec.seed, spec.evaluate) == ("grid", 1, 0, ())
    assert spec.limits.model_dump(exclude_none=True) == {"nodes": {}, "judging": {}}
    assert (spec.run.durability, spec.run.share, spec.run.env) == (0.02, True, None)
    assert (spec.run.pool, spec.run.set_aside_after) == (None, 3)
    assert spec.run.rlimits.model_dump() == {"memory": None, "files": None, "file_size": None, "processes": 500}
    assert spec.run.recycle.model_dump() == {"runs": 10_000, "memory": 10**9}


def test_a_sweep_has_the_name_and_the_folder_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "rag.sweep.yaml"
    path.write_text("workflow: a:b\ncases: c.csv\nvary: {x: all}\n")
    assert (load_spec(path).sweep, load_spec(path).folder) == ("rag", tmp_path)
    assert parsed().folder == Path()


def test_a_spec_cannot_be_changed_and_what_it_dumps_is_read_back_as_the_same(sweep_file: Path) -> None:
    spec = load_spec(sweep_file)
    assert parse_spec(spec.model_dump(mode="json")) == spec
    with pytest.raises(ValueError, match="frozen"):
        spec.repeats = 2
    drawn = parsed(
        combinations={"random": {"n": 3}},
        vary={"a": ["a.b:fn", {"name": "w", "of": "x", "k": 1}]},
        run={"durability": "sync"},
        evaluate=["cost", {"regex": {"pattern": "x"}}],
    )
    assert parse_spec(drawn.model_dump(mode="json")) == drawn


@pytest.mark.parametrize("written", [0, "-5s", "fast", "1e5s", True, [], float("nan"), 10**400, "999d", "1:30"])
def test_durations_that_are_not_positive_or_not_durations_are_refused(written: object) -> None:
    (problem,) = refusals(limits={"wall": written})
    assert "expected a positive duration" in problem


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ("params.tool.client", {"params": {"tool": {"client": Path}}}),
        ("params.ids[1]", {"params": {"ids": [1, {1, 2}]}}),
        ("vary.a[0]", {"vary": {"a": [{"name": "b", "with": "m:f", "client": object()}]}}),
    ],
)
def test_an_object_among_parameters_is_refused_where_it_stands(key: str, keys: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"has an object of .*; expected text, a number") as refused:
        parse_spec({"workflow": "m:w", "cases": [], "vary": {"a": "all"}, **keys})

    assert key in str(refused.value)


def test_the_pool_is_of_processes_or_threads() -> None:
    assert parsed(run={"pool": "thread"}).run.pool == "thread"
    assert refusals(run={"pool": "fork"}) == ("'run.pool' is 'fork'; expected 'process' or 'thread'",)


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        ({"rlimits": {"memory": "lots"}}, "'run.rlimits.memory' is 'lots'; expected a positive size, such as 500MB"),
        ({"rlimits": {"files": 0}}, sentence("{} is {}; expected at least 1", "'run.rlimits.files'", 0)),
        ({"rlimits": {"file_sise": 1}}, "key 'run.rlimits.file_sise' is not known; did you mean 'file_size'?"),
        ({"recycle": {"runs": 0}}, sentence("{} is {}; expected at least 1", "'run.recycle.runs'", 0)),
        ({"recycle": {"after": 3}}, sentence("key '{}' is not known", "run.recycle.after")),
        ({"set_aside_after": 0}, sentence("{} is {}; expected at least 1", "'run.set_aside_after'", 0)),
        ({"env": ["HOME", 3]}, "'run.env"),
        ({"env": ["WTB_DATABASE_URL"]}, "'run.env[0]' has WTB_DATABASE_URL; nodes never see a credential"),
        ({"env": ["HOME", "WTB_BROKER_URL"]}, "'run.env[1]' has WTB_BROKER_URL"),
        *(({"env": [name]}, f"'run.env[0]' has {name}") for name in ("FLOWER_BASIC_AUTH", "WTB_CREDENTIALS")),
    ],
)
def test_what_node_processes_cannot_be_given_is_refused_by_name(run: dict[str, Any], problem: str) -> None:
    (refusal,) = refusals(run=run)
    assert refusal.startswith(problem)


def test_a_variant_is_a_name_an_import_path_or_a_mapping() -> None:
    spec = parsed(
        vary={
            "a": [
                "bm25",
                "pkg.mod:fast",
                {"name": "wide", "k": 50},
                {"name": "mine", "with": "pkg.mod:other", "k": 1},
                {"name": "deep", "of": "bm25", "k": 9},
            ]
        }
    )
    assert spec.vary["a"] == (
        VariantRef(name="bm25"),
        VariantRef(name="fast", source="pkg.mod:fast"),
        VariantRef(name="wide", params={"k": 50}),
        VariantRef(name="mine", source="pkg.mod:other", params={"k": 1}),
        VariantRef(name="deep", of="bm25", params={"k": 9}),
    )
    assert [isinstance(ref, VariantRef) and ref.is_own for ref in spec.vary["a"]] == [True] + [False] * 4


def test_a_variant_named_no_stays_a_name(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("workflow: a:b\ncases: c.csv\nvary: {x: [on, no, off]}\n")
    assert load_spec(path).vary["x"] == tuple(VariantRef(name=name) for name in ("on", "no", "off"))


def test_a_variant_given_as_an_import_path_goes_by_its_function_everywhere() -> None:
    spec = parsed(vary={"a": ["p.q:f", "x"]}, baseline={"a": "p.q:f"}, exclude=[{"a": "p.q:f"}])
    assert (spec.baseline, spec.exclude) == ({"a": "f"}, ({"a": ("f",)},))
    assert variant_name("p.q:C.make") == "make"
    assert variant_name("gpt:4") == "gpt:4"
    assert not is_import_path("gpt:4")


def test_two_variants_of_one_name_are_refused() -> None:
    assert refusals(vary={"a": ["x", "p.q:y", {"name": "y"}]}) == (
        sentence("{} a second time; expected each once", "'vary.a[2]' has 'y'"),
    )


@pytest.mark.parametrize(
    ("vary", "problem"),
    [
        ({}, "'vary' is an empty mapping; expected at least one entry"),
        ({"a": []}, "'vary.a' is an empty list; expected at least one entry"),
        ({"a": "al"}, "'vary.a' is 'al'; expected the word 'all', a list of variants or a grid"),
        ({"a": None}, "'vary.a' is nothing; expected the word 'all', a list of variants or a grid"),
        ({"a": [3]}, "'vary.a[0]' is 3; expected the name of a variant, an import path"),
        ({"a": [{"k": 3}]}, "'vary.a[0]' has no 'name'; expected the name of the variant"),
        ({"a": [{"name": 3}]}, "'vary.a[0].name' is 3; expected a name"),
        ({"a": [{"name": "x", "with": "f"}]}, sentence("{}; expected an import path", "'vary.a[0].with' is 'f'")),
        ({"a": [{"name": "x", "with": "p:f", "of": "y"}]}, "'vary.a[0]' has both 'with' and 'of'"),
        ({"a": ["x\ny"]}, r"'vary.a[0].name' is 'x\ny'; expected a name"),
        ({"a": ["x"] * 10_001}, "'vary.a' is a list of 10001; expected at most 10,000 entries"),
    ],
)
def test_what_cannot_be_varied_is_refused(vary: object, problem: str) -> None:
    (refusal,) = refusals(vary=vary)
    assert refusal.startswith(problem)


def test_an_evaluator_is_a_name_an_import_path_or_a_name_with_options() -> None:
    assert parsed(evaluate=["latency", {"exact_match": {"field": "a"}}, "p.q:ndcg", {"regex": None}]).evaluate == (
        EvaluatorRef(name="latency"),
        EvaluatorRef(name="exact_match", options={"field": "a"}),
        EvaluatorRef(name="p.q:ndcg"),
        EvaluatorRef(name="regex"),
    )


@pytest.mark.parametrize("evaluator", [3, None, {"a": {}, "b": {}}, {}, ["a"]])
def test_what_is_no_evaluator_is_refused(evaluator: object) -> None:
    (problem,) = refusals(evaluate=[evaluator])
    assert problem.startswith("'evaluate[0]' is ")
    assert "expected a name, an import path 'pkg.mod:fn', or one name with a mapping of options" in problem


def test_the_same_evaluator_may_come_twice_with_other_options_only() -> None:
    assert len(parsed(evaluate=[{"contains": {"field": "a"}}, {"contains": {"field": "b"}}]).evaluate) == 2
    assert refusals(evaluate=["cost", "cost"]) == (
        sentence("{} a second time; expected each once", "'evaluate[1]' has 'cost'"),
    )


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        ("grid", "grid"),
        ("one-at-a-time", "one-at-a-time"),
        ({"random": {"n": 20, "seed": 7}}, Random(20, 7)),
        ({"random": {"n": 20}}, Random(20, 0)),
        ([{"answer": "x"}], ({"answer": "x"},)),
    ],
)
def test_combinations_are_a_word_a_draw_or_a_list(written: object, mode: object) -> None:
    assert parsed(combinations=written).mode == mode


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("gird", "'combinations' is 'gird'; expected grid, one-at-a-time, random:"),
        (3, sentence("'{}' is {}; expected {}", "combinations", 3, "grid")),
        ([], "'combinations' is an empty list; expected at least one entry"),
        ([{}], "'combinations[0]' is an empty mapping; expected at least one entry"),
        ([{"a": 1}], "'combinations[0].a' is 1; expected a name"),
        ({"random": 3}, "'combinations.random' is 3; expected a mapping"),
        ({"random": {"n": 0}}, sentence("{} is {}; expected at least 1", "'combinations.random.n'", 0)),
        ({"random": {}}, "key 'combinations.random.n' is missing; expected how many"),
        ({"random": {"n": 1, "sed": 1}}, "key 'combinations.random.sed' is not known; did you mean 'seed'?"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(written: object, problem: str) -> None:
    (refusal,) = refusals(combinations=written)
    assert refusal.startswith(problem)


def test_exclude_names_one_variant_or_several_for_a_node() -> None:
    assert parsed(exclude=[{"a": "x", "b": ["y", "z"]}]).exclude == ({"a": ("x",), "b": ("y", "z")},)


@pytest.mark.parametrize("rule", [{}, {"a": []}, {"a": 1}, "x", {"a": [1]}])
def test_empty_or_shapeless_exclusions_are_refused(rule: object) -> None:
    (problem,) = refusals(exclude=[rule])
    assert problem.startswith("'exclude[0]")
    assert "; expected " in problem


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"repeats": 0}, sentence("{} is {}; expected at least 1", "'repeats'", 0)),
        ({"repeats": True}, sentence("{}; expected a whole number", "'repeats' is true")),
        (
            {"repeats": 10**30},
            "'repeats' is 1000000000000000000000000000000; expected at most 9223372036854775807",
        ),
        ({"seed": 1.5}, sentence("{}; expected a whole number", "'seed' is 1.5")),
        ({"limits": {"usd": 0}}, sentence("{} is {}; expected more than 0", "'limits.usd'", 0)),
        ({"limits": {"usd": float("inf")}}, sentence("{} is {}; expected a finite number", "'limits.usd'", "inf")),
        ({"limits": None}, sentence("{}; expected a mapping", "'limits' is nothing")),
        ({"run": {"concurrency": 0}}, sentence("{} is {}; expected at least 1", "'run.concurrency'", 0)),
        ({"run": {"share": "true"}}, sentence("{} is {}; expected true or false", "'run.share'", "'true'")),
        ({"run": {"env": "HOME"}}, sentence("{} is {}; expected a list", "'run.env'", "'HOME'")),
        ({"cases": 3}, "'cases' is 3; expected a file, an import path 'pkg.mod:fn' or a list of cases"),
        ({"sweep": ""}, "'sweep' is ''; expected a name of 1 to 200 printable characters"),
        ({"params": []}, "'params' is an empty list; expected a mapping"),
    ],
)
def test_values_out_of_range_or_of_another_type_are_refused(changes: dict[str, Any], problem: str) -> None:
    assert refusals(**changes) == (problem,)


def test_a_server_of_tools_is_a_command_or_an_address_and_its_tools() -> None:
    spec = parsed(mcp={"files": {"command": ["python", "files.py"], "tools": ["read"], "timeout": "2m"}})
    assert spec.mcp["files"].tools == {"read": None}
    assert parse_spec(spec.model_dump(mode="json")) == spec


SECRET = "a text that would be kept with the sweep; expected a variable, as ${NAME}"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"tools": []}, "'mcp.files.tools' is an empty mapping; expected at least one entry"),
        ({"tools": "read"}, "'mcp.files.tools' is 'read'; expected a list of tools, or a mapping from tools to those"),
        ({"tools": [{"read": None}]}, "'mcp.files.tools' is a list of 1; expected a list of tools, or"),
        ({"tools": {"read": 3}}, "'mcp.files.tools.read' is 3; expected a name"),
        ({"command": "python files.py"}, "'mcp.files.command' is 'python files.py'; expected a list"),
        ({"command": []}, sentence("{} of 'command' and 'url'; expected one of them", "'mcp.files' has neither")),
        (
            {"url": "http://127.0.0.1:9/mcp"},
            sentence("{} of 'command' and 'url'; expected one of them", "'mcp.files' has both"),
        ),
        ({"command": [], "url": "file:///etc/passwd"}, "'mcp.files.url' is 'file:///etc/passwd'; expected an http or"),
        ({"command": [], "url": "http://ann:pw@[x"}, "'mcp.files.url' is "),
        ({"headers": {"X-Team": "a"}}, "'mcp.files' has 'headers' with a command; expected 'env'"),
        ({"env": {"API_KEY": "sk-1"}}, f"'mcp.files.env.API_KEY' has {SECRET}"),
        ({"env": {"WHERE": "${}"}}, "'mcp.files.env.WHERE' has '${' without a name"),
        (
            {"env": {"WHERE": "${WTB_DATABASE_URL}"}},
            "'mcp.files.env.WHERE' has WTB_DATABASE_URL, which is a credential",
        ),
        ({"timeout": 0}, "'mcp.files.timeout' is 0; expected a positive duration"),
        (
            {"tool": ["read"]},
            sentence("key '{}' is not known", "mcp.files.tool") + sentence("; did you mean '{}'?", "tools"),
        ),
    ],
)
def test_servers_of_tools_that_make_no_sense_are_refused(changes: dict[str, Any], problem: str) -> None:
    (refusal,) = refusals(mcp={"files": {"command": ["python", "files.py"], "tools": ["read"], **changes}})
    assert refusal.startswith(problem)


def test_a_server_of_tools_has_a_name_without_a_dot() -> None:
    (refusal,) = refusals(mcp={"my.files": {"command": ["python", "files.py"], "tools": ["read"]}})
    assert "expected a name without a dot" in refusal
    assert refusals(mcp={"files": {"command": ["x"]}}) == (
        "key 'mcp.files.tools' is missing; expected the tools that nodes may call",
    )


def test_a_missing_key_is_named_with_what_it_should_be() -> None:
    with pytest.raises(InputError) as caught:
        parse_spec({"vary": {"a": "all"}}, "Sweep()")
    assert caught.value.problems == (
        "Sweep(): key 'workflow' is missing; expected an import path 'pkg.mod:attr' or a registered name",
        "Sweep(): key 'cases' is missing; expected a file, an import path 'pkg.mod:fn' or a list of cases",
    )


def test_an_unknown_key_has_its_line_and_a_near_match(tmp_path: Path) -> None:
    text = "workflow: a:b\ncases: c.csv\nvary: {x: all}\nrun:\n  share: true\n  concurency: 8\n"
    assert file_refusals(tmp_path / "s.yaml", text) == (
        "6: " + sentence("key '{}' is not known", "run.concurency") + sentence("; did you mean '{}'?", "concurrency"),
    )


def test_a_key_in_the_wrong_section_is_told_where_it_belongs() -> None:
    assert refusals(concurrency=3) == (
        sentence("key '{}' is not known", "concurrency") + sentence("; expected under '{}'", "run"),
    )
    assert refusals(run={"repeats": 3}) == (
        sentence("key '{}' is not known", "run.repeats") + sentence("; expected at the top of the file"),
    )


def test_a_key_like_no_other_gets_the_list_of_keys() -> None:
    (problem,) = refusals(limits={"zzz": 3})
    names = "cell_timeout, node_runs, usd, tokens, wall, nodes, judging"
    assert problem == sentence("key '{}' is not known", "limits.zzz") + sentence("; expected one of: {}", names)


def test_all_problems_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "seed: x\nworkflow: 3\nvary:\n  a: [1]\n  b: []\ncases: c.csv\nrepeats: -1\nbaseline: []\n"
    problems = file_refusals(tmp_path / "s.yaml", text)
    assert [line.split(":")[0] for line in problems] == ["1", "2", "4", "5", "7", "8"]


def test_problems_fit_on_one_screen(tmp_path: Path) -> None:
    problems = file_refusals(tmp_path / "s.yaml", "\n".join(f"key{number}: 1" for number in range(5000)))
    assert len(problems) == 21
    assert problems[-1] == sentence("and {} more problems", "4,983")


def test_problems_found_later_name_the_line_too(sweep_file: Path) -> None:
    located = load_spec(sweep_file).located
    assert located.problem(("vary", "retrieve", 2), "no variant 'wide'") == f"{sweep_file}:8: no variant 'wide'"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (" failed == 0 ", "failed == 0"),
        ("no_worse_than:main", "no_worse_than: main"),
        ({"no_worse_than": "main"}, "no_worse_than: main"),
    ],
)
def test_a_gate_is_a_comparison_or_a_baseline(written: object, read: str) -> None:
    assert parsed(gates=[written]).gates == (read,)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("ndcg.mean >=", "'gates[0]' is 'ndcg.mean >='; expected METRIC.STATISTIC >= NUMBER, such as"),
        ("open('x') > 1", "expected METRIC.STATISTIC >= NUMBER, such as 'contains.mean >= 0.9', without"),
        ("no_worse_than:", sentence("expected a name of 1 to 200 printable characters")),
        ({"no_worse_than": "a", "b": 1}, sentence("expected {} such as", "a comparison")),
        (0.25, sentence("expected {} such as", "a comparison")),
    ],
)
def test_what_is_no_gate_is_refused(written: object, problem: str) -> None:
    (refusal,) = refusals(gates=[written])
    assert problem in refusal


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({}, sentence("neither of 'maximize' and 'minimize'; expected one of them")),
        ({"maximize": "a", "minimize": "b"}, sentence("both of 'maximize' and 'minimize'")),
        (
            {"maximise": "a"},
            sentence("key '{}' is not known", "best.maximise") + sentence("; did you mean '{}'?", "maximize"),
        ),
        ({"maximize": "a", "subject_to": "cost"}, "'best.subject_to' is 'cost'; expected METRIC.STATISTIC >="),
    ],
)
def test_best_names_one_metric_and_at_most_one_condition(written: object, problem: str) -> None:
    assert any(problem in refusal for refusal in refusals(best=written))


def test_a_margin_is_not_negative_and_a_number() -> None:
    assert parsed(margin={"ndcg": 0.02}).margin == {"ndcg": 0.02}
    (refusal,) = refusals(margin={"ndcg": -0.1})
    assert refusal == "'margin.ndcg' is -0.1; expected at least 0"
    (refusal,) = refusals(margin={"ndcg": float("nan")})
    assert refusal == sentence("{} is {}; expected a finite number", "'margin.ndcg'", "nan")


def test_the_earlier_name_of_margin_is_refused_with_the_new_one() -> None:
    assert refusals(tolerance={"ndcg": 0.02}) == ("key 'tolerance' is called 'margin' now",)

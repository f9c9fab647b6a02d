"""`wtb init --from` of a configuration as promptfoo's users have one: it runs with a key, against a provider."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.support.model_provider import model_provider
from tests.support.prose import sentence

if TYPE_CHECKING:
    from tests.support.project import Project

CONFIG = """
description: parcels
prompts:
  - file://prompts/plain.txt
  - {id: file://prompts/kind.txt, label: Kind words}
  - file://prompts/terse.md
providers:
  - {id: "openai:gpt-4o-mini", config: {temperature: 0, max_tokens: 50}}
  - {id: "openai:chat:gpt-4o", label: large, config: {temperature: 0.7, apiBaseUrl: "http://localhost:9"}}
  - openai:gpt-4.1
  - exec:./own.sh
defaultTest:
  assert: [{type: latency, threshold: 60000}]
tests: file://tests.csv
"""
FILES = {
    "promptfooconfig.yaml": CONFIG,
    "prompts/plain.txt": "Answer {{question}}\n",
    "prompts/kind.txt": "Be kind to {{name}}. {{question}}\n",
    "prompts/terse.md": "{{question}} In one word.\n",
    "tests.csv": (
        "question,name,__expected,__expected2,__description\n"
        "Where is my parcel?,Ana,icontains: parcel,javascript: output.length < 500,first\n"
        '"What is 6 times 7?",Bo,contains: 7,,\n,,,,\n'
    ),
}


@pytest.fixture
def parcels(empty_project: Project) -> Project:
    for name in FILES:
        (empty_project.folder / name).parent.mkdir(parents=True, exist_ok=True)
    empty_project.write(FILES)
    return empty_project


def test_prompts_and_providers_are_factors_and_the_rest_is_named(parcels: Project) -> None:
    done = parcels.inside("init", "demo", "--from", "promptfooconfig.yaml", check=0)
    omitted = [line.split("left out: ")[1] for line in done.stderr.splitlines() if "left out: " in line]
    assert omitted == [
        "description",
        "providers[1].label",
        "providers[1].config.apiBaseUrl",
        "providers[3]: 'exec:./own.sh'",
        "tests[0].description",
        "tests[0].assert[1]: 'javascript'",
    ]
    assert sentence("{}wtb run sweep.yaml", "next: cd demo && ") in done.output
    sweep = yaml.safe_load((parcels.folder / "demo" / "sweep.yaml").read_text("utf-8"))
    prompts = [f"file://imported_prompts/{name}.txt" for name in ("plain", "Kind_words", "terse")]
    assert sweep["vary"] == {
        "answer": [
            {"prompt": prompts, "model": ["gpt-4o-mini"], "temperature": [0], "max_tokens": [50]},
            {"prompt": prompts, "model": ["gpt-4o"], "temperature": [0.7]},
            {"prompt": prompts, "model": ["gpt-4.1"]},
        ]
    }
    assert (parcels.folder / "demo" / "imported_prompts" / "Kind_words.txt").read_text("utf-8").startswith("Be kind to")
    cases = [json.loads(line) for line in (parcels.folder / "demo" / "cases.jsonl").read_text("utf-8").splitlines()]
    assert [case["input"]["name"] for case in cases] == ["Ana", "Bo"]


def test_it_runs_with_a_key_and_asks_each_model_with_its_settings(parcels: Project) -> None:
    parcels.inside("init", "--force", "--from", "promptfooconfig.yaml", check=0)
    with model_provider() as provider:
        env = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": f"{provider.url}/v1"}
        parcels.wtb("run", "sweep.yaml", "--quiet", env=env, check=0)
    assert len(parcels.json("matrix", "sweep")["rows"]) == 9
    assert parcels.query("SELECT count(*) FROM cells WHERE status = 'succeeded'") == [(18,)]
    calls = parcels.query("SELECT model, count(*) FROM calls GROUP BY model")
    assert sum(count for _, count in calls) == 18


CHATS = """
prompts:
  - {id: file://chat.json, label: Two roles}
  - {id: file://chat.yaml, config: {x: 1}}
  - '[{"role":"user","content":"In one word: {{question}}"}]'
  - "[INST] {{question}}"
  - '[{"role": "user", "content": {{question}}}]'
  - '[{"role": "user", "content": [{"type": "text", "text": "{{question}}"}]}]'
  - {raw: "[INST] {{question}}", label: same}
providers:
  - openai:gpt-4o-mini
  - {id: "openai:gpt-4o-mini", label: again}
tests: [{vars: {question: 'Is "this" quoted?'}, assert: [{type: contains, value: x}]}]
"""


def test_chats_are_sent_as_messages_and_what_is_no_chat_is_named(empty_project: Project) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "{{question}}"}]
    empty_project.write({"config.yaml": CHATS, "chat.json": json.dumps(chat), "chat.yaml": yaml.safe_dump(chat[1:])})
    done = empty_project.inside("init", "--from", "config.yaml", check=0)
    omitted = [line.split("left out: ")[1] for line in done.stderr.splitlines() if "left out: " in line]
    expected = "expected a list of messages, each with a role and a content that is text"
    assert [line.replace("...", "") for line in omitted[:1]] == ["prompts[1].config"]
    assert omitted[1].startswith("prompts[4]: ")
    assert sentence("no JSON until its variables are filled in; {}", expected) in omitted[1]
    assert omitted[2].startswith("prompts[5]: ")
    assert expected in omitted[2]
    assert omitted[3:] == [
        sentence("prompts: {} has the same text as {}", "'same'", "prompt_4"),
        "providers[1].label",
        sentence("{}: the same model and settings as those of another provider", "providers[1]"),
    ]
    sweep = yaml.safe_load((empty_project.folder / "sweep.yaml").read_text("utf-8"))
    (grid,) = sweep["vary"]["answer"]
    assert [name.rpartition("/")[2] for name in grid["prompt"]] == [
        "Two_roles.json",
        "chat.json",
        "prompt_3.json",
        "prompt_4.txt",
    ]
    with model_provider() as provider:
        env = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": f"{provider.url}/v1"}
        empty_project.wtb("run", "sweep.yaml", "--quiet", env=env, check=0)
    assert empty_project.query("SELECT count(*) FROM cells WHERE status = 'succeeded'") == [(4,)]
    documents = [
        empty_project.text("show", str(id), "--calls", "--format", "json")
        for (id,) in empty_project.query("SELECT id FROM executions")
    ]
    calls = "".join(documents)
    assert calls.count("Be brief.") == 1
    assert "{{question}}" not in calls
    assert calls.count("quoted?") >= 4

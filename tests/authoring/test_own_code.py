"""Code beside a workflow is part of it: modules, base classes, registries, prompts and scripts."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.prose import sentence
from wtb.authoring.code.fingerprint import code_of
from wtb.authoring.code.walk import Code

Files = Mapping[str, str | bytes]
Load = Callable[..., Code]

FLOW = """
import functools, importlib, json, os, subprocess
from pathlib import Path
import lib
from lib import *
from lib import Base, CONST, TABLE, helper
import plugins
HERE = Path(__file__).parent
{top}

def node(state):
    {before}
    return {{"y": {body}}}
"""

LIB = """
import functools
from dataclasses import dataclass, field
from enum import Enum
import sub
from pkg import deeper

CONST = 1
TABLE = {"a": [1]}
DOUBLE = CONST * 2

class Base:
    rate = 1
    def go(self):
        return self.rate + sub.deep()

class Child(Base):
    pass

def helper():
    return CONST

def factory(n):
    def made():
        return n
    return made

made = factory(1)

def add(a, b):
    return a + b

PART = functools.partial(add, 1)
LAMBDA = lambda: 1

def deco(f):
    @functools.wraps(f)
    def g(*a, **kw):
        return f(*a, **kw)
    return g

@deco
def decorated():
    return 1

def default(a=1):
    return a

def kwonly(*, a=1):
    return a

def computed_default(a=add(1, 1)):
    return a

class Meta(type):
    def __call__(cls, *a):
        return super().__call__(*a)

class Made(metaclass=Meta):
    pass

REGISTRY = {"f": helper}
PLUGINS = {}

def register(f):
    PLUGINS[f.__name__] = f
    return f

class Prop:
    @property
    def v(self):
        return 1
    @functools.cached_property
    def w(self):
        return 1
    @staticmethod
    def s():
        return 1
    @classmethod
    def c(cls):
        return 1

class Colour(Enum):
    RED = 1

@dataclass
class Options:
    size: int = 1
    rows: list = field(default_factory=lambda: sub.rows())

OPTIONS = Options()
ROWS = [1, 2]
ROWS.append(3)

def relative():
    from pkg import deeper
    return deeper.deepest()
"""

FILES: Files = {
    "lib.py": LIB,
    "sub.py": "def deep():\n    return 1\n\ndef rows():\n    return [1]\n",
    "plugins.py": "import lib\n\n@lib.register\ndef plugged():\n    return 1\n",
    "pkg/__init__.py": "",
    "pkg/deeper.py": (
        "from .deepest import LIMIT\nfrom . import prompts\n\ndef deepest():\n    return LIMIT, prompts.ASK\n"
    ),
    "pkg/deepest.py": "LIMIT = 1\n",
    "pkg/prompts.py": "from pathlib import Path\nASK = (Path(__file__).parent / 'ask.txt').read_text()\n",
    "pkg/ask.txt": "one",
    "prompt.txt": "one",
    "prompts/v1.md": "one",
    "prompts/v2.md": "two",
    "agent.sh": "echo one",
    "lazy.py": "from sub import deep\n\ndef go():\n    return deep()\n",
}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Write a project to a new folder, with files replaced, import `flow` from it and return the code of `node`."""
    count = 0
    names = {"flow", *(file.partition("/")[0].removesuffix(".py") for file in FILES)}

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] in names]:
            del sys.modules[name]

    def write(body: str = "1", *, before: str = "pass", top: str = "", files: Files | None = None) -> Code:
        nonlocal count
        count += 1
        flow = FLOW.format(body=body, before=before, top=top)
        root = tmp_path / f"project{count}"
        for name, content in {**FILES, "flow.py": flow, **(files or {})}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        forget()
        importlib.invalidate_caches()
        with monkeypatch.context() as patch:
            patch.syspath_prepend(root)
            patch.setattr(sys, "dont_write_bytecode", True)
            code = code_of(importlib.import_module("flow").node)
            forget()
        return code

    yield write
    forget()


def edited(old: str, new: str, file: str = "lib.py") -> Files:
    content = FILES[file]
    assert isinstance(content, str)
    assert old in content
    return {file: content.replace(old, new)}


CHANGES = {
    "helper": ("helper()", edited("return CONST\n", "return CONST + 1\n"), "lib:helper"),
    "constant of a helper": ("helper()", edited("CONST = 1", "CONST = 2"), "lib:CONST"),
    "constant": ("CONST", edited("CONST = 1", "CONST = 2"), "lib:CONST"),
    "constant of a constant": ("lib.DOUBLE", edited("CONST * 2", "CONST * 3"), "lib:DOUBLE"),
    "name of a star import": ("DOUBLE", edited("CONST * 2", "CONST * 3"), "lib:DOUBLE"),
    "module attribute": ("lib.CONST", edited("CONST = 1", "CONST = 2"), "lib:CONST"),
    "table": ("TABLE['a'][0]", edited("[1]}", "[2]}"), "lib:TABLE"),
    "table that is added to": ("lib.ROWS", edited("append(3)", "append(4)"), "lib:ROWS"),
    "base class": ("lib.Child().go()", edited("    rate = 1", "    rate = 2"), "lib:Base"),
    "two modules away": ("lib.Child().go()", edited("return 1\n", "return 2\n", "sub.py"), "sub:deep"),
    "closure": ("lib.made()", edited("made = factory(1)", "made = factory(2)"), "lib:made"),
    "code of a closure": ("lib.made()", edited("        return n\n", "        return -n\n"), "lib:factory"),
    "partial": ("lib.PART(1)", edited("partial(add, 1)", "partial(add, 2)"), "lib:PART"),
    "function of a partial": ("lib.PART(1)", edited("return a + b", "return a - b"), "lib:add"),
    "lambda": ("lib.LAMBDA()", edited("lambda: 1", "lambda: 2"), "lib:<lambda>"),
    "default": ("lib.default()", edited("def default(a=1)", "def default(a=2)"), "lib:default"),
    "keyword default": ("lib.kwonly()", edited("def kwonly(*, a=1)", "def kwonly(*, a=2)"), "lib:kwonly"),
    "computed default": ("lib.computed_default()", edited("return a + b", "return a - b"), "lib:add"),
    "registry": ("lib.REGISTRY['f']()", edited('"f": helper', '"f": default'), "lib:default"),
    "function of a registry": ("lib.REGISTRY['f']()", edited("return CONST\n", "return 5\n"), "lib:helper"),
    "function registered elsewhere": (
        "lib.PLUGINS['plugged']()",
        edited("    return 1", "    return 2", "plugins.py"),
        "plugins:plugged",
    ),
    "decorator": ("lib.decorated()", edited("return f(*a, **kw)", "return -f(*a, **kw)"), "lib:deco.<locals>.g"),
    "decorated function": (
        "lib.decorated()",
        edited("def decorated():\n    return 1", "def decorated():\n    return 2"),
        "lib:decorated",
    ),
    "property": (
        "lib.Prop().v",
        edited("def v(self):\n        return 1", "def v(self):\n        return 2"),
        "lib:Prop",
    ),
    "cached property": (
        "lib.Prop().w",
        edited("def w(self):\n        return 1", "def w(self):\n        return 2"),
        "lib:Prop",
    ),
    "static method": ("lib.Prop.s()", edited("def s():\n        return 1", "def s():\n        return 2"), "lib:Prop"),
    "class method": (
        "lib.Prop.c()",
        edited("def c(cls):\n        return 1", "def c(cls):\n        return 2"),
        "lib:Prop",
    ),
    "metaclass": ("lib.Made()", edited("super().__call__(*a)", "super().__call__(*a) or 1"), "lib:Meta"),
    "enum": ("lib.Colour.RED.value", edited("RED = 1", "RED = 2"), "lib:Colour"),
    "field of a dataclass": ("lib.Options().size", edited("size: int = 1", "size: int = 2"), "lib:Options"),
    "default of a dataclass": ("lib.Options().rows", edited("return [1]", "return [2]", "sub.py"), "sub:rows"),
    "object of a class": ("lib.OPTIONS.size", edited("size: int = 1", "size: int = 2"), "lib:Options"),
    "package": ("lib.deeper.deepest()", edited("LIMIT = 1", "LIMIT = 2", "pkg/deepest.py"), "pkg.deepest:LIMIT"),
    "relative import in a function": (
        "lib.relative()",
        edited("LIMIT = 1", "LIMIT = 2", "pkg/deepest.py"),
        "pkg.deepest:LIMIT",
    ),
    "name in a string": ("getattr(lib, 'helper')()", edited("return CONST\n", "return 5\n"), "lib:helper"),
    "computed name": ("getattr(lib, state['n'])()", edited("return CONST\n", "return 5\n"), "lib:helper"),
    "module by its name": (
        "importlib.import_module('lazy').go()",
        edited("return 1\n", "return 2\n", "sub.py"),
        "sub:deep",
    ),
    "file read at import, two modules away": ("lib.deeper.deepest()", {"pkg/ask.txt": "two"}, "file pkg/ask.txt"),
    "file read by a node": ("(HERE / 'prompt.txt').read_text()", {"prompt.txt": "two"}, "file prompt.txt"),
    "file opened by a node": ("open(HERE / 'prompt.txt').read()", {"prompt.txt": "two"}, "file prompt.txt"),
    "file by os.path": (
        "open(os.path.join(os.path.dirname(__file__), 'prompt.txt')).read()",
        {"prompt.txt": "two"},
        "file prompt.txt",
    ),
    "file by a name": (
        "(HERE / 'prompts' / f\"{state['v']}.md\").read_text()",
        {"prompts/v2.md": "three"},
        "file prompts/v2.md",
    ),
    "new file of a folder": (
        "[p.read_text() for p in (HERE / 'prompts').glob('*.md')]",
        {"prompts/v3.md": "three"},
        "file prompts/v3.md",
    ),
    "script": ("subprocess.run(['bash', HERE / 'agent.sh'])", {"agent.sh": "echo two"}, "script agent.sh"),
    "script by its name": ("subprocess.run(['./agent.sh'])", {"agent.sh": "echo two"}, "script agent.sh"),
    "script in a command": (
        "subprocess.run('bash agent.sh --fast', shell=True)",
        {"agent.sh": "echo two"},
        "script agent.sh",
    ),
}


def changed(before: Code, after: Code) -> set[str]:
    return {
        name for name in before.parts.keys() | after.parts.keys() if before.parts.get(name) != after.parts.get(name)
    }


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_a_node_uses_is_seen_and_named(load: Load, name: str) -> None:
    body, files, label = CHANGES[name]

    before, unchanged, after = load(body), load(body), load(body, files=files)

    assert before == unchanged
    assert before.fingerprint != after.fingerprint
    assert label in changed(before, after)


def test_a_change_of_a_module_that_is_imported_in_the_node_is_seen(load: Load) -> None:
    imports = ["import lazy", "from lazy import go", "import lazy as other", "from pkg import deeper"]
    bodies = ["lazy.go()", "go()", "other.go()", "deeper.deepest()"]
    files = [*[edited("return 1\n", "return 2\n", "sub.py")] * 3, edited("LIMIT = 1", "LIMIT = 2", "pkg/deepest.py")]
    for line, body, change in zip(imports, bodies, files, strict=True):
        assert load(body, before=line).fingerprint != load(body, before=line, files=change).fingerprint, line


def test_a_file_read_at_import_is_seen(load: Load) -> None:
    top = "PROMPT = (HERE / 'prompt.txt').read_text()"

    before, after = load("PROMPT", top=top), load("PROMPT", top=top, files={"prompt.txt": "two"})

    assert changed(before, after) == {"file prompt.txt"}


UNRELATED = {
    "function": ("1", edited("return CONST\n", "return 5\n")),
    "comment": ("helper()", edited("class Prop:", "# a comment\nclass Prop:")),
    "name of an attribute": ("state.helper", edited("return CONST\n", "return 5\n")),
    "local name": ("(lambda helper: helper)(1)", edited("return CONST\n", "return 5\n")),
    "file": ("1", {"prompt.txt": "two"}),
    "file that is written": ("(HERE / 'prompt.txt').write_text('x')", {"prompt.txt": "two"}),
    "statement": ("helper()", edited("made = factory(1)", "made = factory(2)")),
}


@pytest.mark.parametrize("name", UNRELATED)
def test_a_change_of_what_a_node_does_not_use_is_none(load: Load, name: str) -> None:
    body, files = UNRELATED[name]

    assert load(body) == load(body, files=files)


def test_an_import_at_the_top_is_no_change_of_a_node_that_imports_the_module_itself(load: Load) -> None:
    bodies = [load("random.random()", before="import random", top=top) for top in ("", "import random")]

    assert bodies[0].fingerprint == bodies[1].fingerprint


VARYING = {
    "session": ("SESSION = uuid.uuid4().hex", "SESSION", "flow:SESSION (uuid.uuid4)"),
    "time": ("STARTED = time.time()", "STARTED", "flow:STARTED (time.time)"),
    "date": ("from datetime import datetime\nDAY = datetime.now()", "DAY", "flow:DAY (datetime.now)"),
    "shuffled": ("ROWS = list(range(99))\nrandom.shuffle(ROWS)", "ROWS", "flow:ROWS (random.shuffle)"),
    "shuffled literal": (
        "ROWS = [1, 2, 3, 4, 5, 6, 7, 8, 9]\nrandom.shuffle(ROWS)",
        "ROWS",
        "flow:ROWS (random.shuffle)",
    ),
    "sampled": ("ROWS = random.sample(range(999), 5)", "ROWS", "flow:ROWS (random.sample)"),
    "by a function": (
        "def new():\n    return uuid.uuid4()\nSESSION = str(new())",
        "SESSION",
        "flow:SESSION (uuid.uuid4)",
    ),
    "by a global": (
        "SESSION = None\ndef start():\n    global SESSION\n    SESSION = uuid.uuid4().hex\nstart()",
        "SESSION",
        "flow:SESSION (uuid.uuid4)",
    ),
    "in a list": (
        "ROWS = []\ndef start():\n    ROWS.append(uuid.uuid4().hex)\nstart()",
        "ROWS",
        "flow:ROWS (uuid.uuid4)",
    ),
    "of another": ("SESSION = uuid.uuid4().hex\nNAME = 'a ' + SESSION", "NAME", "flow:NAME (uuid.uuid4)"),
    "default": ("def f(x=uuid.uuid4().hex):\n    return x", "f()", None),
    "closure": ("def outer(x):\n    return lambda: x\nf = outer(uuid.uuid4().hex)", "f()", "flow:f (uuid.uuid4)"),
    "process": ("PID = os.getpid()", "PID", "flow:PID (os.getpid)"),
    "path": ("ROOT = os.path.dirname(os.path.abspath(__file__))", "ROOT", None),
    "file name": ("ME = __file__", "ME", None),
    "environment": ("KEY = os.environ.get('OF_THIS_PROCESS')", "KEY", None),
    "environment by key": ("KEY = os.environ['OF_THIS_PROCESS']", "KEY", None),
    "order of a set": ("WORDS = list({'a', 'b', 'c', 'd', 'e', 'f'})", "WORDS", None),
    "object": ("MARK = str(object())", "MARK", None),
}


@pytest.mark.parametrize("name", VARYING)
def test_values_that_differ_between_processes_are_left_out_and_named(
    load: Load, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    top, body, cause = VARYING[name]
    top = "import random, time, uuid\n" + top
    monkeypatch.setenv("OF_THIS_PROCESS", "1")
    first = load(body, top=top)
    monkeypatch.setenv("OF_THIS_PROCESS", "2")

    second = load(body, top=top)

    assert first == second
    assert cause in first.varying if cause else not first.varying


def test_the_code_that_computes_a_value_counts(load: Load) -> None:
    top = "import uuid\ndef new():\n    return {} + uuid.uuid4().hex\nSESSION = new()"

    before, after = (load("SESSION", top=top.format(prefix)) for prefix in ("'a'", "'b'"))

    assert before.fingerprint != after.fingerprint
    assert changed(before, after) == {"flow:new"}


def test_a_cache_that_a_node_fills_is_no_change_of_its_code(load: Load, tmp_path: Path) -> None:
    top = "CACHE = {}\ndef keep(x):\n    CACHE[x] = 1\n"
    load("keep(1) or CACHE", top=top)
    sys.path.insert(0, str(tmp_path / "project1"))
    try:
        node = importlib.import_module("flow").node
        before = code_of(node)
        node({})
        assert code_of(node) == before
    finally:
        sys.path.pop(0)


def in_another_process(root: Path, script: str, seed: str = "0") -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


def test_code_is_the_same_at_another_path_and_in_another_process(tmp_path: Path) -> None:
    bodies = ", ".join(body for body, _, _ in CHANGES.values())
    tops = "\n".join(top for top, _, _ in VARYING.values() if "OF_THIS_PROCESS" not in top)
    body = f"[{bodies}, SESSION, STARTED, ROWS, WORDS, PID, ROOT]"
    flow = FLOW.format(body=body, before="pass", top="import random, time, uuid\n" + tops)
    script = "import flow\nfrom wtb.authoring.code.fingerprint import code_of\nprint(code_of(flow.node))"
    digests = set()
    for seed, folder in (("0", "one"), ("12345", "two/deeper")):
        root = tmp_path / folder
        for name, content in {**FILES, "flow.py": flow}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        digests.add(in_another_process(root, "import sys; sys.path.insert(0, '')\n" + script, seed))
    assert len(digests) == 1
    assert str(tmp_path) not in digests.pop()


WHEREVER = """
import os, sys, json
sys.path[:0] = json.loads(os.environ["PLACES"])
import flow
from wtb.authoring.code.fingerprint import code_of
print(*[code_of(node).fingerprint for name, node in sorted(vars(flow).items()) if name.startswith("node")])
"""


def test_own_is_what_is_not_installed_wherever_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / ".venv" / "lib" / "python3.11" / "site-packages"
    about = installed / "bought-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bought\nVersion: 1.0\n")
    imports = {
        tmp_path / "src/helpers.py": "import helpers as a",
        tmp_path / "src/space/part/helpers.py": "from space.part import helpers as b",
        tmp_path / "queue.py": "import queue as c",
        installed / "bought.py": "import bought as d",
    }
    nodes = [f"def node_{name}(state):\n    return {name}.answer()" for name in "abcd"]
    (tmp_path / "flow.py").write_text("\n".join([*imports.values(), *nodes]))
    monkeypatch.setenv("PLACES", json.dumps([str(tmp_path), str(tmp_path / "src"), str(installed)]))
    digests = []
    for number in (1, 22):
        for place in imports:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"from _queue import *\n\ndef answer():\n    return {number}\n")
        digests.append(in_another_process(tmp_path, WHEREVER).split())
    assert [before != after for before, after in zip(*digests, strict=True)] == [True, True, True, False]


def test_a_module_in_an_archive_counts_by_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACES", json.dumps([str(tmp_path), str(tmp_path / "lib.zip")]))
    (tmp_path / "flow.py").write_text("import helpers\n\ndef node(state):\n    return helpers.answer()\n")
    digests = []
    for number in (1, 22):
        with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
            archive.writestr("helpers.py", f"def answer():\n    return {number}\n")
        digests.append(in_another_process(tmp_path, WHEREVER))
    assert digests[0] != digests[1]


def test_source_with_a_stray_byte_counts_all_the_same(load: Load) -> None:
    sources = [f"def deep():\n    return {number}  # \xfc\n".encode("latin-1") for number in (1, 2)]
    codes = [load("lib.sub.deep()", files={"sub.py": source + b"def rows():\n    return 1\n"}) for source in sources]
    assert codes[0].fingerprint != codes[1].fingerprint
    assert "sub:deep" in changed(*codes)


def test_what_could_not_be_followed_is_listed(load: Load) -> None:
    code = load("[open(state[0]), subprocess.run(state[1]), importlib.import_module(state[2])]")
    assert code.not_followed == [
        sentence("{} imports a module by a computed name", "flow: line 13"),
        "flow, line 13: " + sentence("it opens a file whose path is computed"),
        "flow, line 13: " + sentence("it starts a program by a computed command"),
    ]


def test_a_module_that_imports_itself_around_a_circle_is_followed(load: Load) -> None:
    lazy = "import sub\n\ndef go():\n    return sub.deep()\n"
    sub = "import lazy\n\ndef deep():\n    return {}\n\ndef rows():\n    return lazy.go()\n"
    codes = [load("lib.sub.rows()", files={"lazy.py": lazy, "sub.py": sub.format(number)}) for number in (1, 2)]
    assert changed(*codes) == {"sub:deep"}


def test_five_hundred_modules_take_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are reached. The bound is wide: it took 2.7 s of CPU on a machine that was busy with other work."""
    monkeypatch.syspath_prepend(tmp_path)
    names = [f"one_of_many_{number}" for number in range(500)]
    for name, following in zip(names, [*names[1:], "math"], strict=True):
        text = f"import {following}\nimport re\nP = re.compile('x')\nLIMIT = 3\n"
        text += "".join(
            f"\n\ndef f{n}(x):\n    return {following}.f{n}(x) if P.match(x) else LIMIT\n" for n in range(10)
        )
        (tmp_path / f"{name}.py").write_text(text)
    for name in reversed(names):
        importlib.import_module(name)
    began = time.process_time()
    code = code_of(sys.modules[names[0]].f0)
    assert time.process_time() - began < 20
    assert len(code.parts) >= 500
    for name in names:
        del sys.modules[name]


SCRIPTS: Files = {
    "agent.sh": (
        '#!/bin/sh\nDIR="$(dirname "$0")"\nsh "$DIR/none.sh"\n'
        'sh $(dirname "$0")/helper.sh\npython3 tool.py\nsh "$NEXT"\n'
    ),
    "helper.sh": "echo one\n. ./agent.sh\nsh deep/last.sh\n",
    "tool.py": "import parts\nprint(parts.ONE)\n",
    "parts.py": "ONE = 1\n",
    "deep/last.sh": "echo one\n",
}


@pytest.mark.parametrize("file", SCRIPTS)
def test_scripts_that_scripts_start_are_followed(load: Load, file: str) -> None:
    body = "subprocess.run(['sh', HERE / 'agent.sh'])"
    more = {file: f"{SCRIPTS[file]}# more\n"}

    before, unchanged, after = (load(body, files={**SCRIPTS, **files}) for files in ({}, {}, more))

    assert before == unchanged
    assert changed(before, after) == {f"script {file}"}
    assert [problem for problem in before.not_followed if problem.startswith("script")] == [
        sentence("script {}, line {}: it starts a program by a computed name", "agent.sh", 3),
        sentence("script {}, line {}: it starts a program by a computed name", "agent.sh", 6),
    ]

"""Misbehaving nodes: the workflow of the fuzzer, and its seeded programs.

Each case is a program: a few acts one after the other, then an end, which returns or raises. It runs in the project of
a test, so that it imports nothing of the tests.
"""

from __future__ import annotations

import random
from typing import Any

HEAD = r"""
import asyncio, atexit, builtins, ctypes, gc, json, os, random, shutil
import signal, socket, struct, subprocess, sys, threading, time
from pathlib import Path

from wtb import END, Workflow

wf = Workflow("hostile")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"

def note(word):
    log = os.open(HERE + "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{word} {os.getpid()}\n".encode())
    os.close(log)

class Rude(BaseException):
    pass

class Wordless(Exception):
    def __str__(self):
        raise Rude("no words")

class Faceless(Exception):
    @property
    def __class__(self):
        raise RuntimeError("no class")

class FullDisk(OSError):
    @property
    def errno(self):
        raise RuntimeError("no number")

class Angry(dict):
    def items(self):
        raise Rude("no items")

class Endless(dict):
    def items(self):
        n = 0
        while True:
            n += 1
            yield f"k{n}", n

class Word(str):
    def __len__(self):
        return -1

    def replace(self, *args):
        raise Rude("stays")

def sockets():
    for descriptor in range(3, 64):
        try:
            if os.path.exists(f"/proc/self/fd/{descriptor}") and "socket" in os.readlink(f"/proc/self/fd/{descriptor}"):
                yield descriptor
        except OSError:
            continue

def frame(kind, head, blobs=()):
    text = json.dumps([kind, [len(one) for one in blobs], head]).encode()
    return b"WTB1" + struct.pack("!IQ", len(text), sum(map(len, blobs))) + text + b"".join(blobs)

WRITER = "import sys\nwith open(sys.argv[1], 'ab') as file:\n    for _ in range(20_000): file.write(b'x' * 9999)"

def keeper():
    pid = os.getppid()
    with open(f"/proc/{pid}/cmdline", "rb") as file:  # it may be dead, and its number another program's
        if b"reaper.py" not in file.read():
            raise Rude("no keeper")
    return pid

def child(do):
    if os.fork() == 0:
        try:
            do()
        finally:
            os._exit(0)
"""

# Name -> what it does with the context `ctx`, the workspace `here` and random numbers `rng`.
ACTS: dict[str, str] = {
    "flood_stdout": "sys.stdout.buffer.write(rng.randbytes(rng.choice([10, 70_000, 3_000_000])))",
    "flood_stderr": "os.write(2, bytes([0, 255, 254, 10]) * 100_000)",
    "print_odd": "print('\\udc80\\0' * 1000, file=rng.choice([sys.stdout, sys.stderr]))",
    "close_output": "os.closerange(0, 3)",
    "close_all": "os.closerange(0, 256)",
    "close_channel": "[os.close(one) for one in sockets()]",
    "replace_output": "[setattr(sys, one, rng.choice([None, 5, open(os.devnull)])) for one in ('stdout', 'stderr')]",
    "devnull_output": "[os.dup2(os.open(os.devnull, os.O_RDWR), one) for one in range(3)]",
    "garbage": "[os.write(one, rng.randbytes(rng.randint(1, 300))) for one in sockets()]",
    "half_frame": "[os.write(one, b'WTB1' + struct.pack('!IQ', 1 << 20, 5)) for one in sockets()]",
    "huge_frame": "[os.write(one, b'WTB1' + struct.pack('!IQ', 5, 1 << 60)) for one in sockets()]",
    "frame_result": "[os.write(one, frame('result', [False, rng.choice(HEADS)], [b'1'])) for one in sockets()]",
    "frame_report": "[os.write(one, frame('report', rng.choice(TOLD))) for one in sockets()]",
    "frame_phase": "[os.write(one, frame(rng.choice(KINDS), rng.choice(HEADS))) for one in sockets()]",
    "exit": "os._exit(rng.choice([0, 1, 70, 255]))",
    "abort": "os.abort()",
    "segfault": "ctypes.string_at(0)",
    "kill": "os.kill(os.getpid(), rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGUSR1]))",
    "stop": "os.kill(os.getpid(), signal.SIGSTOP)",
    "kill_keeper": "os.kill(keeper(), signal.SIGKILL)",
    "stop_keeper": "os.kill(keeper(), signal.SIGSTOP)",
    "interrupt_keeper": "os.kill(keeper(), rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))",
    "fork": "child(lambda: (note('fork'), time.sleep(600)))",
    "twin": "os.fork()",
    "daemon": "child(lambda: (os.setsid(), child(lambda: (note('daemon'), time.sleep(600)))))",
    "bare_daemon": (
        "child(lambda: (os.setsid(), child(lambda: (note('bare'), os.closerange(0, 256), os.chdir('/'),"
        " os.execve('/bin/sleep', ['sleep', '600'], {})))))"
    ),
    "writer": "subprocess.Popen([sys.executable, '-c', WRITER, here / 'w'])",
    "stubborn": "[signal.signal(one, signal.SIG_IGN) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]",
    "alarm": "signal.signal(signal.SIGALRM, lambda *_: 1 / 0), signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)",
    "alarm_default": "signal.signal(signal.SIGALRM, signal.SIG_DFL), signal.setitimer(signal.ITIMER_REAL, 0.2)",
    "no_child_signal": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "chdir": "os.chdir(rng.choice(['/', '/proc', HERE]))",
    "rmtree": "shutil.rmtree(here)",
    "rmtree_above": "shutil.rmtree(here.parent)",
    "replaced": "(shutil.rmtree(here), here.write_text('x'))",
    "linked": "(shutil.rmtree(here), here.symlink_to(HERE + 'elsewhere'))",
    "sparse": "open(here / 'sparse', 'wb').truncate(1 << rng.choice([20, 30, 40]))",
    "symlink": "(here / 'link').symlink_to(HERE + 'victim')",
    "hard_link": "os.link(HERE + 'victim', here / 'link')",
    "fifo": "os.mkfifo(here / 'fifo')",
    "device_name": "(here / '-rf \\n\\t\\x1b[31m').write_text('x')",
    "bytes_name": "open(os.fsencode(here) + b'/\\xff\\xfe', 'wb').close()",
    "deep": "(here / '/'.join(['d'] * rng.choice([50, 150]))).mkdir(parents=True)",
    "locked": "((here / 'in').mkdir(), (here / 'in' / 'f').write_text('x'), (here / 'in').chmod(0))",
    "many_files": "[(here / str(n)).touch() for n in range(500)]",
    "patch_time": "setattr(time, rng.choice(['time', 'monotonic', 'perf_counter']), rng.choice([None, lambda: 1e99]))",
    "patch_json": "setattr(json, 'dumps', None)",
    "patch_os": "setattr(os, rng.choice(['chdir', 'getcwd', 'write', 'scandir', 'lstat']), None)",
    "patch_builtins": "setattr(builtins, rng.choice(['len', 'isinstance', 'open', 'print']), None)",
    "patch_wtb": "[sys.modules.pop(name) for name in list(sys.modules) if name.startswith('wtb.')]",
    "patch_path": "sys.path.clear()",
    "clear_modules": "[sys.modules.pop(name, None) for name in ('json', 'os', 'signal', 'orjson')]",
    "recursion_limit": "sys.setrecursionlimit(120)",
    "trace": "sys.settrace(lambda *_: 1 / 0)",
    "thread": "threading.Thread(target=lambda: [print('x') or time.sleep(0.01) for _ in range(300)]).start()",
    "late_log": "threading.Timer(0.05, lambda: [ctx.log('late') for _ in range(50)]).start()",
    "thread_exit": "threading.Timer(0.05, lambda: os._exit(3)).start()",
    "at_exit": "atexit.register(time.sleep, 600)",
    "environ": "os.environ.clear()",
    "collect": "gc.disable()",
    "sleep": "time.sleep(rng.choice([0.01, 600]))",
    "spin": "[None for _ in iter(int, 1)]",
    "hog": "bytearray(1 << 28)",
    "log_odd": "ctx.log('a\\0\\udc80', level=object(), huge=10**400, **{'k\\0': float('nan')})",
    "log_flood": "[ctx.log('x' * 100) for _ in range(3000)]",
    "tell_odd": "ctx.tell('n\\0' * 300, [object(), {5: 10**30}, b'\\xff'])",
    "cost_odd": "ctx.cost(usd=rng.choice([-1, 1e308, float('nan')]))",
    "call_odd": "ctx.call(model='m\\0' * 300, prompt=['\\0'], response={'\\0': 1}, tokens_in=3, usd=0.0)",
    "checkpoint_odd": "ctx.checkpoint('\\0\\udc80' * 300, **{rng.choice(['a', 'a\\0']): ['\\0']})",
    "leave_odd": "ctx.leave(output={'\\0': {5: b'x'}}, suggestion='\\udc80')",
    "break_context": "(setattr(ctx, 'record', None), setattr(ctx, 'case', 5))",
}
ENDS: dict[str, str] = {
    "nothing": "return None",
    "good": "return {'y': 1}",
    "number": "return 5",
    "key_number": "return {5: 1}",
    "key_none": "return {None: 1, 'y': 2}",
    "key_nul": "return {'a\\0': 1}",
    "key_word": "return {Word('y'): 1}",
    "key_long": "return {'k' * 5000: 1}",
    "nested": "return {'y': {5: {None: ['\\0', float('nan'), 10**50, (1,), {2}, b'x']}}}",
    "surrogate": "return {'y': '\\udc80'}",
    "object": "return {'y': object()}",
    "cycle": "x = []; x.append(x); return {'y': x}",
    "deep_value": "x = []\n    for _ in range(5000): x = [x]\n    return {'y': x}",
    "large": "return {'y': 'x' * (70 << 20)}",
    "angry": "return Angry(y=1)",
    "endless": "return Endless()",
    "coroutine": "return asyncio.sleep(0, {'y': 1})",
    "generator": "return (x for x in 'ab')",
    "error": "raise ValueError('x\\0\\udc80' * 10)",
    "wordless": "raise Wordless()",
    "faceless": "raise Faceless()",
    "full_disk": "raise FullDisk()",
    "rude": "raise Rude('r')",
    "exit": "raise SystemExit('out')",
    "interrupt": "raise KeyboardInterrupt",
    "generator_exit": "raise GeneratorExit",
    "group": "raise BaseExceptionGroup('g\\0', [Rude('r'), ExceptionGroup('h', [ValueError('v')])])",
    "enormous": "raise ValueError('x' * 20_000_000)",
    "chained": "raise ValueError('a') from Rude('b')",
    "stop_iteration": "raise StopIteration(5)",
    "recursion": "return work(state, ctx, acts=[], end='recursion', seed=seed)",
    "memory": "raise MemoryError",
    "odd_type": "raise type('E' * 9999, (Exception,), {})('x')",
}
TAIL = r"""

HEADS = [
    None, 5, "x", [], {}, {"writes": [["y", "0", 0]]}, {"failure": {"kind": "killed"}}, [[["y", "0", 0]]], [None] * 9,
    {"started_at": 1.0, "duration_s": 1.0, "writes": [["\0", "0", 0]], "failure": None, "question": None, "asked": [],
     "workspace": "../..", "files": [], "joined": None},
    {"started_at": 1.0, "duration_s": 1.0, "writes": [], "failure": None, "question": None, "asked": [],
     "workspace": None, "files": [],
     "joined": [[], {"step": 1, "next": ["nowhere"], "arrived": {}, "visits": {}}, [], []]},
]
KINDS = ["phase", "ready", "refused", "full", "tool", "x"]
TOLD = [
    None, [], [1], [1, "event", ["cell.succeeded", 1.0, {}]], [1, "spent", [1e308, 1, 1]], [2, "spent", [-5, 1, 1]],
    [1, "tool", {}], [1, "checkpoint", {"saved": {"a": "no JSON"}}], [1, "output", "no JSON"], [1, None, None],
    [1, "event", ["node.log", 1.0, {"message": "\0"}]], [1, "call", None], ["x", "y", "z"],
]

@wf.node(timeout=TIMEOUT)
def work(state, ctx, *, acts=None, end=None, seed=0):
    rng = random.Random(state["seed"])
    here = ctx.workspace
    for act in state["acts"] if acts is None else acts:
        ACTS[act](ctx, here, rng)
    return ENDS[end or state["end"]](state, ctx, seed)

wf.entry(work)
wf.edge(work, END)

def seen(case, result):
    return True
"""


def module(timeout: float) -> str:
    """The workflow's module."""
    acts = "".join(f"    {name!r}: lambda ctx, here, rng: ({code}),\n" for name, code in ACTS.items())
    ends = "".join(f"\n\ndef end_{name}(state, ctx, seed):\n    {code}\n" for name, code in ENDS.items())
    table = "".join(f"    {name!r}: end_{name},\n" for name in ENDS)
    source = f"{HEAD}\n\nACTS = {{\n{acts}}}\n{ends}\n\nENDS = {{\n{table}}}\n{TAIL}"
    return source.replace("TIMEOUT", repr(timeout))


def program(seed: int) -> dict[str, Any]:
    """Return the program of the node for a seed. One of eight does nothing wrong; the others take turns with acts."""
    rng = random.Random(f"hostile {seed}")
    if seed % 8 == 7:
        return {"seed": seed, "acts": [], "end": "good"}
    act_names, ends = list(ACTS), list(ENDS)
    acts = (
        [act_names[seed * 7 % len(act_names)], *rng.choices(act_names, k=rng.choice([0, 0, 1, 2]))] if seed % 4 else []
    )
    return {"seed": seed, "acts": acts, "end": "good" if acts and rng.random() < 0.6 else ends[seed % len(ends)]}

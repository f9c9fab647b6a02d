"""A help desk as people have it: prompts in files, models, temperatures, and a table of tickets.

The sweep has 3 prompts x 3 models x 2 temperatures over 60 tickets. Its model provider runs on loopback and speaks the
protocol of OpenAI, so that real clients call it. What is true of the sweep follows from `is_solved`, and not from
what WTB shows of it: the model matters most, `medium` is as good as `large` for a quarter of its price, and a
temperature changes next to nothing.

`python -m tests.support.helpdesk FOLDER` runs all of it in a folder, and serves its pages until it is interrupted.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.model_server import ModelHandler, serving

PROMPTS = {
    "plain": "Answer the customer.\n",
    "terse": "Answer the customer in one short sentence.\nDo not apologize.\n",
    "cited": "Answer the customer.\nUse only the articles below, and name the article that you used.\n",
}
TEMPERATURES = (0, 0.7)
LONG = ("T19", "T43")  # tickets that the small model has no room for
CUT = "T50"  # a ticket whose answer by the large model is cut off, the first time that it is asked
ROOM = 700  # characters of messages that the small model takes
PORT = 8779  # of the models, where no other is named

ARTICLES = {
    "Refunds": "You get your money back within 14 days of a return",
    "Invoices": "Invoices are under Settings, Billing",
    "Password": "Use Forgot password on the page where you sign in",
    "Parcels": "Track a parcel under Orders, Shipments",
    "Address": "You can change the address until the parcel leaves us",
    "Warranty": "The warranty is 24 months from the day of purchase",
    "Discounts": "Discounts for students are 15 percent with a valid card",
    "Cancel": "Cancel a subscription under Settings, Plan",
    "Export": "Export your data as CSV under Settings, Privacy",
    "Opening": "The shop is open from 9 to 18 on weekdays",
    "Gifts": "Gift cards are valid for 36 months",
    "Damage": "Send a photo of the damage within 7 days",
}
EXPECTED = {
    "Refunds": "14 days", "Invoices": "Billing", "Password": "Forgot password", "Parcels": "Shipments",
    "Address": "until the parcel leaves", "Warranty": "24 months", "Discounts": "15 percent",
    "Cancel": "Settings, Plan", "Export": "CSV", "Opening": "9 to 18", "Gifts": "36 months", "Damage": "photo",
}  # fmt: skip
QUESTIONS = {
    "Refunds": ("When do refunds arrive?", "I sent it back. How long do refunds take?"),
    "Invoices": ("Where are my invoices?", "My accountant asks for invoices."),
    "Password": ("I lost my password.", "The password does not work. What now?"),
    "Parcels": ("Where are my parcels?", "Two parcels are missing. Can I see where they are?"),
    "Address": ("I moved. Can I change the address?", "The address of my order is wrong."),
    "Warranty": ("How long is the warranty?", "It broke after a year. Is that in the warranty?"),
    "Discounts": ("Are there discounts for students?", "What discounts do I get at university?"),
    "Cancel": ("How do I cancel?", "I want to cancel my subscription."),
    "Export": ("Can I export my data?", "How does the export of my orders work?"),
    "Opening": ("What are your opening hours?", "Is the opening on Saturday, too?"),
    "Gifts": ("How long are gifts valid?", "I got gifts cards last year. Are they still good?"),
    "Damage": ("The box has damage.", "There is damage on the screen. What do you need?"),
}
OPENINGS = (
    "",
    "",
    "Hello, I bought from you for the first time last week.",
    "My mother has asked me to write to you, since she has no account.",
    "Good morning! I hope that this is the right place to ask.",
    "Your page of questions did not help me.",
)
TAGS = {"Refunds": "money", "Invoices": "money", "Discounts": "money", "Gifts": "money", "Parcels": "orders"}
TAGS |= {"Address": "orders", "Warranty": "orders", "Damage": "orders"}

BENCH = '''
"""The help desk: it looks for articles, and has a model answer from them."""

import os
from typing import TypedDict

from openai import OpenAI

from search import find
from wtb import END, Workflow
from wtb.integrations.models import record_calls

PRICES = {"small": (5, 20), "medium": (20, 80), "large": (80, 320)}  # US dollars per million tokens in and out


class State(TypedDict, total=False):
    question: str
    articles: list[str]
    answer: str


def client():
    made = OpenAI(base_url=os.environ.get("MODELS_URL", "http://127.0.0.1:8779/v1"), api_key="none", max_retries=0)
    return record_calls(made, prices=PRICES)


wf = Workflow("helpdesk", state=State, resources=client)


@wf.node
def retrieve(state: State) -> dict:
    return {"articles": find(state["question"])}


@wf.node
def answer(state: State, ctx, *, prompt: str = "Answer.", model: str = "medium", temperature: float = 0.0) -> dict:
    articles = "\\n".join(state["articles"])
    messages = [
        {"role": "system", "content": prompt},
        {"role": "user", "content": f"{articles}\\n\\nTicket: {state['question']}"},
    ]
    reply = ctx.resources.chat.completions.create(model=model, messages=messages, temperature=temperature)
    (choice,) = reply.choices
    if choice.finish_reason == "length":
        raise RuntimeError("the answer was cut off (finish_reason: length)")
    return {"answer": choice.message.content}


wf.entry(retrieve)
wf.edge(retrieve, answer)
wf.edge(answer, END)


refund = Workflow("refund", state=dict)


@refund.node
def draft(state):
    return {"letter": f"We pay back {state['amount']} EUR for order {state['order']}."}


@refund.node
def send(state, ctx):
    question = f"Send the refund of {state['amount']} EUR?"
    answer = ctx.ask(question, options=["send", "hold back"], context=state["letter"])
    return {"sent": answer.choice == "send"}


refund.entry(draft)
refund.edge(draft, send)
refund.edge(send, END)
'''
SEARCH = '''
"""The articles of the help desk."""

import json
import re
from pathlib import Path

ARTICLES = json.loads(Path(__file__).with_name("articles.json").read_text())


def words(text: str) -> set[str]:
    return {word.rstrip("s") for word in re.findall("[a-z]+", text.lower()) if len(word) > 3}


def find(question: str, most: int = 2) -> list[str]:
    """Return the articles that have most words of the question."""
    asked = words(question)
    scores = {title: len(asked & words(title)) + len(asked & words(text)) / 10 for title, text in ARTICLES.items()}
    best = sorted(scores, key=lambda title: (-scores[title], title))[:most]
    return [f"{title}: {ARTICLES[title]}" for title in best]
'''
WORSE_SEARCH = SEARCH.replace("len(word) > 3", "len(word) > 6")  # short words are no longer looked for

SWEEP = """\
workflow: bench:wf
cases: tickets.csv
columns: {question: Ticket, expected: Expected Answer}
vary:
  answer:
    prompt: [file://prompts/plain.md, file://prompts/terse.md, file://prompts/cited.md]
    model: [small, medium, large]
    temperature: [0, 0.7]
evaluate:
  - contains: {field: answer}
margin: {contains: 0.1}
gates: [contains.mean >= 0.85]
run: {concurrency: 4, pool: thread}
"""
NIGHTLY = """\
workflow: bench:wf
cases: tickets.csv
columns: {question: Ticket, expected: Expected Answer}
vary:
  answer: {prompt: ["file://prompts/cited.md"], model: [medium], temperature: [0]}
evaluate:
  - contains: {field: answer}
gates: [contains.mean >= 0.85]
run: {concurrency: 2, pool: thread}
"""
REGISTERED = '[workflows]\nhelpdesk = "bench:wf"\nrefund = "bench:refund"\n'
ALERT = "#!/bin/sh\ncat >> alerts.jsonl\n"


def tickets(first: int = 1, count: int = 60) -> str:
    """Tickets as people keep them: a table with headings of their own, one ticket a line."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["ID", "Ticket", "Expected Answer", "tags"])
    for number in range(first, first + count):
        article = list(ARTICLES)[number % len(ARTICLES)]
        form = number // len(ARTICLES)
        text = f"{OPENINGS[form % len(OPENINGS)]} {QUESTIONS[article][form % 2]}".strip()
        name = f"T{number:02}"
        if name in LONG:
            text = f"{text} {'I have written to you about this before, and nobody has answered so far. ' * 9}".strip()
        lines.writerow([name, text, EXPECTED[article], TAGS.get(article, "account")])
    return out.getvalue()


CUT_TICKET = next(line["Ticket"] for line in csv.DictReader(io.StringIO(tickets())) if line["ID"] == CUT)


def draw(*of: object) -> float:
    """A number from 0 to 1 that is always the same for the same things."""
    digest = hashlib.sha256("\0".join(map(str, of)).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def is_solved(ticket: str, prompt: str, model: str, temperature: float) -> bool:
    """Return whether a model finds the expected answer if it has the article. prompt: its name."""
    ability = {"small": 0.5, "medium": 0.82, "large": 0.82}[model] + {"plain": 0, "terse": -0.12, "cited": 0.1}[prompt]
    luck = 0.04 * (draw(ticket, prompt, temperature) - 0.5)
    return draw(ticket) + luck < ability


def ticket_of(user: str) -> str:
    """The text of the ticket in a message that the help desk sends."""
    return user.partition("\n\nTicket: ")[2]


def reply_to(prompt: str, user: str, model: str, temperature: float) -> str:
    """Return the model's answer to a ticket with articles above it."""
    articles, ticket = user.partition("\n\nTicket: ")[0], ticket_of(user)
    name = next(name for name, text in PROMPTS.items() if text == prompt)
    facts = [line.partition(": ") for line in articles.splitlines()]
    words = set(re.findall("[a-z]+", ticket.lower()))
    about = [(title, fact) for title, _, fact in facts if words & {title.lower(), title.lower().rstrip("s")}]
    if not about or not is_solved(ticket, name, model, temperature):
        sorry = "I am sorry, I could not find that." if name != "terse" else "Please ask our shop."
        return f"{sorry} Somebody will call you back." if model == "small" else sorry
    title, fact = about[0]
    return f"{fact}. (Article: {title})" if name == "cited" else f"{fact}."


@dataclass
class Models:
    """The provider of the models, as it runs.

    Attributes:
        url: Its address, for clients.
        is_open: While it is not set, requests wait.
        calls_left: After so many requests more it is no longer open; None if it stays so.
    """

    url: str
    is_open: threading.Event = field(default_factory=threading.Event)
    calls_left: int | None = None
    seen: set[tuple[Any, ...]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def wait(self) -> None:
        """Wait until a request may be answered."""
        with self.lock:
            if self.calls_left is not None:
                self.calls_left -= 1
                if self.calls_left < 0:
                    self.calls_left = None
                    self.is_open.clear()
        self.is_open.wait()

    def is_first(self, *request: Any) -> bool:
        """Return whether a request comes for the first time."""
        with self.lock:
            count = len(self.seen)
            self.seen.add(request)
            return len(self.seen) > count


@contextmanager
def models(port: int = 0) -> Iterator[Models]:
    """Run the provider of the models inside the block, at a free port or this one."""

    class Handler(ModelHandler):
        def do_POST(self) -> None:
            body = self.read_json()
            prompt, user = (message["content"] for message in body["messages"])
            model, temperature = body["model"], body["temperature"]
            provider.wait()
            if model == "small" and len(prompt) + len(user) > ROOM:
                text = f"This model's maximum context length is {ROOM} characters. Please shorten the messages."
                error = {"message": text, "type": "invalid_request_error", "code": "context_length_exceeded"}
                return self.send(400, {"error": {**error, "param": "messages"}})
            reply = reply_to(prompt, user, model, temperature)
            is_cut = model == "large" and ticket_of(user) == CUT_TICKET and provider.is_first(prompt, temperature)
            return self.send(200, _answer(model, prompt + user, reply[:12] if is_cut else reply, is_cut=is_cut))

        def handle(self) -> None:
            with suppress(ConnectionError):  # a client that was killed
                super().handle()

    provider = Models("")  # is there before the first request, which a client may send to a port that it knows
    provider.is_open.set()
    with serving(Handler, port) as url:
        provider.url = f"{url}/v1"
        try:
            yield provider
        finally:
            provider.is_open.set()


def _answer(model: str, sent: str, text: str, *, is_cut: bool) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    choice["finish_reason"] = "length" if is_cut else "stop"
    usage = {"prompt_tokens": len(sent) // 4, "completion_tokens": len(text) // 4}
    usage["total_tokens"] = sum(usage.values())
    return {"id": "1", "object": "chat.completion", "created": 0, "model": model, "usage": usage, "choices": [choice]}


def files() -> dict[str, str]:
    """The files of the project, by name."""
    prompts = {f"prompts/{name}.md": text for name, text in PROMPTS.items()}
    code = {"bench.py": BENCH, "search.py": SEARCH, "wtb.toml": REGISTERED, "alert.sh": ALERT}
    sweeps = {"helpdesk.yaml": SWEEP, "slow.yaml": f"sweep: slow\n{SWEEP}", "nightly.yaml": NIGHTLY}
    cases = {"tickets.csv": tickets(), "more.csv": tickets(61, 12)}
    return {**prompts, **code, **sweeps, **cases, "articles.json": json.dumps(ARTICLES, indent=2)}


def write(folder: Path) -> None:
    """Write the project into a folder."""
    for name, text in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    (folder / "alert.sh").chmod(0o755)


def play(folder: Path, wtb: Callable[..., object]) -> None:
    """Run what happens before anybody looks: the sweep, a refund that waits for a person, and two nights.

    wtb: runs a command, by its arguments.
    """
    play_day(wtb)
    play_nights(folder, wtb)


def play_day(wtb: Callable[..., object]) -> None:
    """Run the sweep, and start a refund that waits for a person."""
    wtb("run", "helpdesk.yaml", "--quiet")
    wtb("start", "refund", "--set", "order=8812", "--set", "amount=40", "--quiet")


def play_nights(folder: Path, wtb: Callable[..., object]) -> None:
    """Run two nights, of which the first is the baseline `main`, and the second is worse."""
    every_night = ("--cron", "0 3 * * *", "--baseline", "last", "--notify", "./alert.sh")
    wtb("schedule", "add", "nightly", "nightly.yaml", *every_night)
    wtb("schedule", "run-now", "nightly")
    wtb("baseline", "set", "main", "nightly")
    (folder / "search.py").write_text(WORSE_SEARCH, "utf-8")
    wtb("schedule", "run-now", "nightly")
    (folder / "search.py").write_text(SEARCH, "utf-8")


def main() -> None:
    """Play the story in a folder, leave a sweep running, and serve the pages until this is interrupted.

    The first argument is the folder, others are for `wtb serve`. SIGTERM ends all of it.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(sys.argv[1]).resolve()
    command = [sys.executable, "-m", "wtb"]
    write(folder)
    (folder / "search_of_the_branch.py").write_text(WORSE_SEARCH, "utf-8")
    with models(PORT), models() as models_without_credit:
        models_without_credit.calls_left = 12 * len(PROMPTS) * len(TEMPERATURES) * 3

        def wtb(*args: str) -> None:
            done = subprocess.run([*command, *args], cwd=folder, check=False)
            assert done.returncode in (0, 1), f"wtb {args[0]}: exit code {done.returncode}"

        play(folder, wtb)
        environment = {**os.environ, "MODELS_URL": models_without_credit.url}
        with subprocess.Popen([*command, "run", "slow.yaml", "--quiet"], cwd=folder, env=environment) as slow:
            try:
                subprocess.run([*command, "serve", "--run", *sys.argv[2:]], cwd=folder, check=False)
            except KeyboardInterrupt:
                pass
            finally:
                slow.kill()


if __name__ == "__main__":
    main()

"""The load of a storm: several drawn sweeps at a time on workers, and the person who answers their questions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from tests.chaos.drawn.judge import Verdict, judge_all
from tests.chaos.drawn.oracle import answers
from tests.chaos.drawn.record import attempt_starts
from tests.chaos.drawn.scenario import Scenario
from tests.chaos.drawn.source import start_arguments, write_scenario
from tests.support.project import Outcome, Project

WIDTH = 3  # sweeps that are open at a time, so that suspects of one run beside those that are none of another
ANSWERS_S = 1.0  # between two looks for questions


class Load:
    """Drawn sweeps, submitted one after the other. Whoever waits for something calls `look` while it does.

    project: where the sweeps are, read anew each time. command: runs `wtb` there. by_hand: how often a sweep was paused
    by what struck it, and had to be resumed.
    """

    def __init__(
        self,
        project: Callable[[], Project],
        command: Callable[..., Outcome],
        scenarios: Sequence[Scenario],
        say: Callable[[str], None],
    ) -> None:
        self._project = project
        self._command = command
        self._waiting = list(scenarios)
        self._say = say
        self._answers: dict[str, str] = {}
        self._next_answers_at = 0.0
        self.scenarios = tuple(scenarios)
        self.sweeps: dict[str, Scenario] = {}  # by the ids of those that were submitted
        self.cells = sum(scenario.cells for scenario in scenarios)
        self.by_hand = 0
        for scenario in scenarios:
            project().write(write_scenario(scenario))
            self._answers |= answers(scenario)

    def look(self) -> None:
        """Submit the next sweeps where there is room, and answer what is asked."""
        status = self._status()
        self._resume(status)
        open_ = sum(word != "completed" for word in status.values())
        while self._waiting and open_ < WIDTH:
            self._submit(self._waiting.pop(0))
            open_ += 1
        if self._answers and time.monotonic() > self._next_answers_at:
            self._next_answers_at = time.monotonic() + ANSWERS_S
            answer_open(self._project(), self._command, self._answers)

    def _submit(self, scenario: Scenario) -> None:
        before = self._status().keys()
        if scenario.single:
            self._command("start", *start_arguments(scenario), "--submit", check=0)
        else:
            self._command("submit", f"{scenario.name}.yaml", "--anyway", check=0)
        (new,) = self._status().keys() - before
        self.sweeps[new] = scenario
        self._say(str(scenario))

    def _resume(self, status: dict[str, str]) -> None:
        """Do what a person would where a sweep was paused, and count it."""
        for sweep in [sweep for sweep, word in status.items() if word == "paused"]:
            ((reason,),) = self._project().query("SELECT reason FROM sweeps WHERE id = :sweep", sweep=sweep)
            self._say(f"{self.sweeps[sweep].name} was paused: {reason}")
            self.by_hand += 1
            self._command("resume", sweep)

    def _status(self) -> dict[str, str]:
        return dict(self._project().query("SELECT id, status FROM sweeps"))

    def ended(self) -> int:
        """Count the cells that have an outcome."""
        return int(self._project().query("SELECT count(*) FROM cells WHERE finished_at IS NOT NULL")[0][0])

    def is_completed(self) -> bool:
        return not self._waiting and set(self._status().values()) == {"completed"}

    def attempt_starts(self) -> dict[str, int]:
        """Mark -> process, of every attempt that has begun."""
        return attempt_starts(self._project(), self.scenarios)

    def verdict(self) -> Verdict:
        """Judge all sweeps, once nothing runs any more."""
        return judge_all(self._project(), self.sweeps, missing=sum(scenario.cells for scenario in self._waiting))


def answer_open(project: Project, command: Callable[..., Outcome], texts: Mapping[str, str]) -> None:
    """Answer all that is asked. command: runs `wtb`. texts: by the questions."""
    for (question,) in project.query("SELECT DISTINCT question FROM approvals WHERE status = 'open'"):
        command("answer-all", "approve", "--question", question, "--feedback", texts[question], "--yes")

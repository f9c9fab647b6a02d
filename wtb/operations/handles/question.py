"""Questions to people, as live objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.authoring.workflow import Workflow
from wtb.core.documents.questions import QuestionDocument
from wtb.core.errors import InputError
from wtb.operations.context import Backend, Context
from wtb.operations.control.answers import Answered, answer
from wtb.operations.control.questions import Questions, find_question, find_questions
from wtb.operations.handles.documentation import documented_by
from wtb.operations.handles.records import QuestionRecord, question_record
from wtb.operations.running.background import run_in_background
from wtb.planning.binding import Bound, bind
from wtb.planning.prepare import stored_spec
from wtb.store.read import queries


class QuestionHandle:
    """A question to people, read from its database or server each time. `questions` of benches and handles find them.

    Attributes:
        id: Its id, which `wtb answer` takes.

    Example:
        >>> from wtb import Workflow, start
        >>> wf = Workflow("asking")
        >>> wf.entry(wf.node(lambda state, ctx: {"a": ctx.ask("Which?", options=["x", "y"]).choice}, name="a"))
        >>> [question] = start(wf, {}, db="sqlite:///:memory:").wait().questions()
        >>> question.answer("x").choice
        'x'
        >>> question.record.status
        'answered'
    """

    def __init__(self, backend: Backend, id: str, workflow: Workflow | None = None) -> None:
        self.backend = backend
        self.id = id
        self._workflow = workflow

    @property
    def record(self) -> QuestionRecord:
        """What it is now."""
        return question_record(self.details())

    @documented_by(find_questions)
    def details(self) -> QuestionDocument:
        """Return it with what there is to look at, as `wtb approvals QUESTION --format json` prints it.

        Returns:
            Its document, with `context`.
        """
        return question_of(self.backend.call(find_questions, self.id), self.id)

    @documented_by(answer)
    def answer(
        self,
        action: str | None = None,
        *,
        choice: str | None = None,
        feedback: str | None = None,
        value: Any = ...,
        set: Mapping[str, Any] | None = None,
        run: bool = True,
    ) -> Answered:
        """Answer it, for all executions that wait for it; they continue where their sweep runs.

        Args:
            run: Run a single execution on that no other process runs, here in the background; else `resume` does.

        Returns:
            What was recorded, and who continues, at once.
        """
        is_here = isinstance(self.backend, Context)
        return self.backend.call(
            answer,
            self.id,
            action,
            choice=choice,
            feedback=feedback,
            value=value,
            set=set,
            bound=self._bound() if is_here and self._workflow is not None else None,
            run=run_in_background if is_here and run else None,
        )

    def _bound(self) -> Bound:
        database = self.backend.require_database(answer).database
        sweep = queries.find_sweep(database, find_question(database, self.id).sweep_id)
        return bind(stored_spec(sweep), self._workflow)

    def __repr__(self) -> str:
        return f"<question {self.id}>"


def question_of(questions: Questions, id: str) -> QuestionDocument:
    """Return the only question that was found. Raises InputError if there is none, or several are."""
    if questions.question is not None:
        return questions.question
    if len(questions.each) == 1:
        return questions.each[0]
    raise InputError(f"there is no question {id!r}")

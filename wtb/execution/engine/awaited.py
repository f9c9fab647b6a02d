"""An attempt of an async node, which an event loop awaits without a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

from wtb.authoring.context.node_context import Context
from wtb.core.values import Values
from wtb.execution.engine.attempt import OpenAttempt
from wtb.execution.engine.protocol import Result

Call = Callable[[], Coroutine[Any, Any, Any]]


class AwaitedAttempt:
    """An attempt in two parts: what comes before the await of the user's coroutine, and what comes after it.

    Both parts must run in the same `contextvars.Context`.

    Args:
        attempt: The attempt.
        call_of: Returns the call of the user's code.
        write: Turns what the user's code returned into what is written.
        joins_by_user_code: Whether the step is joined with the attempt, by reducers or branches of the user.
    """

    def __init__(
        self,
        attempt: OpenAttempt,
        call_of: Callable[[Context], Call],
        write: Callable[[Any, Context], Values],
        *,
        joins_by_user_code: bool,
    ) -> None:
        self._attempt = attempt
        self._call_of = call_of
        self._write = write
        self._joins_by_user_code = joins_by_user_code

    @property
    def may_end_slowly(self) -> bool:
        """Return whether the end reads files or runs sync user code, which must not hold up an event loop."""
        return self._joins_by_user_code or self._attempt.has_files

    def begin(self) -> Call:
        """Return the call to await. If this raises, end the attempt with the error."""
        self._context = self._attempt.begin()
        return self._call_of(self._context)

    def end(self, returned: Callable[[], Any]) -> Result:
        """Return the result. Never raises for what user code does.

        Args:
            returned: Returns what the call returned, or raises its error.
        """
        return self._attempt.end(lambda: self._write(returned(), self._context))


async def clocked(context: Context, call: Call) -> Any:
    """Await a call of user code, and note the seconds that it takes."""
    begun = time.perf_counter()
    try:
        return await call()
    finally:
        context.awaited_s = time.perf_counter() - begun

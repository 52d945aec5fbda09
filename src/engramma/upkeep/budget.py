"""What upkeep may spend at a model, and what it has spent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from engramma.errors import InvalidInput, ModelError
from engramma.models.base import LLM, Message, foreign_model
from engramma.note import Reading


class Budget:
    """Counts calls, tokens and seconds; refuses another call when one of the bounds is reached, and says so.

    A model that fails once is not asked again: ``stopped`` says why.
    """

    def __init__(self, max_calls: int | None = None, max_seconds: float | None = None) -> None:
        self._most = checked_bound("max_calls", max_calls)
        seconds = checked_bound("max_seconds", max_seconds)
        self._started = time.monotonic()
        self._until = None if seconds is None else self._started + seconds
        self.calls = self.tokens_in = self.tokens_out = 0
        self.stopped: str | None = None
        self.failed = False
        self._told: list[str] = []
        self._taken = (0, 0, 0)

    @property
    def seconds(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._started

    @property
    def bounded(self) -> bool:
        """Whether there is a bound at all."""
        return self._most is not None or self._until is not None

    @property
    def calls_left(self) -> int | None:
        """Calls that may still be made; None for no bound."""
        return None if self._most is None else max(0, int(self._most) - self.calls)

    def late(self) -> bool:
        """Whether the time is up."""
        return self._until is not None and time.monotonic() >= self._until

    def open(self) -> bool:
        """Whether a model may be asked once more."""
        if self.stopped is None and self.late():
            self.stopped = "the time is up"
        if self.stopped is None and self.calls_left == 0:
            self.stopped = (
                "no call was allowed"
                if not self.calls
                else "1 call was made"
                if self.calls == 1
                else f"{self.calls} calls were made"
            )
        return self.stopped is None

    def ask(self, llm: LLM, messages: Sequence[Message], schema: dict[str, Any]) -> str | None:
        """A model's answer, or None where the budget is spent or the model does not answer."""
        if not self.open():
            return None
        self.calls += 1
        try:
            with foreign_model(llm.name):
                answer = llm.complete(messages, schema=schema)
        except (ModelError, OSError) as error:
            self.stopped, self.failed = f"{llm.name} does not answer: {error}", True
            return None
        self.spent(0, answer.tokens_in, answer.tokens_out)
        return answer.text if isinstance(answer.text, str) else ""

    def spent(self, calls: int, tokens_in: int, tokens_out: int) -> None:
        """Count what was spent."""
        self.calls, self.tokens_in, self.tokens_out = self.calls + calls, self.tokens_in + tokens_in, self.tokens_out + tokens_out

    def doubt(self, what: str) -> None:
        """Keep what of a reply was not believed, for the commit."""
        self._told.append(what)

    def take(self) -> Reading:
        """What was spent, and not believed, since this was last asked: what the next commit carries."""
        calls, tokens_in, tokens_out = self._taken
        cost = Reading(calls=self.calls - calls, tokens_in=self.tokens_in - tokens_in, tokens_out=self.tokens_out - tokens_out,
                       dropped=tuple(self._told))  # fmt: skip
        self._taken, self._told = (self.calls, self.tokens_in, self.tokens_out), []
        return cost


def checked_bound(name: str, value: float | None) -> float | None:
    """A bound of at least 0, or None for none."""
    if value is None:
        return None
    whole = name == "max_calls"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not 0 <= value < 2**31:
        raise InvalidInput(f"{name}={value!r} must be a {'whole ' if whole else ''}number of at least 0, or None for no bound")
    return value

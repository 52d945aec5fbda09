"""The analyst that asks a chat model: one structured call for a note, or for a few at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random

from engramma.analysts.base import Page
from engramma.analysts.prompts import SYSTEM, Sheet, make_sheet, reply_schema
from engramma.analysts.replies import readings
from engramma.errors import ModelError, ReplyInvalid
from engramma.models.base import LLM, Completion, foreign_model
from engramma.note import Reading

BATCH = 4
ATTEMPTS = 3
PAUSE_SECONDS = 0.5


class LLMAnalyst:
    """Reads with a chat model. A reply is used as far as it is valid (see ``replies``).

    Time-outs and refused connections of a model object are tried ``attempts`` times with growing
    pauses; the OpenAI-compatible client does so itself, and its errors are final here.
    """

    slow = True

    def __init__(self, llm: LLM, *, batch: int = BATCH, attempts: int = ATTEMPTS, pause: float = PAUSE_SECONDS) -> None:
        self.llm, self.batch = llm, batch
        self.name = f"analyst:{llm.name}"
        self._retrying = Retrying(
            retry=retry_if_exception(_passing),
            stop=stop_after_attempt(attempts),
            wait=wait_exponential(multiplier=pause, max=20 * pause) + wait_random(0, pause),
            reraise=True,
        )

    def read(self, pages: Sequence[Page]) -> list[Reading | ReplyInvalid]:
        """One call for all pages; the cost is shared out over the readings."""
        sheet = make_sheet(pages)
        answer = self._retrying(self._ask, sheet)
        try:
            if not isinstance(answer.text, str):
                raise ReplyInvalid(f"the reply is not text: {answer.text!r}")
            found = readings(answer.text, pages, sheet)
        except ReplyInvalid as error:
            raise _with_cost(error, answer) from error
        return [_costed(reading, answer, number, len(found)) for number, reading in enumerate(found)]

    def _ask(self, sheet: Sheet) -> Completion:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": sheet.text}]
        with foreign_model(self.llm.name):
            return self.llm.complete(messages, schema=reply_schema())


def _passing(error: BaseException) -> bool:
    """Whether asking again may help: a time-out or connection error that nobody has retried yet."""
    return isinstance(error, OSError) and not isinstance(error, ModelError)


def _with_cost(error: ReplyInvalid, answer: Completion) -> ReplyInvalid:
    error.cost = Reading(calls=1, tokens_in=answer.tokens_in, tokens_out=answer.tokens_out)
    return error


def _costed(reading: Reading | ReplyInvalid, answer: Completion, number: int, count: int) -> Reading | ReplyInvalid:
    """A reading with its share of the call: the first one carries the call and what does not divide."""
    tokens_in = answer.tokens_in // count + (answer.tokens_in % count if number == 0 else 0)
    tokens_out = answer.tokens_out // count + (answer.tokens_out % count if number == 0 else 0)
    cost = Reading(calls=int(number == 0), tokens_in=tokens_in, tokens_out=tokens_out)
    if isinstance(reading, ReplyInvalid):
        reading.cost = cost
        return reading
    return replace(reading, calls=cost.calls, tokens_in=tokens_in, tokens_out=tokens_out)

"""A frontier as its execution holds it: contents and answers in chunks where they are large."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from durable_adk.model.wait import Frontier, StoredAnswer
from durable_adk.store.core import ANSWER_INLINE, FRONTIER_INLINE, Core
from durable_adk.store.documents import Doc, contents_text, frontier_document
from durable_adk.store.payloads import Envelope, part_nonce

ANSWERS_INLINE: Final = 1024 * 1024
"""Characters of all answers of a frontier together, from which on single ones are chunks too."""
_OF_MANY_INLINE: Final = 256


async def stored_frontier(core: Core, run: str, frontier: Frontier, nonce: str) -> Doc:
    """The document of a frontier; its chunks are durable on return.

    Repeat: with the same nonce, yes.
    """
    contents: Envelope | None = None
    if sum(len(wait.content) for wait in frontier.waits) > FRONTIER_INLINE // 4:
        text = contents_text(frontier)
        contents_nonce = part_nonce(nonce, f"frontier {frontier.id}")
        stored = await core.store(run, contents_nonce, text, inline_up_to=FRONTIER_INLINE)
        contents = stored if isinstance(stored, dict) else None
    limit = inline_limit(frontier.answers.values())
    answers = {
        place: await stored_answer(core, run, frontier.id, place, answer, inline_up_to=limit)
        for place, answer in frontier.answers.items()
    }
    return frontier_document(frontier, contents, answers)


def inline_limit(answers: Iterable[StoredAnswer]) -> int:
    """How many bytes of one answer stay in the execution: few, where these are much together.

    A document has room for 16 MB: over a thousand answers of what one alone may have fill it, and
    those that do not fit any more could never be given.
    """
    much = sum(len(answer.value) for answer in answers) > ANSWERS_INLINE
    return _OF_MANY_INLINE if much else ANSWER_INLINE


async def stored_answer(
    core: Core,
    run: str,
    frontier_id: str,
    place: int,
    answer: StoredAnswer,
    *,
    inline_up_to: int = ANSWER_INLINE,
) -> Envelope:
    """The envelope of an answer's value; the same for equal values, whoever stores it."""
    digest = core.sealing.keys.hidden(answer.digest)[0]
    nonce = part_nonce(f"{frontier_id}.{place}", digest)
    return await core.store(run, nonce, answer.value, inline_up_to=inline_up_to)

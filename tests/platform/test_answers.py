"""Large answers that are being made take no more memory together than they may."""

import asyncio
from collections.abc import Iterator

import pytest

from app.platform.answer_memory import FREE_BYTES, Answers, HttpAnswer, hold
from app.platform.errors import Unavailable

MB = 1 << 20


@pytest.fixture
def answers() -> Iterator[Answers]:
    """At most a megabyte; afterwards nothing is held."""
    result = Answers(MB)
    yield result
    assert result.bytes == 0


@pytest.mark.rest
def test_outside_of_an_answer_everything_may_be_held() -> None:
    hold(100 * MB)


@pytest.mark.rest
def test_one_by_itself_may_be_of_any_size(answers: Answers) -> None:
    answer = HttpAnswer(answers)
    hold(100 * MB)
    hold(100 * MB)
    answer.end()


def test_small_ones_are_never_refused(answers: Answers) -> None:
    async def small() -> None:
        answer = HttpAnswer(answers)
        hold(FREE_BYTES // 2)
        await asyncio.sleep(0)
        hold(FREE_BYTES // 2)
        answer.end()

    async def many() -> None:
        large = HttpAnswer(answers)
        hold(2 * MB)
        await asyncio.gather(*(small() for _ in range(100)))
        large.end()

    asyncio.run(many())


async def _held(answers: Answers, amount: int, ended: asyncio.Event) -> HttpAnswer:
    answer = HttpAnswer(answers)
    try:
        hold(amount)
        await ended.wait()
    finally:
        answer.end()
    return answer


def test_beyond_the_bound_others_are_refused_until_some_are_done(answers: Answers) -> None:
    async def run() -> None:
        ended = asyncio.Event()
        first = [asyncio.create_task(_held(answers, MB // 4 + FREE_BYTES, ended)) for _ in range(4)]
        await asyncio.sleep(0)
        assert answers.bytes == MB
        for _ in range(3):
            with pytest.raises(Unavailable, match="answers in progress"):
                await _held(answers, FREE_BYTES + 1, ended)
        assert answers.bytes == MB
        ended.set()
        await asyncio.gather(*first)
        assert answers.bytes == 0
        await _held(answers, MB, ended)

    asyncio.run(run())


@pytest.mark.rest
def test_what_is_let_go_before_the_end_makes_room(answers: Answers) -> None:
    async def run() -> None:
        answer, ended = HttpAnswer(answers), asyncio.Event()
        hold(FREE_BYTES + MB)
        hold(-MB // 2)
        ended.set()
        await asyncio.create_task(_held(answers, FREE_BYTES + MB // 2, ended))
        hold(-MB // 2)
        assert answers.bytes == 0
        answer.end()

    asyncio.run(run())

"""What a plain choice costs in calls and modules: filters, rules, contexts and logs cost nothing unused."""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

import app
import server
import shortlist
from api_client import Api

pytestmark = pytest.mark.anyio

OURS = tuple(str(Path(str(part.__file__)).parent) for part in (app, server, shortlist))
MOST_CALLS, MOST_MODULES = 121, 30  # over HTTP one more: the protocol


async def test_a_plain_choice_calls_few_functions(api: Api):
    await api.catalogue("c", {f"a{n}": [1.0, float(n)] for n in range(5)})
    await api.bandit("b", "c")
    for _ in range(3):
        await api.choose("b")
    called, modules = min([await _called(api) for _ in range(5)], key=lambda found: found[0].total())
    assert called["choosing._new_choice"] == 1
    assert called.total() <= MOST_CALLS, "\n".join(f"{v} {k}" for k, v in called.items())
    assert len(modules) <= MOST_MODULES, sorted(modules)


async def _called(api: Api) -> tuple[Counter[str], set[str]]:
    """The functions and modules of one choice. On a slow machine one may also read its learner anew."""
    called, modules, own = Counter[str](), set[str](), asyncio.current_task()

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(OURS) and asyncio.current_task() is own:
            modules.add(name)
            called[f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"] += 1

    sys.setprofile(note)
    try:
        await api.choose("b")
    finally:
        sys.setprofile(None)
    return called, modules

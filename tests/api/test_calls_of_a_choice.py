"""What a plain choice costs in calls: filters, rules, contexts, holdouts and logs cost nothing unused."""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

import app
from api_client import Api

pytestmark = pytest.mark.anyio

OURS = str(Path(app.__file__).parent)
STORE = f"{OURS}/storage"  # what other tasks ask of it in their turn; a plain choice asks nothing
MOST = 112  # twelve of them let a policy be a class, and others have their turn


async def test_a_plain_choice_calls_few_functions(api: Api):
    await api.catalogue("c", {f"a{n}": [1.0, float(n)] for n in range(5)})
    await api.bandit("b", "c")
    for _ in range(3):
        await api.choose("b")
    called = Counter[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(OURS) and not name.startswith(STORE):
            called[f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"] += 1

    sys.setprofile(note)
    try:
        await api.choose("b")
    finally:
        sys.setprofile(None)
    assert called["pipeline._new_choice"] == 1
    assert called.total() <= MOST, "\n".join(f"{v} {k}" for k, v in called.items())

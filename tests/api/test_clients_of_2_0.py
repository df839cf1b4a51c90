"""Calls of a client of version 2.0: choices, rewards, activations and arms are answered as it reads them."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from api_client import Api

pytestmark = pytest.mark.anyio

CALLS = json.loads((Path(__file__).parents[2] / "clients/cases/of_2_0.json").read_text("utf-8"))


async def test_calls_of_2_0_are_answered(api: Api):
    names = {"$now": round(1_000 * time.time())}
    for call in CALLS:
        body = named(call["body"], names) if "body" in call else None
        answer = await api.ok(call["method"], call["path"], body, call["status"])
        compare(answer, call.get("gives"), names)


def named(body: Any, names: dict[str, Any]) -> Any:
    """The body with the values of names."""
    text = json.dumps(body)
    for name, value in names.items():
        text = text.replace(json.dumps(name), json.dumps(value))
    return json.loads(text)


def compare(found: Any, expected: Any, names: dict[str, Any]) -> None:
    """``found`` has every field that is expected, and what has a name is put into ``names``."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            compare(found[name], value, names)
    elif isinstance(expected, list):
        for item, value in zip(found, expected, strict=True):
            compare(item, value, names)
    elif isinstance(expected, str) and expected.startswith("$"):
        names[expected] = found
    elif isinstance(expected, float):
        assert isinstance(found, float | int)
    else:
        assert found == expected

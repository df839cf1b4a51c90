"""What a notebook shows of a call: the fields of its request by name, and what it answers."""

from __future__ import annotations

from inspect import Parameter, signature

import pytest

from shortlist_client import AsyncClient, Client
from shortlist_client.binding import endpoint, every_page
from shortlist_client.endpoints import Endpoints

CALLS = [name for name, each in vars(Endpoints).items() if isinstance(each, endpoint | every_page)]


def keywords(call: object) -> dict[str, Parameter]:
    parameters = signature(call).parameters  # type: ignore[arg-type]
    return {name: each for name, each in parameters.items() if each.kind is Parameter.KEYWORD_ONLY}


def test_a_choice_shows_its_fields() -> None:
    with Client() as client:
        for call in (Client.choose, AsyncClient.choose, client.choose):
            assert {"key", "k", "filter", "candidates", "event_id", "once"} <= keywords(call).keys()
    shown = str(signature(Client.choose))
    assert "key: 'str | None' = ..., k: 'int' = ..." in shown
    assert shown.endswith("-> 'Choice'")


def test_what_is_needed_has_no_default() -> None:
    bandit, quota = keywords(Client.put_bandit), keywords(Client.put_quota)
    assert [name for name, each in bandit.items() if each.default is Parameter.empty] == [
        "catalogue",
        "policy",
    ]
    assert [name for name, each in quota.items() if each.default is Parameter.empty] == ["most"]
    assert bandit["scope"].annotation == "Literal['global', 'per_key']"
    assert {"start", "end", "filter", "per_s"} <= quota.keys()
    assert "from" not in quota  # a word of Python's: it is start


@pytest.mark.parametrize("call", CALLS)
def test_every_call_shows_names_and_what_it_answers(call: str) -> None:
    shown = signature(getattr(Client, call))
    assert not [each for each in shown.parameters.values() if each.kind is Parameter.VAR_KEYWORD]
    assert not str(shown.return_annotation).startswith(("Call", "Steps"))

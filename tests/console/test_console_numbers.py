"""Numbers that JavaScript would round or spell in another way: shown, edited and sent as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page, Request, expect

from console_browser import Console, console_of
from node import node
from service_process import Service, serving
from shortlist_client import Client

pytestmark = pytest.mark.rest

MODULE = Path(__file__).parents[2] / "app/console/json.js"
BIG = 2**53 + 1
SPELLINGS = [
    "0", "-0", "-0.0", "1", "1.0", "1e0", "9007199254740992", "9007199254740993", "-18446744073709551615",
    "0.1", "0.1000000000000000055", "1e20", "1E+2", "1e400", "-1e400", "1e-400", "5e-324", "1.50",
    "123456789012345678901234567890",
]  # fmt: skip
integers = st.one_of(st.integers(-(2**80), 2**80), st.integers(2**53 - 2, 2**53 + 9)).map(str)
doubles = st.floats(allow_nan=False, allow_infinity=False).map(repr)
decimals = st.decimals(allow_nan=False, allow_infinity=False).map(lambda each: str(each).replace("E", "e"))
# Strings with what stands beside numbers in JSON, and names that are also those of properties of all objects.
strings = st.text(st.sampled_from('0123456789"\\:,[]{}-.eé\n'), max_size=20).map(json.dumps)
names = st.one_of(strings, st.sampled_from(['"__proto__"', '"constructor"', '"7"', '"3"']))


def documents(numbers: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """JSON texts with these numbers."""
    return st.recursive(
        numbers | strings | st.sampled_from(["true", "null"]),
        lambda each: (
            st.lists(each, max_size=4).map(lambda parts: f"[{','.join(parts)}]")
            | st.dictionaries(names, each, max_size=4).map(
                lambda parts: f"{{{','.join(f'{name}:{part}' for name, part in parts.items())}}}"
            )
        ),
        max_leaves=12,
    )


def spelled(text: str) -> Any:
    """A document with its numbers as the texts that they are."""
    return json.loads(
        text, parse_int=lambda each: ("number", each), parse_float=lambda each: ("number", each)
    )


def written(expression: str, texts: list[str]) -> list[str]:
    """What the module makes of each text."""
    script = (
        f"{MODULE.read_text()}\nconsole.log(JSON.stringify({json.dumps(texts)}.map((text) => {expression})));"
    )
    found: list[str] = json.loads(node("--input-type=module", given=script))
    return found


@settings(max_examples=15, deadline=None)
@given(
    texts=st.lists(
        documents(integers | doubles | decimals | st.sampled_from(SPELLINGS)), min_size=30, max_size=30
    )
)
def test_what_is_read_is_written_again_as_it_was(texts: list[str]):
    texts = [*texts, *SPELLINGS]
    for expression in ("write(read(text))", "write(read(text), 1)"):
        assert list(map(spelled, written(expression, texts))) == list(map(spelled, texts))


@settings(max_examples=15, deadline=None)
@given(texts=st.lists(documents(integers | st.floats(-1e15, 1e15).map(repr)), min_size=30, max_size=30))
def test_answers_are_read_with_the_numbers_that_the_service_means(texts: list[str]):
    """Integers exactly; Python compares them so with doubles too."""
    assert list(map(json.loads, written("write(readValues(text))", texts))) == list(map(json.loads, texts))


# A filter as its author wrote it: 1.0 and 1e20 are no integers there.
FILTER = f'{{"sku":{{"$gte":{BIG}}},"weight":1.0,"far":{{"$lte":1e20}},"debt":{{"$ne":-0.0}}}}'


@contextmanager
def numbered(browser: Browser, folder: Path) -> Iterator[tuple[Service, Console, Client, dict[str, str]]]:
    """A console over arms with large numbers; with the last body sent to each address, by its end."""
    sent: dict[str, str] = {}

    def keep(request: Request) -> None:
        if request.method != "GET" and request.post_data:
            sent[request.url.partition("?")[0].rsplit("/", 1)[-1]] = request.post_data

    with serving(folder) as service, console_of(browser, service) as console, Client(service.url) as client:
        client.put_catalogue("c", dim=2)
        rows: Any = [[1.0, 0.0], [0.0, 1.0]]
        metadata: Any = [{"sku": sku, "weight": 1.0, "far": 1e20} for sku in (BIG, BIG + 2)]
        client.upsert_arms("c", rows, ids=["a", "b"], metadata=metadata)
        client.put_bandit("b", catalogue="c", policy="softmax", filter=json.loads(FILTER), log={})
        console.page.on("request", keep)
        yield service, console, client, sent
        console.check()


def press(page: Page, name: str, method: str) -> None:
    """Press a button, and wait for the answer to what it sends."""
    with page.expect_response(lambda answer: answer.request.method == method):
        page.get_by_role("button", name=name, exact=True).click()


def test_a_setting_is_edited_without_loss(browser: Browser, tmp_path: Path):
    with numbered(browser, tmp_path) as (service, console, client, sent):
        at = f"{service.url}/v1/bandits/b"
        assert FILTER in httpx.get(at).text
        page = console.open("bandits/b/settings")
        expect(page.get_by_role("region", name="Settings")).to_contain_text(FILTER)
        page.get_by_role("button", name="Change filter").click()
        value = page.get_by_label("New value, as JSON")
        expect(value).to_have_value(FILTER)
        page.get_by_text("Nothing changes yet.").wait_for()
        press(page, "Change the bandit", "PATCH")
        assert sent["b"] == f'{{"filter":{FILTER}}}'
        assert FILTER in httpx.get(at).text
        page = console.open("bandits/b/settings?set=filter")
        value.fill(f'{{"sku": {{"$gte": {BIG + 2}}}}}')
        changed = page.get_by_role("region", name="What it changes")
        expect(changed).to_contain_text(f'"$gte":{BIG + 2}')
        press(page, "Change the bandit", "PATCH")
        assert client.get_bandit("b").filter["sku"] == {"$gte": BIG + 2}
        page = console.open("bandits/b/versions")
        versions = page.get_by_role("region", name="Changes")
        expect(versions).to_contain_text(FILTER)
        expect(versions).to_contain_text(f'"$gte":{BIG + 2}')
        patch = f'{{"filter":{FILTER}}}'
        page = console.open(f"what-if/b?{httpx.QueryParams({'patch': patch})}")
        press(page, "Evaluate", "POST")
        assert patch in sent["evaluations"]

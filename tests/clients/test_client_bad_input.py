"""What goes wrong at first: each is one line that says what and where, and nothing is half done."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.services.access.api_keys import new_key
from dropping_proxy import DroppingProxy
from service_process import Service, serving
from shortlist_client import Client, Retry
from shortlist_client.errors import (
    ConnectionFailed,
    DimensionMismatch,
    Forbidden,
    InvalidArgument,
    TimedOut,
    Unauthorized,
)

ROWS, WRONG = 700_100, 700_001


@pytest.fixture(scope="module")
def keys() -> dict[str, tuple[str, str]]:
    return {name: new_key(name, [name]) for name in ("admin", "choose")}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, keys: Any) -> Iterator[Service]:
    entries = " ".join(entry for _, entry in keys.values())
    with serving(tmp_path_factory.mktemp("keys"), SHORTLIST_API_KEYS=entries) as service:
        yield service


@pytest.fixture
def client(service: Service, keys: Any) -> Iterator[Client]:
    """With the key of an administrator, and an empty catalogue ``films``."""
    with Client(service.url, keys["admin"][0]) as client:
        client.put_catalogue("films", dim=2)
        yield client
        client.delete_catalogue("films")


class Counting:
    """Takes upserts, and counts the arms."""

    def __init__(self) -> None:
        self.arms = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        count = request.content.count(b'"id":')
        self.arms += count
        return httpx.Response(200, json={"added": count, "updated": 0, "version": 1})


@pytest.fixture
def counting() -> tuple[Counting, Client]:
    service = Counting()
    return service, Client(http=httpx.Client(transport=httpx.MockTransport(service)))


def test_without_a_key(service: Service):
    with Client(service.url) as client, pytest.raises(Unauthorized, match="401 unauthorized: an API key"):
        client.status()


def test_with_an_unknown_key(service: Service):
    with Client(service.url, "sl_guessed") as client, pytest.raises(Unauthorized) as refused:
        client.status()
    assert "guessed" not in str(refused.value)
    assert "guessed" not in repr(client)


def test_with_a_key_that_may_not(service: Service, keys: Any):
    with Client(service.url, keys["choose"][0]) as client, pytest.raises(Forbidden, match="403 forbidden"):
        client.put_catalogue("films", dim=2)


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://host", "", "http://", "redis://127.0.0.1"])
def test_what_is_no_address(url: str):
    with pytest.raises(InvalidArgument, match="url must begin with http"):
        Client(url)


@pytest.mark.parametrize("key", ["", " sl_x", "sl_x\n", "schlüssel"])
def test_what_can_be_no_key(key: str):
    with pytest.raises(InvalidArgument, match="key must be printable") as refused:
        Client(key=key)
    assert not key.strip() or key.strip() not in str(refused.value)


def test_nobody_is_there():
    client = Client("http://127.0.0.1:1", retry=Retry(attempts=2, first_wait_s=0.0))
    with (
        client,
        pytest.raises(ConnectionFailed, match=r"nobody can be reached at http://127.0.0.1:1") as failed,
    ):
        client.choose("home")
    assert "\n" not in str(failed.value)


def test_nobody_answers(service: Service):
    with DroppingProxy(service.port) as proxy:
        proxy.hang = True
        client = Client(f"http://127.0.0.1:{proxy.port}", timeout_s=0.1, retry=Retry(attempts=1))
        with client, pytest.raises(TimedOut, match="did not answer in time"):
            client.health()
        proxy.mend()


def test_a_vector_of_another_length_far_down(counting: tuple[Counting, Client]):
    """In a list nothing is sent at all."""
    service, client = counting
    rows: list[list[float]] = [[1.0, 2.0]] * ROWS
    rows[WRONG] = [1.0]
    with pytest.raises(InvalidArgument, match=rf"row {WRONG} \(from 0\) has 1 numbers"):
        client.upsert_arms("films", rows, ids=map(str, range(ROWS)))
    assert service.arms == 0


def test_a_vector_of_another_length_far_down_a_stream(counting: tuple[Counting, Client]):
    """Of its batch nothing is sent, and it is said what was sent before."""
    service, client = counting
    rows = ([1.0] if row == WRONG else [1.0, 2.0] for row in range(ROWS))
    with pytest.raises(InvalidArgument, match=rf"row {WRONG} .* The first 700,000 were applied"):
        client.upsert_arms("films", rows, ids=map(str, range(ROWS)))
    assert service.arms == 700_000


def test_the_service_names_the_row_of_the_whole_list(client: Client):
    """All rows have one length, which is not that of the catalogue, or one holds what is no feature."""
    with pytest.raises(DimensionMismatch, match=r"body.arms.0.features"):
        client.upsert_arms("films", np.zeros((3, 5)), ids=["a", "b", "c"])
    rows = np.zeros((10_050, 2))
    rows[10_020, 1] = 1e300
    with pytest.raises(Exception, match=r"body.arms.10020.features.1: .*The first 10,000 .* were applied"):
        client.upsert_arms("films", rows, ids=[f"a{row}" for row in range(len(rows))])
    assert client.get_catalogue("films").size == 10_000


def test_what_is_no_number_is_named(client: Client):
    rows = np.zeros((4, 2), dtype=np.float32)
    rows[2, 0] = np.nan
    with pytest.raises(InvalidArgument, match="row 2: this cannot be sent"):
        client.upsert_arms("films", rows, ids=list("abcd"))
    assert client.get_catalogue("films").size == 0


@pytest.mark.parametrize(
    ("arms", "options", "says"),
    [
        (np.zeros((3, 2)), {"ids": ["a", "b"]}, "2 ids for 3 vectors"),
        (np.zeros(3), {"ids": ["a", "b", "c"]}, "not of shape"),
        (np.zeros((3, 2)), {}, "ids="),
        ([[1.0, 2.0]], {"ids": iter(["a", "b"])}, "as many"),
        ([[1.0, 2.0]], {"ids": ["a"], "metadata": []}, "0 metadata for 1 vectors"),
        ([{"id": "a", "features": [1.0, 2.0]}, {"id": "b"}], {}, "row 1"),
    ],
)
def test_lists_that_do_not_fit(client: Client, arms: Any, options: Any, says: str):
    with pytest.raises(InvalidArgument, match=says):
        client.upsert_arms("films", arms, **options)
    assert client.get_catalogue("films").size == 0


def test_a_bad_line_of_an_import_is_named(client: Client, tmp_path: Path):
    lines = [b'{"id": "a%d", "features": [1, 2]}\n' % row for row in range(50)]
    lines[40] = b'{"id": "a40", "features": [1]}\n'
    with pytest.raises(DimensionMismatch, match=r"body.41"):
        client.import_arms("films", lines)
    assert client.get_catalogue("films").size == 40


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "a?b", "ä", "a b", "x" * 129])
def test_a_name_cannot_lead_elsewhere(client: Client, name: str):
    """Paths are shortened on the way: of an arm ".." the catalogue would be left."""
    with pytest.raises(InvalidArgument, match="arm must be of letters"):
        client.delete_arm("films", name)
    assert client.get_catalogue("films").id == "films"


class NaTType:
    """As pandas has it."""

    def __str__(self) -> str:
        return "NaT"


NOT_JSON: list[tuple[dict[str, Any], str]] = [
    ({"features": [1.0, float("nan")]}, r"features\[1\] is not a finite number"),
    ({"features": np.array([np.inf, 1.0])}, r"features\[0\] is not a finite number"),
    ({"metadata": {"maker": {"price": float("nan")}}}, r"metadata\.maker\.price is not a finite number"),
    ({"metadata": {"price": np.float32("nan")}}, r"metadata\.price is not a finite number"),
    (
        {"metadata": {"at": datetime(2026, 1, 1, tzinfo=UTC)}},
        r"metadata\.at is a datetime: pass a text or a num",
    ),
    ({"metadata": {"at": NaTType()}}, r"metadata\.at is missing \(NaT\): leave it out"),
    ({"metadata": {"at": np.datetime64("NaT")}}, r"metadata\.at is missing \(NaT\): leave it out"),
    ({"metadata": {"at": np.datetime64("2026-01-01", "ns")}}, r"metadata\.at is a datetime64: pass a text"),
    ({"metadata": {"tags": ["a", {"b": {1}}]}}, r"metadata\.tags\[1\]\.b is a set"),
]


@pytest.mark.parametrize(("fields", "words"), NOT_JSON)
def test_what_json_has_not_is_named_by_its_field(counting: Any, fields: dict[str, Any], words: str):
    good = {
        "id": "a",
        "features": [1.0, 2.0],
        "metadata": {"n": np.int64(3), "x": np.float32(2), "none": None},
    }
    service, client = counting
    with pytest.raises(InvalidArgument, match=f"row 1: .*{words}"):
        client.upsert_arms("films", [good, {**good, **fields}])
    assert service.arms == 0
    client.upsert_arms("films", [good])
    assert service.arms == 1


def test_values_of_rewards_and_contexts_are_named_too(counting: Any):
    _, client = counting
    for call in (
        lambda: client.reward("token", float("nan")),
        lambda: client.observe("b", [{"id": "o", "arm": "a", "value": float("nan")}]),
    ):
        with pytest.raises(InvalidArgument, match=re.escape("value is not a finite number")):
            call()

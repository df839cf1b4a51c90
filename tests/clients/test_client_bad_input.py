"""What goes wrong at first: each is one line that says what and where, and nothing is half done."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from app.api.api_keys import new_key
from service_process import Service, serving
from shortlist_client import Client, Retry, RewardSender
from shortlist_client.errors import ConnectionFailed, DimensionMismatch, InvalidArgument

pytestmark = pytest.mark.rest

ROWS, WRONG = 70_100, 70_001


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
    with client, pytest.raises(ConnectionFailed, match=r"no service answers at http://127.0.0.1:1") as failed:
        client.choose("home")
    assert "\n" not in str(failed.value)


def test_a_vector_of_another_length_far_down_a_stream(counting: tuple[Counting, Client]):
    """Of its batch nothing is sent, and it is said what was sent before."""
    service, client = counting
    rows = ([1.0] if row == WRONG else [1.0, 2.0] for row in range(ROWS))
    with pytest.raises(InvalidArgument, match=rf"row {WRONG} .* The first 70,000 were applied"):
        client.upsert_arms("films", rows, ids=map(str, range(ROWS)))
    assert service.arms == 70_000


def test_the_service_names_the_row_of_the_whole_list(client: Client):
    """All rows have one length, which is not that of the catalogue, or one holds what is no feature."""
    with pytest.raises(DimensionMismatch, match=r"body.arms.0.features"):
        client.upsert_arms("films", np.zeros((3, 5)), ids=["a", "b", "c"])
    rows = np.zeros((10_050, 2))
    rows[10_020, 1] = 1e300
    with pytest.raises(Exception, match=r"body.arms.10020.features.1: .*The first 10,000 .* were applied"):
        client.upsert_arms("films", rows, ids=[f"a{row}" for row in range(len(rows))])
    assert client.get_catalogue("films").size == 10_000


FRAME = pd.DataFrame({"id": ["a", "b"], "x": [1.0, 2.0], "y": [3.0, np.nan], "at": [pd.Timestamp(0), pd.NaT]})
TIMES = FRAME[["at"]].to_dict("records")
ONE: Any = [[1.0, 2.0]]
# By what is wrong: the call, and what its error says.
TABLES: dict[str, tuple[Callable[[Client], object], str]] = {
    "arms": (
        lambda client: client.upsert_arms("films", FRAME),
        r"arms: a DataFrame .*to_numpy.* ids=df\[column\]",
    ),
    "ids": (
        lambda client: client.upsert_arms("films", ONE * 2, ids=FRAME[["id"]]),
        "ids: a DataFrame .*one column",
    ),
    "tags": (
        lambda client: client.upsert_arms("films", ONE, ids=["a"], tags="t"),
        "tags: must be a list, not str",
    ),
    "rewards": (lambda client: client.reward_batch(FRAME), "rewards: a DataFrame .*records"),  # type: ignore[arg-type]
    "a Timestamp": (
        lambda client: client.upsert_arms("films", ONE * 2, ids=["a", "b"], metadata=TIMES),
        r"row 0: metadata\.at: Timestamp cannot be sent as JSON: give a number, a text",
    ),
    "NaT of a reward": (lambda client: client.reward("d", at=pd.NaT), "reward 0: at: NaTType"),  # type: ignore[arg-type]
    "deep in a filter": (
        lambda client: client.dry_run("home", filter={"$or": [{}, {"n": {"$gte": pd.Timestamp(0)}}]}),
        r"filter\.\$or\.1\.n\.\$gte: Timestamp cannot be sent as JSON",
    ),
    "a name": (
        lambda client: client.dry_run("home", filter={("a", 1): 2}),
        "filter: the name of a field must be a text",
    ),  # type: ignore[dict-item]
    "a time": (lambda client: client.list_log("home", start=np.nan), "start and end must be datetimes"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_and_what_is_none_of_json(counting: tuple[Counting, Client], name: str):
    """Nothing is sent, and the error names the argument, or the row and the field, and says what to pass."""
    service, client = counting
    call, words = TABLES[name]
    with pytest.raises(InvalidArgument, match=words) as refused:
        call(client)
    assert "\n" not in str(refused.value)
    assert service.arms == 0


def test_a_reward_that_cannot_be_sent_does_not_hold_up_those_behind_it():
    sent = list[str]()

    def take(request: httpx.Request) -> httpx.Response:
        sent.extend(each["decision"] for each in json.loads(request.content)["rewards"])
        return httpx.Response(200, json={"accepted": 1, "duplicate": 0, "rejected": []})

    with RewardSender(Client(http=httpx.Client(transport=httpx.MockTransport(take)))) as rewards:
        with pytest.raises(InvalidArgument, match="value: nan cannot be sent"):
            rewards.add("first", np.nan)
        rewards.add("second")
    assert sent == ["second"]


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

"""`shortlist ingest` from librdkafka's broker double: each message once, whoever is killed."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from app.api.api_keys import new_key
from broker_double import BrokerDouble
from ports import reserved_port
from service_process import Service, ShortlistProcess, run, serving
from shortlist_client import Client
from shortlist_service.errors import ShortlistError
from shortlist_streams.ingesting import source_of
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

TOPIC = "rewards"
SOON = "session.timeout.ms=6000\nheartbeat.interval.ms=500\n"  # until a member that was killed is left out


@pytest.fixture
def metrics_address() -> Iterator[str]:
    with reserved_port() as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
def service_port() -> Iterator[str]:
    with reserved_port() as port:
        yield str(port)


@contextmanager
def ingesting(
    folder: Path, broker: BrokerDouble, url: str, *arguments: str, group: str = "shortlist"
) -> Iterator[ShortlistProcess]:
    folder = folder / "ingest"
    folder.mkdir(exist_ok=True)
    settings = folder / "kafka.properties"
    settings.write_text(SOON)
    address = f"kafka://{broker.address}/{TOPIC}?group={group}"
    command = ["ingest", "--from", address, "--url", url, "--kafka-settings", str(settings), *arguments]
    process = ShortlistProcess(folder, command, {})
    try:
        yield process
    finally:
        process.kill()


def build(client: Client) -> None:
    client.put_catalogue("c", dim=2)
    client.upsert_arms("c", [[1.0, 0.0], [0.0, 1.0]], ids=["a", "b"])
    client.put_bandit("b", catalogue="c", policy="sub_ts", log={})


def decisions(client: Client, count: int) -> list[dict[str, object]]:
    choices = client.choose_batch("b", ({} for _ in range(count))).results
    return [{"decision": choice.decision, "value": 1.0} for choice in choices]


def await_committed(broker: BrokerDouble, count: int) -> None:
    wait_until_sync(lambda: broker.committed(TOPIC) == count, what="all messages are done")


def assert_learned_once(client: Client, rewards: int, observations: int = 0) -> None:
    wait_until_sync(lambda: client.ready().backlog == 0, what="all rewards are applied")
    assert client.get_learner("b").observations == rewards + observations
    rows = list(client.log("b", page_size=1_000))
    assert sum(len(row.rewards) for row in rows) == rewards
    assert max(len(row.rewards) for row in rows) == 1


def test_good_messages_teach_and_bad_ones_are_dead_letters_with_their_reason(
    tmp_path: Path, metrics_address: str
):
    broker = BrokerDouble()
    with serving(tmp_path) as service, Client(service.url) as client:
        build(client)
        client.put_bandit("u", catalogue="c", policy="sub_ts", context={"dim": 2})
        good = decisions(client, 20)
        client.choose_batch("b", ({"event_id": f"e{number}"} for number in range(5)))
        by_event = [{"bandit": "b", "event_id": f"e{number}", "value": 1.0} for number in range(5)]
        observed = [{"bandit": "b", "id": f"o{i}", "arm": "a", "value": 0.5} for i in range(20)]
        fitting = [
            {"bandit": "u", "id": f"o{i}", "arm": "a", "value": 1, "context": [0, 1]} for i in range(9)
        ]
        bad = {
            b"{": "not_json",
            b"": "not_json",
            b"[" * 100_000: "not_json",
            b"[1]": "invalid: must be an object",
            b'{"value": NaN, "decision": "x"}': "invalid: ",
            b'{"decision": "x", "value": 1, "other": 2}': "invalid: other: ",
            b'{"decision": "forged", "value": 1}': "invalid_token",
            b'{"bandit": "b", "event_id": "none", "value": 1}': "unknown_event",
            b'{"event_id": "e0", "value": 1}': "invalid: bandit: ",
            b'{"bandit": "b", "id": "x", "arm": "nobody", "value": 1}': "unknown_arm",
            b'{"bandit": "nobody", "id": "x", "arm": "a", "value": 1}': "unknown_bandit",
            b'{"bandit": "u", "id": "x", "arm": "a", "value": 1, "context": [1]}': "POST /v1/bandits/u/obs",
        }
        count = broker.send(TOPIC, [*good, *by_event, *observed, *bad, *fitting, *good])
        with ingesting(tmp_path, broker, service.url, "--metrics", metrics_address) as process:
            await_committed(broker, count)
            wait_until_sync(
                lambda: 'lag{partition="0"} 0.0' in metrics(metrics_address), what="nothing is behind"
            )
            text = metrics(metrics_address)
            process.send(signal.SIGTERM)
            assert process.wait() == 0, process.text()
        assert_learned_once(client, 25, 20)
        assert client.get_learner("u").observations == 9
    letters = broker.read(f"{TOPIC}.dead-letters")
    found = {each.value() or b"": dict(each.headers()) for each in letters}
    assert len(letters) == len(found) == len(bad)
    for value, reason in bad.items():
        assert found[value]["reason"].decode().startswith(reason), found[value]
        assert found[value]["topic"] == TOPIC.encode()
    for outcome, number in {"accepted": 54, "duplicate": 20, "dead_letter": len(bad)}.items():
        assert f'shortlist_ingest_messages_total{{outcome="{outcome}"}} {number}.0' in text
    assert 'shortlist_ingest_up{peer="kafka"} 1.0' in text


def metrics(address: str) -> str:
    return httpx.get(f"http://{address}/metrics").text


def kill_again_and_again(folder: Path, port: str, *, rewards: int, kills: int, service_kills: int) -> None:
    """Kill the ingester, and now and then the service, while messages come. Each comes twice in the topic."""
    broker, sent, last = BrokerDouble(), 0, list[dict[str, object]]()
    service = Service(folder / "logs", folder / "data", "--port", port)
    try:
        with Client(service.url) as client:
            build(client)
        for number in range(kills + 1):
            with Client(service.url) as client:
                some = decisions(client, rewards // (kills + 1))
                learned = client.get_learner("b").observations
            committed = broker.committed(TOPIC) if number else 0
            with ingesting(folder, broker, service.url), Client(service.url) as client:
                sent += broker.send(TOPIC, [*last, *some])
                if number == kills or number % 3 == 2:  # all: the double drops what is unread for long
                    await_committed(broker, sent)
                elif number % 2:
                    wait_until_sync(partial(_moved, broker, committed), what="some are done")
                else:  # before it commits, most likely
                    wait_until_sync(partial(_learned, client, learned), what="some were sent")
                if number * service_kills // kills != (number + 1) * service_kills // kills:
                    service.kill()
                    service = Service(folder / "logs", folder / "data", "--port", port)
            last = some
        with ingesting(folder, broker, service.url, group="again"), Client(service.url) as client:
            wait_until_sync(lambda: broker.committed(TOPIC, "again") == sent, what="they came once more")
            assert_learned_once(client, rewards)
    finally:
        service.kill()
    assert f"{TOPIC}.dead-letters" not in broker.topics()


def _moved(broker: BrokerDouble, before: int) -> bool:
    return broker.committed(TOPIC) > before


def _learned(client: Client, before: int) -> bool:
    return client.get_learner("b").observations > before


def test_the_last_reward_is_that_of_the_latest_message(tmp_path: Path):
    """Messages have the times at which they were sent, whenever they are read."""
    broker, now_ms = BrokerDouble(), 1_700_000_000_000
    with serving(tmp_path) as service, Client(service.url) as client:
        build(client)
        client.patch_bandit("b", reward={"aggregate": "last"})
        token = client.choose("b").decision
        sent = sum(
            broker.send(TOPIC, [{"decision": token, "value": value}], at_ms=now_ms + at)
            for value, at in ((5.0, 9), (3.0, 2), (2.0, 8))
        )
        with ingesting(tmp_path, broker, service.url):
            await_committed(broker, sent)
        wait_until_sync(lambda: client.ready().backlog == 0, what="all rewards are applied")
        (row,) = client.log("b")
    assert [each.value for each in row.rewards] == [5.0]


def test_times_of_messages_are_read_in_the_unit_that_their_producer_meant(tmp_path: Path):
    """A time that no sender of the reward wrote never makes it a dead letter, and the latest one counts."""
    broker, now_s = BrokerDouble(), 1_700_000_000
    units = {1: 1.0, 10**3: 2.0, 10**6: 3.0, 10**9: 4.0}  # of a second: and the reward that is sent so
    with serving(tmp_path) as service, Client(service.url) as client:
        build(client)
        plain = decisions(client, len(units))
        client.patch_bandit("b", reward={"aggregate": "last"})
        tokens = [client.choose("b").decision for _ in units]
        sent = 0
        for (unit, value), reward, token in zip(units.items(), plain, tokens, strict=True):
            sent += broker.send(TOPIC, [reward], at_ms=now_s * unit)
            late, early = (now_s + 60) * unit, (now_s - 60) * 1_000
            sent += broker.send(TOPIC, [{"decision": token, "value": value}], at_ms=late)
            sent += broker.send(TOPIC, [{"decision": token, "value": 9.0}], at_ms=early)
        sent += broker.send(TOPIC, [{"decision": plain[0]["decision"], "value": 1.0}], at_ms=2**63 - 1)
        with ingesting(tmp_path, broker, service.url):
            await_committed(broker, sent)
        wait_until_sync(lambda: client.ready().backlog == 0, what="all rewards are applied")
        rows = {row.decision: [each.value for each in row.rewards] for row in client.log("b")}
    assert [rows[token] for token in tokens] == [[value] for value in units.values()]
    assert sum(map(len, rows.values())) == 2 * len(units)
    assert f"{TOPIC}.dead-letters" not in broker.topics()


def test_observations_have_the_times_of_their_messages_or_their_own(tmp_path: Path):
    """Those weigh less that are older. A time that cannot be makes no dead letter."""
    broker, now_ms = BrokerDouble(), time.time_ns() // 1_000_000
    with serving(tmp_path) as service, Client(service.url) as client:
        client.put_catalogue("c", dim=2)
        client.upsert_arms("c", [[1.0, 0.0], [0.0, 1.0]], ids=["a", "b"])
        client.put_bandit(
            "b", catalogue="c", policy="linear_ts", half_life_s=3_600, ridge=1.0, intercept=False
        )
        item = {"bandit": "b", "value": 1.0}
        sent = broker.send(TOPIC, [{**item, "id": "new", "arm": "a"}], at_ms=now_ms)
        sent += broker.send(TOPIC, [{**item, "id": "old", "arm": "b"}], at_ms=now_ms - 3_600_000)
        own = {**item, "id": "own", "arm": "b", "at": now_ms - 7_200_000}
        sent += broker.send(TOPIC, [own], at_ms=now_ms)
        sent += broker.send(TOPIC, [{**item, "id": "no-time", "arm": "a"}], at_ms=2**63 - 1)
        with ingesting(tmp_path, broker, service.url):
            await_committed(broker, sent)
        wait_until_sync(lambda: client.get_learner("b").observations == 4, what="all are applied")
        theta = client.get_learner("b").theta
    assert theta == pytest.approx([2 / 3, 0.75 / 1.75], rel=1e-2)
    assert f"{TOPIC}.dead-letters" not in broker.topics()


def test_messages_count_once_through_kills(tmp_path: Path, service_port: str):
    kill_again_and_again(tmp_path, service_port, rewards=600, kills=2, service_kills=1)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_hundred_thousand_messages_count_once_through_kills(tmp_path: Path, service_port: str):
    kill_again_and_again(tmp_path, service_port, rewards=105_000, kills=20, service_kills=10)


def test_what_is_away_is_waited_for(tmp_path: Path, metrics_address: str, service_port: str):
    broker = BrokerDouble()
    with serving(tmp_path, "--port", service_port) as service:
        with Client(service.url) as client:
            build(client)
            broker.send(TOPIC, decisions(client, 50))
        service.kill()
        with ingesting(tmp_path, broker, service.url, "--metrics", metrics_address) as process:
            process.await_message("service is away")
            assert 'shortlist_ingest_up{peer="service"} 0.0' in metrics(metrics_address)
            assert broker.committed(TOPIC) == 0
            with serving(tmp_path, "--port", service_port), Client(service.url) as client:
                process.await_message("service is back")
                await_committed(broker, 50)
                assert_learned_once(client, 50)


def test_a_topic_that_is_away_is_waited_for(tmp_path: Path, metrics_address: str):
    arguments = ["ingest", "--from", "kafka://127.0.0.1:1/rewards", "--metrics", metrics_address]
    process = ShortlistProcess(tmp_path, arguments, {})
    try:
        process.await_message("kafka is away")
        assert 'shortlist_ingest_up{peer="kafka"} 0.0' in metrics(metrics_address)
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    finally:
        process.kill()


def test_settings_of_the_client_come_from_a_file(tmp_path: Path):
    path = tmp_path / "kafka.properties"
    path.write_text("# of the cluster\nsecurity.protocol = SASL_SSL\n\nsasl.password=a=b\n")
    source = source_of("kafka://h1:1,h2:2/t?group=g", settings=path)
    assert source.settings == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}
    assert (source.servers, source.topic, source.group) == ("h1:1,h2:2", "t", "g")
    path.write_text("nonsense")
    with pytest.raises(ShortlistError, match="nonsense"):
        source_of("kafka://h/t", settings=path)
    path.write_text("no.such.setting=1")
    refused = run("ingest", "--from", "kafka://h/t", "--kafka-settings", str(path), cwd=tmp_path)
    assert refused.returncode == 2
    assert "no.such.setting" in refused.stderr


def test_a_key_that_is_refused_ends_it_and_nothing_is_lost(tmp_path: Path):
    _, entry = new_key("other", ["admin"])
    broker = BrokerDouble()
    broker.send(TOPIC, [{"decision": "x", "value": 1}])
    with (
        serving(tmp_path, SHORTLIST_API_KEYS=entry) as service,
        ingesting(tmp_path, broker, service.url) as process,
    ):
        assert process.wait() == 2
        assert "401" in process.text()
    assert broker.committed(TOPIC) == 0

"""`shortlist ingest`: rewards and observations from a Kafka topic.

Messages are sent as they come, some thousands together, by the service's own calls. The group's offset is
moved when the service has answered, for then they are durable, and those that it refused are in the topic of
dead letters. Whatever is killed in between, messages come again, and the service counts each id once.
"""

from __future__ import annotations

import json
import logging
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import confluent_kafka
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from pydantic import ValidationError

from shortlist_client import Client, errors
from shortlist_client.answers import Receipt
from shortlist_service.bodies import FIRST_MS, Identifier, ObservationItem, RewardItem
from shortlist_service.errors import ShortlistError

log = logging.getLogger("shortlist.ingest")

BATCH_SIZE = 5_000  # messages, with at most MOST_BYTES, or what comes within REST_S
STEP = 500
MOST_BYTES = 8 << 20
REST_S = 0.05
RETRY_S = 1.0
MEASURE_S = 5.0
ANSWER_S = 5.0
REASON_CHARS = 500
S_BELOW, US_FROM = 10**11, 10**14  # of times since 1970: as ms they would be of 1973, and of 5138

# What an answer says of what was sent. All others say something of the service, and are waited out.
CONTENT = (errors.BadRequest, errors.Invalid, errors.NotFound, errors.TooLarge)
NOT_ALLOWED = (errors.Unauthorized, errors.Forbidden)


class ObservationMessage(ObservationItem):
    bandit: Identifier


@dataclass(frozen=True, slots=True)
class Source:
    """A topic: ``servers`` as Kafka's clients take them, ``settings`` of librdkafka besides."""

    servers: str
    topic: str
    group: str
    dead_letters: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that was refused. ``message`` is that of the topic."""

    message: Any
    reason: str


class _Stopped(Exception):
    """The end of the loop, with the current batch not done."""


def source_of(address: str, *, dead_letters: str | None = None, settings: Path | None = None) -> Source:
    """Read ``kafka://HOST[:PORT][,HOST…]/TOPIC[?group=NAME]``. Raises ShortlistError."""
    parts = urlsplit(address)
    topic, query = parts.path.removeprefix("/"), parse_qs(parts.query, strict_parsing=bool(parts.query))
    if parts.scheme != "kafka" or not parts.netloc or not topic or "/" in topic or query.keys() - {"group"}:
        raise ShortlistError("--from: must be kafka://HOST[:PORT][,HOST...]/TOPIC[?group=NAME]")
    if "@" in parts.netloc:
        raise ShortlistError("--from: must not name a user; use --kafka-settings")
    return Source(
        parts.netloc,
        topic,
        query.get("group", ["shortlist"])[0],
        dead_letters or f"{topic}.dead-letters",
        {} if settings is None else _properties(settings),
    )


def _properties(path: Path) -> dict[str, str]:
    """Lines ``name=value``, as Kafka's own tools read them."""
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise ShortlistError(f"--kafka-settings: {error}") from None
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    if wrong := next((name for name, equals, _ in pairs if not equals), None):
        raise ShortlistError(f"--kafka-settings: {wrong!r:.80} must be a line name=value")
    return {name.strip(): value.strip() for name, _, value in pairs}


def ingest(source: Source, client: Client, *, metrics: str | None = None) -> None:
    """Ingest until SIGTERM or SIGINT. ``metrics``: HOST:PORT of /metrics.

    Raises ShortlistError: a setting is wrong; errors of the client: the key is refused.
    """
    registry = CollectorRegistry()
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
    if metrics is not None:
        _serve_metrics(metrics, registry)
    try:
        ingester = Ingester(confluent_kafka, source, client, registry)
    except (confluent_kafka.KafkaException, ValueError, TypeError) as error:
        raise ShortlistError(f"Kafka's client refuses its settings: {error}") from None
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ingester.stop())
    ingester.run()


def _serve_metrics(address: str, registry: CollectorRegistry) -> None:
    host, _, port = address.rpartition(":")
    try:
        start_http_server(int(port), host.strip("[]") or "127.0.0.1", registry)
    except (OSError, ValueError, OverflowError) as error:
        raise ShortlistError(f"--metrics {address}: must be HOST:PORT that is free: {error}") from None


class Ingester:
    """Brings messages of a topic to a service. ``kafka`` is the module of Kafka's client."""

    def __init__(self, kafka: Any, source: Source, client: Client, registry: CollectorRegistry) -> None:
        self._kafka, self._source, self._client = kafka, source, client
        common = {"bootstrap.servers": source.servers, "log_level": 2, **source.settings}
        settings_of_kafka = {
            "group.id": source.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": MOST_BYTES >> 10,
            "topic.metadata.refresh.interval.ms": 10_000,
        }
        self._consumer = kafka.Consumer(common | settings_of_kafka, logger=log)
        reliable = {"enable.idempotence": True, "delivery.timeout.ms": 30_000, "message.max.bytes": 100 << 20}
        self._producer = kafka.Producer(common | reliable, logger=log)
        self._done: dict[int, int] = {}  # by partition: offsets that are not committed yet
        self._away: set[str] = set()
        self._measured = 0.0
        self._stopping = False
        self._messages = Counter(
            "shortlist_ingest_messages", "Messages that are done.", ["outcome"], registry=registry
        )
        self._lag = Gauge(
            "shortlist_ingest_lag",
            "Messages of the topic after the committed offset.",
            ["partition"],
            registry=registry,
        )
        self._up = Gauge(
            "shortlist_ingest_up",
            "1 while it answers, 0 while it is waited for.",
            ["peer"],
            registry=registry,
        )

    def stop(self) -> None:
        """Make ``run`` return after the current batch."""
        self._stopping = True

    def run(self) -> None:
        """Work until ``stop``. Raises errors of the client: the key is refused."""
        source = self._source
        self._consumer.subscribe([source.topic], on_revoke=self._revoked, on_lost=self._revoked)
        log.info("ingesting %s as group %s", source.topic, source.group)
        try:
            while not self._stopping:
                self._measure()
                messages = self._next()
                if messages:
                    self._write_dead_letters(self._send_all(messages))
                    for message in messages:
                        self._done[message.partition()] = message.offset() + 1
                self._commit()
        except _Stopped:
            log.info("stopped with messages at hand: they come again")
        finally:
            self._consumer.close()

    def _revoked(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        for partition in partitions:
            self._done.pop(partition.partition, None)

    def _next(self) -> list[Any]:
        messages, size, end = list[Any](), 0, time.monotonic() + REST_S
        while len(messages) < BATCH_SIZE and size < MOST_BYTES and (left_s := end - time.monotonic()) > 0:
            for message in self._consumer.consume(STEP, timeout=left_s):
                if message.error():
                    log.warning("Kafka says: %s", message.error().str())
                else:
                    messages.append(message)
                    size += len(message.value() or b"")
        return messages

    def _commit(self) -> None:
        if self._done:
            topic, kind = self._source.topic, self._kafka.TopicPartition
            offsets = [kind(topic, partition, offset) for partition, offset in self._done.items()]
            try:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            except self._kafka.KafkaException as error:  # tried again; what comes twice counts once
                log.warning("offsets are not committed: %s", error.args[0].str())
            else:
                self._done.clear()

    def _send_all(self, messages: Sequence[Any]) -> list[RefusedMessage]:
        """Send what can be sent; return the rest. Returns when the service has all."""
        dead = list[RefusedMessage]()
        by_bandit: dict[str | None, list[tuple[Any, Any]]] = defaultdict(list)
        for message in messages:
            try:
                bandit, item = item_of(message.value())
            except ValueError as error:
                dead.append(RefusedMessage(message, str(error)))
            else:
                by_bandit[bandit].append((message, timed(item, message, is_reward=bandit is None)))
        for bandit, pairs in by_bandit.items():
            call = self._client.reward_batch if bandit is None else partial(self._client.observe, bandit)
            dead += self._send(call, pairs)
        self._messages.labels("dead_letter").inc(len(dead))
        return dead

    def _send(
        self, call: Callable[[list[Any]], Receipt], pairs: Sequence[tuple[Any, Any]]
    ) -> list[RefusedMessage]:
        """Send a batch. If refused as a whole, its halves are sent: the bad ones are found among many."""
        try:
            receipt = self._answer(partial(call, [item for _, item in pairs]))
        except CONTENT as error:
            if isinstance(error, errors.NotFound) and "bandit" not in error.call:
                raise
            if isinstance(error, errors.NotFound):
                return [RefusedMessage(message, "unknown_bandit") for message, _ in pairs]
            if len(pairs) == 1:
                return [RefusedMessage(pairs[0][0], str(error))]
            half = len(pairs) // 2
            return self._send(call, pairs[:half]) + self._send(call, pairs[half:])
        self._messages.labels("accepted").inc(receipt.accepted)
        self._messages.labels("duplicate").inc(receipt.duplicate)
        return [RefusedMessage(pairs[rejected.index][0], rejected.code) for rejected in receipt.rejected]

    def _answer(self, call: Callable[[], Receipt]) -> Receipt:
        """The service's answer, as soon as there is one. Raises _Stopped, or what it says of the request."""
        while True:
            try:
                receipt = call()
            except (*CONTENT, *NOT_ALLOWED):
                self._note_heard("service")
                raise
            except errors.ShortlistError as error:
                self._missed("service", str(error))
                self._pause()
            else:
                self._note_heard("service")
                return receipt

    def _write_dead_letters(self, letters: Sequence[RefusedMessage]) -> None:
        """Write dead letters; return when all are durable."""
        left = [(dead, dead.message.value()) for dead in letters]
        while left:
            failed: list[tuple[RefusedMessage, Any]] = []
            for letter, value in left:
                self._produce(letter, value, failed)
            self._producer.flush()
            left = failed
            if left:
                self._missed("kafka", f"{len(left)} dead letters are not written")
                self._pause()

    def _produce(self, letter: RefusedMessage, value: Any, failed: list[tuple[RefusedMessage, Any]]) -> None:
        message, kafka = letter.message, self._kafka
        source = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
        headers = [("reason", letter.reason[:REASON_CHARS].encode(errors="replace"))]
        headers += [(name, str(part).encode()) for name, part in source.items()]

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:  # one that is too large is named by its place alone
                too_large = error.code() == kafka.KafkaError.MSG_SIZE_TOO_LARGE
                failed.append((letter, None if too_large else value))

        while True:
            try:
                self._producer.produce(
                    self._source.dead_letters, value, message.key(), headers=headers, on_delivery=delivered
                )
            except BufferError:
                self._producer.poll(RETRY_S)
            except kafka.KafkaException as error:
                delivered(error.args[0], None)
                return
            else:
                return

    def _pause(self) -> None:
        if self._stopping:
            raise _Stopped
        self._measure()
        time.sleep(RETRY_S)

    def _measure(self) -> None:
        """Now and then: whether the topic is there, and how far the group is behind its end."""
        if time.monotonic() - self._measured < MEASURE_S:
            return
        try:
            lags = self._lags()
        except self._kafka.KafkaException as error:
            self._missed("kafka", error.args[0].str())
        else:
            self._note_heard("kafka")
            self._lag.clear()
            for partition, lag in lags.items():
                self._lag.labels(partition).set(lag)
        self._measured = time.monotonic()

    def _lags(self) -> dict[int, int]:
        """The lag of each partition of this process. Raises KafkaException, also for a missing topic."""
        topic = self._source.topic
        topic_metadata = self._consumer.list_topics(topic, timeout=ANSWER_S).topics[topic]
        if topic_metadata.error is not None:
            raise self._kafka.KafkaException(topic_metadata.error)
        assigned = self._consumer.assignment()
        committed = self._consumer.committed(assigned, timeout=ANSWER_S) if assigned else ()
        return {partition.partition: self._behind(partition) for partition in committed}

    def _behind(self, partition: Any) -> int:
        low, high = self._consumer.get_watermark_offsets(partition, timeout=ANSWER_S)
        return int(high - max(low, partition.offset))

    def _missed(self, peer: str, why: str) -> None:
        self._up.labels(peer).set(0)
        if peer not in self._away:
            self._away.add(peer)
            log.warning("%s is away, messages wait: %s", peer, why)

    def _note_heard(self, peer: str) -> None:
        self._up.labels(peer).set(1)
        if peer in self._away:
            self._away.discard(peer)
            log.info("%s is back", peer)


def timed(item: dict[str, Any], message: Any, *, is_reward: bool) -> dict[str, Any]:
    """An item without a time gets the time of its message, however late it is read.

    Observations with a time which the service would refuse keep none.
    """
    kind, at = message.timestamp()
    if not kind or at < 0 or not (is_reward or FIRST_MS <= _in_ms(at) <= 1_000 * time.time()):
        return item
    return {"at": _in_ms(at), **item}


def _in_ms(at: int) -> int:
    """A time since 1970. Kafka says ms, but producers write s, us and ns too: their sizes are years apart."""
    if at < S_BELOW:
        return 1_000 * at
    while at >= US_FROM:
        at //= 1_000
    return at


def item_of(value: bytes | None) -> tuple[str | None, dict[str, Any]]:
    """The bandit of an observation, or None for a reward; and the item of the call.

    Raises ValueError: why it is neither.
    """
    try:
        item = json.loads(value or b"")
    except (ValueError, RecursionError):
        raise ValueError("not_json") from None
    if not isinstance(item, dict):
        raise ValueError("invalid: must be an object")  # noqa: TRY004 - as all that is wrong with a message
    # The reward of an event names its bandit too.
    is_reward = "bandit" not in item or "event_id" in item
    model = RewardItem if is_reward else ObservationMessage
    try:
        model.model_validate_json(value or b"")
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()[:3]]
        raise ValueError(f"invalid: {'; '.join(wrong)}") from None
    return (None if is_reward else item.pop("bandit")), item

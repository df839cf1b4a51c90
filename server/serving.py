"""`shortlist serve` and `shortlist worker`: one process, from its settings to its clean end.

Several service processes on one address: ``server.serving_group``.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn, cast

import uvicorn
import uvloop
from pydantic import SecretStr
from starlette.types import ASGIApp
from threadpoolctl import threadpool_limits

from app.api import request_limits as limits
from app.bandits.spaces import Moves
from app.catalogues.catalogue_kinds import ENGINE_KINDS
from app.learners.effect_fits import EffectFits
from app.learners.learned_priors import LearnedPriors
from app.learners.prior_fits import PriorFits
from app.learners.served_effects import ServedEffects
from app.platform.answer_memory import Unread
from app.platform.background import end, leave
from app.platform.errors import StartupError
from app.platform.logs import set_up_logging
from app.platform.machine import usable_memory
from app.platform.metrics import Metrics
from app.platform.plugin_settings import names_of_plugins
from app.platform.settings import VERSION, Settings, misspelled, refuse_bounds_of_kinds
from app.replication.expected_store import ExpectedStore
from app.replication.health import watch_memory
from app.rewards.erasure import Erasure
from app.serving.choice import kept_decision
from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store
from server.application import create_app
from server.http_protocol import Clients, ShortlistProtocol
from workers.bandit_moves import Carrying
from workers.effect_fitting import EffectFitting
from workers.housekeeping import Housekeeping
from workers.learned_bandits import LearnedBandits
from workers.log_retention import LogRetention
from workers.partition_leases import Leases, OnlyWorker
from workers.prior_fitting import PriorFitting
from workers.reward_ingestion import RewardWorker

log = logging.getLogger("shortlist")

BACKLOG = 2_048
KERNEL_BYTES = 1 << 17  # what the kernel takes of an answer before the client does
ACCEPTED_EVERY_S = 0.0002  # of a turn of the loop: so many connections are accepted after it
MOST_ACCEPTED = 100  # after one turn
LONGEST_TURN_S = 1.0  # beyond that nobody came
NO_FILES_S = 1.0  # until connections are accepted again after there were too many open files
GRACE_S = 30
GC_THRESHOLDS = (20_000, 20, 100)  # a full collection takes milliseconds: make it rare
SWITCH_INTERVAL_S = 0.0005  # a request waits at most so long for a thread that keeps an index
WORKER_POLL_S = 0.02
TICK_S = 1.0
EMBEDDED_SHARE = 0.35  # of the memory of the machine or container: the arms are beside the store
WORKER_PRIOR_BYTES = 4 << 20


@contextlib.contextmanager
def with_servers(settings: Settings) -> Iterator[Settings]:
    """The settings, with the addresses of the store and of engines of arms.

    Those that are not given, or are given as a file, are servers that live as long as this context.
    """
    with contextlib.ExitStack() as servers:
        if settings.redis_url is None:
            store = servers.enter_context(EmbeddedServer(settings.data_dir))
            max_store_mb = settings.max_store_mb or max(1, int(EMBEDDED_SHARE * usable_memory()) >> 20)
            update = {"redis_url": SecretStr(store.url), "max_store_mb": max_store_mb}
            settings = settings.model_copy(update=update)
        for source in ENGINE_KINDS.values():
            settings = servers.enter_context(source.serving(settings))
        yield settings


class Acceptor:
    """Accepts the connections to a listening socket: as many after a turn of the loop as it was long.

    uvloop accepts one in each turn: behind hundreds of requests that are computed step by step, a new
    connection would wait for hundreds of turns. After a short turn it is one here too, so that processes
    that share the socket get about equally many.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        *,
        no_files_s: float = NO_FILES_S,
    ) -> None:
        self._no_files_s = no_files_s
        self._listener = listener
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._last = 0.0
        self._connecting = set[asyncio.Task[None]]()
        self._timer: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept none any more. The socket stays open."""
        self._loop.remove_reader(self._listener)
        if self._timer is not None:
            self._timer.cancel()

    async def wait_closed(self) -> None:
        """As that of an ``asyncio.Server``: uvicorn awaits it."""
        await asyncio.gather(*self._connecting)

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        turn_s = time.perf_counter() - self._last
        count = 1 + int(turn_s / ACCEPTED_EVERY_S) if turn_s < LONGEST_TURN_S else 1
        for _ in range(min(count, MOST_ACCEPTED)):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                # Too many open files, mostly. It stays readable: without a pause this would be called in each
                # turn.
                log.warning("a connection cannot be accepted: %s", error.strerror)
                self._loop.remove_reader(self._listener)
                self._timer = self._loop.call_later(self._no_files_s, self._listen)
                break
            task = self._loop.create_task(self._connect(connection))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
        self._last = time.perf_counter()

    async def _connect(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError:  # the client is gone again
            connection.close()


class Server(uvicorn.Server):
    """uvicorn's server, but it does not raise the signal again that stopped it: the process ends itself.

    It wakes once a second, and looks for late clients then: ten looks a second at a flag would be much of
    what an idle service does. And it accepts connections by an ``Acceptor``, again ``no_files_s`` after there
    were too many open files.
    """

    no_files_s = NO_FILES_S

    def __init__(self, app: ASGIApp, clients: Clients) -> None:
        config = uvicorn.Config(
            app,
            http=cast("type[asyncio.Protocol]", partial(ShortlistProtocol, clients=clients)),
            proxy_headers=False,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=limits.MAX_IDLE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        self._clients = clients
        self._exits = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])  # uvicorn listens on none itself
        protocol = partial(
            cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class),
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        self.servers = [Acceptor(sock, protocol, no_files_s=self.no_files_s) for sock in sockets or ()]  # type: ignore[misc]  # all it needs

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, number)
        yield  # the handlers stay, so that a second signal does not disturb the stopping

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Answer what was asked, then return from ``serve``; a second SIGINT does not wait for answers."""
        self.handle_exit(number, None)
        self._exits.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # it also sets the date of answers
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._exits.wait()
            self.look_at_clients()

    def look_at_clients(self) -> None:
        """A second has passed: end the connections of those who are late."""
        self._clients.now += 1
        for connection in list(self.server_state.connections):
            cast("ShortlistProtocol", connection).look()


def serve(settings: Settings) -> NoReturn:
    """Serve until SIGTERM or SIGINT, then finish the requests under way and end. Raises StartupError."""
    settings.check()
    set_up_logging(settings.log_level, settings.log_format)
    threadpool_limits(1)  # one request, one core: searches run side by side, not each on all cores
    name = worker_name(settings, 1)
    with listen(settings) as listener, with_servers(settings) as served:
        announce = partial(log_ready, listener, served)
        uvloop.run(serve_on(served, listener, name=name, ready=lambda server: announce()))  # noqa: ARG005
    log.info("stopped")
    leave()


def worker_name(settings: Settings, number: int) -> str | None:
    """The name under which process ``number`` holds leases, None for a new name at each start.

    An embedded store has a single service, so its processes keep their names and leases over restarts.
    """
    return f"serve-{number}" if settings.redis_url is None else None


def log_ready(listener: socket.socket, settings: Settings) -> None:
    """Log the address of the service. Programs that start the service wait for this line."""
    host, port = listener.getsockname()[:2]
    address = f"[{host}]" if ":" in host else host
    address_fields = {"host": host, "port": port}
    log.info("Shortlist %s is ready on http://%s:%d", VERSION, address, port, extra=address_fields)
    if settings.has_console:
        log.info("Open http://%s:%d/console in a browser", address, port)
    for sentence in misspelled(os.environ, names_of_plugins()):
        log.warning("%s", sentence)


async def serve_on(
    settings: Settings,
    listener: socket.socket,
    *,
    name: str | None,
    ready: Callable[[Server], None],
    group_dir: Path | None = None,
    number: int = 1,
) -> None:
    """Serve with the store at ``redis_url``. ``ready`` is called once, just before requests are answered."""
    app = create_app(settings, name=name, group_dir=group_dir, number=number)
    async with app.router.lifespan_context(app):
        gc.freeze()  # what is loaded now stays, so collections need not look at it
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        server = Server(app, Clients(Unread(settings.max_unread_mb << 20)))
        ready(server)
        await server.serve(sockets=[listener])


def listen(settings: Settings) -> socket.socket:
    """A socket on the address of the settings. Raises StartupError."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    both = settings.host == "::" and socket.has_dualstack_ipv6()
    address = settings.host, settings.port
    try:
        listener = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        raise StartupError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from None
    # Connections inherit it. With megabytes in the kernel, a client that reads some kilobytes a second would
    # seem to read nothing for minutes.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_BYTES)
    return listener


def work(settings: Settings, *, burst: bool = False) -> None:
    """Apply the rewards in the store at ``redis_url`` until SIGTERM or SIGINT.

    ``burst``: apply only what is in the log now, then return. Raises StartupError; with ``burst`` also
    Unavailable.
    """
    if settings.redis_url is None:
        raise StartupError("shortlist worker needs --redis-url: the embedded store has its own worker")
    refuse_bounds_of_kinds(os.environ)
    set_up_logging(settings.log_level, settings.log_format)
    threadpool_limits(1)  # a fit of a prior takes one core
    store = Store(
        settings.redis_url.get_secret_value(),
        partitions=settings.partitions,
        most_bytes=settings.max_store_bytes,
    )
    uvloop.run(_work_once(settings, store) if burst else _work(settings, store))


async def _work(settings: Settings, store: Store) -> None:
    expected = await _opened(settings, store)
    leases = Leases(store, secrets.token_hex(8))
    moves = Moves(store.moves)
    worker = _worker(settings, store, leases.owns, moves)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    erasure = Erasure(store, worker, token_ttl_ms=settings.token_ttl_s * 1_000, event_decision=kept_decision)
    metrics = Metrics()  # counted, and shown by nobody: this process has no HTTP
    housekeeping = Housekeeping(store, erasure, metrics, wake=worker.wake)
    retention = LogRetention(store, metrics, most_bytes=settings.max_log_mb << 20)
    bandits, priors = LearnedBandits(store), LearnedPriors(store.priors, capacity_bytes=WORKER_PRIOR_BYTES)
    fits = PriorFits(store, priors, metrics, moves=moves)
    carrying = Carrying(store, metrics, owns=leases.owns, wake=worker.wake, moves=moves)
    fitting = PriorFitting(store.priors, bandits, priors, fits, owns=leases.owns)
    effects = ServedEffects(store.effects, capacity_bytes=WORKER_PRIOR_BYTES)
    effect_fitting = EffectFitting(
        store, bandits, EffectFits(store, effects, priors, metrics), owns=leases.owns
    )

    def changed(uids: Iterable[str] | None) -> None:
        changed_uids = None if uids is None else set(uids)
        fitting.changed(changed_uids)
        effect_fitting.changed(changed_uids)

    # Before anything is folded: until then no partition is this worker's.
    await leases.renew()
    running = (
        watch_memory(store),
        housekeeping.run(),
        retention.run(),
        leases.run(),
        expected.run(),
        bandits.run(changed),
        fitting.run(),
        effect_fitting.run(),
        carrying.run(),
    )
    tasks = [asyncio.create_task(task) for task in running]
    log.info("the worker is ready")
    # It returns at SIGTERM, when its last batch is stored. The others are ended after it: they may do
    # without, it may not.
    await worker.run()
    await end(tasks)
    await leases.leave()
    await expected.finish()
    await store.close()


async def _work_once(settings: Settings, store: Store) -> None:
    """Apply what is in the log, without a lease. A worker with a lease may do the same work for nothing."""
    expected = await _opened(settings, store)
    await _worker(settings, store, OnlyWorker().owns, Moves(store.moves)).drain()
    await expected.finish()
    await store.close()


async def _opened(settings: Settings, store: Store) -> ExpectedStore:
    """Open the store, and make sure that it has what it must have. Raises StartupError, Unavailable."""
    await store.open()
    expected = ExpectedStore(store, settings.data_dir, accept_loss=settings.accept_loss)
    await expected.check()
    return expected


def _worker(settings: Settings, store: Store, owns: Callable[[int], bool], moves: Moves) -> RewardWorker:
    return RewardWorker(
        store,
        poll_s=WORKER_POLL_S,
        reward_log_s=settings.reward_log_s,
        capacity_bytes=settings.worker_cache_bytes,
        owns=owns,
        moves=moves,
        folded=lambda step: log.debug("applied %d entries of partition %d", step.entries, step.partition),
    )

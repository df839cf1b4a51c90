"""`shortlist doctor`: checks an installation, running or stopped, and says what is wrong.

A running service is asked over HTTP, a store of one's own directly; nothing is changed or started.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module

from app.api.api_keys import configured
from app.platform.command_line import client_errors
from app.platform.errors import ShortlistError, StartupError
from app.platform.plugin_settings import names_of_plugins
from app.platform.plugins import plugins
from app.platform.settings import Settings, misspelled
from app.replication.expected_store import ExpectedStore
from app.storage.embedded.losses import Losses
from app.storage.embedded.server import find_binary
from server.administration import opened
from shortlist_client import Client, Retry, errors

LOW_DISK_BYTES = 1 << 30
TIMEOUT_S = 3.0
MARKS = {True: "ok  ", False: "FAIL", None: "-   "}

Finding = tuple[str, bool | None, str]
"""A name, whether it is good (None: it does not apply now), and what to say."""


def examine(settings: Settings, url: str, key: str | None) -> int:
    """Print every finding; 0 when nothing is wrong. ``key``: of the service at ``url``, if it needs one."""
    failed = 0
    checks: dict[str, Callable[[Settings], Iterator[Finding]]] = {
        "binary": _binary,
        "plugins": _plugins,
        "folder": _folder,
        "settings": _variables,
        "keys": _keys,
        "store": _store,
        "service": partial(_service, url=url, key=key),
    }
    for part, check in checks.items():
        try:
            findings = list(check(settings))
        except ShortlistError as error:
            findings = [(part, False, error.detail)]
        except Exception as error:
            findings = [(part, False, f"the check broke: {type(error).__name__}: {error}")]
        for name, good, text in findings:
            print(f"{MARKS[good]} {name:10} {text}")
            failed += good is False
    print("nothing is wrong" if not failed else f"{failed} thing{'s' * (failed > 1)} to mend")
    return 1 if failed else 0


def _binary(settings: Settings) -> Iterator[Finding]:
    if settings.redis_url is None:
        yield "binary", True, f"the embedded store would run {find_binary().name}"
    else:
        yield "binary", None, "not needed: --redis-url is given"


def _plugins(_: Settings) -> Iterator[Finding]:
    loaded = plugins()
    if not loaded:
        yield "plug-ins", None, "none is loaded"
    import_module("server.application")  # both raise StartupError where one breaks its contract
    import_module("server.cli").command_parser()
    for plugin in loaded:
        yield "plug-in", True, f"{plugin.name} {plugin.version} provides {', '.join(plugin.provides)}"


def _folder(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    if folder.exists():
        writable = folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
        yield "data", writable, f"{folder} is {'' if writable else 'not '}a folder that can be written"
        private = not folder.stat().st_mode & 0o077
        yield "data", private, f"{folder} is {'' if private else 'not '}closed to other users"
        losses = Losses(folder)
        if loss := losses.known():
            yield "loss", False, f"{loss.at}: {loss.what}. When that is dealt with, remove {losses.path}"
    else:
        yield "data", None, f"{folder} does not exist yet"
    free = shutil.disk_usage(
        next(path for path in (folder, *folder.absolute().parents) if path.exists())
    ).free
    yield "disk", free > LOW_DISK_BYTES, f"{free / 2**30:.1f} GiB free"


def _variables(_: Settings) -> Iterator[Finding]:
    sentences = misspelled(os.environ, names_of_plugins())
    for sentence in sentences:
        yield "settings", False, sentence
    if not sentences:
        yield "settings", True, "no environment variable is misspelled"


def _keys(settings: Settings) -> Iterator[Finding]:
    """The file of API keys: an entry that signs passes is a secret, others are digests."""
    file = settings.api_keys_file
    if file is None:
        yield "keys", None, "no file of API keys is configured"
        return
    signs = any(key.visitors_s is not None for key in configured("", file))
    if not file.stat().st_mode & 0o077:
        yield "keys", True, f"{file} is closed to other users"
    elif signs:
        secret = f"{file} is open to other users, and has entries that sign passes: chmod 600 {file}"
        yield "keys", False, secret
    else:
        yield "keys", None, f"{file} is open to other users; no entry of it signs passes"


def _store(settings: Settings) -> Iterator[Finding]:
    if settings.redis_url is None:
        yield "store", None, "embedded: it runs while the service does, and is checked at its start"
        return
    durability, missing = asyncio.run(_ask_store(settings))
    yield "store", True, "answers"
    yield "store", not missing, missing or "has what this data directory last saw of it"
    risk = "" if durability == "always" else ": an acknowledged write can be lost when the server dies"
    yield "durability", not risk, f"appendfsync is {durability}{risk}"


async def _ask_store(settings: Settings) -> tuple[str, str]:
    """Its durability, and what it lacks."""
    async with opened(settings) as store:
        expected = ExpectedStore(store, settings.data_dir, accept_loss=False)
        return await store.redis.durability(), await expected.missing()


def _service(_: Settings, url: str, key: str | None) -> Iterator[Finding]:
    retry = Retry(attempts=1)
    with client_errors(), Client(url, key, timeout_s=TIMEOUT_S, retry=retry) as client:
        try:
            client.health()
        except errors.ConnectionFailed:
            yield "service", None, f"nothing answers at {url}"
            return
        except errors.ShortlistError:
            raise StartupError(f"what answers at {url} is not Shortlist") from None
        try:
            client.ready()
        except errors.ServiceError as error:
            yield "service", False, f"is not ready: {error.detail}"
        else:
            yield "service", True, "is ready"
        try:
            findings = client.status().findings
        except (errors.Unauthorized, errors.Forbidden) as error:
            needed = "its figures need a key of scope read: --key or SHORTLIST_KEY"
            yield "status", None if key is None else False, needed if key is None else error.detail
        except errors.ServiceError as error:
            yield "status", False, f"there are no figures: {error.detail}"
        else:
            for finding in findings:
                yield finding.name, finding.good, finding.text

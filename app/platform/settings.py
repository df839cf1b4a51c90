"""The settings of the service in one table: variables, flags and docs/settings.md come from here.

Every setting is read from ``SHORTLIST_<NAME>``; the flags of ``shortlist serve`` win over the environment.
Units are part of the names.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.platform.errors import StartupError

VERSION = version("shortlist-service")
PREFIX = "SHORTLIST_"
OTHERS = {"SHORTLIST_KEY", "SHORTLIST_URL", "SHORTLIST_INGEST_KEY", "SHORTLIST_VERSION"}
"""Variables that clients, commands and the compose file read."""
_LOWER = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)
ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?")
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], _LOWER]
ConsoleSwitch = Annotated[Literal["auto", "on", "off"], _LOWER]
LogFormat = Annotated[Literal["auto", "text", "json"], _LOWER]
BOUNDS_OF_KINDS = frozenset(
    f"SHORTLIST_MAX_{kind}_MB"
    for kind in ("EVENTS", "WAITING", "ACTIVATIONS", "DEDUPE", "CAMPAIGNS", "REPEATS", "MOVES", "EFFECTS")
)
"""Settings of version 2, each of one kind of data in the store: ``max_store_mb`` bounds all of them."""
# Removed settings of version 2, each with its replacement; None: nothing is to be set.
GONE: Mapping[str, str | None] = {
    "SHORTLIST_ADAPTIVE_CACHE_MB": "SHORTLIST_SEARCH_CACHE_MB",
    "SHORTLIST_ELIMINATION_CACHE_MB": "SHORTLIST_POSTERIOR_CACHE_MB",
    "SHORTLIST_FILTER_CACHE_MB": "SHORTLIST_SEARCH_CACHE_MB",
    "SHORTLIST_FOLLOW_S": None,
    "SHORTLIST_LEASE_S": None,
    "SHORTLIST_MAX_TURNS_MB": None,
    "SHORTLIST_MIPS_CACHE_MB": "SHORTLIST_SEARCH_CACHE_MB",
    "SHORTLIST_WORKER_CACHE_MB": "SHORTLIST_POSTERIOR_CACHE_MB",
    **dict.fromkeys(BOUNDS_OF_KINDS, "SHORTLIST_MAX_STORE_MB"),
}


def _setting(default: Any, description: str, *, when: str) -> Any:
    """``when``: a reason to change it, for docs/settings.md."""
    return Field(default, description=description, json_schema_extra={"when": when})


class Settings(BaseSettings):
    """Settings of one service process."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore")

    host: str = _setting(
        "127.0.0.1",
        "Address to listen on. Beyond loopback only with API keys.",
        when="Other machines, or what is outside of the container, are to reach it: `0.0.0.0`.",
    )
    port: Annotated[int, Field(ge=0, le=65535)] = _setting(
        8080, "Port to listen on.", when="Something else listens there; 0 takes one that is free."
    )
    data_dir: Path = _setting(
        Path(".data"),
        "Folder of the embedded store, of index files (a cache), and of notes on the store.",
        when="It is to be on another disk, or several services run on one machine.",
    )
    redis_url: SecretStr | None = _setting(
        None,
        "External store: redis://, rediss:// or unix://. Absent: the embedded store.",
        when="More than one machine serves, or a Redis that you run and back up has the data.",
    )
    milvus_uri: Annotated[SecretStr | None, BeforeValidator(lambda value: value or None)] = _setting(
        None,
        "Milvus for catalogues of the kind `milvus` (extra `milvus`): an address, or a file.",
        when="The arms of a catalogue are more than the memory of a machine holds.",
    )
    api_keys: SecretStr | None = _setting(
        None,
        "API keys as `shortlist key` prints them, separated by spaces.",
        when="Anybody but you can reach the port.",
    )
    api_keys_file: Path | None = _setting(
        None,
        "File of such keys, one a line; read again when it changes.",
        when="Keys are to change without a restart, or must not stand in the environment.",
    )
    cors_origins: str | None = _setting(
        None,
        "Origins whose pages may call, separated by spaces: `https://shop.example`.",
        when="Browsers call the service from your pages.",
    )
    hosts: str | None = _setting(
        None,
        "Hosts that are served besides loopback, separated by spaces. With keys: all if absent.",
        when="A service without keys is called by a name, or one with keys must not be by others.",
    )
    console: ConsoleSwitch = _setting(
        "auto",
        "The page at /console: auto (where the service listens on loopback), on or off.",
        when="People work with it on other machines (on), or nobody is to (off).",
    )
    worker: bool = _setting(
        True,
        "Apply rewards inside this process. Off (--no-worker): `shortlist worker` does.",
        when="Choices and rewards need cores of their own.",
    )
    partitions: Annotated[int, Field(ge=1, le=1024)] = _setting(
        16,
        "Partitions of the reward log. Fixed at the first start of a store.",
        when="The store is a cluster (64), or more than 16 workers fold.",
    )
    token_ttl_s: Annotated[int, Field(ge=1, le=31 * 86_400)] = _setting(
        86_400,
        "How long a decision token can be rewarded.",
        when="Rewards come later than a day after their choice; less saves memory of the store.",
    )
    token_secret_s: Annotated[int, Field(ge=60)] = _setting(
        7 * 86_400,
        "How long one secret signs tokens; then the next one does. Changing it ends all tokens.",
        when="A secret may have leaked: any other value takes new ones.",
    )
    observation_ttl_s: Annotated[int, Field(ge=1)] = _setting(
        90 * 86_400,
        "How long the id of an observation is remembered as seen.",
        when="A history is sent again later than that; less saves memory of the store.",
    )
    reward_log_s: Annotated[int, Field(ge=0)] = _setting(
        86_400,
        "How long applied entries stay in the reward log.",
        when="They are exported less often than daily; less saves memory of the store.",
    )
    posterior_cache_mb: Annotated[int, Field(ge=1)] = _setting(
        256,
        "Memory for the learners that a process serves: states and posteriors. A quarter as much is "
        "for a worker's states, and as much again for what policies such as elimination keep of them.",
        when="More learners are active at once than it holds: [how large they are](rewards.md).",
    )
    search_cache_mb: Annotated[int, Field(ge=1)] = _setting(
        512,
        "Memory for each of three: filters and what they are searched by, blocked copies of catalogues for "
        "one-shot searches, and graphs of adaptive searches.",
        when="The `reason` of an answer says that something had no memory, or the process has too little.",
    )
    max_body_mb: Annotated[int, Field(ge=1, le=1024)] = _setting(
        64,
        "Largest body as octet-stream. A JSON body is at most 4 MiB; imports are streamed.",
        when="Vectors of one request are larger; less if callers are not trusted.",
    )
    max_unread_mb: Annotated[int, Field(ge=1)] = _setting(
        128,
        "Memory for answers that clients do not read. Beyond: the slowest lose connections.",
        when="The process has less memory, or many slow clients read large answers.",
    )
    max_answers_mb: Annotated[int, Field(ge=1)] = _setting(
        256,
        "Memory for large answers that are being made or sent, of a process. Beyond: 503.",
        when="The process has less memory, or large answers are 503 though it has some.",
    )
    max_backlog: Annotated[int, Field(ge=1)] = _setting(
        100_000,
        "Number of unapplied rewards above which /readyz answers 503.",
        when="Imports or peaks leave more waiting, and the service is to be called all the same.",
    )
    accept_loss: bool = _setting(
        False,
        "Start although the store has lost data, and record that.",
        when="What is lost cannot be restored: for one start.",
    )
    max_store_mb: Annotated[int | None, Field(ge=1)] = _setting(
        None,
        "Memory that each server of the store may take. Absent: 70 % of its `maxmemory`, or of its machine; "
        "35 % of the machine or container for the embedded store, beside which the arms are.",
        when="The store shares its machine, or refuses too early: [limits](limits.md#memory-of-the-store).",
    )
    max_log_mb: Annotated[int, Field(ge=1)] = _setting(
        2_048,
        "Memory of the store for the decision log. Beyond: oldest rows of the largest logs go.",
        when="Logs lose rows before their `keep_s`.",
    )
    plugins: str = _setting(
        "*",
        "Plug-ins that are loaded: names of packages, separated by spaces or commas; `*`: all.",
        when="Some that are installed are not to be served.",
    )
    log_level: LogLevel = _setting(
        "info", "debug, info, warning or error.", when="You look for a fault, or the log is too long."
    )
    log_format: LogFormat = _setting(
        "auto",
        "auto (lines for people on a terminal, JSON elsewhere), text or json.",
        when="What collects the log expects the other.",
    )
    access_log: bool = _setting(
        False, "Log every request, not only failed ones.", when="You look for what a client sends."
    )
    tracing: bool = _setting(
        False,
        "Export a span a request by OpenTelemetry (extra `otel`, OTEL_* variables).",
        when="Your other services are traced; a span costs about as much as a decision.",
    )

    def check(self) -> None:
        """Raise StartupError when the settings cannot be served safely."""
        refuse_bounds_of_kinds(os.environ)
        inline = self.api_keys.get_secret_value() if self.api_keys else ""
        if not is_loopback(self.host) and not inline.strip() and self.api_keys_file is None:
            raise StartupError(
                f"refusing to listen on {self.host}: it is not a loopback address, and no API key is "
                "configured. Make one with `shortlist key`, and set SHORTLIST_API_KEYS."
            )
        for origin in self.origins:
            if not ORIGIN.fullmatch(origin):
                raise StartupError(
                    "SHORTLIST_CORS_ORIGINS must list origins such as https://shop.example, without path or *"
                )

    @property
    def max_store_bytes(self) -> int | None:
        return None if self.max_store_mb is None else self.max_store_mb << 20

    @property
    def worker_cache_bytes(self) -> int:
        """Memory of a worker for learners."""
        return (self.posterior_cache_mb << 20) // 4

    @property
    def has_console(self) -> bool:
        return self.console == "on" or (self.console == "auto" and is_loopback(self.host))

    @property
    def host_names(self) -> list[str]:
        return (self.hosts or "").lower().split()

    @property
    def origins(self) -> list[str]:
        return (self.cors_origins or "").split()


def refuse_bounds_of_kinds(variables: Iterable[str]) -> None:
    """Raise StartupError where the environment has some: to go on would bound less than was asked for."""
    if removed := sorted(BOUNDS_OF_KINDS.intersection(variables)):
        raise StartupError(
            f"{', '.join(removed)}: gone; set SHORTLIST_MAX_STORE_MB, the bound of all that the store holds"
        )


def is_loopback(host: str) -> bool:
    """Return whether ``host`` names only this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def misspelled(variables: Iterable[str], names_of_plugins: Iterable[str]) -> list[str]:
    """A sentence for each removed environment variable, or one with a name close to a setting's.

    Others are left alone: Kubernetes, for example, makes some for a service that is called shortlist.
    ``names_of_plugins``: of the settings of plug-ins.
    """
    names = [PREFIX + name.upper() for name in (*Settings.model_fields, *names_of_plugins)]
    sentences = []
    for variable in sorted(variables):
        if not variable.startswith(PREFIX) or variable in {*names, *OTHERS}:
            continue
        if variable in GONE:
            instead = f"set {GONE[variable]} in its place" if GONE[variable] else "remove it"
            sentences.append(f"{variable} is gone and has no effect: {instead}")
        elif close := get_close_matches(variable, names, n=1, cutoff=0.85):
            sentences.append(f"{variable} is not a setting and has no effect: did you mean {close[0]}?")
    return sentences

"""The settings of the service in one table: variables, flags and docs/settings.md come from here.

Every setting is read from ``SHORTLIST_<NAME>``; the flags of ``shortlist serve`` win over the environment.
Units are part of the names.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

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


class Settings(BaseSettings):
    """Settings of one service process."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore")

    host: str = Field("127.0.0.1", description="Address to listen on. Beyond loopback only with API keys.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(8080, description="Port to listen on.")
    data_dir: Path = Field(
        Path(".data"),
        description="Folder of the embedded store, of index files (a cache), and of notes on the store.",
    )
    redis_url: SecretStr | None = Field(
        None, description="External store: redis://, rediss:// or unix://. Absent: the embedded store."
    )
    milvus_uri: Annotated[SecretStr | None, BeforeValidator(lambda value: value or None)] = Field(
        None,
        description="Milvus for catalogues of the kind `milvus` (extra `milvus`): an address, or a file.",
    )
    api_keys: SecretStr | None = Field(
        None,
        description="API keys as `shortlist key` prints them, separated by spaces.",
    )
    api_keys_file: Path | None = Field(
        None, description="File of such keys, one a line; read again when it changes."
    )
    cors_origins: str | None = Field(
        None, description="Origins whose pages may call, separated by spaces: `https://shop.example`."
    )
    hosts: str | None = Field(
        None,
        description="Hosts that are served besides loopback, separated by spaces. With keys: all if absent.",
    )
    console: ConsoleSwitch = Field(
        "auto", description="The page at /console: auto (where the service listens on loopback), on or off."
    )
    worker: bool = Field(
        True, description="Apply rewards inside this process. Off (--no-worker): `shortlist worker` does."
    )
    partitions: Annotated[int, Field(ge=1, le=1024)] = Field(
        16, description="Partitions of the reward log. Fixed at the first start of a store."
    )
    token_ttl_s: Annotated[int, Field(ge=1, le=31 * 86_400)] = Field(
        86_400, description="How long a decision token can be rewarded."
    )
    token_secret_s: Annotated[int, Field(ge=60)] = Field(
        7 * 86_400,
        description="How long one secret signs tokens; then the next one does. Changing it ends all tokens.",
    )
    observation_ttl_s: Annotated[int, Field(ge=1)] = Field(
        90 * 86_400, description="How long the id of an observation is remembered as seen."
    )
    reward_log_s: Annotated[int, Field(ge=0)] = Field(
        86_400, description="How long applied entries stay in the reward log."
    )
    posterior_cache_mb: Annotated[int, Field(ge=1)] = Field(
        256, description="Memory for the learners that a process serves: states and posteriors."
    )
    worker_cache_mb: Annotated[int, Field(ge=1)] = Field(
        64, description="Memory for the states of learners that a worker keeps to fold rewards into."
    )
    elimination_cache_mb: Annotated[int, Field(ge=1)] = Field(
        256,
        description="Memory for states of recently used learners that policies keep, as elimination does.",
    )
    follow_s: Annotated[float, Field(gt=0, le=0.5)] = Field(
        0.1, description="How often a process polls the store for what others have changed."
    )
    lease_s: Annotated[float, Field(gt=0, le=60)] = Field(
        2.0, description="After how long without a sign of life a worker's partitions go to the others."
    )
    mips_cache_mb: Annotated[int, Field(ge=1)] = Field(
        512, description="Memory for blocked copies of catalogues, which one-shot searches sample."
    )
    filter_cache_mb: Annotated[int, Field(ge=1)] = Field(
        512, description="Memory for filters: the arms that match them, and what these are searched by."
    )
    adaptive_cache_mb: Annotated[int, Field(ge=1)] = Field(
        512, description="Memory for the additional graphs of adaptive searches; the newest stay."
    )
    max_body_mb: Annotated[int, Field(ge=1, le=1024)] = Field(
        64, description="Largest body as octet-stream. A JSON body is at most 4 MiB; imports are streamed."
    )
    max_unread_mb: Annotated[int, Field(ge=1)] = Field(
        256, description="Memory for answers that clients do not read. Beyond: the slowest lose connections."
    )
    max_answers_mb: Annotated[int, Field(ge=1)] = Field(
        256, description="Memory for large answers that are being made or sent, of a process. Beyond: 503."
    )
    max_backlog: Annotated[int, Field(ge=1)] = Field(
        100_000, description="Number of unapplied rewards above which /readyz answers 503."
    )
    accept_loss: bool = Field(
        False, description="Start although the store has lost data, and record that (--accept-loss)."
    )
    max_events_mb: Annotated[int, Field(ge=1)] = Field(
        2_048, description="Memory of the store for choices kept for an `event_id`. Beyond: 503."
    )
    max_waiting_mb: Annotated[int, Field(ge=1)] = Field(
        1_024, description="Memory of the store for decisions that wait for rewards (`wait_s`). Beyond: 503."
    )
    max_activations_mb: Annotated[int, Field(ge=1)] = Field(
        512, description="Memory of the store for activated decisions. Beyond: 503."
    )
    max_dedupe_mb: Annotated[int, Field(ge=1)] = Field(
        4_096, description="Memory of the store for dedupe keys of rewards and observations. Beyond: 503."
    )
    max_campaigns_mb: Annotated[int, Field(ge=1)] = Field(
        1_024, description="Memory of the store for what plug-ins keep: campaigns, results. Beyond: 429."
    )
    max_repeats_mb: Annotated[int, Field(ge=1)] = Field(
        1_024,
        description="Memory of the store for what keys have had (`repeats`). Beyond: not for new keys.",
    )
    max_moves_mb: Annotated[int, Field(ge=1)] = Field(
        1_024,
        description="Memory of the store for maps of moves, and for what learners knew before. Beyond: 429; "
        "not kept.",
    )
    max_effects_mb: Annotated[int, Field(ge=1)] = Field(
        1_024,
        description="Memory of the store for sums of arms (`arm_effects`). Beyond: keys alone learn.",
    )
    max_log_mb: Annotated[int, Field(ge=1)] = Field(
        2_048,
        description="Memory of the store for the decision log. Beyond: oldest rows of the largest logs go.",
    )
    plugins: str = Field(
        "*",
        description="Plug-ins that are loaded: names of packages, separated by spaces or commas; `*`: all.",
    )
    log_level: LogLevel = Field("info", description="debug, info, warning or error.")
    log_format: LogFormat = Field(
        "auto", description="auto (lines for people on a terminal, JSON elsewhere), text or json."
    )
    access_log: bool = Field(False, description="Log every request, not only failed ones.")
    tracing: bool = Field(
        False, description="Export a span a request by OpenTelemetry (extra `otel`, OTEL_* variables)."
    )

    def check(self) -> None:
        """Raise StartupError when the settings cannot be served safely."""
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
    def has_console(self) -> bool:
        return self.console == "on" or (self.console == "auto" and is_loopback(self.host))

    @property
    def host_names(self) -> list[str]:
        return (self.hosts or "").lower().split()

    @property
    def origins(self) -> list[str]:
        return (self.cors_origins or "").split()


def is_loopback(host: str) -> bool:
    """Whether ``host`` names only this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def misspelled(variables: Iterable[str], names_of_plugins: Iterable[str]) -> list[str]:
    """A sentence for each environment variable that is no setting though its name is close to that of one.

    Others are left alone: Kubernetes, for example, makes some for a service that is called shortlist.
    ``names_of_plugins``: of the settings that plug-ins add.
    """
    names = [PREFIX + name.upper() for name in (*Settings.model_fields, *names_of_plugins)]
    return [
        f"{variable} is not a setting and has no effect: did you mean {close[0]}?"
        for variable in sorted(variables)
        if variable.startswith(PREFIX)
        and variable not in {*names, *OTHERS}
        and (close := get_close_matches(variable, names, n=1, cutoff=0.85))
    ]

"""The tools: each is a call of the service, with the power of the caller's API key and no other.

Over standard input and output the key is the command's, over HTTP each request's own. A refusal of a tool is
an answer with the reason, and an agent can mend its call.
"""

from __future__ import annotations

import functools
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib.metadata import version
from typing import Annotated, Any, ParamSpec

import httpx
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shortlist_client import AsyncClient, ShortlistError, bodies
from shortlist_client.errors import FieldError

INSTRUCTIONS = """Shortlist learns from rewards which of several options is best: which prompt, tool, model or
item. Before you act, call `choose` and do what its first arm says. When you know how it went, call `reward`
with the decision and a number: 1 for success and 0 for failure, unless `status` says that the bandit has
signals of its own. Reward failures too: who rewards successes alone teaches that everything works. `status`
lists the bandits that you may ask, and what each needs."""
MOST_DECISIONS = 10_000  # whose tokens are kept for their short names
MOST_LISTED = 100  # bandits of one answer
MOST_TOLD = 3  # wrong arguments of one call, as of a wrong body
TIMEOUT_S = 30.0

P = ParamSpec("P")
Document = dict[str, Any]
Bandit = Annotated[str, Field(description="Name of the bandit, as `status` lists it.")]
Decision = Annotated[str, Field(description="What `choose` returned as `decision`.")]


class ArmOfTool(BaseModel):
    """An option. Give features, or metadata where the catalogue makes features of them."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(description="Letters, digits and . _ : - (at most 128).")]
    features: Annotated[list[float] | None, Field(description="As many numbers as the catalogue has.")] = None
    metadata: Annotated[Document | None, Field(description="Fields, such as the text of a prompt.")] = None
    tags: list[str] | None = None


class Service:
    """The service as the callers of the tools see it.

    ``key``: of all calls; None over HTTP (``has_own_keys``), where each request brings its own.
    """

    def __init__(self, url: str, key: str | None, http: httpx.AsyncClient, *, has_own_keys: bool) -> None:
        self._url, self._key, self._http, self._has_own_keys = url, key, http, has_own_keys
        self._tokens: OrderedDict[str, str] = OrderedDict()

    def client(self, context: Context[Service, Any]) -> AsyncClient:
        """A client with the key of the caller."""
        key = self._key
        request: Any = context.request_context.request
        if self._has_own_keys:
            kind, _, sent = request.headers.get("authorization", "").partition(" ")
            key = sent.strip() if kind.lower() == "bearer" and sent.strip() else None
        return AsyncClient(self._url, key, http=self._http)

    def keep(self, decision: str, token: str) -> None:
        """Keep the token of a decision for its explanation, the only call without an event."""
        self._tokens[decision] = token
        if len(self._tokens) > MOST_DECISIONS:
            self._tokens.popitem(last=False)

    def token(self, decision: str) -> str:
        """The token of a decision. Raises ToolError."""
        if decision not in self._tokens:
            most = f"the last {MOST_DECISIONS:,} since this server was started"
            raise ToolError(f"decision: not known here; {most} can be explained")
        return self._tokens[decision]


def event_of(decision: str) -> bodies.DecisionItem:
    """The event of a decision, which ``choose`` has named BANDIT/EVENT or BANDIT/KEY/EVENT.

    An agent would have to copy some hundred characters of a token, and events outlive this server. Raises
    ToolError.
    """
    match decision.split("/"):
        case [bandit, event]:
            return {"bandit": bandit, "event_id": event}
        case [bandit, key, event]:
            return {"bandit": bandit, "key": key, "event_id": event}
    raise ToolError("decision: must be what `choose` returned as `decision`")


def tool(function: Callable[P, Awaitable[Document]]) -> Callable[P, Awaitable[Document]]:
    """A tool whose errors of the service are answers to the agent."""

    @functools.wraps(function)
    async def told(*arguments: P.args, **options: P.kwargs) -> Document:
        try:
            return await function(*arguments, **options)
        except ShortlistError as error:
            raise ToolError(" ".join(str(error).split())) from None

    return told


@tool
async def choose(
    ctx: Context[Service, Any],
    bandit: Bandit,
    *,
    k: Annotated[int, Field(ge=1, le=100, description="How many arms, the best first.")] = 1,
    key: Annotated[
        str | None, Field(description="Whom it is for; needed where `status` says scope per_key.")
    ] = None,
    context: Annotated[
        Any,  # the service says what is wrong with it: a union here would say so once for each kind
        Field(
            description="The situation; needed where the bandit has a context: fields by name, or numbers.",
            json_schema_extra={"anyOf": [{"type": kind} for kind in ("object", "array", "null")]},
        ),
    ] = None,
    candidates: Annotated[
        list[str] | None, Field(min_length=1, description="Ids: only these may be chosen. Default: all arms.")
    ] = None,
    filter: Annotated[  # noqa: A002 - as the API has it
        Document | None,
        Field(description='Which arms may be chosen by their metadata: {"cost": {"$lte": 2}}.'),
    ] = None,
    weights: Annotated[
        dict[str, float] | None, Field(description="How much each signal counts in this choice.")
    ] = None,
) -> Document:
    """Decide which option to take now. Call it before you act, and do what the first arm says.

    The answer has the arms, the best first, with their metadata, and a `decision`: keep it, and call `reward`
    with it when you know how it went. Sometimes an arm is chosen to learn about it, not because it is known
    to be the best. `unknown` says how many candidates the catalogue does not have, `eligible` how many arms
    the filter lets in.
    """
    service: Service = ctx.request_context.lifespan_context
    event = f"d-{secrets.token_hex(8)}"  # nobody guesses the decision of somebody else
    request: Any = {
        "key": key,
        "context": context,
        "candidates": candidates,
        "filter": filter,
        "weights": weights,
    }
    choice = await service.client(ctx).choose(bandit, event_id=event, k=k, include=["metadata"], **request)
    arms = [
        {"id": arm.id, "score": arm.score, "propensity": arm.propensity, "metadata": arm.metadata}
        for arm in choice.arms
    ]
    decision = "/".join((bandit, event) if key is None else (bandit, key, event))
    service.keep(decision, choice.decision)
    answer = {"decision": decision, "arms": arms, "group": choice.group, "eligible": choice.eligible}
    return short({**answer, "unknown": choice.unknown or None})


@tool
async def reward(
    ctx: Context[Service, Any],
    decision: Decision,
    value: Annotated[float, Field(description="How good it was: 1 and 0 for success and failure.")],
    arm: Annotated[str | None, Field(description="Which of several arms it was. Default: the first.")] = None,
    signal: Annotated[
        str | None, Field(description="Which signal it is; needed where `status` lists signals.")
    ] = None,
) -> Document:
    """Say how good a decision was, so that the next ones are better. Do so once for each, failures too.

    A decision counts once: a repeated reward is a `duplicate` and changes nothing. It can be rewarded for a
    day, if the service says nothing else.
    """
    service: Service = ctx.request_context.lifespan_context
    client = service.client(ctx)
    receipt = await client.reward(event_of(decision), value, arm, signal=signal)
    return {"accepted": receipt.accepted, "duplicate": receipt.duplicate}


@tool
async def explain(ctx: Context[Service, Any], decision: Decision) -> Document:
    """Say why a decision showed its arms: what was known of each, and what was left out.

    The bandit must keep a log (`status` says `log`), and the row is there a second after the choice. Needs
    the scope read.
    """
    service: Service = ctx.request_context.lifespan_context
    token = service.token(decision)
    return short(asdict(await service.client(ctx).explain(decision.partition("/")[0], token)))


@tool
async def report(ctx: Context[Service, Any], bandit: Bandit) -> Document:
    """Say what the decisions of a bandit have earned, beside its holdout if it has one.

    The bandit must keep a log. Needs the scope read.
    """
    service: Service = ctx.request_context.lifespan_context
    return short(asdict(await service.client(ctx).report(bandit)))


@tool
async def add_arms(
    ctx: Context[Service, Any],
    catalogue: Annotated[str, Field(description="Name of the catalogue, as `status` says it of a bandit.")],
    arms: Annotated[list[ArmOfTool], Field(min_length=1, max_length=1_000, description="The options.")],
) -> Document:
    """Add options that may be chosen from now on, or replace those of the same id. Needs the scope admin."""
    service: Service = ctx.request_context.lifespan_context
    client = service.client(ctx)
    rows: Any = [arm.model_dump(exclude_none=True) for arm in arms]
    written = await client.upsert_arms(catalogue, rows)
    return {"added": written.added, "updated": written.updated}


@tool
async def status(
    ctx: Context[Service, Any],
    bandit: Annotated[str | None, Field(description="One of them, with what is known of its arms.")] = None,
) -> Document:
    """List the bandits, with what each needs: scope, signals, context. Needs the scope read.

    With the name of one: also what its catalogue makes features of, and how many arms it has.
    """
    service: Service = ctx.request_context.lifespan_context
    client = service.client(ctx)
    if bandit is None:
        page = await client.list_bandits(limit=MOST_LISTED)
        return {
            "bandits": [about(bandit_of_page) for bandit_of_page in page.items],
            "more": page.next is not None,
        }
    view = await client.get_bandit(bandit)
    catalogue = asdict(await client.get_catalogue(view.catalogue))
    parts = {name: catalogue.get(name) for name in ("id", "size", "dim", "features")}
    return short({"bandit": about(view), "catalogue": parts})


def about(bandit: Any) -> Document:
    """The facts of a bandit which an agent needs."""
    names = ("id", "catalogue", "policy", "scope", "context", "signals", "reward", "log", "warnings", "state")
    return short({name: value for name, value in asdict(bandit).items() if name in names})


def short(document: Document) -> Document:
    """A document without fields of None, which say nothing to an agent and take room."""
    return {name: _short(value) for name, value in document.items() if value is not None}


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return short(value)
    return [_short(item) for item in value] if isinstance(value, list | tuple) else value


def server_of(url: str, key: str | None = None, *, has_own_keys: bool = False) -> MCPServer[Service]:
    """The server of the tools, for the service at ``url``. ``has_own_keys``: see ``Service``."""

    @asynccontextmanager
    async def connected(_: MCPServer[Service]) -> AsyncIterator[Service]:
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as http:
            yield Service(url, key, http, has_own_keys=has_own_keys)

    return MCPServer(
        "shortlist",
        instructions=INSTRUCTIONS,
        version=version("shortlist-mcp"),
        tools=[strict(function) for function in (choose, reward, explain, report, add_arms, status)],
        lifespan=connected,
        log_level="WARNING",
    )


class StrictTool(Tool):
    """A tool that says of wrong arguments what the API says of a wrong body: which fields, and why."""

    async def run(self, arguments: Document, context: Any, convert_result: bool = False) -> Any:
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            raise ToolError(f"Error executing tool {self.name}: {wrong_fields(error.__cause__)}") from None


def wrong_fields(error: ValidationError) -> str:
    """The first wrong fields, without what was sent."""
    wrong = error.errors(include_url=False, include_input=False, include_context=False)
    told = [str(FieldError(each["loc"], each["msg"])) for each in wrong[:MOST_TOLD]]
    return "; ".join(told) + "; …" * (len(wrong) > MOST_TOLD)


def strict(function: Callable[..., Awaitable[Document]]) -> Tool:
    """The tool, which refuses unknown arguments: a `filters` left out would choose from all."""
    tool = StrictTool.from_function(function)
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    tool.parameters["additionalProperties"] = False
    return tool


def serve(url: str, key: str | None, *, port: int | None) -> None:
    """Serve until standard input ends, or with ``port`` over HTTP until stopped.

    On loopback alone: a service without keys lets in everybody with a way to its port, who should be on this
    machine.
    """
    server = server_of(url, key, has_own_keys=port is not None)
    if port is None:
        server.run()
    else:
        server.run("streamable-http", host="127.0.0.1", port=port, stateless_http=True, json_response=True)

"""The tools of an agent, by the official client: a session that learns, keys, and calls that are wrong."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client as Agent
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import CallToolResult, TextContent

from app.api.api_keys import new_key
from ports import reserved_port
from service_process import Service, run, serving
from shortlist_client import Client
from shortlist_mcp.tools import server_of
from waiting import wait_until_sync

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

SHORTLIST = str(Path(sys.executable).with_name("shortlist"))
ADMIN, ADMIN_ENTRY = new_key("admin", ["admin"])
AGENT, AGENT_ENTRY = new_key("agent", ["choose", "reward"], {"bandits": "router"})
READER, READER_ENTRY = new_key("reader", ["read"])
KEYS = {"SHORTLIST_API_KEYS": f"{ADMIN_ENTRY} {AGENT_ENTRY} {READER_ENTRY}"}
MODELS = [{"id": name, "features": [float(name == each) for each in ("large", "coder", "small")],
           "metadata": {"about": f"the {name} model"}} for name in ("large", "coder", "small")]  # fmt: skip
TOOLS = ["choose", "reward", "explain", "report", "add_arms", "status"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Bandits ``router``, with a log, ``costs``, with signals, and ``mine`` (per key, with a context)."""
    with serving(tmp_path_factory.mktemp("mcp"), **KEYS) as service, Client(service.url, key=ADMIN) as client:
        client.put_catalogue("models", dim=3)
        client.upsert_arms("models", MODELS)  # type: ignore[arg-type]
        client.put_bandit("router", catalogue="models", policy="linucb", log={})
        client.put_bandit(
            "costs",
            catalogue="models",
            policy="sub_ts",
            signals={"quality": {"weight": 1}, "cost": {"weight": -1}},
        )
        fields = [{"name": "kind", "kind": "category", "values": ["talk", "code"]}]
        client.put_bandit(
            "mine", catalogue="models", policy="sub_ts", scope="per_key", context={"fields": fields}
        )
        yield service


def stdio(service: Service, key: str) -> StdioServerParameters:
    environment = {**os.environ, "SHORTLIST_URL": service.url, "SHORTLIST_KEY": key}
    return StdioServerParameters(command=SHORTLIST, args=["mcp"], env=environment)


@asynccontextmanager
async def agent(service: Service, key: str = ADMIN) -> AsyncIterator[Agent]:
    """Beside the server, in this process."""
    async with Agent(server_of(service.url, key)) as client:
        yield client


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def ok(agent: Agent, tool: str, **given: Any) -> dict[str, Any]:
    result = await agent.call_tool(tool, given)
    assert not result.is_error, text_of(result)
    found: dict[str, Any] = json.loads(text_of(result))
    return found


async def refused(agent: Agent, tool: str, **given: Any) -> str:
    result = await agent.call_tool(tool, given)
    assert result.is_error, text_of(result)
    return text_of(result)


async def test_a_session_over_standard_input_and_output_learns(service: Service):
    """A coder is worth 1, the others nothing: linucb draws nothing, so it is found for certain."""
    async with Agent(stdio(service, ADMIN)) as client:
        found = (await ok(client, "status"))["bandits"]
        assert [bandit["id"] for bandit in found] == ["costs", "mine", "router"]
        about = await ok(client, "status", bandit="router")
        assert (about["catalogue"]["size"], about["catalogue"]["dim"]) == (3, 3)
        chosen: list[str] = []
        for _ in range(40):
            choice = await ok(client, "choose", bandit="router")
            (arm,) = choice["arms"]
            assert arm["metadata"] == {"about": f"the {arm['id']} model"}
            chosen.append(arm["id"])
            receipt = await ok(
                client, "reward", decision=choice["decision"], value=float(arm["id"] == "coder")
            )
            assert receipt == {"accepted": 1, "duplicate": 0}
        assert set(chosen[-10:]) == {"coder"}
        again = await ok(client, "reward", decision=choice["decision"], value=1)
        assert again == {"accepted": 0, "duplicate": 1}
        # What came since, and lists of several.
        added = await ok(
            client, "add_arms", catalogue="models", arms=[{"id": "new", "features": [0.1, 0.2, 0.3]}]
        )
        assert added == {"added": 1, "updated": 0}
        listed = await ok(client, "choose", bandit="router", k=9, candidates=["new", "small", "gone"])
        assert {arm["id"] for arm in listed["arms"]} == {"new", "small"}
        assert listed["unknown"] == 1
        await ok(client, "reward", decision=listed["decision"], value=0, arm="new")
        with Client(service.url, key=ADMIN) as direct:
            wait_until_sync(lambda: len(direct.list_log("router").items) > 40, what="the rows are written")
            wait_until_sync(lambda: direct.ready().backlog == 0, what="the last reward is learned")
            assert direct.get_learner("router", "_global").observations == 41
        explained = await ok(client, "explain", decision=choice["decision"])
        assert [arm["id"] for arm in explained["row"]["arms"]] == ["coder"]
        assert explained["row"]["rewards"][0]["value"] == 1.0
        assert (await ok(client, "report", bandit="router"))["decisions"] >= 40


async def test_a_bandit_of_signals_and_one_of_contexts(service: Service):
    async with agent(service) as client:
        choice = await ok(client, "choose", bandit="costs", weights={"cost": 0.0})
        assert "signal" in await refused(client, "reward", decision=choice["decision"], value=1)
        for signal in ("quality", "cost"):
            await ok(client, "reward", decision=choice["decision"], value=0.5, signal=signal)
        choice = await ok(client, "choose", bandit="mine", key="ann", context={"kind": "code"}, k=2)
        only = await ok(client, "choose", bandit="router", k=3, filter={"about": "the small model"})
        assert [arm["id"] for arm in only["arms"]] == ["small"]
        assert (only["eligible"], only.get("unknown")) == (1, None)
    async with agent(service) as later:  # a server that has not seen the choice
        for arm in choice["arms"]:
            given = {"decision": choice["decision"], "value": 1, "arm": arm["id"]}
            assert (await ok(later, "reward", **given))["accepted"] == 1
        assert "not known here" in await refused(later, "explain", decision=choice["decision"])


async def test_no_tool_has_a_power_that_its_key_lacks(service: Service):
    arms = [{"id": "x", "features": [1, 1, 1]}]
    asked: dict[str, dict[str, Any]] = {
        "choose": {"bandit": "router"}, "report": {"bandit": "router"}, "status": {},
        "add_arms": {"catalogue": "models", "arms": arms}, "reward": {"decision": "router/x", "value": 1},
    }  # fmt: skip
    may = {AGENT: {"choose", "reward"}, READER: {"report", "status"}}
    for key, allowed in may.items():
        async with agent(service, key) as client:
            for tool, given in asked.items():
                result = await client.call_tool(tool, given)
                lacks = result.is_error and "lacks the scope" in text_of(result)
                assert lacks is (tool not in allowed), (tool, text_of(result))
    async with agent(service, AGENT) as client:
        assert "there is no bandit with this name" in await refused(client, "choose", bandit="costs")
        choice = await ok(client, "choose", bandit="router")
        assert "lacks the scope read" in await refused(client, "explain", decision=choice["decision"])
    async with agent(service, "sl_wrong") as client:
        for tool, given in asked.items():
            assert "API key" in await refused(client, tool, **given)


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[str]:
    """``shortlist mcp --port``: its address. The key of the command is of nobody."""
    with reserved_port() as port:
        words = [SHORTLIST, "mcp", "--port", str(port), "--url", service.url, "--key", ADMIN]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:

            def listens() -> bool:
                assert process.poll() is None, process.stdout and process.stdout.read()
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    return True
                return False

            wait_until_sync(listens, what="the server of the tools listens")
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()
            process.communicate()


async def test_over_http_each_request_has_the_power_of_its_own_key(http: str):
    for key, may_choose, may_read in ((AGENT, True, False), (READER, False, True), (None, False, False)):
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        async with (
            create_mcp_http_client(headers=headers) as sender,
            Agent(streamable_http_client(http, http_client=sender)) as client,
        ):
            chosen = await client.call_tool("choose", {"bandit": "router"})
            assert chosen.is_error is not may_choose
            assert (await client.call_tool("status", {})).is_error is not may_read
            if may_choose:
                decision = json.loads(text_of(chosen))["decision"]
                await ok(client, "reward", decision=decision, value=0)


async def test_over_http_pages_of_other_sites_are_refused(http: str):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
        accept = {"accept": "application/json, text/event-stream"}
        async with create_mcp_http_client(headers={**accept, **headers}) as sender:
            assert (await sender.post(http, json=body)).status_code in {403, 421}


MALFORMED: list[tuple[str, Any]] = [
    ("choose", {}),
    ("choose", {"bandit": ""}),
    ("choose", {"bandit": "no such"}),
    ("choose", {"bandit": "../../v1/status"}),
    ("choose", {"bandit": "none"}),
    ("choose", {"bandit": 7}),
    ("choose", {"bandit": "router", "k": 0}),
    ("choose", {"bandit": "router", "k": 10**30}),
    ("choose", {"bandit": "router", "k": "many"}),
    ("choose", {"bandit": "router", "key": "ann"}),
    ("choose", {"bandit": "router", "context": {"kind": "code"}}),
    ("choose", {"bandit": "router", "weights": {"quality": 1}}),
    ("choose", {"bandit": "router", "candidates": []}),
    ("choose", {"bandit": "router", "candidates": ["gone"]}),
    ("choose", {"bandit": "router", "candidates": ["small", "small"]}),
    ("choose", {"bandit": "router", "candidates": [{"id": "small"}]}),
    ("choose", {"bandit": "router", "filter": {"$what": 1}}),
    ("choose", {"bandit": "router", "filter": "cheap"}),
    ("choose", {"bandit": "mine", "context": {"kind": "code"}}),
    ("choose", {"bandit": "mine", "key": "ann"}),
    ("choose", {"bandit": "mine", "key": "ann", "context": {"colour": "red"}}),
    ("choose", {"bandit": "costs", "weights": {"speed": 1}}),
    ("reward", {}),
    ("reward", {"decision": "router/d-0000000000000000", "value": 1}),
    ("reward", {"decision": "mine/d-0000000000000000", "value": 1}),
    ("reward", {"decision": "none/d-0000000000000000", "value": 1}),
    ("reward", {"decision": "a/b/c/d", "value": 1}),
    ("reward", {"decision": "\ud7ff\x00", "value": 1}),
    ("reward", {"decision": "x", "value": "good"}),
    ("reward", {"decision": "x", "value": None}),
    ("reward", {"decision": "x", "value": 1e308}),
    ("explain", {"decision": "x"}),
    ("explain", {"decision": "router/d-0000000000000000"}),
    ("report", {"bandit": "a/b"}),
    ("add_arms", {"catalogue": "models", "arms": []}),
    ("add_arms", {"catalogue": "models", "arms": [{"features": [1, 2, 3]}]}),
    ("add_arms", {"catalogue": "models", "arms": [{"id": "x", "features": [1]}]}),
    ("add_arms", {"catalogue": "models", "arms": [{"id": "x", "features": ["a", "b", "c"]}]}),
    ("add_arms", {"catalogue": "models", "arms": [{"id": "x", "colour": "red"}]}),
    ("add_arms", {"catalogue": "none", "arms": [{"id": "x", "features": [1, 2, 3]}]}),
    ("status", {"bandit": "none"}),
]


async def test_malformed_calls_are_answers_that_say_what_is_wrong_and_never_a_crash(service: Service):
    assert len(MALFORMED) >= 40
    async with Agent(stdio(service, ADMIN)) as client:
        for tool, given in MALFORMED:
            text = await refused(client, tool, **given)
            # A crash of a tool tells nothing but its name.
            assert len(text) > len(f"Error executing tool {tool}: "), (given, text)
            assert all(word not in text for word in ("Traceback", "pydantic", "input_value", "\n")), text
            assert "500" not in text.split(":")[0]
        text = await refused(client, "choose", bandit="router", k="many", filters={}, candidates=[{}] * 9)
        assert text.startswith("Error executing tool choose: k: Input should be a valid integer, ")
        assert text.endswith("candidates.1: Input should be a valid string; …")
        await ok(client, "choose", bandit="router")


def test_lines_that_are_no_calls_do_not_end_the_server(service: Service):
    lines = [
        b"", b"{", b"[]", b"null", b"7", b'"choose"', b"\xff\xfe", b"\x00", b"{}" * 3, b"[" * 5_000,
        b'{"jsonrpc": "1.0", "id": 1, "method": "tools/list"}', b'{"jsonrpc": "2.0", "id": 2}',
        b'{"jsonrpc": "2.0", "id": 3, "method": "tools/none"}',
        b'{"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": []}',
        b'{"jsonrpc": "2.0", "id": {}, "method": 7}', b'{"jsonrpc": "2.0", "method": "nothing"}',
    ]  # fmt: skip
    who = {"name": "t", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": who}
    first = {"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": params}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    last = {"jsonrpc": "2.0", "id": "last", "method": "tools/list"}
    sent = [
        *lines,
        *(json.dumps(each).encode() for each in (first, ready)),
        *lines,
        json.dumps(last).encode(),
    ]
    process = subprocess.Popen(
        [SHORTLIST, "mcp", "--url", service.url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n".join(sent) + b"\n")
        process.stdin.flush()
        answers = iter(lambda: json.loads(process.stdout.readline()), None)  # type: ignore[union-attr]
        found = next(each for each in answers if each.get("id") == "last")
        assert [tool["name"] for tool in found["result"]["tools"]] == TOOLS
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        assert b"Traceback" not in errors
    finally:
        process.kill()
        process.communicate()


def test_an_address_that_cannot_be_is_one_sentence(tmp_path: Path):
    for words in (("--url", "nowhere"), ("--url", "http://x", "--key", "a b\n")):
        done = run("mcp", *words, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("shortlist: ")
        assert done.stderr.count("\n") == 1

"""Which calls a key may make, call by call."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from test_guard import documented

from api_client import Api, running
from app.api.api_keys import SCOPES, ApiKeys, configured, new_key, scope_of
from app.platform.errors import StartupError
from app.platform.settings import Settings
from server import cli
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

KEYS = {scope: new_key(scope, [scope]) for scope in SCOPES} | {"both": new_key("both", ["choose", "reward"])}


SHOP = "https://shop.example"


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name][0]}"}


@pytest.fixture(scope="module")
async def guarded(shared_store_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """An application with a key for every scope, and one listed origin."""
    entries = " ".join(entry for _, entry in KEYS.values())
    folder = tmp_path_factory.mktemp("guarded")
    async with running(shared_store_url, folder, api_keys=entries, cors_origins=SHOP) as api:
        await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201, headers=bearer("admin"))
        await api.ok(
            "PUT",
            "/v1/catalogues/c/arms",
            {"arms": [{"id": "a", "features": [1, 2]}]},
            headers=bearer("admin"),
        )
        await api.ok(
            "PUT", "/v1/bandits/b", {"catalogue": "c", "policy": "sub_ts"}, 201, headers=bearer("admin")
        )
        yield api


def test_head_and_a_slash_too_many_need_no_other_scope():
    for method, path in documented():
        assert scope_of(method, f"{path}/") == scope_of(method, path), path
        if method == "GET":
            assert scope_of("HEAD", path) == scope_of("GET", path), path


CALLS: list[tuple[str, str, Any, str]] = [
    ("POST", "/v1/bandits/b/choose", {}, "choose"),
    ("POST", "/v1/bandits/b/choose", {"dry_run": False}, "choose"),
    ("POST", "/v1/bandits/b/choose", {"dry_run": True}, "read"),
    ("POST", "/v1/bandits/b/choose/batch", {"requests": [{}]}, "choose"),
    ("POST", "/v1/choose/batch", {"requests": [{"bandit": "b"}]}, "choose"),
    ("POST", "/v1/rewards", {"rewards": [{"decision": "x", "value": 1}]}, "reward"),
    (
        "POST",
        "/v1/bandits/b/observations",
        {"observations": [{"id": "o", "arm": "a", "value": 1}]},
        "observe",
    ),
    ("POST", "/v1/slates/s/tell", {"results": [{"pull": "x", "total": 1}]}, "observe"),
    ("POST", "/v1/centers/c/tell", {"results": [{"query": "x", "distance": 1}]}, "observe"),
    ("GET", "/v1/nothing", None, "admin"),
    ("GET", "/v1/catalogues/c", None, "read"),
    ("GET", "/metrics", None, "read"),
    ("PUT", "/v1/catalogues/c", {"dim": 2}, "admin"),
    ("DELETE", "/v1/bandits/nobody", None, "admin"),
]


@pytest.mark.parametrize(("method", "path", "body", "needed"), CALLS)
async def test_a_key_does_what_its_scopes_say_and_nothing_else(
    guarded: Api, method: str, path: str, body: Any, needed: str
):
    for name in KEYS:
        scopes = {"both": {"choose", "reward"}, "admin": set(SCOPES)}.get(name, {name})
        if needed in scopes:
            answer = await guarded.call(method, path, body, headers=bearer(name))
            assert answer.status_code not in {401, 403}
        else:
            await guarded.refused(method, path, body, status=403, code="forbidden", headers=bearer(name))


@pytest.mark.parametrize("name", ["reward", "observe", None])
async def test_the_body_of_a_choice_is_not_read_for_a_key_that_may_not_choose_nor_look(
    guarded: Api, name: str | None
):
    """A body that ends in a failure as soon as it is asked for."""

    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    headers = {"authorization": "Bearer sl_wrong"} if name is None else bearer(name)
    answer = await guarded.http.post("/v1/bandits/b/choose", content=body(), headers=headers)
    assert answer.status_code == (401 if name is None else 403)


async def test_a_page_may_not_look_at_what_would_be_chosen(guarded: Api):
    path, body = "/v1/bandits/b/choose", {"dry_run": True}
    for name in ("both", "choose", "read", "admin"):
        headers = {"origin": SHOP} | bearer(name)
        await guarded.refused("POST", path, body, status=403, code="forbidden", headers=headers)


@pytest.mark.parametrize(
    "header",
    [
        None, "", "Bearer", "Bearer ", "Basic eDp5", "Bearer sl_wrong", f"Bearer {KEYS['admin'][1]}",
        KEYS["admin"][0], f"Bearer {KEYS['admin'][0]}x", f"Bearer {KEYS['admin'][0][:-1]}",
        f"Bearer {hashlib.sha256(KEYS['admin'][0].encode()).hexdigest()}",
    ],
    ids=[
        "none", "empty", "no key", "blank", "basic", "unknown", "its entry", "no bearer", "longer", "shorter",
        "digest",
    ],
)  # fmt: skip
async def test_without_a_known_key_nothing_is_told_or_done(guarded: Api, header: str | None):
    headers = {} if header is None else {"authorization": header}
    for method, path, body, _ in CALLS:
        problem = await guarded.call(method, path, body, headers=headers)
        assert (problem.status_code, problem.json()["code"]) == (401, "unauthorized")
        assert problem.headers["www-authenticate"] == "Bearer"
    await guarded.ok("GET", "/healthz", headers=headers)
    await guarded.ok("GET", "/readyz", headers=headers)
    await guarded.ok("GET", "/openapi.json", headers=headers)
    await guarded.refused("GET", "/v1/no/such/thing", status=401, code="unauthorized", headers=headers)


async def test_a_listed_page_may_choose_and_reward_with_a_key_that_can_do_nothing_else(guarded: Api):
    choose = ("POST", "/v1/bandits/b/choose", {})
    page = {"origin": SHOP}
    answer = await guarded.call(*choose, headers=page | bearer("both"))
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == SHOP
    for name in ("admin", "read"):
        refused = await guarded.call("GET", "/v1/catalogues", headers=page | bearer(name))
        assert refused.json()["code"] == "forbidden"
        assert refused.headers["access-control-allow-origin"] == SHOP  # the page can read why
    missing = await guarded.call("POST", "/healthz", headers=page)
    assert (missing.status_code, missing.headers["access-control-allow-origin"]) == (405, SHOP)
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    allowed = await guarded.call("OPTIONS", "/v1/bandits/b/choose", headers=page | preflight)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, SHOP)
    preflight["access-control-request-method"] = "DELETE"
    refused = await guarded.call("OPTIONS", "/v1/bandits/b", headers=page | preflight)
    assert refused.status_code == 400


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://shop.example", f"{SHOP}.evil.example", "null", f"{SHOP}:444", "//["],
)
async def test_a_page_that_is_not_listed_can_do_nothing(guarded: Api, origin: str):
    headers = {"origin": origin} | bearer("both")
    problem = await guarded.refused(
        "POST", "/v1/bandits/b/choose", {}, status=403, code="forbidden", headers=headers
    )
    assert "SHORTLIST_CORS_ORIGINS" in problem["detail"]


async def test_without_keys_only_pages_of_the_service_on_loopback_may_call(api: Api):
    body = {"dim": 2}
    own = {"origin": "http://127.0.0.1:8080", "host": "127.0.0.1:8080"}
    await api.ok("PUT", "/v1/catalogues/c", body, 201, headers=own)
    for headers in (
        {"origin": "http://evil.example", "host": "127.0.0.1:8080"},
        {"origin": "http://evil.example:8080", "host": "evil.example:8080"},  # a name led to loopback
        {"origin": "http://127.0.0.1:9090", "host": "127.0.0.1:8080"},
    ):
        await api.refused("PUT", "/v1/catalogues/d", body, status=403, code="forbidden", headers=headers)
    answer = await api.call("PUT", "/v1/catalogues/c", body)
    assert "access-control-allow-origin" not in answer.headers


async def test_keys_are_replaced_while_the_service_runs(store_url: str, tmp_path: Path):
    file = tmp_path / "keys"
    old, old_entry = new_key("app", ["read"])
    new, new_entry = new_key("app", ["read"])

    def write(*lines: str) -> None:
        (tmp_path / "next").write_text("\n".join(lines))
        (tmp_path / "next").replace(file)

    write("# keys of the app", old_entry)
    async with running(store_url, tmp_path, api_keys_file=file) as api:

        async def statuses() -> tuple[int, int]:
            answers = [
                await api.call("GET", "/v1/catalogues", headers={"authorization": f"Bearer {key}"})
                for key in (old, new)
            ]
            return answers[0].status_code, answers[1].status_code

        assert await statuses() == (200, 401)
        for lines, expected in [
            ((old_entry, new_entry), (200, 200)),
            ((new_entry,), (401, 200)),
        ]:
            write(*lines)

            async def changed(expected: tuple[int, int] = expected) -> bool:
                return await statuses() == expected

            await wait_until(changed, what="the keys are read again")
        for broken in ("", "app:read:short", "app:everything:" + "0" * 64):
            write(broken)
        # What cannot be used changes nothing; the next good file counts again.
        write(new_entry, old_entry)

        async def both() -> bool:
            return await statuses() == (200, 200)

        await wait_until(both, what="the good file is read")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("nothing", "name:scope"), ("_:read:" + "0" * 64, "name:scope"), ("app::" + "0" * 64, "scopes"),
        ("app:chose:" + "0" * 64, "scopes of the API key app"), ("app:read:" + "0" * 63, "64 hexadecimal"),
        ("app:read", "64 hexadecimal"), (":read:" + "0" * 64, "name"), ("app:read:" + "G" * 64, "64 hexadec"),
    ],
)  # fmt: skip
def test_an_entry_that_is_none_is_named_without_its_secret(entry: str, words: str):
    with pytest.raises(StartupError, match=words) as caught:
        configured(entry, None)
    assert "0000" not in caught.value.detail


def test_a_file_that_is_missing_or_empty_lets_nobody_in_by_mistake(tmp_path: Path):
    with pytest.raises(StartupError, match="cannot be read"):
        configured("", tmp_path / "none")
    (tmp_path / "empty").write_text("# nothing yet\n")
    with pytest.raises(StartupError, match="holds no key"):
        configured("", tmp_path / "empty")


@pytest.mark.parametrize("header", ["origin", "host", "authorization"])
async def test_a_header_that_decides_is_given_once(guarded: Api, header: str):
    twice = [(header, SHOP), (header, "https://other.example")]
    answer = await guarded.http.get("/v1/status", headers=[*twice, *bearer("read").items()])
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8080", 200),
        ("localhost:8080", 200),
        ("[::1]:8080", 200),
        ("Shop.Internal", 200),
        ("shop.internal:80", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:8080", 403),
        ("[::1", 403),
    ],
)
async def test_without_keys_only_names_of_loopback_and_listed_ones_are_served(
    store_url: str, tmp_path: Path, host: str, status: int
):
    async with running(store_url, tmp_path, hosts="shop.internal") as api:
        answer = await api.http.get("/v1/status", headers={"host": host})
        assert answer.status_code == status


async def test_with_keys_any_name_is_served_unless_some_are_listed(
    guarded: Api, store_url: str, tmp_path: Path
):
    headers = {"host": "evil.example", **bearer("read")}
    assert (await guarded.http.get("/v1/status", headers=headers)).status_code == 200
    async with running(store_url, tmp_path, api_keys=KEYS["read"][1], hosts="shop.internal") as api:
        assert (await api.http.get("/v1/status", headers=headers)).status_code == 403


@pytest.mark.parametrize(
    "origins", ["*", "shop.example", "https://shop.example/", "https://a https://b/c", "null"]
)
def test_origins_must_be_origins(origins: str):
    with pytest.raises(StartupError, match="SHORTLIST_CORS_ORIGINS"):
        Settings(cors_origins=origins).check()


@pytest.mark.parametrize("keys", [None, "", " \n"])
def test_beyond_loopback_a_key_is_needed(keys: str | None):
    with pytest.raises(StartupError, match="shortlist key"):
        Settings(host="0.0.0.0", api_keys=keys).check()
    Settings(host="0.0.0.0", api_keys=KEYS["admin"][1]).check()


def test_the_command_prints_a_key_that_its_entry_lets_in(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["key", "web", "--scopes", "choose,reward"]) == 0
    key, entry = (line.rpartition(": ")[2] for line in capsys.readouterr().out.splitlines())
    found = ApiKeys([entry]).find(key.encode())
    assert found is not None
    assert (found.name, found.scopes, found.is_browser_safe) == ("web", {"choose", "reward"}, True)
    assert key not in entry
    assert cli.main(["key", "web", "--scopes", "everything"]) == 2


async def test_a_version_names_the_key_that_made_it(guarded: Api):
    admin = bearer("admin")
    await guarded.ok("PUT", "/v1/catalogues/versioned", {"dim": 1}, 201, headers=admin)
    path = "/v1/bandits/versioned"
    await guarded.ok("PUT", path, {"catalogue": "versioned", "policy": "sub_ts"}, 201, headers=admin)
    await guarded.ok("PATCH", path, {"ridge": 2}, headers=admin)
    page = await guarded.ok("GET", f"{path}/versions", headers=admin)
    assert [item["by"] for item in page["items"]] == ["admin", "admin"]
    await guarded.call("DELETE", path, headers=admin)
    await guarded.call("DELETE", "/v1/catalogues/versioned", headers=admin)

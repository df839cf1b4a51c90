"""Keys for some bandits and catalogues: every route with a key of every restriction, and what bodies name."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api_client import Api, assert_problem, running
from app.api.api_keys import SCOPES, configured, new_key, scope_of
from app.platform.errors import StartupError
from openapi_document import openapi_document
from server import cli
from shortlist_client import visitor_pass
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

EVERY = ["choose", "reward", "observe", "read"]
SIGNER = new_key("signer", ["choose", "reward"], {"bandits": "home,coming", "visitors": "600"})
KEYS = {
    "admin": new_key("admin", ["admin"]),
    "all": new_key("all", EVERY, {"bandits": "home,coming"}),
    "chooser": new_key("chooser", ["choose", "reward"], {"bandits": "home"}),
    "owner": new_key("owner", ["admin"], {"bandits": "home,coming", "catalogues": "spare"}),
    "stock": new_key("stock", ["admin"], {"catalogues": "spare"}),
    "reader": new_key("reader", ["read"]),
    "signer": SIGNER,
    "pass": (
        "",
        "",
    ),  # signed by each call: one that is made as tests are collected has expired before they end
}
# What exists for each key that does not see everything: bandits, and catalogues by name or by a bandit.
SEEN = {
    "all": ({"home", "coming"}, {"films"}),
    "chooser": ({"home"}, {"films"}),
    "owner": ({"home", "coming"}, {"films", "spare"}),
    "stock": (set[str](), {"spare"}),
    "signer": ({"home", "coming"}, {"films"}),
    "pass": ({"home", "coming"}, set[str]()),
}
FOR_PASSES = {"/v1/bandits/{bandit}/choose", "/v1/bandits/{bandit}/choose/batch", "/v1/rewards"}
FOR_PASSES |= {"/v1/decisions/activate", "/v1/activations", "/v1/choose/batch"}
FOR_ALL = {"/v1/bandits", "/v1/catalogues", "/v1/rewards", "/v1/decisions/activate", "/v1/policies"}
FOR_ALL |= {"/v1/activations", "/v1/choose/batch"}


def bearer(name: str) -> dict[str, str]:
    key = visitor_pass(SIGNER[0], visitor="ann", expires_in_s=600) if name == "pass" else KEYS[name][0]
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
async def public(shared_store_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """Bandit ``home`` of ``films``, ``other`` of ``books``, and a catalogue ``spare``."""
    entries = " ".join(entry for _, entry in KEYS.values())
    async with running(shared_store_url, tmp_path_factory.mktemp("public"), api_keys=entries) as api:
        admin = bearer("admin")
        for name in ("films", "books", "spare"):
            await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": 2}, 201, headers=admin)
            arms = {"arms": [{"id": "a", "features": [1, 2]}]}
            await api.ok("PUT", f"/v1/catalogues/{name}/arms", arms, headers=admin)
        for name, catalogue in (("home", "films"), ("other", "books")):
            body = {"catalogue": catalogue, "policy": "sub_ts"}
            await api.ok("PUT", f"/v1/bandits/{name}", body, 201, headers=admin)
        yield api


def routes() -> list[tuple[str, str]]:
    paths = openapi_document()["paths"]
    return sorted((method.upper(), path) for path, methods in paths.items() for method in methods)


def expected(key: str, method: str, template: str, kind: str, name: str) -> int | None:
    """The status of a call; None: it is let in. By the table of docs/security.md."""
    path = template.replace("{bandit}", name).replace("{catalogue}", name)
    scope = scope_of(method, re.sub(r"{\w+}", "x", path))
    if scope is None:
        return None
    if key == "pass" and not (method == "POST" and template in FOR_PASSES):
        return 403
    if key in SEEN and template not in FOR_ALL:
        bandits, catalogues = SEEN[key]
        if not template.startswith(("/v1/bandits/{bandit}", "/v1/catalogues/{catalogue}")):
            return 404
        if name not in (bandits if kind == "bandit" else catalogues):
            return 404
    scopes = {"admin": set(SCOPES), "owner": set(SCOPES), "stock": set(SCOPES), "all": set(EVERY)}
    scopes |= {"reader": {"read"}}
    may_look = template == "/v1/bandits/{bandit}/choose" and "read" in scopes.get(key, set())
    return None if may_look or scope in scopes.get(key, {"choose", "reward"}) else 403


@pytest.mark.parametrize("key", KEYS)
async def test_every_route_lets_in_what_the_table_says(public: Api, key: str):
    """Each call has a query parameter that no route takes: who is let in gets 422, and nothing is done."""
    for method, template in routes():
        kind = "bandit" if "{bandit}" in template else "catalogue"
        names = ("home", "other", "coming", "never") if kind == "bandit" else ("films", "books", "spare", "x")
        for name in names if "{" in template else ("",):
            path = template.replace(f"{{{kind}}}", name)
            path = re.sub(r"{\w+}", "x", path)
            for suffix in ("", "/"):
                answer = await public.http.request(
                    method, path + suffix, params={"nobody": "1"}, json={}, headers=bearer(key)
                )
                wanted = expected(key, method, template, kind, name)
                where = f"{key}: {method} {path}{suffix}: {answer.status_code} {answer.text[:200]}"
                if wanted is not None:
                    assert answer.status_code == wanted, where
                    assert_problem(answer, wanted, {403: "forbidden", 404: "not_found"}[wanted])
                elif not suffix:
                    assert answer.status_code in {200, 422}, where


async def test_filters_of_bandits_that_a_key_does_not_see_are_not_shown(public: Api):
    """Nor how often they were asked; who sees all bandits of a catalogue sees all its filters."""
    body = {"catalogue": "films", "policy": "sub_ts"}
    await public.ok("PUT", "/v1/bandits/secret", body, 201, headers=bearer("admin"))
    for name, price in (("home", 1), ("secret", 2)):
        asked = {"filter": {"price": {"$ne": price}}}
        await public.ok("POST", f"/v1/bandits/{name}/choose", asked, headers=bearer("admin"))

    async def shown(key: str) -> list[int]:
        one = await public.ok("GET", "/v1/catalogues/films", headers=bearer(key))
        listed = await public.ok("GET", "/v1/catalogues", headers=bearer(key))
        (same,) = [each for each in listed["items"] if each["id"] == "films"]
        assert [same["filters"], one["filters"]] == [one["filters"], same["filters"]]
        return sorted(each["filter"]["price"]["$ne"] for each in one["filters"])

    assert (await shown("admin"), await shown("reader")) == ([1, 2], [1, 2])
    assert (await shown("all"), await shown("owner")) == ([], [])
    await public.ok("DELETE", "/v1/bandits/secret", status=204, headers=bearer("admin"))
    assert await shown("all") == [1, 2]


async def test_what_a_key_does_not_name_answers_as_what_does_not_exist(public: Api):
    for path in ("/v1/bandits/{}", "/v1/bandits/{}/learners/ann", "/v1/bandits/{}/log"):
        answers = [
            (await public.call("GET", path.format(name), headers=bearer("all"))).json()
            for name in ("other", "never", "coming")
        ]
        assert answers[0] == answers[1] == answers[2]
    books, none = [
        (await public.call("GET", f"/v1/catalogues/{name}/arms", headers=bearer("all"))).json()
        for name in ("books", "never")
    ]
    assert books == none
    for policy in ("sub_ts", "sub_elim"):
        bodies = [{"catalogue": name, "policy": policy} for name in ("books", "never")]
        hidden, missing = [
            (await public.call("PUT", "/v1/bandits/coming", body, headers=bearer("owner"))).json()
            for body in bodies
        ]
        assert hidden == missing
        assert hidden["code"] == "not_found"
    hidden, missing = [
        (
            await public.call("POST", "/v1/bandits/home/move", {"catalogue": name}, headers=bearer("owner"))
        ).json()
        for name in ("books", "never")
    ]
    assert hidden == missing
    assert hidden["code"] == "not_found"
    path = "/v1/choose/batch"
    for name in ("other", "never"):
        requests = [{"bandit": "home"}, {"bandit": name}]
        hidden = await public.refused(
            "POST", path, {"requests": requests}, status=404, code="not_found", headers=bearer("chooser")
        )
        assert hidden["errors"] == [
            {"loc": ["body", "requests", 1, "bandit"], "message": "there is no bandit with this name"}
        ]
        body = {"requests": requests, "partial": True}
        results = (await public.ok("POST", path, body, headers=bearer("chooser")))["results"]
        assert ["error" in result for result in results] == [False, True]
        assert results[1]["error"] == hidden
    body = {"baseline": "some-campaign"}
    refused = await public.refused(
        "POST", "/v1/bandits/home/choose", body, status=404, code="not_found", headers=bearer("all")
    )
    plain = await public.refused(
        "POST", "/v1/bandits/home/choose", body, status=404, code="not_found", headers=bearer("admin")
    )
    assert refused == plain


@pytest.mark.parametrize(
    ("key", "bandits", "catalogues"),
    [
        ("all", ["home"], ["films"]),
        ("owner", ["home"], ["films", "spare"]),
        ("stock", [], ["spare"]),
        ("reader", ["home", "other"], ["books", "films", "spare"]),
    ],
)
async def test_lists_have_what_the_key_sees_page_by_page(
    public: Api, key: str, bandits: list[str], catalogues: list[str]
):
    for path, expected_ids in (("/v1/bandits", bandits), ("/v1/catalogues", catalogues)):
        found, cursor = list[str](), None
        while True:
            query = {"limit": 1} | ({} if cursor is None else {"cursor": cursor})
            page = await public.ok("GET", path, params=query, headers=bearer(key))
            found += [item["id"] for item in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert found == expected_ids


async def test_rewards_and_activations_of_other_bandits_are_those_of_an_unknown_one(public: Api):
    tokens = [
        (await public.ok("POST", f"/v1/bandits/{name}/choose", {"activate": False}, headers=bearer("admin")))[
            "decision"
        ]
        for name in ("home", "other")
    ]
    active = await public.ok(
        "POST", "/v1/decisions/activate", {"decisions": tokens}, headers=bearer("chooser")
    )
    assert active == {
        "activated": 1,
        "duplicate": 0,
        "rejected": [{"index": 1, "code": "unknown_bandit"}],
    }
    body = {"rewards": [{"decision": token, "value": 1} for token in tokens]}
    receipt = await public.ok("POST", "/v1/rewards", body, 202, headers=bearer("chooser"))
    assert receipt == {"accepted": 1, "duplicate": 0, "rejected": [{"index": 1, "code": "unknown_bandit"}]}


async def test_a_restricted_key_makes_and_deletes_what_it_names(public: Api):
    owner = bearer("owner")
    await public.ok(
        "PUT", "/v1/bandits/coming", {"catalogue": "spare", "policy": "sub_ts"}, 201, headers=owner
    )
    await public.ok("DELETE", "/v1/bandits/coming", status=204, headers=owner)
    hidden, absent = ({"catalogue": name, "policy": "sub_ts"} for name in ("books", "mine"))
    for body in (hidden, absent):
        name = body.pop("catalogue")
        for method, path, fields in (
            ("PUT", f"/v1/catalogues/{name}", {"dim": 2}),
            ("PUT", "/v1/bandits/coming", {"catalogue": name, **body}),
            ("POST", "/v1/bandits/home/move", {"catalogue": name}),
            ("POST", "/v1/bandits/home/embeddings", {"catalogue": name}),
        ):
            await public.refused(method, path, fields, status=404, code="not_found", headers=owner)


async def test_names_that_do_not_exist_are_warned_of_at_the_start_and_when_the_file_changes(
    store_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    file = tmp_path / "keys"
    file.write_text(new_key("web", ["choose"], {"bandits": "later:1,home", "catalogues": "c"})[1])

    def warned() -> list[str]:
        return sorted(r.getMessage() for r in caplog.records if "does not exist" in r.getMessage())

    async with running(store_url, tmp_path, api_keys_file=file):
        assert warned() == [
            "the API key web names the bandit home, which does not exist",
            "the API key web names the bandit later:1, which does not exist",
            "the API key web names the catalogue c, which does not exist",
        ]
        caplog.clear()
        file.write_text(new_key("app", ["choose"], {"bandits": "soon"})[1])

        async def is_read() -> bool:
            return warned() == ["the API key app names the bandit soon, which does not exist"]

        await wait_until(is_read, what="the file is read again")


DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ("read;bandits=", "bandits of the API key app"),
        ("read;bandits", "bandits of the API key app"),
        ("read;bandits=a,,b", "bandits of the API key app"),
        ("read;catalogues=a/b", "catalogues of the API key app"),
        ("read;rate=0/s", "rate of the API key app must be above 0"),
        ("read;rate=0.0/s", "rate of the API key app must be above 0"),
        ("read;rate=50", "such as 50/s"),
        ("read;rate=-1/s", "such as 50/s"),
        ("read;rate=nan/s", "such as 50/s"),
        ("read;rate=9999999/s", "at most 1,000,000"),
        ("read;visitors=0", "visitors of the API key app"),
        ("read;visitors=1h", "visitors of the API key app"),
        ("read;visitors=2678401", "visitors of the API key app"),
        ("read;mood=good", "may have ;bandits="),
        ("read;rate=1/s;rate=2/s", "once"),
        ("read;", "may have ;bandits="),
        ("read;chose", "may have ;bandits="),
    ],
)
def test_a_restriction_that_is_none_is_refused_at_the_start(terms: str, words: str):
    with pytest.raises(StartupError, match=re.escape(words)) as caught:
        configured(f"app:{terms}:{DIGEST}", None)
    assert "0000" not in caught.value.detail


def test_the_command_writes_restrictions_into_the_entry(capsys: pytest.CaptureFixture[str]):
    arguments = ["--bandits", "home,b:2", "--catalogues", "c", "--rate", "50/s", "--visitors", "1h"]
    assert cli.main(["key", "web", "--scopes", "choose,reward", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    key, entry = (line.rpartition(": ")[2] for line in lines[:2])
    assert entry.startswith("web:choose,reward;bandits=home,b:2;catalogues=c;rate=50/s;visitors=3600:")
    assert "secret" in lines[2]
    found = configured(entry, None).find(key.encode())
    assert found is not None
    assert (found.bandits, found.catalogues) == ({"home", "b:2"}, {"c"})
    assert (found.rate, found.visitors_s) == (50.0, 3600)
    wrong: list[Any] = [["--rate", "0/s"], ["--visitors", "90d"], ["--bandits", "a b"], ["--bandits", ""]]
    for more in wrong:
        assert cli.main(["key", "web", "--scopes", "choose", *more]) == 2
    with pytest.raises(SystemExit, match="2"):
        cli.main(["key", "web", "--scopes", "choose", "--visitors", "soon"])

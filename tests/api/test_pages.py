"""The pages for people: / and /docs, made of nothing that comes from elsewhere."""

import base64
import hashlib
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from importlib.metadata import version

import pytest
from test_guarded_calls import guarded  # noqa: F401 - a fixture

from api_client import Api, running

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
LOADING = {"src", "srcset", "href", "data", "poster", "action"}


@pytest.fixture(scope="module")
async def shared(shared_store_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """Without the console, which ``/`` leads to otherwise."""
    async with running(shared_store_url, tmp_path_factory.mktemp("pages"), console="off") as api:
        yield api


class Page(HTMLParser):
    """What a page loads, where it leads, and its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.inline: dict[str, list[str]] = {"script": [], "style": []}
        self._within = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within = tag
        for name, value in attrs:
            if name in LOADING:
                (self.links if tag == "a" else self.loaded).append(value or "")
            assert not name.startswith("on"), "no script in an attribute"

    def handle_data(self, data: str) -> None:
        if self._within in self.inline and data.strip():
            self.inline[self._within].append(data)
        self._within = ""


async def page_at(api: Api, path: str) -> tuple[Page, str]:
    """The page and its content security policy."""
    answer = await api.call("GET", path, headers={"accept": BROWSER})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    return Page(answer.text), answer.headers["content-security-policy"]


def named(policy: str, text: str) -> bool:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy


async def test_a_program_is_told_what_this_is_and_where_everything_is(shared: Api):
    for headers in ({}, {"accept": "*/*"}, {"accept": "application/json"}):
        answer = await shared.call("GET", "/", headers=headers)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["vary"] == "accept"
        found = answer.json()
        assert (found["name"], found["version"]) == ("shortlist", version("shortlist"))
        assert found["links"].pop("console") is None
        for path in found["links"].values():
            assert (await shared.call("GET", path)).status_code == 200, path


async def test_every_file_of_the_documentation_page_is_served_here(shared: Api):
    page, policy = await page_at(shared, "/docs")
    assert {"docs/swagger-ui-bundle.js", "docs/swagger-ui.css", "data:,"} == set(page.loaded)
    for name, kind in (("swagger-ui-bundle.js", "text/javascript"), ("swagger-ui.css", "text/css")):
        answer = await shared.call("GET", f"/docs/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].partition(";")[0] == kind
        assert len(answer.content) > 100_000
    sources = re.findall(r"url\(['\"]?([^)'\"]{0,20})", answer.text)
    assert sources, "the check sees the pictures of the style sheet"
    assert all(source.startswith("data:") for source in sources)
    (start,) = page.inline["script"]
    assert named(policy, start)
    assert "url: 'openapi.json'" in start
    assert '"validatorUrl": null' in start, "else the page asks a public service about our document"


async def test_the_page_may_load_nothing_from_another_host(shared: Api):
    _, policy = await page_at(shared, "/docs")
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == rules["frame-ancestors"] == rules["form-action"] == "'none'"
    allowed = {word for rule in rules.values() for word in rule.split()}
    hosts = {word for word in allowed if not word.startswith("'") and word != "data:"}
    assert hosts == set()
    assert "'unsafe-inline'" not in rules.get("script-src", "")


@pytest.mark.parametrize(
    "path",
    ["/docs/redoc.standalone.js", "/docs/..%2fcore.py", "/docs/%2e%2e", "/docs/", "/redoc",
     "/docs/oauth2-redirect"],
)  # fmt: skip
async def test_no_other_file_is_served(shared: Api, path: str):
    await shared.refused("GET", path, status=404, code="not_found")


async def test_the_pages_and_their_files_need_no_key(guarded: Api):  # noqa: F811
    for path in ("/docs", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/openapi.json"):
        assert (await guarded.call("GET", path)).status_code == 200, path
    assert (await guarded.call("GET", "/")).status_code == 200
    for path in ("/docs/x", "/docs/swagger-ui.css/x", "/index.html"):
        await guarded.refused("GET", path, status=401, code="unauthorized")

"""The files of the console: where they are, how they are kept, what they may load, when they are away."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from test_guarded_calls import guarded  # noqa: F401 - a fixture
from test_pages import BROWSER

from api_client import Api, running
from app.api import console
from app.platform.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

FOLDER = Path(console.__file__).parents[1] / "console"
PAGES_OF_PLUGINS = sorted(FOLDER.parents[1].glob("plugins/*/shortlist_*/*.js"))
SOURCES = [
    *sorted(path for path in FOLDER.iterdir() if path.suffix in {".js", ".css", ".html"}),
    *PAGES_OF_PLUGINS,
]
# What would make markup, code or a style of a text.
DANGEROUS = re.compile(
    r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc|eval"
    r"|new Function|localStorage|sessionStorage|cookie)\b|<script>|style="
)


@pytest.fixture(scope="module")
async def api_without_console(
    shared_store_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Api]:
    async with running(shared_store_url, tmp_path_factory.mktemp("without"), console="off") as api:
        yield api


async def test_every_file_is_served_as_what_it_is_and_kept_until_it_changes(shared: Api):
    paths = ["/console", *(f"/console/{path.name}" for path in (*FOLDER.iterdir(), *PAGES_OF_PLUGINS))]
    kinds = set()
    for path in paths:
        answer = await shared.call("GET", path)
        assert answer.status_code == 200, path
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"
        kinds.add(answer.headers["content-type"].partition(";")[0])
        tag = answer.headers["etag"]
        for known in (tag, f'"x", W/{tag}', f'{tag[:-1]}-gzip"'):
            again = await shared.call("GET", path, headers={"if-none-match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        changed = await shared.call("GET", path, headers={"if-none-match": '"another"'})
        assert changed.status_code == 200
    assert kinds == {"text/html", "text/javascript", "text/css", "image/svg+xml"}


async def test_the_page_loads_pictures_by_https_and_all_else_from_this_service_alone(shared: Api):
    policy = (await shared.call("GET", "/console")).headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert {rules.pop(name) for name in ("default-src", "frame-ancestors", "form-action", "base-uri")} == {
        "'none'"
    }
    # Pictures of arms are where the catalogue says, by https: docs/security.md.
    assert rules.pop("img-src") == "'self' https:"
    assert set(rules.values()) == {"'self'"}


async def test_the_page_of_a_plugin_has_a_link_and_a_module(shared: Api):
    page = (await shared.call("GET", "/console")).text
    for name, title in (("campaigns", "Campaigns"), ("what-if", "What if")):
        assert f'<a href="#/{name}" data-module="page-{name}.js">{title}</a></li>\n' in page
        assert f'<link rel="modulepreload" href="console/page-{name}.js" fetchpriority="low">\n' in page


@pytest.mark.parametrize(
    "path",
    ["/console/x.js", "/console/..%2fcore.py", "/console/%2e%2e%2fx.py", "/console/a/b", "/console/page"],
)
async def test_no_other_file_is_served(shared: Api, path: str):
    await shared.refused("GET", path, status=404, code="not_found")


async def test_it_is_off_where_it_is_switched_off(api_without_console: Api):
    for path in ("/console", "/console/", "/console/main.js"):
        problem = await api_without_console.refused("GET", path, status=404, code="not_found")
        assert "SHORTLIST_CONSOLE" in problem["detail"]
    assert (await api_without_console.call("GET", "/", headers={"accept": BROWSER})).status_code == 200


@pytest.mark.parametrize(
    ("switch", "host", "there"),
    [
        ("auto", "127.0.0.1", True),
        ("auto", "::1", True),
        ("auto", "0.0.0.0", False),
        ("ON", "0.0.0.0", True),
        ("off", "127.0.0.1", False),
    ],
)
def test_auto_is_where_the_service_listens_on_loopback(
    monkeypatch: pytest.MonkeyPatch, switch: str, host: str, there: bool
):
    monkeypatch.setenv("SHORTLIST_CONSOLE", switch)
    monkeypatch.setenv("SHORTLIST_HOST", host)
    assert Settings().has_console is there


async def test_its_files_need_no_key_and_nothing_beside_them_is_open(guarded: Api):  # noqa: F811
    for path in ("/console", "/console/main.js", "/console/console.css"):
        assert (await guarded.call("GET", path)).status_code == 200, path
    for path in ("/console/a/b", "/console/main.js/x", "/consoles"):
        await guarded.refused("GET", path, status=401, code="unauthorized")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_nothing_makes_markup_or_code_of_a_text_or_keeps_a_key(path: Path):
    assert DANGEROUS.findall(path.read_text()) == []
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", path.read_text()), "it needs no other host"

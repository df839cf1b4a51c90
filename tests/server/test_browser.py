"""In a real browser: what a page of another origin can do with a key that its visitors see; our own pages."""

import html
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.api_keys import new_key
from service_process import serving

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--dump-dom",
)  # fmt: skip
WAIT_S = 60
PAGE = """<!doctype html><pre id=out></pre><script>
const calls = %s, out = [];
for (const [method, path, key, body] of calls) {
  const call = new XMLHttpRequest();
  try {
    call.open(method, "%s" + path, false);  // before the page has loaded, so that the dump has it
    if (key) call.setRequestHeader("authorization", "Bearer " + key);
    if (body) call.setRequestHeader("content-type", "application/json");
    call.send(body ? JSON.stringify(body) : null);
    out.push([call.status, call.responseText]);
  } catch (error) { out.push([0, ""]); }
}
document.getElementById("out").textContent = JSON.stringify(out);
</script>"""

pytestmark = [pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"), pytest.mark.rest]


class Site(ThreadingHTTPServer):
    """A site with one page."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.page = ""

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(self.server.page.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield site
        site.shutdown()
        thread.join()


def shown(url: str, profile: Path, *flags: str) -> tuple[str, str]:
    """The page as the browser has it in the end, and what the browser reports."""
    command = [str(BROWSER), *FLAGS, *flags, f"--user-data-dir={profile}", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    return done.stdout, done.stderr


def opened(site: Site, profile: Path) -> list[tuple[int, Any]]:
    """(status, answer) of every call of the page; 0 when the browser did not let the page have it."""
    page, _ = shown(f"{site.origin}/", profile)
    text = page.partition('<pre id="out">')[2].partition("</pre>")[0]
    return [(status, json.loads(body) if body else None) for status, body in json.loads(html.unescape(text))]


def test_a_page_can_choose_and_reward_and_nothing_else(site: Site, tmp_path: Path):
    page_key, page_entry = new_key("page", ["choose", "reward"])
    admin_key, admin_entry = new_key("admin", ["admin"])
    settings = {"SHORTLIST_API_KEYS": f"{page_entry} {admin_entry}", "SHORTLIST_CORS_ORIGINS": site.origin}
    with serving(tmp_path, **settings) as service, httpx.Client(base_url=service.url, timeout=60) as client:
        url, own = service.url, {"authorization": f"Bearer {admin_key}"}
        arm = {"id": "a", "features": [1, 2]}
        for path, body in [
            ("/v1/catalogues/c", {"dim": 2}),
            ("/v1/catalogues/c/arms", {"arms": [arm]}),
            ("/v1/bandits/b", {"catalogue": "c", "policy": "sub_ts"}),
        ]:
            client.put(path, json=body, headers=own).raise_for_status()
        choose = ("POST", "/v1/bandits/b/choose", page_key, {})
        site.page = PAGE % (json.dumps([choose]), url)
        ((status, choice),) = opened(site, tmp_path / "profile-1")
        assert (status, choice["arms"][0]["id"]) == (200, "a")
        reward = {"rewards": [{"decision": choice["decision"], "value": 1.0}]}
        calls = [
            ("POST", "/v1/rewards?wait=applied", page_key, reward),
            ("POST", "/v1/bandits/b/choose", None, {}),  # no key
            ("POST", "/v1/catalogues/c/arms/delete", page_key, {"ids": ["a"]}),  # not its scope
            ("POST", "/v1/catalogues/c/arms/delete", admin_key, {"ids": ["a"]}),  # not for pages
            ("GET", "/v1/catalogues/c", page_key, None),  # a method that no page may use
            ("DELETE", "/v1/bandits/b", admin_key, None),
        ]
        site.page = PAGE % (json.dumps(calls), url)
        answers = opened(site, tmp_path / "profile-2")
        assert [status for status, _ in answers] == [200, 401, 403, 403, 0, 0]
        assert answers[0][1]["accepted"] == 1
        learner = client.get("/v1/bandits/b/learners/_global", headers=own).json()
        assert learner["observations"] == 1

        with Site() as other:
            thread = threading.Thread(target=other.serve_forever)
            thread.start()
            other.page = PAGE % (json.dumps([choose]), url)
            assert opened(other, tmp_path / "profile-3") == [(0, None)]  # an origin that is not listed
            other.shutdown()
            thread.join()

"""The TypeScript client in a page of another origin, with a key that everybody sees; and when it is left."""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from app.api.api_keys import new_key
from node import build
from service_process import serving
from shortlist_client import Client
from waiting import wait_until_sync

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
PAGE = """<!doctype html><link rel=icon href="data:,"><script type=module>
import {{ Client, RewardSender, Unauthorized }} from "/client/index.js";
const client = new Client("{url}", {{ key: "{key}" }});
const show = (found) => fetch("/report", {{ method: "POST", body: JSON.stringify(found) }});
try {{ {script} }} catch (error) {{ show(String(error)); }}
</script>"""
STAY = """
const choice = await client.choose("b", { key: "ann", k: 2 });
const receipt = await client.reward(choice.decision, { arm: choice.arms[0].id });
const sender = new RewardSender(client);
sender.add(choice.decision, { arm: choice.arms[1].id });
await sender.flush();
const wrong = await new Client(client.url, { key: "sl_none" }).choose("b").catch((error) => error);
show([choice.arms.length, receipt, sender.waiting, wrong instanceof Unauthorized, localStorage.length]);
"""
# Both kinds of workers: the page tells what they tell it.
IN_WORKERS = """
const worker = new Worker("/worker.js", { type: "module" });
const one = new Promise((done) => (worker.onmessage = (event) => done(event.data)));
await navigator.serviceWorker.register("/worker.js", { type: "module" });
const two = new Promise((done) => (navigator.serviceWorker.onmessage = (event) => done(event.data)));
(await navigator.serviceWorker.ready).active.postMessage("choose");
show([await one, await two]);
"""
WORKER = """
import {{ Client }} from "/client/index.js";
const client = new Client("{url}", {{ key: "{key}", retry: {{ attempts: 1 }} }});
const act = async () => {{
  try {{
    return await client.reward((await client.choose("b", {{ key: "ann" }})).decision);
  }} catch (error) {{
    return String(error);
  }}
}};
if ("clients" in globalThis) globalThis.onmessage = async (event) => event.source.postMessage(await act());
else act().then((found) => postMessage(found));
"""
# No reward of this page is sent before it is left.
LEAVE = """
const sender = new RewardSender(client, { everyMs: 1e6 });
const key = location.hash.slice(1);
const choices = await Promise.all(Array.from({ length: 10 }, () => client.choose("b", { key })));
for (const choice of choices) sender.add(choice.decision);
location.href = "/left" + location.search;
"""
LEFT = b"""<!doctype html><link rel=icon href="data:,"><script>
if (location.search) location.replace("/again"); else fetch("/report", { method: "POST", body: "1" });
</script>"""
AGAIN = """
const sender = new RewardSender(client);
const before = sender.waiting;
await sender.flush();
show([before, sender.waiting, localStorage.length]);
"""
# Nothing is sent but by `flush`.
SIDE_BY_SIDE = """
const once = new Client(client.url, { key: "KEY", retry: { attempts: 1 } });
window.openSender = () => (window.sender = new RewardSender(once, { everyMs: 1e6 })).waiting;
window.flush = () => sender.flush().then(() => "sent", String);
"""

pytestmark = [pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"), pytest.mark.rest]


class Site(ThreadingHTTPServer):
    """A site of a few files, by their paths."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.reports: list[Any] = []

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        content = self.server.files.get(path, b"")
        self.send_response(200)
        self.send_header("content-type", "text/javascript" if path.endswith(".js") else "text/html")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        self.server.reports.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site() as site:
        for path in build(tmp_path).glob("*.js"):
            site.files[f"/client/{path.name}"] = path.read_bytes()
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield site
        site.shutdown()
        thread.join()


@contextmanager
def reported(site: Site, page: str, profile: Path) -> Iterator[Any]:
    """What a page, or the one that it leads to, reports to its site; the browser runs until the end."""
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", f"{site.origin}/{page}"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True) as browser:
        try:
            wait_until_sync(lambda: site.reports, what="the page reports")
            yield site.reports.pop()
        finally:
            os.killpg(browser.pid, signal.SIGKILL)


def test_a_page_chooses_rewards_and_is_left(site: Site, tmp_path: Path):
    page_key, page_entry = new_key("page", ["choose", "reward"])
    admin_key, admin_entry = new_key("admin", ["admin"])
    settings = {"SHORTLIST_API_KEYS": f"{page_entry} {admin_entry}", "SHORTLIST_CORS_ORIGINS": site.origin}
    with serving(tmp_path, **settings) as service, Client(service.url, key=admin_key) as client:
        client.put_catalogue("c", dim=2)
        client.upsert_arms("c", [[1.0, 0.0], [0.0, 1.0]], ids=["a", "b"])
        client.put_bandit("b", catalogue="c", policy="sub_ts", scope="per_key")
        for name, script in (("stay", STAY), ("leave", LEAVE), ("again", AGAIN)):
            page = PAGE.format(url=service.url, key=page_key, script=script)
            site.files[f"/{name}"] = page.encode()
        site.files["/left"] = LEFT

        site.files["/workers"] = PAGE.format(url=service.url, key=page_key, script=IN_WORKERS).encode()
        site.files["/worker.js"] = WORKER.format(url=service.url, key=page_key).encode()
        receipt = {"accepted": 1, "duplicate": 0, "rejected": []}

        def await_learned(key: str, count: int) -> None:
            def is_learned() -> bool:
                return client.get_learner("b", key).observations == count

            wait_until_sync(is_learned, what=f"{count} rewards are learned")

        with reported(site, "stay", tmp_path / "one") as found:
            assert found == [2, receipt, 0, True, 0]
            await_learned("ann", 2)
        with reported(site, "workers", tmp_path / "four") as found:
            assert found == [receipt, receipt]
            await_learned("ann", 4)
        with reported(site, "leave#bob", tmp_path / "two") as found:
            assert found == 1
            await_learned("bob", 10)
        with reported(site, "leave?again#eve", tmp_path / "three") as found:
            assert found == [10, 0, 0], "what was not answered for was kept, and is sent again"
            await_learned("eve", 10)
        wait_until_sync(lambda: client.ready().backlog == 0, what="all is applied")
        assert client.get_learner("b", "eve").observations == 10, "what was sent twice counts once"


def test_pages_side_by_side_keep_the_rewards_of_each_other(site: Site, tmp_path: Path):
    """The service is away while two pages add rewards, one of them beside a list of version 2.0."""
    key, entry = new_key("page", ["choose", "reward"])
    admin, admin_entry = new_key("admin", ["admin"])
    settings = {"SHORTLIST_API_KEYS": f"{entry} {admin_entry}", "SHORTLIST_CORS_ORIGINS": site.origin}
    with (
        serving(tmp_path, **settings) as service,
        Client(service.url, key=admin) as client,
        sync_playwright() as playwright,
    ):
        client.put_catalogue("c", dim=2)
        client.upsert_arms("c", [[1.0, 0.0], [0.0, 1.0]], ids=["a", "b"])
        client.put_bandit("b", catalogue="c", policy="sub_ts")
        decisions = [choice.decision for choice in client.choose_batch("b", ({} for _ in range(43))).results]
        script = SIDE_BY_SIDE.replace("KEY", key)
        site.files["/page"] = PAGE.format(url=service.url, key=key, script=script).encode()

        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        window = browser.new_context()
        window.route(f"{service.url}/v1/rewards", lambda route: route.abort())

        def opened() -> Any:
            page = window.new_page()
            page.goto(f"{site.origin}/page")
            page.wait_for_function("() => window.flush")
            return page

        one, two = opened(), opened()
        listed = [{"decision": decision, "value": 1} for decision in decisions[40:]]
        item = [f"shortlist {service.url}", json.dumps(listed)]
        one.evaluate("(item) => localStorage.setItem(...item)", item)
        for page in (one, two):
            page.evaluate("openSender()")
        for number, decision in enumerate(decisions[:40]):
            page = (one, two)[number % 2]
            page.evaluate("(decision) => sender.add(decision)", decision)
            if number % 10 == 9:
                assert page.evaluate("flush()") != "sent"
        for page in (one, two):
            page.close()
        window.unroute_all()
        later = opened()
        assert later.evaluate("openSender()") == len(decisions)
        assert later.evaluate("flush()") == "sent"
        assert later.evaluate("localStorage.length") == 0
        browser.close()
        wait_until_sync(lambda: client.ready().backlog == 0, what="all is applied")
        assert client.get_learner("b").observations == len(decisions)

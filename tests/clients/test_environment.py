"""Proxies and certificates of the environment: what is wrong is one line that names its variable."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from shortlist_client import Client, Retry
from shortlist_client.environment import proxy_of
from shortlist_client.errors import ShortlistError

pytestmark = pytest.mark.rest

NOBODY = "http://127.0.0.1:1"
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, *map(str.upper, VARIABLES), "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"):
        monkeypatch.delenv(name, raising=False)


def error_of(url: str) -> str:
    """What is said of one call."""
    with pytest.raises(ShortlistError) as failed, Client(url, timeout_s=1, retry=Retry(attempts=1)) as client:
        client.health()
    assert "\n" not in str(failed.value)
    return str(failed.value)


WRONG = [
    ("all_proxy", "socks5://127.0.0.1:1080", NOBODY, "names a SOCKS proxy"),
    ("ALL_PROXY", "socks4://127.0.0.1:1080", NOBODY, "must name a proxy"),
    ("http_proxy", "ftp://127.0.0.1:1080", NOBODY, "must name a proxy"),
    ("HTTP_PROXY", "http://127.0.0.1:99999", NOBODY, "must name a proxy"),
    ("http_proxy", "http://[::1", NOBODY, "must name a proxy"),
    ("http_proxy", "http://me:secret@127.0.0.1:1", "http://shop.example", "through the proxy 127.0.0.1:1"),
    ("https_proxy", "127.0.0.1:1", "https://shop.example", "through the proxy 127.0.0.1:1"),
    ("SSL_CERT_FILE", "/no/such.pem", "https://127.0.0.1:1", "cannot be used: No such file"),
    ("SSL_CERT_FILE", __file__, "https://127.0.0.1:1", "has no certificates"),
    ("SSL_CERT_DIR", "/no/such", "https://127.0.0.1:1", "must name a folder"),
    ("SSLKEYLOGFILE", "/no/such/keys", "https://127.0.0.1:1", "cannot be used: No such file"),
]


@pytest.mark.parametrize(("variable", "value", "url", "words"), WRONG)
def test_the_error_names_the_variable(
    variable: str, value: str, url: str, words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable, value)
    error = error_of(url)
    assert variable in error
    assert words in error
    assert "secret" not in error


class Refusing(BaseHTTPRequestHandler):
    """A proxy that lets nobody through."""

    def do_GET(self) -> None:
        self.send_error(403)

    def log_message(self, *words: object) -> None:
        pass


def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch):
    with HTTPServer(("127.0.0.1", 0), Refusing) as proxy:
        threading.Thread(target=proxy.handle_request, daemon=True).start()
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
        error = error_of("http://shop.example")
    assert f"through the proxy 127.0.0.1:{proxy.server_port} of the variable http_proxy answers 403" in error


MATCHES = [
    ("http://10.1.2.3:8080", "10.0.0.0/8", True),
    ("http://11.1.2.3:8080", "10.0.0.0/8", False),
    ("http://[fd00::7]:8080", "fd00::/8", True),
    ("http://[::1]:8080", "[::1]", True),
    ("http://[::1]:8080", "::1", True),
    ("http://[::1]:8080", "[::1]:9", False),
    ("http://shop.example", "example", True),
    ("http://shop.example", ".example", True),
    ("http://shop.example", "*.Example", True),
    ("http://shop.example", "hop.example", False),
    ("http://shop.example", "shop.example:80", True),
    ("http://shop.example", "shop.example:443", False),
    ("http://shop.example", "a.example, *", True),
    ("http://shop.example", "", False),
    ("http://shop.example", "fd00::/8,:::,[,/8", False),
]


@pytest.mark.parametrize(("url", "no_proxy", "matches"), MATCHES)
def test_which_hosts_are_reached_without_the_proxy(
    url: str, no_proxy: str, matches: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("all_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", no_proxy)
    assert (proxy_of(url) is None) == matches


def test_a_certificate_that_nobody_signed_is_named_as_such():
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(str(ssl.SSLError("[SSL: CERTIFICATE_VERIFY_FAILED]")), request=request)

    client = Client("https://shop.example", http=httpx.Client(transport=httpx.MockTransport(refuse)))
    with pytest.raises(ShortlistError, match=r"is not trusted .* SSL_CERT_FILE"):
        client.health()

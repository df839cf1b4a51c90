"""What the environment says of connections: the proxy, and whom to trust. What is wrong names its variable.

httpx would read the same variables, but for every address at once: one entry that it cannot read stops a
client that needs none of them, with an error that does not say where it comes from.
"""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx

from shortlist_client.errors import InvalidArgument

SCHEMES = ("http", "https", "socks5", "socks5h")
TRUSTED = ("SSL_CERT_FILE", "SSL_CERT_DIR")
LOGGED_KEYS = "SSLKEYLOGFILE"


@dataclass(frozen=True, slots=True)
class Proxy:
    """``variable`` of the environment names it. ``place`` is its host and port, without a password."""

    url: str
    variable: str
    place: str

    def __str__(self) -> str:
        return f"the proxy {self.place} of the variable {self.variable}"


def proxy_of(url: str) -> Proxy | None:
    """The proxy through which an address is reached. Raises InvalidArgument, which names the variable."""
    parts, proxies = urlsplit(url), getproxies()
    host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}[parts.scheme]
    kind = next((kind for kind in (parts.scheme, "all") if proxies.get(kind)), None)
    if kind is None or any(_names(entry.strip(), host, port) for entry in proxies.get("no", "").split(",")):
        return None
    address = proxies[kind] if "://" in proxies[kind] else f"http://{proxies[kind]}"
    names = (f"{kind}_proxy", f"{kind.upper()}_PROXY")
    variable = next((name for name in names if os.environ.get(name)), names[0])
    try:
        found = urlsplit(address)
        place = f"{found.hostname}:{found.port}" if found.port else str(found.hostname)
        httpx.Proxy(address)
    except (ValueError, httpx.InvalidURL):
        place = ""
    if not place or found.hostname is None or found.scheme not in SCHEMES:
        raise InvalidArgument(f"the variable {variable} must name a proxy, such as http://10.0.0.1:3128")
    if found.scheme.startswith("socks") and find_spec("socksio") is None:
        raise InvalidArgument(
            f"the variable {variable} names a SOCKS proxy, which needs: pip install 'httpx[socks]'. "
            f"no_proxy={host} reaches the service without a proxy"
        )
    return Proxy(address, variable, place)


def options(url: str, proxy: Proxy | None) -> dict[str, Any]:
    """Arguments of a client of httpx for this address. Raises InvalidArgument, which names the variable."""
    uses_tls = url.startswith("https:") or (proxy is not None and proxy.url.startswith("https:"))
    # Without TLS no file of certificates is read: this context trusts nobody.
    context = _context() if uses_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return {"trust_env": False, "verify": context, "proxy": None if proxy is None else proxy.url}


def _context() -> ssl.SSLContext:
    # The first of them decides; of a folder that is not there OpenSSL says nothing.
    name = next((each for each in TRUSTED if os.environ.get(each)), LOGGED_KEYS)
    if name == "SSL_CERT_DIR" and not Path(os.environ[name]).is_dir():
        raise InvalidArgument(f"the variable {name} must name a folder of certificates")
    try:
        return httpx.create_ssl_context()
    except ssl.SSLError:
        raise InvalidArgument(f"the file that the variable {name} names has no certificates") from None
    except OSError as error:
        if name in os.environ and Path(os.environ[name]).is_file():
            name = LOGGED_KEYS
        text = f"the file that the variable {name} names cannot be used: {error.strerror}"
        raise InvalidArgument(text) from None


def _names(entry: str, host: str, port: int) -> bool:
    """Whether an entry of no_proxy names a host: itself, a domain, a network, with or without a port."""
    if entry == "*":
        return True
    with_port = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]+):([0-9]{1,5})", entry)
    if with_port is not None:
        if int(with_port[2]) != port:
            return False
        entry = with_port[1]
    entry = entry.removeprefix("[").replace("]", "", 1)
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:  # one of them is a name
        domain = entry.removeprefix("*").removeprefix(".").lower()
        return bool(domain) and f".{host.lower()}".endswith(f".{domain}")

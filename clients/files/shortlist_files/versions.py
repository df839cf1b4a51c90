"""Whether a service and this client know the same files."""

from __future__ import annotations

from importlib.metadata import version

from shortlist_client.client import Client
from shortlist_client.errors import UnexpectedAnswer

SHOWN_CHARS = 40


def check_version(client: Client) -> None:
    """Raise UnexpectedAnswer unless the service is of our version, but for its last number."""
    theirs, ours = client.root().version[:SHOWN_CHARS], version("shortlist-client")
    if theirs.split(".")[:2] != ours.split(".")[:2]:
        raise UnexpectedAnswer(f"{client.url} is of version {theirs}, and this client of version {ours}")

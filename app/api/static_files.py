"""Files that never change while the service runs: their bytes are kept, and are not sent to who has them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from fastapi import Request, Response

from app.api.resource_changes import tags_of


class StaticFile(NamedTuple):
    """A file as it is answered."""

    content: bytes
    kind: str
    etag: str

    @classmethod
    def of(cls, content: bytes, kind: str) -> StaticFile:
        return cls(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')

    def reply(self, request: Request, headers: Mapping[str, str]) -> Response:
        """The file, or 304 if it is what the client has."""
        headers = {**headers, "etag": self.etag}
        if self.etag in tags_of(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers={**headers, "content-type": self.kind})

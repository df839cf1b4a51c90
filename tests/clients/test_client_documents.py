"""The code of docs/clients.md runs, one block after the other."""

import re
from pathlib import Path
from typing import Any

from service_process import serving

from shortlist_client import Client

PAGE = Path(__file__).parents[2] / "docs/clients.md"


def test_every_block_runs(tmp_path: Path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 4
    with serving(tmp_path) as service, Client(service.url) as client:
        names: dict[str, Any] = {"client": client, "url": service.url}
        for block in blocks:
            exec(block, names)

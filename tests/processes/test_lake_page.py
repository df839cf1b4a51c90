"""The Python of docs/lake.md, on the lake that its session makes."""

from pathlib import Path

import pytest
from test_code_blocks import exported

from code_blocks import blocks_of, run_python, run_session
from service_process import serving
from shortlist_client import Client

pytestmark = pytest.mark.rest


@pytest.mark.slow
def test_the_page_reads_its_lake_by_duckdb_and_dask(tmp_path: Path, monkeypatch):
    for package in ("duckdb", "dask"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    blocks = blocks_of("docs/lake.md")
    with serving(tmp_path / "service") as service, Client(service.url) as client:
        exported(client)
        run_session([block for block in blocks if block.language == "console"], service.url, tmp_path)
    monkeypatch.chdir(tmp_path)
    shown = [block for block in blocks if block.language in {"python", "text"} and "spark" not in block.text]
    assert len(shown) == 4
    run_python(shown, "", {})

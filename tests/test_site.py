"""The site: every page is in its navigation, it builds without a warning, and it needs no other host."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs import api_page, conf

ROOT = Path(__file__).parents[1]


def test_every_page_is_in_the_navigation_once():
    listed = [page for own in conf.navigation().values() for page in own]
    assert sorted(listed) == conf.pages()
    found = {path.relative_to(ROOT).with_suffix("").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert found - {conf.HOME} <= set(listed)


def test_the_page_of_the_api_has_every_call_and_every_field():
    document = api_page.document()
    text = api_page.markdown(document)
    calls = {(verb.upper(), path) for path, verbs in document["paths"].items() for verb in verbs}
    assert set(re.findall(r"^### `(\w+) (.+)`$", text, re.MULTILINE)) == calls
    for name, schema in document["components"]["schemas"].items():
        _, _, own = text.partition(f"({api_page.anchor(name)})=\n")
        own = own.partition("\n(schema-")[0]
        assert set(re.findall(r"^\| `(\w+)` \|", own, re.MULTILINE)) == set(schema.get("properties", ())), (
            name
        )


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """As `make docs` does."""
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--conf-dir", f"{source}/docs"]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(source), str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_it_builds_and_loads_nothing_from_other_hosts(tmp_path: Path):
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    built = build(ROOT, tmp_path)
    assert built.returncode == 0, built.stderr
    made = {path.relative_to(tmp_path).with_suffix("").as_posix() for path in tmp_path.rglob("*.html")}
    assert {conf.HOME, "index", *conf.pages()} <= made
    for path in [*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css")]:
        text = path.read_text()
        foreign = re.findall(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=.?(?:https?:)?//[^>]*>", text)
        foreign += re.findall(r"(?:url\(|@import )[\s\"']*(?:https?:)?//", text)
        assert foreign == [], path


@pytest.mark.slow
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path):
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    docs = tmp_path / "source/docs"
    docs.mkdir(parents=True)
    shutil.copy(ROOT / "docs/conf.py", docs)
    (docs / "page.md").write_text("# A page\n\n## There\n")
    good = ("page.md", "page.md#there", "conf.py")
    broken = ("page.md#nowhere", "nothing.md", "../app/nothing.py", "#nowhere")
    (docs / "index.md").write_text(
        "# Home\n\n" + "\n\n".join(f"[text]({target})" for target in good + broken)
    )
    found = build(tmp_path / "source", tmp_path / "site")
    assert found.returncode != 0
    assert len(re.findall(r"index.md:\d+: WARNING: .*myst.xref_missing", found.stderr)) == len(broken)

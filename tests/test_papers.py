"""The pages of docs/papers and the code name the same departures from the papers."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "papers").glob("*.md"))
MARK = "DEVIATION"
COMMENT = re.compile(rf"# {MARK} \(([^()]+)\): \S")
FOLDERS = ("algorithms/shortlist", "app", "workers", "server", "studies")  # where a paper may be followed
ROW = re.compile(rf"^\| `((?:{'|'.join(FOLDERS)})/[\w/]+\.py)` \| ([^|]+?) \|([^|]+\|[^|]+)\|$", re.MULTILINE)


def in_code(source: str) -> Counter[str]:
    return Counter(COMMENT.findall(source))


def in_table(page: str) -> Counter[tuple[str, str]]:
    return Counter((path, where) for path, where, _ in ROW.findall(page))


def marked() -> dict[str, str]:
    """Return the text of every source file that mentions a deviation, by its path in the project."""
    paths = [path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.py")]
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    return {path: text for path, text in sources.items() if MARK in text}


def test_code_and_tables_agree():
    documented: Counter[tuple[str, str]] = sum((in_table(page.read_text()) for page in PAGES), Counter())
    written = Counter(
        {(path, where): count for path, text in marked().items() for where, count in in_code(text).items()}
    )
    assert written == documented
    assert {path.split("/")[0] for path, _ in written} == {"algorithms", "app", "studies"}


@pytest.mark.parametrize("path", sorted(marked()))
def test_every_mark_has_the_form_that_is_counted(path):
    text = marked()[path]
    assert text.count(MARK) == sum(in_code(text).values())


def test_a_file_belongs_to_one_page():
    owners = [path for page in PAGES for path in {p for p, _ in in_table(page.read_text())}]
    assert len(owners) == len(set(owners))


def test_what_a_row_or_a_mark_refers_to_is_a_heading():
    titles = {page: set(re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)) for page in PAGES}
    for page in PAGES:
        for _, _, reason in ROW.findall(page.read_text()):
            assert set(re.findall(r'see "([^"]+)"', reason)) <= titles[page], reason
    referred = {title for text in marked().values() for title in re.findall(r'see "([^"]+)"', text)}
    assert referred <= set().union(*titles.values())


def test_the_reader_sees_what_it_should():
    comment = f"x = 1  # {MARK} (Alg. 2, line 7): floor\n# {MARK} (Eq. 1): why\n# {MARK}: no place\n"
    assert in_code(comment) == Counter({"Alg. 2, line 7": 1, "Eq. 1": 1})
    table = "| file | where | what | why |\n|---|---|---|---|\n| `app/a/b.py` | Eq. 1 | this | that |\n"
    assert in_table(table) == Counter({("app/a/b.py", "Eq. 1"): 1})

"""docs/papers.md and the code name the same departures from the papers."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAPERS = ROOT / "docs" / "papers.md"
MARK = "DEVIATION"
COMMENT = re.compile(rf"# {MARK} \(([^()]+)\): \S")
ROW = re.compile(r"^\| `(app/[\w/]+\.py)` \| ([^|]+?) \|(.+)\|$", re.MULTILINE)


def sections(text: str) -> dict[str, str]:
    """Return the text of every section whose title begins with a number."""
    parts = re.split(r"^## (\d+)\. .*$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def in_code(source: str) -> Counter[str]:
    return Counter(COMMENT.findall(source))


def in_table(section: str) -> Counter[tuple[str, str]]:
    return Counter((path, where) for path, where, _ in ROW.findall(section))


def marked() -> dict[str, str]:
    """Return the text of every source file that mentions a deviation, by its path in the project."""
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.glob("app/**/*.py")}
    return {path: text for path, text in sources.items() if MARK in text}


def test_code_and_tables_agree():
    documented: Counter[tuple[str, str]] = sum(
        map(in_table, sections(PAPERS.read_text()).values()), Counter()
    )
    written = Counter(
        {(path, where): count for path, text in marked().items() for where, count in in_code(text).items()}
    )
    assert written == documented


@pytest.mark.parametrize("path", sorted(marked()))
def test_every_mark_has_the_form_that_is_counted(path):
    text = marked()[path]
    assert text.count(MARK) == sum(in_code(text).values())


def test_a_file_belongs_to_one_section():
    owners = [
        path for text in sections(PAPERS.read_text()).values() for path in {p for p, _ in in_table(text)}
    ]
    assert len(owners) == len(set(owners))


def test_the_reader_sees_what_it_should():
    comment = f"x = 1  # {MARK} (Alg. 2, line 7): floor\n# {MARK} (Eq. 1): why\n# {MARK}: no place\n"
    assert in_code(comment) == Counter({"Alg. 2, line 7": 1, "Eq. 1": 1})
    table = "| file | where | what | why |\n|---|---|---|---|\n| `app/a/b.py` | Eq. 1 | this | that |\n"
    assert in_table(table) == Counter({("app/a/b.py", "Eq. 1"): 1})
    assert sections(f"# t\n## 1. One\n{table}\n## 2. Two\n") == {"1": f"\n{table}\n", "2": "\n"}

"""The figures of the README are those of the files that it names, and every number in them comes from one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
FIGURES = ROOT / "docs/figures/readme.txt"  # a figure a line: file | rows | value | text
MOST_ROWS = 7


@dataclass(frozen=True)
class Figure:
    """One number of the README, as a line of ``FIGURES`` describes it.

    ``rows`` picks rows of the file (``K=1000000, method=auto``, or ``all``), and ``value`` a number of each:
    the same in all of them, or the ``min`` or ``max`` of them. Without ``rows``, ``value`` is a path from the
    top of the file (``setting.arms``). ``text`` says how the number is written.
    """

    file: str
    rows: str
    value: str
    text: str

    def written(self, record: dict[str, Any]) -> str:
        return self.text.format(self._number(record)).replace("%", " %")

    def _number(self, record: dict[str, Any]) -> float:
        pick, _, name = self.value.rpartition(" ")
        if not self.rows:
            found: Any = record
            for key in name.split("."):
                found = found[key]
            return float(found)
        wanted = dict(part.split("=") for part in self.rows.split(", ") if part != "all")
        values = [row[name] for row in record["rows"] if all(str(row[key]) == wanted[key] for key in wanted)]
        if pick:
            return float({"min": min, "max": max}[pick](values))
        (value,) = set(values)
        return float(value)


def figures() -> list[Figure]:
    return [Figure(*(part.strip() for part in line.split("|"))) for line in FIGURES.read_text().splitlines()]


def table(text: str) -> list[tuple[str, str]]:
    """The rows of the README's table: the figure, and the file that the row links."""
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| [^|]*\]\(([\w/.]+\.json)\) \|$", text, re.MULTILINE)
    return [(figure, file) for figure, file in rows]


def expected(file: str) -> list[str]:
    record = json.loads((ROOT / file).read_text())
    return [figure.written(record) for figure in figures() if figure.file == file]


def test_there_are_few() -> None:
    assert 1 <= len(table(README)) <= MOST_ROWS
    assert {figure.file for figure in figures()} == {file for _, file in table(README)}


def test_the_caption_of_the_picture_says_where_others_earn_more() -> None:
    rows = json.loads((FIGURES.parent / "people.json").read_text())["rows"]
    ratios = {(row["world"], row["setting"], row["opponent"]): row["ratio"] for row in rows}
    knn, als = (ratios.pop(("niches", "history", opponent)) for opponent in ("item-kNN", "ALS"))
    text = f"{knn:.2f} of the hits of item-kNN and {als:.2f} of those of ALS; everywhere else at least "
    assert text + f"{min(ratios.values()):.2f} of anybody's" in " ".join(README.split())


@pytest.mark.parametrize(("shown", "file"), table(README))
def test_every_number_of_a_row_is_in_its_file(shown: str, file: str) -> None:
    rest = shown
    for text in expected(file):
        rest = rest.replace(text, "")
    assert not re.search(r"\b\d", rest), f"{shown!r} has {rest!r}; {file} gives {expected(file)}"


@pytest.mark.parametrize("file", sorted({file for _, file in table(README)}))
def test_every_number_that_is_described_is_shown(file: str) -> None:
    shown = " ".join(figure for figure, of in table(README) if of == file)
    assert [text for text in expected(file) if text not in shown] == []


@pytest.mark.parametrize("file", sorted({file for _, file in table(README)}))
def test_a_file_says_where_it_was_measured(file: str) -> None:
    record = json.loads((ROOT / file).read_text())
    assert {"benchmark", "machine", "versions", "seed", "rows"} <= set(record)


@pytest.mark.rest
def test_the_reader_sees_a_number_that_differs() -> None:
    record = {"rows": [{"K": 10, "us": 2.0}, {"K": 20, "us": 3.0}], "setting": {"arms": 5}}
    assert Figure("f", "K=10", "us", "{:.1f} times").written(record) == "2.0 times"
    assert Figure("f", "all", "max us", "{:.0%}").written(record) == "300 %"
    assert Figure("f", "", "setting.arms", "{:,.0f}").written(record) == "5"
    with pytest.raises(ValueError, match="unpack"):
        Figure("f", "all", "us", "{}").written(record)


@pytest.mark.rest
def test_the_table_of_replicas_is_that_of_its_file() -> None:
    columns = (
        "choice_us",
        "choice_store_us",
        "reward_us",
        "reward_worker_us",
        "reward_store_us",
        "reward_busiest_us",
    )
    rows = json.loads((ROOT / "load_tests/results/replicas.json").read_text())["rows"]
    text = "\n".join(
        f"| {row['nodes']} | {row['replicas']} | "
        + " | ".join(f"{row[name]:.0f}" for name in columns)
        + f" | {row['idle_replica']:.1%} | {row['idle_store']:.1%} |".replace("%", " %")
        for row in rows
    )
    assert text in (ROOT / "docs/scale.md").read_text(), text


@pytest.mark.rest
def test_the_largest_catalogue_is_that_of_its_file() -> None:
    [row] = json.loads((ROOT / "load_tests/results/scale.json").read_text())["rows"]
    ratio = f"{row['ratio']:.3f}".removeprefix("0")
    text = (
        f"| {row['arms']:,} | {row['gb']:.1f} GiB, {row['peak_gb']:.1f} during the import "
        f"| {round(row['arms_per_s'], -2):,.0f} a second | {row['import_p50_ms']:.0f} ms "
        f"| {row['built_s']:.0f} s | {row['p50_ms']:.1f} ms | {ratio} "
        f"| {row['restart_s']:.0f} s, {row['restart_index_s']:.0f} s |"
    )
    assert text in (ROOT / "docs/scale.md").read_text(), text

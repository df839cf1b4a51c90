"""Values that differ only in case or blanks: they are named, and become one with ``--tidy``.

Only columns whose values come again are looked at: in names and descriptions a difference says something.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MOST_COUNTED = 20_000  # texts of a column that are told apart
MOST_CHARS = 256  # of a value of a category
SHOWN = 5  # of a column


class Spellings:
    """Of the texts of all columns. ``declared``: values that a catalogue has for some, by column."""

    def __init__(self, declared: Mapping[str, Sequence[str]]) -> None:
        self._declared = declared
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._totals = Counter[str]()
        self._groups: dict[str, list[Counter[str]]] = {}
        self._joined: dict[str, dict[str, str]] = {}

    def add(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Count the texts of some rows."""
        for document in documents:
            for name, value in fields_of(document):
                for text in value if isinstance(value, list) else [value]:
                    if isinstance(text, str) and len(text) <= MOST_CHARS:
                        self._totals[name] += 1
                        counts = self._counts[name]
                        if len(counts) < MOST_COUNTED or text in counts:
                            counts[text] += 1

    def settle(self) -> None:
        """Find which texts are spellings of one value, and which of them it is joined as."""
        for name, counts in self._counts.items():
            declared = self._declared.get(name, ())
            if 2 * len(counts) > self._totals[name] and not declared:
                continue
            by_value: defaultdict[str, Counter[str]] = defaultdict(Counter)
            for text, count in [*((text, 0) for text in declared), *counts.items()]:
                by_value[_folded(text)][text] += count
            groups = [group for group in by_value.values() if len(group) > 1 and group.total()]
            self._groups[name] = sorted(groups, key=Counter.total, reverse=True)
            joined = self._joined[name] = {}
            for group in groups:
                usual = next((text for text in declared if text in group), None)
                usual = usual or " ".join(group.most_common(1)[0][0].split())
                joined |= {text: usual for text in group if text not in declared}

    def lines(self, *, is_tidy: bool) -> list[str]:
        """What a person reads of them. ``is_tidy``: they are joined."""
        found = list[str]()
        for name, groups in self._groups.items():
            for group in groups[:SHOWN]:
                words = ", ".join(
                    f"{json.dumps(text, ensure_ascii=False)} {f'{count:,}' if count else 'of the catalogue'}"
                    for text, count in group.most_common()
                )
                found.append(f"{name}: {words}: they differ only in case or blanks")
            if len(groups) > SHOWN:
                found.append(f"{name}: {len(groups) - SHOWN:,} more values have several spellings")
        return [*found, "they are joined" if is_tidy else "--tidy joins them"] if found else []

    def joined(self, name: str, texts: Counter[str]) -> Counter[str]:
        """Counts of a column's texts, as they are joined."""
        usual, result = self._joined.get(name, {}), Counter[str]()
        for text, count in texts.items():
            result[usual.get(text, text)] += count
        return result

    def tidy(self, document: dict[str, Any], above: str = "") -> dict[str, Any]:
        """A document with one spelling of each value."""
        return {key: self._tidy(f"{above}{key}", value) for key, value in document.items()}

    def _tidy(self, name: str, value: Any) -> Any:
        usual = self._joined.get(name, {})
        match value:
            case dict():
                return self.tidy(value, f"{name}.")
            case str():
                return usual.get(value, value)
            case list():
                texts = [usual.get(each, each) if isinstance(each, str) else each for each in value]
                return texts if texts == value else list(dict.fromkeys(texts))
        return value


def fields_of(document: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a document that have a value, those of objects with the names above and a point."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from fields_of(value, f"{above}{key}.")
        elif value is not None:
            yield f"{above}{key}", value


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", " ".join(text.split()).casefold())

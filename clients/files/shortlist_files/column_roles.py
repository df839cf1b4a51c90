"""What columns of a table are besides features: which names an item, shows it, or tells how popular it is.

And which column repeats another one. By their names, and by a sample of the rows.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

SAMPLE_ROWS = 1_000
LEAST_ROWS = 20  # of a sample, that tell something
SHARE = 0.95  # of the rows of a sample
TITLE = re.compile(r"title|name|label|headline|titel|bezeichnung|titre|nom$|nombre|tit[uo]lo", re.IGNORECASE)
PICTURE = re.compile(r"image|img|picture|photo|thumb|cover|bild|poster", re.IGNORECASE)
PICTURE_ADDRESS = re.compile(r"https?://\S+", re.IGNORECASE)
PICTURE_ENDING = re.compile(r"\.(?:jpe?g|png|webp|gif|avif|svg)(?:[?#]|$)", re.IGNORECASE)
POPULAR = re.compile(
    r"sold|sale(?:s|_count)|orders|purchas|bought|views?$|views_|visits|impressions|click|ctr|popular|rating|review|plays"
    r"|streams|downloads|likes|votes|favou?rites|bestsell|verkaufe|verkauft|gekauft|bewertung|aufrufe|ventes|vendid",
    re.IGNORECASE,
)


def tells_popularity(name: str) -> bool:
    """Whether a column of this name says how popular an item is."""
    return POPULAR.search(_without_accents(name)) is not None


class Sample:
    """The first rows of a table, by column."""

    def __init__(self) -> None:
        self._rows: list[Mapping[str, Any]] = []

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep what is missing in the sample."""
        self._rows += rows[: SAMPLE_ROWS - len(self._rows)]

    def texts(self, name: str) -> list[str | None]:
        """The texts of a column, None where it has none."""
        return [text if isinstance(text := row.get(name), str) else None for row in self._rows]

    def title(self, names: Sequence[str]) -> str | None:
        """Which of some columns names an item: texts of which nearly every row has another one."""
        found = [name for name in names if TITLE.search(_without_accents(name)) and self._is_distinct(name)]
        usual = [name for name in found if name.lower() in {"title", "name", "titel"}]
        return next(iter(usual or found), None)

    def picture(self, names: Sequence[str]) -> str | None:
        """Which of some columns has addresses of pictures."""
        for name in names:
            texts = [text for text in self.texts(name) if text]
            are_addresses = texts and all(map(PICTURE_ADDRESS.fullmatch, texts))
            if are_addresses and (PICTURE.search(name) or all(map(PICTURE_ENDING.search, texts))):
                return name
        return None

    def repeated(self, name: str, others: Sequence[str], hashed: Sequence[str]) -> str | None:
        """Why a column of texts says no more than one of ``others``; None: it says more.

        ``hashed``: those of which words count.
        """
        own = self.texts(name)
        for other in others:
            pairs = [(a, b) for a, b in zip(own, self.texts(other), strict=True) if a and b]
            if len(pairs) < LEAST_ROWS or 2 * len(pairs) < sum(text is not None for text in own):
                continue
            count = len({*pairs})
            if count == len({a for a, _ in pairs}) == len({b for _, b in pairs}) and 2 * count <= len(pairs):
                return f"it says the same as {other}"
            if other in hashed and sum(a.casefold() in b.casefold() for a, b in pairs) >= SHARE * len(pairs):
                return f"its words are those of {other}"
        return None

    def _is_distinct(self, name: str) -> bool:
        texts = [text for text in self.texts(name) if text]
        return 2 * len({*texts}) > len(texts) > 0 and not any("://" in text for text in texts)


def _without_accents(name: str) -> str:
    """As the patterns are written: Verkaufe of Verkäufe."""
    return "".join(sign for sign in unicodedata.normalize("NFD", name) if not unicodedata.combining(sign))

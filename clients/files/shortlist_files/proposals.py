"""What `shortlist import` proposes for a catalogue: fields from columns, and principal components.

column                                          field
texts that come again, at most 64 of them       category, with the values that come at least twice
more texts that come again                      hash
texts of six words or more                      hash
lists                                           categories
numbers, and true and false                     number, standardised; log of amounts that spread widely
names and ids, dates, what is always the same   none; the name of an item a hash where nothing else is a field

Fields of an object are taken for columns, and named with a point: ``salary.min``.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist_files.arm_rows import FileError
from shortlist_files.cells import Kind
from shortlist_files.spellings import MOST_COUNTED, Spellings, fields_of

MOST_VALUES = 64  # of a category: each is a number of every arm
MOST_FIELDS = 64
HASH_SIZE = 16
MANY_HASHED, LARGE_HASH = 1_000, 32  # from so many texts on the hash is larger
WORDS = 6.0  # on the average, from which a text says more than a name
MOST_BASIS_NUMBERS = 200_000
MOST_CATEGORY_CHARS = 256
NAMES = "a name or an id: nearly every row has another one"
MOST_NUMBER = 1e15
# Also where day and month cannot be told apart, or a column has several formats.
A_DATE = re.compile(r"(?:\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{4})(?:[T ]\d{2}:\d{2}.*)?")
ID_NAME = re.compile(
    r"(?:^|[_\W])(?:id|uuid|guid|sku|ean|gtin|isbn|asin|upc|url|uri|link|href)$|(?<=[a-z])(?:Id|ID|Url)$"
)
# What pandas calls the index that is written, or reset, without a name of its own.
INDEX_NAME = re.compile(r"Unnamed: \d+|index|level_\d+")
TITLE = re.compile(r"title|name|label|headline|titel|bezeichnung|titre|nom$|nombre|tit[uo]lo", re.IGNORECASE)
PICTURE = re.compile(r"image|img|picture|photo|thumb|cover|bild|poster", re.IGNORECASE)
PICTURE_ADDRESS = re.compile(r"https?://\S+", re.IGNORECASE)
PICTURE_ENDING = re.compile(r"\.(?:jpe?g|png|webp|gif|avif|svg)(?:[?#]|$)", re.IGNORECASE)


@dataclass(slots=True)
class ColumnStatistics:
    """What is counted of a column while its rows are checked. ``is_inner``: of a field of an object."""

    is_inner: bool = False
    count: int = 0
    texts: Counter[str] = field(default_factory=Counter)
    other_types: int = 0
    words: int = 0
    booleans: int = 0
    lists: int = 0
    numbers: list[float] = field(default_factory=list)

    def add(self, value: Any) -> None:
        """Count a value, which is not missing."""
        self.count += 1
        match value:
            case bool() | int() | float():
                self.booleans += isinstance(value, bool)
                self.numbers.append(float(value))
            case str():
                self._add_text(value)
                self.words += len(value.split())
            case list():
                self.lists += 1
                for each in dict.fromkeys(map(str, value)):
                    self._add_text(each)
            case _:
                self.other_types += 1

    def _add_text(self, text: str) -> None:
        if len(self.texts) < MOST_COUNTED or text in self.texts:
            self.texts[text] += 1


class Statistics:
    """Of the columns of a table, and of the products of its features."""

    def __init__(self) -> None:
        self.columns: dict[str, ColumnStatistics] = {}
        self.rows = 0
        self._products: NDArray[np.float64] | None = None
        self._embedded = 0

    def add(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Count some rows."""
        self.rows += len(documents)
        for document in documents:
            for name, value in fields_of(document):
                is_inner = name not in document
                self.columns.setdefault(name, ColumnStatistics(is_inner=is_inner)).add(value)

    def join(self, spellings: Spellings) -> None:
        """Count all spellings of a value as that."""
        for name, column in self.columns.items():
            column.texts = spellings.joined(name, column.texts)

    def add_products(self, features: NDArray[np.floating]) -> None:
        """Count the embeddings of some rows, whose principal components are wanted. Cost: n d^2.

        The products of some are summed in float32 and those of all in float64. Shape: features (n, d).
        """
        products = features.T @ features
        self._products = products.astype(np.float64) if self._products is None else self._products + products
        self._embedded += len(features)

    def principal(self, count: int, *, beside_fields: bool) -> tuple[list[list[float]], float]:
        """The first principal directions, without a centre, and the share of the squares that they keep.

        ``beside_fields``: they are scaled so that what they make has the mean squared length of a field, 1.
        Shape: (count, d). Raises FileError: there are fewer.
        """
        products = np.zeros((0, 0)) if self._products is None else self._products
        dim = len(products)
        if count >= dim:
            raise FileError(f"--reduce {count}: must be less than the {dim} numbers of an embedding")
        if count * dim > MOST_BASIS_NUMBERS:
            most = MOST_BASIS_NUMBERS // dim
            raise FileError(f"--reduce {count}: at most {most} of {dim} numbers, a basis has up to 200,000")
        values, vectors = np.linalg.eigh(products)
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
        rank = int((values > values[0] * dim * np.finfo(np.float32).eps).sum())
        if count > rank:
            raise FileError(
                f"--reduce {count}: the embeddings of this file have rank {rank}, take at most that"
            )
        basis = vectors[:, :count].T
        signs = np.sign(basis[np.arange(count), np.abs(basis).argmax(axis=1)])
        scale = math.sqrt(self._embedded / values[:count].sum()) if beside_fields else 1.0
        rows = [[float(f"{number:.9g}") for number in row] for row in scale * basis * signs[:, None]]
        return rows, float(values[:count].sum() / values.sum())


@dataclass(frozen=True, slots=True)
class Proposal:
    """``fields`` as a catalogue takes them, ``left_out``: why which columns are none of them.

    ``display``   of the catalogue: which columns name an item and show it
    """

    fields: Sequence[Mapping[str, Any]]
    left_out: Mapping[str, str]
    display: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """What a person reads of it, and the JSON of the fields."""
        return [
            "features.fields of the catalogue:",
            *(f"  {each['name']}: {_told(each)}" for each in self.fields),
            *(f"  {name}: left out, {why}" for name, why in self.left_out.items()),
            *(f"  {name}: the {role} of an item for people" for role, name in self.display.items()),
            json.dumps({"fields": list(self.fields)}, ensure_ascii=False),
        ]


def propose(statistics: Statistics, kinds: Mapping[str, Kind]) -> Proposal:
    """Fields for the columns of a table. ``kinds``: of its columns."""
    fields, left_out = list[Mapping[str, Any]](), dict[str, str]()
    inner = [name for name in statistics.columns if name not in kinds]
    objects = {name.partition(".")[0] for name in inner if statistics.columns[name].is_inner}
    for name in [*(name for name in kinds if name in statistics.columns or name not in objects), *inner]:
        seen = statistics.columns.get(name)
        found = "it has no values" if seen is None else _field(name, seen, kinds.get(name), statistics.rows)
        if not isinstance(found, str) and len(fields) == MOST_FIELDS:
            found = f"a catalogue has at most {MOST_FIELDS} fields"
        if isinstance(found, str):
            left_out[name] = found
        else:
            fields.append({"name": name, **found})
    title = _title(statistics)
    names = [name for name, why in left_out.items() if name == title or why == NAMES]
    if names and not fields:
        name = title if title in names else names[0]
        fields.append({"name": name, "kind": "hash", "size": LARGE_HASH})
        del left_out[name]
    roles = {"title": title, "picture": _picture(statistics)}
    return Proposal(fields, left_out, {role: name for role, name in roles.items() if name is not None})


def _title(statistics: Statistics) -> str | None:
    """Which column names an item: texts of which nearly every row has another one."""
    found = list[str]()
    for name, seen in statistics.columns.items():
        is_distinct = 2 * len(seen.texts) > min(seen.count, MOST_COUNTED) and not seen.lists
        if TITLE.search(_without_accents(name)) and is_distinct and not any("://" in t for t in seen.texts):
            found.append(name)
    return min(found, key=lambda name: name.lower() not in {"title", "name", "titel"}, default=None)


def _picture(statistics: Statistics) -> str | None:
    """Which column has addresses of pictures."""
    for name, seen in statistics.columns.items():
        are_addresses = seen.texts and not seen.lists and all(map(PICTURE_ADDRESS.fullmatch, seen.texts))
        if are_addresses and (PICTURE.search(name) or all(map(PICTURE_ENDING.search, seen.texts))):
            return name
    return None


def _without_accents(name: str) -> str:
    """As the patterns are written: Titulo of Título."""
    return "".join(sign for sign in unicodedata.normalize("NFD", name) if not unicodedata.combining(sign))


def _field(name: str, seen: ColumnStatistics, kind: Kind | None, rows: int) -> Mapping[str, Any] | str:
    """The field of a column, or why it has none."""
    if (not seen.is_inner and "." in name) or name.startswith("$"):
        return "its name has a point, or begins with $"
    if kind == "date" or (seen.texts and not seen.lists and all(map(A_DATE.fullmatch, seen.texts))):
        return "a date"
    if seen.other_types or (seen.numbers and seen.texts) or (seen.lists and seen.count != seen.lists):
        return "its values are of several types"
    if seen.lists:
        values = _repeated(seen.texts)
        return {"kind": "categories", "values": values} if values else "no value of its lists comes again"
    return _number(name, seen, rows) if seen.numbers else _text(name, seen)


def _repeated(texts: Counter[str]) -> list[str]:
    common = [(text, count) for text, count in texts.most_common(MOST_VALUES) if count > 1]
    return [text for text, _ in common if 0 < len(text) <= MOST_CATEGORY_CHARS]


def _text(name: str, seen: ColumnStatistics) -> Mapping[str, Any] | str:
    distinct, mean_words = len(seen.texts), seen.words / seen.count
    if distinct == 1:
        return "it is always the same"
    if ID_NAME.search(name) or any("://" in text for text, _ in seen.texts.most_common(20)):
        return "an id or an address"
    if mean_words >= WORDS:
        return {"kind": "hash", "size": LARGE_HASH}
    if distinct <= MOST_VALUES and 2 * distinct <= seen.count and (values := _repeated(seen.texts)):
        return {"kind": "category", "values": values}
    if 2 * distinct <= seen.count:
        return {"kind": "hash", "size": LARGE_HASH if distinct >= MANY_HASHED else HASH_SIZE}
    return NAMES


def _number(name: str, seen: ColumnStatistics, rows: int) -> Mapping[str, Any] | str:
    values = np.array(seen.numbers)
    if np.abs(values).max() > MOST_NUMBER:
        return "it has numbers above 1e15"
    is_whole = bool((values == np.round(values)).all())
    distinct = len(np.unique(values))
    if is_whole and INDEX_NAME.fullmatch(name) and 2 * distinct > len(values):
        return "the index of a table of pandas"
    is_dense = np.ptp(values) < 2 * len(values) and values.min() in {0.0, 1.0}
    if ID_NAME.search(name) or (is_whole and is_dense and distinct == len(values) == rows > 1):
        return "an id"
    result: dict[str, Any] = {"kind": "number"}
    spread, mean = float(values.std()), float(values.mean())
    if values.min() >= 0.0 and mean > 0.0 and spread > mean and not seen.booleans:
        result["log"] = True
        values = np.log1p(values)
    spread, mean = float(values.std()), float(values.mean())
    if not spread > 1e-12 * max(1.0, abs(mean)):
        return "it is always the same"
    return result | {"mean": float(f"{mean:.6g}"), "scale": float(f"{spread:.6g}")}  # six digits are read


def _told(each: Mapping[str, Any]) -> str:
    match each["kind"]:
        case "number":
            log = ", its logarithm" if each.get("log") else ""
            return f"number{log}, mean {each['mean']:g}, scale {each['scale']:g}"
        case "hash":
            return f"text, hashed into {each['size']} numbers"
    shown = ", ".join(f'"{value}"' if "," in value else value for value in each["values"][:5])
    return f"{each['kind']}, {len(each['values'])} values: {shown}" + ", ..." * (len(each["values"]) > 5)

"""What `shortlist import` proposes for a catalogue: fields from columns, and principal components.

column                                          field
texts that come again, at most 64 of them       category, with the values that come at least twice
more texts that come again                      hash
texts of six words or more                      hash
lists                                           categories
numbers, and true and false                     number, standardised; log of amounts that spread widely
names and ids, dates, what is always the same   none

Fields of an object are taken for columns, and named with a point: ``salary.min``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist_files.arm_rows import FileError
from shortlist_files.cells import Kind
from shortlist_files.column_roles import Sample, tells_popularity
from shortlist_files.spellings import MOST_COUNTED, Spellings, fields_of

MOST_VALUES = 64  # of a category: each is a number of every arm
MOST_FIELDS = 64
HASH_SIZE = 16
MANY_HASHED, LARGE_HASH = 1_000, 32  # from so many texts on the hash is larger
WORDS = 6.0  # on the average, from which a text says more than a name
MOST_BASIS_NUMBERS = 200_000
MOST_CATEGORY_CHARS = 256
MOST_NUMBER = 1e15
NO_POPULARITY = (
    "no column seems to say how popular an item is: new users are shown what most people like only after "
    "thousands of decisions. Add a column of numbers, such as how often each was sold, viewed or clicked"
)
# Also where day and month cannot be told apart, or a column has several formats.
A_DATE = re.compile(r"(?:\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{4})(?:[T ]\d{2}:\d{2}.*)?")
ID_NAME = re.compile(
    r"(?:^|[_\W])(?:id|uuid|guid|sku|ean|gtin|isbn|asin|upc|url|uri|link|href)$|(?<=[a-z])(?:Id|ID|Url)$"
)

# What pandas calls the index that is written, or reset, without a name of its own.
INDEX_NAME = re.compile(r"Unnamed: \d+|index|level_\d+")


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
            case bool():
                self.booleans += 1
                self.numbers.append(float(value))
            case int() | float():
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
        self.sample = Sample()
        self.rows = 0
        self._products: NDArray[np.float64] | None = None
        self._embedded = 0

    def add(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Count some rows."""
        self.rows += len(documents)
        for document in documents:
            fields = dict(fields_of(document))
            self.sample.add([fields])
            for name, value in fields.items():
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
        if self._products is None:
            self._products = np.zeros(products.shape)
        self._products += products
        self._embedded += len(features)

    def principal(self, count: int, *, beside_fields: bool) -> tuple[NDArray[np.float64], float]:
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
        return scale * basis * signs[:, None], float(values[:count].sum() / values.sum())


@dataclass(frozen=True, slots=True)
class Proposal:
    """``fields`` as a catalogue takes them, ``left_out``: why which columns are none of them.

    ``display``   of the catalogue: which columns name an item and show it
    """

    fields: Sequence[Mapping[str, Any]]
    left_out: Mapping[str, str]
    display: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """What a person reads of it."""
        told = [f"  {each['name']}: {_told(each)}" for each in self.fields]
        told += [f"  {name}: left out, {why}" for name, why in self.left_out.items()]
        told += [f"  {name}: the {role} of an item for people" for role, name in self.display.items()]
        numbers = [each["name"] for each in self.fields if each["kind"] == "number"]
        if self.fields and not any(map(tells_popularity, numbers)):
            told.append(NO_POPULARITY)
        return told


def propose(statistics: Statistics, kinds: Mapping[str, Kind]) -> Proposal:
    """Fields for the columns of a table. ``kinds``: of its columns."""
    fields, left_out = list[Mapping[str, Any]](), dict[str, str]()
    inner = [name for name in statistics.columns if name not in kinds]
    objects = {name.partition(".")[0] for name in inner if statistics.columns[name].is_inner}
    for name in [*(name for name in kinds if name in statistics.columns or name not in objects), *inner]:
        if (seen := statistics.columns.get(name)) is None:
            left_out[name] = "it has no values"
            continue
        found = _field(name, seen, kinds.get(name, "value"), statistics.rows)
        if isinstance(found, str):
            left_out[name] = found
        else:
            fields.append({"name": name, **found})
    kept = list[Mapping[str, Any]]()
    for place, each in enumerate(fields):
        hashed = [other["name"] for other in (*kept, *fields[place + 1 :]) if other["kind"] == "hash"]
        others = [*hashed, *(other["name"] for other in fields if other["kind"] == "category")]
        why = statistics.sample.repeated(each["name"], others, hashed) if each["kind"] == "hash" else None
        if why is None and len(kept) == MOST_FIELDS:
            why = f"a catalogue has at most {MOST_FIELDS} fields"
        if why is None:
            kept.append(each)
        else:
            left_out[each["name"]] = why
    names = [name for name, seen in statistics.columns.items() if seen.texts and not seen.lists]
    roles = {"title": statistics.sample.title(names), "picture": statistics.sample.picture(names)}
    return Proposal(kept, left_out, {role: name for role, name in roles.items() if name is not None})


def _field(name: str, seen: ColumnStatistics, kind: Kind, rows: int) -> Mapping[str, Any] | str:
    """The field of a column, or why it has none."""
    if (not seen.is_inner and "." in name) or name.startswith("$"):
        return "its name has a point, or begins with $"
    if kind == "date" or (seen.texts and not seen.lists and all(map(A_DATE.fullmatch, seen.texts))):
        return "a date"
    if seen.other_types or (seen.numbers and seen.texts) or (seen.lists and seen.count != seen.lists):
        return "its values are of several types"
    if seen.lists:
        return _categories(seen)
    if seen.numbers:
        return _number(name, seen, rows)
    return _text(name, seen)


def _categories(seen: ColumnStatistics) -> Mapping[str, Any] | str:
    values = _repeated(seen.texts)
    return {"kind": "categories", "values": values} if values else "no value of its lists comes again"


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
    return "a name or an id: nearly every row has another one"


def _number(name: str, seen: ColumnStatistics, rows: int) -> Mapping[str, Any] | str:
    values = np.array(seen.numbers)
    if np.abs(values).max() > MOST_NUMBER:
        return "it has numbers above 1e15"
    is_whole = bool((values == np.round(values)).all())
    if is_whole and INDEX_NAME.fullmatch(name) and 2 * len(np.unique(values)) > len(values):
        return "the index of a table of pandas"
    if is_whole and len(np.unique(values)) == len(values) == rows and rows > 1:
        is_dense = np.ptp(values) < 2 * len(values)
        if ID_NAME.search(name) or (is_dense and values.min() in {0.0, 1.0}):
            return "an id: every row has another one"
    if ID_NAME.search(name):
        return "an id"
    result: dict[str, Any] = {"kind": "number"}
    spread, mean = float(values.std()), float(values.mean())
    if values.min() >= 0.0 and mean > 0.0 and spread > mean and not seen.booleans:
        result["log"] = True
        values = np.log1p(values)
    spread = float(values.std())
    if not spread > 1e-12 * max(1.0, abs(float(values.mean()))):
        return "it is always the same"
    return result | {"mean": _short(float(values.mean())), "scale": _short(spread)}


def rounded(basis: NDArray[np.float64]) -> list[list[float]]:
    """The rows of a basis with as many digits as float32 has."""
    return [[float(f"{number:.9g}") for number in row] for row in basis]


def _short(number: float) -> float:
    """Six digits say enough, and are read."""
    return float(f"{number:.6g}") if math.isfinite(number) else number


def _told(each: Mapping[str, Any]) -> str:
    match each["kind"]:
        case "number":
            log = ", its logarithm" if each.get("log") else ""
            return f"number{log}, mean {each['mean']:g}, scale {each['scale']:g}"
        case "hash":
            return f"text, hashed into {each['size']} numbers"
    shown = ", ".join(f'"{value}"' if "," in value else value for value in each["values"][:5])
    return f"{each['kind']}, {len(each['values'])} values: {shown}" + ", ..." * (len(each["values"]) > 5)

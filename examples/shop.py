"""A shop over HTTP: in stock, affordable, in one's language, one per maker, and one article advertised.

    python -m examples.shop

Starts a service of its own with 2,000 articles, and lets a hundred customers look at the shop, each at six
articles. Meanwhile articles sell out and come back, and prices change. Every page is compared with the
shop's own books, and what the service made of the rules is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from examples.service import StartError, temporary_service
from shortlist_client import Client, ShortlistError

ARTICLES, DIM, MAKERS = 2_000, 8, 60
LANGUAGES = ("de", "en", "fr")
CUSTOMERS, PAGE, PLACE = 100, 6, 2
HIGHEST_PRICE = 100
RESTOCKED_TOGETHER = 20
SHOWN_PAGES = 2
PART = 10
TEMPTED_EVERY = 5


@dataclass(frozen=True, slots=True)
class Article:
    """One article as the shop's books have it. ``languages``: of its manual."""

    id: str
    maker: str
    languages: Sequence[str]
    price: float
    stock: int

    @property
    def metadata(self) -> Mapping[str, Any]:
        return {
            "maker": self.maker,
            "languages": list(self.languages),
            "price": self.price,
            "in_stock": self.stock > 0,
        }


@dataclass(slots=True)
class Page:
    """What one customer was shown, and how many articles came into question by the service and the books.

    ``liked``: how much customers like the articles that were chosen, on average.
    """

    customer: str
    language: str
    budget: int
    shown: Sequence[Article]
    pinned: Sequence[str]
    liked: float
    eligible: int
    eligible_by_books: int
    sold: str


@dataclass(slots=True)
class Shop:
    """The books: every article as it is now, and the features that the service recommends it by."""

    rng: np.random.Generator
    articles: dict[str, Article] = field(default_factory=dict)
    features: dict[str, list[float]] = field(default_factory=dict)

    def open(self) -> None:
        for number in range(ARTICLES):
            spoken = [name for name in LANGUAGES if self.rng.random() < 0.6] or ["en"]
            self._enter(f"article-{number}", f"maker-{self.rng.integers(MAKERS)}", spoken, self._stock())
            self.features[f"article-{number}"] = self.rng.standard_normal(DIM).tolist()

    def sell(self, article: str) -> None:
        """One less; the price goes up with what is sold."""
        old = self.articles[article]
        price = round(min(1.05 * old.price, HIGHEST_PRICE), 2)
        self.articles[article] = Article(old.id, old.maker, old.languages, price, old.stock - 1)

    def restock(self) -> Sequence[str]:
        """Some articles come back or go, at new prices."""
        chosen = self.rng.choice(ARTICLES, RESTOCKED_TOGETHER, replace=False).tolist()
        changed = [f"article-{number}" for number in chosen]
        for name in changed:
            old = self.articles[name]
            self._enter(name, old.maker, old.languages, self._stock())
        return changed

    def in_question(self, language: str, budget: int) -> int:
        """How many articles a customer may be shown, by going through the books."""
        return sum(
            article.stock > 0 and article.price <= budget and language in article.languages
            for article in self.articles.values()
        )

    def _enter(self, name: str, maker: str, languages: Sequence[str], stock: int) -> None:
        price = round(float(self.rng.uniform(2, HIGHEST_PRICE)), 2)
        self.articles[name] = Article(name, maker, languages, price, stock)

    def _stock(self) -> int:
        return int(self.rng.integers(0, 4))


class Counter:
    """The shop as its customers see it, through the service."""

    def __init__(self, client: Client, shop: Shop) -> None:
        self._client = client
        self._shop = shop
        self.campaign = ""

    def open(self) -> None:
        """Write all articles, and a bandit that never shows what is out of stock."""
        self._client.put_catalogue("articles", dim=DIM)
        self.write(list(self._shop.articles))
        self._client.put_bandit("shop", catalogue="articles", policy="sub_ts", filter={"in_stock": True})
        self.advertise()

    def write(self, names: Sequence[str]) -> None:
        """Tell the service what the books say of these articles."""
        features = [self._shop.features[name] for name in names]
        metadata = [self._shop.articles[name].metadata for name in names]
        self._client.upsert_arms("articles", features, ids=names, metadata=metadata)

    def advertise(self) -> None:
        """The campaign is for the first article that is in stock."""
        self.campaign = next(name for name, article in self._shop.articles.items() if article.stock)

    def visit(self, customer: str, language: str, budget: int, *, tempted: bool) -> Page:
        """A customer looks at a page and buys what they like best, or, if tempted, what is advertised."""
        expected = self._shop.in_question(language, budget)
        choice = self._client.choose(
            "shop",
            k=PAGE,
            filter={"languages": language, "price": {"$lte": budget}},
            rules={
                "pin": [{"arm": self.campaign, "place": PLACE}],
                "at_most": [{"field": "maker", "count": 1}],
            },
        )
        names = [arm.id for arm in choice.arms]
        shown = [self._shop.articles[name] for name in names]
        favourite = max(names, key=lambda name: self._shop.features[name][0])  # all like the first feature
        sold = self.campaign if tempted else favourite
        self._client.reward(choice.decision, self._shop.features[sold][0], arm=sold, wait=True)
        pinned = [arm.id for arm in choice.arms if arm.pinned]
        liked = float(np.mean([self._shop.features[name][0] for name in names if name not in pinned]))
        eligible = choice.eligible or 0
        page = Page(customer, language, budget, shown, pinned, liked, eligible, expected, sold)
        self._shop.sell(sold)
        self.write([sold])
        if not self._shop.articles[self.campaign].stock:
            self.advertise()
        return page


def play(client: Client, seed: int) -> list[Page]:
    """Open the shop and serve all customers; between them, articles sell out and come back."""
    rng = np.random.default_rng(seed)
    shop = Shop(rng)
    shop.open()
    counter = Counter(client, shop)
    counter.open()
    pages = []
    for number in range(CUSTOMERS):
        language = LANGUAGES[rng.integers(len(LANGUAGES))]
        budget, tempted = int(rng.integers(10, HIGHEST_PRICE)), number % TEMPTED_EVERY == TEMPTED_EVERY - 1
        pages.append(counter.visit(f"customer {number}", language, budget, tempted=tempted))
        counter.write(shop.restock())
        if not shop.articles[counter.campaign].stock:
            counter.advertise()
    return pages


def main() -> int:
    """Play and print; the exit status says whether every page kept to the rules."""
    try:
        with temporary_service() as server, Client(server.url) as client:
            pages = play(client, seed=1)
    except (ShortlistError, StartError, OSError) as error:
        print(f"shop: {error}", file=sys.stderr)
        return 1
    for page in pages[:SHOWN_PAGES]:
        _print(page)
    kept = print_summary(pages)
    return 0 if kept else 1


def _print(page: Page) -> None:
    print(f"{page.customer} reads {page.language} and spends up to {page.budget} euros:", end=" ")
    print(f"{page.eligible} articles are eligible")
    for place, article in enumerate(page.shown, 1):
        manual = "/".join(article.languages)
        line = f"  {place}. {article.id:13} by {article.maker:9} {article.price:6.2f} euros, in {manual:9}"
        marks = "  advertised" * (article.id in page.pinned) + "  bought" * (article.id == page.sold)
        print(f"{line} {article.stock} left{marks}")
    print()


def print_summary(pages: Sequence[Page]) -> bool:
    """Print what was kept to; whether all of it was."""
    chosen = [[article for article in page.shown if article.id not in page.pinned] for page in pages]
    broken = {
        "articles shown out of stock": sum(article.stock <= 0 for page in pages for article in page.shown),
        "articles chosen above the budget": sum(
            article.price > page.budget for page, own in zip(pages, chosen, strict=True) for article in own
        ),
        "articles chosen without a manual in the customer's language": sum(
            page.language not in article.languages
            for page, own in zip(pages, chosen, strict=True)
            for article in own
        ),
        "pages with two articles of a maker": sum(
            len({article.maker for article in page.shown}) < len(page.shown) for page in pages
        ),
        f"pages without the advertised article at place {PLACE}": sum(
            [article.id for article in page.shown[PLACE - 1 : PLACE]] != list(page.pinned) for page in pages
        ),
        "pages where service and books disagree on how many are eligible": sum(
            page.eligible != page.eligible_by_books for page in pages
        ),
    }
    print(f"{len(pages)} pages, with sales, new stock and new prices between them:")
    for what, count in broken.items():
        print(f"  {count:4} {what}")
    first, last = (np.mean([page.liked for page in some]) for some in (pages[:PART], pages[-PART:]))
    print(f"and it learns: articles chosen for the first {PART} pages are liked {first:.1f}, ", end="")
    print(f"for the last {PART} {last:.1f} (an article at random: 0)")
    return not any(broken.values())


if __name__ == "__main__":
    sys.exit(main())

"""The shop: every page keeps to filter and rules, by the shop's own books, while these change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from examples import shop
from examples.service import temporary_service
from shortlist_client import Client

pytestmark = pytest.mark.rest


@pytest.fixture(scope="module")
def pages() -> list[shop.Page]:
    with temporary_service() as server, Client(server.url) as client:
        return shop.play(client, seed=2)


def test_everything_is_in_stock_affordable_and_in_the_language(pages: list[shop.Page]) -> None:
    for page in pages:
        assert all(article.stock > 0 for article in page.shown)
        for article in page.shown:
            if article.id not in page.pinned:
                assert article.price <= page.budget
                assert page.language in article.languages


def test_no_page_has_two_articles_of_a_maker(pages: list[shop.Page]) -> None:
    for page in pages:
        assert len({article.maker for article in page.shown}) == len(page.shown) == shop.PAGE


def test_the_advertised_article_stands_where_it_was_asked_for(pages: list[shop.Page]) -> None:
    for page in pages:
        assert page.pinned == [page.shown[shop.PLACE - 1].id]
    assert len({page.pinned[0] for page in pages}) > 1  # the campaign goes on when an article is sold out


def test_as_many_come_into_question_as_the_books_say(pages: list[shop.Page]) -> None:
    assert [page.eligible for page in pages] == [page.eligible_by_books for page in pages]
    assert len({page.eligible for page in pages}) > 50


def test_a_page_that_breaks_a_rule_shows(pages: list[shop.Page], capsys: pytest.CaptureFixture[str]) -> None:
    """Broken variants."""
    page = pages[0]
    first, second = page.shown[0], page.shown[2]
    for wrong in (
        replace(page, eligible=page.eligible + 1),
        replace(page, pinned=[first.id]),
        replace(page, shown=[replace(first, stock=0), *page.shown[1:]]),
        replace(page, shown=[replace(first, price=page.budget + 0.01), *page.shown[1:]]),
        replace(page, shown=[replace(first, languages=["xx"]), *page.shown[1:]]),
        replace(page, shown=[replace(first, maker=second.maker), *page.shown[1:]]),
    ):
        assert not shop.print_summary([wrong])
        assert "   1 " in capsys.readouterr().out

"""The page in a real browser: every state it has, by sight, by keyboard, and for screen readers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from stage import Stage

from tessera.events.topics import DOCUMENTS

Make = Callable[..., Stage]
READ, WATCH, OPERATE = "r" * 16, "m" * 16, "o" * 16
TOKENS = {"read_token": READ, "monitor_token": WATCH, "operator_token": OPERATE}


def open_page(page: Any, stage: Stage) -> None:
    page.goto(stage.url)
    page.wait_for_selector('body[data-link="live"]')
    page.wait_for_selector("#verdict:not([data-level=loading])")


def looked_at(page: Any, folder: Path, name: str) -> None:
    """Keep a picture of the page, and let axe find what keeps people from using it."""
    page.screenshot(path=folder / f"{name}.png", full_page=page.locator("dialog[open]").count() == 0)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def text(page: Any, selector: str) -> str:
    return " ".join(page.inner_text(selector).split())


def sign_in(page: Any, token: str) -> None:
    page.wait_for_selector("#sign-in[open]")
    page.fill("#token", token)
    page.press("#token", "Enter")


def wait_for_text(page: Any, selector: str, words: str) -> None:
    page.wait_for_function(
        "([selector, words]) => document.querySelector(selector)?.innerText.includes(words)",
        arg=[selector, words],
    )


@pytest.mark.parametrize("kind", ["page", "night", "phone"])
def test_a_healthy_index_is_told_at_a_glance(
    stage: Make, kind: str, request: pytest.FixtureRequest, screenshots: Path
) -> None:
    page = request.getfixturevalue(kind)
    open_page(page, stage())
    assert text(page, "#verdict").startswith("Healthy")
    assert "2 sources lose evidence: devex, notes" in text(page, "#verdict")
    tiles = text(page, "#health-tiles")
    for told in ("Lag 0", "Dead letters 0", "r1 · g1", "Documents 52"):
        assert told in tiles
    assert "no embedding contract" in text(page, "#generation-cards")
    page.wait_for_timeout(1500)
    looked_at(page, screenshots, f"healthy-{kind}")
    width = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert width <= 0, "the page is wider than its window"


def test_an_index_that_was_never_set_up_says_what_to_do(stage: Make, page: Any, screenshots: Path) -> None:
    open_page(page, stage(filled=False, opened=False))
    assert "Nothing is served yet" in text(page, "#verdict")
    assert "tessera worker" in text(page, "#generations")
    looked_at(page, screenshots, "never-set-up")


def test_an_empty_index_says_so(stage: Make, page: Any, screenshots: Path) -> None:
    open_page(page, stage(filled=False))
    assert "Documents 0" in text(page, "#health-tiles")
    assert page.is_visible("#sources-empty")
    looked_at(page, screenshots, "empty")


def test_before_the_first_event_the_page_says_that_it_loads(
    stage: Make, page: Any, screenshots: Path
) -> None:
    page.route("**/api/events", lambda route: None)
    page.goto(stage().url)
    page.wait_for_selector('body[data-link="loading"]')
    assert text(page, "#link-text") == "Connecting…"
    assert text(page, "#verdict-word") == "Loading…"
    looked_at(page, screenshots, "loading")


def test_a_page_that_lost_its_connection_says_since_when_and_goes_on_by_itself(
    stage: Make, page: Any, screenshots: Path
) -> None:
    running = stage()
    open_page(page, running)
    running.stop()
    page.wait_for_selector('body[data-link="lost"]')
    assert text(page, "#banner").startswith("Connection lost since ")
    assert "What you see is from then." in text(page, "#banner")
    assert page.title().startswith("(lost)")
    looked_at(page, screenshots, "lost")
    running.start()
    page.click("#retry")
    page.wait_for_selector('body[data-link="live"]')
    assert page.is_hidden("#banner")


def test_an_index_that_cannot_be_read_is_told_with_the_reason(
    stage: Make, night: Any, screenshots: Path
) -> None:
    running = stage()
    open_page(night, running)
    running.store.broken = True
    night.wait_for_selector('body[data-link="trouble"]')
    assert "The index cannot be read since" in text(night, "#banner")
    assert "Redis at r:6379 is not available" in text(night, "#banner")
    looked_at(night, screenshots, "trouble")
    running.store.broken = False
    night.wait_for_selector('body[data-link="live"]')


def test_what_is_wrong_stands_at_the_top(stage: Make, page: Any, screenshots: Path) -> None:
    running = stage()
    running.broker_trouble = "Kafka at kafka:9092 does not answer"
    open_page(page, running)
    wait_for_text(page, "#verdict", "Broker not reachable")
    assert text(page, "#verdict-word") == "Needs attention now"
    looked_at(page, screenshots, "broker-away")


def test_a_migration_is_watched_held_up_served_and_rolled_back(
    stage: Make, page: Any, screenshots: Path
) -> None:
    running = stage(operator_token=OPERATE, cutover_wait_s=0.0)
    running.do(running.candidate(rate=8.0))
    running.do(running.adopt())
    page.wait_for_timeout(2000)
    running.do(running.adopt())
    page.goto(running.url)
    sign_in(page, OPERATE)
    card = '[aria-labelledby="generation-g2"]'
    page.wait_for_selector(f"{card} progress")
    wait_for_text(page, card, "keep")
    assert "state" in text(page, card)
    page.wait_for_timeout(1500)
    looked_at(page, screenshots, "migration")

    page.click(f'{card} [data-act="pause"]')
    page.wait_for_selector("#confirm[open]")
    wait_for_text(page, "#confirm", "It holds")
    looked_at(page, screenshots, "confirm-pause")
    page.keyboard.press("Escape")
    page.wait_for_selector("#confirm:not([open])", state="attached")
    assert page.evaluate("document.activeElement.dataset.act") == "pause", "focus is where it was"
    page.click(f'{card} [data-act="pause"]')
    page.click("#confirm-do:enabled")
    page.wait_for_selector(f'{card} [data-act="resume"]:visible')
    page.click(f'{card} [data-act="resume"]')
    page.click("#confirm-do:enabled")
    page.wait_for_selector(f'{card} [data-act="pause"]:visible')

    page.click(f'{card} [data-act="cutover"]')
    wait_for_text(page, "#confirm", "It cannot be done now")
    assert page.is_disabled("#confirm-do")
    looked_at(page, screenshots, "cutover-blocked")
    page.keyboard.press("Escape")

    running.do(running.proven())
    page.set_default_timeout(30_000)  # checks are looked at every ten seconds while nothing moves
    wait_for_text(page, card, "All checks pass")
    page.click(f'{card} [data-act="cutover"]')
    page.wait_for_selector("#confirm-do:enabled")
    looked_at(page, screenshots, "cutover-dry-run")
    page.click("#confirm-do")
    wait_for_text(page, "#health-tiles", "g2")
    wait_for_text(page, card, "serving")
    running.do(running.tick())

    page.click(f'{card} [data-act="rollback"]')
    page.wait_for_selector("#confirm-do:enabled")
    page.fill("#confirm-why", "the table of rents went missing")
    looked_at(page, screenshots, "rollback-dry-run")
    page.click("#confirm-do")
    wait_for_text(page, "#health-tiles", "g1")


def test_nobody_sees_more_than_the_token_may(stage: Make, page: Any, screenshots: Path) -> None:
    running = stage(**TOKENS)
    page.goto(running.url)
    page.wait_for_selector("#sign-in[open]")
    looked_at(page, screenshots, "sign-in")
    sign_in(page, "wrong" * 4)
    wait_for_text(page, "#sign-in", "the token names nobody")
    looked_at(page, screenshots, "sign-in-refused")
    sign_in(page, READ)
    page.wait_for_selector('body[data-link="limited"]')
    assert page.is_hidden("#sources")
    page.fill("#search-text", "renewal notice")
    page.press("#search-text", "Enter")
    page.wait_for_selector("#search-hits li")
    looked_at(page, screenshots, "reader")
    page.click("#account")
    sign_in(page, WATCH)
    page.wait_for_selector('body[data-link="live"]')
    wait_for_text(page, "#generations-hint", "operator token")
    assert page.locator("[data-act]:visible").count() == 0
    assert text(page, "#account") == "Sign out (monitor)"


def test_a_search_shows_hits_in_their_lines_with_the_words_marked(
    stage: Make, page: Any, screenshots: Path
) -> None:
    open_page(page, stage())
    page.fill("#search-text", "how many days before the end must notice be given?")
    page.press("#search-text", "Enter")
    page.wait_for_selector("#search-hits li")
    assert page.locator("#search-hits mark").count() > 3
    assert "release r1, generation g1" in text(page, "#search-told")
    looked_at(page, screenshots, "search")
    page.fill("#search-text", "zyzzyva")
    page.press("#search-text", "Enter")
    wait_for_text(page, "#search-told", "Nothing found")
    looked_at(page, screenshots, "search-nothing")


def test_a_source_that_loses_evidence_shows_the_lines(stage: Make, page: Any, screenshots: Path) -> None:
    open_page(page, stage())
    page.click("#source-rows tr:has-text('devex') button:visible")
    page.wait_for_selector("#coverage[open]")
    wait_for_text(page, "#coverage-body", "run_R-2000.log")
    looked_at(page, screenshots, "coverage")
    page.keyboard.press("Escape")
    page.click("#source-rows tr:has-text('notes') button:visible")
    wait_for_text(page, "#coverage-body", "minutes/2031-04.md")


def test_a_thousand_sources_stay_usable(stage: Make, phone: Any, screenshots: Path) -> None:
    running = stage()
    counters = {f"documents:s{number:04}": 1000 for number in range(1000)}
    counters |= {f"chunks:g1:s{number:04}": 1000 for number in range(1000)}
    counters |= {"uncovered:g1:s0444": 3}
    running.do(running.count(DOCUMENTS, counters))
    open_page(phone, running)
    wait_for_text(phone, "#sources-count", "1,00")
    assert phone.locator("#source-rows tr").count() <= 60
    phone.fill("#sources-name", "s04")
    wait_for_text(phone, "#sources-shown", "100")
    phone.check("#sources-losing")
    wait_for_text(phone, "#source-rows", "s0444")
    assert phone.locator("#source-rows tr").count() == 1
    looked_at(phone, screenshots, "thousand-sources-phone")


def test_everything_is_reached_by_keyboard(stage: Make, page: Any) -> None:
    open_page(page, stage())
    reached: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "(() => { const at = document.activeElement; const style = getComputedStyle(at);"
                "return [at.id || at.className || at.tagName, at.getAttribute('href') ?? '',"
                "style.outlineStyle !== 'none' || style.boxShadow !== 'none'].join('|'); })()"
            )
        )
        if reached[-1].startswith(("BODY", "HTML")):
            break
    assert reached[0].startswith("skip|#main")
    for wanted in ("|#generations|", "sources-name|", "sources-losing|", "search-text|", "search-source|"):
        assert any(wanted in each for each in reached), wanted
    unseen = [each for each in reached if each.endswith("|false") and not each.startswith(("BODY", "HTML"))]
    assert unseen == [], "focus must be seen"
    page.keyboard.press("Shift+Tab")
    page.focus(".skip")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_the_page_asks_nobody_but_its_service(stage: Make, page: Any) -> None:
    running = stage()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_page(page, running)
    assert asked
    assert all(url.startswith(running.url) for url in asked)

"""A browser, pages of it, and a service for them to look at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stage import MemoryLog, Stage, bundled

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The installed Chromium. Where it is missing tests are skipped, but in CI they fail.

    No longer than these tests: in its thread a loop runs as long as it does, and others could run none.
    """
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    missing = "chromium is not installed (Debian: apt-get install chromium)" if path is None else ""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing = missing or "the extra `test` is not installed: no playwright"
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    with sync_playwright() as playwright:
        # As root, as in a container, Chromium's own sandbox does not start.
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        running = playwright.chromium.launch(executable_path=path, args=flags)
        yield running
        running.close()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures of the page go: the folder TESSERA_SCREENSHOTS, or one of pytest's."""
    folder = Path(os.environ.get("TESSERA_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Stage]]:
    """Makes a running service; ``filled`` holds the bundled corpora."""
    made = []

    def make(*, filled: bool = True, opened: bool = True, **changed: Any) -> Stage:
        new = Stage(**changed)
        made.append(new)
        monkeypatch.setattr("tessera.http.services.KafkaLog", MemoryLog)
        monkeypatch.setattr("tessera.overview.high_watermarks", new.ends)
        monkeypatch.setattr("tessera.generations.operations.high_watermarks", new.ends)
        if opened:
            new.do(new.open())
        if filled:
            new.do(new.put(*bundled()))
        new.start()
        return new

    yield make
    for each in made:
        each.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A desktop's page; whatever it logs as an error fails the test."""
    yield from _page(browser, viewport={"width": 1280, "height": 800})


@pytest.fixture
def phone(browser: Any) -> Iterator[Any]:
    """A narrow page."""
    yield from _page(browser, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)


@pytest.fixture
def night(browser: Any) -> Iterator[Any]:
    """A page of someone who prefers dark colours and no motion."""
    yield from _page(
        browser, viewport={"width": 1280, "height": 800}, color_scheme="dark", reduced_motion="reduce"
    )


def _page(browser: Any, **options: Any) -> Iterator[Any]:
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(10_000)
    raised: list[str] = []
    page.on("pageerror", lambda error: raised.append(str(error)))
    page.on("console", lambda message: _keep(raised, message))
    yield page
    context.close()
    assert raised == []


def _keep(raised: list[str], message: Any) -> None:
    # That a request failed is logged by the browser itself; the page shows it, and tests look for that.
    if message.type == "error" and "Failed to load resource" not in message.text:
        raised.append(message.text)

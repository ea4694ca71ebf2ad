"""The page in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stage import Stage

Make = Callable[..., Stage]


def open_page(page: Any, stage: Stage) -> None:
    page.goto(stage.url)
    page.wait_for_selector('body[data-link="live"]')
    page.wait_for_selector("#verdict:not([data-level=loading])")


def test_live(stage: Make, page: Any, screenshots: Path) -> None:
    running = stage()
    open_page(page, running)
    page.wait_for_timeout(3000)
    page.screenshot(path=screenshots / "live.png", full_page=True)
    print(page.inner_text("main"))

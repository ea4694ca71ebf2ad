"""The picture of the dashboard in the README: an index that is migrated while changes and searches come in.

    python tests/dashboard/picture.py

needs Chromium and the extra `test`; it takes two minutes, for the charts to have something to show.
"""

from __future__ import annotations

import random
import shutil
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from stage import MemoryLog, Stage, bundled, upsert

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "dashboard.png"
SECONDS = 110
QUERIES = ("renewal notice", "parental leave", "severity of an incident", "who approves expenses", "zyzzyva")


def main() -> None:
    """Write the picture."""
    stage = Stage(cutover_wait_s=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tessera.http.services.KafkaLog", MemoryLog)
        patch.setattr("tessera.overview.high_watermarks", stage.ends)
        patch.setattr("tessera.generations.operations.high_watermarks", stage.ends)
        stage.do(stage.open())
        stage.do(stage.put(*bundled()))
        stage.start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": 1280, "height": 1720}, device_scale_factor=1)
            page.goto(stage.url)
            page.wait_for_selector('body[data-link="live"]')
            play(stage, page)
            page.screenshot(path=PICTURE)
            browser.close()
        stage.close()


def play(stage: Stage, page: object) -> None:
    """Changes, searches, and after a while a generation that is being filled."""
    drawn = random.Random(7)
    ends = time.monotonic() + SECONDS
    number = 0
    while time.monotonic() < ends:
        number += 1
        stage.ahead = max(0, round(drawn.gauss(4, 4)))
        for _ in range(drawn.randrange(1, 7)):
            content = f"# Note {number}\n\nRead at {drawn.random():.3f} metres.\n"
            stage.do(stage.put(upsert("notes", f"gauge/{drawn.randrange(80)}.md", content)))
        for _ in range(drawn.randrange(2, 9)):
            query = urllib.parse.quote(drawn.choice(QUERIES))
            urllib.request.urlopen(f"{stage.url}/api/search?q={query}").read()  # noqa: S310
        if number == 60:
            stage.do(stage.candidate(rate=0.7))
        if number > 60:
            stage.do(stage.adopt())
        page.wait_for_timeout(drawn.randrange(300, 900))  # type: ignore[attr-defined]
    stage.ahead = 0
    page.wait_for_timeout(2000)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()

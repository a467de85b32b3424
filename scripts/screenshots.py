"""Pictures of a report as a browser shows it: `python scripts/screenshots.py RUNS/report/report.html [--out docs]`.

Writes report_desktop.png and report_phone.png.  Needs playwright (`pip install playwright`) and Chromium: the system's
(`apt-get install chromium`), or one that playwright has fetched.
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

SIZES = {"desktop": (900, 1000), "phone": (390, 1500)}  # width and height in pixels


def main() -> None:
    """Take both pictures, and tell where a page is wider than its window."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, metavar="REPORT.html")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--whole", action="store_true", help="the whole page, for looking at; not for docs")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        # without a sandbox, for root has none: the page runs no script and asks for nothing
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (width, height) in SIZES.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(given.page.resolve().as_uri())
            path = given.out / f"report_{name}.png"
            page.screenshot(path=path, full_page=given.whole)
            wide = page.evaluate("document.documentElement.scrollWidth")
            print(f"{path}: {'fits' if wide <= width else f'the page is {wide} pixels wide, the window {width}'}")
        browser.close()


if __name__ == "__main__":
    main()

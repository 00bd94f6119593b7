#!/usr/bin/env python3
# Checks the built documentation site in headless Chromium. SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks the documentation site in a browser, opened as a file: `check_site.py FOLDER`. Pages show no errors and load nothing from
the network, the drawings are there, and the search finds pages."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "snapshot"))
import browser  # noqa: E402

PAGES = ["index", "getting_started", "from_torch", "design", "CONTRIBUTING", "source/examples/01-tour.c", "reference/index",
         "reference/stream_8h"]
RESULTS = "document.querySelectorAll('.md-search-result__item').length"


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    with browser.Browser() as page:
        for name in PAGES:
            page.open(site / f"{name}.html")
            broken = page.run("[...document.images].filter(image => image.complete && !image.naturalWidth).map(image => image.src)")
            assert not broken, f"{name}: images that do not load: {broken}"
            assert page.run("document.body.innerText.length") > 200, f"{name} is empty"
        page.open(site / "index.html")
        search = "document.querySelector('.md-search__input')"
        page.run(f"{search}.focus(), {search}.value = 'plinth_record_stream', {search}.dispatchEvent(new Event('keyup')), 0")
        page.wait_for(f"{RESULTS} > 0")
        found = page.run(RESULTS)
        page.check()
        loaded = [request for request in page.requests if not request.startswith(("file:", "data:", "blob:"))]
        assert not loaded, f"loaded from the network: {loaded}"
    print(f"{len(PAGES)} pages are shown without an error and without the network; the search finds {found} pages")


if __name__ == "__main__":
    if browser.find() is None:
        sys.exit("there is no Chromium")
    main()

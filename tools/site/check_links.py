"""Checks the links between the files of a built site, offline: `check_links.py FOLDER`.

MkDocs checks the links of its sources. It does not check the anchors of Doxygen's reference, nor what the theme adds; this
checks the result. Pages of the reference are only targets.
"""
import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """The links and the anchors of an HTML file."""

    def __init__(self, file):
        super().__init__()
        self.links, self.resources, self.anchors = [], [], set()
        self.feed(file.read_text())

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors.update(filter(None, (attributes.get("id"), attributes.get("name"))))
        self.links += filter(None, (attributes.get("href"), attributes.get("src")))
        self.resources += filter(None, (attributes.get("href") if tag == "link" else None, attributes.get("src")))


def problem(site, file, link, pages):
    """Returns what is wrong with a link, or None."""
    parts = urllib.parse.urlsplit(link)
    if parts.scheme or parts.netloc:
        # A reader may follow a link to elsewhere, but what a page loads must be in the site.
        loaded = link in pages[file].resources and parts.scheme != "data"
        return "the page loads it from the network" if loaded else None
    target = file if not parts.path else (file.parent / urllib.parse.unquote(parts.path)).resolve()
    if not target.is_relative_to(site) or not target.is_file():
        return "there is no such file in the site"
    if parts.fragment and target.suffix == ".html":
        if target not in pages:
            pages[target] = Page(target)
        anchor = urllib.parse.unquote(parts.fragment)
        if not anchor.startswith("__") and anchor not in pages[target].anchors:
            return "the page has no such anchor"
    return None


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    files = [file for file in sorted(site.rglob("*.html")) if "reference" not in file.relative_to(site).parts]
    pages, links, failed = {}, 0, 0
    for file in files:
        pages.setdefault(file, Page(file))
        for link in pages[file].links:
            links += 1
            if wrong := problem(site, file, link, pages):
                failed += 1
                print(f"{file.relative_to(site)}: {link}: {wrong}", file=sys.stderr)
    print(f"{links} links of {len(files)} pages checked, {failed} wrong")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())

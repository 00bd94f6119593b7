"""Hooks of mkdocs.yml: add to the site the files outside of docs/ that its pages link to.

A link such as ../examples/01-tour.c works where the repository is browsed. In the site it leads to a generated page, which
shows the file: a Markdown file as a page, a folder as a list of its files, any other file as source text. Links to C and
C++ headers lead to their pages of Doxygen's reference instead, which is added to the site.
"""
import os
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Pages of the navigation that are files of the repository's root, where hosting services look for them.
ROOT_PAGES = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
LINK = re.compile(r"(\]\()(?![a-z]+:|#|/)([^)#\s]+)((?:#[^)\s]*)?\))")
LANGUAGES = {".rs": "rust", ".c": "c", ".h": "c", ".cpp": "cpp", ".hpp": "cpp", ".cu": "cpp", ".cuh": "cpp",
             ".py": "python", ".sh": "bash", ".toml": "toml"}
FENCE = "`" * 5


def page_of(path):
    """Returns the page that shows a file of the repository, as a path inside of the site's sources."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path in ROOT_PAGES else f"source/{path.removesuffix('.md')}.md"


def origin_of(uri):
    """Returns the file of the repository that a page shows: the inverse of page_of."""
    if not uri.startswith("source/"):
        return uri if uri in ROOT_PAGES else f"docs/{uri}"
    path = uri.removeprefix("source/")
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def linked_files(origin, text):
    """Returns the files of the repository that a page links to."""
    folder = posixpath.dirname(origin)
    return {posixpath.normpath(posixpath.join(folder, match[2])) for match in LINK.finditer(text)}


def shown(path):
    """Returns the Markdown of the page that shows a file or a folder outside of docs/."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(child.name + "/" * child.is_dir() for child in file.iterdir())
        return f"# {path}\n\n" + "".join(f"- `{name}`\n" for name in names)
    text = file.read_text()
    if file.suffix == ".md":
        return text
    return f"# {path}\n\n{FENCE}{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n{FENCE}\n"


def on_files(files, config):
    waiting = [("docs/" + file.src_uri, file.content_string) for file in files.documentation_pages()]
    waiting += [(path, shown(path)) for path in ROOT_PAGES]
    reference = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "doxygen/html"
    for file in sorted(path for path in reference.rglob("*") if path.is_file()):
        uri = f"reference/{file.relative_to(reference)}"
        files.append(File.generated(config, uri, abs_src_path=str(file)))
    for path in ROOT_PAGES:
        files.append(File.generated(config, path, content=shown(path)))
    while waiting:
        for path in linked_files(*waiting.pop()):
            uri = page_of(path)
            outside = not path.startswith("docs/") and not path.startswith("include/") and (ROOT / path).exists()
            if outside and files.get_file_from_path(uri) is None:
                content = shown(path)
                files.append(File.generated(config, uri, content=content))
                if path.endswith(".md"):
                    waiting.append((path, content))
    return files


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri
    origin = origin_of(uri)
    folder = posixpath.dirname(origin)
    if uri.startswith("source/") and not origin.endswith(".md"):
        return markdown

    def replace(match):
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        if path.startswith("include/"):
            # Doxygen's name of a header's page; no two headers have the same name.
            name = posixpath.basename(path).replace("_", "__").replace(".", "_8")
            target = f"reference/{name}.html"
            return f"{match[1]}{os.path.relpath(target, posixpath.dirname(page.file.dest_uri) or '.')}{match[3]}"
        target = page_of(path)
        return f"{match[1]}{os.path.relpath(target, posixpath.dirname(uri) or '.')}{match[3]}"

    return LINK.sub(replace, markdown)

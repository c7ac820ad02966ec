"""The report as a browser reads it."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from posixpath import dirname, join, normpath

from lxml import html

VOID = {"meta", "input", "link"}


class Page(HTMLParser):
    """The page's elements, texts and ids; fails on an element that is not closed or closed out of turn.

    As a browser does, it takes breaks and spaces in a row for one space, but for those of preformatted text.
    """

    def __init__(self, markup):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.text = [], [], ""
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), attrs
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] in (["style"], ["script"]):
            return
        text = data if "pre" in self.open else re.sub(r"[ \n]+", " ", data).strip(" ")
        self.text += f"{text}\n" if text else ""

    def all(self, name):
        return [attributes[name] for _, attributes in self.elements if name in attributes]


def checked(markup):
    """Return a page that loads nothing but our style and script and runs no other script; all is closed.

    The links of a single page lead to places on it.
    """
    page, is_single = Page(markup), "<style>" in markup
    assert {tag for tag, _ in page.elements}.isdisjoint({"img", "iframe", "object", "form", "base"})
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert page.all("style") == []
    assert "://" not in markup.replace("http://www.w3.org/2000/svg", "")
    assert "url(" not in markup
    sources, names = ["'self'"] * 2, ["report.js", "report.css"]
    if is_single:
        inline = [re.search(rf"<{tag}>(.*?)</{tag}>", markup, re.DOTALL)[1] for tag in ("style", "script")]
        sources, names = [f"'sha256-{sha256_base64(text)}'" for text in inline], ["inline"]
    scripts = [attributes.get("src", "inline") for tag, attributes in page.elements if tag == "script"]
    links = [attributes["href"] for tag, attributes in page.elements if tag == "link"]
    assert [name.removeprefix("../") for name in scripts + links] == names
    policy = next(attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes)
    allowed = "default-src 'none'; style-src {}; script-src {}; base-uri 'none'; form-action 'none'"
    assert policy == allowed.format(*sources)
    ids = page.all("id")
    assert len(ids) == len(set(ids))
    if is_single:
        assert {href.removeprefix("#") for href in page.all("href")} <= set(ids)
    return page


def read_report(index):
    folder = index.parent
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.html")}


def team_page(pages, team):
    return pages[f"teams/{team}.html"]


def dead_links(index):
    pages = read_report(index)
    places = {path.relative_to(index.parent).as_posix(): {""} for path in index.parent.rglob("*") if path.is_file()}
    places |= {name: {f"#{id_}" for id_ in Page(markup).all("id")} | {""} for name, markup in pages.items()}
    return [
        (name, href)
        for name, markup in pages.items()
        for href in Page(markup).all("href")
        for path, mark, place in [href.partition("#")]
        if mark + place not in places.get(normpath(join(dirname(name), path)) if path else name, ())
    ]


def part(markup, place):
    return html.tostring(html.fromstring(markup).get_element_by_id(place), encoding="unicode", with_tail=False)


def parts(markup, tag):
    elements = html.fromstring(markup).iter(tag)
    return [html.tostring(element, encoding="unicode", with_tail=False) for element in elements]


def ranking_row(markup, team):
    return next(row for row in parts(part(markup, "ranking"), "tr") if f'"teams/{team}.html"' in row)


def sha256_base64(text):
    """Return the hash of a text as a Content-Security-Policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

from html import unescape
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from pcgeval.report.html import NOTHING, element, joined, shortened


class Reader(HTMLParser):
    def __init__(self, markup):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = [], {}, ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data):
        self.text += data


def test_contents_and_attributes_are_escaped():
    made = element("p", "<script>alert(1)</script> & 'x'", title='"><img src=x>')
    assert made.text == (
        '<p title="&quot;&gt;&lt;img src=x&gt;">&lt;script&gt;alert(1)&lt;/script&gt; &amp; &#x27;x&#x27;</p>'
    )


def test_markup_is_kept_and_names_are_spelt_as_in_html():
    made = element("label", element("b", "x"), NOTHING, for_="a", aria_label="b", tabindex=0)
    assert made.text == '<label for="a" aria-label="b" tabindex="0"><b>x</b></label>'
    assert element("meta", charset="utf-8").text == '<meta charset="utf-8">'


def test_what_hides_or_turns_text_around_is_replaced():
    assert joined(["a\u202eb\x00c\ud800d\u2066e\x1bf\r"]).text == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf\ufffd"
    assert joined(["line\n\ttab é 漢 🙂"]).text == "line\n\ttab é 漢 🙂"


@given(st.text(), st.text())
def test_no_text_makes_markup(content, attribute):
    made = element("p", content, title=attribute)
    made.text.encode("utf-8")
    read = Reader(made.text)
    assert read.tags == ["p"]
    assert set(read.attributes) == {"title"}
    assert read.text == unescape(joined([content]).text)


def test_long_texts_say_how_long_they_were():
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "abc… (4 characters in all)"

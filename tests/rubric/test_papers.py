"""Papers: the example of our own, PaperBench's layout, and folders with faults."""

import json
import shutil

import pytest
from rubric_trees import leaf, node

from pcgeval.rubric.papers import PaperError, list_papers, load_paper

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"


@pytest.fixture
def papers(tmp_path):
    folder = tmp_path / "papers" / "mine"
    folder.mkdir(parents=True)
    (folder / "rubric.json").write_text(json.dumps(node("root", 1, leaf("a"))))
    (folder / "paper.md").write_text("# Mine\n")
    return folder.parent


def faults(papers, paper_id="mine"):
    with pytest.raises(PaperError) as error:
        load_paper(papers, paper_id)
    return error.value.faults


def test_a_paper_has_a_rubric_and_a_text_and_may_have_more(papers):
    paper = load_paper(papers, "mine")
    assert (paper.id, paper.title, paper.paper) == ("mine", "mine", "# Mine\n")
    assert (paper.addendum, paper.judge_addendum, paper.blacklist) == ("", "", ())
    for name, text in {
        "config.yaml": 'id: other\ntitle: "RICE: Breaking"\nanother: 1\n',
        "addendum.md": "\ufeffMore.",
        "judge.addendum.md": "For the judge.",
        "blacklist.txt": "# their code\nhttps://a.org/x\r\n\r\n none \nhttps://b.org\n",
    }.items():
        (papers / "mine" / name).write_text(text, encoding="utf-8")
    paper = load_paper(papers, "mine")
    assert (paper.title, paper.addendum, paper.judge_addendum) == ("RICE: Breaking", "More.", "For the judge.")
    assert paper.blacklist == ("https://a.org/x", "https://b.org")
    (papers / "mine/config.yaml").write_text("title:\n")
    assert load_paper(papers, "mine").title == "mine"


@pytest.mark.parametrize("paper_id", ["", "other", "../papers/mine", "a\x00b"])
def test_a_paper_that_is_not_there_names_those_that_are(papers, paper_id):
    for name in ("Zebra", ".hidden", "with space"):
        shutil.copytree(papers / "mine", papers / name)
    assert "Known: Zebra, mine." in faults(papers, paper_id)[0]
    assert list_papers(papers / "missing") == ()


@pytest.mark.parametrize("config", ["title: [", "[1]", "#" * 4_001])
def test_all_faults_are_listed(papers, config):
    folder = papers / "mine"
    (folder / "rubric.json").write_text(json.dumps(node("root", -1, leaf("a", category="Code"))))
    (folder / "paper.md").write_text(" \n")
    (folder / "addendum.md").write_bytes(b"\xff\xfe")
    (folder / "judge.addendum.md").write_text(POINTER)
    (folder / "config.yaml").write_text(config)
    (folder / "blacklist.txt").symlink_to("nothing")
    parts = (
        "rubric.json: 2 faults",
        "paper.md: is missing or empty",
        "addendum.md: is UTF-16",
        'git lfs fetch --include "project/paperbench/data/**" --exclude ""`, then `git lfs checkout`',
        "config.yaml: ",
        "blacklist.txt: is a link",
    )
    for fault, part in zip(faults(papers), parts, strict=True):
        assert part in fault


def test_a_judge_that_reads_no_paper_needs_none(papers):
    folder = papers / "mine"
    (folder / "addendum.md").write_text(POINTER)
    (folder / "paper.md").write_text(POINTER)
    assert load_paper(papers, "mine", needs_text=False).paper == ""
    (folder / "blacklist.txt").write_text(POINTER)
    with pytest.raises(PaperError, match=r"blacklist\.txt is only a pointer"):
        load_paper(papers, "mine", needs_text=False)

"""The commands bundle and verify: a bundle is run again with the installed release, as hostile input."""

import json
import re
from pathlib import Path

import pytest
from bundles import contents, packed

from pcgeval.cli.main import main
from pcgeval.core.files import sha256_bytes


@pytest.fixture
def verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run `pcgeval verify` on some bytes in an empty folder; return its exit code and all that it printed."""

    def run(content: bytes, *words: str) -> tuple[int, str]:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "b.zip").write_bytes(content)
        code = main(["verify", "b.zip", *words])
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        assert [path.name for path in tmp_path.iterdir()] == ["b.zip"]
        return code, shown.out + shown.err

    return run


def test_a_bundle_holds_what_the_evaluation_needs_and_asks_no_server(
    competition, tmp_path, monkeypatch, capsys, verified
):
    monkeypatch.chdir(competition)
    assert main(["bundle", "-o", str(tmp_path / "b.zip")]) == 0
    content = (tmp_path / "b.zip").read_bytes()
    assert sha256_bytes(content) in capsys.readouterr().out
    files = contents(content)
    files["params.yaml"] += b"execution: {scheduler: 'tcp://127.0.0.1:9'}\n"
    content = packed(files)
    code, shown = verified(content)
    assert code == 0, shown
    assert "PASSED" in shown
    assert sha256_bytes(content) in shown


def test_a_forged_similarity_and_other_code_than_the_release_s_are_named(bundle, verified):
    files, name = contents(bundle), "data/similarity/small/beta/I.json"
    value = json.loads(files[name])
    value["trials"][0]["similarity"] = 1.0
    files[name] = json.dumps(value).encode()
    files["src/pcgeval/scoring/formulas.py"] += b"# changed\n"
    files["results/metrics/beta.csv"] = b'"' + b"x" * 200_000  # more than the module csv reads
    ranking = json.loads(files["results/ranking.json"])
    ranking["teams"].append({**ranking["teams"][0], "team": "/usr"})
    files["results/ranking.json"] = json.dumps(ranking).encode()
    code, shown = verified(packed(files))
    assert code == 1
    assert re.search(r"/usr +baseline +missing ", shown), "no folder outside is read"
    for words in ("FAILED", f"{name}: trials[beta_I_", "published 1.0, again 0.", "src/pcgeval/scoring/formulas.py"):
        assert words in shown


def test_what_would_prove_nothing_or_cost_too_much_is_refused(bundle, verified):
    code, shown = verified(packed(contents(bundle) | {".pcgeval/calls/a.jsonl": b""}))
    assert (code, "b.zip: .pcgeval: is in no bundle" in shown) == (2, True)
    files = contents(bundle)
    for usual, costly, words in (
        (b"trials: 2\n  seed", b"trials: 1000\n  seed", "trials, for which there are only"),
        (b"physics:\n", b"physics:\n  starts: 1000\n", " steps of simulation a level, more than 150000. Take"),
    ):
        content = packed(files | {"params.yaml": files["params.yaml"].replace(usual, costly)})
        code, shown = verified(content)
        assert (code, words in shown) == (2, True)
    code, shown = verified(content, "--trust", "simulate", "--trust", "classify")
    assert (code, "not run again: simulate" in shown) == (1, True)

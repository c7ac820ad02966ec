"""Verifying a bundle: every change is found, the plain ones by hashes and the consistent ones by recomputation."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from evaluated_competition import evaluate
from forgeries import edit_json, look_alike, stand_still
from hypothesis import given, settings
from hypothesis import strategies as st
from mini_competition import copy_sharing
from soak import SOAK

from pcgeval.audit import verify as verify_module
from pcgeval.audit.archive import pack, unpack
from pcgeval.audit.bundle import make_bundle
from pcgeval.audit.manifest import CRATE, ENVELOPE, MANIFEST, expected_result
from pcgeval.audit.verify import Verification, VerifyError, verify
from pcgeval.cli.main import main
from pcgeval.core.files import sha256_bytes, to_json, write_json
from pcgeval.core.params import load_params
from pcgeval.core.stage_files import RankingFile
from pcgeval.similarity.source import ClassifierError

RANKING = "results/ranking.json"
TEAM, MODEL = "beta", "small"


@pytest.fixture
def folder(competition: Path, tmp_path: Path) -> Path:
    """A copy of the competition to forge; its source and its classifier are not for writing."""
    return copied(competition, tmp_path / "forged")


def copied(competition: Path, folder: Path) -> Path:
    left_out, copy = shutil.ignore_patterns("images"), copy_sharing("src", "stages", "data/classifier", ".cache")
    return Path(shutil.copytree(competition, folder, ignore=left_out, copy_function=copy))


@pytest.fixture
def file(bundle: bytes, tmp_path: Path) -> Path:
    """The bundle as a file."""
    path = tmp_path / "bundle.zip"
    path.write_bytes(bundle)
    return path


def verified(content: bytes, tmp_path: Path, **options: Any) -> Verification:
    path = tmp_path / "checked.zip"
    path.write_bytes(content)
    return verify(path, **{"sample": 0, **options})


def rehash(folder: Path) -> None:
    """Give a forged ranking the result hash that the forged files have."""
    path = folder / RANKING
    ranking = json.loads(path.read_text())
    result = expected_result(folder, load_params(folder / "params.yaml"), RankingFile.read(path))
    write_json(path, ranking | {"result": result.model_dump()})


def repacked(bundle: bytes, change: Callable[[dict[str, bytes]], None], *, manifest: bool = True) -> bytes:
    """Change the files of a bundle and pack them again, by default with a manifest that names their hashes."""
    files = dict(unpack(bundle))
    change(files)
    if manifest:
        statement = json.loads(files[MANIFEST])
        names = [name for name in files if name not in {MANIFEST, ENVELOPE}]
        statement["subject"] = [{"name": name, "digest": {"sha256": sha256_bytes(files[name])}} for name in names]
        files[MANIFEST] = to_json(statement).encode() + b"\n"
    return pack(files.items())


def test_a_good_bundle_is_verified(file: Path, competition: Path) -> None:
    found = verify(file, classifier=competition / "data/classifier", sample=None, seed=7)
    assert found.faults == ()
    assert found.not_recomputed == ()
    done = found.recomputed
    assert (done.replies, done.levels, done.scores, done.diversities) == (16, 16, 16, 8)
    assert done.simulations == done.classifications == done.all_levels > 0
    assert found.sha256 == sha256_bytes(file.read_bytes())
    assert found.seed == 7
    sampled = verify(file, classifier=competition / "data/classifier", sample=3)
    assert sampled.faults == sampled.not_recomputed == ()
    assert sampled.recomputed.simulations == sampled.recomputed.classifications == 3


def test_without_a_seed_nobody_knows_the_sample(file: Path) -> None:
    assert verify(file, sample=0).seed != verify(file, sample=0).seed


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"dvc", "git", "pygit2", "dulwich", "torch", "transformers", "pymunk", "cryptography"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
from pcgeval.cli.main import main
sys.exit(main(["verify", *sys.argv[1:]]))
"""


def test_it_needs_neither_repository_nor_dvc_nor_git_nor_torch_nor_pymunk(file: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {"PATH": str(empty), "PYTHONPATH": str(Path(verify_module.__file__).parents[2]), "HOME": str(empty)}
    command = [sys.executable, "-c", BLOCKED, str(file)]
    done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("VERIFIED")
    assert "16 replies" in done.stdout
    assert "pymunk is not installed" in done.stdout
    assert not list(empty.iterdir())


@given(st.data())
@settings(max_examples=60 if SOAK else 8)
def test_every_changed_byte_is_found(
    bundle: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    changed = bytearray(bundle)
    changed[data.draw(st.integers(0, len(bundle) - 1))] ^= data.draw(st.integers(1, 255))
    found = verified(bytes(changed), tmp_path_factory.mktemp("changed"))
    assert found.faults
    assert found.recomputed is None


def _double_total(folder: Path) -> None:
    def change(ranking: Any) -> None:
        ranking["teams"][0]["total"] = "1.5"

    edit_json(folder / RANKING, change)


def _declare_winner(folder: Path) -> None:
    def change(ranking: Any) -> None:
        ranking["winners"] = [TEAM]
        ranking["reason"] = f"{TEAM} wins."
        for team in ranking["teams"]:
            team["winner"] = team["team"] == TEAM

    edit_json(folder / RANKING, change)


def _official(folder: Path) -> None:
    path = folder / f"results/official/{MODEL}/trial_scores.csv"
    path.write_text(path.read_text().replace('"0.', '"1.', 1))


def _diversity(folder: Path) -> None:
    path = folder / f"data/diversity/{MODEL}/{TEAM}/I.json"
    edit_json(path, lambda value: value.update(diversityRate=0.9))


def _stability(folder: Path) -> None:
    def change(value: Any) -> None:
        value["raws"][0]["score"] = 0.123
        value["rate"] = (0.123 + sum(each["score"] for each in value["raws"][1:])) / len(value["raws"])

    edit_json(folder / f"data/stability/{MODEL}/{TEAM}/I.json", change)


def _response(folder: Path) -> None:
    path = next((folder / f"data/raw/{MODEL}/{TEAM}").rglob("*.txt"))
    path.write_text("```\ndrop_block('b31', 9)\n```\n")
    edit_json(path.with_suffix(".json"), lambda record: record.update(response_sha256=sha256_bytes(path.read_bytes())))


def _reply(folder: Path) -> None:
    path = next((folder / f"data/raw/{MODEL}/{TEAM}").rglob("*.txt"))
    path.write_text("```\ndrop_block('b31', 9)\n```\n")

    def change(record: Any) -> None:
        record["response_sha256"] = sha256_bytes(path.read_bytes())
        record["exchanges"][0]["reply"]["text"] = path.read_text()

    edit_json(path.with_suffix(".json"), change)


def _level(folder: Path) -> None:
    path = next((folder / f"data/levels/{MODEL}/{TEAM}").rglob("*.xml"))
    path.write_text(path.read_text().replace("SquareTiny", "RectSmall"))
    path.write_text(path.read_text().replace('x="', 'x="1', 1))


def _grade(folder: Path) -> None:
    path = folder / f"data/grades/{TEAM}/grade.json"
    edit_json(path, lambda grade: grade.update(score=1.0))


def _evidence(folder: Path) -> None:
    path = folder / f"data/evidence/{TEAM}/{MODEL}.json"
    edit_json(path, lambda value: value.update(model="another"))


def _disqualified(folder: Path) -> None:
    path = folder / f"data/submissions/{TEAM}/submission.yaml"
    path.write_text(path.read_text() + "disqualified: a reason that nobody gave\n")


# what is changed, the stage from which on all is made anew so that it follows from the change, and what must be named
FORGERIES: dict[str, tuple[Callable[[Path], None], str | None, str]] = {
    "a team's total": (_double_total, None, RANKING),
    "the winner": (_declare_winner, None, RANKING),
    "an official score": (_official, None, f"results/official/{MODEL}/trial_scores.csv"),
    "a diversity, and all that follows": (_diversity, "evidence", f"data/diversity/{MODEL}/{TEAM}/I.json"),
    "a stability, and all that follows": (_stability, "evidence", f"data/stability/{MODEL}/{TEAM}/I.json"),
    "a response, and all that follows": (_response, "extract", f"data/raw/{MODEL}/{TEAM}"),
    "a reply, and all that follows": (_reply, "extract", f"data/raw/{MODEL}/{TEAM}"),
    "a level, and all that follows": (_level, "simulate", f"data/levels/{MODEL}/{TEAM}"),
    "a grade": (_grade, None, f"data/grades/{TEAM}/grade.json"),
    "evidence": (_evidence, None, f"data/evidence/{TEAM}/{MODEL}.json"),
    "a submission's notes": (_disqualified, None, RANKING),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_consistent_forgery_is_found_by_recomputing(name: str, folder: Path, tmp_path: Path) -> None:
    forge, remade_since, named = FORGERIES[name]
    forge(folder)
    if remade_since:
        evaluate(folder, remade_since)
    rehash(folder)
    found = verified(make_bundle(folder), tmp_path)
    assert any(fault.startswith(named) for fault in found.faults), found.faults


@pytest.mark.parametrize(
    ("forge", "since", "named"),
    [
        (stand_still, "evidence", f"data/stability/{MODEL}/{TEAM}/"),
        (look_alike, "diversity", f"data/similarity/{MODEL}/{TEAM}/"),
    ],
)
def test_a_forged_measurement_is_found_by_measuring_again(
    forge: Callable[[Path, str, str], None], since: str, named: str, competition: Path, folder: Path, tmp_path: Path
) -> None:
    forge(folder, MODEL, TEAM)
    evaluate(folder, since)
    bundle = make_bundle(folder)
    unmeasured = verified(bundle, tmp_path)
    assert unmeasured.faults == ()
    found = verified(bundle, tmp_path, sample=None, classifier=competition / "data/classifier")
    assert found.faults
    assert {fault.startswith(named) for fault in found.faults} == {True}


MEASURED = ("moved", "dead", "positions", "types", "best_of", "softmax_prob", "cls_embedding")  # only measuring proves
TOLD = ("packages", "physics", "engine", "name", "revision", "sha256")  # about the tools


@given(st.data())
@settings(max_examples=40 if SOAK else 3)
def test_every_forged_value_is_found(
    competition: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = copied(competition, tmp_path_factory.mktemp("forged") / "folder")
    places = ("results", "data/stability", "data/similarity", "data/diversity", "data/grades", "data/evidence")
    files = sorted(path for place in places for path in (folder / place).rglob("*") if path.suffix in {".json", ".csv"})
    path = data.draw(st.sampled_from([each for each in files if each.name != "classifier.json"]))
    ways = list(_leaves(_read(path)))
    way = data.draw(st.sampled_from([each for each in ways if not set(each) & {*TOLD, "result"}]))
    _forge_value(path, way)
    rehash(folder)
    measured = bool(set(way) & set(MEASURED))
    options = {"sample": None, "classifier": competition / "data/classifier"} if measured else {"sample": 0}
    found = verified(make_bundle(folder), folder.parent, **options)
    assert any(path.relative_to(folder).as_posix() in fault for fault in found.faults), (path, way, found.faults)


def _read(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_text())
    return [row.split(",") for row in path.read_text().split("\n")]


def _forge_value(path: Path, way: tuple[Any, ...]) -> None:
    def change(value: Any) -> None:
        for step in way[:-1]:
            value = value[step]
        old = value[way[-1]]
        value[way[-1]] = {
            bool: lambda: not old,
            int: lambda: old + 1,
            float: lambda: 0.25 if old != 0.25 else 0.75,
            str: lambda: f"{old}1",
            type(None): lambda: "something",
        }[type(old)]()

    if path.suffix == ".json":
        edit_json(path, change)
    else:
        rows = _read(path)
        change(rows)
        path.write_text("\n".join(",".join(row) for row in rows))


def _leaves(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each text and number of a JSON value."""
    if isinstance(value, dict):
        for key in value:
            yield from _leaves(value[key], (*way, key))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from _leaves(each, (*way, place))
    else:
        yield way


def _change_winner(files: dict[str, bytes]) -> None:
    manifest = json.loads(files[MANIFEST])
    manifest["predicate"]["winners"] = [TEAM]
    files[MANIFEST] = to_json(manifest).encode() + b"\n"


def _change_hash(files: dict[str, bytes]) -> None:
    manifest = json.loads(files[MANIFEST])
    manifest["predicate"]["result"]["sha256"] = "0" * 64
    files[MANIFEST] = to_json(manifest).encode() + b"\n"


def _reversed(files: dict[str, bytes]) -> None:
    for name in [*files][::-1]:
        files[name] = files.pop(name)


def _deep_params(files: dict[str, bytes]) -> None:
    files["params.yaml"] = b"[" * 100_000


def _alias_params(files: dict[str, bytes]) -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    files["params.yaml"] = "\n".join(lines).encode()


def _many_trials(files: dict[str, bytes]) -> None:
    files["params.yaml"] = files["params.yaml"].replace(b"trials: 2", b"trials: 1000").replace(b": IT", b": ABCDEFGHI")


@pytest.mark.parametrize(
    ("change", "manifest", "reason"),
    [
        (lambda files: files.pop(MANIFEST), False, "manifest.json"),
        (lambda files: files.update({MANIFEST: b"{}"}), False, "no manifest"),
        (lambda files: files.update({MANIFEST: b"[" * 100_000}), False, "no manifest"),
        (lambda files: files.pop(CRATE), True, "missing"),
        (lambda files: files.pop("data/grade_history.jsonl"), False, "missing"),
        (lambda files: files.update({"extra.txt": b""}), False, "not named"),
        (lambda files: files.update({"extra.txt": b""}), True, "no part of a bundle"),
        (lambda files: files.update({".pcgeval/calls/a.jsonl": b""}), True, "no part of a bundle"),
        (lambda files: files.update({"data/classifier/config.json": b"{}"}), True, "no part of a bundle"),
        (lambda files: files.update({"dvc.yaml": b"stages: {}"}), False, "other bytes"),
        (lambda files: files.update({CRATE: files[CRATE].replace(b"no winner", b"a winner")}), True, "follow"),
        (_change_winner, False, "winners"),
        (_change_hash, False, "result"),
        (_reversed, True, "order"),
        (_deep_params, True, "nested"),
        (_alias_params, True, "alias"),
        (_many_trials, True, "trials"),
        (lambda files: files.update({"params.yaml": b"\xff"}), True, "params.yaml"),
        (lambda files: files.update({RANKING: b"{}"}), True, "ranking.json"),
    ],
)
def test_a_bundle_that_is_not_whole_is_refused_before_anything_is_recomputed(
    bundle: bytes, tmp_path: Path, change: Callable[[dict[str, bytes]], None], manifest: bool, reason: str
) -> None:
    found = verified(repacked(bundle, change, manifest=manifest), tmp_path)
    assert any(reason in fault for fault in found.faults), found.faults


@pytest.mark.parametrize(
    "part",
    [
        "data/grades/",
        "data/evidence/",
        "results/official/",
        "data/diversity/",
        "data/levels/",
        "results/metrics.json",
    ],
)
def test_what_is_left_out_is_a_fault(bundle: bytes, tmp_path: Path, part: str) -> None:
    """Else a result that does not follow from the rest would only have to be left out."""

    def leave_out(files: dict[str, bytes]) -> None:
        for name in [name for name in files if name.startswith(part)]:
            del files[name]

    found = verified(repacked(bundle, leave_out), tmp_path)
    assert any(part in fault and "missing" in fault for fault in found.faults), found.faults


HOSTILE = (
    *(b"", b"\xff\xfe", b"null", b"[]", b"{}", b"[" * 50_000, b'{"a":' * 5000, b"\0" * 100, b"1" * 5000, b'"\\ud800"'),
    *(
        b"NaN",
        b"1e999999999",
        b"-" * 1000,
        b"a,b\n" * 1000,
        b"&a [*a]",
        b"<a>" * 1000,
        b"```\n" * 1000,
        b"\r\n\n" * 500,
    ),
)


@given(st.data())
@settings(max_examples=100 if SOAK else 5)
def test_no_content_of_a_file_ends_in_a_traceback(
    bundle: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, _ in unpack(bundle):
        if not name.startswith(("src/", "stages/", MANIFEST)):  # neither read nor run, or changed elsewhere
            kinds.setdefault((*name.split("/")[:2], Path(name).name.lstrip("alphbet_")), []).append(name)

    def change(files: dict[str, bytes]) -> None:
        for _ in range(data.draw(st.integers(1, 3))):
            name = data.draw(st.sampled_from(data.draw(st.sampled_from(sorted(kinds.values())))))
            if data.draw(st.booleans()):
                files[name] = data.draw(st.sampled_from(HOSTILE))
            else:
                old = files[name]
                start = data.draw(st.integers(0, len(old)))
                end = min(len(old), start + data.draw(st.integers(0, 20)))
                files[name] = old[:start] + data.draw(st.sampled_from(HOSTILE) | st.binary(max_size=20)) + old[end:]

    found = verified(repacked(bundle, change), tmp_path_factory.mktemp("hostile"))
    assert found.sha256


def test_a_result_hash_that_is_not_that_of_the_files_is_a_fault(bundle: bytes, tmp_path: Path) -> None:
    """Who sees the hash of a published page in a bundle must know that these are the files it was made of."""

    def forge(files: dict[str, bytes]) -> None:
        true = json.loads(files[RANKING])["result"]["sha256"].encode()
        for name in (RANKING, CRATE, MANIFEST):
            assert true in files[name]
            files[name] = files[name].replace(true, b"0" * 64)

    (fault,) = verified(repacked(bundle, forge), tmp_path).faults
    assert RANKING in fault
    assert "result hash 000000000000" in fault


def test_a_result_hash_without_its_parts_is_a_fault(bundle: bytes, tmp_path: Path) -> None:
    def forge(files: dict[str, bytes]) -> None:
        ranking = json.loads(files[RANKING])
        ranking["result"]["parts"] = {}
        files[RANKING] = to_json(ranking, indent=1).encode() + b"\n"

    (fault,) = verified(repacked(bundle, forge), tmp_path).faults
    assert "result hash" in fault


def test_more_vectors_than_trials_are_refused(bundle: bytes, tmp_path: Path) -> None:
    name = f"data/similarity/{MODEL}/{TEAM}/I.json"

    def multiply(files: dict[str, bytes]) -> None:
        value = json.loads(files[name])
        value["similarities"] *= 1000
        files[name] = to_json(value | {"count": len(value["similarities"])}).encode()

    found = verified(repacked(bundle, multiply), tmp_path)
    assert any("more vectors than there are trials" in fault for fault in found.faults)


@pytest.mark.parametrize("place", ["/etc", "../outside", "data/submissions"])
def test_a_classifier_of_another_place_is_never_opened(
    place: str, competition: Path, folder: Path, tmp_path: Path
) -> None:
    params = folder / "params.yaml"
    params.write_text(params.read_text().replace("data/classifier", place))
    rehash(folder)
    found = verified(make_bundle(folder), tmp_path, sample=3, classifier=competition / "data/classifier")
    assert any("outside the competition" in each for each in found.not_recomputed)
    assert found.recomputed.classifications == 0


def test_another_classifier_and_what_is_none_are_refused(file: Path, competition: Path, tmp_path: Path) -> None:
    with pytest.raises(ClassifierError):
        verify(file, classifier=tmp_path)
    other = tmp_path / "classifier"
    shutil.copytree(competition / "data/classifier", other)
    (other / "preprocessor_config.json").write_text("{}")
    with pytest.raises(VerifyError, match="another classifier"):
        verify(file, classifier=other)


def test_a_signature_that_is_missing_wrong_or_of_another_key_is_a_fault(
    competition: Path, bundle: bytes, tmp_path: Path
) -> None:
    pytest.importorskip("cryptography")
    from test_signature import KEY, OTHER, pem, public_pem

    signed = make_bundle(competition, pem(KEY))
    assert verified(signed, tmp_path, public_key=public_pem(KEY)).faults == ()
    unchecked = verified(signed, tmp_path)
    assert unchecked.faults == ()
    assert "not checked" in unchecked.signature
    assert "none" in verified(bundle, tmp_path).signature
    assert verified(bundle, tmp_path, public_key=public_pem(KEY)).faults == ("the signature is missing",)
    (fault,) = verified(signed, tmp_path, public_key=public_pem(OTHER)).faults
    assert "not by the key" in fault

    def replace_signature(files: dict[str, bytes]) -> None:
        files[ENVELOPE] = dict(unpack(make_bundle(competition, pem(OTHER))))[ENVELOPE]

    (fault,) = verified(
        repacked(signed, replace_signature, manifest=False), tmp_path, public_key=public_pem(KEY)
    ).faults
    assert "not by the key" in fault


def test_other_versions_of_packages_are_named_and_no_fault_where_the_values_agree(
    competition: Path, folder: Path, tmp_path: Path
) -> None:
    for path in folder.glob("data/stability/*/*/simulations.json"):
        edit_json(path, lambda value: value["packages"].update(numpy="2.0.0"))
    evaluate(folder, "evidence")
    classifier = competition / "data/classifier"
    found = verified(make_bundle(folder), tmp_path, sample=None, classifier=classifier)
    assert found.faults == ()
    assert any("numpy 2.0.0" in note for note in found.notes)


def test_other_source_than_is_here_is_named(folder: Path, tmp_path: Path) -> None:
    module = folder / "src/pcgeval/scoring/formulas.py"
    changed = module.read_text() + "# changed\n"
    module.unlink()  # it is shared with other tests
    module.write_text(changed)
    rehash(folder)
    found = verified(make_bundle(folder), tmp_path)
    assert found.faults == ()
    assert any("other source" in note and "formulas.py" in note for note in found.notes)


def test_replies_of_models_that_were_asked_are_those_of_the_records(folder: Path, tmp_path: Path) -> None:
    params = folder / "params.yaml"
    params.write_text(params.read_text().replace("backend: recorded", "backend: ollama"))
    shutil.rmtree(folder / "data/recordings")
    rehash(folder)
    good = verified(make_bundle(folder), tmp_path)
    assert good.faults == ()
    assert good.recomputed.replies == 16
    _response(folder)
    evaluate(folder, "extract")
    found = verified(make_bundle(folder), tmp_path)
    assert any(fault.startswith(f"data/raw/{MODEL}/{TEAM}") for fault in found.faults), found.faults


def test_the_command_says_the_verdict_first_and_ends_with_its_code(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(file), "--recompute", "0"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("VERIFIED")
    for said in ("no winner", "result hash", "signature     none", "16 replies", "not provable"):
        assert said in shown
    assert main(["verify", str(file), "--recompute", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] is True
    file.write_bytes(file.read_bytes()[:-1])
    assert main(["verify", str(file)]) == 1
    assert capsys.readouterr().out.startswith("NOT VERIFIED")
    for words in (["missing.zip"], [str(file), "--recompute", "some"], [str(file), "--key", str(tmp_path / "no.pem")]):
        assert main(["verify", *words]) == 2
        assert "Traceback" not in capsys.readouterr().err

"""Which tamperings of an evaluated competition `pcgeval audit` and `pcgeval verify` find; one case a line.

Run as `python bench/tampering.py [FOLDER]`: FOLDER is a small competition that an earlier run evaluated there; if it is
not there yet, it is made. Every case begins with a fresh copy. There are three tables: the folder altered; the bundle
altered; and consistent forgeries, whose author gives all that follows from the change the values, dvc.lock, commit,
result hash and manifest that go with it. Each line has the first fault that is printed, cut short.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from evaluated_competition import evaluate
from forgeries import edit_json, look_alike, stand_still
from workspace import OTHER_PROMPT, REPOSITORY, Workspace, make_workspace

from pcgeval.audit import workspace as audited
from pcgeval.audit.archive import pack, unpack
from pcgeval.audit.audit import audit
from pcgeval.audit.bundle import make_bundle
from pcgeval.audit.manifest import CRATE, ENVELOPE, MANIFEST, expected_result
from pcgeval.audit.pipeline import read_pipeline
from pcgeval.audit.recompute import Recomputation, recompute
from pcgeval.audit.verify import verify
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_bytes, to_json, write_json
from pcgeval.core.params import Params, load_params
from pcgeval.core.stage_files import RankingFile
from pcgeval.report.render import write_report

SHOWN = 150  # characters of a fault
MODEL, TEAM = "small", "beta"
OF_TEAM = f"{MODEL}/{TEAM}"
RAW, CODE, LEVELS = f"data/raw/{OF_TEAM}", f"data/intermediate/{OF_TEAM}", f"data/levels/{OF_TEAM}"
STABILITY, SIMILARITY = f"data/stability/{OF_TEAM}", f"data/similarity/{OF_TEAM}"
SUBMISSION, RECORDING = f"data/submissions/{TEAM}", f"data/recordings/{OF_TEAM}/calls.jsonl"
RANKING, OFFICIAL = "results/ranking.json", f"results/official/{MODEL}/trial_scores.csv"
CHANGED_BYTES = 16
OTHER_REPLY = "```\ndrop_block('b31', 9)\n```\n"

Tamper = Callable[[Path], None]


def overwrite(path: Path, content: str | bytes) -> None:
    """Write a file anew: a copy's files are hard links."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def put(name: str, content: str, root: Path) -> None:
    overwrite(root / name, content)


def append(name: str, text: str, root: Path) -> None:
    overwrite(root / name, (root / name).read_bytes() + text.encode())


def swap(name: str, old: str, new: str, root: Path) -> None:
    text = (root / name).read_text()
    if old not in text:
        raise ValueError(f"{name}: has no {old!r} to change")
    overwrite(root / name, text.replace(old, new, 1))


def edit(name: str, change: Callable[[Any], None], root: Path) -> None:
    """Change a JSON or YAML file's value and write it in the form it has."""
    path = root / name
    if path.suffix in {".yaml", ".lock"}:
        value = yaml.safe_load(path.read_text())
        change(value)
        overwrite(path, yaml.safe_dump(value, sort_keys=False))
        return
    edit_json(path, change)


def assign(name: str, way: tuple[Any, ...], new: Any, root: Path) -> None:
    """Set a value in a JSON or YAML file."""

    def change(value: Any) -> None:
        for step in way[:-1]:
            value = value[step]
        if value.get(way[-1]) == new if isinstance(value, dict) else value[way[-1]] == new:
            raise ValueError(f"{name}: {way} is {new!r} already")
        value[way[-1]] = new

    edit(name, change, root)


def discard(name: str, way: tuple[Any, ...], root: Path) -> None:
    """Take an entry out of a JSON or YAML file."""

    def change(value: Any) -> None:
        for step in way[:-1]:
            value = value[step]
        if isinstance(value, list) and isinstance(way[-1], str):
            value.remove(way[-1])
        else:
            del value[way[-1]]

    edit(name, change, root)


def delete(name: str, root: Path) -> None:
    path = root / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def link(name: str, root: Path) -> None:
    """Put a link to the same bytes, or the same folder, in the place of a path."""
    kept = root.parent / f"{root.name}-kept"
    shutil.move(root / name, kept)
    (root / name).symlink_to(kept)


def pipe(name: str, root: Path) -> None:
    (root / name).unlink()
    os.mkfifo(root / name)


def file_for_folder(root: Path) -> None:
    delete(LEVELS, root)
    put(LEVELS, "", root)


def first(pattern: str, change: Callable[[str, Path], None], root: Path) -> None:
    """Change the first file of a pattern."""
    change(min(root.glob(pattern)).relative_to(root).as_posix(), root)


def add(text: str) -> Callable[[str, Path], None]:
    return lambda name, root: append(name, text, root)


def marked(option: str, root: Path) -> None:
    """Change a module that no stage loads and let git look away from it."""
    name = "src/pcgeval/cli/report.py"
    append(name, "\n# changed\n", root)
    git(root, "update-index", f"--{option}", name)


def exchange(one: str, other: str, root: Path) -> None:
    content = (root / one).read_bytes()
    overwrite(root / one, (root / other).read_bytes())
    overwrite(root / other, content)


def exchange_locked(root: Path) -> None:
    """Give two stages each other's outputs in dvc.lock."""

    def change(lock: Any) -> None:
        one, other = (lock["stages"][f"diversity@{MODEL}-{team}"]["outs"][0] for team in ("alpha", TEAM))
        one["md5"], other["md5"] = other["md5"], one["md5"]

    edit("dvc.lock", change, root)


def accept(root: Path) -> None:
    """Let a trial fail for a fault of the server, which somebody accepted: no line of the history says so."""

    def change(record: Any) -> None:
        response = root / RAW / "I" / f"{TEAM}_I_1.txt"
        overwrite(response, "")
        record.update(
            exchanges=[],
            reason="the server is gone",
            cause="server",
            accepted="somebody: it counts",
            response_sha256=sha256_bytes(b""),
        )

    edit(f"{RAW}/I/{TEAM}_I_1.json", change, root)


def undeclared_stage(stages: Any) -> None:
    stages["stages"]["more"] = {"cmd": "python stages/rank.py", "deps": ["stages/rank.py"]}


def without_dep(name: str, dep: str) -> Tamper:
    return partial(discard, "dvc.yaml", ("stages", name, "deps", dep))


# of the evaluated folder: name, what is done, and whether --strict is asked for
EDITS: list[tuple[str, Tamper] | tuple[str, Tamper, bool]] = [
    ("a prompt", partial(append, f"{SUBMISSION}/prompt.txt", "!")),
    ("a submission's README", partial(append, f"{SUBMISSION}/README.md", "!")),
    ("a submission's title", partial(swap, f"{SUBMISSION}/submission.yaml", "Team", "Tern")),
    ("a file added to a submission", partial(put, f"{SUBMISSION}/more.txt", "!")),
    ("a submission deleted", partial(delete, SUBMISSION)),
    ("a recorded reply", partial(swap, RECORDING, "drop_block", "drop_brick")),
    ("a recording deleted", partial(delete, RECORDING)),
    ("a response", partial(append, f"{RAW}/I/{TEAM}_I_1.txt", "!")),
    ("a trial's record", partial(assign, f"{RAW}/I/{TEAM}_I_1.json", ("seed",), 7)),
    ("a failure accepted that the history does not hold", accept),
    ("raw/trials.json", partial(assign, f"{RAW}/trials.json", (0, "reason"), "failed")),
    ("code", partial(append, f"{CODE}/I/{TEAM}_I_1.txt", "\n")),
    ("intermediate/trials.json", partial(assign, f"{CODE}/trials.json", (0, "reason"), "failed")),
    ("a level", partial(swap, f"{LEVELS}/I/{TEAM}_I_1.xml", 'x="', 'x="1')),
    ("levels/trials.json", partial(assign, f"{LEVELS}/trials.json", (0, "reason"), "failed")),
    (
        "a picture",
        partial(exchange, f"data/images/{OF_TEAM}/I/{TEAM}_I_1.png", f"data/images/{OF_TEAM}/I/{TEAM}_I_2.png"),
    ),
    ("a stability", partial(assign, f"{STABILITY}/I.json", ("rate",), 0.123)),
    ("a simulation", partial(assign, f"{STABILITY}/simulations.json", ("trials", 0, "best_of"), 3)),
    ("a similarity", partial(assign, f"{SIMILARITY}/I.json", ("similarityRate",), 1.0)),
    ("classifier.json", partial(assign, f"{SIMILARITY}/classifier.json", ("sha256",), "0" * 64)),
    ("a diversity", partial(assign, f"data/diversity/{OF_TEAM}/I.json", ("diversityRate",), 1.0)),
    ("evidence", partial(append, f"data/evidence/{TEAM}/{MODEL}.json", "\n")),
    ("a grade's score", partial(assign, f"data/grades/{TEAM}/grade.json", ("score",), 1.0)),
    ("calls of a grade", partial(put, f"data/judgements/{TEAM}/calls.jsonl", "{}\n")),
    ("the rubric", lambda root: first("data/rubrics/**/*.json", add(" "), root)),
    ("the history of grades by hand", partial(append, "data/grade_history.jsonl", "\n")),
    ("an official table", partial(swap, OFFICIAL, '"0.', '"1.')),
    ("the official constants", partial(append, f"results/official/{MODEL}/constants.json", " ")),
    ("ranking.csv", partial(append, "results/ranking.csv", " ")),
    ("a total in ranking.json", partial(assign, RANKING, ("teams", 0, "total"), "1.5")),
    ("the winner in ranking.json", partial(assign, RANKING, ("winners",), [TEAM])),
    ("packages in ranking.json", partial(assign, RANKING, ("packages", "torch"), ["1.0"])),
    ("the engine in ranking.json", partial(assign, RANKING, ("engine",), "box2d")),
    ("the result hash", partial(assign, RANKING, ("result", "sha256"), "0" * 64)),
    ("ranking.json without a result hash", partial(discard, RANKING, ("result",))),
    ("ranking.json cut short", lambda root: overwrite(root / RANKING, (root / RANKING).read_bytes()[:99])),
    ("metrics", partial(assign, "results/metrics.json", ("winners",), 1)),
    ("the page", partial(swap, "results/report/index.html", "alpha", "alpho")),
    ("a team's page", partial(append, f"results/report/teams/{TEAM}.html", " ")),
    (
        "dvc.yaml: another command",
        partial(assign, "dvc.yaml", ("stages", "rank", "cmd"), "python stages/score.py small"),
    ),
    (
        "dvc.yaml: a second command",
        partial(assign, "dvc.yaml", ("stages", "rank", "cmd"), "python stages/rank.py; true"),
    ),
    ("dvc.yaml: a dep removed", without_dep("rank", "data/raw")),
    ("dvc.yaml: a source dep removed", without_dep("rank", "src/pcgeval/scoring")),
    ("dvc.yaml: params removed", partial(discard, "dvc.yaml", ("stages", "rank", "params", "limits"))),
    ("dvc.yaml: a frozen stage", partial(edit, "dvc.yaml", lambda value: value["stages"]["rank"].update(frozen=True))),
    ("dvc.yaml: a stage in another folder", partial(assign, "dvc.yaml", ("stages", "rank", "wdir"), "stages")),
    ("dvc.yaml: a stage removed", partial(discard, "dvc.yaml", ("stages", "report"))),
    ("dvc.yaml: an undeclared stage", partial(edit, "dvc.yaml", undeclared_stage)),
    ("a second dvc.yaml", partial(put, "more/dvc.yaml", "stages: {a: {cmd: 'true'}}\n")),
    ("dvc.lock: the hash of an output", partial(assign, "dvc.lock", ("stages", "rank", "outs", 0, "md5"), "0" * 32)),
    (
        "dvc.lock: the hash of an input",
        partial(assign, "dvc.lock", ("stages", "rank", "deps", 0, "md5"), "0" * 32 + ".dir"),
    ),
    ("dvc.lock: a command", partial(assign, "dvc.lock", ("stages", "rank", "cmd"), "python stages/score.py")),
    ("dvc.lock: a param", partial(assign, "dvc.lock", ("stages", "rank", "params", "params.yaml", "teams"), ["alpha"])),
    ("dvc.lock: a stage missing", partial(discard, "dvc.lock", ("stages", "rank"))),
    ("dvc.lock: two outputs exchanged", exchange_locked),
    ("dvc.lock deleted", partial(delete, "dvc.lock")),
    ("params.yaml: a model's digest", partial(assign, "params.yaml", ("models", MODEL, "digest"), "d" * 64)),
    ("params.yaml: the seed", partial(assign, "params.yaml", ("competition", "seed"), 2)),
    ("params.yaml: the baseline", partial(assign, "params.yaml", ("scoring", "baseline"), TEAM)),
    ("params.yaml: a team removed", partial(discard, "params.yaml", ("teams", TEAM))),
    ("params.yaml: a team added", partial(assign, "params.yaml", ("teams",), ["alpha", "beta", "gamma"])),
    ("params.yaml: physics", partial(assign, "params.yaml", ("physics", "trials"), 3)),
    (".dvcignore hides a submission's file", partial(append, ".dvcignore", f"{SUBMISSION}/README.md\n")),
    (".dvcignore hides an output's folder", partial(append, ".dvcignore", f"/{LEVELS}/T\n")),
    (".dvcignore in an output", partial(put, f"{LEVELS}/.dvcignore", "T\n")),
    ("a module that stages load", partial(append, "src/pcgeval/scoring/stages.py", "\n")),
    ("a new module in a package", partial(put, "src/pcgeval/scoring/more.py", "")),
    ("a stage's script", partial(append, "stages/rank.py", "\n")),
    ("a module beside the scripts", partial(put, "stages/json.py", "")),
    ("a compiled module beside the scripts", partial(put, "stages/json.pyc", "")),
    ("a module in src that hides an installed one", partial(put, "src/yaml.py", "")),
    ("a module that no stage loads (--strict)", partial(append, "src/pcgeval/cli/report.py", "\n"), True),
    ("a module behind skip-worktree (--strict)", partial(marked, "skip-worktree"), True),
    ("a module behind assume-unchanged (--strict)", partial(marked, "assume-unchanged"), True),
    ("the classifier's settings", partial(append, "data/classifier/preprocessor_config.json", "\n")),
    ("the classifier's weights", lambda root: first("data/classifier/*.safetensors", add("!"), root)),
    ("a file added to an output", partial(put, f"{LEVELS}/T/more.xml", "")),
    ("a file beside the outputs", partial(put, f"data/levels/{MODEL}/more.txt", "")),
    ("a file in results", partial(put, "results/more.txt", "")),
    ("an output's file deleted", partial(delete, f"{LEVELS}/I/{TEAM}_I_1.xml")),
    ("an output deleted", partial(delete, LEVELS)),
    ("a link for an output's file", partial(link, f"{LEVELS}/I/{TEAM}_I_1.xml")),
    ("a link for an output's folder", partial(link, LEVELS)),
    ("a link for a submission's file", partial(link, f"{SUBMISSION}/README.md")),
    ("a pipe for an output's file", partial(pipe, f"{LEVELS}/I/{TEAM}_I_1.xml")),
    ("a pipe for a recording", partial(pipe, RECORDING)),
    ("a file for an output's folder", file_for_folder),
    ("an object of the cache", lambda root: first(".dvc/cache/files/md5/*/*", add("!"), root)),
    ("an object of the cache as a link", lambda root: first(".dvc/cache/files/md5/*/*", link, root)),
]


def give_response(root: Path) -> None:
    path = root / RAW / "I" / f"{TEAM}_I_1.txt"
    overwrite(path, OTHER_REPLY)
    record = path.with_suffix(".json").relative_to(root).as_posix()
    assign(record, ("response_sha256",), sha256_bytes(OTHER_REPLY.encode()), root)


def give_reply(root: Path) -> None:
    give_response(root)
    assign(f"{RAW}/I/{TEAM}_I_1.json", ("exchanges", 0, "reply", "text"), OTHER_REPLY, root)


def rate_stable(root: Path) -> None:
    """Say of all levels of a letter that they are stable."""

    def change(value: Any) -> None:
        for raw in value["raws"]:
            raw["score"] = 0.9
        value["rate"] = 0.9

    edit(f"{STABILITY}/I.json", change, root)


def declare_winner(root: Path) -> None:
    def change(ranking: Any) -> None:
        ranking.update(winners=[TEAM], reason=f"{TEAM} wins.")
        for team in ranking["teams"]:
            team["winner"] = team["team"] == TEAM

    edit(RANKING, change, root)


def check_leaf(root: Path) -> None:
    """Let a failed leaf of a grade pass."""

    def leaves(node: Any) -> Iterator[Any]:
        below = node.get("sub_tasks") or ()
        for each in below:
            yield from leaves(each)
        if not below:
            yield node

    def change(grade: Any) -> None:
        next(leaf for leaf in leaves(grade["graded_task_tree"]) if leaf["score"] == 0).update(score=1.0)

    edit(f"data/grades/{TEAM}/grade.json", change, root)


def add_team(root: Path) -> None:
    """Rank a team that handed in nothing."""

    def change(ranking: Any) -> None:
        ranking["teams"].append(ranking["teams"][-1] | {"team": "gamma", "winner": False, "rank": 2})

    edit(RANKING, change, root)


def other_model_named(root: Path) -> None:
    for path in (root / "data" / "similarity").rglob("classifier.json"):
        assign(path.relative_to(root).as_posix(), ("sha256",), "0" * 64, root)


@dataclass(frozen=True)
class Forgery:
    """What is changed, and the stage from which on everything is made again so that it follows from the change.

    `name` tells what; `bundled` is whether it concerns files of a bundle.
    """

    name: str
    forge: Tamper
    since: str | None = None
    bundled: bool = True


FORGERIES = [
    Forgery("a response, its hash, all after it", give_response, "extract"),
    Forgery("a reply and response, all after it", give_reply, "extract"),
    Forgery(
        "another prompt, with the replies there are",
        partial(put, f"{SUBMISSION}/prompt.txt", OTHER_PROMPT + " "),
        "extract",
    ),
    Forgery("a recorded reply, but not the trial", partial(swap, RECORDING, "drop_block", "drop_brick")),
    Forgery("code, all after it", partial(put, f"{CODE}/I/{TEAM}_I_1.txt", "drop_block('b31', 9)"), "convert"),
    Forgery("a level, all after it", partial(swap, f"{LEVELS}/I/{TEAM}_I_1.xml", 'x="', 'x="1'), "simulate"),
    Forgery(
        "a picture, all after it",
        partial(exchange, f"data/images/{OF_TEAM}/I/{TEAM}_I_1.png", f"data/images/{OF_TEAM}/T/{TEAM}_T_1.png"),
        "classify",
        bundled=False,
    ),
    Forgery("a letter's stability, all after it", rate_stable, "evidence"),
    Forgery("simulations and stability, all after them", partial(stand_still, model=MODEL, team=TEAM), "evidence"),
    Forgery("similarities, all after them", partial(look_alike, model=MODEL, team=TEAM), "diversity"),
    Forgery(
        "a diversity, all after it",
        partial(assign, f"data/diversity/{OF_TEAM}/I.json", ("diversityRate",), 0.99),
        "evidence",
    ),
    Forgery("the classifier's hash, all after it", other_model_named, "evidence"),
    Forgery(
        "evidence, the grade after it",
        partial(assign, f"data/evidence/{TEAM}/{MODEL}.json", ("model",), "other"),
        "grade",
    ),
    Forgery("an official table", partial(swap, OFFICIAL, '"0.', '"1.')),
    Forgery("a total", partial(assign, RANKING, ("teams", 0, "total"), "1.5")),
    Forgery("the winner", declare_winner),
    Forgery("a team that is not in params.yaml", add_team),
    Forgery("packages", partial(assign, RANKING, ("packages", "torch"), ["1.0"])),
    Forgery("an interval", partial(assign, RANKING, ("intervals", "seed"), 2)),
    Forgery("ranking.csv", partial(swap, "results/ranking.csv", "beta", "bета")),
    Forgery("metrics", partial(assign, "results/metrics.json", ("winners",), 1)),
    Forgery("a leaf of a grade", check_leaf),
    Forgery(
        "weights in params.yaml",
        partial(edit, "params.yaml", lambda value: value["scoring"].update(official_quirks=True)),
    ),
    Forgery("another baseline in params.yaml", partial(assign, "params.yaml", ("scoring", "baseline"), TEAM)),
    Forgery("a team disqualified", partial(append, f"{SUBMISSION}/submission.yaml", "disqualified: no reason\n")),
    Forgery("a trial removed", partial(delete, f"{RAW}/I/{TEAM}_I_2.txt")),
    Forgery("a failure accepted, without a line of the history", accept, "extract"),
    Forgery("the page", partial(swap, "results/report/index.html", "alpha", "alpho"), bundled=False),
]


def change_manifest(way: tuple[str, ...], new: Any, files: dict[str, bytes]) -> None:
    manifest = value = json.loads(files[MANIFEST])
    for step in way[:-1]:
        value = value[step]
    value[way[-1]] = new
    files[MANIFEST] = to_json(manifest).encode() + b"\n"


# of the files of a bundle: name, change, and whether the manifest is then made to name their hashes
REPACKED: list[tuple[str, Callable[[dict[str, bytes]], Any], bool]] = [
    ("a file changed", lambda files: files.update({RANKING: files[RANKING].replace(b"alpha", b"alpho")}), False),
    ("a file taken out", lambda files: files.pop("data/grade_history.jsonl"), False),
    ("a file taken out, manifest made again", lambda files: files.pop(f"{SUBMISSION}/README.md"), True),
    ("a vector file taken out, manifest made again", lambda files: files.pop(f"{SIMILARITY}/I.json"), True),
    ("a file added", lambda files: files.update(more=b""), False),
    ("a file added, manifest made again", lambda files: files.update(more=b""), True),
    ("no manifest", lambda files: files.pop(MANIFEST), False),
    ("another winner in the manifest", partial(change_manifest, ("predicate", "winners"), [TEAM]), False),
    (
        "another result hash in the manifest",
        partial(change_manifest, ("predicate", "result", "sha256"), "0" * 64),
        False,
    ),
    ("another engine in the manifest", partial(change_manifest, ("predicate", "engine"), "box2d"), False),
    (
        "metadata changed, manifest made again",
        lambda files: files.update({CRATE: files[CRATE].replace(b"test", b"tost")}),
        True,
    ),
    ("source changed, manifest made again", lambda files: files.update({"stages/rank.py": b""}), True),
]


def repacked(bundle: bytes, change: Callable[[dict[str, bytes]], Any], *, manifest: bool) -> bytes:
    files = dict(unpack(bundle))
    change(files)
    if manifest:
        names = [name for name in files if name not in {MANIFEST, ENVELOPE}]
        subject = [{"name": name, "digest": {"sha256": sha256_bytes(files[name])}} for name in names]
        change_manifest(("subject",), subject, files)
    return pack(files.items())


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(
        root, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "--quiet", "--message", "evaluated"
    )


def rehash(root: Path) -> None:
    """Give a ranking the result hash that belongs to the files that are there."""
    path = root / RANKING
    result = expected_result(root, load_params(root / "params.yaml"), RankingFile.read(path))
    write_json(path, json.loads(path.read_text()) | {"result": result.model_dump()})


def relock(root: Path) -> None:
    """Make dvc.lock agree with what is there, as `dvc commit --force` does in a longer time."""
    files = audited.Workspace(root, read_pipeline(root).walk)
    params = yaml.safe_load((root / "params.yaml").read_text())

    def change(lock: Any) -> None:
        for stage in lock["stages"].values():
            for each in (*stage.get("deps", ()), *stage.get("outs", ())):
                found = files.listing(each["path"])
                each["md5"] = found.md5
                each["size"] = sum((root / file.path).stat().st_size for file in found.files)
                if found.is_folder:
                    each["nfiles"] = len(found.files)
            for name in (values := stage.get("params", {}).get("params.yaml", {})):
                value = params
                for step in name.split("."):
                    value = value[step]
                values[name] = value

    edit("dvc.lock", change, root)


def evaluated(folder: Path) -> None:
    """Make the small competition, evaluate it and commit it."""
    folder.mkdir(parents=True)
    workspace: Workspace = make_workspace(folder)
    (folder / ".dvc" / "config.local").unlink()
    shutil.copy2(REPOSITORY / ".gitignore", folder)
    put(".dvc/.gitignore", "/config.local\n/tmp\n/cache\n", folder)
    git(folder, "init", "--quiet")
    commit(folder)
    done = workspace.python("-m", "pcgeval", "run")
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    commit(folder)


@contextmanager
def copy_of(folder: Path) -> Iterator[Path]:
    """Give a copy to alter: hard links, but for the files that git and DVC alter in place."""

    def copy(source: str, target: str) -> None:
        if source.endswith("/dvc.lock") or ("/.git/" in source and "/.git/objects/" not in source):
            shutil.copy2(source, target)
        else:
            os.link(source, target)

    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="tampered-") as name:
        yield Path(shutil.copytree(folder, Path(name) / "copy", symlinks=True, copy_function=copy))


class Table:
    """Prints what was found, and counts it."""

    def __init__(self) -> None:
        self.found = self.all = 0

    def line(self, name: str, look: Callable[[], list[str]]) -> None:
        """Print one case: `look` returns the faults, or raises the error with which the command ends."""
        try:
            faults = look()
        except PcgevalError as error:
            faults = [str(error)]
        self.all += 1
        self.found += bool(faults)
        shown = " ".join(faults[0].split())[:SHOWN] if faults else ""
        print(f"{'found ' if faults else 'MISSED'}  {name}: {shown}", flush=True)


def hashed_faults(root: Path, *, strict: bool) -> list[str]:
    """Return what the audit finds without recomputing; if that is nothing, with it."""
    faults = audit(root, strict=strict).faults
    return [each.message for each in faults] or recomputed_faults(root, sample=0, strict=strict)


def recomputed_faults(root: Path, *, sample: int | None = None, strict: bool = True) -> list[str]:
    """Return what the audit finds; it recomputes everything, by default all measurements too."""

    def recomputing(folder: Path, params: Params) -> Recomputation:
        return recompute(folder, params, sample=sample, render=write_report)

    return [each.message for each in audit(root, None, recomputing, strict=strict).faults]


def verified_faults(content: bytes, folder: Path, *, classifier: Path | None = None) -> list[str]:
    path = folder / "bundle.zip"
    path.write_bytes(content)
    return list(verify(path, classifier=classifier, sample=None if classifier else 0, seed=1).faults)


def bundled_faults(root: Path, folder: Path) -> list[str]:
    """Return what is found in the bundle of a folder; all measurements are repeated."""
    return verified_faults(make_bundle(root), folder, classifier=root / "data/classifier")


def main(given: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="tampering-") as name:
        folder = given or Path(name, "evaluated")
        if not folder.is_dir():
            evaluated(folder)
        bundle = make_bundle(folder)
        if faults := recomputed_faults(folder) + verified_faults(bundle, Path(name)):
            raise SystemExit(f"it has faults before anything is altered: {faults}")
        table = Table()
        alter_folder(folder, table)
        alter_bundle(bundle, Path(name), table)
        forge(folder, Path(name), table)
    print(f"{table.found} of {table.all} found")


def alter_folder(folder: Path, table: Table) -> None:
    for name, tamper, *strict in EDITS:
        with copy_of(folder) as root:
            tamper(root)
            table.line(f"audit: {name}", partial(hashed_faults, root, strict=bool(strict)))


def alter_bundle(bundle: bytes, folder: Path, table: Table) -> None:
    for place in range(0, len(bundle), len(bundle) // CHANGED_BYTES):
        changed = bytearray(bundle)
        changed[place] ^= 1
        table.line(f"verify: byte {place}", partial(verified_faults, bytes(changed), folder))
    table.line("verify: cut short", partial(verified_faults, bundle[:-1], folder))
    table.line("verify: a byte more", partial(verified_faults, bundle + b"\0", folder))
    table.line("verify: two bundles in one", partial(verified_faults, bundle + bundle, folder))
    for name, change, manifest in REPACKED:
        content = repacked(bundle, change, manifest=manifest)
        table.line(f"verify: {name}", partial(verified_faults, content, folder))


def forge(folder: Path, scratch: Path, table: Table) -> None:
    for number, forgery in enumerate(FORGERIES):
        with copy_of(folder) as root:
            forgery.forge(root)
            if forgery.since:
                evaluate(root, forgery.since)
            rehash(root)
            if number:
                relock(root)
            else:  # once with DVC itself
                Workspace(root).dvc("commit", "--force")
            git(root, "commit", "--quiet", "--all", "--message", "forged", "--allow-empty")
            table.line(f"audit, forged: {forgery.name}", partial(recomputed_faults, root))
            if forgery.bundled:
                table.line(f"verify, forged: {forgery.name}", partial(bundled_faults, root, scratch))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)

"""Name the files of a bundle, and describe them: the manifest and the description for catalogues of research data.

All of it but the commit follows from the bundled files, so that a reader makes it again and compares.
"""

import os
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from pcgeval.core.files import read_json, to_json
from pcgeval.core.layout import (
    EVIDENCE,
    GRADES,
    JUDGE_RECORDINGS,
    JUDGEMENTS,
    METRICS,
    OFFICIAL_RESULTS,
    RANKING_CSV,
    RANKING_JSON,
    RUBRICS,
    STAGE_DIRS,
    TRIALS_FILE,
    StageDir,
    evidence_file,
    grade_file,
    letter_file,
    rubric_file,
    stage_dir,
)
from pcgeval.core.params import Params
from pcgeval.core.stage_files import RankingFile, ResultHash, Sha256
from pcgeval.core.untrusted import files_below, printable_line
from pcgeval.scoring.decimals import round_totals
from pcgeval.scoring.official_files import OFFICIAL_NAMES
from pcgeval.scoring.result_hash import deciding_files, result_hash

MANIFEST = "manifest.json"
ENVELOPE = "manifest.dsse.json"  # the signed manifest
NOT_BUNDLED: tuple[StageDir, ...] = ("images",)  # they are large, and follow from the levels
CRATE = "ro-crate-metadata.json"
_MAX_PARAMS_BYTES = 2**18
_MAX_PARAMS_DEPTH = 20
_HISTORIES = ("data/trial_history.jsonl", "data/grade_history.jsonl")
_SETTINGS = ("constraints.txt", "dvc.lock", "dvc.yaml", "params.yaml")
_CRATE_CONTEXT = "https://w3id.org/ro/crate/1.1"
_FOLDERS = {  # for the crate; a bundle need not have each of them
    "data/submissions/": "The teams' prompts and programs",
    "data/recordings/": "Replies of the models as they were recorded",
    "data/raw/": "The response of each trial, and the record of how it came about",
    "data/intermediate/": "The calls that were found in each response",
    "data/levels/": "The levels, in the XML of Science Birds",
    "data/stability/": "Which blocks stayed in place",
    "data/similarity/": "The probability of each letter, and the classifier's embedding",
    "data/diversity/": "Distances between the trials of a letter",
    "data/rubrics/": "The rubric",
    "data/evidence/": "What the rubric's checks looked at",
    "data/judgements/": "The judge's replies",
    "data/grades/": "The grades by the rubric",
    "results/official/": "Scores in the official format",
    "src/": "Source of pcgeval",
    "stages/": "Source of the stages",
}
_FILES = {
    "params.yaml": ("All settings that can change a score", "text/yaml"),
    "dvc.yaml": ("The pipeline", "text/yaml"),
    "dvc.lock": ("Hashes of the pipeline's inputs and outputs", "text/yaml"),
    "results/ranking.csv": ("The ranking as a table", "text/csv"),
    "results/ranking.json": ("The ranking with all that is known of it", "application/json"),
    "results/metrics.json": ("Figures of the ranking", "application/json"),
    MANIFEST: ("SHA-256 of each file, and the result: a statement of in-toto", "application/json"),
}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_by_name=True)


class Digest(_Part):
    """The hash of a file."""

    sha256: Sha256


class Subject(_Part):
    """One file of a bundle."""

    name: str
    digest: Digest


class CommitState(_Part):
    """The commit in the competition's folder, its date in UTC, and the bundled files that differ from it.

    This alone a bundle only asserts: nothing in it proves it.
    """

    commit: str | None = None
    date: str | None = None
    uncommitted: tuple[str, ...] = ()


class CompetitionName(_Part):
    """The round that was evaluated."""

    name: str
    edition: str
    round: str


class Predicate(_Part):
    """A bundle's statement about its files: the result, and the versions it was computed with."""

    competition: CompetitionName
    winners: tuple[str, ...]
    result: ResultHash
    engine: str
    classifier: str
    packages: dict[str, tuple[str, ...]]
    source: CommitState


class Statement(_Part):
    """A statement of in-toto, version 1."""

    statement_type: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")] = (
        "https://in-toto.io/Statement/v1"
    )
    subject: tuple[Subject, ...]
    predicate_type: Annotated[Literal["urn:pcgeval:bundle:1"], Field(alias="predicateType")] = "urn:pcgeval:bundle:1"
    predicate: Predicate

    def to_bytes(self) -> bytes:
        """Return the one form of the statement as JSON."""
        return _json_bytes(self.model_dump(mode="json", by_alias=True))


def expected_result(root: Path, params: Params, ranking: RankingFile) -> ResultHash:
    """Return the result hash that a competition's ranking must have, by the files that are there.

    Args:
        root: The competition's folder.
        params: Its params.
        ranking: Its ranking, which names the classifier.

    Raises:
        FileError: A file cannot be read.
    """
    return result_hash(params, read_json(root / RANKING_JSON), deciding_files(params, root), ranking.classifier)


def bundled_files(root: Path, params: Params) -> list[str]:
    """Return the names of a competition's files that belong into its bundle, in byte order.

    Raises:
        FileError: A folder cannot be read.
    """
    pairs = list(product(params.models, params.teams))
    folders = [stage_dir(stage, *pair) for stage in STAGE_DIRS if stage not in NOT_BUNDLED for pair in pairs]
    folders += [OFFICIAL_RESULTS / model for model in params.models]
    folders += [part / team for part in (EVIDENCE, JUDGEMENTS, GRADES, JUDGE_RECORDINGS) for team in params.teams]
    folders.append(RUBRICS / params.rubric.id)
    names = {name for listed in deciding_files(params, root).values() for name, _ in listed}
    names |= {
        path.relative_to(root).as_posix()
        for folder in folders
        if (root / folder).is_dir()
        for path in files_below(root / folder)
    }
    alone = (*_SETTINGS, *_HISTORIES, *(path.as_posix() for path in (RANKING_CSV, RANKING_JSON, METRICS)))
    names |= {name for name in alone if (root / name).is_file()}
    return sorted(names, key=os.fsencode)


def missing_files(root: Path, params: Params) -> list[str]:
    """Return what a bundle must hold and is not there; what lies beside these files is found by recomputing them."""
    pairs, letter = list(product(params.models, params.teams)), params.competition.characters[0]
    stages = [stage for stage in STAGE_DIRS if stage not in NOT_BUNDLED]
    needed = [
        letter_file(stage_dir(stage, *pair), letter) if stage == "diversity" else stage_dir(stage, *pair) / TRIALS_FILE
        for stage in stages
        for pair in pairs
    ]
    needed += [evidence_file(*pair) for pair in pairs]
    needed += [grade_file(team) for team in params.teams]
    needed += [OFFICIAL_RESULTS / model / name for model in params.models for name in OFFICIAL_NAMES]
    needed += [rubric_file(params.rubric.id), RANKING_CSV, RANKING_JSON, METRICS]
    return [path.as_posix() for path in needed if not (root / path).is_file()]


def params_fault(content: bytes) -> str | None:
    """Return why the params of a bundle are not read, in words that follow the file's name; None if they may be.

    A few aliases can stand for more text than there is memory, and deep nesting takes hours to read.
    """
    if len(content) > _MAX_PARAMS_BYTES:
        return f"has {len(content)} bytes; a bundle may have {_MAX_PARAMS_BYTES}. Shorten it."
    depth = 0
    try:
        for event in yaml.parse(content, yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent):
                return "has an alias (*name), which a bundle must not have. Write out what it stands for."
            if depth > _MAX_PARAMS_DEPTH:
                return f"is nested more than {_MAX_PARAMS_DEPTH} deep. Correct it."
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return f"is not YAML ({printable_line(str(error))}). Correct it."
    return None


def statement(params: Params, ranking: RankingFile, digests: Mapping[str, str], source: CommitState) -> Statement:
    """Return what a bundle's manifest says.

    Args:
        params: The competition.
        ranking: Its ranking, with a result hash.
        digests: The SHA-256 of each file by name, in the order of the bundle.
        source: The commit.
    """
    assert ranking.result is not None  # noqa: S101 - checked by the callers
    return Statement(
        subject=tuple(Subject(name=name, digest=Digest(sha256=digest)) for name, digest in digests.items()),
        predicate=Predicate(
            competition=_competition_name(params),
            winners=ranking.winners,
            result=ranking.result,
            engine=ranking.engine,
            classifier=ranking.classifier,
            packages=ranking.packages,
            source=source,
        ),
    )


def crate_metadata(params: Params, ranking: RankingFile, names: Iterable[str], source: CommitState) -> bytes:
    """Return a bundle's `ro-crate-metadata.json`.

    Args:
        params: The competition.
        ranking: Its ranking, with a result hash.
        names: The bundled files.
        source: The commit, whose date is taken for that of the publication.
    """
    assert ranking.result is not None  # noqa: S101 - checked by the callers
    title = f"{params.competition.name} {params.competition.edition} {params.competition.round}"
    there = {*names, MANIFEST}
    files = [
        {"@id": name, "@type": "File", "name": text, "encodingFormat": kind}
        for name, (text, kind) in _FILES.items()
        if name in there
    ]
    folders = [
        {"@id": name, "@type": "Dataset", "name": text}
        for name, text in _FOLDERS.items()
        if any(each.startswith(name) for each in there)
    ]
    models = [
        {
            "@id": f"#model-{key}",
            "@type": "SoftwareApplication",
            "name": model.name,
            "identifier": model.digest or "not pinned",
        }
        for key, model in params.models.items()
    ]
    program = {
        "@id": "#pcgeval",
        "@type": "SoftwareApplication",
        "name": "pcgeval",
        "identifier": f"source sha256:{ranking.result.parts['source']}",
        "version": f"commit {source.commit}" if source.commit else "no commit",
    }
    evaluation = {
        "@id": "#evaluation",
        "@type": "CreateAction",
        "name": f"Evaluation of {title}",
        "instrument": [_link(each) for each in (program, *models)],
        "object": [{"@id": "data/submissions/"}, {"@id": "params.yaml"}],
        "result": [{"@id": name} for name in ("results/ranking.json", "results/ranking.csv")],
    }
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"{title}: submissions, trials and ranking",
        "description": f"{round_totals(ranking.reason)} `pcgeval verify` recomputes the ranking from these files.",
        "identifier": f"sha256:{ranking.result.sha256}",
        "license": "None is stated here: the submissions are their authors'.",
        "hasPart": [_link(each) for each in (*files, *folders)],
        "mentions": [_link(evaluation)],
        **({"datePublished": source.date} if source.date else {}),
    }
    descriptor = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "conformsTo": {"@id": _CRATE_CONTEXT},
        "about": _link(root),
    }
    graph = [descriptor, root, *files, *folders, evaluation, program, *models]
    return _json_bytes({"@context": f"{_CRATE_CONTEXT}/context", "@graph": graph})


def _competition_name(params: Params) -> CompetitionName:
    competition = params.competition
    return CompetitionName(name=competition.name, edition=competition.edition, round=competition.round)


def _link(entity: Mapping[str, Any]) -> dict[str, Any]:
    return {"@id": entity["@id"]}


def _json_bytes(value: Any) -> bytes:
    return to_json(value).encode() + b"\n"

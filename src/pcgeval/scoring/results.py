"""Reading the stability, similarity and diversity files of a team, in the official format and either layout.

Official layout: `<SOURCE>/<TEAM>/<STEP>/<C>.json`; the pipeline's: `data/<STEP>/<MODEL>/<TEAM>/<C>.json`. The folders
may come from anybody: sizes are limited before reading, and every value is checked and named when it is refused.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pcgeval.core.files import read_text
from pcgeval.core.layout import letter_file, stage_dir
from pcgeval.core.params import RESERVED_TEAMS
from pcgeval.scoring.decimals import from_float
from pcgeval.scoring.inputs import (
    UNKNOWN,
    Entry,
    LetterResults,
    Provenance,
    ScoringError,
    ScoringRules,
    TeamResults,
    byte_order,
    first_by_trial,
)

FILE_BYTES = 64_000_000  # 1 000 trials with 768 numbers each take a quarter of it
ENGINE_FILE = "simulations.json"  # beside the stability files: holds `engine`, a text or its name and versions
CLASSIFIER_FILE = "classifier.json"  # beside the similarity files: holds `name` and `sha256`
_SLACK = 1e-6  # single-precision softmax can come out a little above 1
_TRIAL_NUMBER = re.compile(r"\s*([+-]?[0-9]{1,18})(?![0-9])")
Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class TeamFolders:
    """Where the three measurements of one team and one model lie."""

    stability: Path
    similarity: Path
    diversity: Path

    @classmethod
    def official(cls, team: Path) -> "TeamFolders":
        """Return the folders below `<SOURCE>/<TEAM>`."""
        return cls(team / "stability", team / "similarity", team / "diversity")

    @classmethod
    def pipeline(cls, model: str, team: str) -> "TeamFolders":
        """Return the folders below `data/`."""
        return cls(
            stage_dir("stability", model, team),
            stage_dir("similarity", model, team),
            stage_dir("diversity", model, team),
        )


def read_source(source: Path, rules: ScoringRules) -> dict[str, TeamResults]:
    """Read all teams of one model from the official layout, by team.

    A trial counts as failed if it has no stability or no similarity.

    Raises:
        ScoringError: The folder has no teams, or a file in it is not as it should be.
    """
    results = {folder.name: read_team(TeamFolders.official(folder), rules) for folder in _team_folders(source)}
    if not results:
        raise ScoringError(
            f"{source}: has no team folders. Name the folder that holds <TEAM>/stability/<C>.json and so on."
        )
    return results


def _team_folders(source: Path) -> list[Path]:
    try:
        folders = [path for path in source.iterdir() if path.is_dir()]
    except OSError as error:
        raise ScoringError(f"{source}: cannot be read ({error.strerror}). Name a folder of results.") from error
    teams = [path for path in folders if not path.name.startswith(".") and path.name not in RESERVED_TEAMS]
    for path in teams:
        if not path.name.isprintable():
            raise ScoringError(f"{source}: the folder name {path.name!r} is no team name. Rename or remove it.")
    return sorted(teams, key=lambda path: byte_order(path.name))


def read_team(folders: TeamFolders, rules: ScoringRules) -> TeamResults:
    """Read what one team got with one model; an absent file becomes None.

    Raises:
        ScoringError: A file is there but is not what the official tools write.
    """
    letters = {letter: read_letter(folders, letter, rules) for letter in rules.letters}
    return TeamResults(letters, _failed_trials(letters, rules), read_provenance(folders))


def read_letter(folders: TeamFolders, letter: str, rules: ScoringRules) -> LetterResults:
    """Read one letter's three files; see `read_team`."""
    stability, similarity = letter_file(folders.stability, letter), letter_file(folders.similarity, letter)
    diversity = letter_file(folders.diversity, letter)
    return LetterResults(
        _if_there(stability, lambda value: _entries(stability, value, ("raws", "tag", "score"), rules)),
        _if_there(similarity, lambda value: _entries(similarity, value, ("trials", "id", "similarity"), rules)),
        _if_there(diversity, lambda value: _diversity(diversity, value)),
    )


def read_provenance(folders: TeamFolders) -> Provenance:
    """Read which engine and classifier measured the team; `unknown` where the official tools did."""
    engine_file, classifier_file = folders.stability / ENGINE_FILE, folders.similarity / CLASSIFIER_FILE
    engine = _if_there(engine_file, lambda value: _engine(engine_file, value))
    classifier = _if_there(
        classifier_file,
        lambda value: f"{_text(classifier_file, value, 'name')} sha256:{_text(classifier_file, value, 'sha256')}",
    )
    return Provenance(engine or UNKNOWN, classifier or UNKNOWN)


def load_json(path: Path) -> Any:
    """Read a JSON file of bounded size whose numbers all become floats.

    Raises:
        ScoringError: It is no plain file, too large, or not JSON.
    """
    if not path.is_file():
        _refuse(path, "is not a plain file")
    if path.stat().st_size > FILE_BYTES:
        _refuse(path, f"is larger than {FILE_BYTES} bytes")
    try:
        # as floats, integers of a million digits take linear time
        return json.loads(read_text(path), parse_int=float, parse_constant=lambda name: _refuse(path, f"has {name}"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ScoringError(f"{path}: not valid JSON ({error}). Make it again with the step that wrote it.") from error


def trial_number(name: str) -> int | None:
    """Return the trial in a name such as `levels/A/team_A_10.xml`: the number after the last underscore.

    None if there is none. The official script reads it with JavaScript's parseInt, which ignores what follows it.
    """
    match = _TRIAL_NUMBER.match(name.rsplit("_", 1)[-1].split(".", 1)[0])
    return int(match[1]) if match else None


def _if_there(path: Path, parse: Callable[[Any], Parsed]) -> Parsed | None:
    try:
        there = path.exists() or path.is_symlink()
    except OSError as error:
        raise ScoringError(f"{path}: cannot be read ({error.strerror}). Make its folder readable.") from error
    return parse(load_json(path)) if there else None


def _entries(path: Path, value: Any, keys: tuple[str, str, str], rules: ScoringRules) -> tuple[Entry, ...]:
    list_key, name_key, value_key = keys
    items = value.get(list_key) if isinstance(value, dict) else None
    if not isinstance(items, list):
        _refuse(path, f"has no list {list_key!r}")
    return tuple(
        _entry(f"{path}: {list_key}[{place}]", item, name_key, value_key, rules) for place, item in enumerate(items)
    )


def _entry(place: str, item: Any, name_key: str, value_key: str, rules: ScoringRules) -> Entry:
    if not isinstance(item, dict) or not isinstance(item.get(name_key), str):
        _refuse(place, f"has no text {name_key!r}")
    trial = trial_number(item[name_key])
    if trial is None and not rules.official_quirks:
        _refuse(place, f"{name_key} {item[name_key][:100]!r} does not end in a trial number such as team_A_1")
    return Entry(trial, _number(place, item, value_key, 1 + _SLACK))


def _diversity(path: Path, value: Any) -> Decimal:
    return _number(path, value if isinstance(value, dict) else {}, "diversityRate", math.inf)


def _number(place: Path | str, item: dict[str, Any], key: str, most: float) -> Decimal:
    number = item.get(key)
    if not isinstance(number, float) or not math.isfinite(number):
        _refuse(place, f"has no finite number {key!r}")
    if not -_SLACK <= number <= most:
        _refuse(place, f"{key} is {number!r}, not {'at least 0' if most == math.inf else 'from 0 to 1'}")
    return from_float(number)


def _engine(path: Path, value: Any) -> str:
    """Return the engine in one line, such as `pymunk 7.1.0 (chipmunk 7.0.3)`."""
    engine = value.get("engine") if isinstance(value, dict) else None
    if not isinstance(engine, dict):
        return _text(path, value, "engine")
    name = f"{_text(path, engine, 'name')} {_text(path, engine, 'version')}"
    others = [f"{key} {_text(path, engine, key)}" for key in sorted(engine) if key not in ("name", "version")]
    return f"{name} ({', '.join(others)})" if others else name


def _text(path: Path, value: Any, key: str) -> str:
    text = value.get(key) if isinstance(value, dict) else None
    if not isinstance(text, str):
        _refuse(path, f"has no text {key!r}")
    return text


def _failed_trials(letters: dict[str, LetterResults], rules: ScoringRules) -> int:
    done = sum(
        trial in stability and trial in similarity
        for each in letters.values()
        for stability, similarity in [(first_by_trial(each.stability), first_by_trial(each.similarity))]
        for trial in range(1, rules.trials + 1)
    )
    return len(rules.letters) * rules.trials - done


def _refuse(place: Path | str, what: str) -> NoReturn:
    raise ScoringError(f"{place}: {what}. Make the file again with the step that wrote it, or remove it.")

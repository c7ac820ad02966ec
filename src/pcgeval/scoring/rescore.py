"""`pcgeval rescore`: scores and ranking from folders of the official layout, or from published tables."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from pcgeval.scoring.formulas import CompetitionScores, score_competition
from pcgeval.scoring.inputs import CompetitionResults, ScoringError, ScoringRules, byte_order
from pcgeval.scoring.official_files import official_files
from pcgeval.scoring.ranking import Entrant, Ranking, rank, ranking_file, write_ranking
from pcgeval.scoring.results import read_source
from pcgeval.scoring.tables import Reproduction, compare, holds_tables, published_baselines, read_tables

OFFICIAL_RESULTS_FOLDER = "result"  # the official tools write there and do not take it for a team


@dataclass(frozen=True)
class Rescored:
    """The result of a rescoring; `reproductions` has an entry for each folder of published tables."""

    scores: CompetitionScores
    ranking: Ranking
    reproductions: tuple[Reproduction, ...]

    @property
    def reproduced(self) -> bool:
        """Whether every published number came out the same (true if none was given)."""
        return not any(each.differing for each in self.reproductions)


def rescore(
    folders: Sequence[Path],
    out: Path,
    rules: ScoringRules | None = None,
    *,
    baselines: Collection[str] = (),
    disqualified: Collection[str] = (),
) -> Rescored:
    """Score and rank from folders, and write `<out>/<model>/` with the official files and the ranking's three files.

    Args:
        folders: One per model: `<SOURCE>` of the official layout, or a folder of published tables (`trial_scores.csv`
            and `constants.json`), which is then compared with what is computed. The folder's name names the model.
        out: Where to write; nothing is written before everything is computed.
        rules: Letters, trials, quirks and the baseline to beat; the 26 letters and ten trials if None.
        baselines: Teams that are scored but not ranked; `rules.baseline` is one of them without being named.
        disqualified: Teams that are left out of everything and shown as disqualified.

    Raises:
        ScoringError: A folder, a file or a value is not as it should be, or the folders have different teams.
    """
    rules = rules or ScoringRules()
    sources = _names(folders, out)
    tables = {name: read_tables(folder, rules) for name, folder in sources.items() if holds_tables(folder)}
    results = CompetitionResults(
        {name: tables[name].teams if name in tables else read_source(sources[name], rules) for name in sources}
    )
    present = sorted({team for teams in results.models.values() for team in teams}, key=byte_order)
    for kind, named in (("baseline", baselines), ("disqualified team", disqualified)):
        if missing := sorted(set(named) - set(present)):
            listed = ", ".join(present[:20]) + (" ..." if len(present) > 20 else "")
            raise ScoringError(f"the {kind} {missing[0]!r} is in none of the folders. Their teams: {listed}.")
    excluded = {*disqualified, *(team for each in tables.values() for team in each.disqualified)}
    results = results.without(excluded)
    scores = score_competition(results, rules)
    unranked = {*baselines, *([rules.baseline] if rules.baseline else [])}
    unranked |= {
        team for each in scores.models if each.model in tables for team in published_baselines(tables[each.model], each)
    }
    entrants = [
        *(Entrant(each.team, role="baseline" if each.team in unranked else "participant") for each in scores.totals),
        *(Entrant(team, disqualified="named as disqualified") for team in sorted(excluded, key=byte_order)),
    ]
    ranking = rank(scores, entrants)
    files = {each.model: official_files(each, rules, unranked) for each in scores.models}
    reproductions = tuple(
        compare(tables[each.model], each, files[each.model]) for each in scores.models if each.model in tables
    )
    for model, content in files.items():
        content.write(out / model)
    write_ranking(out, ranking, scores, ranking_file(ranking, scores))
    return Rescored(scores, ranking, reproductions)


def _names(folders: Sequence[Path], out: Path) -> dict[str, Path]:
    """Name each folder by the fewest last parts of its path that tell it from the others."""
    try:
        resolved = [folder.resolve(strict=True) for folder in folders]
    except (OSError, RuntimeError) as error:
        raise ScoringError(f"{error}. Name one model's folder of results, or of published tables.") from error
    if not folders or len(set(resolved)) < len(resolved):
        raise ScoringError("no folder is named, or one is named twice. Name one folder for each model.")
    out = out.resolve()
    for folder in resolved:  # where the next run would take the results for a team or for published tables
        inside = folder == out or folder in out.parents
        if folder.parent == out or (inside and out.relative_to(folder).parts[:1] != (OFFICIAL_RESULTS_FOLDER,)):
            raise ScoringError(f"{out}: would write into the results of {folder}. Choose a folder beside it.")
    for depth in range(1, max(len(path.parts) for path in resolved) + 1):
        names = ["_".join(path.parts[-depth:]).strip("/\\:_") for path in resolved]
        if len(set(names)) == len(names):
            break
    if unnamed := next((path for path, name in zip(resolved, names, strict=True) if not name), None):
        raise ScoringError(f"{unnamed}: has no name of its own. Put one model's results into a folder of its own.")
    return dict(sorted(zip(names, resolved, strict=True), key=lambda each: byte_order(each[0])))

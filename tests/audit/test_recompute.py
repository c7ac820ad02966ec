"""Everything from the replies to the ranking is recomputed: altered values are named with those they should be."""

import json
import shutil
from pathlib import Path

import pytest
from evaluated_competition import make_evaluated

from pcgeval.audit.recompute import recompute
from pcgeval.core.params import load_params


@pytest.fixture(scope="module")
def competition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_evaluated(tmp_path_factory.mktemp("competition"))


@pytest.fixture
def folder(competition: Path, tmp_path: Path) -> Path:
    return Path(
        shutil.copytree(competition, tmp_path / "copy", ignore=shutil.ignore_patterns("src", ".cache", ".pcgeval"))
    )


def test_a_good_run_has_no_difference(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    found = recompute(folder, load_params(folder / "params.yaml"), sample=None)
    assert (found.differences, found.faults, found.notes) == ((), (), ())
    done = found.recomputed
    assert (done.replies, done.levels, done.scores, done.diversities) == (16, 16, 16, 8)
    assert done.simulations == done.classifications == done.all_levels > 0
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_another_total_in_the_ranking_is_named_with_both_values(folder: Path) -> None:
    path = folder / "results/ranking.json"
    ranking = json.loads(path.read_text())
    true = ranking["teams"][0]["total"]
    ranking["teams"][0]["total"] = "999"
    path.write_text(json.dumps(ranking, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    (difference,) = recompute(folder, load_params(folder / "params.yaml"), sample=0).differences
    assert (difference.path, difference.stage) == ("results/ranking.json", "rank")
    assert difference.place == f"teams[{ranking['teams'][0]['team']}].total"
    assert (difference.found, difference.recomputed[1:12]) == ("'999'", true[:11])

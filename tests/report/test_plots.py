from evaluated_round import PARAMS
from lxml import etree

from pcgeval.core.layout import RANKING_JSON
from pcgeval.core.stage_files import RankingFile
from pcgeval.report.formats import figure
from pcgeval.report.render import write_report


def test_the_plots_show_all_scores(evaluated, tmp_path):
    write_report(PARAMS, evaluated, tmp_path)
    letters, models = ((tmp_path / "plots" / name).read_bytes() for name in ("letters.svg", "models.svg"))
    scored = [team for team in RankingFile.read(evaluated / RANKING_JSON).teams if team.models]
    cells = len(scored) * len(PARAMS.models) * len(PARAMS.competition.characters)
    assert len(etree.fromstring(letters).findall(".//{*}rect")) == cells + 1  # and the background
    words = [each.text for each in etree.fromstring(models).findall(".//{*}text")]
    shares = [f"{figure(team.models[model].normalised, 2)} %" for model in PARAMS.models for team in scored]
    assert [word for word in words if word.endswith(" %")] == shares

"""The foot of the page: what the scores were made with."""

from collections.abc import Iterable, Mapping

from pcgeval.core.params import Model
from pcgeval.report.html import Html, element, shortened
from pcgeval.report.overview import scrolling
from pcgeval.report.results import Evaluation

LONGEST_VALUE = 300  # characters
_SECTIONS = ("competition", "physics", "similarity", "diversity", "scoring", "rubric")


def provenance(evaluation: Evaluation) -> Html:
    """Return the engine, the classifier, the models and the parameters behind every score."""
    params, ranking = evaluation.params, evaluation.ranking
    tools = {"Physics engine": ranking.engine, "Classifier": ranking.classifier, "Rules": _rules(evaluation)}
    values = params.model_dump(mode="json")
    sections = [element("div", element("h3", name), _pairs(values[name])) for name in _SECTIONS]
    return element(
        "section",
        element("h2", "What this was made with"),
        _pairs(tools),
        scrolling(_models(params.models), "Models"),
        element("details", element("summary", "Parameters"), element("div", *sections, class_="params")),
        id="provenance",
    )


def _rules(evaluation: Evaluation) -> str:
    quirks = evaluation.params.scoring.official_quirks
    return "ChatGPT4PCG and LLMs4PCG, " + ("with the official script's quirks" if quirks else "as published")


def _models(models: Mapping[str, Model]) -> Html:
    rows = [
        element(
            "tr",
            element("th", key, scope="row"),
            element("td", shortened(model.name, LONGEST_VALUE)),
            element("td", model.backend),
            element("td", element("code", model.digest or "not pinned"), class_="hash"),
            element("td", shortened(_options(model), LONGEST_VALUE)),
        )
        for key, model in models.items()
    ]
    columns = ("model", "name", "backend", "digest (SHA-256)", "options")
    head = element("thead", element("tr", *(element("th", each, scope="col") for each in columns)))
    return element("table", head, element("tbody", *rows), class_="models")


def _options(model: Model) -> str:
    return ", ".join(f"{name} {value}" for name, value in model.options.items())


def _pairs(values: Mapping[str, object]) -> Html:
    pairs: Iterable[Html] = (
        element("div", element("dt", name), element("dd", shortened(_shown(value), LONGEST_VALUE)))
        for name, value in values.items()
    )
    return element("dl", *pairs, class_="pairs")


def _shown(value: object) -> str:
    if isinstance(value, Mapping):  # the judge's model
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items() if each not in (None, [], {}))
    return "none" if value is None else ("yes" if value else "no") if isinstance(value, bool) else str(value)

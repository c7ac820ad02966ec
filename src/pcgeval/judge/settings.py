"""The input of one grading: its settings, made once and passed whole, and the submission with its rubric."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import ValidationError, field_validator, model_validator

from pcgeval.checks.evidence import Evidence, PaperEvidence
from pcgeval.core.errors import PcgevalError
from pcgeval.formats.params import Model, Price, RubricParams, explained_faults
from pcgeval.llm.backends import find_model, named_model
from pcgeval.llm.protocol import OPENAI_URL, USUAL_CONTEXT, profile_of
from pcgeval.rubric.tree import Node, TaskNode, code_only

GPT_4O = "gpt-4o-2024-08-06"  # the model of PaperBench's judge where none is named
_LEAST_ROOM = 2000  # tokens for an answer, in a context that has them
_HOSTED_CONCURRENCY = 8  # calls at once where nobody set a number
_RENAMED = {"max_tokens": "num_predict", "max_completion_tokens": "num_predict", "n_ctx": "num_ctx"}
_COMPLETER = ("temperature", "top_p", "seed", "reasoning_effort", "presence_penalty", "frequency_penalty")
_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1", "0.0.0.0")  # noqa: S104 - compared, not listened to


class GradingError(PcgevalError):
    """A grading that is impossible: an invalid setting, no model, no submission."""


class JudgeSettings(RubricParams):
    """The section `rubric` of params.yaml, and the settings of a single grading."""

    human_grades: Path | None = None  # the file of the judge `human`
    checks_file: Path | None = None  # checks for leaves of the rubric, instead of the checks.yaml in a paper's folder

    @field_validator("papers_dir", mode="before")
    @classmethod
    def _path_as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, Path) else value

    @model_validator(mode="after")
    def _check_calls(self) -> Self:
        if self.judge != "simple" or self.model is None:
            return self
        temperature = self.model.options.get("temperature", profile_of(self.model).temperature)
        if self.votes > 1 and temperature is not None and float(temperature) == 0:
            raise ValueError(
                f"votes is {self.votes}, but at temperature 0 all votes are the same. Give the model a temperature (in "
                "its options), or ask for 1 vote"
            )
        if self.max_cost is not None and self.price is None and not self.is_replay:
            raise ValueError(
                f"max_cost is {self.max_cost:g} US dollars, but the price of {self.model.name} is unknown. Give it in "
                "params.yaml (rubric.model.profile.price), or bound the tokens with token_budget"
            )
        return self

    @classmethod
    def of(cls, given: "JudgeSettings | None", **changes: Any) -> Self:
        """Return the given settings, else those of the judge `simple`, with the changes that are not None.

        A model beside settings that name no judge means `simple`. `judge` is a name or a class such as SimpleJudge,
        `model` a completer's configuration (see `model_of`). Where nobody names a model, the judge `simple` asks
        GPT-4o, as in PaperBench. Raises GradingError.
        """
        values: dict[str, Any] = {"judge": "simple"} if given is None else dict(given)
        changes = {name: value for name, value in changes.items() if value is not None}
        if given is not None and "judge" not in given.model_fields_set and "model" in changes:
            values["judge"] = "simple"
        values |= changes
        values["judge"] = getattr(values["judge"], "judge_type", values["judge"])
        if values["judge"] == "simple" or "model" in changes:
            model = values.get("model")
            values["model"] = model_of({"model": GPT_4O} if model is None else model)
        return cls.checked(values)

    @property
    def price(self) -> Price | None:
        """The model's price: the one in its own profile, else the known one of exactly this name; None if unknown."""
        return None if self.model is None else profile_of(self.model).price

    @property
    def concurrency(self) -> int:
        """Calls under way at once: the model's number, else 8 at a hosted endpoint; a replay needs one."""
        if self.model is None or self.is_replay:
            return 1
        host = urlsplit(self.model.base_url or "").hostname
        is_free = "concurrency" not in self.model.model_fields_set
        return _HOSTED_CONCURRENCY if is_free and host not in (None, *_LOCAL_HOSTS) else self.model.concurrency

    @property
    def judge_model(self) -> Model:
        """The model of a judge that has one."""
        assert self.model is not None  # noqa: S101 - no other judge is asked for it
        return self.model

    @property
    def context_tokens(self) -> int:
        """Tokens of one call, the answer included."""
        usual = min(profile_of(self.judge_model).context or USUAL_CONTEXT, USUAL_CONTEXT)
        return int(self.context or self.judge_model.options.get("num_ctx") or usual)

    @property
    def answer_tokens(self) -> int | None:
        """Room for an answer in tokens; None: none is reserved or sent.

        At most a quarter of the context, but 2 000 tokens where these are no more than half of it.
        """
        if given := self.max_tokens or self.judge_model.options.get("num_predict"):
            return int(given)
        room = profile_of(self.judge_model).answer_tokens
        return room and min(room, max(self.context_tokens // 4, _LEAST_ROOM), self.context_tokens // 2)

    @property
    def reads_submission(self) -> bool:
        """Whether the judge looks at the submission, so that results of reproduce.sh matter."""
        return self.judge in {"simple", "checks"}

    @property
    def is_replay(self) -> bool:
        """Whether the model's replies come from recordings alone."""
        return self.model is not None and self.model.backend == "recorded"

    @classmethod
    def checked(cls, values: Mapping[str, Any]) -> Self:
        """Return settings with these values; raises GradingError if one is invalid."""
        try:
            return cls(**values)
        except ValidationError as error:
            faults = " ".join(explained_faults(error, cls))
            raise GradingError(f"{faults} See `rubric` in params.yaml.") from error

    def graded_part(self, rubric: Node) -> Node:
        """Return the part of a rubric that is graded; raises RubricError if nothing is left."""
        if self.code_only:
            rubric = code_only(rubric)
        if self.resources_provided:
            rubric = rubric.resources_provided(propagate_zero_weights=self.propagate_zero_weights)
        return rubric if self.max_depth is None else rubric.prune_to_depth(self.max_depth - 1)


def model_of(config: Any) -> Model | Mapping[str, Any]:
    """Return the model that a completer's configuration means; raises GradingError for one without a known meaning.

    It is a model; its fields as in params.yaml; its name alone (see `named_model`); or the settings of a completer in
    PaperBench, as an object with `model` or as `{"model": "gpt-4o-2024-08-06"}`, with perhaps reasoning_effort,
    temperature, max_tokens, top_p, seed, base_url: a model at that endpoint, at OPENAI_BASE_URL, or at OpenAI's.
    Settings that are no number or text, such as None, are not sent.
    """
    if isinstance(config, str):
        return named_model(config)
    if isinstance(config, Model) or (isinstance(config, Mapping) and "model" not in config):
        return config
    known = ("model", "base_url", "num_predict", *_COMPLETER, *_RENAMED)
    values = config if isinstance(config, Mapping) else {name: getattr(config, name, None) for name in known}
    given = {name: value for name, value in values.items() if isinstance(value, int | float | str)}
    if unknown := sorted(set(given) - set(known)):
        raise GradingError(f"completer_config: {unknown[0]!r} is not known. Use some of {', '.join(known)}.")
    if "model" not in given:
        raise GradingError(f"completer_config: {config!r:.100} has no `model`. Give the model's name there.")
    name, base_url = str(given.pop("model")), str(given.pop("base_url", ""))
    if not base_url and find_model(name) is None:
        base_url = os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
    options = {_RENAMED.get(setting, setting): value for setting, value in given.items()}
    return {**named_model(name, base_url or None), "options": options}


@dataclass(frozen=True)
class GradingTask:
    """A submission, the rubric that it is graded by, and all that a judge is told."""

    rubric: TaskNode  # the whole rubric
    folder: Path  # the submission; nothing outside is ever read
    # the input of the checks; it also says whether the submission reproduces a paper or takes part in the competition
    evidence: Evidence | PaperEvidence
    paper: str = ""  # the paper's text; for the competition, its rules in words
    addendum: str = ""  # clarifications by the rubric's authors for the submitters
    judge_addendum: str = ""  # their clarifications for the judge alone
    checks_sha256: str | None = None  # of the file beside the rubric that gave leaves their checks, if there is one
    human_grades: Path | None = None  # the file of a person's grades of this submission, if the settings name none

    @property
    def run(self) -> PaperEvidence | None:
        """The attempt to reproduce a paper; None for the competition."""
        return self.evidence if isinstance(self.evidence, PaperEvidence) else None

"""params.yaml as one frozen model: the only source of everything that can change a score."""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from pcgeval.core.errors import PcgevalError
from pcgeval.core.text import printable_line
from pcgeval.core.untrusted import UntrustedFileError, parse_yaml, read_text
from pcgeval.formats.layout import CLASSIFIER, LETTERS, Trial

PARAMS_FILE = "params.yaml"
ANY_CLASSIFIER = "any classifier"  # the context of commands that evaluate no competition
RESERVED_TEAMS = ("logs", "result")  # the official tools' own folders beside the teams'
_MAX_BYTES = 2**18
_MAX_PRICE = 1e9  # so that the price of any grading is a finite number
_MAX_SECONDS = 1e9  # a socket takes no time-out of over 292 years
_SHOWN = 200  # characters of a refused value in a message
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DURATION = re.compile(r"0|-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+")  # of the language Go
_ENDPOINT = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")
# options of models that must be numbers: a server would refuse them in every trial
_WHOLE_NUMBERS = {"seed", "num_predict", "num_ctx", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread"}
_WHOLE_NUMBERS |= {"top_k", "repeat_last_n", "mirostat"}
_NUMBERS = {"temperature", "top_p", "min_p", "typical_p", "tfs_z", "mirostat_tau", "mirostat_eta"}
_NUMBERS |= {"repeat_penalty", "presence_penalty", "frequency_penalty"}
# options of a judge's model that are settings of the judge, too
JUDGE_OPTIONS = {"num_ctx": "context", "num_predict": "max_tokens", "seed": "seed"}
# settings that a backend would ignore
_FOREIGN = {"ollama": ("base_url",), "openai": ("host", "keep_alive"), "llamacpp": ("host", "base_url", "keep_alive")}
HUB_ID = re.compile(r"(?!data/)[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
COMMIT = re.compile(r"[0-9a-f]{40}")


class ParamsError(PcgevalError):
    """params.yaml is missing, is no YAML, or holds an invalid value."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Round(_Section):
    """Letters, trials and seed of another round of the same competition; without a seed, one is derived."""

    characters: str
    trials: int = Field(ge=1, le=1000)
    seed: int | None = Field(None, ge=0, lt=2**31)

    @field_validator("characters")
    @classmethod
    def _letters(cls, value: str) -> str:
        if not value or len(set(value)) != len(value) or not set(value) <= set(LETTERS):
            raise ValueError("must be capital letters A to Z, each once, such as ABC")
        return "".join(sorted(value))


class Competition(Round):
    """The round that is evaluated."""

    name: str
    edition: str
    round: str = "final"
    seed: int = Field(ge=0, lt=2**31)


class Team(_Section):
    """The organiser's decisions about a team."""

    title: Annotated[str, Field(max_length=200)] | None = None  # of its page; without one, the team's name
    entry: Annotated[str, Field(max_length=400)] | None = None  # the file that starts its program
    role: Literal["participant", "baseline"] = "participant"
    disqualified: Annotated[str, Field(max_length=2000)] | None = None  # the reason


class Price(_Section):
    """US dollars per million tokens; `cached` is the price of input in the endpoint's cache."""

    input: float = Field(ge=0, le=_MAX_PRICE)
    output: float = Field(ge=0, le=_MAX_PRICE)
    cached: float | None = Field(None, ge=0, le=_MAX_PRICE)

    def cost(self, prompt_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """Return the price in US dollars; `cached_tokens` are part of `prompt_tokens`."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(prompt_tokens - cached_tokens, 0)
        return (fresh * self.input + cached_tokens * cached + output_tokens * self.output) / 1e6


class ModelProfile(_Section):
    """The limits of a model, and the fields of a request to it."""

    context: int | None = Field(None, ge=1024, le=2**24)  # tokens of a prompt and its answer together
    answer_tokens: int | None = Field(4_000, ge=16)  # room for an answer, a reasoning model's thoughts included
    reasoning_effort: str | None = None  # low, medium, high, or what else the endpoint takes
    temperature: int | float | None = Field(0, ge=0, le=2)
    seed: bool = True  # whether a seed is sent
    # the name of the field that bounds the answer
    limit_field: Literal["max_tokens", "max_completion_tokens", "max_output_tokens"] | None = "max_tokens"
    structured_output: Literal["json_schema", "json_object"] | None = "json_schema"
    price: Price | None = None


class Model(_Section):
    """One language model: where it runs, its exact bytes, and its sampling options.

    A replay (`recorded`) ignores `host`, `keep_alive` and `base_url`, so that `backend` alone turns a run into one.
    """

    backend: Literal["recorded", "ollama", "llamacpp", "openai"]
    name: str = Field(min_length=1)
    # in recordings of the backend openai, "unpinned:" and the hash of the name
    digest: Annotated[str, Field(pattern=r"^(unpinned:)?[0-9a-f]{64}$")] | None = None
    host: str | None = None  # of Ollama; default: OLLAMA_HOST, else this machine
    base_url: str | None = None  # of the backend openai; its key comes from OPENAI_API_KEY
    keep_alive: int | str | None = None  # how long Ollama keeps the model loaded: 5m, or seconds; -1: for ever
    stream: bool = True
    concurrency: int = Field(1, ge=1, le=256)  # trials that run at once
    options: dict[str, int | float | str | bool] = {}
    profile: ModelProfile | None = None  # of a judge; other fields are those known of the model

    @field_validator("keep_alive", mode="before")
    @classmethod
    def _duration(cls, value: Any) -> Any:
        if value is None or type(value) is int or (isinstance(value, str) and _DURATION.fullmatch(value)):
            return value
        raise ValueError("must be a duration such as 5m, 1h30m or -1m (for ever), or a number of seconds")

    @field_validator("options")
    @classmethod
    def _numbers(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, option in value.items():
            if name in _WHOLE_NUMBERS and type(option) is not int:
                raise ValueError(f"{name} must be a whole number")
            if name in _NUMBERS and type(option) not in {int, float}:
                raise ValueError(f"{name} must be a number")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "Model":
        for field in _FOREIGN.get(self.backend, ()):
            if getattr(self, field) is not None:
                raise ValueError(f"the backend {self.backend} takes no {field}; remove it")
        if "@" in (self.host or ""):
            raise ValueError("a host's address holds a password, which would be committed to git; remove it")
        if self.backend == "openai" and not _ENDPOINT.fullmatch(self.base_url or ""):
            example = "http://127.0.0.1:1234/v1, without a key or password in it"
            raise ValueError(f"the backend openai needs a base_url such as {example}")
        if self.backend == "openai" and self.digest is not None:
            raise ValueError("the backend openai shows no digest of its model, so none can be pinned; remove it")
        if self.backend == "llamacpp" and self.concurrency > 1:
            raise ValueError("the backend llamacpp answers one call at a time; set concurrency to 1")
        return self


class Limits(_Section):
    """Limits of one trial; the 2025 final: 25 000 tokens and 500 s, prompts of at most 900 words."""

    tokens: int = Field(ge=1)  # prompt and output together
    seconds: float = Field(gt=0, le=_MAX_SECONDS)  # after which no call begins
    # after `seconds`, for a running call and for the program's end; the default is the openai client's timeout, which
    # the competition's package leaves as it is
    call_seconds: float = Field(600.0, ge=0, le=_MAX_SECONDS)
    prompt_words: int = Field(ge=1)
    outage_seconds: float = Field(3600.0, ge=0, le=_MAX_SECONDS)  # for which a run waits for a server that is away


class PhysicsParams(_Section):
    """Settings of the simulation; lengths in metres, times in seconds."""

    engine: Literal["pymunk", "box2d"] = "pymunk"
    trials: int = Field(3, ge=1, le=100)  # best of; stops at a score of 1
    jitter: float = Field(1e-4, ge=0, le=0.01)  # of the start positions, from the second trial on
    starts: int = Field(0, ge=0, le=1000)  # more trials with a jitter, which show how fragile a level is
    seed: int = Field(0, ge=0, lt=2**31)
    seconds: float = Field(10.0, gt=0, le=60)
    step: float = Field(0.02, ge=0.001, le=0.1)
    iterations: int | None = Field(None, ge=1, le=1000)  # null: 55 in pymunk; 100 in box2d, as officially
    moved_distance: float = Field(0.1, gt=0)
    life: float = Field(5.0, gt=0)  # a block dies when contacts have taken this much, in m/s of relative speed


class Similarity(_Section):
    """The classifier: a folder, or a hub's id with the revision (commit) that pins its bytes.

    The only folder of a competition is data/classifier, as DVC would not notice a change in another one.
    """

    model: str = str(CLASSIFIER)
    revision: str | None = None
    batch: int = Field(32, ge=1, le=4096)
    device: str = "cpu"
    precision: Literal["float64", "float32", "bfloat16"] = "float64"  # the others differ from machine to machine


class Diversity(_Section):
    """The vectors that are compared: `softmax` (the rules) or `cls` (the 2025 script)."""

    vectors: Literal["softmax", "cls"] = "softmax"


class Scoring(_Section):
    """Settings of the scores and the ranking."""

    baseline: str | None = None  # the winner must beat this team
    official_quirks: bool = False
    bootstrap: int = Field(1000, ge=0, le=100_000)


class RubricParams(_Section):
    """The rubric that grades the submissions, and the judge of its leaves.

    The fields from `model` to `call_seconds` are for the judge `simple`; the model's options override its profile.
    """

    id: str = "competition"
    judge: Literal["simple", "checks", "random", "dummy", "human"] = "checks"
    seed: int = Field(0, ge=0, lt=2**31)
    model: Model | None = None
    votes: int = Field(1, ge=1, le=99)  # gradings of each leaf; several need a temperature
    # tokens of one call, the answer included; None: the profile's, of a hosted model at most 128 000
    context: int | None = Field(None, ge=1024, le=2**24)
    max_tokens: int | None = Field(None, ge=16)  # of one answer, thoughts included; None: the profile's
    prompts: Literal["pcgeval", "paperbench"] = "pcgeval"  # the second asks PaperBench's questions
    call_seconds: float = Field(600.0, gt=0)  # of one call
    deadline: float | None = Field(None, gt=0)  # seconds of a grading; later leaves have no grade
    max_cost: float | None = Field(None, gt=0)  # US dollars of a grading, by the price in the model's profile
    token_budget: int | None = Field(None, ge=1)  # of a grading, read and written
    papers_dir: str = "data/papers"  # may be that of a checkout of PaperBench
    code_only: bool = False  # grade only the leaves about code, and do not run reproduce.sh
    resources_provided: bool = False  # weight 0 for acquiring data sets and models, which were handed out
    propagate_zero_weights: bool = False  # and for nodes below which every weight is 0
    max_depth: int | None = Field(None, ge=1)  # levels of the rubric; the last grades deeper nodes as a whole
    max_prior_nodes: int | None = Field(None, ge=1)  # criteria before a leaf that its prompt shows; None: all
    ignore_checks: bool = False  # ask the model about leaves with a check too
    # a grading counts beside others while its score is known within this width; leaves without a grade widen it
    max_width: float = Field(0.05, ge=0, le=1)

    @model_validator(mode="after")
    def _consistent(self) -> "RubricParams":
        if self.judge == "simple" and self.model is None:
            raise ValueError("the judge simple needs a model; add one with backend, name and digest, as in `models`")
        options = self.model.options if self.model else {}
        for option, setting in JUDGE_OPTIONS.items():
            value = getattr(self, setting)
            if option in options and value and options[option] != value:
                raise ValueError(f"{setting} is {value}, but model.options.{option} is {options[option]!r}; keep one")
        for option in ("num_ctx", "num_predict"):
            if int(options.get(option, 1)) < 1:
                raise ValueError(f"model.options.{option} is {options[option]}; give a number of tokens")
        return self


class Execution(_Section):
    """Where stages are computed; it changes no byte, so no stage depends on it."""

    # of a Dask cluster, such as tcp://10.0.0.1:8786; None: this machine
    scheduler: Annotated[str, Field(pattern=r"^(tcp|tls|ws|wss)://[^\s@]+$")] | None = None


class Params(_Section):
    """All of params.yaml; the sections that dvc.yaml names are required."""

    competition: Competition
    rounds: dict[str, Round] = {}
    teams: dict[str, Team] = Field(min_length=1)
    models: dict[str, Model] = Field(min_length=1)
    limits: Limits
    physics: PhysicsParams
    similarity: Similarity
    diversity: Diversity
    scoring: Scoring
    rubric: RubricParams
    execution: Execution = Execution()

    def trials(self, letters: str = "") -> Iterator[Trial]:
        """Yield the trials of one team and model in order, of some letters or of all."""
        for letter in letters or self.competition.characters:
            for number in range(1, self.competition.trials + 1):
                yield Trial(letter, number)

    @field_validator("teams", mode="before")
    @classmethod
    def _teams(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: {} if team is None else team for name, team in value.items()}
        if isinstance(value, list | tuple):
            raise ValueError(  # noqa: TRY004 - pydantic takes no TypeError
                "is a list, as in older versions. Run `pcgeval init . --upgrade`, which rewrites it"
            )
        return value

    @model_validator(mode="after")
    def _names(self) -> "Params":
        for name in (*self.teams, *self.models):
            if fault := team_name_fault(name):
                raise ValueError(f"{name!r}: {fault}")
        urls: dict[str, str | None] = {}  # the name alone identifies a model that reports no digest
        for key, model in self.models.items():
            if "seed" in model.options:
                fault = "options.seed would be ignored, as a trial's seed follows from competition.seed"
                raise ValueError(f"models: {key!r}: {fault}; set that, and remove options.seed")
            if model.backend == "openai" and urls.setdefault(model.name, model.base_url) != model.base_url:
                fault = "but have different base_url, so their replies could not be told apart; rename one"
                raise ValueError(f"models: {key!r} and another are named {model.name!r}, {fault}")
        if len({team.casefold() for team in self.teams}) != len(self.teams):
            raise ValueError("teams: a name stands twice (upper and lower case count as the same, as on some disks)")
        if self.scoring.baseline not in {None, *self.teams}:
            teams = ", ".join(self.teams)
            raise ValueError(f"scoring.baseline: {self.scoring.baseline!r} is none of the teams {teams}")
        return self

    @model_validator(mode="after")
    def _pinned_classifier(self, info: ValidationInfo) -> "Params":
        model, revision = self.similarity.model, self.similarity.revision
        is_pinned = HUB_ID.fullmatch(model) and COMMIT.fullmatch(revision or "")
        if model != str(CLASSIFIER) and not is_pinned and info.context != ANY_CLASSIFIER:
            remedy = f"Copy the classifier's files to {CLASSIFIER} and name that, or name a model of the hub, such as "
            remedy += "owner/name, and as similarity.revision the 40-digit commit of its page"
            raise ValueError(f"similarity.model: {model!r} with the revision {revision!r} is not pinned. {remedy}")
        return self


def team_name_fault(name: str) -> str | None:
    """Return the rule that the name of a team or a model breaks, in words that follow it; None if it breaks none."""
    if not _NAME.fullmatch(name):
        return "names are 1 to 64 of A-Z a-z 0-9 _ - and start with none of _ -"
    if name.lower() in {*RESERVED_TEAMS, "judge"}:  # the judge's recordings lie beside those of the models
        return "the name is reserved; choose another"
    return None


def load_params(path: Path = Path(PARAMS_FILE), *, allow_aliases: bool = True) -> Params:
    """Read and check params.yaml; that of a stranger may have no aliases.

    Raises:
        ParamsError: Every problem of the file, one line each, with a suggestion for misspelt keys.
    """
    try:
        values = parse_yaml(read_text(path, _MAX_BYTES, follow_link=True), allow_aliases=allow_aliases)
    except UntrustedFileError as error:
        missing = "Run this in a competition's folder; `pcgeval init` makes one."
        raise ParamsError(f"{path}: {error.reason}. {missing if error.kind == 'missing' else error.remedy}") from error
    except ValueError as error:
        raise ParamsError(f"{path}: not valid YAML: {printable_line(str(error))}. Correct it.") from error
    return parse_params(values, str(path))


def parse_params(values: Any, source: str, *, context: str | None = None) -> Params:
    """Check values as read from YAML; raise ParamsError with every problem, one line each, after the `source`.

    With the context ANY_CLASSIFIER, the classifier may lie in any folder.
    """
    try:
        return Params.model_validate(values, context=context)
    except ValidationError as error:
        raise ParamsError("\n".join(f"{source}: {fault}" for fault in explained_faults(error))) from error


def explained_faults(error: ValidationError, model: type[BaseModel] = Params) -> list[str]:
    """Return a sentence or two about each value that a model of settings refused."""
    return [_explained(dict(fault), model) for fault in error.errors()]


def _explained(fault: dict[str, Any], model: type[BaseModel]) -> str:
    place = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden":
        known = _known_keys(model, fault["loc"][:-1])
        close = difflib.get_close_matches(str(fault["loc"][-1]), known, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Known keys: {', '.join(known)}."
        return f"unknown key {place!r}. {hint}"
    if fault["type"] == "missing":
        return f"{place!r} is missing. Add it."
    rule = str(fault["msg"]).removeprefix("Value error, ").replace("Input should", "must")
    if fault["type"] in {"model_type", "dict_type"}:  # pydantic names our classes
        rule = "must be keys with values"
    return f"{place}: {rule} (found {repr(fault['input'])[:_SHOWN]})." if place else f"{rule}."


def _known_keys(model: type[BaseModel], place: tuple[Any, ...]) -> list[str]:
    section: Any = model
    for part in place:
        field = section.model_fields.get(part)
        kinds = (field.annotation, *get_args(field.annotation)) if field else ()  # none: a name in `models` or `rounds`
        section = next((kind for kind in kinds if hasattr(kind, "model_fields")), section)
    return sorted(section.model_fields)

"""The table of failures: why a trial has no level, whose failure it is, and whether a later run tries again.

Every stage, command and page that names a failure reads it from here; docs/failures.md is made from the same table.
"""

from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict, model_validator, with_config

from pcgeval.core.text import number, printable_line
from pcgeval.formats.blocks import NAMES

Owner = Literal["submission", "server", "machine"]
FailureStage = Literal["generate", "extract", "convert", "simulate"]


@dataclass(frozen=True)
class FailureType:
    """One row of the table.

    Attributes:
        stage: The stage that finds the failure and writes it.
        title: The failure in two or three words, for tables.
        sentence: The sentence about one trial, with the names of its values in braces.
        options: The options of a model in params.yaml that decide it, too, so that many such failures are no team's.
        owner: Whose failure it is. Only a failure of the submission is a result of the team.
        is_final: Whether a later run leaves the trial as it is.
    """

    stage: FailureStage
    title: str
    sentence: str
    options: tuple[str, ...] = ()
    owner: Owner = "submission"
    is_final: bool = True


FAILURES: dict[str, FailureType] = {
    # generate: the trial has no response
    "too-many-tokens": FailureType("generate", "token limit", "used {used} tokens; the limit is {limit}"),
    "late-call": FailureType(
        "generate", "time limit", "took more than {seconds} s, after which no call begins, and gave no answer"
    ),
    "overtime": FailureType(
        "generate", "time limit", "took more than {seconds} s and did not end in the {call_seconds} s for its last call"
    ),
    "context-exceeded": FailureType(
        "generate", "prompt too long", "the prompt is longer than the model's context{size}"
    ),
    "filtered": FailureType("generate", "content filter", "a content filter refused the request"),
    "request-fails": FailureType(
        "generate",
        "request fails",
        "the server failed this request {attempts} times and answered a neutral request after each ({last})",
    ),
    "program-error": FailureType("generate", "program error", "the program raised an error before it gave an answer"),
    "program-ended": FailureType(
        "generate", "program ended", "the program ended with exit code {code} before it gave an answer"
    ),
    "program-stopped": FailureType("generate", "program stopped", "the program gave no answer: it {limit}"),
    "program-protocol": FailureType("generate", "program error", "the program {fault}"),
    "requirements-refused": FailureType(
        "generate", "requirements refused", "requirements.txt holds a line that names no package of the index"
    ),
    "requirements-unmet": FailureType(
        "generate",
        "requirements unmet",
        "the package index has no versions that requirements.txt asks for as wheels",
        is_final=False,
    ),
    "server-failed": FailureType(
        "generate", "server failed", "the model's server failed: {fault}", owner="server", is_final=False
    ),
    "reply-unknown": FailureType("generate", "reply not recorded", "asked the model what no recording answers"),
    "no-sandbox": FailureType(
        "generate", "no sandbox", "this machine could not run the program in a sandbox", owner="machine", is_final=False
    ),
    # extract: the response has no call
    "cut-off": FailureType("extract", "cut off", "cut off after {tokens} tokens ({limit})", ("num_predict", "num_ctx")),
    "thoughts-only": FailureType(
        "extract", "only thoughts", "{tokens} tokens of thoughts and no text", ("num_predict", "num_ctx")
    ),
    "context-filled": FailureType(
        "extract", "context filled", "the prompt filled the context of {context} tokens", ("num_ctx",)
    ),
    "model-refused": FailureType("extract", "content filter", "the model refused, or a filter ended the reply"),
    "empty-response": FailureType("extract", "no text", "the response is empty"),
    "response-unreadable": FailureType("extract", "unreadable", "the file of the response {fault}"),
    "no-fence": FailureType("extract", "no fence", "the response holds {calls} and no fenced block (```...```)"),
    "open-fence": FailureType(
        "extract", "fence not closed", "line {line}: the fenced block that begins there is never closed"
    ),
    "backtick": FailureType(
        "extract",
        "backtick in fence",
        "line {line}: the fenced block that begins there holds a backtick in line {place}, so it is not read",
    ),
    "earlier-fence": FailureType(
        "extract",
        "earlier fence",
        "an earlier fence held the level ({calls}, line {line}); only the last one counts, and it holds none",
    ),
    "unread-call": FailureType("extract", "call not read", "line {line}: `{call}` {fault}"),
    "no-call": FailureType(
        "extract", "no call", "the last fenced block, lines {line} to {last}, holds no drop_block call"
    ),
    # convert: the calls are no level; the first words are the official converter's message
    "unknown-block": FailureType(
        "convert",
        "unknown block",
        f"BlockType does not exist. (call {{number}}: `{{call}}`; the types are {NAMES})",
    ),
    "no-column": FailureType(
        "convert",
        "no such column",
        "Height boundary is intruded. (call {number}: `{call}`; the columns are 0 to {last})",
    ),
    "too-high": FailureType(
        "convert",
        "too high",
        "Height boundary is intruded. (call {number}: `{call}`; {free} of {rows} rows are free, and it needs {height})",
    ),
    "too-wide": FailureType(
        "convert",
        "too wide",
        "Width boundary is intruded. (call {number}: `{call}`; a {block} takes columns {first} to {last})",
    ),
    "code-unreadable": FailureType("convert", "unreadable", "the file of the calls {fault}"),
    # simulate
    "level-missing": FailureType("simulate", "no level", "the file of the level is missing"),
    "level-unreadable": FailureType("simulate", "unreadable", "the level cannot be simulated: {fault}"),
    "simulation-crashed": FailureType("simulate", "simulation crashed", "the physics engine crashed on this level"),
}


@with_config(ConfigDict(strict=True, extra="forbid"))
@dataclass(frozen=True)
class Failure:
    """Why one trial has no level.

    Attributes:
        kind: The key of FAILURES.
        sentence: The English sentence, without paths, hosts, versions or foreign words, so that every run writes the
            same one.
        detail: The words of the server, the program or the package manager. An audit does not compare them.
    """

    kind: str
    sentence: str
    detail: str = ""

    @model_validator(mode="after")
    def _is_in_the_table(self) -> "Failure":
        if self.kind not in FAILURES:
            raise ValueError(f"{self.kind!r} is no kind of failure; the kinds are {', '.join(FAILURES)}")
        return self

    @property
    def type(self) -> FailureType:
        """The row of the table."""
        return FAILURES[self.kind]

    def __str__(self) -> str:
        """Return the sentence, with the detail if there is one."""
        return f"{self.sentence} ({self.detail})" if self.detail else self.sentence


def failure(kind: str, *, detail: str = "", **values: object) -> Failure:
    """Return a failure of a kind; `values` fill its sentence, and `detail` holds foreign words on one line."""
    shown = {name: number(value) if isinstance(value, int | float) else value for name, value in values.items()}
    return Failure(kind, FAILURES[kind].sentence.format(**shown), printable_line(detail))

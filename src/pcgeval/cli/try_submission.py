"""`pcgeval try`: run a few trials of one submission as the competition does, and score and draw each level at once.

No model is asked before all checks have passed. All files go into one folder, with the official names: responses,
calls, levels and pictures, and the output of programs. A second try in the same folder keeps the finished trials.
"""

import re
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import typer

from pcgeval.cli.models import SettingsError, find_model_to_ask, load_params_or_default
from pcgeval.cli.options import print_json, print_table, terminal_width
from pcgeval.core.console import EXIT_CHECK_FAILED, StatusLine, print_stderr
from pcgeval.core.files import write_bytes, write_text
from pcgeval.core.locks import lock_folder
from pcgeval.core.text import count, duration, printable_text
from pcgeval.core.untrusted import read_text
from pcgeval.evaluator.image import png_bytes
from pcgeval.formats.layout import EXTENSIONS, Trial, tag, trial_file
from pcgeval.formats.params import Params
from pcgeval.formats.trials import SuppliedBlocks, TrialRecord
from pcgeval.generation.generate import TeamTrials, do_trials
from pcgeval.generation.summaries import response_ending, supplied_blocks
from pcgeval.llm.backends import open_backend, pinned_digest
from pcgeval.llm.protocol import LlmError
from pcgeval.preview.level_score import LevelScore, ignored_lines, level_line, level_lines, score_level
from pcgeval.report.markup import render_template
from pcgeval.sandbox.sandbox import ResourceLimits, open_sandbox
from pcgeval.similarity.classifier import Classifier, loaded_classifier
from pcgeval.similarity.diversity import diversity
from pcgeval.submissions.load import Program, Submission
from pcgeval.submissions.packages import PackagesError, RequirementsError, interpreter_for
from pcgeval.submissions.validate import check, filed_entry, printable_findings, unpacked_submission

LOCK = ".pcgeval-try.lock"
MOST_DRAWN = 8  # trials whose levels are drawn without a word on it: a screen or two
MOST_IGNORED = 3  # lines of a response
OUTAGE_SECONDS = 30.0  # at most, for which a person waits for a server
_DIVERSITY_DIGITS = 7  # as in the official files


def run_try(
    path: Path,
    params: Params,
    out: Path | None,
    html: Path | None,
    *,
    drawings: bool | None,
    trust_programs: bool,
    json: bool,
) -> None:
    """Check a submission and everything that its trials need, run all trials of the params, and print them.

    An error that ends the try keeps and prints what is finished. Without a word on `drawings`, few trials are drawn.
    """
    ((key, model),) = params.models.items()
    with ExitStack() as stack:
        status = stack.enter_context(StatusLine())
        submission = _checked_submission(path, params, stack)
        folder = out or Path("rehearsals") / submission.team / key
        _check_outside(path, {"--out": folder, "--html": html})
        if isinstance(submission.work, Program):
            status.show("preparing the program's packages and sandbox")
            try:
                interpreter_for(submission.work.folder)
            except RequirementsError as error:
                print_stderr(f"error: {error.full_text}")
                raise typer.Exit(EXIT_CHECK_FAILED) from error
            except PackagesError as error:
                raise SettingsError(error.full_text) from error
            with open_sandbox(ResourceLimits(), trust_programs):
                pass
        status.show("loading the classifier")
        settings = params.similarity
        classifier = loaded_classifier(settings.model, settings.revision, settings.device, settings.precision)
        status.show(f"loading {model.name}" if model.backend == "llamacpp" else f"looking for {model.name}")
        draws = len([*params.trials()]) <= MOST_DRAWN if drawings is None else drawings
        tried = _Try(params, submission, classifier, folder, status, prints=not json, draws=draws)
        try:
            backend = open_backend(model)
            pinned_digest(model, backend)
        except LlmError as error:
            if model.backend != "ollama" or model.host is not None:
                raise
            known = f"model {model.name}: is none of `pcgeval models list`, so Ollama was asked for it"
            raise SettingsError(f"{known}: {error}") from error
        stack.enter_context(lock_folder(folder, folder / LOCK))
        try:
            do_trials(
                params,
                key,
                [TeamTrials(submission, backend, folder / "raw")],
                tried.score,
                stack,
                state=folder / "unfinished",
                trust_programs=trust_programs,
                observer=tried,
            )
        finally:
            status.clear()
            if tried.trials:
                letters = _letters(tried)
                _print_means(tried, letters, json=json)
                print_stderr(f"all files are in {folder}")
            if tried.trials and html:
                page = render_template("tried.html.j2", tried=tried, letters=letters, model=model.name)
                write_text(html, page)
                print_stderr(f"the page with all levels is {html}")
    if all(trial.level.failure is not None for trial in tried.trials.values()):
        raise typer.Exit(EXIT_CHECK_FAILED)


def params_for_try(model: str, host: str | None, base_url: str | None, letters: str, number: int) -> Params:
    """Return the competition's params with one model, some letters and a number of trials."""
    params = load_params_or_default()
    asked = find_model_to_ask(params, model, host, base_url)
    letters = letters.upper()
    if not letters or not set(letters) <= set(params.competition.characters) or len(set(letters)) < len(letters):
        known = params.competition.characters
        raise SettingsError(f"letters {letters!r}: give letters of the competition ({known}), each once, such as HIL.")
    key = re.sub(r"[^\w.-]", "-", asked.name).lstrip(".") or "model"  # part of a path
    competition = params.competition.model_copy(update={"characters": "".join(sorted(letters)), "trials": number})
    limits = params.limits.model_copy(update={"outage_seconds": min(params.limits.outage_seconds, OUTAGE_SECONDS)})
    return params.model_copy(update={"competition": competition, "models": {key: asked}, "limits": limits})


def _check_outside(submission: Path, places: Mapping[str, Path | None]) -> None:
    """Raise SettingsError if a place to write, by its option, is in the submission."""
    for option, place in places.items():
        if submission.is_dir() and place and place.resolve().is_relative_to(submission.resolve()):
            raise SettingsError(f"{place}: lies in the submission. Run this elsewhere, or name another {option}.")


def _checked_submission(path: Path, params: Params, stack: ExitStack) -> Submission:
    """Return a submission that passes the checks of `pcgeval validate`, and print all findings.

    Its folder is a copy with the files that `pcgeval submit` takes; `stack` removes it when it ends.
    """
    path = path.resolve()
    handed_in = stack.enter_context(unpacked_submission(path))
    copy = Path(stack.enter_context(TemporaryDirectory(prefix="pcgeval-")))
    checked = check(handed_in, params.limits, copy, entry=filed_entry(path, params))
    for line in printable_findings(checked.findings):
        print_stderr(line)
    if checked.work is None or not checked.passed:
        print_stderr(f"{path.name}: fix the errors above; nothing was asked")
        raise typer.Exit(EXIT_CHECK_FAILED)
    return Submission(path.name if path.is_dir() else path.stem, checked.work)


@dataclass(frozen=True)
class _Tried:
    """A finished trial."""

    trial: Trial
    response: str
    record: TrialRecord
    level: LevelScore
    supplied: SuppliedBlocks
    picture: Path | None  # None without a level
    printed: Path | None  # the output of the program; None if it printed nothing

    @property
    def seconds(self) -> float:
        return sum(exchange.reply.seconds for exchange in self.record.exchanges)

    def to_dict(self) -> dict[str, Any]:
        return {
            "trial": self.trial.number,
            **self.level.to_dict(),
            "picture": self.picture and str(self.picture),
            "printed": self.printed and str(self.printed),
            "calls": len(self.record.exchanges),
            "tokens": self.record.tokens,
            "supplied": asdict(self.supplied),
            "seconds": round(self.seconds, 3),
            "flags": [{"kind": flag.kind, "detail": flag.detail} for flag in self.record.flags],
        }


@dataclass
class _Try:
    """Follow the trials of one submission: score them, write their files to `<folder>/<stage>/<letter>`, print them."""

    params: Params
    submission: Submission
    classifier: Classifier
    folder: Path
    status: StatusLine
    prints: bool
    draws: bool
    trials: dict[Trial, _Tried] = field(default_factory=dict)  # the finished ones
    new: int = 0  # of the finished trials
    started: float = field(default_factory=time.monotonic)

    def asking(self, trial: Trial, call: int) -> None:
        """Show that a trial's program starts or asks the model, and the time left."""
        done, total = len(self.trials), len([*self.params.trials()])
        what = f"asking for {trial.letter}{trial.number}, call {call}" if call else "starting the program"
        pace = (time.monotonic() - self.started) / self.new if self.new else None
        left = "" if pace is None else f", about {duration(pace * (total - done))} left"
        self.status.show(what, f" ({done} of {total} trials done{left})")

    def ended(self, trial: Trial, printed: str) -> None:
        """Write the output of a trial's program, or remove that of an earlier try."""
        if printed:
            write_text(self._printed(trial), printable_text(printed))
        else:
            self._printed(trial).unlink(missing_ok=True)

    def score(self, trial: Trial, record: TrialRecord, is_new: bool) -> None:
        """Score a trial's response, write the files of its level, and print the trial."""
        team, physics = self.submission.team, self.params.physics
        files = {stage: trial_file(self.folder / stage, stage, team, trial) for stage in EXTENSIONS}
        response = read_text(files["raw"], follow_link=True)
        if record.failure is None:
            level = score_level(response, trial.letter, self.classifier, physics, read_as="response")
            (model,) = self.params.models.values()
            if level.failed_stage == "extract" and (ending := response_ending(response, record, model)):
                level = replace(level, failure=ending)
        else:
            level = LevelScore(letter=trial.letter, read_as="response", physics=physics, failure=record.failure)
        for path, content in (
            (files["intermediate"], None if level.code is None else level.code.encode()),
            (files["levels"], None if level.xml is None else level.xml.encode()),
            (files["images"], png_bytes(level.image()) if level.simulated else None),
        ):
            if content is None:
                path.unlink(missing_ok=True)  # of an earlier try
            else:
                write_bytes(path, content)
        self.trials[trial] = tried = _Tried(
            trial,
            response,
            record,
            level,
            supplied_blocks(self.submission.work, response, record),
            files["images"] if level.simulated else None,
            self._printed(trial) if self._printed(trial).is_file() else None,
        )
        self.new += is_new
        if self.prints:
            self.status.clear()
            self._print(tried, files["raw"], is_new=is_new)

    def _print(self, tried: _Tried, response: Path, *, is_new: bool) -> None:
        record, level = tried.record, tried.level
        cost = f"{count(len(record.exchanges), 'call')}, {record.tokens} tokens, {tried.seconds:.1f} s"
        print(f"{tried.trial.letter}{tried.trial.number}: {level.verdict} ({cost}{'' if is_new else ', done before'})")
        for flag in record.flags:
            print(printable_text(f"  flagged: {flag.kind}: {flag.detail}"))
        if tried.supplied.supplied:
            print(f"  {tried.supplied}")
        for ignored in islice(ignored_lines(tried.response, level), MOST_IGNORED):
            print(f"  {ignored}")
        if level.failure is not None:
            print(f"  response: {response}")
            if tried.printed:
                print(f"  output of the program: {tried.printed}")
        elif self.draws:
            print(*level_lines(level, terminal_width(piped=sys.maxsize)), "", sep="\n")
        else:
            print(f"  {level_line(level)}")
        sys.stdout.flush()

    def _printed(self, trial: Trial) -> Path:
        return self.folder / "printed" / trial.letter / f"{tag(self.submission.team, trial)}.txt"


def _letters(tried: _Try) -> list[dict[str, Any]]:
    """Return the means of each letter over its trials, failed ones as 0."""
    letters = []
    for letter in sorted({trial.letter for trial in tried.trials}):
        levels = [scored.level for trial, scored in sorted(tried.trials.items()) if trial.letter == letter]
        vectors = [
            level.embedding if tried.params.diversity.vectors == "cls" else tuple(level.probabilities.values())
            for level in levels
            if level.simulated
        ]
        letters.append(
            {
                "letter": letter,
                "trials": len(levels),
                "failed": sum(level.failure is not None for level in levels),
                "stability": fmean(level.stability for level in levels),
                "similarity": fmean(level.similarity or 0 for level in levels),
                "score": fmean(level.score or 0 for level in levels),
                "diversity": round(diversity(vectors, len(levels)), _DIVERSITY_DIGITS) if len(levels) > 1 else None,
            }
        )
    return letters


def _print_means(tried: _Try, letters: list[dict[str, Any]], *, json: bool) -> None:
    """Print the means of each letter; or everything as JSON."""
    if json:
        trials = [scored.to_dict() for _, scored in sorted(tried.trials.items())]
        print_json({"trials": trials, "letters": letters})
        return
    rows = [
        ["-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()]
        for row in letters
    ]
    print_table(list(letters[0]), rows)
    without = [row for row in letters if row["diversity"] == 0 and row["score"]]
    for why, is_alone in (("no two levels differ", False), ("only one trial has a level", True)):
        if named := "".join(row["letter"] for row in without if (row["trials"] - row["failed"] == 1) == is_alone):
            print_stderr(f"{named}: {why}, so the diversity is 0, and in a competition the score, too")

"""The judge proper: for each leaf it lets the model choose files, grade in words, and put the verdict into a form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pcgeval.judge.answers import Answer, read_grade, read_ranking, read_verdict, without_thinking
from pcgeval.judge.calls import Call, CallKind
from pcgeval.judge.folder import FoundFile
from pcgeval.judge.prompts import MAX_PICKED, Prompts, is_continuous
from pcgeval.judge.scores import Unusable
from pcgeval.judge.subject import Subject
from pcgeval.judge.verdicts import Outcome, Vote, outcome
from pcgeval.llm.protocol import CallError, ChatReply
from pcgeval.rubric.grades import Verdict
from pcgeval.rubric.record import CallUsage, FilesRecord, JudgeRecord, TokenUsage, VoteRecord
from pcgeval.rubric.tree import RESULT_ANALYSIS, TaskNode

ATTEMPTS = 2  # the second after an answer of no use, which is told what was wrong with it
MAX_OFFERED_SHOWN = 50  # names in the metadata of a leaf
_Read = TypeVar("_Read")


class Asker(Protocol):
    """The way to the model."""

    def ask(self, call: Call) -> ChatReply:
        """Return the reply; raises CallError if this call has none, LlmError if none can be had any more."""


class SimpleJudge:
    """Judges leaves by a model; several threads may use it at once."""

    judge_type = "simple"

    def __init__(self, subject: Subject, rubric: TaskNode, asker: Asker, votes: int = 1) -> None:
        """Look through the submission; `votes` is how often each leaf is graded, each time with another seed."""
        self._prompts = Prompts(subject, rubric)
        self._asker, self._votes = asker, votes

    def verdict(self, leaf: TaskNode) -> Verdict:
        """Judge one leaf; whatever the model says, this gives a score or the reason why there is none.

        Raises:
            LlmError: The model cannot be asked any more.
        """
        return _Grading(self._prompts, self._asker, leaf).verdict(self._votes)


@dataclass
class _Grading:
    """The calls about one leaf."""

    prompts: Prompts
    asker: Asker
    leaf: TaskNode
    usage: dict[CallKind, CallUsage] = field(
        default_factory=lambda: {"rank": CallUsage(), "grade": CallUsage(), "parse": CallUsage()}
    )

    def verdict(self, votes: int) -> Verdict:
        offered = self.prompts.offered(self.leaf)
        if (fault := self.prompts.contents.fault) is not None:
            return self._verdict(Outcome(None, fault), offered, (), "", ())
        if (reason := self._nothing_to_judge(offered)) is not None:
            return self._verdict(Outcome(0.0, reason), offered, (), "", ())
        try:
            picked, note = self._picked(offered)
        except CallError as error:
            return self._verdict(Outcome(None, f"the files could not be ranked: {error}"), offered, (), "", ())
        cast = [self._vote(number, picked) for number in range(votes)]
        return self._verdict(outcome(cast, continuous=is_continuous(self.leaf)), offered, picked, note, cast)

    def _nothing_to_judge(self, offered: Sequence[FoundFile]) -> str | None:
        """Return why a leaf is 0 without a call: PaperBench's rule for results, or a submission without any text."""
        subject = self.prompts.subject
        if not offered and not self.prompts.contents.files and not self.prompts.contents.refused:
            return "the submission has no file that could meet it"
        if subject.kind == "competition" or self.leaf.task_category != RESULT_ANALYSIS:
            return None
        if subject.reproduce_log is None:
            return "reproduce.sh was not run, so it made no results"
        return None if any(map(self.prompts.is_fresh, offered)) else "reproduce.sh made or changed no file of results"

    def _picked(self, offered: Sequence[FoundFile]) -> tuple[tuple[FoundFile, ...], str]:
        """Return the files to look at, best first, and how they were chosen where the model did not."""
        if len(offered) <= 1:
            return tuple(offered), "there was no choice"
        picked = read_ranking(self._ask(self.prompts.rank(self.leaf, offered)).text, offered)
        if picked:
            return picked, ""
        first = sorted(offered, key=lambda file: file.name.count("/"))[:MAX_PICKED]
        return tuple(first), "the model named no file that was offered: the first ones, from the top folder down"

    def _vote(self, number: int, picked: Sequence[FoundFile]) -> Vote:
        words = ""

        def grade(attempt: int, problem: str) -> Call:
            return self.prompts.grade(self.leaf, picked, number, attempt, problem)

        def parse(attempt: int, problem: str) -> Call:
            return self.prompts.parse(self.leaf, words, number, attempt, problem)

        def stated(reply: ChatReply) -> float:
            nonlocal words
            words = without_thinking(reply.text)
            return read_grade(reply.text, continuous=is_continuous(self.leaf), cut=reply.done_reason == "length")

        try:
            score = self._usable("grade", grade, stated)
            answer = self._usable("parse", parse, lambda reply: self._confirmed(reply.text, score))
        except (Unusable, CallError) as reason:
            return Vote(None, reason=str(reason), answer=words)
        return Vote(answer.score, answer.explanation, answer=words)

    def _confirmed(self, reply: str, stated: float) -> Answer:
        """Read the verdict and compare it with the score that the grader's own words state."""
        answer = read_verdict(reply, continuous=is_continuous(self.leaf), stated=stated)
        if answer.score != stated:
            raise Unusable(f"it says {answer.score:g}, but the score under the last heading is {stated:g}.")
        return answer

    def _usable(self, kind: CallKind, call: Callable[[int, str], Call], read: Callable[[ChatReply], _Read]) -> _Read:
        """Ask, and once more with what was wrong if the answer is of no use."""
        problem = ""
        for attempt in range(ATTEMPTS):
            reply = self._ask(call(attempt, problem))
            try:
                return read(reply)
            except Unusable as reason:
                problem = str(reason)
        raise Unusable(f"the {kind} call was answered twice without use; the second time {problem}")

    def _ask(self, call: Call) -> ChatReply:
        reply = self.asker.ask(call)
        cost = CallUsage(
            calls=1, prompt_tokens=reply.prompt_tokens, output_tokens=reply.output_tokens, seconds=reply.seconds
        )
        self.usage[call.kind] = self.usage[call.kind].plus(cost)
        return reply

    def _verdict(
        self,
        result: Outcome,
        offered: Sequence[FoundFile],
        picked: Sequence[FoundFile],
        note: str,
        votes: Sequence[Vote],
    ) -> Verdict:
        texts = {file.name: self.prompts.file_text(file).note for file in picked}
        record = JudgeRecord(
            files=FilesRecord(
                offered=tuple(file.name for file in offered[:MAX_OFFERED_SHOWN]),
                num_offered=len(offered),
                picked=tuple(texts),
                notes={name: text for name, text in texts.items() if text},
                refused=self.prompts.contents.refused,
                how=note,
            ),
            votes=tuple(VoteRecord(**vars(vote)) for vote in votes),
            agreement=result.agreement,
            usage=TokenUsage(**self.usage),
            reason=result.explanation if result.score is None else None,
        )
        return Verdict(result.score, result.explanation, record)

"""The judge `simple`: for each leaf a language model is shown files, grades in words, and the score is read.

Where the score is in doubt, a second call asks the model to copy it as JSON. The lines that an answer quotes as
evidence are looked up in the files, and the result is recorded beside the score.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, reduce
from itertools import chain
from typing import Any, NamedTuple

from pcgeval.checks.evidence import PaperEvidence
from pcgeval.core.files import sha256_json, sha256_text
from pcgeval.judge.calls import JudgeClient
from pcgeval.judge.files import CODE, SubmissionFile, clean, condensed, list_files, may_be_made_by, offered, read_file
from pcgeval.judge.prompts import (
    MAX_PICKED,
    GradingPrompt,
    JudgeCall,
    PromptPart,
    find_quote,
    read_ranking,
    read_score,
    read_verdict,
    reality_of,
    section,
    without_thinking,
)
from pcgeval.judge.settings import GradingTask, JudgeSettings
from pcgeval.llm.blame import CUT_OFF, FILTERED, REFUSAL
from pcgeval.llm.protocol import CallError, ChatReply, LlmError
from pcgeval.parallel.processes import map_in_threads
from pcgeval.rubric.grades import (
    CallUsage,
    FilesRecord,
    JudgeRecord,
    QuoteRecord,
    TokenUsage,
    Verdict,
    VoteRecord,
    weighted_mean,
)
from pcgeval.rubric.tree import CODE_DEVELOPMENT, CODE_EXECUTION, RESULT_ANALYSIS, SUBTREE, TaskNode
from pcgeval.submissions.load import REPRODUCE_LOG, REPRODUCE_SCRIPT

MAX_ENUMERATED = 200  # names that the schema of an answer lists; with more, or longer ones, it takes any text
MAX_ENUMERATED_CHARACTERS = 15_000  # well below the 20 000 that a whole schema may have
_KEY_LENGTH = 6  # characters of the key of a grading's tags; a short key costs few tokens
_MAX_NAMED = 50  # names in the record of a leaf
_TEXTS_KEPT = 64  # texts in memory, each of at most half a megabyte


class FileRanking(NamedTuple):
    """The files that a leaf is judged by, best first; how they were chosen if not by the model, or the fault."""

    files: Sequence[SubmissionFile]
    how: str = ""
    usage: TokenUsage = TokenUsage()
    fault: str | None = None


class LeafJudge:
    """Judges the leaves of one submission by a model; several threads may use it at once."""

    def __init__(self, task: GradingTask, client: JudgeClient) -> None:
        """List the submission's files, and prepare what the prompts share; the rubric is cut to the graded leaves."""
        self._task, self._client, self._settings = task, client, client.settings
        self.files = list_files(task.folder)
        self.file_text = lru_cache(_TEXTS_KEPT)(lambda file: read_file(file.path))
        run, settings = task.run, client.settings
        texts = {"paper" if run else "rules": task.paper, "addendum": task.addendum, "notes": task.judge_addendum}
        cleaned = {name: clean(text).strip() for name, text in texts.items() if text.strip()}
        self._background = tuple(PromptPart(name, text, tail=0.1, is_data=False) for name, text in cleaned.items())
        self._run_parts: tuple[PromptPart, ...] = ()
        self._run_texts: dict[str, str] = {}  # of these without our own words
        if run is not None and not settings.code_only:
            script = read_file(task.folder / REPRODUCE_SCRIPT)
            text = f"({REPRODUCE_SCRIPT}: {script.note})\n{script.text}" if script.note else script.text
            self._run_texts = {REPRODUCE_SCRIPT: script.text, REPRODUCE_LOG: condensed(run.log or "")}
            log = "(reproduce.sh was not run)" if run.log is None else self._run_texts[REPRODUCE_LOG]
            self._run_parts = PromptPart(REPRODUCE_SCRIPT, text, 0.3), PromptPart(REPRODUCE_LOG, log, 0.7)
        parts = (*self._background, *self._run_parts)
        names = [file.name for file in self.files.files]
        self.prompt = GradingPrompt(
            settings.prompts,
            about="competition" if run is None else "paper",
            run="" if run is None else section(settings.prompts, f"run {_origin(run, settings)}"),
            key=sha256_json([*(sha256_text(part.text) for part in parts), *names])[:_KEY_LENGTH],
            parts=parts,
        )
        self.visible_shares: dict[tuple[str, str], float] = {}  # the share of each text that was cut, by leaf and label
        self._rankings: dict[str, FileRanking] = {}  # by the leaf
        self._orders: dict[str, tuple[list[str], int]] = {}  # of a leaf's files; so many a neighbour shows first, too

    def asks_about(self, leaf: TaskNode) -> bool:
        """Return whether no check decides a leaf."""
        return leaf.check is None or self._settings.ignore_checks

    def offered(self, leaf: TaskNode) -> tuple[SubmissionFile, ...]:
        """Return the files that a leaf may be judged by, sorted by name; reproduce.sh is shown to every leaf anyway."""
        files = offered(self.files.files, leaf, self._task.run)
        return tuple(file for file in files if not self._run_parts or file.name != REPRODUCE_SCRIPT)

    def zero_reason(self, leaf: TaskNode) -> str | None:
        """Return why a leaf is 0 without a call: PaperBench's rule for results, or a submission without any text."""
        run = self._task.run
        if not self.files.files and not self.files.refused:
            return "the submission has no file that could meet it"
        if run is None or leaf.task_category != RESULT_ANALYSIS:
            return None
        if run.log is None:
            return "reproduce.sh was not run, so it made no results"
        is_fresh = any(may_be_made_by(run, file) for file in self.offered(leaf))
        return None if is_fresh else "reproduce.sh made or changed no file of results"

    def rank(self, leaf: TaskNode) -> FileRanking:
        """Return the files to show; where there are more than ten, the model is asked once which."""
        files = self.offered(leaf)
        if len(files) <= MAX_PICKED:
            return FileRanking(files, "all files that count here")
        if leaf.path not in self._rankings:
            try:
                reply = self._client.ask(self.rank_call(leaf, files))
                picked, how = read_ranking(reply.text, files), ""
                if not picked:
                    how = "the model named no file that was offered: the first ones, from the top folder down"
                    picked = tuple(sorted(files, key=lambda file: file.name.count("/"))[:MAX_PICKED])
                self._rankings[leaf.path] = FileRanking(picked, how, TokenUsage(rank=CallUsage.of(reply)))
            except CallError as error:
                self._rankings[leaf.path] = FileRanking((), fault=str(error))
        return self._rankings[leaf.path]

    def rank_all(self, leaves: Iterable[TaskNode], concurrency: int) -> None:
        """Rank the files of all leaves with more than ten, before the first of these is graded.

        So what most leaves below one node chose can stand first in the prompts of them all. Where the model cannot be
        asked any more, rankings are missing.
        """
        asked = [leaf for leaf in leaves if self.asks_about(leaf) and not self.zero_reason(leaf)]
        asked = [leaf for leaf in asked if len(self.offered(leaf)) > MAX_PICKED]
        with suppress(LlmError):
            for _ in map_in_threads(self.rank, asked, concurrency):
                pass
        below: defaultdict[str, dict[str, frozenset[str]]] = defaultdict(dict)  # the files of leaves, by the node above
        chosen: defaultdict[str, Counter[str]] = defaultdict(Counter)  # how many leaves below a node chose a file
        for path, ranking in self._rankings.items():
            names = frozenset(file.name for file in ranking.files)
            below[path.rpartition("/")[0]][path] = names
            for node in _nodes_above(path):
                chosen[node].update(names)
        for node, files in below.items():
            counts = [chosen[above] for above in _nodes_above(node)]
            self._orders |= begun_alike(files, counts)

    def verdict(self, leaf: TaskNode) -> Verdict:
        """Judge one leaf; whatever the model answers, this gives a score or the reason why there is none."""
        ranking, agreement = FileRanking(()), None
        votes: list[VoteRecord] = []
        usage: list[TokenUsage] = []
        try:
            if self.files.fault is not None:
                result = Verdict(None, self.files.fault)
            elif (reason := self.zero_reason(leaf)) is not None:
                result = Verdict(0.0, reason)
            elif (ranking := self.rank(leaf)).fault is not None:
                result = Verdict(None, f"the files could not be ranked: {ranking.fault}")
            else:
                for number in range(self._settings.votes):
                    votes += [self._vote(leaf, number, ranking.files, usage)]
                result, agreement = count_votes(votes, continuous=leaf.task_category == SUBTREE)
        except LlmError as error:  # the calls before are paid for and count
            result = Verdict(None, f"not judged: {error}")
        files, notes = self.offered(leaf), {file.name: self.file_text(file).note for file in ranking.files}
        record = JudgeRecord(
            files=FilesRecord(
                offered=tuple(file.name for file in files[:_MAX_NAMED]),
                num_offered=len(files),
                picked=tuple(notes),
                notes={name: note for name, note in notes.items() if note},
                refused=self.files.refused,
                how=ranking.how,
            ),
            votes=tuple(votes),
            agreement=agreement,
            usage=reduce(TokenUsage.plus, usage, ranking.usage),
            reason=result.explanation if result.score is None else None,
        )
        return replace(result, judge_metadata=record)

    def _vote(self, leaf: TaskNode, vote: int, files: Sequence[SubmissionFile], usage: list[TokenUsage]) -> VoteRecord:
        """Let the model grade a leaf once."""
        words, continuous = "", leaf.task_category == SUBTREE
        try:
            call = self.grade_call(leaf, files, vote)
            reply = self._ask(call, usage)
            shares = self._client.fitted(call).visible_shares
            self.visible_shares |= {(leaf.path, name): share for name, share in shares.items()}
            words = _words_of(reply)
            verdict = Verdict(read_score(words, continuous=continuous), reality_of(words))
            if verdict.score is None:  # in doubt: the model copies it as JSON
                reply = self._ask(self.parse_call(leaf, words, vote), usage)
                no_score = Verdict(None, "the answer has no one score, neither for the rule nor for a parse call")
                verdict = read_verdict(reply.text, continuous=continuous) or no_score
        except CallError as error:
            verdict = Verdict(None, str(error))
        if verdict.score is None:
            return VoteRecord(score=None, explanation="", reason=verdict.explanation, answer=words)
        quote = self._quote(leaf, words, files) if self._settings.prompts == "pcgeval" else None
        return VoteRecord(score=verdict.score, explanation=verdict.explanation, answer=words, quote=quote)

    def _quote(self, leaf: TaskNode, words: str, files: Sequence[SubmissionFile]) -> QuoteRecord:
        """Return what an answer quotes as evidence; only code shows development, the log a run, and results results."""
        run, texts = self._task.run, self._run_texts | {file.name: self.file_text(file).text for file in files}
        counting = {*texts}
        if run is not None and leaf.task_category == CODE_DEVELOPMENT:
            counting = {REPRODUCE_SCRIPT, *(file.name for file in files if file.suffix in CODE)}
        elif run is not None and leaf.task_category == CODE_EXECUTION:
            counting = {REPRODUCE_LOG}
        elif run is not None and leaf.task_category == RESULT_ANALYSIS:
            counting = {file.name for file in files if may_be_made_by(run, file)}
        return find_quote(words, texts, counting)

    def _ask(self, call: JudgeCall, usage: list[TokenUsage]) -> ChatReply:
        """Return the model's reply, and add its cost; one that was cut off is asked for again with twice the room."""
        reply = self._client.ask(call)
        usage.append(TokenUsage(**{call.kind: CallUsage.of(reply)}))
        if call.rooms == 1 and reply.done_reason in CUT_OFF:
            with suppress(CallError):  # there is no more room
                return self._ask(replace(call, rooms=2), usage)
        return reply

    def planned_calls(self, leaf: TaskNode) -> Iterable[JudgeCall]:
        """Yield the calls that a grading would make about a leaf; what the model would choose is not known."""
        files: Sequence[SubmissionFile] = self.offered(leaf)
        if len(files) > MAX_PICKED:
            call = self.rank_call(leaf, files)
            yield call
            files = self.rank(leaf).files if self._client.knows(call) else files[:MAX_PICKED]
        for vote in range(self._settings.votes):
            yield self.grade_call(leaf, files, vote)

    def rank_call(self, leaf: TaskNode, files: Sequence[SubmissionFile]) -> JudgeCall:
        """Ask which of the files to look at."""
        names = [file.name for file in files]
        is_short = len(names) <= MAX_ENUMERATED and sum(map(len, names)) <= MAX_ENUMERATED_CHARACTERS
        name = {"type": "string", **({"enum": names} if is_short else {})}
        schema = _object_schema(files={"type": "array", "items": name, "minItems": 1, "maxItems": MAX_PICKED})
        listed = PromptPart("files", "\n".join(names), tail=0.3)
        shared = tuple(part.name for part in self._background)
        return JudgeCall("rank", leaf.path, self.prompt, self._fields(leaf), shared, listed, schema=schema)

    def grade_call(self, leaf: TaskNode, files: Sequence[SubmissionFile], vote: int = 0) -> JudgeCall:
        """Ask for a grade in words; `files` are in the order of their rank.

        The prompts of neighbours begin alike: first stand the files that a neighbour has, too, then the criteria
        before, which grow from one to the next, then the other files.
        """
        nothing = {"": PromptPart("file", "(there is no file of the kinds that count here)")}
        parts = {file.name: self._file_part(file) for file in files} or nothing
        order, num_alike = self._orders.get(leaf.path, (sorted(parts), len(parts)))
        ordered = tuple(parts[name] for name in order)
        most = self._settings.max_prior_nodes if self._task.run else 0  # an entry's criteria stand alone
        before = leaf.get_prior_nodes(self._task.rubric, most)
        criteria = "\n".join(f"- {' '.join(node.requirements.split())}" for node in before)
        earlier = PromptPart("earlier-criteria", criteria, 0.7, is_data=False)
        # the log says nothing about mere code
        run = self._run_parts[:1] if leaf.task_category == CODE_DEVELOPMENT else self._run_parts
        return JudgeCall(
            "grade",
            leaf.path,
            self.prompt,
            self._fields(leaf),
            shared=tuple(part.name for part in (*self._background, *run)),
            earlier=earlier if before else None,
            files=tuple(parts.values()),
            first=ordered[:num_alike],
            last=ordered[num_alike:],
            vote=vote,
        )

    def parse_call(self, leaf: TaskNode, answer: str, vote: int = 0) -> JudgeCall:
        """Ask for the verdict that an answer holds."""
        continuous = {"type": "number", "minimum": 0, "maximum": 1}
        score = continuous if leaf.task_category == SUBTREE else {"type": "integer", "enum": [0, 1]}
        schema = _object_schema(valid_score={"type": "boolean"}, score=score, explanation={"type": "string"})
        words = PromptPart("answer", clean(answer), tail=0.8)
        fields = self._fields(leaf, scale="parse")
        return JudgeCall("parse", leaf.path, self.prompt, fields, earlier=words, schema=schema, vote=vote)

    def _file_part(self, file: SubmissionFile) -> PromptPart:
        text = self.file_text(file)
        body = text.text.rstrip() or ("" if text.note else "(the file is empty)")
        return PromptPart("file", f"{file.name}{f' ({text.note})' if text.note else ''}\n{body}")

    def _fields(self, leaf: TaskNode, scale: str = "scale") -> dict[str, str]:
        """Return what is never cut: the criterion, of a node with all that it stands for, and our own text."""
        family, is_subtree = self.prompt.family, leaf.task_category == SUBTREE  # which may be met in part
        question = "whole" if is_subtree else (leaf.task_category if self._task.run else None) or "entry"
        return {
            "criterion": outline(leaf) if is_subtree else leaf.requirements.strip(),
            "question": section(family, f"question {question}"),
            "scale": section(family, f"{'continuous' if is_subtree else 'binary'} {scale}"),
        }


def begun_alike(
    files: Mapping[str, frozenset[str]], counts: Sequence[Mapping[str, int]] = ()
) -> dict[str, tuple[list[str], int]]:
    """Return an order for each set of files, and with how many of them another one begins, too.

    The file that most sets have comes first in these, and so on among them; the others begin with another file. Of
    equals those with more in `counts` come first.
    """
    orders: dict[str, list[str]] = {name: [] for name in files}
    alike = dict.fromkeys(files, 0)
    groups = [dict(files)]
    for group in groups:  # grows by parts of those before
        while number := Counter(chain.from_iterable(group.values())):
            first = min(number, key=lambda file: [*(-count[file] for count in (number, *counts)), file])
            having = {name: group.pop(name) - {first} for name in [*group] if first in group[name]}
            for name in having:
                orders[name].append(first)
                alike[name] += len(having) > 1
            groups.append(having)
    return {name: (order, alike[name]) for name, order in orders.items()}


def _nodes_above(path: str) -> list[str]:
    """Return the paths of the nodes above a leaf, from the nearest to the root."""
    return [path[:at] for at in range(len(path) - 1, 0, -1) if path[at] == "/"]


def _origin(run: PaperEvidence, settings: JudgeSettings) -> str:
    if settings.code_only:
        return "code only"
    return "ours" if run.is_ours else "none" if run.log is None else "brought"


def _words_of(reply: ChatReply) -> str:
    """Return a whole answer without its thoughts; raises CallError if there is none, as asking again would not help."""
    words = without_thinking(reply.text)
    if reply.done_reason in CUT_OFF:
        raise CallError(f"the answer was cut off{'' if words else ' before its first word, as its thoughts are long'}")
    if not words and reply.done_reason in {FILTERED, REFUSAL}:
        raise CallError(f"the model refused to answer ({reply.done_reason})")
    if not words:
        has_thoughts = reply.text.strip() or reply.thoughts
        raise CallError("the answer has only thoughts and no words" if has_thoughts else "the answer is empty")
    return words


def count_votes(votes: Sequence[VoteRecord], *, continuous: bool) -> tuple[Verdict, float | None]:
    """Return the majority's score, or the mean of continuous scores, and how far the votes agree.

    Failed votes are left out. The agreement is the share of votes with the majority's score, or 1 less the range of
    continuous scores.
    """
    scores = [vote.score for vote in votes if vote.score is not None]
    if not scores:
        return Verdict(None, "; ".join(dict.fromkeys(vote.reason or "no score" for vote in votes))), None
    if continuous:
        score = weighted_mean([1.0] * len(scores), scores)
        vote = min(votes, key=lambda vote: 2.0 if vote.score is None else abs(vote.score - score))
        return Verdict(score, vote.explanation), 1 - (max(scores) - min(scores))
    (score, most), *others = Counter(scores).most_common()
    if others and others[0][1] == most:
        return Verdict(None, f"the votes are tied, {most} to {most}"), None
    vote = next(vote for vote in votes if vote.score == score)
    return Verdict(score, vote.explanation), most / len(scores)


def outline(task: TaskNode, level: int = 0) -> str:
    """Return a node and its descendants as indented lines with their weights, as PaperBench shows them."""
    line = f"{'| ' * level}{' '.join(task.requirements.split())} (weight: {task.weight:g})"
    return "\n".join([line, *(outline(below, level + 1) for below in (*task.sub_tasks, *task.merged))])


def _object_schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

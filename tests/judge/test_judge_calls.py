"""A submission is graded by a scripted model: what it is asked, what is kept, and what a fault makes of the grade."""

import io
import json
import sys
import threading
from contextlib import nullcontext

import pytest
from rubric_trees import leaf, node
from scripted_judge import DIGEST, ScriptedModel, dies_after, refuses

from pcgeval.core.errors import FileError
from pcgeval.core.files import to_json, write_text
from pcgeval.core.params import Model
from pcgeval.judge.calls import CallFiles
from pcgeval.judge.grading import GradingProgress, no_report
from pcgeval.judge.run import grade_submission
from pcgeval.judge.settings import GradingError, JudgeSettings
from pcgeval.llm.call_log import read_recording
from pcgeval.llm.protocol import CallError, ChatReply, ContextExceededError, unpinned_digest
from pcgeval.rubric.grades import judge_output_from_json

LEAVES = [f"leaf-{number}" for number in range(6)]
RUBRIC = node("root", 1, node("left", 2, *map(leaf, LEAVES[:3])), node("right", 1, *map(leaf, LEAVES[3:])))
WIDE = node("root", 1, *(leaf(f"leaf-{number}") for number in range(30)))
MODEL = Model(backend="ollama", name="m:1", digest=DIGEST, concurrency=1)
RECORDED = MODEL.model_copy(update={"backend": "recorded"})
CALLS = len(LEAVES)


def write_paper(tmp_path, rubric=RUBRIC):
    write_text(tmp_path / "papers/toy/rubric.json", json.dumps(rubric))
    write_text(tmp_path / "papers/toy/paper.md", "# A toy\nIt does what it does.")


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_paper(tmp_path)
    write_text(tmp_path / "attempt/README.md", "We did it.")
    write_text(tmp_path / "attempt/main.py", "print('it')")
    return tmp_path / "attempt"


def grade(attempt, backend=None, model=MODEL, calls=None, report=no_report, stopping=None, **settings):
    """Grade with a scripted model; without one no call may be made."""

    def open_backend(_):
        assert backend is not None, "no call was to be made"
        return backend

    settings = {"judge": "simple", "papers_dir": str(attempt.parent / "papers"), **settings}
    settings = JudgeSettings.checked({**settings, "model": model})
    return grade_submission(
        attempt, "toy", settings, calls=calls, report=report, stopping=stopping, open_backend=open_backend
    )


def recorded_in(path):
    """Keep the calls in a recording, and nothing else."""
    return CallFiles(log=None, export=path)


def replay(attempt, path):
    return grade(attempt, None, RECORDED, CallFiles(log=None, recordings=(path,)))


def asked_again(attempt, digest=DIGEST, **more):
    backend = ScriptedModel(digest_=digest)
    grade(attempt, backend, **more)
    return len(backend.requests)


def in_bytes(output):
    return to_json(output.to_json())


def reasons(output):
    return {node.id: node.explanation for node in output.graded_task_tree.leaves if not node.valid_score}


def test_every_leaf_is_judged_by_one_call(attempt):
    backend = ScriptedModel()
    output = grade(attempt, backend)
    assert backend.kinds == ["grade"] * CALLS
    assert (output.judge_type, output.num_leaf_nodes, output.num_invalid_leaf_nodes) == ("simple", 6, 0)
    assert {node.score for node in output.graded_task_tree.leaves} == {0.0, 1.0}
    assert (output.model, output.model_digest, output.votes) == ("m:1", DIGEST, 1)
    usage = output.token_usage
    assert (usage.rank.calls, usage.grade.calls, usage.parse.calls) == (0, 6, 0)
    assert usage.total.seconds == pytest.approx(sum(range(1, CALLS + 1)) / 1000)
    assert judge_output_from_json(json.loads(in_bytes(output))) == output


@pytest.mark.parametrize("temperature", [0, 0.5])
def test_calls_have_a_seed_a_temperature_a_room_and_the_context(attempt, temperature):
    backend = ScriptedModel()
    model = MODEL.model_copy(update={"options": {"top_k": 5, **({"temperature": 0.5} if temperature else {})}})
    votes = 2 if temperature else 1
    grade(attempt, backend, model, seed=11, context=5000, max_tokens=700, votes=votes, call_seconds=7)
    for name, expected in (("temperature", {temperature}), ("num_ctx", {5000}), ("top_k", {5}), ("num_predict", {700})):
        assert {request.options[name] for request in backend.requests} == expected
    assert {request.options["seed"] for request in backend.requests} == set(range(11, 11 + votes))
    assert all(0 < timeout <= 7 for timeout in backend.timeouts)


@pytest.mark.parametrize(
    ("options", "more", "fault"),
    [
        ({}, {"votes": 2}, "at temperature 0 all votes are the same"),
        ({"temperature": 0.0}, {"votes": 2}, "at temperature 0 all votes are the same"),
        ({"num_predict": 300}, {"max_tokens": 200}, "max_tokens is 200, but model.options.num_predict is 300"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(attempt, options, more, fault):
    with pytest.raises(GradingError, match=fault):
        grade(attempt, None, MODEL.model_copy(update={"options": options}), **more)


@pytest.mark.parametrize("fault", [ZeroDivisionError, KeyboardInterrupt])
def test_a_grading_that_breaks_off_asks_nothing_more(attempt, fault):
    def report(*_):
        raise fault

    backend = ScriptedModel(seconds=0.02)
    with pytest.raises(fault):
        grade(attempt, backend, MODEL.model_copy(update={"concurrency": 2}), report=report)
    for thread in threading.enumerate():
        if "ThreadPoolExecutor" in thread.name:
            thread.join()
    assert len(backend.requests) < CALLS


@pytest.mark.parametrize("done", [CALLS, 3])
def test_a_terminal_shows_a_bar_of_leaves_that_ends_with_the_grading(attempt, monkeypatch, done):
    def interrupts(number, _):
        if number > done:
            raise KeyboardInterrupt

    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(KeyboardInterrupt) if done < CALLS else nullcontext():
        grade(attempt, ScriptedModel(fails=interrupts), report=GradingProgress("grade attempt"))
    text = terminal.getvalue()
    assert f"{done}/{CALLS}" in text[text.rindex("grade attempt") :]
    assert text.rpartition("\x1b[?25")[2].startswith("h")  # the cursor is back


def test_a_replay_gives_the_same_bytes_and_says_how_to_record_what_it_lacks(attempt, tmp_path):
    recording = tmp_path / "kept.jsonl"
    first = grade(attempt, ScriptedModel(fails=refuses("riterion: Do leaf-2.")), calls=recorded_in(recording))
    assert reasons(first).keys() == {"leaf-2"}
    assert "refused (riterion: Do leaf-2.)" in reasons(first)["leaf-2"]
    assert first.score_bounds.low == first.score < first.score_bounds.high
    content = recording.read_bytes()
    assert in_bytes(replay(attempt, recording)) == in_bytes(first)
    assert recording.read_bytes() == content
    recording.write_bytes(b"".join(line for line in content.splitlines(keepends=True) if b"leaf-3" not in line))
    output = replay(attempt, recording)
    assert (output.judge_type, list(reasons(output))) == ("simple", ["leaf-2", "leaf-3"])
    assert "export recordings" in reasons(output)["leaf-3"]
    without_digest = grade(attempt, None, Model(backend="recorded", name="m:1"))
    assert "needs its model's digest" in without_digest.warnings[0]


@pytest.mark.parametrize("concurrency", [2, 5])
def test_the_same_bytes_for_any_concurrency(attempt, tmp_path, concurrency):
    class Timeless(ScriptedModel):
        def chat(self, request, timeout):
            reply = super().chat(request, timeout)
            return ChatReply(reply.text, reply.prompt_tokens, reply.output_tokens, reply.done_reason, 0.5)

    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    one = grade(attempt, Timeless(), calls=recorded_in(first))
    model = MODEL.model_copy(update={"concurrency": concurrency})
    assert in_bytes(grade(attempt, Timeless(seconds=0.003), model, calls=recorded_in(second))) == in_bytes(one)
    assert first.read_bytes() == second.read_bytes()


def test_only_what_changed_is_asked_again(attempt, tmp_path):
    assert [asked_again(attempt) for _ in range(2)] == [CALLS, 0]
    # the criteria before a leaf are part of its prompt: only the last one may change alone
    write_paper(tmp_path, json.loads(json.dumps(RUBRIC).replace("Do leaf-5.", "Do leaf-5 well.")))
    assert asked_again(attempt) == 1
    write_paper(tmp_path)
    assert asked_again(attempt) == 0  # what was known before is still known
    write_text(attempt / "README.md", "We did it again.")
    digest = unpinned_digest("m:1")
    here = Model(backend="openai", name="m:1", base_url="http://127.0.0.1:9/v1")
    elsewhere = here.model_copy(update={"base_url": "http://127.0.0.1:10/v1"})  # the digest pins only a name
    assert [asked_again(attempt, digest, model=model) for model in (here, here, elsewhere)] == [CALLS, 0, CALLS]
    assert asked_again(attempt, "cd" * 32, model=MODEL.model_copy(update={"digest": "cd" * 32})) == CALLS
    for change in ({}, {"seed": 1}, {"context": 9000}, {"max_tokens": 999}, {"evidence": False}):
        assert asked_again(attempt, **change) >= CALLS


def test_a_model_of_another_digest_is_not_asked(attempt):
    backend = ScriptedModel(digest_="cd" * 32)
    output = grade(attempt, backend)
    assert backend.requests == []
    assert "cd" * 32 in output.warnings[0]
    assert (output.judge_type, output.score, output.num_invalid_leaf_nodes) == ("simple", 0.0, 6)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_endpoint_that_dies_leaves_the_rest_without_a_grade_and_the_next_grading_goes_on(attempt, concurrency):
    model = MODEL.model_copy(update={"concurrency": concurrency})
    dying, backend = ScriptedModel(fails=dies_after(3)), ScriptedModel()
    output = grade(attempt, dying, model)
    assert (output.judge_type, output.token_usage.grade.calls) == ("simple", 6 - output.num_invalid_leaf_nodes)
    assert 0 < output.num_invalid_leaf_nodes < 6
    assert all("nobody listens" in reason for reason in reasons(output).values())
    assert len(dying.requests) <= 3 + concurrency
    assert any("ended early" in warning for warning in output.warnings)
    whole = grade(attempt, backend, model)
    assert len(backend.requests) == CALLS - 3
    assert (whole.num_invalid_leaf_nodes, whole.warnings) == (0, ())


def test_calls_of_a_leaf_that_a_dead_endpoint_stopped_count(attempt):
    model = MODEL.model_copy(update={"options": {"temperature": 1}})
    output = grade(attempt, ScriptedModel(fails=dies_after(8)), model, votes=3)
    assert output.num_invalid_leaf_nodes == 4
    assert output.token_usage.grade.calls == 8  # six of two leaves, and two of the third, which has no grade
    third = output.graded_task_tree.leaves[2].judge_metadata
    assert (third.usage.grade.calls, len(third.votes)) == (2, 2)


@pytest.mark.parametrize("tokens", [10**30, 10**400])
def test_lone_surrogates_and_huge_numbers_of_a_reply_are_kept(attempt, tokens):
    class Odd(ScriptedModel):
        def chat(self, request, timeout):
            return ChatReply(super().chat(request, timeout).text + "\ud800", tokens, 1, "stop\udfff", 0.1)

    first = grade(attempt, Odd())
    assert in_bytes(grade(attempt)) == in_bytes(first)


@pytest.mark.parametrize("content", [b"# Notes\n", b"no end of line", b'{"id": 1}\n', b"\0\0\0\n"])
@pytest.mark.parametrize("use", ["export", "recording", "replay"])
def test_a_file_of_another_kind_stays_as_it_is(attempt, content, use):
    path = attempt.parent / "notes.md"
    path.write_bytes(content)
    calls = CallFiles(export=path) if use == "export" else CallFiles(recordings=(path,))
    with pytest.raises(FileError, match=r"notes\.md:1"):
        grade(attempt, ScriptedModel(), RECORDED if use == "replay" else MODEL, calls)
    assert path.read_bytes() == content


def test_a_named_file_forgets_no_call_that_was_paid_for(attempt, tmp_path):
    recording = tmp_path / "kept.jsonl"
    grade(attempt, ScriptedModel(), calls=recorded_in(recording))
    known = {call.key for call in read_recording(recording)}
    grade(attempt, ScriptedModel(fails=dies_after(2)), calls=recorded_in(recording), seed=1)
    after = {call.key for call in read_recording(recording)}
    assert known < after
    assert len(after) == CALLS + 2
    assert asked_again(attempt, calls=recorded_in(recording)) == 0


def test_an_endpoint_with_less_context_is_shown_less_and_the_replay_finds_its_replies(attempt, tmp_path):
    write_text(attempt / "long.py", "number = 1\n" * 3000)

    def fails(_, request):
        if len(request.messages[1].content) > 20_000:
            raise ContextExceededError("too long", 6000)

    backend, recording = ScriptedModel(fails=fails), tmp_path / "kept.jsonl"
    output = grade(attempt, backend, calls=recorded_in(recording))
    assert output.num_invalid_leaf_nodes == 0
    assert len(backend.requests) == CALLS + 1
    assert in_bytes(replay(attempt, recording)) == in_bytes(output)


@pytest.mark.parametrize(
    ("is_failure", "concurrency", "asked"),
    [
        (lambda number: number > 4, 1, range(9, 10)),
        (lambda number: number > 4, 3, range(9, 15)),  # a success of another thread ends a row
        (lambda number: number % 2, 1, range(30, 31)),
    ],
    ids=["in a row", "in a row, three at once", "every second"],
)
def test_five_failures_in_a_row_end_the_grading(attempt, tmp_path, is_failure, concurrency, asked):
    write_paper(tmp_path, WIDE)

    def fails(number, _):
        if is_failure(number):
            raise CallError("500: no choices")

    backend = ScriptedModel(fails=fails)
    output = grade(attempt, backend, MODEL.model_copy(update={"concurrency": concurrency}))
    assert len(backend.requests) in asked
    assert ("5 calls in a row failed, the last one so: 500: no choices" in output.partial) == (30 not in asked)
    assert asked_again(attempt) == output.num_invalid_leaf_nodes  # all others can be asked again


@pytest.mark.parametrize("how", ["the deadline of 0.35 s", "was stopped"])
def test_a_deadline_or_a_caller_ends_the_grading_and_what_was_paid_for_counts(attempt, how):
    stopping, backend = threading.Event(), ScriptedModel(seconds=0.12)
    by_caller = how == "was stopped"
    report = (lambda *_: stopping.set()) if by_caller else no_report
    model = MODEL.model_copy(update={"options": {"temperature": 1}})
    more = {} if by_caller else {"deadline": 0.35, "votes": 2}
    output = grade(attempt, backend, model, report=report, stopping=stopping, **more)
    assert output.num_invalid_leaf_nodes > 0
    assert all(how in reason for reason in reasons(output).values())
    assert by_caller or all(0 < timeout <= 0.35 for timeout in backend.timeouts)
    assert output.token_usage.grade.calls == len(backend.requests)

"""A submission is graded by a scripted model: what it is asked, what is kept, and what a fault makes of the grade."""

import json
import threading

import pytest
from rubric_trees import CODE, RESULT, leaf, node
from scripted_judge import DIGEST, ScriptedModel, dies_after, refuses

from pcgeval.core.errors import FileError
from pcgeval.core.files import to_json, write_text
from pcgeval.core.params import Model
from pcgeval.judge import calls as module
from pcgeval.judge.calls import CallFiles
from pcgeval.judge.grading import no_report
from pcgeval.judge.run import grade_submission
from pcgeval.judge.settings import GradingError, JudgeSettings
from pcgeval.llm.call_log import LoggedCall, read_recording, write_recording
from pcgeval.llm.protocol import CallError, ChatReply, ContextExceededError, unpinned_digest
from pcgeval.rubric.grade_files import judge_output_from_json

LEAVES = [f"leaf-{number}" for number in range(6)]
RUBRIC = node("root", 1, node("left", 2, *map(leaf, LEAVES[:3])), node("right", 1, *map(leaf, LEAVES[3:])))
MODEL = Model(backend="ollama", name="m:1", digest=DIGEST, concurrency=1)
RECORDED = MODEL.model_copy(update={"backend": "recorded"})
CALLS = len(LEAVES)


def write_paper(tmp_path, rubric=RUBRIC):
    folder = tmp_path / "papers" / "toy"
    write_text(folder / "rubric.json", json.dumps(rubric))
    write_text(folder / "paper.md", "# A toy\nIt does what it does.")


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_paper(tmp_path)
    write_text(tmp_path / "attempt" / "README.md", "We did it.")
    write_text(tmp_path / "attempt" / "main.py", "print('it')")
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


def kept_in(path):
    """Keep the calls in a recording, and nothing else."""
    return CallFiles(log=None, export=path)


def replay(attempt, path):
    return grade(attempt, None, RECORDED, CallFiles(log=None, recordings=(path,)))


def in_bytes(output):
    return to_json(output.to_json())


def reasons(output):
    return {each.id: each.explanation for each in output.graded_task_tree.leaves if not each.valid_score}


def test_every_leaf_is_judged_by_one_call(attempt):
    backend = ScriptedModel()
    output = grade(attempt, backend)
    assert backend.kinds == ["grade"] * len(LEAVES)
    assert (output.judge_type, output.num_leaf_nodes, output.num_invalid_leaf_nodes) == ("simple", 6, 0)
    assert {each.score for each in output.graded_task_tree.leaves} == {0.0, 1.0}
    assert (output.model, output.model_digest, output.votes) == ("m:1", DIGEST, 1)
    assert output.prompt_version
    usage = output.token_usage
    assert (usage.rank.calls, usage.grade.calls, usage.parse.calls) == (0, 6, 0)
    assert usage.total.seconds == pytest.approx(sum(range(1, CALLS + 1)) / 1000)
    assert judge_output_from_json(json.loads(in_bytes(output))) == output


@pytest.mark.parametrize("temperature", [0, 0.5])
def test_calls_have_a_seed_a_temperature_and_the_context(attempt, temperature):
    backend = ScriptedModel()
    model = MODEL.model_copy(update={"options": {"top_k": 5, **({"temperature": 0.5} if temperature else {})}})
    grade(attempt, backend, model, seed=11, context=5000, votes=2 if temperature else 1, call_seconds=7)
    options = [dict(request.options) for request in backend.requests]
    assert {option["temperature"] for option in options} == {temperature}
    assert {option["num_ctx"] for option in options} == {5000}
    assert {option["top_k"] for option in options} == {5}
    assert {option["seed"] for option in options} == ({11, 12} if temperature else {11})
    assert all(0 < timeout <= 7 for timeout in backend.timeouts)
    assert all(option["num_predict"] > 0 for option in options)


@pytest.mark.parametrize("options", [{}, {"temperature": 0}, {"temperature": 0.0}])
def test_several_votes_without_a_temperature_are_refused(attempt, options):
    with pytest.raises(GradingError, match="at temperature 0 all votes are the same"):
        grade(attempt, None, MODEL.model_copy(update={"options": options}), votes=2)


def test_a_call_that_the_deadline_overtakes_has_no_negative_time(attempt, monkeypatch):
    class Clock:
        """Goes on by a second with each look."""

        now = 0.0

        def monotonic(self):
            self.now += 1
            return self.now

    monkeypatch.setattr(module, "time", Clock())
    backend = ScriptedModel()
    grade(attempt, backend, deadline=20.5)
    assert backend.timeouts
    assert all(0 < timeout < 20 for timeout in backend.timeouts)


def test_another_endpoint_is_asked_again_where_the_digest_pins_only_a_name(attempt):
    digest = unpinned_digest("m:1")
    here = Model(backend="openai", name="m:1", base_url="http://127.0.0.1:9/v1")
    grade(attempt, ScriptedModel(digest_=digest), here)
    assert asked_again(attempt, digest=digest, model=here) == []
    there = here.model_copy(update={"base_url": "http://127.0.0.1:10/v1"})
    assert len(asked_again(attempt, digest=digest, model=there)) == CALLS


@pytest.mark.parametrize("fault", [ZeroDivisionError, KeyboardInterrupt])
def test_a_grading_that_breaks_off_asks_nothing_more(attempt, fault):
    def report(*_):
        raise fault

    backend = ScriptedModel(seconds=0.02)
    with pytest.raises(fault):
        grade(attempt, backend, MODEL.model_copy(update={"concurrency": 2}), report=report)
    for thread in threading.enumerate():
        if "_work_off" in thread.name:
            thread.join()
    assert len(backend.requests) < CALLS


def test_a_replay_gives_the_same_bytes(attempt, tmp_path):
    kept = tmp_path / "kept.jsonl"
    first = grade(attempt, ScriptedModel(fails=refuses("riterion: Do leaf-2.")), calls=kept_in(kept))
    assert reasons(first).keys() == {"leaf-2"}
    content = kept.read_bytes()
    replayed = replay(attempt, kept)
    assert in_bytes(replayed) == in_bytes(first)
    assert kept.read_bytes() == content


@pytest.mark.parametrize("concurrency", [2, 5])
def test_the_same_bytes_for_any_concurrency(attempt, tmp_path, concurrency):
    class Timeless(ScriptedModel):
        def chat(self, request, timeout):
            reply = super().chat(request, timeout)
            return type(reply)(reply.text, reply.prompt_tokens, reply.output_tokens, reply.done_reason, 0.5)

    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    one = grade(attempt, Timeless(), calls=kept_in(first))
    model = MODEL.model_copy(update={"concurrency": concurrency})
    assert in_bytes(grade(attempt, Timeless(seconds=0.003), model, calls=kept_in(second))) == in_bytes(one)
    assert first.read_bytes() == second.read_bytes()


def asked_again(attempt, digest=DIGEST, **more):
    backend = ScriptedModel(digest_=digest)
    grade(attempt, backend, **more)
    return backend.kinds


def test_only_what_changed_is_asked_again(attempt, tmp_path):
    grade(attempt, ScriptedModel())
    assert asked_again(attempt) == []
    changed = json.loads(json.dumps(RUBRIC).replace("Do leaf-5.", "Do leaf-5 well."))
    write_paper(tmp_path, changed)
    # the criteria before a leaf are part of its prompt: only the last one may change alone
    assert asked_again(attempt) == ["grade"]
    write_paper(tmp_path)
    assert asked_again(attempt) == []  # what was known before is still known
    write_text(attempt / "README.md", "We did it again.")
    assert len(asked_again(attempt)) == CALLS
    assert asked_again(attempt, seed=1).count("grade") == len(LEAVES)
    assert len(asked_again(attempt, context=9000)) == CALLS  # the room for an answer differs


def test_a_model_of_another_digest_is_not_asked(attempt):
    backend = ScriptedModel(digest_="cd" * 32)
    output = grade(attempt, backend)
    assert backend.requests == []
    assert "is pinned to" in output.warnings[0]
    assert (output.judge_type, output.score, output.num_invalid_leaf_nodes) == ("heuristic", 0.2, 6)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_endpoint_that_dies_leaves_the_rest_without_a_grade(attempt, concurrency):
    model = MODEL.model_copy(update={"concurrency": concurrency})
    dying = ScriptedModel(fails=dies_after(3))
    output = grade(attempt, dying, model)
    assert output.judge_type == "simple"
    assert 0 < output.num_invalid_leaf_nodes < 6
    assert all("nobody listens" in reason for reason in reasons(output).values())
    assert len(dying.requests) <= 3 + concurrency
    assert any("ended early" in warning for warning in output.warnings)
    # what was answered is not asked again; then it is as if nothing had happened
    backend = ScriptedModel()
    whole = grade(attempt, backend, model)
    assert len(backend.requests) == CALLS - 3
    assert whole.num_invalid_leaf_nodes == 0
    assert whole.warnings == ()


def test_a_call_that_fails_leaves_its_leaf_without_a_grade(attempt):
    output = grade(attempt, ScriptedModel(fails=refuses("riterion: Do leaf-4.")))
    assert list(reasons(output)) == ["leaf-4"]
    assert "refused (riterion: Do leaf-4.)" in reasons(output)["leaf-4"]
    leaf_4 = next(each for each in output.graded_task_tree.leaves if each.id == "leaf-4")
    assert (leaf_4.score, leaf_4.valid_score) == (0.0, False)
    assert output.score_bounds.low < output.score_bounds.high
    backend = ScriptedModel()
    grade(attempt, backend)
    assert backend.kinds == ["grade"]  # the failed leaf alone is asked again


def test_the_deadline_ends_the_grading(attempt):
    output = grade(attempt, ScriptedModel(seconds=0.12), deadline=0.35)
    assert 0 < output.num_invalid_leaf_nodes < 6
    assert all("deadline of 0.35 s" in reason for reason in reasons(output).values())


def test_a_grading_can_be_stopped_from_outside(attempt):
    stopping = threading.Event()
    output = grade(attempt, ScriptedModel(), stopping=stopping, report=lambda *_: stopping.set())
    assert output.num_invalid_leaf_nodes == 5
    assert all("was stopped" in reason for reason in reasons(output).values())


def test_what_was_not_recorded_says_how_to_record_it(attempt, tmp_path):
    kept = tmp_path / "kept.jsonl"
    grade(attempt, ScriptedModel(), calls=kept_in(kept))
    lines = kept.read_text().splitlines()
    kept.write_text("".join(f"{line}\n" for line in lines if "leaf-3" not in json.loads(line)["leaf"]))
    output = replay(attempt, kept)
    assert list(reasons(output)) == ["leaf-3"]
    assert "export recordings" in reasons(output)["leaf-3"]
    assert output.judge_type == "simple"


def test_a_recorded_judge_needs_its_digest(attempt):
    output = grade(attempt, None, Model(backend="recorded", name="m:1"))
    assert output.judge_type == "heuristic"
    assert "needs its model's digest" in output.warnings[0]


def test_a_dead_endpoint_with_checks_is_no_guess(attempt, tmp_path):
    check = {"name": "file_exists", "arguments": {"path": "main.py"}}
    write_paper(tmp_path, node("root", 1, leaf("checked", 1, check=check), leaf("judged")))
    output = grade(attempt, ScriptedModel(fails=dies_after(0)))
    assert (output.judge_type, output.score, output.num_invalid_leaf_nodes) == ("simple", 0.5, 1)


def test_leaves_that_are_zero_without_a_call_are_no_grading(attempt, tmp_path):
    write_paper(tmp_path, node("root", 1, leaf("results", 1, RESULT), leaf("code", 1, CODE)))
    output = grade(attempt, ScriptedModel(fails=dies_after(0)))
    assert (output.judge_type, output.score) == ("heuristic", 0.2)
    assert grade(attempt, ScriptedModel()).judge_type == "simple"


@pytest.mark.parametrize("tokens", [10**30, 10**400])
def test_lone_surrogates_and_huge_numbers_of_a_reply_are_kept(attempt, tokens):
    class Odd(ScriptedModel):
        def chat(self, request, timeout):
            reply = super().chat(request, timeout)
            return type(reply)(reply.text + "\ud800", tokens, 1, "stop\udfff", 0.1)

    first = grade(attempt, Odd())
    assert in_bytes(grade(attempt)) == in_bytes(first)


@pytest.mark.parametrize("content", [b"# Notes\n", b"no end of line", b'{"id": 1}\n', b"\0\0\0\n"])
@pytest.mark.parametrize("model", [MODEL, RECORDED])
def test_a_file_of_another_kind_stays_as_it_is(attempt, content, model):
    path = attempt.parent / "notes.md"
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"notes\.md:1"):
        grade(attempt, ScriptedModel(), model, CallFiles(export=path))
    assert path.read_bytes() == content


def test_a_recording_of_trials_is_no_export(attempt, tmp_path):
    path = tmp_path / "calls.jsonl"
    write_recording(path, [LoggedCall(key="k", reply=ChatReply("one", 1, 1, "stop", 1.0), letter="A", trial=1)])
    before = path.read_bytes()
    for model in (MODEL, RECORDED):
        with pytest.raises(FileError, match=r"calls\.jsonl: .*no judge"):
            grade(attempt, ScriptedModel(), model, kept_in(path))
    assert path.read_bytes() == before


def test_a_named_file_forgets_no_call_that_was_paid_for(attempt, tmp_path):
    kept = tmp_path / "kept.jsonl"
    grade(attempt, ScriptedModel(), calls=kept_in(kept))
    known = {call.key for call in read_recording(kept)}
    dying = ScriptedModel(fails=dies_after(2))
    grade(attempt, dying, calls=kept_in(kept), seed=1)
    after = {call.key for call in read_recording(kept)}
    assert known < after
    assert len(after) == CALLS + 2
    backend = ScriptedModel()
    grade(attempt, backend, calls=kept_in(kept))
    assert backend.requests == []


@pytest.mark.parametrize("concurrency", [1, 3])
def test_five_failures_in_a_row_end_the_grading(attempt, tmp_path, concurrency):
    write_paper(tmp_path, node("root", 1, *(leaf(f"leaf-{number}") for number in range(30))))
    model = MODEL.model_copy(update={"concurrency": concurrency})

    def fails(number, _):
        if number > 4:
            raise CallError("500: no choices")

    backend = ScriptedModel(fails=fails)
    output = grade(attempt, backend, model)
    assert 4 + 5 <= len(backend.requests) < 4 + 5 + 2 * concurrency  # a success of another thread ends a row
    assert "5 calls in a row failed" in output.partial
    assert "500: no choices" in output.partial
    assert len(asked_again(attempt)) == 26  # and all others can be asked again


def test_an_endpoint_with_less_context_is_shown_less_and_the_replay_finds_its_replies(attempt, tmp_path):
    write_text(attempt / "long.py", "number = 1\n" * 3000)

    def fails(_, request):
        if len(request.messages[1].content) > 20_000:
            raise ContextExceededError("too long", 6000)

    backend, kept = ScriptedModel(fails=fails), tmp_path / "kept.jsonl"
    output = grade(attempt, backend, calls=kept_in(kept))
    assert output.num_invalid_leaf_nodes == 0
    assert len(backend.requests) == CALLS + 1
    assert in_bytes(replay(attempt, kept)) == in_bytes(output)


def test_failures_between_successes_end_nothing(attempt, tmp_path):
    write_paper(tmp_path, node("root", 1, *(leaf(f"leaf-{number}") for number in range(30))))

    def fails(number, _):
        if number % 2:
            raise CallError("500: no choices")

    assert grade(attempt, backend := ScriptedModel(fails=fails)).num_invalid_leaf_nodes == 15
    assert len(backend.requests) == 30

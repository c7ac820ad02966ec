"""A submission is graded by a scripted model: what it is asked, what is kept, and what a fault makes of the grade."""

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from judged_attempt import MODEL, WrittenAnswers, graded, reasons, write_files, write_paper
from model_servers import DIGEST, ScriptedModel, answer, refused
from rubric_trees import leaf, node

from pcgeval.core.files import to_json
from pcgeval.formats.failures import failure
from pcgeval.formats.params import Model
from pcgeval.judge.calls import CallFiles
from pcgeval.llm.blame import TEXT
from pcgeval.llm.protocol import BlameVerdict, CallError, ChatReply, unpinned_digest
from pcgeval.rubric.output import JudgeOutput

LEAVES = [f"leaf-{number}" for number in range(6)]
RUBRIC = node("root", 1, node("left", 2, *map(leaf, LEAVES[:3])), node("right", 1, *map(leaf, LEAVES[3:])))
CALLS = len(LEAVES)
WARM = MODEL.model_copy(update={"options": {"temperature": 0.5}})


@pytest.fixture(autouse=True)
def attempt():
    write_paper(RUBRIC)
    write_files({"README.md": "We did it.", "main.py": "print('it')"})


def replay():
    recorded = MODEL.model_copy(update={"backend": "recorded"})
    return graded(model=recorded, calls=CallFiles(recordings=[str(path) for path in Path("log").glob("*.jsonl")]))


def asked_again(digest=DIGEST, **more):
    backend = ScriptedModel(digest_=digest)
    graded(backend, **more)
    return len(backend.requests)


def in_bytes(output):
    return to_json(output.to_json())


def test_every_leaf_is_judged_by_one_call_with_a_seed_a_temperature_a_room_and_the_context():
    backend = ScriptedModel()
    model = WARM.model_copy(update={"options": {"top_k": 5, **WARM.options}})
    output = graded(backend, model=model, seed=11, context=5000, max_tokens=700, call_seconds=7)
    assert [request.schema for request in backend.requests] == [None] * CALLS
    expected = {"temperature": 0.5, "num_ctx": 5000, "top_k": 5, "num_predict": 700, "seed": 11}
    assert [request.options for request in backend.requests] == [expected] * CALLS
    assert all(0 < timeout <= 7 for timeout in backend.timeouts)
    assert (output.judge_type, output.num_leaf_nodes, output.num_invalid_leaf_nodes) == ("simple", CALLS, 0)
    answers = [answer(None, request.messages[-1].content) for request in backend.requests]
    assert [node.score for node in output.graded_task_tree.leaves] == ["# Score\n1" in text for text in answers]
    assert (output.model, output.model_digest, output.votes) == ("m:1", DIGEST, 1)
    usage = output.token_usage
    assert usage.total == usage.grade
    assert usage.grade.seconds == pytest.approx(sum(range(1, CALLS + 1)) / 1000)
    assert JudgeOutput.from_dict(json.loads(in_bytes(output))) == output


def test_a_grading_that_breaks_off_asks_nothing_more():
    def fails(number, _):
        if number == 2:
            raise KeyboardInterrupt

    backend = ScriptedModel(fails, seconds=0.02)
    with pytest.raises(KeyboardInterrupt):
        graded(backend, model=MODEL.model_copy(update={"concurrency": 2}))
    for thread in threading.enumerate():
        if "ThreadPoolExecutor" in thread.name:
            thread.join()
    assert len(backend.requests) < CALLS


def test_a_replay_gives_the_same_bytes_and_says_how_to_record_what_it_lacks():
    def fails(_, request):
        if "riterion: Do leaf-2." in request.messages[-1].content:
            raise refused("refused by the filter")

    first = graded(ScriptedModel(fails=fails), calls=CallFiles(Path("log")))
    assert reasons(first).keys() == {"leaf-2"}
    assert "refused by the filter" in reasons(first)["leaf-2"]
    assert first.score_bounds.low == first.score < first.score_bounds.high
    assert in_bytes(replay()) == in_bytes(first)
    (recording,) = Path("log").glob("*.jsonl")
    lines = recording.read_bytes().splitlines(keepends=True)
    recording.write_bytes(b"".join(line for line in lines if b"leaf-3" not in line))
    assert list(reasons(replay())) == ["leaf-2", "leaf-3"]
    assert "export recordings" in reasons(replay())["leaf-3"]
    without_digest = graded(model=Model(backend="recorded", name="m:1"))
    assert "needs its model's digest" in without_digest.warnings[0]


def test_only_what_changed_is_asked_again():
    assert [asked_again() for _ in range(2)] == [CALLS, 0]
    # the criteria before a leaf are part of its prompt: only the last one may change alone
    write_paper(json.loads(json.dumps(RUBRIC).replace("Do leaf-5.", "Do leaf-5 well.")))
    assert asked_again() == 1
    write_paper(RUBRIC)
    assert asked_again() == 0  # what was known before is still known
    write_files({"README.md": "We did it again."})
    digest = unpinned_digest("m:1")
    here = Model(backend="openai", name="m:1", base_url="http://127.0.0.1:9/v1")
    elsewhere = here.model_copy(update={"base_url": "http://127.0.0.1:10/v1"})  # the digest pins only a name
    assert [asked_again(digest, model=model) for model in (here, here, elsewhere)] == [CALLS, 0, CALLS]
    assert asked_again("cd" * 32, model=MODEL.model_copy(update={"digest": "cd" * 32})) == CALLS
    changed = graded(ScriptedModel(digest_="cd" * 32), seed=9)  # the model's bytes are not the pinned ones
    assert ("cd" * 32 in changed.warnings[0], changed.num_invalid_leaf_nodes) == (True, CALLS)
    for change in ({}, {"seed": 1}, {"context": 9000}, {"max_tokens": 999}):
        assert asked_again(**change) >= CALLS


def test_lone_surrogates_and_huge_numbers_of_a_reply_are_kept():
    odd = ChatReply("# Score\n0\ud800", 10**400, 10**400, "stop\udfff", 0.1)
    first = in_bytes(graded(WrittenAnswers(lambda _: odd)))
    assert in_bytes(graded()) == first
    assert json.loads(first)["token_usage"]["grade"]["output_tokens"] > 10**15


def test_an_endpoint_with_less_context_is_shown_less_and_the_replay_finds_its_replies():
    write_files({"long.py": "number = 1\n" * 3000})

    def fails(_, request):
        if len(request.messages[1].content) > 20_000:
            too_long = BlameVerdict(
                "request", failure=failure("context-exceeded", size=" of 6000 tokens"), context=6000
            )
            raise CallError("too long", too_long)

    backend = ScriptedModel(fails=fails)
    output = graded(backend, calls=CallFiles(Path("log")))
    assert output.num_invalid_leaf_nodes == 0
    assert len(backend.requests) == CALLS + 1
    assert in_bytes(replay()) == in_bytes(output)


def of_leaf(request, *leaves):
    return any(f"riterion: Do leaf-{number}." in request.messages[-1].content for number in leaves)


def test_a_call_that_fails_beside_a_neutral_one_costs_its_leaf_alone():
    def fails(_, request):
        if of_leaf(request, 1, 2):
            raise CallError("500: no choices")
        if of_leaf(request, 4):
            raise refused("flagged")

    backend = ScriptedModel(fails)
    output = graded(backend)
    assert reasons(output) == {"leaf-1": "500: no choices", "leaf-2": "500: no choices", "leaf-4": "flagged"}
    assert ("500: no choices" in output.partial, output.ended_by) == (True, None)
    neutral = [request.messages[-1].content == TEXT for request in backend.requests]
    assert neutral == [False, *[False, True] * 4, *[False] * 3]  # each twice, but for what a filter refuses
    assert asked_again() == 3


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_endpoint_that_dies_ends_the_grading_and_the_next_run_goes_on(concurrency):
    def fails(number, _):
        if number > 4:
            raise CallError("500: no choices")

    write_paper(node("root", 1, *(leaf(f"leaf-{number}") for number in range(30))))
    write_files({f"more/{number}.py": "x = 1" for number in range(20)})  # so that each leaf ranks files first
    backend = ScriptedModel(fails)
    output = graded(backend, model=MODEL.model_copy(update={"concurrency": concurrency}))
    assert (output.num_invalid_leaf_nodes, output.ended_by) == (30, "endpoint")
    assert "500: no choices. It has answered no neutral request for 0 s" in output.partial
    assert len(backend.requests) <= 4 + concurrency + 1  # one neutral call for all
    assert asked_again() == 60 - 4


def test_one_judge_gives_the_whole_grade_whatever_its_fingerprint():
    class Snapshots(ScriptedModel):
        def chat(self, request, timeout):
            reply = super().chat(request, timeout)
            return replace(reply, model=names[0], fingerprint=f"fp_{len(self.requests) % 2}")

    names = ["m-2024-05-13"]
    whole = graded(Snapshots(), calls=CallFiles(Path("log")))
    assert (whole.partial, whole.answered_by) == (None, ("m-2024-05-13 (fp_0)", "m-2024-05-13 (fp_1)"))
    (log,) = Path("log").glob("*.jsonl")
    lines = log.read_text().splitlines(keepends=True)
    names = ["m-2024-08-06"]
    for missing in (3, 0):  # the model of the logged replies was there before, wherever the first new call is
        log.write_text("".join(lines[:missing] + lines[missing + 1 :]))
        mixed, again = (graded(Snapshots(), calls=CallFiles("log")) for _ in range(2))
        assert mixed.ended_by == again.ended_by == "mixed"
        assert mixed.num_invalid_leaf_nodes == again.num_invalid_leaf_nodes == (1 if missing else CALLS - 1)
        assert "m-2024-05-13 answered before and m-2024-08-06 answers now" in mixed.partial
        assert "rubric.model.name" in again.partial
    shutil.rmtree("log")
    log.parent.mkdir()
    log.write_text("".join(lines[:3]).replace("05-13", "08-06") + "".join(lines[3:]))
    recorded = replay()
    assert (recorded.ended_by, recorded.num_invalid_leaf_nodes) == ("mixed", 3)
    assert "m-2024-08-06 answered before and m-2024-05-13 has answered, too" in recorded.partial


def test_a_deadline_ends_the_grading_and_what_was_paid_for_counts():
    backend = ScriptedModel(seconds=0.12)
    output = graded(backend, model=WARM, deadline=0.35, votes=2)
    assert output.num_invalid_leaf_nodes > 0
    assert all("the deadline of 0.35 s" in reason for reason in reasons(output).values())
    assert all(0 < timeout <= 0.35 for timeout in backend.timeouts)
    assert output.token_usage.grade.calls == len(backend.requests)
    assert output.ended_by == "deadline"

"""The models of all servers in one run: servers at the same time, the models of one in turn, none without a reason."""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

import pytest
from model_servers import SlowOllama
from workspace import PROMPT, STAGE, CompetitionFolder, competition_folder

from pcgeval.core.files import to_json
from pcgeval.formats.failures import failure
from pcgeval.formats.params import load_params
from pcgeval.generation.tasks import models_by_server
from pcgeval.llm.blame import TEXT

TRIALS = 4  # of a model


@pytest.fixture
def servers() -> Iterator[list[SlowOllama]]:
    with ExitStack() as stack:
        yield [stack.enter_context(SlowOllama(0.002)) for _ in range(2)]


@pytest.fixture
def competition(tmp_path: Path, servers: list[SlowOllama], monkeypatch: pytest.MonkeyPatch) -> CompetitionFolder:
    """A competition whose models m and warm ask the first server, and whose model other asks the second one."""
    monkeypatch.setattr("pcgeval.llm.server.PAUSE", 0.01)
    competition = competition_folder(tmp_path, servers[0].address, PROMPT, letters="AB", trials=2)
    competition.change_model(digest=None)
    model = competition.params()["models"]["m"]
    warm = model | {"options": {"temperature": 1}}
    other = model | {"options": {"temperature": 0}, "host": servers[1].address}
    competition.change_params("models", warm=warm, other=other)
    return competition


def responses(competition: CompetitionFolder, model: str) -> int:
    return len([*(competition.folder / "data/raw" / model).rglob("*.txt")])


def test_servers_are_asked_at_the_same_time_and_the_models_of_one_in_turn(competition, servers):
    both = threading.Barrier(2, timeout=20)

    def meet(text: str) -> int:
        """Answer a server's first request when both servers have one."""
        with suppress(threading.BrokenBarrierError):
            if text == TEXT and not met:
                met.append(both.wait())
        return 200

    met: list[int] = []
    for server in servers:
        server.status = meet
    competition.generate()
    assert not both.broken
    assert [(len(server.asked), server.neutral) for server in servers] == [(2 * TRIALS, 2), (TRIALS, 1)]
    first = {record.exchanges[0].key for record in competition.records()}
    assert set(servers[0].asked[:TRIALS]) == first


def test_a_server_that_is_away_keeps_no_other_from_going_on_and_all_errors_are_told_together(competition, servers):
    competition.change_params("limits", outage_seconds=0)
    away = competition.params()["models"]["other"] | {"host": "http://127.0.0.1:9"}
    wrong = competition.params()["models"]["m"] | {"digest": "cd" * 32}
    competition.change_params("models", away=away, m=wrong)
    code, printed = competition.run_and_fail(*STAGE)
    assert (code, printed.count("error: "), "127.0.0.1:9" in printed, "cd" * 32 in printed) == (2, 1, True, True)
    assert [responses(competition, model) for model in ("m", "warm", "other", "away")] == [0, TRIALS, TRIALS, 0]
    assert not [*(competition.folder / "data/trials").glob("away/*")]
    asked = [len(server.asked) for server in servers]
    models = competition.params()["models"]
    competition.change("models", {"warm": models["warm"], "away": models["away"] | {"host": servers[1].address}})
    competition.generate()
    assert [len(server.asked) for server in servers] == asked  # `away` asks for what `other` was answered
    for folder in ("data/raw", "data/trials"):
        assert {path.name for path in (competition.folder / folder).iterdir()} == {"warm", "away"}


def test_a_model_with_nothing_to_do_needs_no_server(competition, servers):
    competition.add_team("beta", {"prompt.txt": "Stack the letter <OBJECT>."})
    competition.change_params("limits", outage_seconds=0)
    competition.generate()
    servers[0].__exit__()
    before = servers[1].neutral
    shutil.rmtree(competition.folder / ".cache/stages")  # as after an update: every trial is looked at
    competition.generate()
    shutil.rmtree(competition.folder / "data/raw/other")
    competition.generate()
    assert (servers[1].neutral, responses(competition, "other")) == (before + 1, 2 * TRIALS)
    record = max((competition.folder / "data/raw/other").rglob("*.json"))  # the last team's
    fault = {"failure": asdict(failure("server-failed", fault="it was away"))}
    changes = (record.unlink, lambda: record.write_text(to_json(json.loads(record.read_text()) | fault)))
    for turn, spoil in enumerate(changes, start=2):
        servers[1].digest = f"{turn}" * 64  # with one trial to do, the server's digest counts for all
        spoil()
        shutil.rmtree(competition.folder / ".cache/stages")
        competition.generate()
        assert len(servers[1].asked) == turn * 2 * TRIALS


def test_models_share_a_server_by_its_address(competition, monkeypatch):
    model = competition.params()["models"]["m"]
    served = model | {"backend": "openai", "base_url": "http://gpu:1/v1"}
    del served["host"]
    local = {"backend": "llamacpp", "name": "m"}
    models = {
        "a": model | {"host": "http://gpu:1/"},
        "b": model | {"host": "GPU:1"},
        "c": model | {"host": None},
        "d": served,
        "e": served | {"base_url": "http://gpu:1/v1/", "name": "n"},
        "f": local,
        "g": local | {"name": "n"},
        "h": {"backend": "recorded", "name": "m", "digest": "ab" * 32, "host": "gpu:1"},
        "i": {"backend": "recorded", "name": "n", "digest": "ab" * 32},
    }
    competition.change("models", models)
    params = load_params(competition.folder / "params.yaml")
    assert models_by_server(params) == [["a", "b"], ["c"], ["d", "e"], ["f", "g"], ["h", "i"]]
    monkeypatch.setenv("OLLAMA_HOST", "gpu:1")
    assert models_by_server(params)[0] == ["a", "b", "c"]

"""Every test of the judge works in a new folder, and waits for no endpoint that is away."""

import pytest


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr("pcgeval.judge.calls.OUTAGE_SECONDS", 0.0)
    monkeypatch.setattr("pcgeval.llm.server.PAUSE", 0.01)

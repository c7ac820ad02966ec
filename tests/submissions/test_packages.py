"""The packages that a requirements.txt may ask for, and environments made from wheels that are written here."""

import re
import resource
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from handed_in_for_tests import write_folder, write_wheel
from hypothesis import given, strategies as st

from pcgeval.core.files import sha256_file, sha256_json
from pcgeval.sandbox.sandbox import ResourceLimits, open_sandbox
from pcgeval.submissions.packages import (
    MAX_BYTES,
    InstallError,
    LockError,
    PackagesError,
    RequirementsError,
    environments_folder,
    interpreter_for,
    lock_requirements,
    read_requirements,
)


def folder_with(folder: Path, requirements: str | bytes) -> Path:
    return write_folder(folder, {"requirements.txt": requirements})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LLM4PCG\nChatGPT4PCG>=1 # the interface\nnumpy>=2,<3", ["numpy<3,>=2"]),
        ("llm4pcg @ file:///home/someone/llm4pcg\nllms4pcg @ git+https://example.org/x\n", []),
        ("numpy \\\n  >=2 \\\n  ,<3\nnltk\n", ["numpy<3,>=2", "nltk"]),
        ("nu\\\nmpy # one \\\n  # a comment goes on \\\nnltk \\", ["numpy", "nltk"]),  # as pip reads them
        ("numpy \\\n# a comment ends it \\\nnltk\n", ["numpy", "nltk"]),
        ("httpx[http2]\r\nx==306; os_name == 'nt'\r\n", ["httpx[http2]", 'x==306; os_name == "nt"']),
        ("nltk==3.9 \\\n    --hash=sha256:" + "a" * 64, ["nltk==3.9 --hash=sha256:" + "a" * 64]),
        ("numpy\nnltk\n".encode("utf-16"), ["numpy", "nltk"]),  # `pip freeze > requirements.txt` in PowerShell
    ],
)
def test_packages_are_read(tmp_path: Path, text: str | bytes, expected: list[str]) -> None:
    assert read_requirements(folder_with(tmp_path, text)) == expected


REFUSED = """
-e .
--index-url https://example.org/simple
numpy --global-option=x
numpy --hash=md5:abc
x @ file:///etc/passwd
x-1.0-py3-none-any.whl
numpy===${SECRET}
numpy; platform_version == "${SECRET}"
<html>
""".strip().splitlines()


@pytest.mark.parametrize("line", [*REFUSED, "numpy" + " " * 50_000 + "x", "numpy;" + "(" * 50_000])
def test_anything_else_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(RequirementsError, match=r"requirements\.txt:3: "):
        read_requirements(folder_with(tmp_path, f"nltk\n# a comment\n{line}\nnumpy\n"))
    with pytest.raises(RequirementsError, match=r"^requirements\.txt:2: "):
        read_requirements(folder_with(tmp_path, f"nltk\n\\\n \\\n{line}\n"))


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = folder_with(tmp_path_factory.mktemp("any"), content)
    with suppress(RequirementsError):
        assert all("\n" not in requirement for requirement in read_requirements(folder))


def test_other_encodings_large_files_and_links_are_refused(tmp_path: Path) -> None:
    for content in (b"x" * (MAX_BYTES + 1), b"caf\xe9\n", b"n\0u\0m\0p\0y\0"):
        with pytest.raises(RequirementsError, match=r"requirements\.txt"):
            read_requirements(folder_with(tmp_path, content))
    (tmp_path / "secret").write_text("the-organisers-secret\n")
    (tmp_path / "requirements.txt").unlink()
    (tmp_path / "requirements.txt").symlink_to("secret")
    with pytest.raises(RequirementsError, match="is a link") as caught:
        read_requirements(tmp_path)
    assert "the-organisers-secret" not in str(caught.value)


def test_a_file_that_this_machine_cannot_read_is_no_fault_of_the_team(tmp_path: Path) -> None:
    folder, (soft, hard) = folder_with(tmp_path, b"numpy\n"), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(InstallError, match=r"requirements\.txt: cannot be read"):
            read_requirements(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index that is a folder with a wheel of `example`, and a cache of its own."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    use_another_machine(tmp_path, "this machine", monkeypatch)
    write_wheel(folder, {"example.py": ""})
    return folder


def use_another_machine(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / f"uv of {name}"))
    monkeypatch.setenv("PCGEVAL_CACHE", str(tmp_path / f"cache of {name}"))


@pytest.fixture
def program(wheels: Path) -> Path:
    """A program that asks for `example`."""
    return folder_with(wheels.with_name("program"), "example\n")


def installed_version(folder: Path, lock: Path | None = None) -> str:
    about = next(interpreter_for(folder, lock).parents[1].glob("lib/python*/site-packages/example-*.dist-info"))
    return about.name.removeprefix("example-").removesuffix(".dist-info")


def test_a_lock_gives_another_machine_the_same_versions_or_none(tmp_path, wheels, program, monkeypatch) -> None:
    assert installed_version(program) == "1.0"
    write_wheel(wheels, {"example.py": "changed = True"}, version="2.0")
    lock = tmp_path / "locks" / "team.txt"
    assert lock_requirements(program, lock)  # resolved once, also without a lock
    digest = sha256_file(wheels / "example-1.0-py3-none-any.whl")
    assert lock.read_text().splitlines()[1:] == ["example==1.0 \\", f"    --hash=sha256:{digest}"]
    use_another_machine(tmp_path, "another machine", monkeypatch)
    assert installed_version(program, lock) == "1.0"
    write_wheel(wheels, {"example.py": "other bytes"})
    use_another_machine(tmp_path, "a third machine", monkeypatch)
    with pytest.raises(LockError, match=r"^data/locks/team\.txt: ") as caught:  # which is no fault of the program
        interpreter_for(program, lock)
    assert "Hash mismatch" in caught.value.detail
    lock.write_text(lock.read_text().replace("==1.0", "==7.0"))
    with pytest.raises(LockError) as caught:
        interpreter_for(program, lock)
    assert "7.0" in caught.value.detail
    folder_with(program, "example>1\n")
    assert installed_version(program, lock) == "2.0"
    lock_requirements(program, lock)
    assert "example==2.0" in lock.read_text()
    assert not lock_requirements(folder_with(program, ""), lock)
    assert not lock.exists()


def test_markers_that_exclude_this_machine_leave_nothing_to_lock(program: Path, tmp_path: Path) -> None:
    folder_with(program, 'example; sys_platform == "win32"\n')
    assert not lock_requirements(program, tmp_path / "team.txt")
    assert not (tmp_path / "team.txt").exists()
    assert interpreter_for(program) == interpreter_for(folder_with(tmp_path / "other", ""))


@pytest.mark.parametrize("faulty", ["example-3.0.dist-info/entry_points.txt", "example-3.0.data/nonsense/x"])
def test_a_wheel_that_cannot_be_installed_is_the_teams_choice(wheels: Path, program: Path, faulty: str) -> None:
    write_wheel(wheels, {faulty: "[console_scripts]\nx = no entry:point !!\n"}, version="3.0")
    with pytest.raises(RequirementsError, match="cannot be installed") as caught:
        interpreter_for(program)
    assert caught.value.is_unmet


def test_a_strange_lock_is_refused(program: Path) -> None:
    header, digest = f"# {'a' * 64}, Python 3, m\n", f"--hash=sha256:{'a' * 64}"
    unhashed, other_index = "example==1.0\n", f"example==1 \\\n    {digest}\n--index-url http://x\n"
    for content in ("", "[" * 90_000, *(header + lines for lines in ("-e .\n", unhashed, other_index))):
        (program / "lock.txt").write_text(content)
        with pytest.raises(LockError, match=r"locks/lock\.txt: is no lock"):
            interpreter_for(program, program / "lock.txt")


def answer(status: int) -> type[BaseHTTPRequestHandler]:
    """Return an index that has nothing but one answer."""

    class Index(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            """Print nothing."""

    return Index


@pytest.mark.parametrize(("status", "is_unmet"), [(404, True), (401, False), (403, False), (500, False), (0, False)])
def test_only_an_index_that_answers_makes_it_the_teams_fault(wheels, program, monkeypatch, status, is_unmet) -> None:
    monkeypatch.delenv("UV_NO_INDEX")
    monkeypatch.delenv("UV_FIND_LINKS")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    lock = wheels / "team.txt"
    lines = f"example==1.0 \\\n    --hash=sha256:{'a' * 64}\n"
    lock.write_text(f"# {sha256_json(['example'])}, Python 3, m\n{lines}")
    with ThreadingHTTPServer(("127.0.0.1", 0), answer(status)) as server:
        port = server.server_port if status else 9
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{port}/simple")
        threading.Thread(target=server.serve_forever).start()
        try:
            for given, expected in ((None, RequirementsError), (lock, LockError)):
                with pytest.raises(PackagesError) as caught:
                    interpreter_for(program, given)
                assert type(caught.value) is (expected if is_unmet else InstallError)
                assert "example" in caught.value.detail
                assert not re.search(r"127\.0\.0\.1|Python|/(?!TEAM|team)", str(caught.value).replace("data/locks", ""))
        finally:
            server.shutdown()
    assert RequirementsError("x").is_unmet is False


def test_packages_that_the_index_has_no_longer_are_resolved_again(wheels: Path, program: Path, tmp_path: Path) -> None:
    lock = tmp_path / "team.txt"
    for place, remedy in ((None, "Run again"), (lock, "Remove the lock")):
        write_wheel(wheels, {"example.py": ""})
        lock_requirements(program, lock)
        for wheel in wheels.iterdir():
            wheel.unlink()
        with pytest.raises(LockError, match=remedy):
            interpreter_for(program, place)
        lock.unlink()
        with pytest.raises(RequirementsError, match="no versions"):
            interpreter_for(program, place)


@pytest.mark.needs_sandbox
def test_startup_code_of_a_wheel_runs_in_the_sandbox_only(tmp_path: Path, wheels: Path, program: Path) -> None:
    marker = tmp_path / "marker"
    evil = f"import pathlib, sys; sys.hostile = True; pathlib.Path({str(marker)!r}).write_text('x')\n"
    files = {
        "example.py": "import sys\nprint('hostile' if hasattr(sys, 'hostile') else 'quiet', file=sys.stderr)\n",
        "hostile.pth": evil,
        "sitecustomize.py": evil,
        "example-1.0.data/data/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = true\n",
    }
    write_wheel(wheels, files)
    python = interpreter_for(program)
    assert not marker.exists()
    # it cannot show a program the packages of this machine
    assert "include-system-site-packages = false" in (python.parents[1] / "pyvenv.cfg").read_text()
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    sandbox = open_sandbox(ResourceLimits(), trust_programs=False)
    ending = sandbox.start([str(python), "-c", "import example"], folder=program).wait(20)
    assert ending.code == 0, ending
    assert ending.stderr_tail.splitlines()[-1] == "hostile"  # it did run, inside
    assert not marker.exists()


def test_a_disk_that_fails_is_no_fault_of_the_program(tmp_path: Path, program: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PCGEVAL_CACHE", str(tmp_path / "file"))
    with pytest.raises(InstallError, match="disk"):
        interpreter_for(program)


def test_a_source_package_is_not_built(tmp_path: Path, wheels: Path, program: Path) -> None:
    marker = tmp_path / "marker"
    setup, about = f"open({str(marker)!r}, 'w').write('x')\n", "Metadata-Version: 2.1\nName: example\nVersion: 2.0\n"
    write_folder(tmp_path / "example-2.0", {"setup.py": setup, "PKG-INFO": about})
    subprocess.run(["tar", "-czf", wheels / "example-2.0.tar.gz", "-C", tmp_path, "example-2.0"], check=True)
    with pytest.raises(RequirementsError) as caught:
        interpreter_for(folder_with(program, "example>1\n"))
    assert caught.value.is_unmet
    assert not marker.exists()
    assert not list(environments_folder().glob("*.ready"))


def test_one_environment_serves_all_and_is_made_again_if_unfinished_or_outdated(program: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        (python,) = set(pool.map(interpreter_for, [program] * 3))
    assert len(list(environments_folder().glob("*.ready"))) == 1
    python.unlink()  # as when the Python that it links to is removed
    assert interpreter_for(program) == python
    python.parents[1].with_suffix(".ready").unlink()
    python.unlink()
    python.write_text("#!/bin/sh\nexit 1\n")  # starting it would fail
    assert interpreter_for(program) == python
    assert python.is_symlink()

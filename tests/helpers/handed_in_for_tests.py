"""Submissions as people and attackers hand them in, and wheels for a package index that is a folder."""

import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

README = "# Alpha\n\nWe ask twice. Run it with `python main.py`.\n"
PROMPT = "Draw <OBJECT>, please.\n"
PROGRAM = """\
from pathlib import Path
from llms4pcg.competition import TrialLoop, chat_with_llm, run_evaluation


class Mine(TrialLoop):
    @staticmethod
    def run(ctx, target_character):
        text = Path("prompts/one.txt").read_text().replace("<OBJECT>", target_character)
        return chat_with_llm(ctx, [{"role": "user", "content": text}])[0]


if __name__ == "__main__":
    run_evaluation("alpha", Mine, model_name="any", local_model_base_url="http://localhost:11434/v1")
"""
PROMPT_FILES = {"README.md": README, "prompt.txt": PROMPT}
PROGRAM_FILES = {
    "README.md": README,
    "main.py": PROGRAM,
    "prompts/one.txt": PROMPT,
    "requirements.txt": "llms4pcg==2.0.0\n",
}


def write_folder(folder: Path, files: dict[str, str | bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def write_zip(path: Path, files: dict[str, str | bytes], packing: int = zipfile.ZIP_DEFLATED) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in files.items():
            archive.writestr(entry(name), content, packing)
    return path


def entry(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    """Return an entry with its name as it is: writing a file would clean it up."""
    entry = zipfile.ZipInfo("x")
    entry.filename = name
    entry.external_attr = mode << 16
    entry.create_system = 3
    return entry


def texts(findings, severity="error"):
    return [f"{finding.place}: {finding.text}" for finding in findings if finding.severity == severity]


def write_wheel(folder: Path, files: dict[str, str | bytes], version: str = "1.0", name: str = "example") -> None:
    about = f"{name}-{version}.dist-info"
    metadata = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for file, text in (files | metadata).items():
            archive.writestr(file, text)
        names = "".join(f"{file},,\n" for file in (*files, *metadata, f"{about}/RECORD"))
        archive.writestr(f"{about}/RECORD", names)


@contextmanager
def package_index(folder: Path) -> Iterator[None]:
    """Let uv know no other index than a folder with a wheel of `example`, and no cache from before."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    write_wheel(wheels, {"example.py": "WORD = 'please'\n"})
    values = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheels)}
    values |= {name: str(folder / name) for name in ("PCGEVAL_CACHE", "UV_CACHE_DIR")}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        yield

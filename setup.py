"""Put the default classifier, the rubric, the example paper and what `pcgeval init` writes into the package.

They lie in data/, stages/ and dvc.yaml for the DVC stages. A checkout, also an editable installation, reads them there;
`pcgeval.formats.layout` names the places. The rest is in pyproject.toml.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FOLDERS = (
    *("data/classifier", "data/papers/block-letters", "data/rubrics/competition"),
    *("data/competitions", "data/locks", "data/submissions/zero-shot"),
)
CONFIG = (".gitignore", ".gitattributes", ".dvcignore", ".dvc/.gitignore", ".dvc/config")
PIPELINE = Path("data", "pipeline")  # where stages/, dvc.yaml and CONFIG go, for audits and `pcgeval init`


def data_files() -> dict[Path, Path]:
    """Return the files and their places in the package, without what Python has compiled."""
    found = (path for folder in FOLDERS for path in Path(folder).rglob("*"))
    data = sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)
    pipeline = [Path("dvc.yaml"), *map(Path, CONFIG), *sorted(Path("stages").glob("*.py"))]
    return {path: path for path in data} | {path: PIPELINE / path for path in pipeline}


class BuildWithData(build_py):
    """Build the modules, and beside them data/ as pcgeval/data."""

    def run(self) -> None:
        """Copy the modules and the data."""
        super().run()
        for path, target in self._targets().items():
            self.mkpath(str(target.parent))
            self.copy_file(str(path), str(target))

    def get_source_files(self) -> list[str]:
        """Return what a source distribution holds."""
        return [*super().get_source_files(), *map(str, data_files())]

    def _targets(self) -> dict[Path, Path]:
        """Return where each file is built."""
        places = {} if self.editable_mode else data_files()
        return {path: Path(self.build_lib, "pcgeval", place) for path, place in places.items()}

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return the files that `run` makes."""
        return [*super().get_outputs(include_bytecode), *map(str, self._targets().values())]


setup(cmdclass={"build_py": BuildWithData})

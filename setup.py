"""Put the default classifier, the rubric and the example paper into the package; the rest is in pyproject.toml.

They lie in data/ as inputs of the DVC stages. A checkout, also an editable installation, reads them there;
`pcgeval.core.layout.PACKAGED_DATA` names the place.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FOLDERS = ("data/classifier", "data/papers/block-letters", "data/rubrics/competition")


def data_files() -> list[Path]:
    """Return the files of these folders, without what Python has compiled among the example's programs."""
    found = (path for folder in FOLDERS for path in Path(folder).rglob("*"))
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


class BuildWithData(build_py):
    """Build the modules, and beside them data/ as pcgeval/data."""

    def run(self) -> None:
        """Copy the modules and the data."""
        super().run()
        for path in [] if self.editable_mode else data_files():
            target = Path(self.build_lib, "pcgeval", path)
            self.mkpath(str(target.parent))
            self.copy_file(str(path), str(target))

    def get_source_files(self) -> list[str]:
        """Return what a source distribution holds."""
        return [*super().get_source_files(), *map(str, data_files())]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return the files that `run` makes."""
        data = [] if self.editable_mode else [str(Path(self.build_lib, "pcgeval", path)) for path in data_files()]
        return [*super().get_outputs(include_bytecode), *data]


setup(cmdclass={"build_py": BuildWithData})

"""The tree of errors: every error that a user can fix has its place in one docstring."""

import importlib.util
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pcgeval
from pcgeval.core import errors
from pcgeval.core.packages import missing_package


def tree(kind: type[BaseException], depth: int = 0) -> Iterator[str]:
    yield f"{'  ' * depth}{kind.__name__}"
    ours = [below for below in kind.__subclasses__() if below.__module__.startswith("pcgeval.")]
    for below in sorted(ours, key=lambda error: error.__name__):
        yield from tree(below, depth + 1)


def test_the_docstring_states_the_tree_of_all_errors() -> None:
    skipped = ""
    for module in pkgutil.walk_packages(pcgeval.__path__, "pcgeval."):
        if ".guest" in module.name or module.name.endswith("__main__"):  # they run in another process
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if not missing_package(error, module.name):  # no extra brings what is not installed
                raise
            spec = importlib.util.find_spec(module.name)
            skipped += Path(spec.origin).read_text("utf-8") if spec and spec.origin else ""
    documented = (errors.__doc__ or "").strip().rpartition("\n\n")[2].splitlines()
    imported = list(tree(errors.PcgevalError))
    assert [line for line in documented if f"class {line.strip()}(" not in skipped] == imported

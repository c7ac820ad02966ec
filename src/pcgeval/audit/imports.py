"""Which modules a Python script loads from this source tree, read from the syntax without running anything."""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from pcgeval.core.errors import FileError
from pcgeval.core.files import read_text


class SourceTree:
    """The modules of pcgeval in a folder `src`, and what each imports; every file is read once.

    Attributes:
        modules: The path of each module by its dotted name.
    """

    def __init__(self, source: Path) -> None:
        """List the modules below `source`, without those that DVC ignores too."""
        paths = (path for path in sorted((source / "pcgeval").rglob("*.py")) if "__pycache__" not in path.parts)
        self.modules = {_module_name(path, source): path for path in paths}
        self._names = {path: name for name, path in self.modules.items()}
        self._imports: dict[Path, frozenset[str]] = {}

    def imports_of(self, path: Path) -> frozenset[str]:
        """Return the modules that a module or script imports.

        Raises:
            FileError: The file cannot be read or is not Python.
        """
        if path not in self._imports:
            name = self._names.get(path, "")
            try:
                found = imported_modules(read_text(path), self.modules, name, is_package=path.name == "__init__.py")
            except (SyntaxError, ValueError, RecursionError) as error:
                raise FileError(f"{path}: is not Python ({error}). Correct it.") from error
            self._imports[path] = frozenset(found - {name})
        return self._imports[path]

    def loaded_by(self, script: Path) -> set[str]:
        """Return the modules that a script imports directly or through others.

        Raises:
            FileError: A file cannot be read or is not Python.
        """
        found: set[str] = set()
        waiting = set(self.imports_of(script))
        while waiting:
            module = waiting.pop()
            if module not in found:
                found.add(module)
                waiting |= self.imports_of(self.modules[module])
        return found


def imported_modules(source: str, known: Collection[str], module: str = "", *, is_package: bool = False) -> set[str]:
    """Return the modules that some source imports anywhere in it, those for type checkers alone left out.

    Args:
        source: Python source.
        known: The dotted names of the modules that there are; all others are left out.
        module: The dotted name of the source, for relative imports.
        is_package: Whether it is the `__init__.py` of `module`.

    Raises:
        SyntaxError: It is not Python.
    """
    package = module if is_package else module.rpartition(".")[0]
    named = {name for node in _run_nodes(ast.parse(source)) for name in _imported_names(node, package)}
    return {found for name in named for found in _with_parents(name, known)}


def _module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but those under `if TYPE_CHECKING:`, which never run."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and _last_name(child.test) == "TYPE_CHECKING"):
            yield from _run_nodes(child)


def _last_name(node: ast.AST) -> str:
    """Return `name` of the expressions `name` and `something.name`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _imported_names(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the dotted names that a node may import; a name from a module may be a module itself."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*parts, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and _last_name(node.func) in {"import_module", "__import__"}:
        yield from (each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str))


def _with_parents(name: str, known: Collection[str]) -> Iterator[str]:
    """Yield a module and the packages that importing it runs, as far as they are known."""
    parts = name.split(".")
    names = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    yield from (each for each in names if each in known)

"""Which modules of pcgeval a Python file imports, read from its syntax without running it."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


def module_name(path: Path) -> str:
    """Return the dotted name of a file below src."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((SOURCE / "pcgeval").rglob("*.py"))}


def imported_modules(source: str, module: str = "", *, is_package: bool = False) -> set[str]:
    """Return the modules of pcgeval that some source imports anywhere in it, those for type checkers alone left out.

    Args:
        source: Python source.
        module: Its dotted name, for relative imports.
        is_package: Whether it is the `__init__.py` of `module`.
    """
    package = module if is_package else module.rpartition(".")[0]
    named = {name for node in _run_nodes(ast.parse(source)) for name in _names(node, package)}
    return {found for name in named for found in _with_parents(name)}


@functools.cache
def imports_of(path: Path) -> frozenset[str]:
    """Return the modules of pcgeval that a file imports."""
    name = module_name(path) if path.is_relative_to(SOURCE) else ""
    return frozenset(imported_modules(path.read_text(), name, is_package=path.name == "__init__.py") - {name})


def reachable(path: Path) -> set[str]:
    """Return the modules of pcgeval that a file imports directly or through others."""
    found: set[str] = set()
    waiting = set(imports_of(path))
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting |= imports_of(MODULES[module])
    return found


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but those under `if TYPE_CHECKING:`, which never run."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")):
            yield from _run_nodes(child)


def _names(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the dotted names that a node may import; a name from a module may be a module itself."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*parts, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        yield from (each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str))


def _with_parents(name: str) -> Iterator[str]:
    """Yield a module and the packages that importing it runs, as far as they are pcgeval's."""
    parts = name.split(".")
    names = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    yield from (each for each in names if each in MODULES)

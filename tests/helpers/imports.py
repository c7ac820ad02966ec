"""Which modules of pcgeval a script loads, read from the syntax without running anything."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PIPELINE = "pcgeval.pipeline"


def _module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_module_name(path): path for path in sorted((SOURCE / "pcgeval").rglob("*.py"))}


def imported(nodes: Iterable[ast.AST], module: str = "") -> set[str]:
    """Return the modules that some code imports anywhere in it, with the packages that this runs.

    Imports for type checkers alone are left out.

    Args:
        nodes: The code.
        module: Its dotted name, for relative imports.
    """
    package = module if MODULES.get(module, Path()).name == "__init__.py" else module.rpartition(".")[0]
    names = {name for top in nodes for node in _run(top) for name in _imported_names(node, package)}
    with_parents = {name[:end] for name in names for end, letter in enumerate(f"{name}.") if letter == "."}
    return with_parents & MODULES.keys()


def loaded(names: Iterable[str]) -> set[str]:
    """Return modules with all that these import, directly or through others; not through the pipeline."""
    modules: set[str] = set()
    waiting = set(names)
    while waiting:
        module = waiting.pop()
        if module not in modules:
            modules.add(module)
            waiting |= _imports_of(module)
    return modules


def loaded_by_stage(stage: str, script: Path) -> set[str]:
    """Return the modules that a stage's script loads while it runs the stage's function of the pipeline alone."""
    body = ast.parse(MODULES[PIPELINE].read_text("utf-8")).body
    (function,) = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == stage]
    top = [node for node in body if not isinstance(node, ast.FunctionDef)]
    return loaded(imported(ast.parse(script.read_text("utf-8")).body) | imported([*top, function]))


@cache
def _imports_of(module: str) -> set[str]:
    return set() if module == PIPELINE else imported(ast.parse(MODULES[module].read_text("utf-8")).body, module)


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all nodes in it but those under `if TYPE_CHECKING:`, which never run."""
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for other in node.orelse:
            yield from _run(other)
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _run(child)


def _imported_names(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the dotted names that a node may import; a name from a module may be a module itself."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*parts, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
        constants = (word.value for word in node.args if isinstance(word, ast.Constant))
        yield from (name for name in constants if isinstance(name, str))

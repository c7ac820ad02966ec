"""The modules of pcgeval that a stage loads, read from the syntax without running anything."""

import inspect
from functools import cache
from pathlib import Path

import grimp

from pcgeval import pipeline

SOURCE = Path(__file__).parents[2] / "src"
PIPELINE = "pcgeval.pipeline"


def _module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_module_name(path): path for path in sorted((SOURCE / "pcgeval").rglob("*.py"))}


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("pcgeval", exclude_type_checking_imports=True, cache_dir=None)


def loaded_by_stage(stage: str) -> set[str]:
    """Return the modules that a stage loads while it runs its function of the pipeline and no other one."""
    _, first_function = inspect.getsourcelines(pipeline.generate)
    source, start = inspect.getsourcelines(getattr(pipeline, stage))
    lines = {*range(first_function), *range(start, start + len(source))}
    waiting = {PIPELINE, "pcgeval.core.console"}  # the script imports run_stage
    for module in _graph().find_modules_directly_imported_by(PIPELINE):
        details = _graph().get_import_details(importer=PIPELINE, imported=module)
        if any(detail["line_number"] in lines for detail in details):
            waiting.add(module)
    modules: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module not in modules:
            modules.add(module)
            waiting |= {module.rpartition(".")[0] or module}  # importing a module runs its packages
            waiting |= set() if module == PIPELINE else _graph().find_modules_directly_imported_by(module)
    return modules

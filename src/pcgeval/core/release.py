"""The installed pcgeval in a competition without its source: `pcgeval.json` names it, and the stages depend on that."""

import functools
import re
from pathlib import Path

from pcgeval.core.files import sha256_file, sha256_json, to_json
from pcgeval.core.layout import EXAMPLE_LETTERS, PACKAGE_FILE, RELEASED_PIPELINE, is_ignored
from pcgeval.core.packages import installed_version

_SOURCE_DEPS = re.compile(r"src/pcgeval/[^\s,\]]+(,\s+src/pcgeval/[^\s,\]]+)*")


@functools.cache
def installed_release() -> dict[str, str | None]:
    """Return the content of pcgeval.json: the version, and one SHA-256 over the files of the package.

    Its `data` is left out, which a checkout has elsewhere: a wheel and its checkout have the same hash.
    """
    package = Path(__file__).parents[1]
    names = (path.relative_to(package) for path in sorted(package.rglob("*")) if path.is_file())
    source = [name for name in names if name.parts[0] != "data" and not any(map(is_ignored, name.parts))]
    sha256 = sha256_json([[name.as_posix(), sha256_file(package / name)] for name in source])
    return {"sha256": sha256, "version": installed_version("pcgeval")}


def pipeline_files() -> dict[str, bytes]:
    """Return the files of a competition's folder of the release: stages, dvc.yaml, .dvcignore, pcgeval.json.

    They are those of the repository, but for the dependencies on `src/pcgeval` and on the example letters in dvc.yaml.
    """
    stages = sorted((RELEASED_PIPELINE / "stages").glob("*.py"))
    pipeline = (RELEASED_PIPELINE / "dvc.yaml").read_text("utf-8").replace(f"{EXAMPLE_LETTERS}, ", "")
    return {
        ".dvcignore": (RELEASED_PIPELINE / ".dvcignore").read_bytes(),
        "dvc.yaml": _SOURCE_DEPS.sub(str(PACKAGE_FILE), pipeline).encode(),
        str(PACKAGE_FILE): f"{to_json(installed_release())}\n".encode(),
        **{f"stages/{path.name}": path.read_bytes() for path in stages},
    }

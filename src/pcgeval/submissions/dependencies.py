"""Whether requirements.txt names what a program imports, and only what will be installed."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pcgeval.submissions.findings import Finding, error, shown, warning
from pcgeval.submissions.requirements import REQUIREMENTS, RequirementsError, read_requirements
from pcgeval.submissions.sources import Import

STAND_INS = ("dotenv", "openai")  # every program can import these without naming them; see generation/guest/stand_ins

# packages that are imported by another name than they are installed by
_INSTALLED_AS = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "git": "gitpython",
    "jwt": "pyjwt",
    "PIL": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


def dependency_findings(folder: Path, imports: Iterable[Import]) -> Iterator[Finding]:
    """Yield the lines that will be refused, or else the imports that no line stands for.

    Args:
        folder: The program's folder.
        imports: What its files import of other people's packages.
    """
    try:
        requirements = read_requirements(folder)
    except RequirementsError as fault:
        for line in str(fault).splitlines():
            place, _, text = line.removeprefix(f"{folder}/").partition(": ")
            yield error(place, text)
        return
    named = {canonicalize_name(Requirement(each.partition(" --")[0]).name) for each in requirements}
    for each in imports:
        if each.package not in STAND_INS and not _is_named(each.package, named):
            wanted = _INSTALLED_AS.get(each.package, each.package)
            text = f"imports {shown(each.package, 80)}, which no line of {REQUIREMENTS} names; add {shown(wanted, 80)}"
            yield warning(each.place, text)


def _is_named(package: str, named: Iterable[str]) -> bool:
    """Tell whether a requirement stands for an import, as far as names show, such as opencv-python-headless for cv2."""
    names = {canonicalize_name(package), canonicalize_name(_INSTALLED_AS.get(package, package))}
    return any(each == name or each.startswith(f"{name}-") for each in named for name in names)

"""What a competition consists of, and which of it the installed release brings.

Audits, bundles, commitments, rounds and `init` choose files by one table. No stage depends on it, so that a change of
what is packed or copied makes no result stale.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pcgeval.core.files import sha256_bytes, sha256_file, to_json, tree_files
from pcgeval.core.packages import installed_release
from pcgeval.core.text import listed
from pcgeval.formats import layout
from pcgeval.formats.params import PARAMS_FILE, Params
from pcgeval.pipeline import STAGES
from pcgeval.similarity.source import FILES, SHIPPED_SHA256, Source

# findings beside differences of files: faults, notes for readers, and two kinds that fail only a strict audit: what was
# not run again, and what is not committed
Kind = Literal["faults", "not_run", "unpublished", "notes"]
Finding = tuple[Kind, str]
Use = Literal["audit", "bundle", "round", "commit", "init"]
_SOURCE_DEPS = re.compile(r"src/pcgeval/[^\s,\]]+(,\s+src/pcgeval/[^\s,\]]+)*")


class Part(NamedTuple):
    """A file or folder of a competition.

    Attributes:
        path: The place below the competition's folder.
        kind: People write an `input`, a release has the `code`, and a stage writes an `output`, which DVC keeps, or a
            `result`, which git keeps.
        uses: An `audit` copies it into its empty folder, a `bundle` packs it, a `round` gets a copy, a `commit` before
            the run promises it, and `init` writes it. git keeps all that is not for `init` alone.
        stage: The stage that writes it.
        per: Whose folders or files it holds: a bundle has only those of the competition's teams and models.
        first: The one of its folders that `init` writes.
        is_optional: Whether a competition may lack it.
    """

    path: Path
    kind: Literal["input", "code", "output", "result"]
    uses: tuple[Use, ...] = ()
    stage: str = ""
    per: Literal["", "team", "model and team"] = ""
    first: str = ""
    is_optional: bool = False

    def places(self, params: Params) -> list[Path]:
        """Return its folders of a competition's teams and models, or its path."""
        if self.per == "team":
            return [self.path / team for team in params.teams]
        if self.per:
            return [self.path / model / team for model in params.models for team in params.teams]
        return [self.path]


PARTS = (  # a test compares them with dvc.yaml
    Part(Path(PARAMS_FILE), "input", ("audit", "bundle", "commit")),
    Part(layout.SUBMISSIONS, "input", ("audit", "bundle", "round", "commit", "init"), per="team", first="zero-shot"),
    Part(layout.LOCKS, "input", ("audit", "bundle", "round", "commit", "init")),
    Part(layout.RECORDINGS, "input", ("audit", "bundle", "round")),
    Part(layout.RUBRICS, "input", ("audit", "bundle", "round", "commit", "init"), first="competition"),
    Part(layout.CLASSIFIER, "input", ("round", "commit", "init")),  # an audit of a bundle takes the shipped one
    Part(layout.EXAMPLE_LETTERS, "input", ("audit", "round"), is_optional=True),
    Part(Path("stages"), "code", ("audit", "bundle", "round")),
    Part(Path("src/pcgeval"), "code", ("audit", "bundle", "round"), is_optional=True),
    Part(layout.PACKAGE_FILE, "code", ("audit", "bundle", "round"), is_optional=True),  # in its place
    Part(Path("dvc.yaml"), "code", ("bundle", "round")),
    Part(Path(".dvcignore"), "code", ("bundle", "round", "init")),
    Part(Path("constraints.txt"), "code", ("bundle",), is_optional=True),
    Part(Path(".gitignore"), "code", ("init",)),
    Part(Path(".gitattributes"), "code", ("init",)),
    Part(Path(".dvc/.gitignore"), "code", ("init",)),
    Part(Path(".dvc/config"), "code", ("init",)),
    Part(layout.DVC_LOCK, "result", ("bundle",)),
    Part(layout.DATA / "raw", "output", ("bundle",), "generate", per="model and team"),
    Part(layout.TRIALS, "output", ("bundle",), "generate"),
    Part(layout.DATA / "intermediate", "output", ("bundle",), "extract", per="model and team"),
    Part(layout.DATA / "levels", "output", ("bundle",), "convert", per="model and team"),
    Part(layout.DATA / "stability", "output", ("bundle",), "simulate", per="model and team"),
    Part(layout.DATA / "images", "output", (), "simulate"),  # as replays and pages, they follow from the rest
    Part(layout.REPLAYS, "output", (), "simulate"),
    Part(layout.DATA / "similarity", "output", ("bundle",), "classify", per="model and team"),
    Part(layout.DATA / "diversity", "output", ("bundle",), "diversity", per="model and team"),
    Part(layout.OFFICIAL_RESULTS, "result", ("bundle",), "score"),
    Part(layout.RANKING_JSON, "result", ("bundle",), "rank"),
    Part(layout.RANKING_CSV, "result", ("bundle",), "rank"),
    Part(layout.METRICS, "result", ("bundle",), "rank"),
    Part(layout.GRADES, "result", ("bundle",), "grade", per="team"),
    Part(layout.JUDGEMENTS, "output", ("bundle",), "grade", per="team"),
    Part(layout.EVIDENCE, "output", ("bundle",), "grade", per="team"),
    Part(layout.REPORT, "output", (), "report"),
)
OUTPUTS: Mapping[str, tuple[str, ...]] = {  # of each stage
    stage.__name__: tuple(str(part.path) for part in PARTS if part.stage == stage.__name__) for stage in STAGES
}


def parts_for(use: Use) -> list[Part]:
    """Return the parts of a competition that have a use."""
    return [part for part in PARTS if use in part.uses]


def check_release(root: Path, params: Params) -> Iterator[Finding]:
    """Name the code and the classifier that are not those of the release that runs this audit."""
    package = Path(__file__).parents[1]
    source = root / "src" / "pcgeval"
    if source.is_dir() and source.samefile(package):
        yield "notes", "the audit ran the code of this folder; the `pcgeval audit` of a release compares it with that."
    elif names := _altered(root, package):
        yield "faults", f"the code is not that of the installed release: {listed(names)}."
    classifier = Source("", None, classifier_folder(root))
    is_whole = all((classifier.folder / name).is_file() for name in FILES)
    if params.similarity.model == str(layout.CLASSIFIER) and is_whole and classifier.sha256 != SHIPPED_SHA256:
        hashes = f"their SHA-256 is {classifier.sha256}, and {SHIPPED_SHA256} is shipped"
        yield "faults", f"{layout.CLASSIFIER}: these are not the weights that pcgeval ships: {hashes}."


def classifier_folder(root: Path) -> Path:
    """Return the folder of the classifier: the competition's, else that of the working directory or the package."""
    return path if (path := root / layout.CLASSIFIER).is_dir() else layout.own_or_packaged(layout.CLASSIFIER).resolve()


def pipeline_files() -> dict[str, bytes]:
    """Return the files of a competition's folder of the release: stages, dvc.yaml, .dvcignore, pcgeval.json.

    They are those of the repository, but for the dependencies on `src/pcgeval` and on the example letters in dvc.yaml.
    """
    stages = sorted((layout.RELEASED_PIPELINE / "stages").glob("*.py"))
    pipeline = (layout.RELEASED_PIPELINE / "dvc.yaml").read_text("utf-8").replace(f"{layout.EXAMPLE_LETTERS}, ", "")
    return {
        ".dvcignore": (layout.RELEASED_PIPELINE / ".dvcignore").read_bytes(),
        "dvc.yaml": _SOURCE_DEPS.sub(str(layout.PACKAGE_FILE), pipeline).encode(),
        str(layout.PACKAGE_FILE): f"{to_json(installed_release())}\n".encode(),
        **{f"stages/{path.name}": path.read_bytes() for path in stages},
    }


def _altered(root: Path, package: Path) -> list[str]:
    """Return the files of the code that differ from those of the release."""
    if (root / layout.PACKAGE_FILE).is_file():  # `pcgeval init` made the folder
        released = {name: sha256_bytes(content) for name, content in pipeline_files().items()}
    else:
        released = {"dvc.yaml": sha256_file(layout.RELEASED_PIPELINE / "dvc.yaml")}
        released |= _modules(layout.RELEASED_PIPELINE / "stages", "stages/") | _modules(package, "src/pcgeval/")
    names = [*released, *_modules(root / "stages", "stages/"), *_modules(root / "src/pcgeval", "src/pcgeval/")]
    present = {name: sha256_file(root / name) for name in names if (root / name).is_file()}
    return [name for name in sorted({*names}) if present.get(name) != released.get(name)]


def _modules(folder: Path, above: str) -> dict[str, str]:
    """Return the SHA-256 of every module below a folder, by its name with what is above it."""
    return {above + name: sha256_file(folder / name) for name in tree_files(folder) if name.endswith(".py")}

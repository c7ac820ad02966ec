"""What a competition consists of: one table, by which audits, bundles, commitments, rounds and `init` choose files.

No stage depends on it, so that a change of what is packed or copied makes no result stale.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pcgeval.formats import layout
from pcgeval.formats.params import PARAMS_FILE, Params
from pcgeval.pipeline import STAGES

Use = Literal["audit", "bundle", "round", "commit", "init"]


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

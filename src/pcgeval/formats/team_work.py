"""Do a stage's work for the models and teams whose files changed since the stage ran last.

A file in `.cache/stages` has a hash for each model and team, or for other parts of the work: over the package, the
names, sizes, times and inodes of the files that the work read and wrote, by which DVC tells too whether a file changed,
and what else decides it. While all are the same, the work is not done again. You may delete the folder.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

from pcgeval.core.files import file_states, mark_written, rewritten_folder, sha256_json, write_text
from pcgeval.core.packages import installed_release
from pcgeval.formats.layout import StageDir, Trial, stage_dir, trial_file
from pcgeval.formats.params import Params

CACHE = Path(".cache", "stages")
_TICK_SECONDS = 0.02  # in which a clock may show two changes of a file as one
Place = tuple[str, ...]  # a model and a team, a team, or nothing where the work is done as one
Paths = Callable[..., Iterable[Path]]  # files and folders of a place


@contextmanager
def changed_teams(
    params: Params,
    root: Path,
    folders: Sequence[Path],
    keep: Path,
    *,
    reads: Paths,
    writes: Paths,
    made_from: Callable[..., object],
    places: Iterable[Place] | None = None,
) -> Iterator[list[Place]]:
    """Yield the models and teams whose work is to be done, then remove every file that was written for none of them.

    A place that is taken from the list is done again by the next run, and so are all of the list after an error, after
    which nothing is removed.

    Args:
        params: The competition.
        root: Its folder.
        folders: The stage's output folders; the first one names the stage.
        keep: The stage's input folder; without it, FileError is raised.
        reads: What the work for a model and a team reads, below the root.
        writes: What it writes.
        made_from: Whatever else decides it.
        places: What is done apart; by default, all models and teams.
    """
    state = root / CACHE / folders[0].name
    known = state.read_bytes().decode("ascii", errors="replace").splitlines() if state.is_file() else []
    code, places = installed_release(), [*(product(params.models, params.teams) if places is None else places)]
    read = {place: file_states(root / path for path in reads(*place)) for place in places}

    def written(place: Place) -> tuple[str, dict[str, str]]:
        files = file_states(root / path for path in writes(*place))
        return sha256_json([code, repr(made_from(*place)), read[place], files]), files

    with ExitStack() as outputs:
        for folder in folders:
            outputs.enter_context(rewritten_folder(root / folder, keep=root / keep))
        done = {}
        for place in places:
            digest, files = written(place)
            if digest in known:
                done[place] = digest
                mark_written(files)
        to_do = [place for place in places if place not in done]
        yield to_do
    if to_do:
        time.sleep(_TICK_SECONDS)  # so that whoever changes a file from now on changes its time
        done |= {place: written(place)[0] for place in to_do}
    write_text(state, "".join(f"{digest}\n" for digest in done.values()))


def trial_contents(
    params: Params, root: Path, stage: StageDir, places: Iterable[Place]
) -> dict[tuple[str, str, Trial], bytes]:
    """Return the content of each file that a stage wrote for a trial of some models and teams."""
    return {
        (model, team, trial): path.read_bytes()
        for model, team in places
        for trial in params.trials()
        if (path := trial_file(root / stage_dir(stage, model, team), stage, team, trial)).is_file()
    }

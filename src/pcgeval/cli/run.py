"""The command `run`: a whole evaluation, from the checks to the ranking, here or of another round below `rounds/`.

The workspace of a round has copies of stages and inputs, and separate outputs. It shares the cache and the call log:
what both rounds need is computed, or asked of a model, once.
"""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import psutil
import typer
import yaml

from pcgeval.cli.check import check
from pcgeval.cli.options import group
from pcgeval.cli.ranking import show_ranking
from pcgeval.core.console import EXIT_BAD_INPUT, EXIT_CHECK_FAILED, INSIDE_RUN, print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.files import copy_files, derived_seed, write_text
from pcgeval.core.locks import lock_folder
from pcgeval.formats.layout import CALLS, RUN_LOCK, STATE, SUBMISSIONS, SUBMIT_LOCK, competition_files, state_name
from pcgeval.formats.params import ParamsError, load_params
from pcgeval.pipeline import check_package
from pcgeval.proof.parts import parts_for

app = group()
ROUNDS = Path("rounds")
_DVC_CONFIG = """\
[core]
    analytics = false
    no_scm = true
    check_update = false
[cache]
    dir = {cache}
    type = copy
"""


@app.command()
def run(
    round_name: Annotated[str | None, typer.Option("--round", metavar="NAME", help="Evaluate this round.")] = None,
) -> None:
    """Evaluate the competition, from the checks to the ranking.

    The command runs `check`, `dvc repro --keep-going` and `ranking`. It computes only changes, and continues a stopped
    run. A round of params.yaml is evaluated in rounds/NAME. Exit code 1: a stage failed; the stages that do not depend
    on it have run.
    """
    if round_name is not None:
        run_round(round_name)
        return
    import dvc  # noqa: F401, PLC0415 - it is run as a program, and an extra brings it

    load_params()  # outside a competition's folder, leave nothing behind
    check_package()
    with lock_folder(Path.cwd(), RUN_LOCK):
        check()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # the stages run this Python
        environment = {**os.environ, INSIDE_RUN: "1", "PATH": path}
        process = psutil.Popen([sys.executable, "-m", "dvc", "repro", "--keep-going"], env=environment)
        try:
            failed = process.wait()
        except KeyboardInterrupt:
            with suppress(psutil.NoSuchProcess):
                stages = process.children(recursive=True)
                process.terminate()
                psutil.wait_procs([process, *stages], timeout=30)  # stages hold locks that the next run needs
            print_stderr("")  # DVC may have been in the middle of a line
            raise
    if failed:
        print_stderr("The evaluation is not complete: a stage failed for the reason above. Fix that and run again.")
        raise typer.Exit(EXIT_CHECK_FAILED)
    show_ranking()


def run_round(name: str) -> None:
    """Evaluate a round of params.yaml in rounds/NAME with `pcgeval run`, and exit with its code if it failed."""
    with lock_folder(ROUNDS / name, STATE / f"round-{state_name(ROUNDS / name)}.lock"):
        with lock_folder(SUBMISSIONS, SUBMIT_LOCK):  # copy no half of a submission that is being filed
            workspace = prepare_round(name)
        print_stderr(f"evaluating the round {name} in {workspace}")
        environment = {**os.environ, INSIDE_RUN: "1"}
        if (workspace / "src").is_dir():
            environment["PYTHONPATH"] = str((workspace / "src").resolve())
        words = [sys.executable, "-m", "pcgeval", "run"]
        if code := subprocess.run(words, cwd=workspace, env=environment, check=False).returncode:
            raise typer.Exit(code if code == EXIT_BAD_INPUT else EXIT_CHECK_FAILED)
        print_stderr(f"The files of this round lie in {workspace}")


def prepare_round(name: str, root: Path = Path()) -> Path:
    """Make or refresh the workspace of a round in a competition's folder, and return it; its outputs are kept."""
    rounds = load_params(root / "params.yaml").rounds
    if name not in rounds:
        known = ", ".join(rounds) or "none"
        raise ParamsError(f"params.yaml has no round {name!r} below `rounds` ({known}). Add its letters and trials.")
    values = yaml.safe_load((root / "params.yaml").read_bytes())
    seed = rounds[name].seed
    if seed is None:  # with the final's seed, an earlier round would reveal its replies
        seed = derived_seed(values["competition"]["seed"], name)
    values["competition"] |= {"round": name, **values["rounds"][name], "seed": seed}
    workspace = root / ROUNDS / name
    dvc_config = workspace / ".dvc" / "config"  # comes first: it marks the workspace as ours
    if workspace.exists() and not dvc_config.is_file() and any(workspace.iterdir()):
        raise FileError(f"{workspace}: already exists and `pcgeval run --round` did not make it. Move it elsewhere.")
    write_text(dvc_config, _DVC_CONFIG.format(cache=root.resolve() / ".dvc" / "cache"))
    for part in parts_for("round"):
        source, target = root / part.path, workspace / part.path
        if not (source.exists() or part.is_optional):
            raise FileError(f"{source}: is missing, and every round needs it. Restore it, for example from git.")
        shutil.rmtree(target, ignore_errors=True)
        copy_files(root, workspace, competition_files(root, part.path), follow_link=True, with_status=True)
    write_text(workspace / "params.yaml", yaml.safe_dump(values, sort_keys=False))
    (root / CALLS).mkdir(parents=True, exist_ok=True)
    (workspace / CALLS).parent.mkdir(exist_ok=True)
    if not os.path.lexists(workspace / CALLS):
        (workspace / CALLS).symlink_to((root / CALLS).resolve())
    return workspace

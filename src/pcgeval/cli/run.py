"""The command `run`: a whole evaluation, from the checks to the ranking."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import psutil
import typer

from pcgeval.cli.check import check
from pcgeval.cli.competition import show_ranking
from pcgeval.cli.options import group
from pcgeval.core.console import EXIT_CHECK_FAILED, INSIDE_RUN, print_stderr
from pcgeval.core.locks import lock_folder
from pcgeval.formats.layout import RUN_LOCK

app = group()


@app.command()
def run(
    round_name: Annotated[str | None, typer.Option("--round", metavar="NAME", help="Evaluate this round.")] = None,
) -> None:
    """Evaluate the competition, from the checks to the ranking.

    The command runs `check`, `dvc repro --keep-going` and `ranking`. It computes only changes, and continues a stopped
    run. A round of params.yaml is evaluated in rounds/NAME. Exit code 1: a stage failed; the stages that do not depend
    on it have run.
    """
    from pcgeval.cli.rounds import run_round
    from pcgeval.formats.params import load_params
    from pcgeval.pipeline import check_package

    if round_name is not None:
        run_round(round_name)
        return
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

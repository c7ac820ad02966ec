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
from pcgeval.cli.options import Scheduler, group
from pcgeval.core.console import EXIT_CHECK_FAILED, INSIDE_RUN, SCHEDULER, check_package, print_stderr
from pcgeval.core.layout import RUN_LOCK
from pcgeval.core.locks import lock_folder

app = group()


@app.command()
def run(
    scheduler: Scheduler = None,
    round_name: Annotated[
        str | None, typer.Option("--round", metavar="NAME", help="Evaluate a key of `rounds` in rounds/NAME instead.")
    ] = None,
) -> None:
    """Evaluate the competition, from the checks to the ranking.

    Runs `check`, `dvc repro --keep-going` and `ranking`. Only what changed is computed again, and a run that was
    stopped goes on where it was. If a stage fails, those that do not need it are run all the same, and the exit code is
    1.
    """
    import dvc  # noqa: F401 - it is run as a program, and an extra brings it

    from pcgeval.cli.rounds import run_round
    from pcgeval.core.params import load_params

    if round_name is not None:
        run_round(round_name, scheduler)
        return
    load_params()  # elsewhere than in a competition's folder nothing is left behind
    check_package()
    with lock_folder(Path.cwd(), RUN_LOCK):
        check()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # the stages run this Python
        environment = {**os.environ, INSIDE_RUN: "1", "PATH": path, **({SCHEDULER: scheduler} if scheduler else {})}
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
        print_stderr("The evaluation is not complete: a stage failed for the reason above. What does not need it is")
        print_stderr("done. Correct what the message names and run again.")
        raise typer.Exit(EXIT_CHECK_FAILED)
    show_ranking()

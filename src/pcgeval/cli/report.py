"""The command that opens, serves and shares the report."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from pcgeval.cli.options import group
from pcgeval.core.console import print_stderr
from pcgeval.core.errors import FileError

app = group()


@app.command()
def report(
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a copy to share there, which names the commit and its date."),
    ] = None,
    bundle: Annotated[
        bool, typer.Option("--bundle", help="With --out: put the bundle there too, which others can verify.")
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Serve it to this machine's browsers until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of --serve; 0 takes a free one.")] = 0,
) -> None:
    """Name, open, serve or copy the report of the last run.

    Exit code 1 means that it may not be the report of what is there now; the reasons are named.
    """
    from pcgeval.cli.competition import fail_if_doubtful
    from pcgeval.core.layout import RANKING_JSON, REPORT
    from pcgeval.core.params import load_params
    from pcgeval.core.stage_files import RankingFile
    from pcgeval.report.render import INDEX, write_report
    from pcgeval.scoring.result_hash import result_doubts

    params = load_params()
    index = REPORT / INDEX
    if out:
        if out.exists() and not (out.is_dir() and ((out / INDEX).is_file() or not any(out.iterdir()))):
            raise FileError(f"{out}: already exists and is no report. Name a new or empty folder.")
        beside = {}
        if bundle:
            from pcgeval.proof.bundle import make_bundle

            beside["bundle.zip"] = make_bundle(Path())
        index = write_report(params, Path(), out, _commit(), beside)
    elif not index.is_file():
        raise FileError(f"{index}: is missing. Run `make report` to make it.")
    sys.stdout.write(f"{index}\n")
    sys.stdout.flush()
    doubts = result_doubts(params, RankingFile.read(RANKING_JSON))
    if serve:
        _serve(index, port, open_page=open_page)
    elif open_page:
        _open(index.resolve().as_uri())
    fail_if_doubtful(doubts)


def _serve(index: Path, port: int, *, open_page: bool) -> None:
    from pcgeval.report.server import report_server

    with report_server(index.parent, port) as server:
        address = f"http://{server.server_address[0]!s}:{server.server_port}/"
        print_stderr(f"serving the report at {address}; Ctrl-C ends it")
        if open_page:
            _open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print_stderr("ended")


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        print_stderr(f"no browser could be started; open {address} in one")


def _commit() -> str:
    """Return the commit that is checked out with its date, and whether files differ from it; empty without git."""
    try:
        commit, changes = (
            subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (("log", "-1", "--format=%H of %cs"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{commit}, with uncommitted changes" if changes else commit

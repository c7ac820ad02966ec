"""The command `pcgeval`, which `python -m pcgeval` is, too."""

import sys


def main() -> int:
    """Run a command; also what goes wrong before it starts ends in one line."""
    try:
        from pcgeval.cli.main import main as run_command  # noqa: PLC0415 - it imports for half a second

        return run_command()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 130
    except ImportError as error:
        sys.stderr.write(f"error: {error}. Install pcgeval again, with what it needs: pip install pcgeval\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())

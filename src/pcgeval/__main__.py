"""The command `pcgeval`, also run as `python -m pcgeval`."""

import sys


def main() -> int:
    """Run a command; an error before its start ends in one line, too."""
    try:
        from pcgeval.cli.main import main as run_command  # noqa: PLC0415 - it imports for half a second

        return run_command()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 130
    except ImportError as error:
        sys.stderr.write(f"error: {error}. Install pcgeval again, with what it needs, as you did before.\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())

"""The versions of the packages that a result is computed with."""

import functools
import importlib.metadata


@functools.cache
def installed_version(name: str) -> str | None:
    """Return the installed version of a package without a local label such as `+cpu`; None if it is not installed."""
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def installed_versions(*names: str) -> dict[str, str]:
    """Return the installed versions of those packages that are installed, by name."""
    return {name: version for name in names if (version := installed_version(name)) is not None}

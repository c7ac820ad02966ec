"""The hash of the code that results are kept by."""

from pathlib import Path

import pytest

from pcgeval.core import packages
from pcgeval.core.files import write_text


def test_the_source_hash_changes_with_every_module_of_its_packages_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("core/packages.py", "levels/grid.py", "evaluator/deep/world.py"):
        write_text(tmp_path / name, "")
    monkeypatch.setattr(packages, "__file__", str(tmp_path / "core" / "packages.py"))

    def sha256() -> str:
        packages.source_sha256.cache_clear()
        return packages.source_sha256("evaluator", "levels")

    try:
        seen = [sha256()]
        for name in ("levels/grid.py", "evaluator/deep/world.py", "levels/new.py"):
            write_text(tmp_path / name, "changed = 1\n")
            seen.append(sha256())
        assert len(set(seen)) == 4
        write_text(tmp_path / "core/packages.py", "changed = 1\n")
        assert sha256() == seen[-1]
    finally:
        packages.source_sha256.cache_clear()

import pytest

import pcgeval
from pcgeval.rl import loading
from pcgeval.rl.loading import EnvironmentsError


def test_who_lacks_verifiers_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(loading, "find_spec", lambda _: None)
    with pytest.raises(EnvironmentsError, match=r"pip install 'pcgeval\[verifiers\]'"):
        pcgeval.load_environment()

"""dvc.lock may hold anything: it is understood or refused with what to do, never a traceback."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from soak import SOAK

from pcgeval.audit.audit import AuditError, audit
from pcgeval.audit.pipeline import read_pipeline
from pcgeval.audit.text import audit_text

JUNK = [None, 0, -1, 1.5, True, "", "x", "../../etc/passwd", "a\0b", [], {}, [[]], [{}], {"": None}, "0" * 32 + ".dir"]
BAD_LOCKS = {
    "no YAML": "a: [",
    "a list": "- a",
    "empty": "",
    "no schema": "stages: {}",
    "an old schema": "schema: '1.0'\nstages: {}",
    "a merge conflict": "<<<<<<< HEAD\nschema: '2.0'\n",
    "twice a key": "schema: '2.0'\nschema: '2.0'\n",
    "an old hash": "schema: '2.0'\nstages: {a: {cmd: x, outs: [{path: p, md5: " + "0" * 32 + "}]}}",
    "no hash": "schema: '2.0'\nstages: {a: {cmd: x, outs: [{path: p, hash: md5, md5: zz}]}}",
    "deep": "[" * 600,
    "python objects": "schema: !!python/object/apply:os.system [x]",
}


@pytest.mark.parametrize("name", BAD_LOCKS)
def test_a_malformed_lock_is_refused(workspace: Path, name: str) -> None:
    (workspace / "dvc.lock").write_text(BAD_LOCKS[name])
    with pytest.raises(AuditError, match=r"dvc\.lock.*Restore it \(`git restore dvc.lock`\), or delete it"):
        audit(workspace)


def test_a_lock_that_is_no_text_is_refused(workspace: Path) -> None:
    (workspace / "dvc.lock").write_bytes(b"schema: \xff")
    with pytest.raises(AuditError, match=r"(?i)not valid utf-8.*Restore it"):
        audit(workspace)


@pytest.mark.parametrize("text", ["stages: [", "stages: {a: {matrix: {x: '${nope}'}, cmd: y}}", "", "- a", "stages: 3"])
def test_a_malformed_pipeline_is_refused(workspace: Path, text: str) -> None:
    (workspace / "dvc.yaml").write_text(text)
    with pytest.raises(AuditError, match=r"dvc\.yaml"):
        audit(workspace)


def test_the_lock_is_read_as_dvc_wrote_it(workspace: Path) -> None:
    written = yaml.safe_load((workspace / "dvc.lock").read_text())["stages"]
    found = {stage.name: stage for stage in read_pipeline(workspace).stages}
    assert found.keys() == written.keys()
    assert {out.path: out.md5 for out in found["rank"].outs} == {
        out["path"]: out["md5"] for out in written["rank"]["outs"]
    }


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*place, key)
        yield from places(value[key], (*place, key))


@settings(max_examples=200 if SOAK else 15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_lock_with_junk_in_it_is_understood_or_refused(workspace: Path, data: st.DataObject) -> None:
    whole = (workspace / "dvc.lock").read_text()
    lock = copy.deepcopy(yaml.safe_load(whole))
    *parents, last = data.draw(st.sampled_from(list(places(lock))))
    target = lock
    for key in parents:
        target = target[key]
    target[last] = data.draw(st.sampled_from(JUNK))
    try:
        (workspace / "dvc.lock").write_text(yaml.safe_dump(lock))
        audit_text(audit(workspace))
    except AuditError as error:
        assert "dvc.lock" in str(error)  # noqa: PT017 - most junk is understood
    finally:
        (workspace / "dvc.lock").write_text(whole)

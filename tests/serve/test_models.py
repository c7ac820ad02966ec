import asyncio

import pytest

from pcgeval.serve import models
from pcgeval.serve.models import ModelManager


class Engine:
    alive = 0

    def __init__(self, path, *, context, threads):  # noqa: ARG002
        Engine.alive += 1
        self.path, self.context = path, context

    def close(self):
        Engine.alive -= 1


@pytest.fixture
def manager(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "LlamaCpp", Engine)
    monkeypatch.setattr(models, "read_header", lambda _: {"general.architecture": "toy", "toy.context_length": 900})
    monkeypatch.setattr(Engine, "alive", 0)
    return ModelManager({"a": tmp_path / "a.gguf", "b": tmp_path / "b.gguf"})


def borrowed(manager, *loans, **how):
    """Borrow each model and context one after the other; return the engines."""

    async def borrow():
        engines = []
        for file, context in loans:
            async with manager.borrow(file, context, **how) as engine:
                engines.append(engine)
                assert Engine.alive == 1
        return engines

    return asyncio.run(borrow())


def test_one_model_at_a_time_is_in_memory(manager):
    first, second = manager.files
    engine, again, other, _ = borrowed(manager, (first, 512), (first, 512), (first, 256), (second, 256))
    assert (engine.path, engine.context) == (first.path, 512)
    assert again is engine
    assert other is not engine
    asyncio.run(manager.unload(first))
    assert manager.loaded.file is second
    asyncio.run(manager.unload(second))
    assert (manager.loaded, Engine.alive) == (None, 0)
    borrowed(manager, (first, 512), keep=False)
    assert (manager.loaded, Engine.alive) == (None, 0)


def test_the_context_ends_where_the_training_ended(manager):
    (engine,) = borrowed(manager, (manager.files[0], 10**9))
    assert engine.context == 900


def test_requests_take_turns_and_one_that_is_given_up_leaves_the_queue(manager):
    file = manager.files[0]

    async def main():
        waiting = None
        async with manager.borrow(file, 512):
            waiting = asyncio.ensure_future(anext(aiter(loan())))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            waiting.cancel()
        with pytest.raises(KeyError):
            async with manager.borrow(file, 512):
                raise KeyError
        async with asyncio.timeout(10), manager.borrow(file, 512):
            pass

    async def loan():
        async with manager.borrow(file, 256) as engine:
            yield engine

    asyncio.run(main())
    assert Engine.alive == 1

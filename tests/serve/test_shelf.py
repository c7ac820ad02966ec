import threading

import pytest

from pcgeval.serve import shelf as shelf_module
from pcgeval.serve.shelf import BusyError, ClientGoneError, Shelf


class Engine:
    alive = 0

    def __init__(self, path, *, context, threads):  # noqa: ARG002
        Engine.alive += 1
        self.path, self.context = path, context

    def close(self):
        Engine.alive -= 1


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    monkeypatch.setattr(shelf_module, "LlamaCpp", Engine)
    monkeypatch.setattr(
        shelf_module, "read_header", lambda _: {"general.architecture": "toy", "toy.context_length": 900}
    )
    monkeypatch.setattr(Engine, "alive", 0)
    return Shelf({"a": tmp_path / "a.gguf", "b": tmp_path / "b.gguf"})


def stay():
    return False


def test_one_model_at_a_time_is_in_memory(shelf):
    first, second = shelf.models
    with shelf.borrow(first, 512, stay, keep=True) as engine:
        assert (engine.path, engine.context) == (first.path, 512)
    with shelf.borrow(first, 512, stay, keep=True) as again:
        assert again is engine
    with shelf.borrow(first, 256, stay, keep=True) as other:
        assert other is not engine
    with shelf.borrow(second, 256, stay, keep=True):
        assert Engine.alive == 1
    shelf.unload(first, stay)
    assert shelf.loaded.model is second
    shelf.unload(second, stay)
    assert (shelf.loaded, Engine.alive) == (None, 0)
    with shelf.borrow(first, 512, stay, keep=False):
        pass
    assert (shelf.loaded, Engine.alive) == (None, 0)


def test_the_context_ends_where_the_training_ended(shelf):
    with shelf.borrow(shelf.models[0], 10**9, stay, keep=True) as engine:
        assert engine.context == 900


def test_a_client_that_goes_away_leaves_the_queue_and_a_full_queue_is_said(shelf, monkeypatch):
    monkeypatch.setattr(shelf_module, "_POLL", 0.01)
    model, inside, done = shelf.models[0], threading.Event(), threading.Event()

    def hold():
        with shelf.borrow(model, 512, stay, keep=True):
            inside.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(30)
    with pytest.raises(ClientGoneError), shelf.borrow(model, 512, lambda: True, keep=True):
        pass
    shelf._waiting = threading.BoundedSemaphore(1)
    shelf._waiting.acquire()
    with pytest.raises(BusyError, match="maximum pending requests"), shelf.borrow(model, 512, stay, keep=True):
        pass
    done.set()
    holder.join()


def test_an_error_inside_gives_the_turn_back(shelf):
    with pytest.raises(KeyError), shelf.borrow(shelf.models[0], 512, stay, keep=True):
        raise KeyError
    with shelf.borrow(shelf.models[0], 512, stay, keep=True):
        pass

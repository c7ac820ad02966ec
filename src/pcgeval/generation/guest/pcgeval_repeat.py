"""Make a program repeatable: its clocks and its random numbers follow from the trial alone.

A second run of a program on the same replies has to come to the same answer, although the replies come at once and the
program computes faster or slower. So the trial's chance seeds every generator that would draw its seed from the system,
and all clocks show the trial's: the time of the last reply, and since then what the program slept and whole seconds of
what it computed. They begin on a fixed day, and a thread that reads one again sees it a tick later.

This affects the program's process alone. The broker's clock, which decides the limits, is outside.
"""  # noqa: INP001 - found through PYTHONPATH, as all here

from __future__ import annotations

import _random
import datetime as dt
import gc
import importlib.util
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

SECOND = 10**9  # in nanoseconds, as the next
TICK = 1_000
DAY = 86_400
FIRST_DAY = 1_735_689_600  # 2025-01-01, on the clock of time.time: every trial is on this day
NUMPYS_SEEDS = "numpy.random.bit_generator"  # the module of numpy that draws seeds from the system

_real_ns, _real_sleep = time.perf_counter_ns, time.sleep


class Clock:
    """The trial's clock in nanoseconds since it began."""

    def __init__(self) -> None:
        """Stand still until `run`: imports take another time in every run."""
        self._now = 0
        self._since: int | None = None  # the real time since which whole seconds count
        self._ticks = threading.local()  # how often a thread read each clock: libraries read some in threads of theirs

    def now(self, name: str) -> int:
        """Return the time for the clock of that name."""
        ticks = min(getattr(self._ticks, name, 0) + TICK, SECOND)
        setattr(self._ticks, name, ticks)
        if self._since is not None:
            whole = (_real_ns() - self._since) // SECOND * SECOND
            self._now, self._since = self._now + whole, self._since + whole
        return self._now + ticks

    def run(self, at: float = 0.0) -> None:
        """Show at least `at` seconds, and count whole seconds from now on."""
        self._now, self._since = max(self._now, round(at * SECOND)), _real_ns()

    def sleep(self, seconds: float) -> None:
        """Sleep as time.sleep does."""
        began = self._now
        _real_sleep(seconds)
        self._now = max(self._now, began + round(seconds * SECOND))  # several threads may sleep at once
        if self._since is not None:
            self._since = _real_ns()


clock = Clock()


class _NumpysSeeds:
    """Seed numpy's generators when numpy is imported."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: Any = None) -> ModuleSpec | None:
        if name != NUMPYS_SEEDS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            spec.loader.exec_module = self._executing(spec.loader.exec_module)  # type: ignore[method-assign]
        return spec

    def _executing(self, execute: Any) -> Any:
        def execute_and_seed(module: ModuleType) -> None:
            execute(module)
            module.randbits = self._source.getrandbits  # type: ignore[attr-defined]

        return execute_and_seed


def seed_generators(chance: int) -> None:
    """Seed the generators of `random` and numpy, and all that a program makes later without a seed."""
    seeds = random.Random(chance)  # noqa: S311 - to be repeatable is what these are for
    seed = random.Random.seed

    def seed_repeatably(generator: random.Random, a: Any = None, version: int = 2) -> None:
        seed(generator, seeds.getrandbits(128) if a is None else a, version)

    random.Random.seed = seed_repeatably  # type: ignore[method-assign,assignment]
    random.seed = random._inst.seed  # noqa: SLF001 - the generator whose method it was
    random.seed()
    os.register_at_fork(before=seeds.random, after_in_child=random.seed)  # each child draws other numbers
    sys.meta_path.insert(0, _NumpysSeeds(seeds))


def renew_generators(chance: int) -> None:
    """Continue existing generators of random numbers at another place in each trial.

    Officially one process runs all trials one after the other, so that a generator which was seeded before the first
    continues from trial to trial. Here each trial has a process. A generator that `run` seeds begins anew in each
    trial in both cases.
    """
    numpy: Any = getattr(sys.modules.get("numpy.random"), "BitGenerator", ())
    # the collector does not list what was there before the program's process was copied
    generators = [random._inst, *gc.get_objects()]  # noqa: SLF001
    kinds = {kind for kind in {*map(type, generators)} if issubclass(kind, (_random.Random, numpy))}
    for generator in {id(one): one for one in generators if type(one) in kinds}.values():
        kind = type(generator)
        if issubclass(kind, _random.Random):
            _random.Random.seed(generator, _renewed(_random.Random.getrandbits(generator, 64), chance))
            if hasattr(generator, "gauss_next"):
                generator.gauss_next = None
        elif issubclass(kind, numpy) and kind.__module__.startswith("numpy."):
            generator.state = kind(_renewed(generator.random_raw(), chance)).state


def _renewed(drawn: int, chance: int) -> int:
    return int.from_bytes(sha256(f"{drawn}/{chance}".encode()).digest()[:8], "big")


def set_clocks(chance: int) -> None:
    """Let all clocks of Python show the trial's; they begin at a time of the day that follows from the chance."""
    begins = chance % (DAY * 1000) * (SECOND // 1000)
    real: Any = SimpleNamespace(**vars(time))

    def date() -> int:
        return FIRST_DAY * SECOND + begins + clock.now("date")

    def monotonic() -> int:
        return begins + clock.now("monotonic")

    def perf_counter() -> int:
        return begins + clock.now("perf_counter")

    def seconds(given: Any) -> Any:
        return date() / SECOND if given is None else given

    clocks: dict[str, Callable[..., Any]] = {
        "time": lambda: date() / SECOND,
        "time_ns": date,
        "monotonic": lambda: monotonic() / SECOND,
        "monotonic_ns": monotonic,
        "perf_counter": lambda: perf_counter() / SECOND,
        "perf_counter_ns": perf_counter,
        "sleep": clock.sleep,
        "gmtime": lambda secs=None: real.gmtime(seconds(secs)),
        "localtime": lambda secs=None: real.localtime(seconds(secs)),
        "ctime": lambda secs=None: real.ctime(seconds(secs)),
        "asctime": lambda t=None: real.asctime(t or time.localtime()),
        "strftime": lambda form, t=None: real.strftime(form, t or time.localtime()),
    }
    for name, function in clocks.items():
        setattr(time, name, staticmethod(function))  # as a class's attribute it becomes no method, like Python's own
    dt.date, dt.datetime = Date, DateTime  # type: ignore[misc]


class _Same(type):
    """The type of the two classes below, which count what C code makes of the real ones as theirs."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.__bases__[0]) if cls in (Date, DateTime) else super().__instancecheck__(value)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.__bases__[0]) if cls in (Date, DateTime) else super().__subclasscheck__(kind)


class Date(dt.date, metaclass=_Same):
    """A datetime.date of the trial's clock."""

    __module__, __qualname__ = "datetime", "date"

    @classmethod
    def today(cls) -> Any:
        """Return the trial's day."""
        return cls.fromtimestamp(time.time())


class DateTime(dt.datetime, metaclass=_Same):
    """A datetime.datetime of the trial's clock."""

    __module__, __qualname__ = "datetime", "datetime"

    @classmethod
    def today(cls) -> Any:
        """Return the trial's time."""
        return cls.fromtimestamp(time.time())

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        """Return the trial's time in a time zone."""
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        """Return the trial's time."""
        return cls.fromtimestamp(time.time(), dt.UTC).replace(tzinfo=None)

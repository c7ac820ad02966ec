"""Which programs draw random numbers without a seed."""

from pathlib import Path

import pytest

from pcgeval.submissions.lint import unseeded_random
from pcgeval.submissions.sources import python_files

FINE = [
    "",
    "import random",
    "import random\nrandom.seed(1)\nprint(random.random())",
    "import random as dice\ndice.seed(a=1)\ndice.choice([1])",
    "from random import choice, seed\nseed(1)\nchoice([1])",
    "import random\ngenerator = random.Random(5)\ngenerator.random()",
    "import numpy as np\nnp.random.seed(3)\nnp.random.rand(2)",
    "import numpy as np\ngenerator = np.random.default_rng(3)",
    "from numpy.random import default_rng\ndefault_rng(seed=3)",
    "import numpy as np\nnp.array([1])",
    "def random():\n    return 4\nrandom()",
    "import my.random\nmy.random.choice([1])",
    "this is not Python: random.choice(",
    "import time\nimport random\nrandom.seed(7)\nrandom.random(), time.time()",
    "import uuid\nuuid.uuid5(uuid.NAMESPACE_DNS, 'a')",
]
FORGOTTEN = [
    ("import random\n\nrandom.choice([1])", "main.py:3 uses random,"),
    ("import random\nrandom.seed()\nrandom.choice([1])", "uses random,"),
    ("import random as dice\ndice.shuffle([1])", "main.py:2 uses random,"),
    ("from random import choice\nchoice([1])", "main.py:2 uses random,"),
    ("from random import choice as pick\npick([1])", "uses random,"),
    ("from random import *\nchoice([1])", "main.py:2 uses random,"),
    ("import random\nrandom.Random().random()", "uses random,"),
    ("import random\npick = getattr(random, 'choice')", "uses random,"),
    ("import numpy as np\nnp.random.rand(2)", "main.py:2 uses numpy.random,"),
    ("import numpy\nnumpy.random.default_rng().random()", "uses numpy.random,"),
    ("from numpy import random\nrandom.rand(2)", "uses numpy.random,"),
    ("import numpy.random\nnumpy.random.rand(2)", "uses numpy.random,"),
    ("import random\nrandom.seed(None)\nrandom.random()", "uses random,"),
    ("import random, time\nrandom.seed(time.time())\nrandom.random()", "main.py:2 seeds random with time.time"),
    ("import random\nfrom time import time_ns as t\nrandom.Random(int(t()) % 7)", "with time.time_ns"),
    ("import numpy as np, os\nnp.random.default_rng(os.getpid())", "with os.getpid"),
    ("import os\n# random\nos.urandom(4)", "main.py:3 uses os.urandom"),
    ("import secrets\nsecrets.choice([1])", "uses secrets.choice"),
    ("import uuid\nstr(uuid.uuid4())", "uses uuid.uuid4"),
    ("from random import SystemRandom\nSystemRandom().random()", "uses random.SystemRandom"),
]


def details(folder: Path) -> list[str]:
    return [flag.detail for flag in unseeded_random(list(python_files(folder)))]


@pytest.mark.parametrize("source", FINE)
def test_no_flag(tmp_path: Path, source: str) -> None:
    (tmp_path / "main.py").write_text(source)
    assert details(tmp_path) == []


@pytest.mark.parametrize(("source", "wanted"), FORGOTTEN)
def test_a_flag(tmp_path: Path, source: str, wanted: str) -> None:
    (tmp_path / "main.py").write_text(source)
    (found,) = details(tmp_path)
    assert wanted in found


def test_a_seed_in_another_file_counts_but_not_for_the_other_generator(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import random, numpy\nrandom.random(), numpy.random.rand()")
    (tmp_path / "setup_all.py").write_text("import random\nrandom.seed(6280)")
    assert [detail.split(" ")[2] for detail in details(tmp_path)] == ["numpy.random,"]


def test_hostile_sources_are_read_in_bounded_time(tmp_path: Path) -> None:
    name = "x" * 60_000
    (tmp_path / "names.py").write_text(f"import random.{name} as r\n" + "r\n" * 60_000)
    (tmp_path / "deep.py").write_text("import random\n" + "random" + ".a" * 100_000)
    (tmp_path / "nested.py").write_text("random" + "(" * 100_000)
    (tmp_path / "large.py").write_text("import random\nrandom.random()\n" + "#" * 10**6)
    (tmp_path / "linked.py").symlink_to("/dev/zero")
    assert [detail.split(" ")[0] for detail in details(tmp_path)] == ["names.py:2"]

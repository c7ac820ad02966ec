from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.judge import files
from pcgeval.judge.files import MAX_ALIKE, condensed


@pytest.mark.parametrize(
    "line",
    [
        "2024-05-01 12:00:00,123 loss 0.5",
        "2024/05/01 12:00:00 loss 0.5",
        "[2024-05-01T12:00:00.123Z] loss 0.5",
        "2024-05-01T12:00:00+02:00 - loss 0.5",
        "[12:00:00] loss 0.5",
        "12:00:00 | loss 0.5",
        "\x1b[32m12:00:00\x1b[0m loss 0.5",
        "loss 0.9\rloss 0.7\rloss 0.5",
        "loss 0.5\r",
    ],
)
def test_times_colours_and_what_was_overwritten_go(line):
    assert condensed(line) == "loss 0.5"


@pytest.mark.parametrize(
    "line",
    [
        "3:10 is the ratio",
        "accuracy 93.5% (n=200)",
        "| 93% | 95% |",
        "|---|---|",
        "1/3 of [all]",
        "2024-05-01 is a date",
    ],
)
def test_results_are_kept_as_they_are(line):
    assert condensed(f"{line}\n{line}x") == f"{line}\n{line}x"


@pytest.mark.parametrize(
    "step",
    [
        "{n}%|####      | {n}/100 [00:01<00:02, 4.3it/s]",
        "train:  {n}%|██▌   | {n}/1.2k [00:01<00:02, loss=0.5]",
        "{n}/99 [====>.......] - ETA: 3s",
        "━━━━━━╸ {n}/99 MB",
    ],
)
def test_of_progress_the_last_line_is_kept(step):
    lines = [step.format(n=n) for n in range(10, 90)]
    assert condensed("\n".join(["start", *lines, "end"])) == f"start\n{lines[-1]}\nend"
    assert condensed("\n".join(lines)) == lines[-1]


def test_progress_that_is_done_is_kept_for_each_part():
    log = "".join(f" 50%|## | 5/10\n100%|####| 10/10 [loss={epoch}]\n" for epoch in range(3))
    assert condensed(log).split("\n")[:3] == [f"100%|####| 10/10 [loss={epoch}]" for epoch in range(3)]


def test_repeats_are_counted_also_where_only_the_time_differs():
    log = "a\n" + "".join(f"12:00:{second:02} warning\n" for second in range(40)) + "b\n\n\n\nc"
    assert condensed(log) == "a\nwarning\n[the line above 40 times]\nb\n\nc"


@given(st.lists(st.sampled_from(["a", "b", "", "x: 1"]), max_size=30))
def test_no_line_is_lost_but_repeats(lines):
    found = [line for line in condensed("\n".join(lines)).split("\n") if not line.startswith("[the line above")]
    assert found == [line for place, line in enumerate(lines or [""]) if place == 0 or lines[place - 1] != line]


def test_long_lines_and_long_logs_keep_both_ends(monkeypatch):
    assert condensed("<" + "x" * 5000 + ">") == f"<{'x' * 999} [... 3002 characters left out ...] {'x' * 999}>"
    monkeypatch.setattr(files, "MAX_LOG", 100)
    monkeypatch.setattr(files, "_MOST_TO_HEAD", 30)
    found = condensed("\n".join(str(number) for number in range(1000)))
    assert found.startswith("0\n1\n")
    assert found.endswith("998\n999")
    assert "characters left out" in found


@pytest.mark.parametrize(
    "log",
    [
        "9%|" * 700_000,
        "[" * 2_000_000,
        "1:" * 1_000_000,
        "12:00:00" * 300_000,
        "9/9 [" + "=" * 2_000_000,
        "\r" * 2_000_000,
        "\n" * 2_000_000,
        "\x1b[" * 1_000_000,
    ],
)
def test_hostile_logs_end_soon(log):
    assert len(condensed(log)) <= 5000  # a backtracking pattern would not come back for hours


def test_epochs_are_thinned_evenly_so_that_their_curve_stays():
    epochs = [f"epoch {number}: loss {1 / (1 + number):.4f}, lr 1e-3" for number in range(1500)]
    validation = [f"validation accuracy {number / 1500:.3f}" for number in range(1500)]
    log = ["start", *(line for pair in zip(epochs, validation, strict=True) for line in pair), "Test accuracy: 0.93"]
    found = condensed("\n".join(log)).split("\n")
    shown = [line for line in found if line in epochs]
    assert (shown[0], shown[-1], len(shown)) == (epochs[0], epochs[-1], MAX_ALIKE)
    gaps = {epochs.index(later) - epochs.index(line) for line, later in pairwise(shown)}
    assert gaps <= {30, 31}
    assert (found[0], found[-1]) == ("start", "Test accuracy: 0.93")
    assert len("\n".join(found)) < len("\n".join(log)) / 12
    few = "\n".join(epochs[:MAX_ALIKE])
    assert condensed(few) == few


def test_any_text_is_taken():
    assert condensed("") == ""
    assert "\ud800" in condensed("\ud800\x00\n")

"""CPU milliseconds for a reward of the environment of level generation, from reply to stability x similarity.

The replies are the demo's recordings, as models really gave them.
"""

import json
import time
from pathlib import Path

import torch

from pcgeval.evaluator.level_score import score_level
from pcgeval.similarity.classifier import Classifier
from pcgeval.similarity.diversity import mean_distances

ROOT = Path(__file__).parents[1]
REPLIES = 200
GROUP = 16


def main() -> None:
    torch.set_num_threads(1)
    classifier = Classifier.load(device="cpu")
    scores, times = [], []
    for letter, reply in recorded_replies():
        began = time.process_time()
        scores.append(score_level(reply, letter, classifier, read_as="response"))
        times.append(1000 * (time.process_time() - began))
    levels = [each for score, each in zip(scores, times, strict=True) if score.reason is None]
    print(f"rewards.reply {sum(times) / len(times):.1f} cpu_ms mean of {len(times)} replies")
    print(f"rewards.level {sum(levels) / len(levels):.1f} cpu_ms mean of {len(levels)} with a level")
    print(f"rewards.level_most {max(levels):.1f} cpu_ms")
    group = [list(score.probabilities.values()) for score in scores if score.probabilities][:GROUP]
    began = time.process_time()
    mean_distances(group, GROUP)
    print(f"rewards.diversity {1000 * (time.process_time() - began):.1f} cpu_ms for a group of {GROUP}")


def recorded_replies() -> list[tuple[str, str]]:
    """Return letters and replies from all over the recordings."""
    paths = sorted((ROOT / "data" / "recordings").glob("*/*/calls.jsonl"))
    entries = [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]
    found = [(entry["letter"], entry["reply"]["text"]) for entry in entries if "letter" in entry and "reply" in entry]
    return found[:: len(found) // REPLIES][:REPLIES]


if __name__ == "__main__":
    main()

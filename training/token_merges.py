"""Make src/pcgeval/llm/common_merges.txt from our own texts: the pieces that words fall apart into.

Each different word counts once, so that the pieces are those of English and of code at large, not this project's own
words. Run by hand: `python training/token_merges.py`. Other texts give other merges; the file in git is what counts.
"""

import json
import re
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from pcgeval.llm.tokens import MERGES_FILE, word_splitter

ROOT = Path(__file__).parents[1]
TEXTS = ("*.md", "docs/*.md", "data/rubrics/**/*.json", "data/papers/**/*.md", "src/**/*.py", "tests/**/*.py")
MERGES = 1500
USUAL = re.compile(r"Ġ?[!-~]*|Ġ{1,8}")  # ASCII with a space before it (Ġ), or up to eight spaces


def main() -> None:
    """Learn the merges and write those that any tokenizer is likely to have."""
    splitter = word_splitter()
    texts = (path.read_text("utf-8") for pattern in TEXTS for path in sorted(ROOT.glob(pattern)))
    words = {word for text in texts for word, _ in splitter.pre_tokenize_str(text)}
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=len(alphabet) + MERGES, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(sorted(words), trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    kept = [f"{left} {right}\n" for left, right in merges if USUAL.fullmatch(left + right)]
    MERGES_FILE.write_text("".join(kept), encoding="utf-8")
    print(f"{len(kept)} merges from {len(words)} different words")


if __name__ == "__main__":
    main()

"""Stage `install`: put the trained and measured classifier where the competition looks for it."""

import shutil

from settings import CLASSIFIER, INSTALLED, METRICS


def main() -> None:
    """Copy the classifier's three files and its metrics to data/classifier."""
    for path in [*sorted(CLASSIFIER.iterdir()), METRICS]:
        shutil.copyfile(path, INSTALLED / path.name)


if __name__ == "__main__":
    main()

"""Make `docs/report.png`, the picture of the demo's report in README, with Chromium: `make picture`.

The picture notes a hash of what it shows. `python docs/picture.py --check` ends with 1 if that has changed since, and
needs neither Chromium nor the report.
"""

import json
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import yaml
from PIL import Image
from PIL.PngImagePlugin import PngInfo

ROOT = Path(__file__).resolve().parents[1]
PICTURE, INDEX = ROOT / "docs/report.png", ROOT / "results/report/index.html"
PARTS = ("report.css", *(f"templates/{name}.html.j2" for name in ("base", "index", "macros", "ranking")))
CHROMIUM = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
KEY = "shows"


def shown() -> str:
    """Return a hash of what the first screen is made of: teams, ranking, grades, and the look of the page."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text("utf-8"))
    ranking = json.loads((ROOT / "results/ranking.json").read_text("utf-8"))
    grades = {}
    for team in params["teams"]:
        grade = json.loads((ROOT / f"data/grades/{team}/grade.json").read_text("utf-8"))
        grades[team] = f"{grade['graded_task_tree']['score']:.2f}"
    facts = {
        "competition": [params["competition"], params["teams"]],
        "ranking": [ranking["teams"], ranking["reason"]],
        "grades": grades,
        "page": [(ROOT / "src/pcgeval/report" / name).read_text("utf-8") for name in PARTS],
    }
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def main() -> None:
    """Make the picture, or check that it is up to date."""
    if sys.argv[1:] == ["--check"]:
        if Image.open(PICTURE).info.get(KEY) != shown():
            sys.exit(f"{PICTURE}: is older than what it shows. Run `make picture`.")
        return
    browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if not browser or not INDEX.is_file():
        sys.exit("Chromium is missing." if not browser else f"{INDEX}: is missing. Run `make report`.")
    size = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1440,900", f"--screenshot={PICTURE}"]
    subprocess.run([browser, *size, INDEX.as_uri()], check=True, capture_output=True, timeout=120)
    note = PngInfo()
    note.add_text(KEY, shown())
    with Image.open(PICTURE) as picture:
        picture.load()
    picture.save(PICTURE, optimize=True, pnginfo=note)


if __name__ == "__main__":
    main()

"""A small competition of two prompts and a live model, to which honest things happen before it is published."""

import hashlib
import json
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_servers import JsonHandler, ScriptedEndpoint, wait_until
from workspace import REPOSITORY, Workspace, evaluate, git, make_workspace, run_dvc

HELPERS = Path(__file__).parent
LETTERS = "HI"
LEVELS = ("drop_block('b13', 7)\ndrop_block('b31', 8)", "drop_block('b31', 5)\ndrop_block('b13', 5)")
LEVELS += ("drop_block('b13', 3)\ndrop_block('b13', 3)", "drop_block('b11', 4)\ndrop_block('b31', 4)")
ART = "\n".join([f"{' ' * 40}##"] * 16)  # 687 bytes, of which a tokenizer makes 32 tokens
# what the server does with a request that holds the word
REFUSALS: dict[str, tuple[int, dict[str, Any]]] = {
    "BREAK": (500, {"error": "llama runner process has terminated: exit status 2"}),
    "FILTER": (400, {"error": {"message": "blocked by the content management policy", "code": "content_filter"}}),
    "LONG": (400, {"error": {"message": "maximum context length is 2048 tokens", "code": "context_length_exceeded"}}),
}


class LevelServer(ScriptedEndpoint):
    """Answers with a level that the request decides, or as a judge; the words of REFUSALS and some others do more.

    `away` is for how many requests the server is away; `calls_itself` is the name in its answers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.away = 0
        self.calls_itself = "m"

    def post(self, request: JsonHandler, body: dict[str, Any]) -> None:
        text = body["messages"][-1]["content"]
        with self.lock:
            self.away -= 1
            is_away = self.away >= 0
        refusal = (
            (503, {"error": "busy"}) if is_away else next((REFUSALS[word] for word in REFUSALS if word in text), None)
        )
        if refusal:
            request.send_json(*refusal)
        else:
            super().post(request, body)

    def reply(self, body: dict[str, Any], prompt: str) -> dict[str, Any]:
        whole = super().reply(body, prompt) | {"model": self.calls_itself}
        if body["messages"][0]["role"] == "system":  # of a judge
            return whole
        choice, usage = whole["choices"][0], whole["usage"]
        digest = hashlib.sha256(json.dumps([body["messages"], body.get("seed")]).encode()).digest()
        text = f"```\n{LEVELS[digest[0] % len(LEVELS)]}\n```"
        choice["message"] = {"role": "assistant", "content": text}
        usage["completion_tokens"] = len(text) // 3
        if "ART" in prompt:
            choice["message"]["content"] = ART
            usage["completion_tokens"] = 32
        elif "THINK" in prompt:
            choice["message"] = {"role": "assistant", "content": "", "reasoning_content": "Let me see. " * 300}
            choice["finish_reason"] = "length"
            usage["completion_tokens"] = 1_000
        elif "CUT" in prompt:
            choice["message"]["content"] = text[:-6]
            choice["finish_reason"] = "length"
        return whole


@dataclass(frozen=True)
class HonestCompetition(Workspace):
    """The competition while it is run: its folder, and the server of its model."""

    server: LevelServer

    def add_prompt(self, word: str) -> None:
        """Add a team whose prompt holds a word to which the server listens: gamma, or one with the word's name."""
        team = word.lower() if "gamma" in self.params()["teams"] else "gamma"
        self.add_team(team, {"prompt.txt": f"{word}: stack blocks into the letter <OBJECT>."})

    def withdraw(self, team: str) -> None:
        """Take a team out of params.yaml alone."""
        self.change("teams", {name: values for name, values in self.params()["teams"].items() if name != team})

    def evaluate(self) -> None:
        evaluate(self.folder)

    def kill_in_the_middle(self) -> None:
        """Start the run and kill it after some replies; leave half a line in the call log as well."""
        self.server.seconds = 0.2
        code = "from pathlib import Path; from workspace import evaluate; evaluate(Path())"
        path = f"{REPOSITORY / 'src'}:{HELPERS}"
        before = len(self.server.asked)
        process = self.command("-c", code, PYTHONPATH=path)
        wait_until(lambda: len(self.server.asked) > before + 3)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.server.seconds = 0.0
        with next((self.folder / ".pcgeval" / "calls").glob("*.jsonl")).open("a") as log:
            log.write('{"key": "ab')

    def judge(self) -> None:
        """Let the server's model grade the submissions, and not see all of a long file."""
        readme = self.folder / "data" / "submissions" / "beta" / "README.md"
        readme.write_text(readme.read_text() + "\n".join(f"Line {line} of our thoughts." for line in range(3_000)))
        model = {"backend": "openai", "name": "m", "base_url": self.server.base_url, "stream": False}
        self.change_params("rubric", judge="simple", model=model, context=4096, max_tokens=512)

    def edit_rubric(self) -> None:
        rubric = self.folder / "data" / "rubrics" / "competition" / "rubric.json"
        rubric.write_text(rubric.read_text().replace("README.md gives a reason", "README.md clearly gives a reason"))

    def publish(self) -> None:
        """Let DVC and git know everything."""
        done = run_dvc(self.folder, "commit", "--force")
        assert done.returncode == 0, done.stdout
        git(self.folder, "add", ".")
        git(self.folder, "commit", "--quiet", "-m", "all")


def make_honest(folder: Path) -> Path:
    """Lay out the competition as its organiser does, and evaluate it: what is measured once need not be again."""
    workspace = make_workspace(folder)
    shutil.rmtree(folder / "data" / "recordings")
    (folder / "data" / "recordings").mkdir()
    workspace.change_params("competition", characters=LETTERS, trials=2)
    workspace.change("rounds", {})
    with LevelServer() as server:
        competition = opened(folder, server)
        git(folder, "init", "--quiet")
        competition.evaluate()
    return folder


def opened(folder: Path, server: LevelServer) -> HonestCompetition:
    """Return the competition in a folder, whose model a server answers."""
    competition = HonestCompetition(folder, server)
    model = {"backend": "openai", "name": "m", "base_url": server.base_url, "stream": False, "concurrency": 2}
    competition.change("models", {"live": model})
    return competition

"""Which of the files that were handed in make up the submission, and under which names."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pcgeval.submissions.findings import Finding, error, note
from pcgeval.submissions.handed_in import MOST_BYTES, MOST_FILES, HandIn, HandInError, Item, Listing
from pcgeval.submissions.names import VENV_FILE, collisions, escape_fault, left_out, name_fault, with_parents


@dataclass(frozen=True)
class Selection:
    """The submission's files by name, in the order of the names, and what is wrong with what was handed in.

    Files whose names cannot be stored are left out, so that the others can be looked at all the same.
    """

    files: dict[str, Item]
    prefix: str  # the folder that they lie in where they were handed in, with a final slash, or empty
    is_bounded: bool  # whether they are few and small enough to be read
    findings: tuple[Finding, ...]

    @property
    def size(self) -> int:
        """Bytes in all files, as the folder or zip file says."""
        return sum(item.size for item in self.files.values())


@dataclass(frozen=True)
class _Named:
    item: Item
    name: str


def select(listing: Listing) -> Selection:
    """Choose the files of a submission."""
    findings = list(listing.findings)
    inside: list[_Named] = []
    for item in listing.items:
        name = item.name.removeprefix("./")
        if fault := escape_fault(name):
            findings.append(error(item.name, fault))
        else:
            inside.append(_Named(item, name))
    out = _left_out(each.name for each in inside)
    findings += [note(path, f"was left out ({whose})") for path, whose in out.items()]
    own = [each for each in inside if not _lies_in(each.name, out)]
    prefix = _wrapper([each.name for each in own])
    if prefix:
        findings.append(note(prefix, "holds everything; what is in it was taken"))
    own = sorted((_Named(each.item, each.name.removeprefix(prefix)) for each in own), key=lambda each: each.name)
    faults = [error(each.name, fault) for each in own if (fault := name_fault(each.name))]
    faults += collisions(each.name for each in own)
    bad = {fault.place for fault in faults}
    files = {each.name: each.item for each in own if not _lies_in(each.name, bad)}
    amount = _amount_faults([each.item for each in own])
    if not own and not findings:
        amount = [error("", "holds no files")]
    return Selection(files, prefix, listing.is_readable and not amount, (*findings, *faults, *amount))


def copy_files(hand_in: HandIn, selection: Selection, target: Path) -> list[Finding]:
    """Copy the selected files into an empty folder; return what went wrong, after which some are missing.

    No more bytes are written than are allowed, whatever the listing says.
    """
    left = MOST_BYTES
    for name, item in selection.files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("xb") as file:
                for chunk in hand_in.chunks(item):
                    left -= len(chunk)
                    if left < 0:
                        return [error("", _too_large("more bytes than it says"))]
                    file.write(chunk)
        except HandInError as fault:
            return [error(name, str(fault))]
    return []


def _left_out(names: Iterable[str]) -> dict[str, str]:
    """Return the paths that are not filed, and what each is."""
    found = {}
    for name in names:
        folder, _, last = name.rpartition("/")
        if part := left_out(name):
            found[part.path] = f"of {part.whose}"
        elif folder and last == VENV_FILE:
            found[folder] = "a virtual environment; requirements.txt says what the program needs"
    return found


def _lies_in(name: str, paths: Iterable[str]) -> bool:
    return any(path in paths for path in with_parents(name))


def _wrapper(names: list[str]) -> str:
    """Return the folders that hold everything and nothing else, with a final slash; empty if there is none."""
    prefix = ""
    while names:
        first, slash, _ = names[0].removeprefix(prefix).partition("/")
        longer = f"{prefix}{first}/"
        if not slash or not all(name.startswith(longer) for name in names):
            break
        prefix = longer
    return prefix


def _amount_faults(items: list[Item]) -> list[Finding]:
    faults = []
    if len(items) > MOST_FILES:
        faults.append(error("", f"has {len(items)} files; {MOST_FILES} are allowed. Put many small ones into one"))
    if (size := sum(item.size for item in items)) > MOST_BYTES:
        faults.append(error("", _too_large(f"{size} bytes in all")))
    return faults


def _too_large(amount: str) -> str:
    return f"has {amount}; {MOST_BYTES} (1 GB) are allowed with all data. Leave out what the program does not read"

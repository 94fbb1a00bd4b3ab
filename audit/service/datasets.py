"""The datasets that `audit serve` shows: their stores, and their lines at home.

FOLDER/datasets.toml (docs/service.md) is read for each request, which names a dataset, never a
path.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.decisions.store import DecisionStore
from audit.errors import AuditError, RunError, UsageError
from audit.report.previews import FOLDER as THUMBNAILS
from audit.results.findings import count_open_findings
from audit.results.history import HISTORY, read_history, read_lines
from audit.results.image_search import Finder
from audit.results.images import count_images
from audit.results.results import open_results, run_facts
from audit.run import run_version
from audit.run.run_version import MIN_KEPT_VERSIONS
from audit.run.synced_files import write_synced
from audit.service.jobs import JobQueue, ServedDataset
from audit.service.people import LONGEST, People, Person
from dataset_preflight.foundation.files import read_regular, real

if TYPE_CHECKING:
    import polars as pl

FILE = "datasets.toml"
HEAD = "# What `audit serve` shows; `people`: who may see a dataset, everybody where left out.\n"
KEYS: dict[str, type] = {"name": str, "run": str, "source": str, "people": list, "every": str}
KEYS |= {"keep": int, "pushed": bool}
SECONDS = {"m": 60.0, "h": 3600.0, "d": 86_400.0}
PROFILES = "profiles.jsonl"
COUNTED = ("error", "warning")
FINDERS = 2  # runs whose pictures are held to look others up in


@dataclass(frozen=True, slots=True)
class DatasetLine:
    """A dataset at home. `errors`, `warnings`: open; `*_change`: since the previous scan, or None.

    `scanned`: UTC. `decided`: decisions by person, descending. `trend`: errors and warnings of each
    scan. `problem`: why there are no figures; `notice`: why it is not the version of CURRENT.
    """

    name: str
    pictures: int = 0
    errors: int = 0
    warnings: int = 0
    errors_change: int | None = None
    warnings_change: int | None = None
    scanned: str = ""
    decided: Mapping[str, int] = field(default_factory=dict)
    trend: Sequence[int] = ()
    problem: str = ""
    notice: str = ""


def read_datasets(folder: Path) -> dict[str, ServedDataset]:
    """Return the datasets by name; raises UsageError for a file that is absent or says nonsense."""
    return read_file(folder)[0]


def read_file(folder: Path) -> tuple[dict[str, ServedDataset], str]:
    """Return the datasets by name, and the address that is told news, "" without one."""
    path = folder / FILE
    try:
        said = tomllib.loads(read_regular(path).decode())
        if unknown := said.keys() - {"dataset", "webhook"}:
            raise ValueError(f"it has webhook and [[dataset]], and no {unknown.pop()}")
        webhook = str(said.get("webhook", ""))
        if webhook and not webhook.startswith(("https://", "http://")):
            raise ValueError("webhook is an address, https://...")
        found = [_dataset(folder, row) for row in said.get("dataset", [])]
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}): `audit serve FOLDER --init` writes it."
        ) from None
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} cannot be used ({error}): mend it.") from None
    named = {one.name: one for one in found}
    if len(named) < len(found):
        raise UsageError(f"{path} has two datasets of one name: give each a name of its own.")
    return named, webhook


def _dataset(folder: Path, row: Mapping[str, Any]) -> ServedDataset:
    for key, value in row.items():
        if not isinstance(value, KEYS.get(key, ())):
            raise ValueError(f"a dataset has {', '.join(KEYS)}, and no such {key} = {value!r}")
    name, people = row.get("name", ""), row.get("people", [])
    if not name or "/" in name or len(name) > LONGEST or not name.isprintable():
        raise ValueError(f"{name!r} is no name: 1 to {LONGEST} printable characters and no /")
    pushed = row.get("pushed", False)
    if bool(row.get("run")) == pushed or not all(isinstance(one, str) for one in people):
        raise ValueError(f"{name!r} needs a run or pushed = true, and people are names")
    every = re.fullmatch(r"([1-9]\d{0,4})([mhd])", row.get("every", "1d"))
    if every is None or ("every" in row and not row.get("source")):
        raise ValueError(f'every of {name!r} is a time such as "1d", "6h" or "30m", with a source')
    every_s = int(every[1]) * SECONDS[every[2]] if "every" in row else 0.0
    keep = row.get("keep", MIN_KEPT_VERSIONS)
    if not MIN_KEPT_VERSIONS <= keep <= 1000:
        raise ValueError(f"keep of {name!r} is a number from {MIN_KEPT_VERSIONS} to 1000")
    run, source = folder / row.get("run", f"pushed-{name}"), row.get("source", "")
    if pushed and source:
        raise ValueError(f"{name!r} is pushed, and has no source here")
    return ServedDataset(name, run, source, tuple(people), every_s, keep, pushed)


def write_datasets(folder: Path) -> list[ServedDataset]:
    """Add runs below a folder to the file, and return them; UsageError for a bad file."""
    path = folder / FILE
    known = read_datasets(folder) if path.exists() else {}
    listed, added = {real(one.run) for one in known.values()}, list[ServedDataset]()
    for pattern in ("*/CURRENT", "*/*/CURRENT"):
        for run in sorted(found.parent for found in folder.glob(pattern)):
            name = "".join(c if c.isprintable() else "?" for c in run.name)[:LONGEST]
            if real(run) not in listed and name not in known:
                known[name] = ServedDataset(name, run, _source(run))
                added.append(known[name])
    text = path.read_text("utf-8") if path.exists() else HEAD
    for one in added:
        values = {"name": one.name, "run": str(one.run.relative_to(folder)), "source": one.source}
        lines = [f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in values.items() if v]
        text += "\n".join(["\n[[dataset]]", *lines, ""])
    try:
        write_synced(path, text.encode())
    except (OSError, UnicodeEncodeError) as error:
        raise RunError(f"{path} cannot be written: {error}.") from None
    return added


def _source(run: Path) -> str:
    """Return where a run's pictures are, "" where it has several places or is damaged."""
    try:
        roots = list(json.loads(run_facts(open_results(run)).get("roots", "{}")).values())
    except AuditError:
        return ""
    return str(roots[0]) if len(roots) == 1 else ""


def forget(folder: Path, name: str) -> list[str]:
    """Remove the thumbnails, history, profiles and links of a dataset; return what was removed."""
    known, profiles = read_datasets(folder), read_lines(folder / PROFILES)
    paths = [known[name].run / part for part in (THUMBNAILS, HISTORY)] if name in known else []
    gone = [str(path) for path in paths if path.exists()]
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    left = [one for one in profiles if one.get("name") != name]
    if len(left) < len(profiles):
        write_synced(folder / PROFILES, "".join(f"{json.dumps(x)}\n" for x in left).encode())
        gone.append(f"{len(profiles) - len(left):,} profiles")
    links = People(folder).withdraw(name)
    return gone + [f"{links:,} links and browsers"] * (links > 0)


class Service:
    """What one folder serves, and to whom; used by many threads."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.people = folder, People(folder)
        self._finding, self._finders = threading.Lock(), dict[tuple[Path, str], Finder]()
        self.jobs: JobQueue | None = None
        self._lines: dict[str, tuple[tuple[str, ...], DatasetLine]] = {}
        self._webhook = read_file(folder)[1]

    def begin(self, link: str = "") -> JobQueue:
        """Begin the queue of jobs, which others lack until this is over; `link` leads here."""
        known = partial(read_datasets, self.folder)
        self.jobs = JobQueue(self.folder, known, webhook=self._webhook, link=link)
        threading.Thread(target=self.jobs.run, daemon=True).start()
        return self.jobs

    def find(self, run: Path, path: str) -> pl.DataFrame:
        """Return the samples of a run that show the picture of a file, as `Run.find` does."""
        with self._finding:  # one at a time: to load a run takes its memory and some time
            key = run, run_version.require(run).name
            finder = self._finders.pop(key, None)
            kept = [(k, v) for k, v in self._finders.items() if k[0] != run][1 - FINDERS :]
            self._finders = dict(kept)  # first: the old version goes before the new is loaded
            self._finders[key] = finder or Finder(run)
            return self._finders[key].find(path)

    def datasets(self, person: Person) -> dict[str, ServedDataset]:
        """Return the datasets that a person may see now, by name."""
        known = read_datasets(self.folder)
        return {name: one for name, one in known.items() if one.is_open_to(person)}

    def line(self, one: ServedDataset) -> DatasetLine:
        """Return the line of a dataset; what cannot be opened says so in it."""
        try:
            if one.pushed:
                return _pushed_line(one)
            version = run_version.require(one.run)
            now = (version.key, version.notice, DecisionStore(one.run).revision())
            if self._lines.get(one.name, ((), None))[0] != now:
                self._lines[one.name] = (now, replace(_line(one), notice=version.notice))
            return self._lines[one.name][1]
        except (AuditError, OSError) as error:
            return DatasetLine(one.name, problem=str(error))


def _line(one: ServedDataset) -> DatasetLine:
    results = open_results(one.run)
    open_now, facts = count_open_findings(results), run_facts(results)
    a, b, trend = _changes([moment.row() for moment in read_history(one.run)])
    by = DecisionStore(one.run).count_by_person()
    return DatasetLine(
        one.name, count_images(results), open_now.error, open_now.warning, a, b,
        facts.get("created", ""), by, trend,
    )  # fmt: skip


def _pushed_line(one: ServedDataset) -> DatasetLine:
    history = read_history(one.run)
    if not history:
        return DatasetLine(one.name, problem="No scan of it was pushed yet.")
    rows = [moment.row() for moment in history]
    files, errors, warnings = (rows[-1][s] for s in ("files", *COUNTED))
    a, b, trend = _changes(rows)
    return DatasetLine(one.name, files, errors, warnings, a, b, history[-1].at, trend=trend)


def _changes(rows: Sequence[Mapping[str, Any]]) -> tuple[int | None, int | None, list[int]]:
    a, b = (rows[-1][s] - rows[-2][s] if rows[1:] else None for s in COUNTED)
    return a, b, [row["error"] + row["warning"] for row in rows]

"""Make the screenshots of every page at 1440 px, from the sample data: real app, real browser.

    make pictures

Scans sample_data into a temporary run, decides a few findings so that the pages have something to
show, starts the app and photographs each page, and the two pages that are files. PNG, 1440 px wide
and at most 1200 high.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from audit.decisions import keeper_rules
from audit.report import collect_report
from audit.report.screen import to_screen
from audit.scanning import scanning
from audit.service.people import People
from audit.sources import open_source
from audit.ui.guard import NAMING
from audit.ui.server import command

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
WIDTH, TALLEST = 1440, 1200
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
RESTING = '[data-testid="stApp"][data-test-script-state="notRunning"]'
CHART = "[data-testid=stVegaLiteChart] .marks:visible"
# name: link, theme, what to click first (a tab), what must be there
PAGES = {
    "preflight": ("", "light", "", "text=Training code"),
    "overview": ("overview", "light", "", "text=Fix first"),
    "findings": ("findings?code=IMG003", "light", "", ".gallery .card img"),
    "findings-dark": ("findings?code=DUP003", "dark", "", ".gallery .card img"),
    "duplicates": ("duplicates?code=DUP003", "light", "", "text=Compare two"),
    "overlap": ("duplicates?view=Overlap+of+splits", "light", "", CHART),
    "labels": ("labels", "light", "", ".queue .pictures img"),
    "explore": ("explore?show=sharpness&sort=sharpness", "light", "", ".gallery .card img"),
    "explore-scatter": ("explore?view=Scatter", "light", "", ".scatter canvas"),
    "image": ("explore?image=train%2Ffish%2F2664.jpg", "light", "", "[role=dialog] img"),
    "changes": ("changes?earlier=earlier", "light", "", "text=Fixed since"),
    "decisions": ("decisions", "light", "", "text=Latest decisions"),
    "subset": ("subset?half=15.0", "light", "", CHART),
    "profiles": ("profiles?session=torch-input-bound", "light", "", CHART),
    "profiles-time-line": (
        "profiles?session=torch-input-bound", "light", "Time line", CHART
    ),
    "checks": ("checks", "light", "", "h1"),
    "runs": ("runs", "light", "", "h1"),
    "start": ("start", "light", "", "text=Scan a folder"),
    "boxes": ("findings?code=BOX004", "light", "", ".gallery .card img"),
}  # fmt: skip
# name: what makes the page that is sent to others
FILES = {
    "report": "audit report {run} -o {page}",
    "profile": "pipeline-profiler report {session} -o {page}",
}
SERVICE = "service"  # Home of `audit serve`
DATASETS = """
[[dataset]]
name = "fish"
run = "{earlier}"
source = "sample_data"
every = "1d"

[[dataset]]
name = "sample_data"
run = "{run}"
source = "sample_data"
"""
SHARES = {"1f0c2ab4": (0.31, 0.3), "9fe1870a": (0.12, 0.13, 0.11)}  # of stalls, by commit
LOADER = "sample_data/loader.py:make_loader"
SESSION = "torch-input-bound.json.gz"
SHORTEN = """root => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(root, "");
}"""  # where the checkout lies is nobody's business


def main() -> None:
    """Scan, decide, serve, photograph."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "sample_data"
        scanning.scan(open_source([str(ROOT / "sample_data")]), run, jobs=1)
        shown = counts(run)
        page = ("--loader", LOADER, "--emulate-step-ms", "4", "--quick", "--out", str(run))
        line = [sys.executable, "-m", "dataset_preflight", "sample_data", *page]
        subprocess.run(line, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        _decide(run)
        earlier = Path(shutil.copytree(run, Path(folder) / "earlier"))
        source = open_source([str(ROOT / "sample_data")], exclude=["train/fish/*"])
        scanning.scan(source, earlier, jobs=1)
        port = _free_port()
        os.environ["PIPELINE_PROFILER_RUNS"] = str(Path(folder) / "runs.sqlite")
        checked = _measured(Path(folder))
        line = command([str(run), str(earlier), checked, *_sessions()], port=port, browser=False)
        log = Path(folder) / "app.log"
        with log.open("w") as said:
            server = subprocess.Popen(line, cwd=folder, stdout=said)
        try:
            _wait_for(server, port)
            entrance = re.findall(r"http://\S+token=\S+", log.read_text())[0]
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=list(FLAGS)
                )
                # one browser for all pages: a name is one person's
                person = _admitted(browser, entrance)
                for name in sys.argv[1:] or (*PAGES, *FILES, SERVICE):
                    if name == SERVICE:
                        _photograph_service(browser, Path(folder) / SERVICE, run, earlier)
                    elif name in PAGES:
                        _photograph(person, entrance.partition("/?")[0], name, (str(ROOT), folder))
                    else:
                        _photograph_file(browser, name, run)
                    _write_origin(HERE / f"{name}.png", shown)
                browser.close()
        finally:
            server.terminate()
            server.wait(20)


def _decide(run: Path) -> None:
    proposal = keeper_rules.propose(run, "DUP002")
    keeper_rules.apply_rule(run, proposal, by=getpass.getuser())


def _measured(folder: Path) -> str:
    """Measure and check the sample's loader, for the pages of checks and runs."""
    study = Path(shutil.copytree(ROOT / "sample_data", folder / "study" / "sample_data")).parent
    for words in (f"run {LOADER} --quick --emulate-step-ms 4 -o profile.json",
                  f"check {LOADER} --quick -o check.json"):  # fmt: skip
        line = [Path(sys.executable).parent / "pipeline-profiler", *shlex.split(words)]
        subprocess.run(line, cwd=study, stdout=subprocess.DEVNULL, check=False)
    return str(study / "check.json")


def _sessions() -> list[str]:
    return [str(path) for path in sorted((ROOT / "sample_data" / "sessions").glob("*.json*"))]


def _admitted(browser: Any, entrance: str) -> Any:
    context = browser.new_context(viewport={"width": WIDTH, "height": 900})
    context.request.get(entrance)  # traded for the cookie of this browser, which says a name
    naming = f"{entrance.partition('/?')[0]}{NAMING}"
    answer = context.request.post(naming, form={"name": getpass.getuser(), "to": "/none"})
    assert answer.status != 403, answer.text()
    return context


def _photograph_service(browser: Any, folder: Path, run: Path, earlier: Path) -> None:
    """Serve both runs and the profiles of a week, and photograph Home as an admin sees it."""
    folder.mkdir()
    (folder / "datasets.toml").write_text(DATASETS.format(run=run, earlier=earlier))
    shares = [(commit, share) for commit, values in SHARES.items() for share in values]
    rows = [
        {"name": "resnet", "metric": "stall share", "value": share, "git_commit": commit,
         "verdict": "input-bound", "received": f"2026-11-{20 + day}T08:00:00+00:00"}
        for day, (commit, share) in enumerate(shares)
    ]  # fmt: skip
    (folder / "profiles.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    token, port = People(folder).invite(getpass.getuser(), "admin"), _free_port()
    line = [sys.executable, "-m", "audit", "serve", str(folder), "--port", str(port)]
    server = subprocess.Popen(
        line, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    try:
        _wait_for(server, port)
        context = browser.new_context(viewport={"width": WIDTH, "height": 900})
        context.request.get(f"http://127.0.0.1:{port}/?token={token}")
        _photograph(context, f"http://127.0.0.1:{port}", SERVICE, (str(ROOT), str(folder)))
    finally:
        server.terminate()
        server.wait(20)


def _photograph(person: Any, address: str, name: str, hidden: Sequence[str]) -> None:
    link, theme, tab, there = PAGES.get(name, ("", "light", "", "text=Scan again"))
    page = person.new_page()
    page.emulate_media(color_scheme=theme)
    page.set_default_timeout(90_000)
    page.goto(f"{address}/{link}")
    page.get_by_role("heading", level=1).first.wait_for()
    page.locator(RESTING).wait_for()
    if tab:
        page.get_by_role("tab", name=tab).click()
    page.locator(there).first.wait_for()
    tall = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": WIDTH, "height": max(700, min(tall, TALLEST))})
    page.locator(there).first.wait_for()
    page.wait_for_timeout(1500)  # charts are drawn again for the new size
    for root in hidden:
        page.evaluate(SHORTEN, f"{root}/")
    title = page.get_by_role("heading", level=1).first.inner_text()
    _save(page.screenshot(), HERE / f"{name}.png", title)
    page.close()


def _photograph_file(browser: Any, name: str, run: Path) -> None:
    page = run.parent / f"{name}.html"
    session = ROOT / "sample_data" / "sessions" / SESSION
    words = shlex.split(FILES[name].format(run=run, page=page, session=session))
    subprocess.run([Path(sys.executable).parent / words[0], *words[1:]], check=True)
    shown = browser.new_page(viewport={"width": WIDTH, "height": TALLEST})
    text = page.read_text().replace(str(ROOT / "sample_data"), "sample_data")
    page.write_text(text.replace(str(run.parent), "runs"))
    shown.goto(page.as_uri())
    _save(shown.screenshot(), HERE / f"{name}.png", shown.title())
    shown.close()


def counts(run: Path) -> str:
    """Return the line of the scan's screen with its numbers of findings and files."""
    lines = to_screen(collect_report(run)).splitlines()
    return next(line for line in lines if "files affected" in line)


def _write_origin(path: Path, shown: str) -> None:
    """Write the counts of the run and the commit into a picture: a test compares the counts."""
    commit = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    texts = {"Counts": shown, "Commit": subprocess.check_output(commit, text=True).strip()}
    with Image.open(path) as picture:
        picture.load()
        _write(picture, path, {**picture.info, **texts})


def _write(picture: Image.Image, path: Path, texts: Mapping[str, str]) -> None:
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    for key in ("Title", "Counts", "Commit"):
        if key in texts:
            info.add_itxt(key, texts[key])
    picture.save(path, optimize=True, pnginfo=info)


def _save(data: bytes, path: Path, title: str) -> None:
    """Write a picture with the title of its page: a test compares it with the app."""
    from io import BytesIO

    # 256 colours, of which every hue on the page gets some: a quarter of the size
    few = (
        Image.open(BytesIO(data))
        .convert("RGB")
        .quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.FLOYDSTEINBERG)
    )
    _write(few, path, {"Title": title})
    sys.stdout.write(f"{path.name}: {path.stat().st_size / 1000:.0f} kB\n")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    while server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2):
                return
        except urllib.error.HTTPError:  # the guard answers: it is there
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit("The app ended before it could be photographed.")


if __name__ == "__main__":
    main()

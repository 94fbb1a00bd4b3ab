"""An image: its boxes, measurements, findings, copies, and decisions.

Keys while it is open: arrows turn, K keeps, D drops, U undoes, Z zooms; 1 to 9 label in the
labelling mode. The page behind has none, so that no key decides about a hidden image.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import polars as pl
import streamlit as st

from audit.records import Action
from audit.report.previews import LONGEST, view
from audit.results.boxes import COLOURS, load_boxes
from audit.results.distributions import class_order
from audit.results.file_details import FileCard, make_file_card
from audit.results.formatting import ON_DISK, as_sentence, counted, number_text
from audit.results.images import cards
from audit.results.label_review import label_doubt
from audit.ui import html, link
from audit.ui.charts import show_viewer
from audit.ui.deciding import decide_selected, label_picture, undo
from audit.ui.gallery import BESIDE
from audit.ui.opened import Opened, answering, open_chosen_run, safely, show_said
from audit.ui.queue import show_picture_queue

KEYED = 9  # classes that have a digit
ZOOMED = "image is zoomed"
ZOOM_LONGEST, ZOOM_HEIGHT, HEIGHT = 2400, 620, 400  # px


def dialogue() -> None:
    """Show the image that the link names, if any."""
    sample = link.get("image")
    if sample:
        _dialogue()


@st.dialog("Image", width="large", on_dismiss=lambda: link.put(image=None))
def _dialogue() -> None:
    safely(_image)


def _image() -> None:
    # Read anew at each key: the dialogue is drawn without its page, whose run is that of before.
    run, sample = open_chosen_run(), link.get("image")
    card = run.ask(make_file_card, sample)
    zoomed = bool(st.session_state.get(ZOOMED))
    classes = _keys(run, sample)
    show_said()  # below the buttons, which stay where they are
    ahead = st.container()
    with st.container(key="of image"):
        picture, facts = st.columns([12, 1] if zoomed else [3, 2], gap="medium")
        with picture:
            _picture(run, sample, zoomed)
        if not zoomed:
            with facts:
                _facts(run, card)
        findings, measured = st.tabs(["Findings and copies", "Everything measured"])
        with findings:
            _findings(run, card)
        with measured:
            html.table(_measured(card), height=360)
    with ahead:  # after the picture: what a key is about is what is shown
        show_picture_queue(run, sample, classes)


def _picture(run: Opened, sample: str, zoomed: bool) -> None:
    found = cards(run, [sample])
    drawn = load_boxes(run, [sample]).get(sample, ())
    names = run.ask(class_order) if drawn else []
    if not found:
        html.empty("This run has no such sample.")
        return
    shown = view(found[0], drawn, ZOOM_LONGEST if zoomed else LONGEST, names)
    if shown.data:
        show_viewer("picture", [(sample, shown.data)], ZOOM_HEIGHT if zoomed else HEIGHT)
    else:
        html.empty("No image", shown.error)
    if shown.note:
        html.paragraph(shown.note, "quiet small")
    if drawn:
        there = {box.label for box in drawn}
        chips = [
            html.chip(name, f"box{names.index(name) % len(COLOURS)}")
            for name in names if name in there
        ]  # fmt: skip
        said = html.tag("span", f"{counted(len(drawn), 'box')}: ", "quiet small")
        html.write_html(said, *chips)


def _facts(run: Opened, card: FileCard) -> None:
    sample = card.sample
    rows = [("split", sample.split), ("class", sample.label), ("group", sample.group)]
    facts = [(name, value) for name, value in rows if value is not None]
    state = card.value("status") or "listed, not measured"
    error = card.value("error")
    facts.append(("decoded", f"{state}: {error}" if error else str(state)))
    if card.value("width"):
        facts.append(("size", f"{card.value('width'):,} × {card.value('height'):,} px"))
    if sample.id in run.decisions.by_sample:
        facts.append(("decided", run.decisions.by_sample[sample.id]))
    if tags := [tag for tag, ids in run.decisions.tags.items() if sample.id in ids]:
        facts.append(("tags", ", ".join(tags)))
    facts += [(name, number_text(v)) for name, v in card.metadata.items() if v is not None]
    html.write_html(html.tag("p", sample.id, "strong"), html.value_table(facts))
    if card.on_disk in ON_DISK:
        html.notice(as_sentence(ON_DISK[card.on_disk]))
    html.write_html(html.tag("p", sample.uri, "mono quiet"))


def _keys(run: Opened, sample: str) -> list[str]:
    """Draw the buttons whose keys hold while the dialogue is open; return the classes by digit."""
    beside = st.session_state.get(BESIDE, [])
    at = beside.index(sample) if sample in beside else 0
    before, after = beside[max(at - 1, 0) : at][-1:], beside[at + 1 : at + 2]
    with st.container(horizontal=True):
        for label, key, verb in (("Keep", "K", Action.KEEP), ("Drop", "D", Action.DROP)):
            _key(label, key, partial(decide_selected, run, [sample], verb))
        _key("Undo", "U", partial(undo, run), disabled=run.decisions.last is None)
        _key("Zoom", "Z", _zoom)
        for label, key, there in (("Previous", "Left", before), ("Next", "Right", after)):
            _key(label, key, partial(link.put, image="".join(there)), disabled=not there)
        if st.button("More like this", "image alike"):
            link.go("explore", run=link.get("run"), like=sample)
            st.rerun()
    if not link.toggle("Label by keys: 1 to 9 are classes", "labelling"):
        return []
    return _class_keys(run, sample, "".join(after))


def _class_keys(run: Opened, sample: str, then: str) -> list[str]:
    largest = largest_classes(run)
    with st.container(horizontal=True):
        for digit, name in enumerate(largest, 1):
            st.button(
                html.label(name),
                f"class {digit}",
                on_click=answering(_label),
                args=(run, sample, name, then),
                shortcut=str(digit),
            )
    return largest


def largest_classes(run: Opened) -> list[str]:
    """Return the classes that have a digit: the largest, by name."""
    counted_by = run.report().dataset.by_class()
    return sorted(sorted((c for c in counted_by if c), key=lambda c: -counted_by[c])[:KEYED])


def _label(run: Opened, sample: str, name: str, then: str) -> None:
    label_picture(run, sample, name)
    if then:
        link.put(image=then)


def _key(label: str, key: str, act: Callable[[], None], *, disabled: bool = False) -> None:
    st.button(label, f"image {label}", on_click=answering(act), shortcut=key, disabled=disabled)


def _zoom() -> None:
    st.session_state[ZOOMED] = not st.session_state.get(ZOOMED)


def _findings(run: Opened, card: FileCard) -> None:
    doubt = label_doubt(run, card.sample.id)
    if doubt:
        html.notice(doubt)
    if not card.findings and not card.twins and not doubt:
        html.empty("This file has no findings.")
    for found in card.findings:
        html.write_html(
            html.chip(found.severity.value, found.severity.value),
            html.tag("span", f"{found.code} {found.name}", "strong"),
            html.tag("p", found.message),
        )
    for twin in card.twins:
        same = "same bytes" if twin.same_bytes else "same pixels, other bytes"
        html.write_html(
            html.tag(
                "p", f"{twin.id} ({twin.split or 'no split'}, {twin.label or 'no label'}): {same}"
            )
        )


def _measured(card: FileCard) -> pl.DataFrame:
    rows = [
        {
            "column": m.name,
            "value": f"{m.value:016x}" if m.name in ("phash", "dhash") else number_text(m.value),
            "percentile in class": m.in_class and round(m.in_class.percentile, 1),
            "percentile in all": m.in_dataset and round(m.in_dataset.percentile, 1),
            "description": m.doc,
        }
        for m in card.measurements
    ]
    return pl.DataFrame(rows, infer_schema_length=None)

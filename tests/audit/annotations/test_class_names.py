"""Class names of YOLO: forms of YAML with the names that they mean, and what is wrong with some."""

from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from audit.annotations.class_names import load_names, numbered_texts, plain_names, read_yaml
from audit.annotations.discovery import Tree
from audit.annotations.entries import AnnotationFile, Losses
from audit.annotations.sink import ProblemLog
from audit.exports.yolo_writer import YoloWriter

# What stands in data.yaml -> the name of each class, written by hand. Names of 0, 1, ... as a list.
FORMS: dict[str, tuple[str | bytes, list[str] | dict[str, str]]] = {
    # lists in brackets
    "brackets": ("names: [cat, 'a, b', \"d\"]  # three\n", ["cat", "a, b", "d"]),
    "comment behind each": (
        'names: ["person", # 0\n        "car",    # 1\n        "dog"]\n', ["person", "car", "dog"],
    ),
    "comma at the end": ("names: [cat, dog,]\n", ["cat", "dog"]),
    "empty list": ("names: []\nnc: 0\n", []),
    # lists of lines
    "lines": ("names:\n  - traffic light\n  - dog\ntrain: x\n", ["traffic light", "dog"]),
    "lines at the margin": ("names:\n- cat\n- dog\nval: y\n", ["cat", "dog"]),
    "comments and blank lines": (
        "names:  # all\n\n# first\n  - cat  # 0\n\n  - dog# not\n", ["cat", "dog# not"],
    ),
    "folded block": ("names:\n  - >\n    traffic\n    light\n  - dog\n", ["traffic light", "dog"]),
    "literal block": ("names:\n  - |\n    cat: tabby\n  - dog\n", ["cat: tabby", "dog"]),
    "quoted over two lines": (
        'names:\n  - "traffic\n    light"\n  - dog\n', ["traffic light", "dog"],
    ),
    # numbered
    "numbered lines": ("names:\n  0: person\n  1: 'car'\n", ["person", "car"]),
    "numbered in braces": ("names: {0: person, 1: 'a, b'}\n", ["person", "a, b"]),
    "in any order": ("names:\n  2: dog\n  0: cat\n", {"2": "dog", "0": "cat"}),
    "a colon in a name": ("names:\n  0: 'a: dog'\n  1: b:c\n", ["a: dog", "b:c"]),
    "explicit keys": ("names:\n  ? 0\n  : cat\n  ? 1\n  : dog\n", ["cat", "dog"]),
    # the key
    "quoted key": ('"names": [cat, dog]\n', ["cat", "dog"]),
    "one mapping in braces": ('{"train": "x", "names": ["cat", "dog"], "nc": 2}', ["cat", "dog"]),
    "behind a text that says names": (
        "download: |\n  x\n\n  # names: [a]\nnames: [cat]\n", ["cat"],
    ),
    "a line of a text at the margin": ('note: "see\nnames: [a, b]"\nnames: [cat]\n', ["cat"]),
    "names of something else inside": ("roboflow:\n  names: [a]\nnames: [cat]\n", ["cat"]),
    # scalars stay as they were written
    "words that YAML turns": (
        "names: [no, on, Yes, null, ~, true]\n", ["no", "on", "Yes", "null", "~", "true"],
    ),
    "numbers that YAML turns": (
        "names: [012, 1:30, 1e3, 0x1F, 1_000, 3.10]\n",
        ["012", "1:30", "1e3", "0x1F", "1_000", "3.10"],
    ),
    "dates and signs": ("names:\n- 2024-01-02\n- =\n- .inf\n", ["2024-01-02", "=", ".inf"]),
    "a quote inside": ("names: [driver's seat, 5\" disk]\n", ["driver's seat", '5" disk']),
    "escapes": ('names: ["caf\\u00e9", "a\\tb", "say \\"x\\""]\n', ["café", "a\tb", 'say "x"']),
    "number sign": (
        "names:\n  0: 'label #0'  # the first\n  1: \"it's #1\"\n  2: a#b # c\n",
        ["label #0", "it's #1", "a#b"],
    ),
    "empty and blank": ("names: ['', ' a ']\n", ["", " a "]),
    "other scripts": ("names: [猫, 'собака', 🐕]\n", ["猫", "собака", "🐕"]),
    # anchors, aliases, tags of plain YAML
    "alias of the list": ("classes: &all [cat, dog]\nnames: *all\n", ["cat", "dog"]),
    "alias of a name": ("first: &c cat\nnames:\n  - *c\n  - dog\n", ["cat", "dog"]),
    "merged": (
        "base: &b {0: cat, 1: dog}\nnames:\n  <<: *b\n  1: wolf\n  2: owl\n",
        ["cat", "wolf", "owl"],
    ),
    "tags of plain YAML": ("names: !!seq [!!str 1, ! dog]\n", ["1", "dog"]),
    # documents and bytes
    "document marks": ("%YAML 1.1\n---\nnames: [cat, dog]\n...\n", ["cat", "dog"]),
    "Windows line ends": ("nc: 2\r\nnames:\r\n  - cat\r\n  - dog\r\n", ["cat", "dog"]),
    "old Mac line ends": ("nc: 2\rnames:\r  - cat\r  - dog\r", ["cat", "dog"]),
    "tabs between": ("names:\t[cat,\tdog]\t# x\nnc:\t2\n", ["cat", "dog"]),
    "byte-order mark": ("\ufeffnames: [cat, dog]\n", ["cat", "dog"]),
    "UTF-16": ("names: [cat, 'собака']\n".encode("utf-16"), ["cat", "собака"]),
    "Latin-1": (b"names: [caf\xe9, dog]\n", ["caf\ufffd", "dog"]),
    "no line end": ("names:\n  - cat\n  - dog", ["cat", "dog"]),
    "no names": ("train: x\nnc: 2\n", []),
}  # fmt: skip


def read(root: Path, content: str | bytes) -> tuple[dict[str, str], list[str]]:
    raw = content if isinstance(content, bytes) else content.encode()
    (root / "data.yaml").write_bytes(raw)
    tree = Tree(str(root), "", named=["data.yaml"])
    problems = ProblemLog("labels")
    names = load_names(tree, "labels/", problems).names
    return names, [f"{row['kind']}: {row['detail']} ({row['place']})" for row in problems.rows]


@pytest.mark.parametrize("form", FORMS)
def test_names_are_read_as_written(tmp_path: Path, form: str) -> None:
    content, names = FORMS[form]
    expected = names if isinstance(names, dict) else {str(i): n for i, n in enumerate(names)}
    assert read(tmp_path, content) == (expected, [])


# PyYAML itself takes no tab between tokens
@pytest.mark.parametrize("form", [form for form in FORMS if form != "tabs between"])
def test_without_libyaml_they_are_read_alike(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader")
    test_names_are_read_as_written(tmp_path, form)


@given(
    names=st.lists(st.text(max_size=12), min_size=1, max_size=8),
    style=st.sampled_from([None, "'", '"']),
    flow=st.booleans(),
    numbered=st.booleans(),
    width=st.sampled_from([3, 20, 1000]),
)
def test_what_pyyaml_writes_is_read_as_it_reads_it(
    names: list[str], style: str | None, flow: bool, numbered: bool, width: int
) -> None:
    listed = {str(i): name for i, name in enumerate(names)}
    text: str = yaml.safe_dump(
        {"train": "x", "names": listed if numbered else names}, default_style=style,
        default_flow_style=flow, width=width, allow_unicode=True,
    )  # fmt: skip
    assert read_yaml(text) == (yaml.load(text, yaml.CBaseLoader), [])


@given(
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, unique=True),
    splits=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True),
)
@example(names=["it's", "\x07", "\u2028", "a\x85b", "🐕"], splits=["train", "a: b", "#", "no", '"'])
def test_what_is_exported_is_read(names: list[str], splits: list[str]) -> None:
    names = list(dict.fromkeys(name.replace("\n", " ") for name in names))
    writer = YoloWriter(Losses())
    writer.add_file(
        AnnotationFile("labels", "YOLO", "", "", "", ""),
        [(str(i), name, None, None) for i, name in enumerate(names)],
    )
    splits = [split for split in splits if split not in ("nc", "names", "<<")]
    content, faults = read_yaml(writer.data_yaml(splits))
    assert faults == []
    assert list(numbered_texts(content["names"]).values()) == names
    assert [content[split] for split in splits] == [f"{split}.txt" for split in splits]


def test_names_one_a_line() -> None:
    assert plain_names("a\nb c\n\n") == {"0": "a", "1": "b c"}


# ---- what is wrong ----

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
END = "malformed: a file of class names is only partly read: "
# What stands in data.yaml -> the names that are read, a part of each problem.
FAULTS: dict[str, tuple[str, list[str], str]] = {
    "names twice": (
        "names: [a]\nnc: 2\nnames: [b, c]\n", ["b", "c"],
        "duplicate-key: a key occurs twice: readers use the last (data.yaml, line 3)",
    ),
    "another key twice": (
        "nc: 1\nnames: [a]\nnc: 2\n", ["a"],
        "duplicate-key: a key occurs twice: readers use the last (data.yaml, line 3)",
    ),
    "a number twice": (
        "names:\n  0: a\n  1: b\n  '0': c\n", ["c", "b"],
        "duplicate-key: a key occurs twice: readers use the last (data.yaml, line 4)",
    ),
    "bracket left open": ("train: x\nnames: [a, b\nnc: 2\n", [], "(data.yaml, line 3)"),
    "quote left open": ('names: ["a, b]\nnc: 2\n', [], END + "found unexpected end of stream"),
    "behind the names": (
        "names: [a, b]\nnc: 2\npath: c: d\n", ["a", "b"],
        END + "mapping values are not allowed in this context (data.yaml, line 3)",
    ),
    "before the names": ("path: c: d\nnames: [a, b]\n", [], "(data.yaml, line 1)"),
    "in the last value": ("names:\n  - a\n  - b\n - c\n", [], "(data.yaml, line 4)"),
    "tabs that indent": (
        "names:\n\t- a\n\t- b\n", [],
        END + "a tab is used where YAML allows only spaces (data.yaml, line 2)",
    ),
    "control characters": (
        "nc: 1\nnames: [a\x07]\n", [],
        END + "control characters are not allowed (data.yaml, line 2)",
    ),
    "a second document": (
        "names: [a]\n---\nnames: [b]\n", ["a"],
        END + "a second document begins (data.yaml, line 2)",
    ),
    "a tag that runs code": (
        "names: !!python/object/apply:os.mkdir [planted]\n", [],
        END + "`!!python/object/apply:os.mkdir` is not a tag of plain YAML (data.yaml, line 1)",
    ),
    "a tag behind the names": (
        "names: [a]\nnc: 1\nroot: !env ROOT\n", ["a"],
        END + "`!env` is not a tag of plain YAML (data.yaml, line 3)",
    ),
    "brackets in each other": (
        "names: " + "[" * 5000, [], END + "its lists and mappings are more than 50 deep",
    ),
    "lines in each other": ("names:\n" + "- " * 5000, [], "more than 50 deep (data.yaml, line 2)"),
    "keys in each other": ("names: " + "{a: " * 5000, [], "more than 50 deep"),
    "aliases of aliases": (
        LAUGHS + "names: *a11\n", [],
        END + "it has more than 200,000 entries, including aliases (data.yaml, line 6)",
    ),
    "aliases behind the names": ("names: [a]\n" + LAUGHS, ["a"], "(data.yaml, line 7)"),
    "merged aliases": (
        "a0: &a0 {0: a, 1: b}\n"
        + "".join(f"a{i}: &a{i} {{<<: [{f'*a{i - 1},' * 9}]}}\n" for i in range(1, 12))
        + "names: *a11\n", [], "more than 200,000 entries",
    ),
    "an alias of itself": (
        "names: &n [a, *n]\n", [], END + "`*n` refers to nothing defined before it",
    ),
    "an alias of nothing": ("names: [*x]\n", [], END + "`*x` refers to nothing"),
    "too many entries": ("names: [" + "a," * 200_000 + "]\n", [], "more than 200,000 entries"),
    "too large": ("names: [a]\n" + "#" * (4 << 20), [], END + "it has more than 4,194,304 bytes"),
    "lines %TAG": (
        "".join(f"%TAG !a{i}! x\n" for i in range(101)) + "---\nnames: [a]\n", [],
        END + "it has more than 100 lines `%TAG`",
    ),
    "an entry that is a mapping": (
        "names: [a, b: c, d]\n", ["a", "d"],
        "malformed: an entry of `names` is not a text with a number (data.yaml)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_said(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content, names, said = FAULTS[fault]
    found, problems = read(tmp_path, content)
    assert list(found.values()) == names
    assert len(problems) == 1
    assert said in problems[0]
    assert not Path("planted").exists()


@pytest.mark.parametrize(("depth", "read"), [(50, True), (51, False)])
def test_fifty_levels_are_read(depth: int, read: bool) -> None:
    text = "names: [a]\ndeep: " + "[" * (depth - 1) + "]" * (depth - 1) + "\n"
    assert (read_yaml(text)[1] == []) == read


@pytest.mark.parametrize(
    "content",
    [
        "spec:\n  names: x: y\n", "kind: a\n---\nspec:\n  names: b\n", "- names: [a]\n",
        "spec: !Ref x\nlist:\n  names: [a]\n", "spec: {names: [a], names: [b]}\n", "names\n",
        "names: of the authors\n", "names: {cat: 0, dog: 1}\n", "template: [{{ names }}\n", "",
    ],
)  # fmt: skip
def test_files_of_other_programs_are_left_alone(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content) == ({}, [])


@given(
    text=st.text(alphabet="names:[]{},'\"#&*!|>-? \t\n\r%012ab\\~<\x00\x85é", max_size=60),
    libyaml=st.booleans(),
)
def test_any_text_is_read_or_refused(text: str, libyaml: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not libyaml:
            patch.delattr(yaml, "CSafeLoader")
        content, faults = read_yaml(f"names:{text}")
    assert {kind for kind, *_ in faults} <= {"malformed", "duplicate-key"}
    assert all(numbered_texts(content.get("names", "")).keys())


def test_a_file_that_cannot_be_read_ends_the_search(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("names: [cat]\n")
    (tmp_path / "data.yaml").write_text("names: [cat\n")
    tree = Tree(str(tmp_path), "", named=["a.yaml", "data.yaml"])
    stated = load_names(tree, "labels/", ProblemLog("labels"))
    assert (stated.names, stated.named_by, stated.unread) == ({}, "", "data.yaml")

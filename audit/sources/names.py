"""What the name of a folder says: a split, a container without meaning, annotations, or a class.

A name is cut into words (`JPEGImages`, `train2017`); without the words for pictures, what remains
decides. Split names become `train`, `val` or `test` where exactly one folder beside each other can
mean it; else (`train_1` and `train_2`, `eval`, `holdout`) the folder's own spelling is the split.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, apart by blanks."""
    return frozenset(text.split())


# English, then German, Spanish, French, Italian, Portuguese, Dutch, Polish, Russian, Chinese,
# Japanese and Korean; without accents.
_SPLITS = {
    "train": "train training trn tr trainings entrenamiento entrainement apprentissage"
    " addestramento treino treinamento treinar uczenie treningowy обучение обучающая"
    " тренировка 训练 訓練 학습 훈련",
    "val": "val valid validation validate dev vl validierung validacion validazione validacao"
    " validatie walidacja валидация 验证 検証 검증",
    "test": "test testing tst te prueba teste testowy тест тестовая 测试 測試 テスト 시험 테스트",
}
CANONICAL = {word: split for split, words in _SPLITS.items() for word in words.split()}
# Split names of no fixed meaning: `eval` is for validation in one dataset, for test in another.
OPEN_SPLITS = word_set(
    "eval evaluation holdout trainval unlabeled unlabelled query gallery challenge"
)
_CONTAINER = word_set(
    "image images img imgs leftimg8bit jpeg jpegs jpegimages pngimages jpg data dataset datasets"
)
_FILLER = _CONTAINER | word_set(
    "set sets split splits all raw obj seg files folder png daten bilder satz menge 集 数据 データ"
)
_ANNOTATION = word_set(
    "label labels annotation annotations annots annot anno meta metadata devkit mask masks"
    " segmentation segmentations segmentationclass segmentationobject segmentationclassaug"
    " gt groundtruth scribbles bbox bboxes xml xmls json jsons gtfine gtcoarse panoptic polygons"
    " imagesets keypoints captions"
)
# Alone these can be a class (`mask`, `no mask`): they count only beside a folder of pictures.
_WEAK_ANNOTATION = word_set(
    "label meta metadata devkit mask segmentation gt bbox xml json panoptic captions"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")

SYSTEM = word_set(
    "thumbs.db ehthumbs.db desktop.ini .ds_store __macosx $recycle.bin @eadir lost+found"
    " .spotlight-v100 .trashes .fseventsd __pycache__"
) | {"system volume information", "icon\r"}


def words(name: str) -> list[str]:
    """Return the words of a folder name in lower case: `JPEGImages` is jpeg, images."""
    if not name.isascii():
        chars = unicodedata.normalize("NFD", name)
        bare = (char for char in chars if unicodedata.category(char) != "Mn" or char > "\u2fff")
        name = unicodedata.normalize("NFC", "".join(bare))
    found = (word.lower() for word in _WORD.findall(name))
    return [part for word in found for part in _parts(word)]


@lru_cache(maxsize=4096)
def _parts(word: str) -> tuple[str, ...]:
    """Return `train`, `set` for `trainset`: a split and what only says that it is one."""
    for end in range(len(word) - 1, 2 if word.isascii() else 1, -1):
        if word[:end] in CANONICAL and word[end:] in _FILLER and word not in CANONICAL:
            return word[:end], word[end:]
    return (word,)


def has_container_word(name: str) -> bool:
    """Return whether a name says that pictures are here, whatever else it says: `images_001`."""
    return not _CONTAINER.isdisjoint(words(name))


@lru_cache(maxsize=4096)
def is_container(name: str) -> bool:
    """Return whether a name only says that pictures are inside: `images`, `JPEGImages`, `data`."""
    parts = words(name)
    return name.lower() in _CONTAINER or (
        bool(parts) and set(parts) <= _FILLER and not _CONTAINER.isdisjoint(parts)
    )


@lru_cache(maxsize=4096)
def is_annotation(name: str, *, beside_images: bool) -> bool:
    """Return whether a folder contains annotations; `beside_images`: `mask` alone counts too."""
    joined = re.sub(r"[\W_]", "", name.lower())
    if joined in _ANNOTATION:
        return beside_images or joined not in _WEAK_ANNOTATION
    parts = words(name)
    rest = [word for word in parts if word not in _ANNOTATION]
    return len(rest) < len(parts) and all(w in CANONICAL or w in _FILLER for w in rest)


@lru_cache(maxsize=4096)
def split_word(name: str) -> str | None:
    """Return the split that one name alone suggests (`train2017` is train), None if it is none."""
    joined = re.sub(r"[\W_]", "", name.lower())
    if joined in OPEN_SPLITS:
        return joined
    parts = words(name)
    splits = [word for word in parts if word in CANONICAL]
    rest = [word for word in parts if word not in CANONICAL]
    if len(splits) != 1 or not all(w in _FILLER or w.isdigit() or len(w) == 1 for w in rest):
        return None
    return CANONICAL[splits[0]]


def split_values(folders: Collection[str]) -> dict[str, str]:
    """Return {folder: split} for those folders beside each other that name a split.

    `cars_train` and `cars_test` share a stem and are splits; `steam_train` among classes is none.
    """
    splits = {name: word for name in folders if (word := split_word(name))}
    splits |= _splits_by_stem(folders)
    meaning = Counter(splits.values())
    return {
        name: word if meaning[word] == 1 and word not in OPEN_SPLITS else name
        for name, word in splits.items()
    }


def _splits_by_stem(folders: Iterable[str]) -> dict[str, str]:
    stems: dict[tuple[str, ...], dict[str, str]] = {}
    for name in folders:
        parts = words(name)
        splits = [word for word in parts if word in CANONICAL and len(word) > 2]
        if len(splits) == 1 and len(parts) > 1:
            stem = tuple(word for word in parts if word not in splits)
            stems.setdefault(stem, {})[name] = CANONICAL[splits[0]]
    groups = [group for group in stems.values() if len(set(group.values())) > 1]
    return {name: split for group in groups for name, split in group.items()}

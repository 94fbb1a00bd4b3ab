"""Cases of LABEL002."""

from collections import Counter

from audit.testing import Case
from tests.audit.checks.case_tables import Cases


def _named(*single: str, **counts: int) -> list[dict[str, str]]:
    """Return a picture of each class that is named alone, and so many of the others."""
    return [{"label": name} for name in (*single, *Counter(counts).elements())]


CASES: Cases = {
    "LABEL002": [
        Case("different words", _named("car", "cat", "cart", "bus", "glass")),
        Case("numbered names", _named("class2", class1=40)),
        Case("digits", _named("0", "1", "10", "1_0", "1-1", "11")),
        Case("synset ids", _named("n01440765", n01440764=40)),
        Case("letters of both cases", _named(*"aAbBcC")),
        Case("common words one letter apart", _named(mouse=20, house=20, horse=20)),
        Case("a rare but different word", _named("trunk", truck=40)),
        Case(
            "case, plural and spacing",
            _named("cat", "Cat", "cats", "polar bear", "polar_bear", "dog"),
            ["class:Cat|cat|cats", "class:polar bear|polar_bear"],
        ),
        Case("a doubled letter", _named("bridgee", bridge=40), ["class:bridge|bridgee"]),
        Case(
            "a swap, and two slips in a long word",
            _named("girafef", "restaraunt", giraffe=30, restaurant=30),
            ["class:girafef|giraffe", "class:restaraunt|restaurant"],
        ),
        Case(
            "composed and decomposed accents, a Cyrillic letter, a copied folder",
            _named("caf\u00e9", "cafe\u0301", "c\u0430t", "cat", "dog", "dog (1)"),
            ["class:cafe\u0301|caf\u00e9", "class:cat|c\u0430t", "class:dog|dog (1)"],
        ),
        Case(
            "numbers that went through a float", _named("1", "1.0", "01", "2"), ["class:01|1|1.0"]
        ),
        Case(
            "a declared folder without images",
            _named(bridge=40),
            ["class:Bridge|bridge"],
            tables={"declared_classes": [{"split": "train", "label": "Bridge"}]},
        ),
    ],
}

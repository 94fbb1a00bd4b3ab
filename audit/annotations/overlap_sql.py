"""Pairs of boxes of one picture that overlap, in SQL: intersection over union, and containment.

The join is by picture, so its cost grows with the square of the boxes of one picture, not of all.
"""

from __future__ import annotations

_WIDE = "(least(a.x + a.width, b.x + b.width) - greatest(a.x, b.x))"
_HIGH = "(least(a.y + a.height, b.y + b.height) - greatest(a.y, b.y))"
_BOTH = f"{_WIDE} * {_HIGH}"
_UNION = f"(a.width * a.height + b.width * b.height - {_BOTH})"

# Each pair once: `a` is the later entry, whose columns are those of the row.
PAIRS = f"""
    SELECT a.*, b.entry AS other_entry, b.category_key AS other_key, b.label AS other_label,
        {_BOTH} / {_UNION} AS iou
    FROM boxes a JOIN boxes b ON a.sample_id = b.sample_id AND a.file = b.file
        AND a.image_key = b.image_key AND a.entry > b.entry
    WHERE a.width > 0 AND a.height > 0 AND b.width > 0 AND b.height > 0
        AND NOT a.crowd AND NOT b.crowd AND {_WIDE} > 0 AND {_HIGH} > 0
        AND {_BOTH} >= 0.5 * {_UNION}
"""
# `a` lies inside `b`: `inside` is the share of a's area that b covers.
NESTED = f"""
    SELECT a.*, b.entry AS other_entry, b.width AS other_width, b.height AS other_height,
        {_BOTH} / (a.width * a.height) AS inside, {_BOTH} / {_UNION} AS iou
    FROM boxes a JOIN boxes b ON a.sample_id = b.sample_id AND a.file = b.file
        AND a.image_key = b.image_key AND a.category_key = b.category_key AND a.entry <> b.entry
    WHERE a.width > 0 AND a.height > 0 AND b.width > 0 AND b.height > 0
        AND NOT a.crowd AND NOT b.crowd AND a.width * a.height < b.width * b.height
        AND {_WIDE} > 0 AND {_HIGH} > 0 AND {_BOTH} >= 0.9 * a.width * a.height
"""

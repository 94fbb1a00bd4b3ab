"""Dataset readers: folders, annotated trees, manifests and archives, behind one `Source`.

In: a folder, a manifest or several `name=PATH`. Out: `Sample`s in a fixed order, the layout with
its reason, and a log of what is not a sample. No image is decoded.
"""

from audit.sources.source import Source, open_source

__all__ = ["Source", "open_source"]

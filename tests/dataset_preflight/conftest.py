"""Scripts are held back below a folder on a disk: overlays leave /dev as it is."""

from tests.pipeline_profiler.conftest import tmp_path

__all__ = ["tmp_path"]

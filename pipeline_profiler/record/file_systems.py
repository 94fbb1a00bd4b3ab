"""Which file systems lie behind a network, or behind a program of somebody's (FUSE).

A file under such a mount opens like any other; where the time goes there is another matter. Read
from Linux's table of mounts (proc(5), mountinfo); elsewhere nothing is known to be remote.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
NETWORK = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "smb2", "9p", "virtiofs", "ceph", "lustre"),
    *("glusterfs", "beegfs", "gpfs", "afs", "orangefs", "pvfs2", "ncpfs", "davfs"),
}
LOCAL_FUSE = {"fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.mergerfs", "fuse.portal", "fuse.snapfuse",
              "fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuse.exfat"}  # fmt: skip
MOST_FOLDERS = 4096  # whose answer is kept


def network_mounts(table: Path = MOUNTS) -> dict[int, str]:
    """The type of each mounted network file system, by its device number; {} where unknown."""
    try:
        lines = table.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        # "id parent major:minor root place options [fields] - type source options"
        head, _, tail = line.partition(" - ")
        device = re.match(r"\d+ \d+ (\d+):(\d+) ", head)
        kind = tail.split(" ", 1)[0]
        if device and (kind in NETWORK or (kind.startswith("fuse.") and kind not in LOCAL_FUSE)):
            found[os.makedev(int(device[1]), int(device[2]))] = kind
    return found


class NetworkFiles:
    """Says of paths whether they lie on a network file system; asks once a folder."""

    def __init__(self, table: Path = MOUNTS) -> None:
        """Read the table of mounts."""
        self._mounts = network_mounts(table)
        self._folders: dict[str, bool] = {}

    def has(self, file: object) -> bool:
        """Whether a file (a path; anything else is not) is reached through a network."""
        if not self._mounts or not isinstance(file, str | os.PathLike):
            return False
        folder = os.path.dirname(os.fspath(file)) or "."
        known = self._folders.get(folder)
        if known is None:
            known = self._is_remote(folder)
            if len(self._folders) < MOST_FOLDERS:
                self._folders[folder] = known
        return known

    def _is_remote(self, folder: str) -> bool:
        try:
            return os.stat(folder).st_dev in self._mounts
        except (OSError, ValueError):
            return False

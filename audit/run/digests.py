"""Names that the ledger of decisions imports from here; delete with its last import."""

from audit.run.synced_files import DRAFT as DRAFT
from audit.run.synced_files import sync as sync
from audit.run.synced_files import write_synced as write_synced

REPAIR = "move it away; `audit verify` says what is lost."

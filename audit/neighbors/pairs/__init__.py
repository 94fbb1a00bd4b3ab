"""Near-duplicate search tied to a run: what `audit.neighbors` computes, read from and kept in it.

In come the measured pictures of a run and their signatures, or new images to look up in it; out go
the tables pairs, groups, rechecks, rejected_pairs and relate_facts, or a report of matches.
`relate` within one dataset, `overlap` new images against a run, `signature_store` the signatures on
disk. Costs what the search costs; reading 100,000 signatures takes about 0.2 s.
"""

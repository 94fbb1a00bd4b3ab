"""Near-duplicates: complete candidates, verification by alignment, groups without chains.

Input: signatures (1.2 kB an image), content keys and perceptual hashes. Output: verified pairs with
scores, groups, and the completeness of the search. Functions take and return plain arrays; only
`pairs/` reads and writes a run. Import names from the files, so that a caller loads no more than it
needs.
"""

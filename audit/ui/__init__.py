"""The pages of the app: each file is a page (`def page()`) or a part that pages share.

In: a link, clicks and keys. Out: Streamlit elements, and decisions in the ledger; pages hold no SQL
and no arithmetic, `audit.results` answers them. What comes from the data (names, labels, notes) is
shown as text, never as Markdown or HTML: through `html`, the three components (`gallery`,
`listing`, `scatter`, which set `textContent`) or tables. Cost: a click draws a page or a fragment.
"""

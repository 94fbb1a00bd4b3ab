"""The pages of the app over an audit run: each file one page, each page `def page(...)`.

Pages hold no SQL and no arithmetic: `audit.browse` answers questions about a run,
`audit.review.decisions` and `audit.review.keeper_rules` record what a person decides,
`audit.subset` plans. What comes from the data (file names, labels, notes) is shown as text and
never as Markdown or HTML: through `words`, through the three components (`gallery`, `listing`,
`scatter`, which set `textContent`), or in tables.
"""

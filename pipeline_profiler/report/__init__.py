"""Reports of a session: text, Markdown, HTML or JSON.

In: a session with its results. Out: sections (sentences, tables, charts) made once, which each
format only renders; a figure that was not measured is "n/a", never 0. Cost: well below a second.
Nothing is fetched and no script is needed to read a report.
"""

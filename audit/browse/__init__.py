"""What the app's pages ask of a run: pages by keyset, facets, histograms, groups, thumbnails.

Pure functions over a `Store` that a page has opened; they return frozen rows and frames and know
nothing of Streamlit, so every question of the app is tested without one.

    columns        which columns can be filtered and sorted, and how
    conditions     a filter as data: to SQL with parameters, to and from a link
    images         samples under a filter, a page at a time
    distributions  histograms, extremes, a sample of points, what a lasso holds
    findings       findings in severity order, their index, one of them with its samples
    overview       the three things to do first
    duplicates     which splits show the same pictures
    boxes          boxes of an image, wherever a source stored them
    pictures       a thumbnail or a view of a sample, the difference of two
    thumbnails     the bounded cache of thumbnails on disk
    decided        what the ledger says, beside findings and samples

Paging is by keyset (`WHERE (value, id) > ...`), never by offset: page 40,000 costs what page 1
does. On 1,000,000 rows a page takes 20 to 70 ms.
"""

"""Near-duplicates: complete candidates, verification by alignment, groups without chains.

The room finds which pictures show the same thing. In come signatures (1.2 kB a picture), content
keys and perceptual hashes; out go verified pairs with scores, groups, and sentences on how sure and
how complete they are. 60,000 pictures take minutes on two cores and about 4 kB each of memory.
Plain arrays in, plain arrays out: no store, no files, no printing. Names are imported from the
files themselves, so that a caller loads no more than it needs.

    orientations   the eight ways to lay a picture down, for everything below
    hamming        every pair of 64-bit hashes within a radius
    descriptor     a fixed dense descriptor that knows its mirror images and quarter turns
    dense          the k nearest by descriptor
    candidates     which pairs are verified: by hash (of mirror images too) and by descriptor
    gate           which of them are worth the search for a map
    verification   the score of a pair: alignment (`kernels/`), then log odds for "one picture"
    calibration    the threshold from random pairs of the user's own pictures
    synthetic      known changes, to measure recall with
    affine         maps between two pictures at full size
    inspection     the two files themselves, where signatures cannot decide
    drawings       drawn pictures, which one stroke may tell apart
    transformation what was done to the picture, in words
    groups         groups around representatives
    pair_cache     what a search decided, for the next one
    pairs/         all of it tied to a run: read from it and stored in it
    search         all of it, within a set: `find_near_duplicates`; what was compared, what left out
    overlap        all of it, new images against a library: `search_against`
"""

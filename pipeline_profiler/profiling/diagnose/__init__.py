"""Session -> verdict and causes: pure functions, so that old sessions can be judged again.

In: a saved or a fresh `Session`. Out: a `Conclusion`: the verdict with its interval, causes in the
order to fix them, and rules that failed. Order of the files: window and stalls are figures;
predict and evidence are what-if; rules name causes. Cost: about a second.
"""

"""Random numbers of a loader: workers that draw alike, one seed that gives other data."""

from __future__ import annotations

from itertools import islice, zip_longest

from pipeline_profiler.checks.batches import digest_of
from pipeline_profiler.checks.check import Answer, Check, Nearness, absent, passed, unclear, wrong
from pipeline_profiler.checks.loader_subject import (
    LoaderSubject,
    SampleRecord,
    graph_of,
    own_sampler,
)
from pipeline_profiler.checks.user_code import batches_of
from pipeline_profiler.profiling.adapters.tf_graph import name_of

COPIED = "a generator object made once, in the main process, is copied into every worker"
INIT = "worker_init_fn seeds all workers, or all epochs, with one number"
INSIDE = "a seed is set while a sample is made"


class RandomStreams(Check):
    """Workers, epochs or samples that get the same random numbers.

    ## How it decides
    Reads the state of each random generator before and after each sample, in its worker: `random`,
    numpy, torch, and those of the dataset. Fails if a used generator had the same state in two
    workers, at the start of both epochs, or after samples with different indices. Exact.

    ## Limits
    DataLoaders of torch. A generator seeded from the index passes.
    """

    code = "LOAD001"
    name = "repeated-random-numbers"

    def run(self, subject: LoaderSubject) -> Answer:
        if not subject.is_torch:
            return absent("Without a DataLoader of torch no workers have generators of their own.")
        epochs = [[r for batch in batches for r in batch.records] for batches in subject.epochs]
        drawn = {  # generator -> records of both epochs that drew from it
            name: [[r for r in records if name in r.used()] for records in epochs]
            for name in sorted({name for r in epochs[0] for name in r.used()})
        }
        text = "; ".join(filter(None, (_problems(name, *both) for name, both in drawn.items())))
        if text:
            causes = [COPIED, INIT, INSIDE] if "dataset" in text else [INIT, INSIDE, COPIED]
            return wrong(
                f"{text}: the same random numbers are used again.",
                [INSIDE, INIT] if "in each" in text else causes,
                "Seed it in worker_init_fn from torch.initial_seed() % 2**32, or draw from torch.",
            )
        if not drawn:
            return passed(f"No generator is drawn from while {len(epochs[0])} samples are made.")
        return passed(
            f"{', '.join(drawn)}: another state in each of {max(1, subject.workers)} workers, and "
            f"in the second epoch, over {len(epochs[0])} samples."
        )


def _problems(name: str, first: list[SampleRecord], second: list[SampleRecord]) -> str:
    # the first state of each worker
    now, later = ({r.worker: r.before[name] for r in reversed(e)} for e in (first, second))
    alone = [r for r in first if r.worker == first[0].worker]
    found = []
    if len(set(now.values())) < len(now):
        found.append(f"{name} is in the same state in several of {len(now)} workers")
    if now.items() & later.items():
        found.append(f"{name} starts the second epoch in the state of the first")
    if len({str(r.index) for r in alone}) > 4 and len({r.after[name] for r in alone}) == 1:
        found.append(f"{name} ends every sample in the same state: it is seeded in each")
    return "; ".join(found)


BATCHES = 4


class Reproducible(Check):
    """A loader that returns different batches with the same seeds.

    ## How it decides
    Makes the loader twice with one seed (random, numpy, torch) and once with another. Fails if one
    seed gives other bytes in the first four batches. Exact.

    ## Limits
    Inconclusive without a seed, if a sampler keeps a state, and in a parallel map of tf.data.
    """

    code = "LOAD006"
    name = "not-reproducible"
    nearness = Nearness.EFFECT
    causes = (
        "a generator that takes its seed from the system: default_rng()",
        "threads or processes that deliver in any order",
        "a list of files in the order of the file system, or of a set",
    )
    next_step = "Seed every generator from one number, and sort the files."

    def run(self, subject: LoaderSubject) -> Answer:
        if not subject.made_anew:
            return unclear("The loader cannot be made anew: a second pass is another epoch.")
        one, two, other = (
            [digest_of(batch) for batch in islice(batches_of(subject.fresh(seed)), BATCHES)]
            for seed in (0, 0, 1)
        )
        if one == two:
            same = f"first {len(one)} batches are equal to the last bit"
            differs = "gives other batches" if one != other else "gives the same batches"
            return self.without_seed(subject, f"the {same}") or passed(
                f"The {same} after one seed; another seed {differs}."
            )
        if any(name_of(op).startswith("ParallelMap") for op in graph_of(subject.loader)):
            return unclear(
                "After the same seed other batches come: tf.data draws random numbers in map(..., "
                "num_parallel_calls), and its threads decide which sample gets which number.",
                "Where runs must be equal, draw by tf.random.stateless_* from a seed a sample.",
            )
        if subject.has_indices and _goes_on(subject):
            return unclear(
                "The sampler or the dataset keeps a state, so a second pass is another epoch."
            )
        differ = sum(a != b for a, b in zip_longest(one, two))
        return self.failed(f"After the same seed, {differ} of the first {len(one)} batches differ.")


def _goes_on(subject: LoaderSubject) -> bool:
    """Whether one sampler of the user's, or a generator of the dataset, serves all passes."""
    loader = subject.fresh(0)
    if loader.batch_sampler is not subject.fresh(0).batch_sampler:
        return False
    used = (name for b in subject.batches for record in b.records for name in record.used())
    return own_sampler(loader) is not None or any(name.startswith("dataset") for name in used)

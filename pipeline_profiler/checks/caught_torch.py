"""Hooks into torch that capture a training where an unmodified script uses it.

Each part is captured at its first use; model and optimizer as copies of their first state. Loaders
are cut to a few batches, so that the script soon reaches an evaluation and a second epoch. Then its
loaders end at the first batch, until another optimizer or other parameters are trained. `on_end`
gets the last complete training, which usually makes the model that is used.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import functools
import inspect
import itertools
import logging
import math
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline_profiler.checks.batches import (
    FewBatches,
    batch_size,
    cut_batch,
    entering,
    main_tensor,
)
from pipeline_profiler.checks.caught_tape import (
    LOSSES,
    MARK,
    CaughtError,
    CaughtStep,
    KeptStates,
    ModelCall,
    Tape,
    graphs_behind,
    leaves,
    mean_factor,
    output_model,
    recording_mode,
    step_of_tape,
)
from pipeline_profiler.checks.folds import Folds
from pipeline_profiler.checks.loop_facts import LoopFacts, idle_flags, modes_of
from pipeline_profiler.checks.ranks import (
    BY_HAND,
    RankWatch,
    own_files,
    script_text,
    speaks_of_ranks,
)
from pipeline_profiler.checks.reported import (
    Evaluations,
    Number,
    extent,
    formulas_of,
    reversed_best,
)
from pipeline_profiler.checks.state_watch import ForwardPass, LoopWatch, unwrapped
from pipeline_profiler.checks.user_code import Patience, UsersError, short_place, user_place
from pipeline_profiler.checks.user_training import (
    ENOUGH_EXAMPLES,
    MOST_BATCHES,
    Training,
    deep_copied,
)
from pipeline_profiler.checks.wrong_arguments import MASKS, inverted_mask, wrong_argument
from pipeline_profiler.profiling.measure.watchdog import is_own_code

LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")
LEAST_BATCHES = 4
PLAIN = (bool, int, float, str)
MOST_EPOCHS = 5  # of a training without an evaluation
WITHOUT_LOADER = 12  # steps of a loop that draws its batches itself, after which it was seen
IDLE_S, IDLE_WALL_S = 3.0, 30.0  # from the end of a training that was seen to the next one
# attributes of all trainings of a script
SHARED = (
    *("loaders", "schedules", "undo", "current", "given", "depth", "kept_bytes", "random"),
    *("unseeded", "loaded", "first", "states", "evaluations", "trainings", "called", "ended"),
    *("ranks", "text", "once", "reseeded", "filled", "loaded_rates", "folds", "parts"),
)
OUTSIDE = ("socket.connect", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
KEEPS = re.compile(  # what a line appends to or adds to
    r"([\w.]+)(?:\[[^]]*\])?(?:\.(?:append|extend|update|add)\(| *\+= )|([\w.]+) = \2 \+ "
)
MOST_KEPT, MOST_GIVEN = 2 * 10**9, 4  # bytes of batches; batches as their loader gave them

NO_SEED = "Your script sets no seed with {}: two runs of it differ."
SEEDED_LATE = (
    "Your script draws random numbers before it sets a seed (at {}): what they decide differs "
    "between two runs."
)


@dataclass
class SeenLoader:
    """A DataLoader: iterated how often, and what for."""

    loader: Any
    generator: Any  # its state before the first batch, None without one
    place: str
    iterations: int = 0
    batches: int = 0  # of this iteration
    examples: int = 0
    kind: str = ""  # 'train', 'eval', '' while nobody knows
    start: tuple[int | None, Any] = (None, None)  # epoch, state of torch's generator
    states: list[Any] = field(default_factory=list)  # at the starts of passes in training
    attributes: dict[str, Any] | None = None  # of the dataset, when persistent workers started
    late: bool = False  # first evaluated after the training was seen

    @property
    def enough(self) -> bool:
        """Whether the loader ends here."""
        few = self.batches < LEAST_BATCHES or self.examples < ENOUGH_EXAMPLES
        return self.batches >= MOST_BATCHES or not few

    def again(self) -> Any:
        """The loader as it was before its first batch; the dataset is the script's own."""
        if self.generator is not None:
            self.loader.generator.set_state(self.generator)
        made = copy.copy(self.loader)
        made.__dict__["_iterator"] = None
        return made


class CaughtBatches(FewBatches):
    """Batches as they entered the model, with what a check asks of the loader they came from."""

    def __init__(self, batches: list[Any], loader: Any) -> None:
        super().__init__(batches)
        self.sampler, self.batch_size = (
            getattr(loader, name, None) for name in ("sampler", "batch_size")
        )


class Hooks:
    """Functions of torch that are replaced, until `ended`."""

    ended: bool
    undo: list[Callable[[], Any]]

    def wrap(self, owner: Any, name: str, hook: Callable[..., Any]) -> None:
        """Replace a function by `hook(plain, ...)`."""
        plain = getattr(owner, name)

        @functools.wraps(plain)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self.ended:
                return plain(*args, **kwargs)
            return hook(plain, *args, **kwargs)

        setattr(owner, name, wrapped)
        self.undo.append(lambda: setattr(owner, name, plain))

    def unhook(self) -> None:
        """Take the hooks out."""
        self.ended = True
        while self.undo:
            self.undo.pop()()


@dataclass
class Caught(Hooks):
    """What was caught of a training; `why` says what could not be, `on_end` ends the run."""

    patience: Patience
    on_end: Callable[[Caught], None]
    facts: LoopFacts = field(default_factory=LoopFacts)
    loaders: dict[int, SeenLoader] = field(default_factory=dict)
    steps: list[CaughtStep] = field(default_factory=list)
    why: str = ""
    optimizer: Any = None
    schedule: Any = None
    ended: bool = False
    tape: Tape | None = None
    modules: list[ModelCall] = field(default_factory=list)  # called beside the model
    first: dict[int, Any] = field(default_factory=dict)  # module -> its copy before the first call
    parts: dict[int, Any] = field(default_factory=dict)  # module -> its parameters then
    copied: Any = None  # (optimizer, schedule) before the first step
    schedules: list[Any] = field(default_factory=list)
    undo: list[Callable[[], Any]] = field(default_factory=list)
    current: SeenLoader | None = None
    given: Any = None  # the last batch of a loader, while no model took it
    judged: list[Any] = field(default_factory=list)  # what entered the model in an evaluation
    depth: int = 0
    last: str = ""  # 'backward' or 'step'
    last_pass: tuple[int, int] = (0, 0)  # over a loader, at the optimizer's last step
    version: int | None = None  # of the weights at the last backward: whether they were changed
    stepped: dict[int, Any] = field(default_factory=dict)  # optimizers that made a step
    modes: dict[str, bool] = field(default_factory=dict)  # of modules, in the first training step
    kept_bytes: int = 0
    loaded: bool = False  # a state was loaded into some module
    counter: tuple[int, int, int] | None = None  # of the schedule: value, epoch, evaluations
    states: KeptStates = field(default_factory=KeptStates)
    evaluations: Evaluations = field(default_factory=Evaluations)
    random: Any = None  # state of torch's generator, before the script drew from it
    reseeded: str = ""  # the line of the last seed
    unseeded: str = ""  # a sentence: numbers are drawn without a seed
    watch: LoopWatch = field(default_factory=LoopWatch)
    ranks: RankWatch = field(default_factory=RankWatch)
    heads: dict[int, Any] = field(default_factory=dict)  # called with outputs of a model; line
    filled: set[int] = field(default_factory=set)  # modules that a state was loaded into
    loaded_rates: dict[int, Any] = field(default_factory=dict)  # (before, after, line) by optimizer
    folds: Folds = field(default_factory=Folds)
    text: Callable[[], str] = lambda: script_text()  # of the program
    once: bool = False  # no other training follows
    trains: bool = False  # a step was made in train mode
    stale: dict[int, bool] = field(default_factory=dict)  # optimizer: all backward() began with its
    uncleared: dict[int, int] = field(default_factory=dict)  # gradients; and its steps from such
    ended_passes: int = 0  # evaluations that are no part of a pass in training
    pending: list[ForwardPass] = field(default_factory=list)  # in eval mode, before a step
    kept: dict[str, list[int]] = field(default_factory=dict)  # line -> graphs that it keeps
    gathered: dict[Any, float] = field(default_factory=dict)  # batch -> factor, since the last step
    seen: Patience | None = None  # with what follows the training, once it was seen
    rank: tuple[bool, ...] = ()  # the last training of the highest rank is judged
    trainings: list[Caught] = field(default_factory=list)  # that were seen, or ended
    trained: list[Any] = field(default_factory=list)  # (parameter, whether it is trained)
    called: Any = None  # the last module that was called with gradients
    clip: Callable[[Any], Any] | None = None  # of gradients, with the script's own limit

    def hook(self, torch: Any) -> None:
        """Put the hooks in."""
        import torch.utils.data.dataloader as loading
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        self.random = torch.get_rng_state()
        for owner in (torch, torch.random):
            self.wrap(owner, "manual_seed", self._seed)
        self.mode = recording_mode(
            lambda: self.tape,
            self.states,
            self._loss,
            lambda *args: self.watch.note_norm(*args),
        )
        self.mode.__enter__()
        self.wrap(loading.DataLoader, "__init__", self._made_loader)
        self.wrap(loading.DataLoader, "__iter__", self._iter)
        self.wrap(loading.DataLoader, "__len__", self._len)
        self.wrap(loading._BaseDataLoaderIter, "__next__", self._next)
        self.wrap(torch.nn.Module, "__call__", self._call)
        self.wrap(torch.nn.Module, "load_state_dict", self._load)
        self.wrap(torch.nn.Module, "state_dict", self._state)
        self.wrap(torch.optim.Optimizer, "load_state_dict", self._load_rate)
        self.wrap(torch.optim.lr_scheduler.ReduceLROnPlateau, "step", self._plateau)
        self.wrap(torch.autograd, "backward", self._backward)
        self.wrap(builtins, "print", self._print)
        self.wrap(logging.LogRecord, "getMessage", self._print)
        self.wrap(torch.optim.lr_scheduler.LRScheduler, "__init__", self._scheduler)
        self.ranks.hook(self, torch)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            self.wrap(torch.nn.utils.clip_grad, name, self._clip)
            self.wrap(torch.nn.utils, name, self._clip)
        self.undo.append(register_optimizer_step_pre_hook(self._before_step).remove)
        self.undo.append(register_optimizer_step_post_hook(self._after_step).remove)

    def end(self) -> None:
        """End the run, once."""
        if not self.ended:
            self._close()
            self.unhook()
            self.tape = None
            torch = sys.modules["torch"]
            if self._drew_unseeded():
                self.unseeded = NO_SEED.format("torch.manual_seed")
            # the limit may be reached inside an evaluation, where the script wants no gradients
            with torch.inference_mode(False), torch.enable_grad():
                for training in self.trainings:
                    training.unseeded = self.unseeded
                    if training.steps:
                        model = training.steps[0].call.module
                        training.facts.answers = training.watch.finish(model)
                self.on_end(max(reversed(self.trainings), key=lambda training: training.rank))

    def _close(self) -> None:
        """Write down what is counted over a training, and keep it among `trainings`."""
        self._count_pending()
        self.facts.reported += self.evaluations.close(self.loader_of("train"))
        if self.seen is None:
            live = self.states.live()
            self.facts.weights_kept = self.states.taken, len(live)
            self.facts.run_steps = self._run_steps()
            self.facts.unheld = self._unheld()
            self.facts.epoch_steps = self._epoch_steps() if self.loader_of("train") else 0
            self.facts.best_reversed = reversed_best(own_files())
            if speaks_of_ranks(self.text()):
                self.facts.ranks = self.ranks.facts
            if live:
                self.facts.places["kept"] = live[0]
            complete = not self.patience.over and len(self.steps) >= LEAST_BATCHES
            self.rank = complete, bool(self.steps), self.loader_of("train") is not None
            self.trainings.append(copy.copy(self))

    def _unheld(self) -> tuple[str, str] | None:
        """(type, line) of a module behind the model whose parameters no optimizer holds."""
        groups = (g for optimizer in self.stepped.values() for g in optimizer.param_groups)
        held = {id(p) for group in groups for p in group["params"]}
        for module, place in self.heads.values() if held else ():
            own = [p for p in module.parameters() if p.requires_grad]
            reached = own and all(p.grad is not None and bool(p.grad.any()) for p in own)
            if reached and id(module) not in self.filled and not held & set(map(id, own)):
                return type(module).__name__, place
        return None

    def _load_rate(self, plain: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = [float(group["lr"]) for group in optimizer.param_groups]
        result = plain(optimizer, *args, **kwargs)
        after = [float(group["lr"]) for group in optimizer.param_groups]
        if before and not 0.5 < after[0] / max(before[0], 1e-30) < 2:
            self.loaded_rates[id(optimizer)] = before[0], after[0], user_place()
        return result

    def _go_on(self) -> None:
        """Let the script go on after its training was seen: another one may follow."""
        if all(training.seen is None for training in self.trainings):
            sys.addaudithook(self._refuse)
            with contextlib.suppress(AttributeError, ValueError):  # there is no timer here
                before = signal.signal(signal.SIGALRM, lambda *_: self._end_if_idle())
                self.undo.append(lambda: signal.signal(signal.SIGALRM, before))
                signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
                self.undo.append(lambda: signal.setitimer(signal.ITIMER_REAL, 0.0))
        self._close()
        self.seen = self.trainings[-1].seen = Patience(IDLE_S, IDLE_WALL_S)
        self.trains = False

    def _end_if_idle(self) -> None:
        idle = self.seen is not None and self.seen.over
        if (idle or self.patience.over) and not self.depth:
            self.end()

    def _refuse(self, event: str, args: Any) -> None:
        """Refuse what acts outside after a training: uploads, mails, shutdowns."""
        local = event == "socket.connect" and str(args[1]).startswith(("/", "('127."))
        if event in OUTSIDE and not local and not self.ended:
            raise PermissionError("`check` refuses connections and commands after a training")

    def _seed(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        if self._drew_unseeded():
            self.unseeded = SEEDED_LATE.format(short_place(user_place()))
        self.random = None
        self.ranks.seed()
        self.reseeded = user_place()
        return plain(*args, **kwargs)

    def _drew_unseeded(self) -> bool:
        """Whether torch's generator gave numbers and has no seed of the script."""
        torch = sys.modules["torch"]
        return self.random is not None and not torch.equal(self.random, torch.get_rng_state())

    def _iter(self, plain: Any, loader: Any) -> Any:
        torch = sys.modules["torch"]
        if torch.utils.data.get_worker_info() is not None:
            return plain(loader)
        seen = self.loaders.get(id(loader))
        if seen is None:
            generator = getattr(loader, "generator", None)
            state = None if generator is None else generator.get_state()
            seen = self.loaders[id(loader)] = SeenLoader(
                loader, state, loader.__dict__.get("_caught_at") or user_place()
            )
        seen.iterations, seen.batches, seen.examples = seen.iterations + 1, 0, 0
        epoch = getattr(loader.sampler, "epoch", None)
        takes_epoch = isinstance(epoch, int) and hasattr(loader.sampler, "set_epoch")
        drawn = isinstance(loader.sampler, torch.utils.data.RandomSampler) and (
            loader.generator is None and loader.sampler.generator is None
        )
        seen.start = epoch if takes_epoch else None, torch.get_rng_state() if drawn else None
        if getattr(loader, "persistent_workers", False):
            plain_values = {n: v for n, v in vars(loader.dataset).items() if isinstance(v, PLAIN)}
            first = seen.attributes = seen.attributes or plain_values
            changed = [n for n, v in plain_values.items() if first.get(n) != v]
            self.facts.stale = self.facts.stale or ((changed[0], seen.place) if changed else None)
        iterator = plain(loader)
        iterator.__dict__["_caught"] = seen
        return iterator

    def _len(self, plain: Any, loader: Any) -> int:
        """Return the number of batches; to Lightning the number of cut batches, so it evaluates."""
        length, size = int(plain(loader)), getattr(loader, "batch_size", None) or 1
        caller = sys._getframe(2).f_globals.get("__name__", "")
        if caller.partition(".")[0] not in LIGHTNING:
            return length
        loader.__dict__["_counted"] = True
        return min(length, max(LEAST_BATCHES, min(MOST_BATCHES, -(-ENOUGH_EXAMPLES // size))))

    def _next(self, plain: Any, iterator: Any) -> Any:
        seen = iterator.__dict__.get("_caught")
        if seen is None:
            return plain(iterator)
        unsure = self.gathered or any(counts[-1] > counts[-2] for counts in self.kept.values())
        few = self.seen is not None and seen.kind and "_counted" not in seen.loader.__dict__
        most = self.facts.summed[0] if few else MOST_BATCHES
        if seen.batches >= most or (seen.enough and not unsure):
            raise StopIteration
        self._end_if_idle()
        self._count_pending()
        batch = plain(iterator)
        seen.batches += 1
        seen.examples += batch_size([tensor for _, tensor in leaves(batch)])
        if seen.enough and not unsure and seen.kind == "eval":
            batch = _as_last(batch, seen)
        few = min(len(self.steps), len(self.judged)) < MOST_GIVEN
        self.current, self.tape, self.given = seen, None, _detached(batch) if few else None
        self.evaluations.next_batch(batch)
        return batch

    def _call(self, plain: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        torch = sys.modules["torch"]
        if self.facts.steps < LEAST_BATCHES and not {*MASKS}.isdisjoint(kwargs):
            rows = [tensor for _, tensor in leaves(self.given)]
            self._note_argument(inverted_mask(kwargs, rows))
        if self.depth or torch.utils.data.get_worker_info() is not None:
            return plain(module, *args, **kwargs)
        if not any(True for _ in module.parameters()):
            return self._call_beside(plain, module, *args, **kwargs)
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            out = self._inside(plain, module, args, kwargs)
            self._evaluated(ForwardPass(module, args, kwargs, out, user_place()))
            return out
        self.called = module
        if module.training:
            self._count_pending()
        if id(module) not in self.first:
            inner = unwrapped(module)
            self.first[id(module)] = _copy_of(inner), inner
            self.parts[id(module)] = list(inner.parameters())
        if self.tape is None and self.seen is None and len(self.steps) < MOST_BATCHES:
            self.tape, self.modules = Tape(), []
            if not self.facts.graphs and (self.last == "step" or not module.training):
                self._count_graphs()
        tape = self.tape
        if tape is None:
            return self._inside(plain, module, args, kwargs)
        call = ModelCall(module, args, kwargs, len(tape.calls), place=user_place())
        for _, tensor in leaves([args, kwargs]):
            tape.node(tensor)
        state = None if self.steps else torch.get_rng_state()
        call.out = self._inside(plain, module, args, kwargs)
        if state is not None:
            self.ranks.facts.drawn |= not torch.equal(state, torch.get_rng_state())
        if any(getattr(tensor, "requires_grad", False) for _, tensor in leaves([args, kwargs])):
            self.heads.setdefault(id(module), (module, call.place))
        call.end, call.outs = len(tape.calls), tape.outputs(call.out)
        for _, node in call.outs:
            getattr(tape.tensors[node].grad_fn, "metadata", {})[MARK] = True
        tape.models.append(call)
        return call.out

    def _count_pending(self) -> None:
        """Count passes in eval mode with gradients on as evaluations: no step came after them."""
        pending, self.pending = self.pending, []
        for made in pending:
            if not made.used or self.current is None or self.current.kind != "train":
                self._evaluated(made)

    def _count_graphs(self) -> None:
        """Count the graphs of earlier batches behind what lines of the user's loop add to."""
        frame: Any = sys._getframe()
        while (frame := frame.f_back) is not None and not self.facts.graphs:
            file = frame.f_code.co_filename
            with contextlib.suppress(OSError):
                lines, start = inspect.getsourcelines(frame) if is_own_code(file) else ([], 0)
            for number, line in enumerate(lines, max(start, 1)):
                for name in itertools.chain(*KEEPS.findall(line)):
                    with contextlib.suppress(Exception):  # it has no value yet
                        graphs, size = graphs_behind(eval(name, frame.f_globals, frame.f_locals))
                        place = f"{Path(file).absolute()}:{number}"
                        self.kept[place] = [*self.kept.get(place, [0])[-3:], graphs]
                        if self.kept[place] == sorted({*self.kept[place]}) and graphs > 3:
                            self.facts.graphs = graphs, name, size / graphs, place

    def _call_beside(self, plain: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        """A module without parameters, such as a loss: its calls of torch belong to the tape."""
        start = len(self.tape.calls) if self.tape is not None else 0
        out = plain(module, *args, **kwargs)
        if self.tape is not None:
            made = self.tape.now.get(id(out), -1)
            self.modules.append(
                ModelCall(module, args, kwargs, start, place=user_place(), made=made)
            )
        return out

    def _is_average(self, trained: Any, module: Any) -> bool:
        """Return whether a module copies the trained one; note its share of the way."""
        first, live = self.first[id(trained)]
        kinds = [[p.shape for p in m.parameters()] for m in (live, module)]
        if first is None or kinds[0] != kinds[1]:
            return False
        if self.facts.average is None:
            gone = went = apart = 0.0
            for start, now, kept in zip(
                *(m.parameters() for m in (first, live, module)), strict=True
            ):
                base = start.detach().double()
                way, theirs = (p.detach().to(base) - base for p in (now, kept))
                gone += float((way * theirs).sum())
                went += float((way * way).sum())
                apart += float((theirs * theirs).sum())
            if gone < 0.5 * math.sqrt(went * apart):  # it went elsewhere: another of the same form
                return False
            self.facts.average = self.facts.steps, gone / went if went else 1.0
        return True

    def _run_steps(self) -> int:
        """Steps of the whole run, where the schedule tells; 0 where it does not."""
        counts = getattr(self.schedule, "total_steps", None) or getattr(self.schedule, "T_max", 0)
        by_epoch = self.facts.scheduled in ("epoch", "evaluation")
        return int(counts or 0) * (self._epoch_steps() if by_epoch else 1)

    def _inside(self, plain: Any, module: Any, args: Any, kwargs: Any) -> Any:
        self.depth += 1
        try:
            out = plain(module, *args, **kwargs)
        finally:
            self.depth -= 1
        if self.trains and not module.training and sys.modules["torch"].is_grad_enabled():
            self.pending.append(ForwardPass(module, args, kwargs, out, user_place()))
        return out

    def _evaluated(self, made: ForwardPass) -> None:
        """Note a forward pass without a step: of an evaluation, where it is of the model."""
        facts, seen = self.facts, self.current
        trained = self.steps[0].call.module if self.steps else None
        beside = seen is not None and seen.kind != "train"
        ours = made.module is trained or (
            trained is not None and beside and self._is_average(trained, made.module)
        )
        if seen is not None and beside:
            seen.late |= not seen.kind and self.seen is not None
            if seen.kind != "eval":  # loaders stand in the order of their first use for this
                seen.kind = "eval"
                self.loaders[id(seen.loader)] = self.loaders.pop(id(seen.loader))
        out, made.out = made.out, None
        if not ours:
            if not beside and trained is not None and made.trains and self._is_teacher(made.module):
                facts.teacher = facts.teacher or (made.trains, made.place)
            self.evaluations.again += 2 * (seen is not None and seen.kind == "eval")
            self.evaluations.batch = None
            return
        if beside:
            self._note_loader(seen)
        facts.evaluations += 1
        self.ended_passes += beside or self._pass_of(seen) == self.last_pass
        facts.places.setdefault("evaluation", made.place)
        self.watch.evaluated(made, *self.first[id(trained)])
        if beside:
            if self.seen is None or facts.evaluations == 1:  # dropout may stay on at the end
                facts.evaluated_in_train_mode = facts.evaluated_in_train_mode or made.trains
            if len(self.judged) < MOST_BATCHES and self._keeps(made.args, made.kwargs):
                inputs = _detached(entering(made.args, made.kwargs))
                self.judged.append((self.given, inputs, None))
        self._end_if_idle()
        self.evaluations.add(seen, out)

    def _note_start(self, seen: SeenLoader) -> None:
        """Note the epoch of the sampler, and the generator's state, at the start of a pass."""
        epoch, state = seen.start
        self.facts.sampler_epochs += [] if epoch is None else [epoch]
        if state is not None and any(state.equal(before) for before in seen.states):
            self.facts.repeated = self.reseeded or seen.place
        seen.states += [] if state is None else [state]

    def _note_loader(self, seen: Any) -> None:
        """Note what the loader of an evaluation leaves out, and whether it was trained on."""
        found = extent(seen.loader)
        if found and seen.loader.drop_last and found[3] >= found[0] and found[3] > found[0] > 0:
            self.facts.dropped = found[3] - found[0], found[3], seen.place
        if self.current is not None and self.folds.was_trained(seen.loader):
            self.facts.folded = self.facts.folded or seen.place

    def _loss(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        name, facts = function.__name__, self.facts
        if name in LOSSES:
            self.evaluations.loss(name, kwargs, result)
        if facts.argument is None and facts.steps < LEAST_BATCHES:
            self._note_argument(wrong_argument(name, args, kwargs))

    def _note_argument(self, sentence: str) -> None:
        if sentence:
            self.facts.argument = self.facts.argument or (sentence, user_place())

    def _is_teacher(self, module: Any) -> bool:
        """Return whether no optimizer has a parameter of a module, and it copies no trained one."""
        if self.optimizer is None or module.training is False:
            return False
        held = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        trained = [p.shape for p in self.steps[0].call.module.parameters()]
        own = list(module.parameters())
        return not any(id(p) in held for p in own) and [p.shape for p in own] != trained

    def _print(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        if self.evaluations.passes:
            self.evaluations.text(result or " ".join(map(str, args)), user_place())
        return result

    def _backward(self, plain: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        tape, self.tape = self.tape, None
        train = self.current is None or self.current.kind == "train"
        if self.pending and (not train or self.pending[-1].used):  # of inputs, or in an evaluation
            return plain(tensors, *args, **kwargs)
        if self.current is not None:
            self.current.kind = "train"
        reported = self.evaluations.close(self.loader_of("train"))
        if self.seen is not None:
            return plain(tensors, *args, **kwargs)
        loss = tensors if hasattr(tensors, "backward") else next(iter(tensors), None)
        if tape is not None:
            self._catch(tape, loss)
        facts, place = self.facts, user_place()
        facts.reported += reported
        facts.places.setdefault("backward", place)
        for key, optimizer in self.stepped.items():
            self.stale[key] = self.stale.get(key) is not False and _has_gradients(optimizer)
        moved, self.version = self.version, _version(self.optimizer)
        if self.last == "backward" and moved == self.version is not None:
            facts.lost += not _has_gradients(self.optimizer)
        if self.last != "backward" or not _has_gradients(self.optimizer):
            self.gathered = {}
        self.last = "backward"
        if tape is not None and self.current is not None and args[:1] in ((), (None,)):
            self.gathered[self._pass_of(self.current), self.current.batches] = mean_factor(
                tape, loss
            )
        return plain(tensors, *args, **kwargs)

    def _catch(self, tape: Tape, loss: Any) -> None:
        try:
            step = step_of_tape(tape, loss, self.modules)
        except Exception as error:  # noqa: BLE001 - the script goes on, and it is said
            said = f"the step could not be read ({type(error).__name__}: {error})"
            self.why = self.why or (str(error) if isinstance(error, CaughtError) else said)
            return
        self.ranks.step(step.call.module)
        module = self.steps[0].call.module if self.steps else step.call.module
        if not self.steps:
            self.facts.idle_flags = idle_flags(module)
        elif step.call.module is not module or not self._keeps(step.inputs, step.targets):
            return
        inputs, targets = (_detached(part) for part in (step.inputs, step.targets))
        self.facts.places.setdefault("model", step.call.place)
        losses = [m.place for m in self.modules if m.module is step.loss]
        self.facts.places.setdefault("loss", losses[-1] if losses else tape.loss or user_place())
        call = replace(step.call, out=None, args=(), kwargs={})
        given, self.given = self.given, None
        if not self.steps:
            with contextlib.suppress(RuntimeError, TypeError):  # sparse tensors, for example
                self.evaluations.target_path = _path_of(main_tensor(targets), given)
        at = self._pass_of(self.current)
        made = replace(step, inputs=inputs, targets=targets, call=call, given=given, at=at)
        self.steps.append(made)

    @staticmethod
    def _pass_of(seen: SeenLoader | None) -> tuple[int, int]:
        return (0, 0) if seen is None else (id(seen), seen.iterations)

    def _rests(self, optimizer: Any) -> bool:
        """Return whether a step belongs to a training that was seen; a new one begins with it."""
        known = self.trainings[-1].stepped if self.trainings and self.seen is None else {}
        if id(optimizer) in known and optimizer is not self.optimizer:  # both go on: it is not new
            self.steps, self.trained, self.stepped = [], [], known | self.stepped
            self.seen = Patience(IDLE_S, IDLE_WALL_S)
        model = self.steps[0].call.module if self.steps else None
        parameters = [] if model is None else model.parameters()
        trained = [(id(p), p.requires_grad) for p in parameters]
        self.trained = self.trained or trained
        own, facts = optimizer is self.optimizer, self.facts
        new = trained != self.trained if own else id(optimizer) not in self.stepped
        now, another = self._pass_of(self.current), self.called is not model
        later = now != self.last_pass and (another or now[0] != self.last_pass[0])
        ended = facts.steps and later and (facts.epochs > 1 or not self.ended_passes)
        if new and ended and self.seen is None:
            self._go_on()
        if new and self.seen is not None:
            self._begin()
        return self.seen is not None

    def _begin(self) -> None:
        """Examine another training from its first step on."""
        last, module, inner = self.trainings[-1], self.called, unwrapped(self.called)
        last.loaders = {key: copy.copy(seen) for key, seen in self.loaders.items()}
        for seen in self.loaders.values():
            seen.iterations, seen.kind = (1, "train") if seen is self.current else (0, "")
        new = vars(Caught(self.patience, self.on_end))
        vars(self).update({name: new[name] for name in new if name not in SHARED})
        self.facts.loaded, places = last.facts.loaded, last.facts.places
        self.facts.places = {name: places.get(name, "") for name in ("schedule", "loaded")}
        self.states.taken, self.states.unread = 0, {}
        before = [t for t in self.trainings if t.steps and t.steps[0].call.module is module]
        if before:
            self.first = self.first | {id(module): (_copy_of(inner), inner)}
            self.parts = self.parts | {id(module): list(inner.parameters())}
            self.loaded, trained = True, before[-1].loader_of("train")
            if trained and self.current and trained.loader is self.current.loader:
                self.watch = before[-1].watch  # norms that were frozen keep to their own data

    def _keeps(self, *parts: Any) -> bool:
        """Whether these tensors may be kept beside those that are."""
        size = sum(t.numel() * t.element_size() for _, t in leaves(list(parts)))
        fits = bool(self.kept_bytes + size <= MOST_KEPT)
        self.kept_bytes += size if fits else 0
        return fits

    def _note_modes(self, module: Any) -> None:
        modes, facts = modes_of(module), self.facts
        self.trains |= bool(module.training)
        if not self.modes:
            self.modes, facts.modes = modes, len(modes)
            facts.asleep = not module.training and bool(modes) and not any(modes.values())
        facts.after_evaluation += bool(facts.evaluations and facts.steps)
        if facts.evaluations or not module.training:  # a part alone may be frozen at any step
            gone = tuple(n for n, trains in self.modes.items() if trains and not modes.get(n, True))
            facts.unmoded = facts.unmoded or gone

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.folds.before_step(self.called, _version(optimizer))
        if self.ended or self._rests(optimizer):
            return
        if len(self.gathered) > self.facts.summed[0] and not BY_HAND.search(script_text()):
            self.facts.summed = len(self.gathered), sum(self.gathered.values())
        self.gathered = {}
        self.facts.places.setdefault("optimizer", user_place())
        self.watch.before_step(optimizer)
        given = (p.grad is not None for group in optimizer.param_groups for p in group["params"])
        self.facts.lost += self.last == "backward" and not any(given)
        if self.stale.get(id(optimizer)):
            self.uncleared[id(optimizer)] = 1 + self.uncleared.get(id(optimizer), 0)
            self.facts.kept = max(self.uncleared.values())
        if self.optimizer is None:
            self.optimizer = optimizer
            mine = [s for s in self.schedules if _optimizer_of(s) is optimizer]
            self.schedule = mine[-1] if mine else None
            loaded, rate = self.loaded_rates.get(id(optimizer)), optimizer.param_groups[0]["lr"]
            if self.schedule is None and loaded and float(rate) == loaded[1]:
                self.facts.loaded_rate = loaded
            kept = {id(p): p for group in optimizer.param_groups for p in group["params"]}
            self.copied = _copied_or_none((optimizer, self.schedule), kept)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.current is not None:
            self.folds.after_step(self.called, self.current.loader, _version(optimizer))
        if self.ended or self.seen is not None:
            return
        self.watch.after_step()
        if self.pending and self.current is not None:
            self.current.kind = "train"
        self.pending.clear()
        self.stepped[id(optimizer)] = optimizer
        self.stale.pop(id(optimizer), None)
        self.facts.optimizers = len(self.stepped)
        if optimizer is not self.optimizer:
            return
        facts, self.last = self.facts, "step"
        if self.steps:
            self._note_modes(self.steps[0].call.module)
        if self.current is not None and self._pass_of(self.current) != self.last_pass:
            self._note_start(self.current)
        self.last_pass = self._pass_of(self.current)
        facts.steps += 1
        facts.rates.append(float(optimizer.param_groups[0]["lr"]))
        trained = [seen for seen in self.loaders.values() if seen.kind == "train"]
        facts.epochs = max((seen.iterations for seen in trained), default=0)
        self._follow_schedule()
        seen = facts.evaluations or facts.epochs > MOST_EPOCHS  # a teacher is not evaluated
        reached = facts.epochs > 1 and seen if trained else (
            facts.after_evaluation > 1 and facts.steps >= WITHOUT_LOADER
        )  # fmt: skip
        ranks = os.environ.get("WORLD_SIZE", "1") != "1"  # they wait for each other's batches
        if self.patience.over or (reached and (ranks or self.once)):
            self.end()
        elif reached:
            self._go_on()

    def _follow_schedule(self) -> None:
        """See where the schedule's counter moves: between steps, epochs or evaluations."""
        facts = self.facts
        if self.schedule is None:
            if len(set(facts.rates)) > 1:
                facts.scheduled = "by hand"
            return
        now = (int(self.schedule.last_epoch), facts.epochs, facts.evaluations)
        before, self.counter = self.counter, now
        if before is None or now[0] == before[0]:
            return
        if now[1:] == before[1:]:
            facts.scheduled = "step"
        elif not facts.scheduled:
            facts.scheduled = "epoch" if now[1] != before[1] else "evaluation"

    def _scheduler(self, plain: Any, schedule: Any, *args: Any, **kwargs: Any) -> None:
        plain(schedule, *args, **kwargs)
        self.schedules.append(schedule)
        self.facts.places["schedule"] = user_place()

    def _made_loader(self, plain: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        plain(loader, *args, **kwargs)
        loader.__dict__["_caught_at"] = user_place()

    def _load(self, plain: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.steps or unwrapped(module) is not unwrapped(self.steps[0].call.module):
            self.loaded = True  # else it is put back
        result, given = plain(module, *args, **kwargs), kwargs.get("state_dict", args and args[0])
        self.filled |= {id(part) for part in module.modules()}
        own = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
        missing = [name for name in getattr(result, "missing_keys", ()) if name in own]
        tails = {
            tail: given[name] for name in getattr(result, "unexpected_keys", ())
            for tail in _tails(name) if hasattr(given[name], "shape")
        }  # fmt: skip
        moved = sum(
            any(tail in tails and tails[tail].shape == own[name].shape for tail in _tails(name))
            for name in missing
        )
        found = (len(own) - len(missing), len(own), moved)
        before = self.facts.loaded
        if own and (before is None or found[0] * before[1] < before[0] * found[1]):
            self.facts.loaded = found
            self.facts.places["loaded"] = user_place()
        return result

    def _state(self, plain: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        state = plain(module, *args, **kwargs)
        outer = not args and "destination" not in kwargs and self.facts.steps and self.steps
        if (
            outer
            and is_own_code(sys._getframe(2).f_code.co_filename)
            and unwrapped(module) is unwrapped(self.steps[0].call.module)
        ):
            self.states.take(module, state, kwargs.get("prefix", ""), user_place())
        return state

    def _plateau(self, plain: Any, schedule: Any, metrics: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            value = float(metrics)
        except (TypeError, ValueError):
            value = math.nan
        passes = self.evaluations.passes
        rates = [rate for p in passes for _, rate in formulas_of("accuracy", p, None)]
        if rates and self.facts.plateau is None:
            is_accuracy = any(Number("", value).equals(rate) for rate in rates)
            self.facts.plateau = schedule.mode, value, is_accuracy
            self.facts.places["plateau"] = user_place()
        return plain(schedule, metrics, *args, **kwargs)

    def _clip(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        if self.seen is None and self.last in ("backward", "step"):
            before, after = self.facts.clipped
            late = self.last == "step"
            self.facts.clipped = (before + (not late), after + late)
            self.facts.places.setdefault("clip late" if late else "clip", user_place())
            if args and not late:
                self.clip = lambda parameters: plain(parameters, *args[1:], **kwargs)
        return plain(*args, **kwargs)

    def entered(self) -> tuple[list[Any], list[Any]]:
        """(batch of the loader, inputs, targets) of steps, and of the evaluation."""
        steps = [step for step in self.steps if step.at == self.steps[0].at]
        return [(s.given, s.inputs, s.targets) for s in steps], self.judged

    def loader_of(self, kind: str) -> SeenLoader | None:
        """The first loader of a kind."""
        return next((seen for seen in self.loaders.values() if seen.kind == kind), None)

    def pretrained(self) -> Any:
        """The model of the first step, which may declare how its inputs are normalised."""
        return self.steps[0].call.module if self.steps else None

    def training(self) -> Training:
        """A new Training as the script's was before its first step; UsersError without one."""
        said = "The training could not be caught"
        if not self.steps or self.optimizer is None:
            raise UsersError(f"{said}: {self.why or 'no step of an optimizer was reached'}.")
        step, train, evaluated = self.steps[0], self.loader_of("train"), self.loader_of("eval")
        first, _ = self.first[id(step.call.module)]
        if first is None or self.copied is None:
            raise UsersError(f"{said}: model or optimizer cannot be copied.")
        model = deep_copied(first)
        parts = self.parts[id(step.call.module)]  # of then: a head may be another one by now
        memo = {id(a): b for a, b in zip(parts, model.parameters(), strict=True)}
        optimizer, schedule = deep_copied(self.copied, memo)
        if self.facts.scheduled == "by hand":  # a warm-up starts at 0
            first = optimizer.param_groups[0]["lr"]
            for group in optimizer.param_groups:
                group["lr"] = max(self.facts.rates) * (group["lr"] / first if first else 1.0)
        loss = deep_copied(step.loss) if hasattr(step.loss, "parameters") else step.loss
        batches = [(s.inputs, s.targets) for s in self.steps]
        if self.facts.scheduled in ("epoch", "evaluation") and schedule is not None:
            schedule = ByEpoch(schedule, self._epoch_steps())
        return Training(
            model=output_model(model, step),
            loader=CaughtBatches(batches, train and train.loader),
            loss=loss,
            optimizer=optimizer,
            schedule=schedule,
            eval_loader=evaluated and evaluated.again(),
            loop=self.facts,
            clip=self.clip,
        )

    def _epoch_steps(self) -> int:
        train = self.loader_of("train")
        try:
            return max(1, len(train.loader)) if train else 1
        except TypeError:
            return 1


class ByEpoch:
    """A schedule that the script steps once an epoch, where a check steps it after each step."""

    def __init__(self, schedule: Any, steps: int) -> None:
        self.schedule, self.steps, self.number = schedule, steps, 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "schedule" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.schedule, name)

    def step(self) -> None:
        """A step of the optimizer was made."""
        self.number += 1
        if not self.number % self.steps and "Plateau" not in type(self.schedule).__name__:
            self.schedule.step()


def _optimizer_of(schedule: Any) -> Any:
    """The optimizer of torch that a schedule moves, out of accelerate's wrapper."""
    own = getattr(schedule, "optimizer", None)
    return getattr(own, "optimizer", own)


def _tails(name: str) -> tuple[str, ...]:
    """A name, and without its first part: what `module.` or another prefix leaves of it."""
    return (name, name.split(".", 1)[1]) if "." in name else (name,)


def _as_last(batch: Any, seen: SeenLoader) -> Any:
    """The batch, cut to the size of the loader's last batch, which is not reached."""
    found, parts = extent(seen.loader), [tensor for _, tensor in leaves(batch)]
    if found is None or type(batch) not in (tuple, list, dict) or found[1] <= seen.batches:
        return batch
    rest, size = found[0] % found[2], found[2]
    whole = all(tensor.shape[:1] == (size,) for tensor in parts)
    return cut_batch(batch, size, slice(rest)) if rest and whole else batch


def _path_of(wanted: Any, batch: Any) -> tuple[Any, ...] | None:
    """The only position in a batch of a tensor like this one; None if there are several."""
    if wanted is None:
        return None
    parts = [(path, part) for path, part in leaves(batch) if part.shape == wanted.shape]
    found = [path for path, part in parts if bool((part.to(wanted) == wanted).all())]
    return found[0] if len(found) == 1 else None


def _version(optimizer: Any) -> int | None:
    """How often the weights of an optimizer were changed in place; None without one."""
    if optimizer is None:
        return None
    return sum(int(p._version) for group in optimizer.param_groups for p in group["params"])


def _has_gradients(optimizer: Any) -> bool:
    return optimizer is not None and any(
        p.grad is not None and bool(p.grad.any())
        for group in optimizer.param_groups
        for p in group["params"]
    )


def _detached(value: Any) -> Any:
    """A copy without a graph, as the script may reuse the memory."""
    from pipeline_profiler.checks.batches import map_nested

    if hasattr(value, "detach"):
        return value.detach().clone()
    return map_nested(value, _detached)


def _copy_of(module: Any) -> Any:
    """The module before its first step, without gradients; None where it cannot be copied."""
    made = _copied_or_none(module, {})
    if made is not None:
        made.zero_grad(set_to_none=True)
    return made


def _copied_or_none(value: Any, kept: dict[int, Any]) -> Any:
    try:
        return deep_copied(value, dict(kept))
    except Exception:  # noqa: BLE001 - not everything can be copied
        return None

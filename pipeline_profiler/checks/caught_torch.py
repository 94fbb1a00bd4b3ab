"""Hooks into torch that record the trainings of an unmodified script.

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

from pipeline_profiler.checks import batches, caught_tape, ranks, reported, wrong_arguments
from pipeline_profiler.checks.caught_tape import LOSSES, CaughtStep, ModelCall, Tape, leaves
from pipeline_profiler.checks.folds import Folds
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loop_facts import LoopFacts, idle_flags, modes_of
from pipeline_profiler.checks.state_watch import ForwardPass, LoopWatch, unwrapped
from pipeline_profiler.checks.user_code import Patience, UsersError, short_place, user_place
from pipeline_profiler.checks.user_training import (
    ENOUGH_EXAMPLES,
    MOST_BATCHES,
    Training,
    deep_copied,
)
from pipeline_profiler.profiling.measure.watchdog import is_own_code

LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")
MIN_BATCHES = 4
MAX_EPOCHS = 5  # of a training without an evaluation
STEPS_WITHOUT_LOADER = 12  # of a loop that draws its batches itself, until it was seen
IDLE_S, IDLE_WALL_S = 3.0, 30.0  # from the end of a training that was seen to the next training
OUTSIDE = ("socket.connect", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
ADDS = re.compile(  # what a line appends to or adds to
    r"([\w.]+)(?:\[[^]]*\])?(?:\.(?:append|extend|update|add)\(| *\+= )|([\w.]+) = \2 \+ "
)
MAX_HELD_BYTES, MAX_RAW_BATCHES = 2 * 10**9, 4

NO_SEED = "Your script sets no seed with {}: two runs of it differ."
SEEDED_LATE = "Your script draws random numbers before it sets a seed (at {}): two runs differ."


@dataclass
class SeenLoader:
    """A DataLoader that the script iterates; kind: 'train', 'eval', or '' where it is unknown."""

    loader: Any
    place: str
    generator: Any = None  # its state before the first batch
    kind: str = ""
    iterations: int = 0
    batches: int = 0  # of this iteration
    examples: int = 0
    epoch: int | None = None  # of the sampler, at the start of this iteration
    random: Any = None  # state of torch's generator then, if it decides the order
    states: list[Any] = field(default_factory=list)  # the values of `random` in training
    attributes: dict[str, Any] | None = None  # of the dataset, when persistent workers started
    late: bool = False  # first evaluated after the training was seen

    def begin(self) -> str:
        """Begin an iteration; return the attribute that persistent workers do not see change."""
        loader, sampler = self.loader, self.loader.sampler
        self.iterations, self.batches, self.examples = self.iterations + 1, 0, 0
        epoch = getattr(sampler, "epoch", None)
        self.epoch = epoch if isinstance(epoch, int) and hasattr(sampler, "set_epoch") else None
        drawn = isinstance(sampler, torch.utils.data.RandomSampler) and (
            loader.generator is None and sampler.generator is None
        )
        self.random = torch.get_rng_state() if drawn else None
        if not getattr(loader, "persistent_workers", False):
            return ""
        plain = bool | int | float | str
        values = {name: v for name, v in vars(loader.dataset).items() if isinstance(v, plain)}
        first = self.attributes = self.attributes or values
        return next((name for name, value in values.items() if first.get(name) != value), "")

    @property
    def enough(self) -> bool:
        """Whether the loader ends here."""
        few = self.batches < MIN_BATCHES or self.examples < ENOUGH_EXAMPLES
        return self.batches >= MOST_BATCHES or not few

    def again(self) -> Any:
        """Return the loader as it was before its first batch, with the script's own dataset."""
        if self.generator is not None:
            self.loader.generator.set_state(self.generator)
        loader = copy.copy(self.loader)
        loader.__dict__["_iterator"] = None
        return loader


@dataclass
class SteppedOptimizer:
    """An optimizer that made a step, and its gradients at each backward() since that step."""

    optimizer: Any
    begins_old: bool | None = None  # each backward() began with gradients
    uncleared: int = 0  # steps that began with old gradients


@dataclass
class Recorded:
    """A training of the script: its parts, its first steps, and facts of its loop."""

    facts: LoopFacts = field(default_factory=LoopFacts)
    loaders: dict[int, SeenLoader] = field(default_factory=dict)
    steps: list[CaughtStep] = field(default_factory=list)
    judged: list[Any] = field(default_factory=list)  # what entered the model in an evaluation
    why: str = ""  # a step could not be read
    loaded: bool = False  # a state was loaded into some module before its end
    optimizer: Any = None
    schedule: Any = None
    clip: Callable[[Any], Any] | None = None  # of gradients, with the script's own limit
    start: Any = None  # copies of optimizer and schedule before the first step
    first: dict[int, Any] = field(default_factory=dict)  # module -> _start_of(module)
    stepped: dict[int, SteppedOptimizer] = field(default_factory=dict)
    tape: Tape | None = None
    modules: list[ModelCall] = field(default_factory=list)  # called beside the model
    heads: dict[int, Any] = field(default_factory=dict)  # called with outputs of a model; line
    event: str = ""  # the last one: 'backward' or 'step'
    last_pass: tuple[int, int] = (0, 0)  # over a loader, at the optimizer's last step
    version: int | None = None  # of the weights at the last backward()
    counters: list[tuple[int, int, int]] = field(default_factory=list)  # see note_schedule()
    modes: dict[str, bool] = field(default_factory=dict)  # of modules, in the first training step
    trains: bool = False  # a step was made in train mode
    trained: list[Any] = field(default_factory=list)  # (parameter, whether it is trained)
    ended_passes: int = 0  # evaluations that are no part of a pass in training
    pending: list[ForwardPass] = field(default_factory=list)  # in eval mode, before a step
    graphs: dict[str, list[int]] = field(default_factory=dict)  # line -> numbers of held graphs
    factors: dict[Any, float] = field(default_factory=dict)  # of batches since the last step
    watch: LoopWatch = field(default_factory=LoopWatch)
    idle: Patience | None = None  # with what follows the training, once it was seen
    rank: tuple[bool, ...] = ()  # the last training of the highest rank is judged

    @property
    def model(self) -> Any:
        """The module that the first step calls, or None."""
        return self.steps[0].call.module if self.steps else None

    @property
    def epoch_steps(self) -> int:
        """Batches of an epoch; 1 where they are unknown."""
        train = self.loader_of("train")
        with contextlib.suppress(TypeError):
            return max(1, len(train.loader)) if train else 1
        return 1

    def loader_of(self, kind: str) -> SeenLoader | None:
        """Return the first loader of a kind."""
        return next((seen for seen in self.loaders.values() if seen.kind == kind), None)

    def entered(self) -> tuple[list[Any], list[Any]]:
        """Return (raw batch, inputs, targets) of steps, and of the evaluation."""
        steps = [step for step in self.steps if step.at == self.steps[0].at]
        return [(s.given, s.inputs, s.targets) for s in steps], self.judged

    def training(self) -> Training:
        """Return a new Training as before the first step; UsersError without one."""
        text = "The training could not be caught"
        if not self.steps or self.optimizer is None:
            raise UsersError(f"{text}: {self.why or 'no step of an optimizer was reached'}.")
        step, train, evaluated = self.steps[0], self.loader_of("train"), self.loader_of("eval")
        first, _, parameters = self.first[id(self.model)]
        if first is None or self.start is None:
            raise UsersError(f"{text}: model or optimizer cannot be copied.")
        model = deep_copied(first)
        # the parameters of then: a head may be another one by now
        memo = {id(a): b for a, b in zip(parameters, model.parameters(), strict=True)}
        optimizer, schedule = deep_copied(self.start, memo)
        loader = batches.FewBatches((s.inputs, s.targets) for s in self.steps)
        for name in ("sampler", "batch_size"):  # what a check asks of the script's loader
            vars(loader)[name] = getattr(train and train.loader, name, None)
        if self.facts.scheduled == "by hand":  # a warm-up starts at 0
            rate = optimizer.param_groups[0]["lr"]
            for group in optimizer.param_groups:
                group["lr"] = max(self.facts.rates) * (group["lr"] / rate if rate else 1.0)
        if self.facts.scheduled in ("epoch", "evaluation") and schedule is not None:
            schedule = ByEpoch(schedule, self.epoch_steps)
        return Training(
            model=caught_tape.output_model(model, step),
            loader=loader,
            loss=deep_copied(step.loss) if hasattr(step.loss, "parameters") else step.loss,
            optimizer=optimizer,
            schedule=schedule,
            eval_loader=evaluated and evaluated.again(),
            loop=self.facts,
            clip=self.clip,
        )

    def unheld(self, filled: set[int]) -> tuple[str, str] | None:
        """Return (type, line) of a module behind the model whose parameters no optimizer holds."""
        held = {id(p) for row in self.stepped.values() for p in _parameters(row.optimizer)}
        for module, place in self.heads.values() if held else ():
            own = [p for p in module.parameters() if p.requires_grad]
            reached = own and all(p.grad is not None and bool(p.grad.any()) for p in own)
            if reached and id(module) not in filled and not held & set(map(id, own)):
                return type(module).__name__, place
        return None

    def is_teacher(self, module: Any) -> bool:
        """Return whether no optimizer has a parameter of a module, and it copies no trained one."""
        held = set(map(id, _parameters(self.optimizer)))
        own, trained = ([p.shape for p in m.parameters()] for m in (module, self.model))
        apart = held and held.isdisjoint(map(id, module.parameters()))
        return bool(apart and module.training and own != trained)

    def is_average(self, module: Any) -> bool:
        """Return whether a module copies the trained model; note its share of the way."""
        first, live, _ = self.first[id(self.model)]
        shapes = [[p.shape for p in m.parameters()] for m in (live, module)]
        if first is None or shapes[0] != shapes[1]:
            return False
        if self.facts.average is None:
            products = torch.zeros(3, dtype=torch.double)
            for parts in zip(*(m.parameters() for m in (first, live, module)), strict=True):
                start, now, other = (p.detach().double().cpu() for p in parts)
                way, theirs = (now - start).flatten(), (other - start).flatten()
                products += torch.stack([way @ theirs, way @ way, theirs @ theirs])
            follows, length, length_of_other = products.tolist()
            if follows < 0.5 * math.sqrt(length * length_of_other):  # another model of its form
                return False
            self.facts.average = self.facts.steps, follows / length if length else 1.0
        return True

    def note_modes(self) -> None:
        """Note which modules train in a step."""
        modes, facts = modes_of(self.model), self.facts
        self.trains |= bool(self.model.training)
        if not self.modes:
            self.modes, facts.modes = modes, len(modes)
            facts.asleep = not self.model.training and bool(modes) and not any(modes.values())
        facts.after_evaluation += bool(facts.evaluations and facts.steps)
        if facts.evaluations or not self.model.training:  # a part may be frozen at any step
            left = tuple(n for n, trains in self.modes.items() if trains and not modes.get(n, True))
            facts.unmoded = facts.unmoded or left

    def note_schedule(self) -> None:
        """Note where the schedule's counter moves, and the steps of the whole run by it."""
        facts, schedule = self.facts, self.schedule
        units = [
            "step" if a[1:] == b[1:] else "epoch" if a[1] != b[1] else "evaluation"
            for a, b in itertools.pairwise(self.counters)
            if a[0] != b[0]
        ]
        if schedule is None and len(set(facts.rates)) > 1:
            units = ["by hand"]
        facts.scheduled = "step" if "step" in units else next(iter(units), "")
        count = getattr(schedule, "total_steps", 0) or getattr(schedule, "T_max", 0)
        by_epoch = facts.scheduled in ("epoch", "evaluation")
        facts.run_steps = int(count or 0) * (self.epoch_steps if by_epoch else 1)


class Hooks:
    """Functions of torch that are replaced by handlers, until `ended`."""

    ended: bool
    undo: list[Callable[[], Any]]

    def wrap(self, owner: Any, name: str, handler: Callable[..., Any]) -> None:
        """Replace a function by `handler(plain, ...)`."""
        plain = getattr(owner, name)

        @functools.wraps(plain)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self.ended:
                return plain(*args, **kwargs)
            return handler(plain, *args, **kwargs)

        setattr(owner, name, wrapped)
        self.undo.append(lambda: setattr(owner, name, plain))

    def unhook(self) -> None:
        """Take the hooks out."""
        self.ended = True
        while self.undo:
            self.undo.pop()()


@dataclass
class Caught(Hooks):
    """Records the trainings of a script; `on_end` ends the run, with the one to judge as record."""

    patience: Patience
    on_end: Callable[[Caught], None]
    text: Callable[[], str] = lambda: ranks.script_text()  # of the program
    once: bool = False  # no other training follows
    record: Recorded = field(default_factory=Recorded)
    trainings: list[Recorded] = field(default_factory=list)  # that were seen, or ended
    ended: bool = False
    undo: list[Callable[[], Any]] = field(default_factory=list)
    current: SeenLoader | None = None
    raw_batch: Any = None  # the last of a loader, while no model took it
    called: Any = None  # the last module that was called with gradients
    depth: int = 0  # of calls of modules
    held_bytes: int = 0
    random: Any = None  # state of torch's generator, before the script drew from it
    seed_place: str = ""  # of the last seed
    unseeded: str = ""  # a sentence: numbers are drawn without a seed
    schedules: list[Any] = field(default_factory=list)
    states: caught_tape.KeptStates = field(default_factory=caught_tape.KeptStates)
    evaluations: reported.Evaluations = field(default_factory=reported.Evaluations)
    ranks: ranks.RankWatch = field(default_factory=lambda: ranks.RankWatch())
    folds: Folds = field(default_factory=Folds)
    loaded: bool = False  # a state was loaded into some module
    filled: set[int] = field(default_factory=set)  # modules that a state was loaded into
    loaded_rates: dict[int, Any] = field(default_factory=dict)  # (before, after, line) by optimizer
    scale: float = 1.0  # of gradients, by a GradScaler

    def hook(self, torch: Any) -> None:
        """Put the hooks in."""
        from torch.optim import lr_scheduler, optimizer
        from torch.utils.data import dataloader

        nn, loader = torch.nn, dataloader.DataLoader
        self.random = torch.get_rng_state()
        self.mode = caught_tape.recording_mode(
            lambda: self.record.tape,
            self.states,
            self._loss,
            lambda *args: self.record.watch.note_norm(*args),
        )
        self.mode.__enter__()
        table: list[tuple[Any, str, Callable[..., Any]]] = [
            (torch, "manual_seed", self._seed),
            (torch.random, "manual_seed", self._seed),
            (loader, "__init__", self._make_loader),
            (loader, "__iter__", self._iter),
            (loader, "__len__", self._len),
            (dataloader._BaseDataLoaderIter, "__next__", self._next),
            (nn.Module, "__call__", self._call),
            (nn.Module, "load_state_dict", self._load),
            (nn.Module, "state_dict", self._state),
            (optimizer.Optimizer, "load_state_dict", self._load_rate),
            (lr_scheduler.ReduceLROnPlateau, "step", self._plateau),
            (lr_scheduler.LRScheduler, "__init__", self._make_schedule),
            (torch.autograd, "backward", self._backward),
            (torch.amp.GradScaler, "scale", self._scale_loss),
            (torch.amp.GradScaler, "unscale_", self._unscale),
            (builtins, "print", self._print),
            (logging.LogRecord, "getMessage", self._print),
        ]
        clips = itertools.product((nn.utils.clip_grad, nn.utils), ("norm", "value"))
        table += [(owner, f"clip_grad_{name}_", self._clip) for owner, name in clips]
        for owner, name, handler in table:
            self.wrap(owner, name, handler)
        self.ranks.hook(self, torch)
        self.undo.append(optimizer.register_optimizer_step_pre_hook(self._before_step).remove)
        self.undo.append(optimizer.register_optimizer_step_post_hook(self._after_step).remove)

    def end(self) -> None:
        """End the run, once."""
        if self.ended:
            return
        self._close()
        self.unhook()
        self.record.tape = None
        if self._drew_unseeded():
            self.unseeded = NO_SEED.format("torch.manual_seed")
        # the limit may be reached inside an evaluation, where the script wants no gradients
        with torch.inference_mode(False), torch.enable_grad():
            for training in self.trainings:
                if training.steps:
                    training.facts.answers = training.watch.finish(training.model)
            self.record = max(reversed(self.trainings), key=lambda training: training.rank)
            self.on_end(self)

    def end_at_exit(self) -> None:
        """End the run where the script ended by itself, if it used a loader or a model."""
        if self.record.facts.steps or self.record.loaders or self.record.first:
            self.end()

    def _close(self) -> None:
        """Write down what is counted over a training, and add it to `trainings`."""
        self._count_pending()
        record, facts = self.record, self.record.facts
        train = record.loader_of("train")
        facts.reported += self.evaluations.close(train)
        if record.idle is not None:
            return
        live = self.states.live()
        facts.weights_kept = self.states.taken, len(live)
        facts.places |= {"kept": live[0]} if live else {}
        facts.unheld = record.unheld(self.filled)
        facts.epoch_steps = record.epoch_steps if train else 0
        record.note_schedule()
        record.loaded = self.loaded
        facts.best_reversed = reported.reversed_best(ranks.own_files())
        facts.ranks = self.ranks.facts if ranks.speaks_of_ranks(self.text()) else None
        complete = not self.patience.over and len(record.steps) >= MIN_BATCHES
        record.rank = complete, bool(record.steps), train is not None
        self.trainings.append(record)

    def _go_on(self) -> None:
        """Let the script go on after its training was seen: another one may follow."""
        if not self.trainings:
            sys.addaudithook(self._refuse)
            with contextlib.suppress(AttributeError, ValueError):  # there is no timer here
                before = signal.signal(signal.SIGALRM, lambda *_: self._end_if_idle())
                self.undo.append(lambda: signal.signal(signal.SIGALRM, before))
                signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
                self.undo.append(lambda: signal.setitimer(signal.ITIMER_REAL, 0.0))
        self._close()
        self.record.idle, self.record.trains = Patience(IDLE_S, IDLE_WALL_S), False

    def _begin(self) -> None:
        """Record another training from its first step on."""
        last, model, current = self.trainings[-1], self.called, self.current
        loaders = {key: replace(s, kind="", iterations=0) for key, s in self.record.loaders.items()}
        if current is not None:
            self.current = loaders[id(current.loader)]
            self.current.kind, self.current.iterations = "train", 1
        places = {name: last.facts.places.get(name, "") for name in ("schedule", "loaded")}
        facts = LoopFacts(loaded=last.facts.loaded, places=places)
        self.record = record = Recorded(facts, loaders, first=self.record.first)
        self.states.taken, self.states.unread = 0, {}
        earlier = [t for t in self.trainings if t.steps and t.model is model]
        if earlier:
            record.first = record.first | {id(model): _start_of(model)}
            self.loaded, trained = True, earlier[-1].loader_of("train")
            if trained and current and trained.loader is current.loader:
                record.watch = earlier[-1].watch  # norms that were frozen keep to their own data

    def _rests(self, optimizer: Any) -> bool:
        """Return whether a step belongs to a training that was seen; a new one begins with it."""
        record = self.record
        known = self.trainings[-1].stepped if self.trainings and record.idle is None else {}
        own = optimizer is record.optimizer
        if id(optimizer) in known and not own:  # both go on: it is not new
            record.steps, record.trained, record.stepped = [], [], known | record.stepped
            record.idle = Patience(IDLE_S, IDLE_WALL_S)
        facts, steps = record.facts, record.steps
        now, last = _pass_of(self.current), record.last_pass
        if facts.steps and id(optimizer) not in record.stepped:  # its first step is held already
            record.steps = [step for step in steps if step.at != now]
        model = record.model
        trained = [] if model is None else [(id(p), p.requires_grad) for p in model.parameters()]
        record.trained = record.trained or trained
        new = trained != record.trained if own else id(optimizer) not in record.stepped
        later = now != last and (self.called is not model or now[0] != last[0])
        ended = facts.steps and later and (facts.epochs > 1 or not record.ended_passes)
        if new and ended and record.idle is None:
            self._go_on()
        else:
            record.steps = steps
        if new and record.idle is not None:
            self._begin()
        return self.record.idle is not None

    def _end_if_idle(self) -> None:
        idle = self.record.idle is not None and self.record.idle.over
        if (idle or self.patience.over) and not self.depth:
            self.end()

    def _refuse(self, event: str, args: Any) -> None:
        """Refuse what acts outside after a training: uploads, mails, shutdowns."""
        local = event == "socket.connect" and str(args[1]).startswith(("/", "('127."))
        if event in OUTSIDE and not local and not self.ended:
            raise PermissionError("`check` refuses connections and commands after a training")

    def _seed(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        self.seed_place = user_place()
        if self._drew_unseeded():
            self.unseeded = SEEDED_LATE.format(short_place(self.seed_place))
        self.random = None
        self.ranks.seed()
        return plain(*args, **kwargs)

    def _drew_unseeded(self) -> bool:
        """Return whether torch's generator gave numbers without a seed of the script."""
        return self.random is not None and not torch.equal(self.random, torch.get_rng_state())

    def _make_loader(self, plain: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        plain(loader, *args, **kwargs)
        loader.__dict__["_made_at"] = user_place()

    def _iter(self, plain: Any, loader: Any) -> Any:
        if torch.utils.data.get_worker_info() is not None:
            return plain(loader)
        record = self.record
        if id(loader) not in record.loaders:
            generator = getattr(loader, "generator", None)
            place = loader.__dict__.get("_made_at") or user_place()
            record.loaders[id(loader)] = SeenLoader(
                loader, place, None if generator is None else generator.get_state()
            )
        seen = record.loaders[id(loader)]
        if changed := seen.begin():
            record.facts.stale = record.facts.stale or (changed, seen.place)
        iterator = plain(loader)
        iterator.__dict__["_of_loader"] = loader
        return iterator

    def _len(self, plain: Any, loader: Any) -> int:
        """Return the number of batches; to Lightning the number of cut batches, so it evaluates."""
        length, size = int(plain(loader)), getattr(loader, "batch_size", None) or 1
        caller = sys._getframe(2).f_globals.get("__name__", "")
        if caller.partition(".")[0] not in LIGHTNING:
            return length
        loader.__dict__["_counted"] = True
        return min(length, max(MIN_BATCHES, min(MOST_BATCHES, -(-ENOUGH_EXAMPLES // size))))

    def _next(self, plain: Any, iterator: Any) -> Any:
        record = self.record
        seen = record.loaders.get(id(iterator.__dict__.get("_of_loader")))
        if seen is None:
            return plain(iterator)
        unsure = record.factors or any(n[-1] > n[-2] for n in record.graphs.values())
        few = record.idle is not None and seen.kind and "_counted" not in seen.loader.__dict__
        most = record.facts.summed[0] if few else MOST_BATCHES
        if seen.batches >= most or (seen.enough and not unsure):
            raise StopIteration
        self._end_if_idle()
        self._count_pending()
        batch = plain(iterator)
        seen.batches += 1
        seen.examples += batches.batch_size([tensor for _, tensor in leaves(batch)])
        if seen.enough and not unsure and seen.kind == "eval":
            batch = _as_last(batch, seen)
        self.current, record.tape = seen, None
        few = min(len(record.steps), len(record.judged)) < MAX_RAW_BATCHES
        self.raw_batch = _detached(batch) if few else None
        self.evaluations.next_batch(batch)
        return batch

    def _call(self, plain: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        record = self.record
        if not {*wrong_arguments.MASKS}.isdisjoint(kwargs):
            rows = [tensor for _, tensor in leaves(self.raw_batch)]
            self._note_argument(wrong_arguments.inverted_mask, kwargs, rows)
        if self.depth or torch.utils.data.get_worker_info() is not None:
            return plain(module, *args, **kwargs)
        if next(module.parameters(), None) is None:
            return self._call_beside(plain, module, *args, **kwargs)
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            out = self._inside(plain, module, args, kwargs)
            self._evaluated(ForwardPass(module, args, kwargs, out, user_place()))
            return out
        self.called = module
        if module.training:
            self._count_pending()
        if id(module) not in record.first:
            record.first[id(module)] = _start_of(module)
        if record.tape is None and record.idle is None and len(record.steps) < MOST_BATCHES:
            record.tape, record.modules = Tape(), []
            if not record.facts.graphs and (record.event == "step" or not module.training):
                self._count_graphs()
        if record.tape is None:
            return self._inside(plain, module, args, kwargs)
        return self._recorded(record.tape, plain, module, args, kwargs)

    def _recorded(self, tape: Tape, plain: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """Call a module with gradients, and note the call on the tape."""
        call = ModelCall(module, args, kwargs, len(tape.calls), place=user_place())
        given = [tensor for _, tensor in leaves([args, kwargs])]
        for tensor in given:
            tape.node(tensor)
        state = torch.get_rng_state()
        call.out = self._inside(plain, module, args, kwargs)
        if not self.record.steps:
            self.ranks.facts.drawn |= not torch.equal(state, torch.get_rng_state())
        if any(tensor.requires_grad for tensor in given):
            self.record.heads.setdefault(id(module), (module, call.place))
        call.end, call.outs = len(tape.calls), tape.outputs(call.out)
        for _, node in call.outs:
            getattr(tape.tensors[node].grad_fn, "metadata", {})[caught_tape.MARK] = True
        tape.models.append(call)
        return call.out

    def _call_beside(self, plain: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a module without parameters, such as a loss: its calls belong to the tape."""
        tape = self.record.tape
        start = len(tape.calls) if tape is not None else 0
        out = plain(module, *args, **kwargs)
        if tape is not None:
            made = tape.now.get(id(out), -1)
            call = ModelCall(module, args, kwargs, start, place=user_place(), made=made)
            self.record.modules.append(call)
        return out

    def _inside(self, plain: Any, module: Any, args: Any, kwargs: Any) -> Any:
        self.depth += 1
        try:
            out = plain(module, *args, **kwargs)
        finally:
            self.depth -= 1
        if self.record.trains and not module.training and torch.is_grad_enabled():
            self.record.pending.append(ForwardPass(module, args, kwargs, out, user_place()))
        return out

    def _count_pending(self) -> None:
        """Count passes in eval mode with gradients on as evaluations: no step came after them."""
        pending, self.record.pending = self.record.pending, []
        for made in pending:
            if not made.used or self.current is None or self.current.kind != "train":
                self._evaluated(made)

    def _count_graphs(self) -> None:
        """Count the graphs of earlier batches behind what lines of the user's loop add to."""
        frame, counts, facts = sys._getframe().f_back, self.record.graphs, self.record.facts
        while frame is not None and not facts.graphs:
            file, lines, start = frame.f_code.co_filename, list[str](), 0
            with contextlib.suppress(OSError):
                lines, start = inspect.getsourcelines(frame) if is_own_code(file) else ([], 0)
            for number, line in enumerate(lines, max(start, 1)):
                for name in filter(None, itertools.chain(*ADDS.findall(line))):
                    with contextlib.suppress(Exception):  # it has no value yet
                        value = eval(name, frame.f_globals, frame.f_locals)
                        count, size = caught_tape.graphs_behind(value)
                        place = f"{Path(file).absolute()}:{number}"
                        counts[place] = [*counts.get(place, [0])[-3:], count]
                        if counts[place] == sorted({*counts[place]}) and count > 3:
                            facts.graphs = count, name, size / count, place
            frame = frame.f_back

    def _evaluated(self, made: ForwardPass) -> None:
        """Note a forward pass without a step: of an evaluation, where it is of the model."""
        record, facts, seen = self.record, self.record.facts, self.current
        held_out = None if seen is None or seen.kind == "train" else seen
        out, made.out = made.out, None
        if held_out is not None and held_out.kind != "eval":
            held_out.late |= record.idle is not None
            held_out.kind = "eval"  # loaders stand in the order of their first use for this
            record.loaders[id(held_out.loader)] = record.loaders.pop(id(held_out.loader))
        own = made.module is record.model
        if not own and not (record.steps and held_out and record.is_average(made.module)):
            if record.steps and not held_out and made.trains and record.is_teacher(made.module):
                facts.teacher = facts.teacher or (made.trains, made.place)
            self.evaluations.again += 2 * (held_out is not None)
            self.evaluations.batch = None
            return
        facts.evaluations += 1
        record.ended_passes += bool(held_out) or _pass_of(seen) == record.last_pass
        facts.places.setdefault("evaluation", made.place)
        record.watch.evaluated(made, *record.first[id(record.model)][:2])
        if held_out is not None:
            self._note_loader(held_out)
            if record.idle is None or facts.evaluations == 1:  # dropout may stay on at the end
                facts.evaluated_in_train_mode = facts.evaluated_in_train_mode or made.trains
            if len(record.judged) < MOST_BATCHES and self._fits(made.args, made.kwargs):
                inputs = _detached(batches.entering(made.args, made.kwargs))
                record.judged.append((self.raw_batch, inputs, None))
        self._end_if_idle()
        self.evaluations.add(seen, out)

    def _note_loader(self, seen: SeenLoader) -> None:
        """Note what the loader of an evaluation leaves out, and whether it was trained on."""
        facts, found = self.record.facts, reported.extent(seen.loader)
        if found and seen.loader.drop_last and found[3] >= found[0] and found[3] > found[0] > 0:
            facts.dropped = found[3] - found[0], found[3], seen.place
        if self.folds.was_trained(seen.loader):
            facts.folded = facts.folded or seen.place

    def _loss(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        name = function.__name__
        if name in LOSSES:
            self.evaluations.loss(name, kwargs, result)
        self._note_argument(wrong_arguments.wrong_argument, name, args, kwargs)

    def _note_argument(self, find: Callable[..., str], *args: Any) -> None:
        facts = self.record.facts
        if facts.argument is None and facts.steps < MIN_BATCHES and (sentence := find(*args)):
            facts.argument = sentence, user_place()

    def _print(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        if self.evaluations.passes:
            self.evaluations.text(result or " ".join(map(str, args)), user_place())
        return result

    def _backward(self, plain: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        record, seen = self.record, self.current
        tape, record.tape = record.tape, None
        evaluates = seen is not None and seen.kind != "train"
        if record.pending and (evaluates or record.pending[-1].used):  # of inputs
            return plain(tensors, *args, **kwargs)
        if seen is not None:
            seen.kind = "train"
        numbers = self.evaluations.close(record.loader_of("train"))
        if record.idle is not None:  # loaders are cut: only values that repeat a fault count
            record.facts.reported += [n._replace(is_exact=False) for n in numbers if n.flaw]
            return plain(tensors, *args, **kwargs)
        loss = tensors if hasattr(tensors, "backward") else next(iter(tensors), None)
        if tape is not None:
            self._catch(tape, loss)
        record.facts.reported += numbers
        record.facts.places.setdefault("backward", user_place())
        for row in record.stepped.values():
            row.begins_old = row.begins_old is not False and _has_gradients(row.optimizer)
        before, record.version = record.version, _version(record.optimizer)
        follows, gradients = record.event == "backward", _has_gradients(record.optimizer)
        if follows and before == record.version is not None:
            record.facts.lost += not gradients
        if not (follows and gradients):
            record.factors = {}
        record.event = "backward"
        if tape is not None and seen is not None and args[:1] in ((), (None,)):
            factor = caught_tape.mean_factor(tape, loss)
            record.factors[_pass_of(seen), seen.batches] = factor
        return plain(tensors, *args, **kwargs)

    def _catch(self, tape: Tape, loss: Any) -> None:
        record, facts = self.record, self.record.facts
        try:
            step = caught_tape.step_of_tape(tape, loss, record.modules)
        except Exception as error:  # noqa: BLE001 - the script goes on, and it is said
            text = f"the step could not be read ({type(error).__name__}: {error})"
            known = isinstance(error, caught_tape.CaughtError)
            record.why = record.why or (str(error) if known else text)
            return
        self.ranks.step(step.call.module)
        if not record.steps:
            facts.idle_flags = idle_flags(step.call.module)
        elif step.call.module is not record.model or not self._fits(step.inputs, step.targets):
            return
        inputs, targets = (_detached(part) for part in (step.inputs, step.targets))
        facts.places.setdefault("model", step.call.place)
        losses = [m.place for m in record.modules if m.module is step.loss]
        facts.places.setdefault("loss", losses[-1] if losses else tape.loss or user_place())
        raw, self.raw_batch = self.raw_batch, None
        if not record.steps:
            wanted, self.evaluations.target_path = batches.main_tensor(targets), None
            shape = getattr(wanted, "shape", None)
            with contextlib.suppress(RuntimeError, TypeError):  # sparse tensors, for example
                parts = [
                    (path, part.to(wanted)) for path, part in leaves(raw) if part.shape == shape
                ]
                found = [path for path, part in parts if torch.equal(part, wanted)]
                self.evaluations.target_path = found[0] if len(found) == 1 else None
        call, at = replace(step.call, out=None, args=(), kwargs={}), _pass_of(self.current)
        step = replace(step, inputs=inputs, targets=targets, call=call, given=raw, at=at)
        record.steps.append(step)

    def _fits(self, *parts: Any) -> bool:
        """Return whether these tensors may be held beside those that are."""
        size = sum(t.numel() * t.element_size() for _, t in leaves(list(parts)))
        fits = bool(self.held_bytes + size <= MAX_HELD_BYTES)
        self.held_bytes += size if fits else 0
        return fits

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.folds.before_step(self.called, _version(optimizer))
        if self.ended or self._rests(optimizer):
            return
        record, facts = self.record, self.record.facts
        if len(record.factors) > facts.summed[0] and not ranks.BY_HAND.search(ranks.script_text()):
            facts.summed = len(record.factors), sum(record.factors.values())
        record.factors = {}
        facts.places.setdefault("optimizer", user_place())
        record.watch.before_step(optimizer)
        given = any(p.grad is not None for p in _parameters(optimizer))
        facts.lost += record.event == "backward" and not given
        if record.model is not None and facts.steps < MIN_BATCHES:
            named = record.model.named_parameters()
            facts.graded |= {name for name, p in named if p.grad is not None and bool(p.grad.any())}
        row = record.stepped.get(id(optimizer))
        if row is not None and row.begins_old:
            row.uncleared += 1
            facts.kept = max(facts.kept, row.uncleared)
        if record.optimizer is not None:
            return
        record.optimizer = optimizer
        for schedule in self.schedules:  # accelerate wraps an optimizer
            if optimizer in (schedule.optimizer, getattr(schedule.optimizer, "optimizer", None)):
                record.schedule = schedule
        loaded, rate = self.loaded_rates.get(id(optimizer)), optimizer.param_groups[0]["lr"]
        if record.schedule is None and loaded and float(rate) == loaded[1]:
            facts.loaded_rate = loaded
        parameters = {id(p): p for p in _parameters(optimizer)}
        record.start = _copied_or_none((optimizer, record.schedule), parameters)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        record, seen = self.record, self.current
        if seen is not None:
            self.folds.after_step(self.called, seen.loader, _version(optimizer))
        if self.ended or record.idle is not None:
            return
        record.watch.after_step()
        if record.pending and seen is not None:
            seen.kind = "train"
        record.pending.clear()
        row = record.stepped.setdefault(id(optimizer), SteppedOptimizer(optimizer))
        row.begins_old = None
        facts = record.facts
        facts.optimizers = len(record.stepped)
        if optimizer is not record.optimizer:
            return
        record.event = "step"
        if record.steps:
            record.note_modes()
        if seen is not None and _pass_of(seen) != record.last_pass:
            facts.sampler_epochs += [] if seen.epoch is None else [seen.epoch]
            if seen.random is not None:
                if any(seen.random.equal(state) for state in seen.states):
                    facts.repeated = self.seed_place or seen.place
                seen.states.append(seen.random)
        record.last_pass = _pass_of(seen)
        facts.steps += 1
        facts.rates.append(float(optimizer.param_groups[0]["lr"]))
        passes = [s.iterations for s in record.loaders.values() if s.kind == "train"]
        facts.epochs = max(passes, default=0)
        count = int(getattr(record.schedule, "last_epoch", 0))
        record.counters.append((count, facts.epochs, facts.evaluations))
        evaluated = facts.evaluations or facts.epochs > MAX_EPOCHS  # a teacher is not evaluated
        without = facts.after_evaluation > 1 and facts.steps >= STEPS_WITHOUT_LOADER
        reached = facts.epochs > 1 and evaluated if passes else without
        waits = os.environ.get("WORLD_SIZE", "1") != "1"  # ranks wait for each other's batches
        if self.patience.over or (reached and (waits or self.once)):
            self.end()
        elif reached:
            self._go_on()

    def _make_schedule(self, plain: Any, schedule: Any, *args: Any, **kwargs: Any) -> None:
        plain(schedule, *args, **kwargs)
        self.schedules.append(schedule)
        self.record.facts.places["schedule"] = user_place()

    def _load_rate(self, plain: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = float(optimizer.param_groups[0]["lr"])
        result = plain(optimizer, *args, **kwargs)
        after = float(optimizer.param_groups[0]["lr"])
        if not 0.5 < after / max(before, 1e-30) < 2:
            self.loaded_rates[id(optimizer)] = before, after, user_place()
        return result

    def _load(self, plain: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        record, facts = self.record, self.record.facts
        if not record.steps or unwrapped(module) is not unwrapped(record.model):
            self.loaded = True  # else it is put back
        result, state = plain(module, *args, **kwargs), kwargs.get("state_dict", args and args[0])
        self.filled |= {id(part) for part in module.modules()}
        own = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
        missing = [name for name in getattr(result, "missing_keys", ()) if name in own]
        tails = {  # with another prefix, such as `module.`, or with none
            (tail, getattr(state[name], "shape", None))
            for name in getattr(result, "unexpected_keys", ())
            for tail in (name, name.split(".", 1)[-1])
        }
        renamed = sum(
            bool({(name, own[name].shape), (name.split(".", 1)[-1], own[name].shape)} & tails)
            for name in (missing if tails else ())
        )
        found, before = (len(own) - len(missing), len(own), renamed), facts.loaded
        if own and (before is None or found[0] * before[1] < before[0] * found[1]):
            facts.loaded = found
            facts.places["loaded"] = user_place()
        return result

    def _state(self, plain: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        state, record = plain(module, *args, **kwargs), self.record
        own = record.facts.steps and is_own_code(sys._getframe(2).f_code.co_filename)
        if own and record.steps and unwrapped(module) is unwrapped(record.model):
            self.states.take(module, state, kwargs.get("prefix", ""), user_place())
        return state

    def _plateau(self, plain: Any, schedule: Any, metrics: Any, *args: Any, **kwargs: Any) -> Any:
        value, facts = float(metrics), self.record.facts
        passes = self.evaluations.passes
        rates = [rate for p in passes for _, rate in reported.formulas_of("accuracy", p, None)]
        if rates and facts.plateau is None:
            is_accuracy = any(reported.Number("", value).equals(rate) for rate in rates)
            facts.plateau = schedule.mode, value, is_accuracy
            facts.places["plateau"] = user_place()
        return plain(schedule, metrics, *args, **kwargs)

    def _scale_loss(self, plain: Any, scaler: Any, *args: Any, **kwargs: Any) -> Any:
        self.scale = float(scaler.get_scale())
        return plain(scaler, *args, **kwargs)

    def _unscale(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        self.scale = 1.0
        return plain(*args, **kwargs)

    def _clip(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        record, facts = self.record, self.record.facts
        if record.idle is None and record.event:
            (before, after), late = facts.clipped, record.event == "step"
            facts.clipped = (before + (not late), after + late)
            facts.clip_scale = max(facts.clip_scale, self.scale)
            facts.places.setdefault("clip late" if late else "clip", user_place())
            if args and not late:
                record.clip = lambda parameters: plain(parameters, *args[1:], **kwargs)
        return plain(*args, **kwargs)


class ByEpoch:
    """A schedule that the script steps once an epoch, where a check steps it after each step."""

    def __init__(self, schedule: Any, steps: int) -> None:
        self.schedule, self.steps, self.number = schedule, steps, 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "schedule" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.schedule, name)

    def step(self) -> None:
        """Count a step of the optimizer."""
        self.number += 1
        if not self.number % self.steps and "Plateau" not in type(self.schedule).__name__:
            self.schedule.step()


def _parameters(optimizer: Any) -> list[Any]:
    groups = () if optimizer is None else optimizer.param_groups
    return [p for group in groups for p in group["params"]]


def _pass_of(seen: SeenLoader | None) -> tuple[int, int]:
    return (0, 0) if seen is None else (id(seen.loader), seen.iterations)


def _as_last(batch: Any, seen: SeenLoader) -> Any:
    """Return the batch, cut to the size of the loader's last batch, which is not reached."""
    found, parts = reported.extent(seen.loader), [tensor for _, tensor in leaves(batch)]
    if found is None or type(batch) not in (tuple, list, dict) or found[1] <= seen.batches:
        return batch
    rest, size = found[0] % found[2], found[2]
    whole = all(tensor.shape[:1] == (size,) for tensor in parts)
    return batches.cut_batch(batch, size, slice(rest)) if rest and whole else batch


def _version(optimizer: Any) -> int | None:
    """Return how often the weights of an optimizer were changed in place; None without one."""
    return None if optimizer is None else sum(int(p._version) for p in _parameters(optimizer))


def _has_gradients(optimizer: Any) -> bool:
    return any(p.grad is not None and bool(p.grad.any()) for p in _parameters(optimizer))


def _detached(value: Any) -> Any:
    """Return a copy without a graph, as the script may reuse the memory."""
    if hasattr(value, "detach"):
        return value.detach().clone()
    return batches.map_nested(value, _detached)


def _start_of(module: Any) -> tuple[Any, Any, list[Any]]:
    """Return a copy of the model inside a module (None if impossible), the model, its parameters"""
    inner = unwrapped(module)
    copied = _copied_or_none(inner, {})
    if copied is not None:
        copied.zero_grad(set_to_none=True)
    return copied, inner, list(inner.parameters())


def _copied_or_none(value: Any, memo: dict[int, Any]) -> Any:
    with contextlib.suppress(Exception):  # not everything can be copied
        return deep_copied(value, memo)
    return None

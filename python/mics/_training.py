# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""A training in this process: ranks are threads of the library, callbacks run where train was called.

1. The library computes on a thread of its own that blocks signals, and its threads inherit that: oneDNN's
   kernels keep data where a signal's handler would write.
2. A callback of the library waits until the thread that called train has run its function. That thread
   serves such calls until the library has returned, whatever happens.
"""

import ctypes
import dataclasses
import json
import logging
import math
import operator
import os
import queue
import signal
import threading

from . import _files, _library, _progress, _run
from ._library import Error, log

# What a thread does to itself.
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}

MAX_RANKS = 1024  # threads of one process

_in_use = threading.Lock()


@dataclasses.dataclass
class Result:
    """What a training came to."""

    folder: str  # of the run: run.out
    step: int  # that was done last
    metrics: dict  # of that step, as in metrics.jsonl; {} where no step was ever trained
    validation_loss: float  # the newest; None: there was none
    checkpoint: str  # the newest one's folder; None
    stopped_by: str  # "on_step", "run.max_hours", ...; None: the run has ended


class _Job:
    """One call of train. What is called on_... runs in the thread that called train."""

    def __init__(self, hear_step, hear_validation, progress):
        self.library = _library.library()
        self.hear_step, self.hear_validation = hear_step, hear_validation
        self.progress = progress
        self.calls = queue.SimpleQueue()  # (function, arguments, event once it has run); None: the end
        self.answered = threading.Event()  # of the newest
        self.lock = threading.RLock()  # of `job` and `stopped_by`, which a signal's handler asks for too
        self.job = None
        self.stopped_by = None
        self.failure = None  # what a callback raised
        self.interruptible = False  # while a callback runs
        self.last = self.validation = None  # lines of metrics.jsonl
        self.errors = []
        self.status = None
        self.folder = None
        self.callbacks = _library.Callbacks(
            **{
                name: function_type(getattr(self, f"_{name}"))
                for name, function_type in _library.Callbacks._fields_
                if hasattr(self, f"_{name}")
            }
        )

    # ---- on threads of the library ----

    def hear_line(self, level, text):
        # Of errors the first is what happened, and what follows is a consequence.
        if level == logging.ERROR:
            self.errors.append(text)
        else:
            log.log(level, text)

    def _ask(self, function, *arguments):
        if self.failure is None:
            self.answered = threading.Event()
            self.calls.put((function, arguments, self.answered))
            self.answered.wait()

    def _start(self, _ctx, job):
        with self.lock:
            self.job = job
            if self.stopped_by is not None:
                self.library.mics_job_stop(job)

    def _step(self, _ctx, metrics):
        text = ctypes.create_string_buffer(_library.METRICS_TEXT_BYTES)
        if self.library.mics_metrics_text(metrics, text, len(text)) == 0:
            self._ask(self.on_step, json.loads(text.value), metrics.contents.steps)

    def _validation(self, _ctx, step, loss):
        self._ask(self.on_validation, step, loss if math.isfinite(loss) else None)

    def _checkpoint(self, _ctx, step, path):
        log.info("checkpoint of step %d written to %s", step, os.fsdecode(path))

    def _note(self, _ctx, line):
        log.info("%s", line.decode(errors="replace"))

    def _sample(self, _ctx, step, text, size):
        log.info("step %d writes: %s", step, ctypes.string_at(text, size).decode(errors="replace"))

    def _work(self, _ctx, what, done, total):
        if self.progress.is_due() or done == total:
            self._ask(self.progress.work, what.decode(errors="replace"), done, total)

    def run(self, spec):
        """The thread that the library is called on."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
        try:
            self.status = _library.status_name(self._train(spec))
        finally:
            self.calls.put(None)

    def _train(self, spec):
        memory, job = ctypes.c_void_p(), ctypes.c_void_p()
        status = self.library.mics_memory_open(ctypes.byref(memory))
        if status != 0:
            return status
        spec.memory = memory
        status = self.library.mics_job_open(ctypes.byref(spec), ctypes.byref(job))
        if status == 0:
            self._start(None, job)  # a run that is finished does not say so
            self.folder = os.fsdecode(self.library.mics_job_out(job))
            status = self.library.mics_job_train(job, 0)
        with self.lock:
            self.job = None
            if status != 0 and job and self.stopped_by is None:
                asked = self.library.mics_job_standing_get(job).asked_by_run
                self.stopped_by = asked.decode() if asked else None
        closed = self.library.mics_job_close(job)
        self.library.mics_memory_close(memory)
        return status or closed

    # ---- on the thread that called train ----

    def on_step(self, record, steps):
        self.last = record
        self.progress.step(record, steps)
        if self.hear_step is not None:
            self.hear_step(dict(record))

    def on_validation(self, step, loss):
        self.validation = {"step": step, "validation_loss": loss}
        if self.hear_validation is not None:
            self.hear_validation(step, loss)

    def stop(self, by):
        """The step that was done last is saved, and training ends; before it begins it does not."""
        with self.lock:
            if self.stopped_by is None:
                self.stopped_by = by
            if self.job is not None:
                self.library.mics_job_stop(self.job)
            else:
                log.warning("%s: stops when all is loaded", by)

    def _fail(self, raised, by):
        self.interruptible = False
        self.failure = raised
        self.stop(by)

    def _call(self, function, arguments):
        try:
            self.interruptible = True
            function(*arguments)
            self.interruptible = False
        except BaseException as raised:  # pylint: disable=broad-except
            self._fail(raised, function.__name__)

    def _serve(self, thread):
        while thread.is_alive():
            try:
                call = self.calls.get(timeout=1)
            except queue.Empty:
                continue
            if call is None:
                return
            function, arguments, done = call
            if self.failure is None:
                self._call(function, arguments)
            done.set()

    def serve(self, thread):
        """Until the library has returned, whatever a signal's handler of the program's own may raise."""
        while True:
            try:
                self._serve(thread)
                return
            except BaseException as raised:  # pylint: disable=broad-except
                self._fail(raised, "a signal's handler")
                self.answered.set()


class _Signals:
    """While a run trains, SIGINT and SIGTERM stop it, and do what they did before once it is saved."""

    def __init__(self, job):
        self.job = job
        self.before = {}
        self.came = None

    def _handle(self, number, _frame):
        if self.job.interruptible and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.came = number
        self.job.stop(signal.Signals(number).name)

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self.before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def pass_on(self):
        if self.came is None:
            return
        for text in self.job.errors:  # the handler may leave no time for them
            log.error("%s", text)
        signal.raise_signal(self.came)


def _raise_what_failed(job, renamed):
    if isinstance(job.failure, StopIteration):
        job.failure = None
    if job.failure is not None:
        raise job.failure
    if job.status not in (_library.OK, _library.INTERRUPTED):
        text = job.errors[0] if job.errors else "another process says why"
        raise Error(renamed(text), job.status)
    for text in job.errors:
        log.error("%s", text)


def _bytes(text):
    """For the library, to which a text ends at its first NUL."""
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise ValueError(f"{text!r} has a NUL")
    return encoded


def _spec(path, sets, ranks, nodes, resume, callbacks):
    texts = (ctypes.c_char_p * len(sets))(*[_bytes(text) for text in sets])
    return _library.JobSpec(
        file=_bytes(path),
        sets=texts,
        set_count=len(sets),
        ranks=ranks,
        nodes=nodes,
        resume=None if resume == "auto" else _bytes(resume),  # the file may say it
        callbacks=callbacks,
    )


def _check(ranks, nodes, **callbacks):
    """What the library would take for something else: C's numbers wrap around, and 0 is 1 there."""
    for name, value, least in (("ranks", ranks, 1), ("nodes", nodes, 0)):
        if not least <= operator.index(value) <= MAX_RANKS:
            raise ValueError(f"{name} is {value}; {least} to {MAX_RANKS} work")
    for name, function in callbacks.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} is no function, but {type(function).__name__}")


def _result(job):
    # A run that was finished before is not heard of.
    last = job.last if job.last is not None else _files.newest_line(job.folder, "loss")
    validation = job.validation or _files.newest_line(job.folder, "validation_loss")
    return Result(
        folder=job.folder,
        step=last.get("step", 0),
        metrics=last,
        validation_loss=validation.get("validation_loss"),
        checkpoint=_files.newest_checkpoint(job.folder),
        stopped_by=job.stopped_by if job.status == _library.INTERRUPTED else None,
    )


def train(
    run,
    *,
    ranks=1,
    nodes=0,
    steps=None,
    out=None,
    data=None,
    tokenizer=None,
    lora=None,
    resume="auto",
    set=None,  # pylint: disable=redefined-builtin
    on_step=None,
    on_validation=None,
    progress=None,
    **unknown,
):
    """Trains a run to its end, or resumes it from its newest checkpoint.

    run: path of a run file, or a dictionary with the same keys, which needs a folder: run.out, or `out`;
        with `data` also a model's folder or config.json.
    ranks, nodes: threads of this process, and as how many nodes they count.
    data: one path or several, as --data. set: as --set, {"run.seed": 2}.
    steps, out, tokenizer, lora, resume: as the program's flags.
    on_step: gets each step's metrics, a dictionary as in metrics.jsonl, in the thread that called train.
        If it raises, the step is saved, the run ends, and train raises the same; StopIteration just ends
        the run.
    on_validation: gets step and loss.
    progress: False shows none; None a bar in notebooks and on terminals; True also lines elsewhere.
    Returns: a Result. SIGINT saves the step that was done last, and raises KeyboardInterrupt.
    """
    if unknown:
        raise TypeError(
            f"mics.train has no argument {next(iter(unknown))!r}; keys of run files are given in set, as "
            'set={"optimizer.params.lr": 1e-3}; `mics explain --keys` lists them'
        )
    _check(ranks, nodes, on_step=on_step, on_validation=on_validation)
    if set is not None:
        _run.sets_of(set)
    keys = {
        "run.steps": steps,
        "run.out": out,
        "data.train": [data] if isinstance(data, (str, os.PathLike)) else data,
        "data.tokenizer": tokenizer,
        "adapter.r": lora,
    }
    keys = {key: value for key, value in keys.items() if value is not None} | (set or {})
    if isinstance(run, dict) and "run.out" not in keys and not _run.has_key(run, "run.out"):
        raise Error('a run that is a dictionary has no name to call its folder after: give out="FOLDER"')
    if not _in_use.acquire(blocking=False):
        raise Error("another mics.train runs in this process; wait for its end, or start a process for each")
    try:
        job = _Job(on_step, on_validation, _progress.Progress(progress))
        _library.listener = job.hear_line
        with _run.file_of(run) as (path, renamed), _Signals(job) as signals:
            spec = _spec(path, _run.sets_of(keys), ranks, nodes, resume, job.callbacks)
            thread = threading.Thread(target=job.run, args=(spec,), name="mics")
            thread.start()
            job.serve(thread)
            thread.join()
        job.progress.close()
    finally:
        _library.listener = None
        _in_use.release()
    signals.pass_on()
    _raise_what_failed(job, renamed)
    return _result(job)

# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""libmics over ctypes: of its public headers the structures and functions that are used here, and its log.

tools/check_ctypes.py has a C compiler compare them with the headers.
"""

import ctypes
import functools
import logging
import os
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parent
LIBRARY = FOLDER / "lib" / "libmics.so"
PROGRAM = FOLDER / "bin" / "mics"

OK, INTERRUPTED = "MICS_OK", "MICS_ERR_INTERRUPTED"
METRICS_TEXT_BYTES = 4096  # MICS_METRICS_TEXT_BYTES

log = logging.getLogger("mics")


class Error(RuntimeError):
    """What could not be done: the line that the library or the program says.

    status: the library's, "MICS_ERR_IO"; None where the program said it.
    """

    __module__ = "mics"

    def __init__(self, text, status=None):
        super().__init__(text)
        self.status = status


# ---- what include/mics declares ----

_pointer, _text = ctypes.c_void_p, ctypes.c_char_p
_int32, _int64, _real, _enum = ctypes.c_int32, ctypes.c_int64, ctypes.c_double, ctypes.c_uint

LOG_SINK = ctypes.CFUNCTYPE(None, _pointer, _enum, _int32, _text)


class Metrics(ctypes.Structure):
    """How mics_metrics begins; mics_metrics_text says the rest."""

    _fields_ = [("step", _int64), ("steps", _int64)]


class Callbacks(ctypes.Structure):
    """mics_job_callbacks; all get `ctx` first."""

    _fields_ = [
        ("ctx", _pointer),
        ("start", ctypes.CFUNCTYPE(None, _pointer, _pointer)),
        ("step", ctypes.CFUNCTYPE(None, _pointer, ctypes.POINTER(Metrics))),
        ("validation", ctypes.CFUNCTYPE(None, _pointer, _int64, _real)),
        ("saving", ctypes.CFUNCTYPE(None, _pointer, _int64)),
        ("checkpoint", ctypes.CFUNCTYPE(None, _pointer, _int64, _text)),
        ("note", ctypes.CFUNCTYPE(None, _pointer, _text)),
        ("should_stop", ctypes.CFUNCTYPE(ctypes.c_bool, _pointer)),
        ("sample", ctypes.CFUNCTYPE(None, _pointer, _int64, _pointer, ctypes.c_size_t)),
        ("work", ctypes.CFUNCTYPE(None, _pointer, _text, _int64, _int64)),
    ]


class Builder(ctypes.Structure):
    """mics_model_builder."""

    _fields_ = [("ctx", _pointer), ("build", _pointer)]


class JobSpec(ctypes.Structure):
    """mics_job_spec."""

    _fields_ = [
        ("memory", _pointer),
        ("file", _text),
        ("sets", ctypes.POINTER(_text)),
        ("set_count", _int32),
        ("values", _pointer),
        ("builder", Builder),
        ("description", _text),
        ("ranks", _int32),
        ("nodes", _int32),
        ("resume", _text),
        ("callbacks", Callbacks),
        ("status", _enum),
    ]


class Standing(ctypes.Structure):
    """mics_job_standing."""

    _fields_ = [
        ("rank", _int32),
        ("step", _int64),
        ("saved", ctypes.c_bool),
        ("saved_step", _int64),
        ("kept", ctypes.c_bool),
        ("kept_step", _int64),
        ("writing", ctypes.c_bool),
        ("save_s", _real),
        ("asked_by_run", _text),
    ]


STRUCTURES = {
    "mics_metrics": Metrics,
    "mics_job_callbacks": Callbacks,
    "mics_model_builder": Builder,
    "mics_job_spec": JobSpec,
    "mics_job_standing": Standing,
}

PROTOTYPES = """
const char *mics_status_name(mics_status status);
void mics_log_set_sink(mics_log_sink sink, void *ctx);
mics_status mics_memory_open(mics_memory **memory_out);
int64_t mics_memory_close(mics_memory *memory);
mics_status mics_metrics_text(const mics_metrics *metrics, char *text, size_t capacity);
mics_status mics_job_open(const mics_job_spec *spec, mics_job **job_out);
mics_status mics_job_train(mics_job *job, int64_t steps);
mics_status mics_job_close(mics_job *job);
void mics_job_stop(mics_job *job);
mics_job_standing mics_job_standing_get(const mics_job *job);
const char *mics_job_out(const mics_job *job);
"""

_TYPES = {
    "void": None,
    "const char *": _text,
    "int64_t": _int64,
    "size_t": ctypes.c_size_t,
    "mics_status": _enum,
    "mics_log_sink": LOG_SINK,
    "mics_job_standing": Standing,
}


def _type(declaration):
    """Of `const char *path` that of a text; of any other pointer, whatever it is to, an address."""
    name = re.sub(r"\w+$", "", declaration).strip()
    return _pointer if "*" in name and name not in _TYPES else _TYPES[name]


def _declare(library):
    for result, name, parameters in re.findall(r"(.*?)(\w+)\((.*)\);", PROTOTYPES):
        function = getattr(library, name)
        function.restype = _type(result + name)
        function.argtypes = [_type(parameter) for parameter in parameters.split(", ")]


# ---- loading ----


def _open():
    """Nobody else sees its functions, nor those of the libraries below it: torch has a oneDNN of its own.

    GNU's OpenMP reads how long threads spin when it is loaded; some 20 us, as in the program.
    """
    quiet = not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys()
    if quiet:
        os.environ["GOMP_SPINCOUNT"] = "500"
    try:
        return ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_LOCAL)
    finally:
        if quiet:
            del os.environ["GOMP_SPINCOUNT"]


@functools.lru_cache(maxsize=None)
def library():
    """libmics, loaded by the first who needs it."""
    loaded = _open()
    _declare(loaded)
    loaded.mics_log_set_sink(_sink, None)
    return loaded


def status_name(status):
    return library().mics_status_name(status).decode()


# ---- the log ----

_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO)

# Who hears lines (level, text) in place of `log`; one call of train at a time has it.
listener = None


@LOG_SINK
def _sink(_ctx, level, rank, line):
    text = line.decode(errors="replace")
    (listener or log.log)(_LEVELS[level], f"rank {rank}: {text}" if rank >= 0 else text)

# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""The package as it is installed: python -m unittest discover python/tests. Needs no NumPy."""

import copy
import ctypes
import json
import logging
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

import mics
from mics import _library, _progress

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 6
RUN = {
    "model": {"config": str(ROOT / "configs/gpt2-tiny.json"), "init": "random"},
    "data": {
        "train": [str(ROOT / "examples/corpus/sonnets-*.txt")],
        "tokenizer": "bytes",
        "sequence_length": 32,
    },
    "run": {"steps": STEPS, "seed": 1, "validation_batches": 1, "device": "cpu"},
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
}


def program(*arguments, **settings):
    return subprocess.run(
        [_library.PROGRAM, *arguments], capture_output=True, text=True, check=False, **settings
    )


def lines_of(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="mics-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = os.path.join(self.folder, "out")

    def train(self, **arguments):
        return mics.train(RUN, **{"out": self.out, "ranks": 2, "progress": False, **arguments})

    def python(self, text, **settings):
        """Runs a program of its own, in which RUN and out are known."""
        head = "import json, mics, os, signal, sys, threading\n"
        head += f"RUN = json.loads({json.dumps(RUN)!r})\nout = {self.out!r}\n"
        return subprocess.run(
            [sys.executable, "-c", head + text], capture_output=True, text=True, check=False, **settings
        )


class Training(Case):
    def test_steps_are_those_of_metrics_jsonl(self):
        heard, validations, threads = [], [], set()

        def on_step(record):
            heard.append(record)
            threads.add(threading.current_thread())

        result = self.train(on_step=on_step, on_validation=lambda step, loss: validations.append([step, loss]))
        lines = lines_of(self.out)
        self.assertEqual(heard, [line for line in lines if "loss" in line])
        self.assertEqual([record["step"] for record in heard], list(range(1, STEPS + 1)))
        self.assertEqual(
            validations, [[line["step"], line["validation_loss"]] for line in lines if "loss" not in line]
        )
        self.assertEqual(threads, {threading.current_thread()})
        self.assertEqual((result.folder, result.step, result.metrics), (self.out, STEPS, heard[-1]))
        self.assertEqual(result.validation_loss, validations[-1][1])
        self.assertEqual(result.checkpoint, os.path.join(self.out, "checkpoints", f"step-{STEPS:08}"))
        self.assertIsNone(result.stopped_by)

    def test_a_finished_run_trains_nothing(self):
        first = self.train()
        self.assertIsNotNone(first.validation_loss)
        self.assertEqual(self.train(on_step=self.fail), first)

    def test_a_file_is_a_run_too(self):
        file = pathlib.Path(self.folder) / "run.json"
        file.write_text(json.dumps(RUN))
        from_file = mics.train(file, out=self.out, set={"run.steps": 2}, progress=False)
        from_dict = mics.train(RUN, out=self.out + "2", steps=2, progress=False)
        self.assertEqual(from_file.metrics["loss"], from_dict.metrics["loss"])
        self.assertEqual(from_file.step, 2)

    def test_a_model_and_a_text_are_a_run(self):
        config, text = ROOT / "configs/gpt2-tiny.json", ROOT / "examples/corpus/sonnets-001-035.txt"
        for data in (text, [str(text)]):
            result = mics.train(config, data=data, steps=1, out=self.out, progress=False)
            self.assertEqual((result.folder, result.step), (self.out, 1))
        with self.assertRaisesRegex(mics.Error, "tokenizer.json: No such file"):
            mics.train(config, data=text, tokenizer="no/tokenizer.json", steps=1, out=self.out + "2")

    def test_ranks_give_the_loss_of_one(self):
        one = self.train(ranks=1, set={"train_batch_size": 4}, steps=2)
        two = self.train(ranks=2, nodes=2, set={"train_batch_size": 4}, steps=2, out=self.out + "2")
        self.assertAlmostEqual(one.metrics["loss"], two.metrics["loss"], places=4)
        self.assertGreater(two.metrics["sent_inter_bytes"], 0)


class Stopping(Case):
    def test_a_callback_that_raises_saves_the_step(self):
        undisturbed = []
        self.train(on_step=lambda record: undisturbed.append(record["loss"]), out=self.out + "2")
        failure, losses = ValueError("of mine"), []

        def on_step(record):
            losses.append(record["loss"])
            if record["step"] == 3:
                raise failure

        with self.assertRaises(ValueError) as raised:
            self.train(on_step=on_step)
        self.assertIs(raised.exception, failure)
        self.assertEqual(mics.Checkpoint(self.out).step, 3)
        result = self.train(on_step=lambda record: losses.append(record["loss"]))
        self.assertEqual(losses, undisturbed)
        self.assertEqual(result.step, STEPS)

    def test_stop_iteration_ends_the_run(self):
        def on_step(record):
            if record["step"] == 2:
                raise StopIteration

        result = self.train(on_step=on_step)
        self.assertEqual((result.step, result.stopped_by), (2, "on_step"))
        self.assertEqual(mics.Checkpoint(self.out).step, 2)

    def test_a_validation_that_raises(self):
        with self.assertRaises(ZeroDivisionError):
            self.train(on_validation=lambda step, loss: 1 / 0)
        self.assertEqual(mics.train(RUN, out=self.out, progress=False, ranks=2).step, STEPS)

    def test_interrupt_in_a_callback(self):
        with self.assertRaises(KeyboardInterrupt):
            self.train(on_step=lambda record: signal.raise_signal(signal.SIGINT))
        self.assertEqual(mics.Checkpoint(self.out).step, 1)
        self.assertEqual(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_interrupt_while_steps_run(self):
        text = """
trained = threading.Event()
threading.Thread(target=lambda: (trained.wait(), os.kill(os.getpid(), signal.SIGINT)), daemon=True).start()
try:
    mics.train(RUN, out=out, steps=1000000, on_step=lambda record: record["step"] == 3 and trained.set())
except KeyboardInterrupt:
    print("interrupted")
"""
        done = self.python(text)
        self.assertEqual((done.returncode, done.stdout), (0, "interrupted\n"), done.stderr)
        self.assertGreaterEqual(mics.Checkpoint(self.out).step, 3)

    def test_terminated(self):
        text = """
trained = threading.Event()
threading.Thread(target=lambda: (trained.wait(), os.kill(os.getpid(), signal.SIGTERM)), daemon=True).start()
mics.train(RUN, out=out, steps=1000000, on_step=lambda record: record["step"] == 3 and trained.set())
print("goes on")
"""
        done = self.python(text)
        self.assertEqual((done.returncode, done.stdout), (-signal.SIGTERM, ""), done.stderr)
        self.assertGreaterEqual(mics.Checkpoint(self.out).step, 3)

    def test_a_handler_of_the_program_that_raises(self):
        def ring(number, frame):
            raise TimeoutError("rings")

        before = signal.signal(signal.SIGUSR1, ring)
        try:
            with self.assertRaises(TimeoutError):
                self.train(
                    on_validation=lambda step, loss: threading.Timer(
                        0.05, os.kill, (os.getpid(), signal.SIGUSR1)
                    ).start(),
                    steps=1000000,
                )
        finally:
            signal.signal(signal.SIGUSR1, before)

    def test_a_file_that_stops(self):
        def on_step(record):
            if record["step"] == 2:
                pathlib.Path(self.out, "stop").touch()

        result = self.train(on_step=on_step, steps=1000000)
        self.assertIn("stop", result.stopped_by)
        self.assertEqual(mics.Checkpoint(self.out).step, result.step)


class Errors(Case):
    def wrong(self):
        run = copy.deepcopy(RUN)
        run["run"]["stepps"] = 5
        return run

    def test_text_is_the_programs(self):
        file = pathlib.Path(self.folder) / "run.json"
        file.write_text(json.dumps(self.wrong(), indent=2))
        with self.assertRaises(mics.Error) as of_train:
            mics.train(file, progress=False)
        with self.assertRaises(mics.Error) as of_explain:
            mics.explain(file)
        said = program("train", str(file)).stderr
        self.assertEqual(said, f"mics: error: {of_train.exception}\n")
        self.assertEqual(str(of_explain.exception), str(of_train.exception))
        self.assertEqual(of_train.exception.status, "MICS_ERR_INVALID")
        self.assertIn("run.steps", said)

    def test_a_dictionary_is_called_run(self):
        with self.assertRaises(mics.Error) as raised:
            mics.train(self.wrong(), out=self.out, progress=False)
        self.assertRegex(str(raised.exception), r"^run:\d+: run\.stepps")

    def test_a_dictionary_needs_a_folder(self):
        with self.assertRaisesRegex(mics.Error, "out="):
            mics.train(RUN)

    def test_an_argument_that_there_is_not(self):
        with self.assertRaisesRegex(TypeError, "no argument 'lr'; keys of run files are given in set"):
            self.train(lr=1e-3)

    def test_arguments_of_other_kinds(self):
        for wrong, what in (
            ({"ranks": 0}, "ranks is 0"),
            ({"ranks": 2**40}, "ranks is"),
            ({"nodes": -1}, "nodes is -1"),
            ({"out": self.out + "\0x"}, "has a NUL"),
            ({"set": ["run.seed=2"]}, "set is a dictionary"),
            ({"on_validation": "x"}, "on_validation is no function"),
        ):
            with self.assertRaisesRegex((TypeError, ValueError), what):
                self.train(**wrong)
        self.assertFalse(os.path.exists(self.out))

    def test_a_callback_that_changes_what_it_gets(self):
        self.assertEqual(self.train(on_step=lambda step: step.clear()).step, STEPS)

    def test_one_at_a_time(self):
        with self.assertRaisesRegex(mics.Error, "another mics.train"):
            self.train(on_step=lambda record: self.train(out=self.out + "2"))
        self.assertEqual(self.train().step, STEPS)

    def test_a_launcher_is_refused(self):
        environment = {**os.environ, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
        done = self.python("mics.train(RUN, out=out)", env=environment)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.splitlines()[-1], "mics.*Error: this build has no MPI.*mpirun")
        self.assertFalse(os.path.exists(self.out))
        file = pathlib.Path(self.folder) / "run.json"
        file.write_text(json.dumps(RUN))
        first = program("train", str(file), env=environment)
        self.assertEqual((first.returncode, len(first.stderr.splitlines())), (2, 1))
        second = program("train", str(file), env={**environment, "OMPI_COMM_WORLD_RANK": "1"})
        self.assertEqual((second.returncode, second.stderr), (2, ""))

    def test_lines_go_to_logging(self):
        with self.assertLogs("mics", logging.INFO) as heard:
            self.train()
        self.assertTrue(
            [line for line in heard.output if f"checkpoint of step {STEPS} written" in line], heard.output
        )


class Program(Case):
    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.folder, "run.json")
        with open(self.file, "w", encoding="utf-8") as file:
            json.dump(RUN, file)

    def test_explain(self):
        explained = mics.explain(RUN, ranks=4, nodes=2, set={"run.out": self.out})
        said = program(
            "explain", self.file, "--ranks", "4", "--nodes", "2", "--set", f"run.out={self.out}", "--json"
        )
        self.assertEqual(explained.keys(), json.loads(said.stdout).keys())
        keys = {row["key"]: row["value"] for row in explained["keys"]}
        self.assertEqual(keys["run.steps"], str(STEPS))

    def test_what_does_not_fit_is_explained(self):
        with self.assertLogs("mics", logging.ERROR):
            explained = mics.explain(self.file, set={"run.memory_limit": 1000000})
        self.assertIn("keys", explained)

    def test_plan(self):
        planned = mics.plan(self.file, "p4d.24xlarge:2", tokens=1e9)
        said = program("plan", self.file, "--cluster", "p4d.24xlarge:2", "--tokens", "1e9", "--json")
        self.assertEqual(planned, json.loads(said.stdout))
        self.assertEqual(planned["answer"]["nodes"], 2)
        with self.assertRaisesRegex(mics.Error, "no flag --tokkens; did you mean --tokens"):
            mics.plan(self.file, "p4d.24xlarge:2", tokkens=1e9)

    def test_generate(self):
        self.train()
        text = mics.generate(self.out, "-- Shall", tokens=20, seed=3)
        said = json.loads(
            program("generate", self.out, "--prompt=-- Shall", "--tokens=20", "--seed=3", "--json").stdout
        )
        self.assertEqual(text, said["texts"][0]["text"])
        self.assertEqual(mics.generate(self.out, "-- Shall", tokens=20, seed=3, samples=2)[0], text)
        with self.assertRaisesRegex(TypeError, "prompt is a text, and not list"):
            mics.generate(self.out, ["-- Shall", "I"])
        with self.assertLogs("mics", "WARNING") as lines:
            self.assertIsInstance(mics.generate(self.out, "Shall I " * 50000, tokens=2), str)
        self.assertIn("the prompt has 400000 tokens", lines.output[0])

    def test_the_command(self):
        command = os.path.join(os.path.dirname(sys.executable), "mics")
        for start in ([command], [sys.executable, "-m", "mics"]):
            done = subprocess.run([*start, "--version"], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (0, f"mics {mics.__version__}\n"))


def read_by_c(folder, unit, length, state):
    """A state of a unit as libmics reads it."""
    library, memory, checkpoint = _library.library(), ctypes.c_void_p(), ctypes.c_void_p()
    pointer, number, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
    library.mics_checkpoint_open.argtypes = [pointer, text, pointer]
    library.mics_checkpoint_read.argtypes = [pointer, text, number, text, number, number, pointer]
    library.mics_checkpoint_close.argtypes = [pointer]
    values = (ctypes.c_float * length)()
    assert library.mics_memory_open(ctypes.byref(memory)) == 0
    assert library.mics_checkpoint_open(memory, folder.encode(), ctypes.byref(checkpoint)) == 0
    assert (
        library.mics_checkpoint_read(checkpoint, unit.encode(), length, state.encode(), 0, length, values) == 0
    )
    library.mics_checkpoint_close(checkpoint)
    assert library.mics_memory_close(memory) == 0
    return list(values)


def bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000))[0]


class Arrays(Case):
    def test_metrics(self):
        self.train()
        lines = [line for line in lines_of(self.out) if "loss" in line]
        columns = mics.metrics(self.out)
        self.assertEqual(columns.keys(), lines[0].keys())
        for name in ("step", "loss", "tokens", "sent_intra_bytes"):
            self.assertEqual(columns[name].tolist(), [line[name] for line in lines])
        self.assertTrue(all(value != value for value in columns["mfu"].tolist()))
        validations = mics.metrics(self.out, validation=True)
        self.assertEqual(validations["step"].tolist(), [0, STEPS])
        with open(os.path.join(self.out, "metrics.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"step": 7, "lo')
        self.assertEqual(mics.metrics(self.out)["step"].tolist(), columns["step"].tolist())

    def test_a_checkpoint_is_what_c_reads(self):
        # Three ranks keep uneven shards.
        self.train(ranks=3, set={"zero_optimization.stage": 3})
        checkpoint = mics.Checkpoint(self.out)
        self.assertEqual(len(checkpoint.manifest["files"]), 3)
        self.assertEqual((checkpoint.step, checkpoint.config["model_type"]), (STEPS, "gpt2"))
        self.assertEqual(
            checkpoint.units, {unit["name"]: unit["elems"] for unit in checkpoint.manifest["units"]}
        )
        for unit, length in checkpoint.units.items():
            self.assertEqual(checkpoint.states(unit), ["param", "exp_avg", "exp_avg_sq"])
            for state in checkpoint.states(unit):
                self.assertEqual(
                    checkpoint.read(unit, state).tolist(), read_by_c(checkpoint.folder, unit, length, state)
                )
        with self.assertRaises(KeyError):
            checkpoint.read("h.99")

    def test_the_newest_counts(self):
        self.train(set={"run.checkpoint_every": 2, "run.keep_checkpoints": 3})
        self.assertEqual(mics.Checkpoint(self.out).step, STEPS)
        self.assertEqual(mics.Checkpoint(os.path.join(self.out, "checkpoints/step-00000002")).step, 2)
        os.remove(os.path.join(self.out, f"checkpoints/step-{STEPS:08}/manifest.json"))
        self.assertEqual(mics.Checkpoint(self.out).step, 4)
        with self.assertRaisesRegex(mics.Error, "no checkpoint"):
            mics.Checkpoint(self.folder)

    def test_weights(self):
        self.train()
        weights = mics.weights(self.out)
        table = weights["transformer.wte.weight"]
        self.assertEqual(tuple(table.shape), (256, 128))
        flat = [value for row in table.tolist() for value in row]
        self.assertEqual(flat, mics.Checkpoint(self.out).read("embed").tolist()[: len(flat)])
        for dtype, rounded in (
            ("bf16", bf16),
            ("fp16", lambda value: struct.unpack("<e", struct.pack("<e", value))[0]),
        ):
            folder = os.path.join(self.folder, dtype)
            self.assertEqual(
                program(
                    "convert", self.out, folder, "--dtype", dtype, "--max-shard-bytes", "100000"
                ).returncode,
                0,
            )
            narrow = mics.weights(folder)
            self.assertEqual(narrow.keys(), weights.keys())
            found = [value for row in narrow["transformer.wte.weight"].tolist() for value in row]
            self.assertEqual(found, [rounded(value) for value in flat])

    def test_no_safetensors(self):
        pathlib.Path(self.folder, "model.safetensors").write_bytes(b"nothing")
        with self.assertRaisesRegex(mics.Error, "no .safetensors file"):
            mics.weights(self.folder)


class Shown(Case):
    def test_a_bar_in_a_notebook(self):
        display = mock.MagicMock()
        display.HTML = lambda text: text
        shell = types.SimpleNamespace(kernel=object())
        notebook = types.ModuleType("IPython")
        notebook.get_ipython, notebook.display = (lambda: shell), display
        with mock.patch.dict(sys.modules, {"IPython": notebook, "IPython.display": display}):
            self.train(progress=None)
        shown = [call.args[0] for call in display.display.return_value.update.call_args_list]
        self.assertIn("value='1.0000'", shown[-1])
        self.assertIn(f"step {STEPS}/{STEPS}", shown[-1])

    def test_lines_elsewhere(self):
        done = self.python("mics.train(RUN, out=out, progress=True)")
        self.assertIn(f"step {STEPS}/{STEPS}  loss ", done.stderr)
        silent = self.python("mics.train(RUN, out=out + '2')")
        self.assertEqual((silent.returncode, silent.stdout, silent.stderr), (0, "", ""))

    def test_numbers_that_are_none(self):
        record = {"step": 1, "loss": None, "tokens_per_s": None, "step_ms": None}
        self.assertEqual(_progress.step_text(record, 2), "step 1/2")


class Beside(Case):
    """What else may be in the process."""

    def test_torch(self):
        text = """
{imports}
def multiply():
    left = torch.randn(64, 64, requires_grad=True)
    right = torch.nn.functional.conv2d(torch.randn(1, 3, 16, 16), torch.randn(4, 3, 3, 3))
    (right.sum() + (left @ left).sum()).backward()
    return left.grad.isfinite().all().item()
losses = []
before = multiply()
mics.train(RUN, out=out + {out!r}, ranks=2, on_step=lambda record: losses.append((record["loss"], multiply())))
print(before and all(fine for _, fine in losses), losses[-1][0])
"""
        if self.python("import torch").returncode != 0:
            self.skipTest("no torch")
        loss = self.train().metrics["loss"]
        for out, imports in (
            ("1", "import torch"),
            ("2", "from mics import _library; _library.library(); import torch"),
        ):
            done = self.python(text.format(imports=imports, out=out))
            self.assertEqual(done.stdout, f"True {loss}\n", done.stderr)

    def test_the_plugin_for_gpus(self):
        if "MICS_CUDA_PLUGIN" not in os.environ:
            self.skipTest("MICS_CUDA_PLUGIN names none")
        result = self.train(set={"run.device": "cuda"}, steps=2)
        self.assertEqual(result.step, 2)

    def test_nothing_is_left_in_the_environment(self):
        done = self.python(
            "before = dict(os.environ); mics.train(RUN, out=out, steps=1); print(before == dict(os.environ))"
        )
        self.assertEqual(done.stdout, "True\n", done.stderr)


if __name__ == "__main__":
    unittest.main()

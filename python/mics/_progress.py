# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""How far a training is: a bar in a notebook, a line that is written over on a terminal, else lines."""

import html
import sys
import time


def _in_notebook():
    # Who has not imported IPython is in none.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def _clock(seconds):
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def step_text(record, steps):
    """What is shown of a step; numbers that are not finite are None in a record."""
    parts = [f"step {record['step']}/{steps}"]
    if record["loss"] is not None:
        parts.append(f"loss {record['loss']:.4f}")
    if record["tokens_per_s"] is not None:
        parts.append(f"{record['tokens_per_s'] / 1000:.1f}k tok/s")
    if record["step_ms"] is not None:
        parts.append(f"{_clock((steps - record['step']) * record['step_ms'] / 1000)} left")
    return "  ".join(parts)


class _Notebook:
    every_s = 0.25

    def __init__(self):
        from IPython import display

        self.display = display
        self.handle = display.display(display.HTML(""), display_id=True)

    def show(self, share, text):
        bar = f"<progress value='{share:.4f}' max='1' style='width: 20em'></progress>"
        self.handle.update(self.display.HTML(f"{bar} <code>{html.escape(text)}</code>"))

    def close(self):
        pass


class _Terminal:
    every_s = 0.25
    shown = False

    def show(self, _share, text):
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
        self.shown = True

    def close(self):
        if self.shown:
            sys.stderr.write("\n")


class _Lines:
    every_s = 5

    def show(self, _share, text):
        print(text, file=sys.stderr, flush=True)

    def close(self):
        pass


class _Nothing:
    every_s = float("inf")

    def show(self, share, text):
        pass

    def close(self):
        pass


def _choose(wanted):
    if wanted is False:
        return _Nothing()
    if _in_notebook():
        return _Notebook()
    if sys.stderr is not None and sys.stderr.isatty():
        return _Terminal()
    return _Lines() if wanted else _Nothing()


class Progress:
    """wanted: False shows nothing; None only where somebody looks, in a notebook or on a terminal."""

    def __init__(self, wanted):
        self.display = _choose(wanted)
        self.next = 0
        self.shown = self.newest_step = None

    def is_due(self):
        return time.monotonic() >= self.next

    def _show(self, shown):
        if self.is_due() or shown[0] == 1:
            self.next = time.monotonic() + self.display.every_s
            self.shown = shown
            self.display.show(*shown)

    def step(self, record, steps):
        self.newest_step = (record["step"] / steps, step_text(record, steps))
        self._show(self.newest_step)

    def work(self, what, done, total):
        share = done / total if total else 1
        self._show((share, f"{what}: {100 * share:.0f} %"))

    def close(self):
        """What stays in sight is a step, not that it was saved."""
        if self.newest_step is not None and self.newest_step != self.shown:
            self.display.show(*self.newest_step)
        self.display.close()

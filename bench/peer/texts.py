#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Writes JSON Lines of text that does not repeat, to standard output: words of made-up syllables by Zipf's law, in random
order, with punctuation and some numbers, from a fixed seed.

    texts.py BYTES
"""

import itertools
import json
import random
import sys

WORDS = 200_000
ONSETS = "b c d f g h k l m n p r s t v w z br ch cl cr dr fl gr pl pr qu sh st str th tr".split()
VOWELS = "a e i o u a e i o ai ea ee ou y".split()
CODAS = ["", "", "", "n", "r", "s", "t", "l", "nd", "ng", "st", "rd", "ck", "m"]


def make_words(rng):
    words = {}
    while len(words) < WORDS:
        # The most frequent words are short.
        syllables = 1 + min(3, int(rng.random() * (1 + len(words) ** 0.12)))
        word = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(syllables))
        words.setdefault(word, None)
    return list(words)


def main():
    rng = random.Random(20)
    words = make_words(rng)
    weights = list(itertools.accumulate(1 / (rank + 2.7) for rank in range(WORDS)))
    wanted, written, number = int(sys.argv[1]), 0, 0
    while written < wanted:
        picks = rng.choices(words, cum_weights=weights, k=max(20, int(rng.lognormvariate(5.5, 1))))
        text, start = [], True
        for word in picks:
            draw = rng.random()
            text.append(word.capitalize() if start else str(rng.randrange(2100)) if draw > 0.98 else word)
            start = draw < 0.06
            if draw < 0.06:
                text[-1] += ".\n\n" if draw < 0.006 else "."
            elif draw < 0.11:
                text[-1] += ","
        line = json.dumps({"id": number, "text": " ".join(text).replace("\n ", "\n")}) + "\n"
        sys.stdout.write(line)
        written += len(line)
        number += 1


main()

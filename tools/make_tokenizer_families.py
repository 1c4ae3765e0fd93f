#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/tokenizers/: a small tokenizer in each family's pipeline, and what Hugging Face's
library makes of 1 MB of hostile text.

    pip install tokenizers==0.23.3 && tools/make_tokenizer_families.py tests/golden/tokenizers

NAME.json is a tokenizer.json. NAME.hashes has a line for each of the 4096 texts of hostile() below: the
FNV-1a hash (32 bits) of the ids, as little-endian int32, that Tokenizer.encode gives. The texts are made again
by tests/io/data/hostile.h. Texts with bytes that are no UTF-8, which the library cannot take, are encoded as
mics does: each longest run of such bytes on its own, and nothing is prepended behind it.
splits.json and normals.json are cases of single pre-tokenizers and normalizers. The tests need no Python.
"""

import functools
import json
import os
import sys

import pydoc_data.topics
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = 4096
MASK = (1 << 64) - 1

# Characters that were assigned before Unicode 9, so that libraries of different age agree on them.
RANGES = [
    (0x00, 0x1F), (0x20, 0x7E), (0x7F, 0x9F), (0xA0, 0xFF), (0x100, 0x17F), (0x180, 0x24F), (0x250, 0x2AF), (0x300, 0x34E),
    (0x391, 0x3A1), (0x3A3, 0x3CE), (0x400, 0x481), (0x5B0, 0x5BD), (0x5D0, 0x5EA), (0x621, 0x64A), (0x64B, 0x652),
    (0x660, 0x669), (0x905, 0x939), (0x93E, 0x94D), (0xE01, 0xE3A), (0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2),
    (0x1E00, 0x1EFF), (0x2000, 0x200F), (0x2010, 0x2027), (0x2028, 0x202F), (0x2030, 0x205E), (0x2080, 0x208E),
    (0x20A0, 0x20B9), (0x2100, 0x214F), (0x2150, 0x2188), (0x2190, 0x22FF), (0x2460, 0x24FF), (0x2500, 0x259F),
    (0x2600, 0x26FF), (0x2701, 0x27BE), (0x3000, 0x303E), (0x3041, 0x3096), (0x3099, 0x309F), (0x30A0, 0x30FF),
    (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xE000, 0xE00F), (0xF900, 0xFA0D), (0xFB00, 0xFB06), (0xFE00, 0xFE0F),
    (0xFE70, 0xFE74), (0xFF01, 0xFF5E), (0xFF65, 0xFF9F), (0xFFFC, 0xFFFD), (0x1D400, 0x1D454), (0x1F1E6, 0x1F1FF),
    (0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x20000, 0x20050), (0xE0020, 0xE007F),
]
FRAGMENTS = [
    "the", " the", " and", "ing", " of", "'s", "'S", "'t", "'re", "'VE", "'m", "'ll", "'d", "\u2019s", "'\u017f", " ", "  ",
    "   ", "\n", "\r\n", "\r", "\n\n", "\t", " \n ", "0", "42", " 1999", "3.14", "1,000", "!", "?!", "...", " -- ", "(", ")",
    "_", "snake_case", "CamelCase", "http://a.b/c?d=e", "<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<unk>", "<0x0A>",
    "e\u0301", "A\u030a", "\u0130", "\u0131", "\ufb01", "\u00df", "\u1e9e", "\u03a3\u03c2", "\u00bd", "\u2167", "\u2581",
    "\u2581\u2581", "\u4f60\u597d", "\u65e5\u672c\u8a9e", "\ud55c\uad6d\uc5b4", "\u0645\u0631\u062d\u0628\u0627",
    "\u05e9\u05dc\u05d5\u05dd", "\u200f\u202e", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e44\u0e17\u0e22",
    "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\U0001f44d\U0001f3fd",
    "a\u0323\u0307", "a\u0307\u0323", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0344", "\u2126", "\ufdfa", "\u3000", "\u00a0",
    "\u2028", "\u0085", "\ufeff", "\x00", "\x1b[0m", "Yesterday", "yesterday", " [mask] ", "[mask]", "day", "{{", "}}",
]
INVALID = [b"\x80", b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf"]


class Random:
    """SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""

    def __init__(self, seed):
        self.state = seed

    def below(self, count):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % count


def hostile(index):
    """Text number `index`; every fourth has bytes that are no UTF-8."""
    random = Random(index)
    length = 32 + random.below(480)
    out = b""
    while len(out) < length:
        kind = random.below(8)
        if kind <= 3:
            out += FRAGMENTS[random.below(len(FRAGMENTS))].encode()
        elif kind == 4:
            low, high = RANGES[random.below(len(RANGES))]
            out += chr(low + random.below(high - low + 1)).encode()
        elif kind == 5:
            for _ in range(1 + random.below(8)):
                out += bytes([97 + random.below(26)])
        elif kind == 6:
            low, high = RANGES[random.below(len(RANGES))]
            for _ in range(1 + random.below(6)):
                out += chr(low + random.below(high - low + 1)).encode()
        elif index % 4 == 3:
            out += INVALID[random.below(len(INVALID))]
        else:
            out += b" " * random.below(5)
    # Behind such bytes nothing is prepended; added tokens, behind which something is, stay out of these texts.
    return out.replace(b"<", b"(").replace(b"[", b"(").replace(b"yesterday", b"today") if index % 4 == 3 else out


def runs(data):
    """The longest runs that are UTF-8, and those that are not."""
    text = data.decode("utf-8", "surrogateescape")
    begin = 0
    while begin < len(text):
        bad = 0xDC80 <= ord(text[begin]) <= 0xDCFF
        end = begin
        while end < len(text) and (0xDC80 <= ord(text[end]) <= 0xDCFF) == bad:
            end += 1
        yield bad, text[begin:end].encode("utf-8", "surrogateescape")
        begin = end


def letters():
    """GPT-2's letter of each byte."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


LETTERS = letters()


def without_prefix(tree):
    """The same tokenizer, but nothing is prepended."""
    tree = json.loads(json.dumps(tree))
    normalizer = tree["normalizer"]
    if normalizer and normalizer["type"] == "Sequence":
        normalizer["normalizers"] = [n for n in normalizer["normalizers"] if n["type"] != "Prepend"]
    pre = tree["pre_tokenizer"]
    if pre and pre["type"] == "Metaspace":
        pre["prepend_scheme"] = "never"
    return Tokenizer.from_str(json.dumps(tree))


def encode(tree, tokenizer, behind, data):
    ids, first = [], True
    for bad, run in runs(data):
        if not bad:
            ids += (tokenizer if first else behind).encode(run.decode(), add_special_tokens=False).ids
        elif tree["model"]["type"] == "WordPiece":
            ids.append(tree["model"]["vocab"][tree["model"]["unk_token"]])
        elif tree["model"]["byte_fallback"]:
            ids += [tree["model"]["vocab"]["<0x%02X>" % byte] for byte in run]
        elif tree["model"]["unk_token"]:
            ids += [tree["model"]["vocab"][tree["model"]["unk_token"]]] * len(run)
        else:
            ids += [token.id for token in tokenizer.model.tokenize("".join(LETTERS[byte] for byte in run))]
        first = False
    return ids


def fnv(ids):
    value = 0x811C9DC5
    for byte in b"".join(i.to_bytes(4, "little") for i in ids):
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def write(folder, name, tree):
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
    tokenizer, behind = Tokenizer.from_str(text), without_prefix(tree)
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
        file.write(text)
    with open(os.path.join(folder, name + ".hashes"), "w", encoding="utf-8") as file:
        for index in range(TEXTS):
            file.write("%08x\n" % fnv(encode(tree, tokenizer, behind, hostile(index))))


def corpus():
    topics = pydoc_data.topics.topics
    english = [topics[key] for key in sorted(topics)][:40]
    # Other texts than those of the test, without special tokens in them, and without NUL: mics reads no NUL in JSON.
    foreign = [hostile(1 << 20 | i * 4).decode().replace("<", "(").replace("\0", "") for i in range(400)]
    return english + foreign


def train(model, pre, vocab, specials, normalizer=None, alphabet=()):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False, special_tokens=specials, initial_alphabet=list(alphabet),
                                  limit_alphabet=400)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


GPT2_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = GPT2_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level(prefix=False, regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def tree_of(tokenizer):
    return json.loads(tokenizer.to_str())


def gpt2():
    tokenizer = train(models.BPE(), byte_level(), 1000, ["<|endoftext|>"], alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tree_of(tokenizer)


def qwen2():
    split = pre_tokenizers.Split(Regex(QWEN2), behavior="isolated")
    pre = pre_tokenizers.Sequence([split, byte_level(regex=False)])
    tokenizer = train(models.BPE(), pre, 1200, [], normalizers.NFC(), pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.decoder = decoders.ByteLevel()
    return tree_of(tokenizer)


def llama3():
    split = pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated")
    pre = pre_tokenizers.Sequence([split, byte_level(regex=False)])
    tokenizer = train(models.BPE(ignore_merges=True), pre, 1200, [], alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>"])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B",
                                             special_tokens=[("<|begin_of_text|>", begin)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    tokenizer.decoder = decoders.ByteLevel()
    tree = tree_of(tokenizer)
    # A token that no merge makes: only ignore_merges finds it.
    tree["model"]["merges"] = [merge for merge in tree["model"]["merges"] if "".join(merge) not in ("\u0120the", "ing")]
    return tree


def neox():
    tokenizer = train(models.BPE(), byte_level(), 1100, ["<|endoftext|>", "<|padding|>"], normalizers.NFC(),
                      pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tree_of(tokenizer)


@functools.cache
def chars_json():
    """Llama 2's model: trained on words, as SentencePiece does."""
    fallback = ["<0x%02X>" % byte for byte in range(256)]
    tokenizer = train(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), pre_tokenizers.Metaspace(), 1600,
                      ["<unk>", "<s>", "</s>"] + fallback)
    tree = tree_of(tokenizer)
    tree["added_tokens"] = tree["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(tree))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer.to_str()


def by_chars():
    return Tokenizer.from_str(chars_json())


def llama2():
    tokenizer = by_chars()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tree = tree_of(tokenizer)
    tree["pre_tokenizer"] = None
    return tree


def mistral():
    tokenizer = by_chars()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return tree_of(tokenizer)


def metaspace():
    """As Llama 2, but split at spaces."""
    tokenizer = by_chars()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    tokenizer.decoder = decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()])
    return tree_of(tokenizer)


def bert():
    """BERT's, uncased."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=1500, show_progress=False, special_tokens=specials, limit_alphabet=300)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                             special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tree_of(tokenizer)


def bert_cased():
    """The same tables with other settings, and the older post-processor."""
    tree = bert()
    tree["normalizer"] |= {"lowercase": False, "strip_accents": None, "handle_chinese_chars": False}
    tree["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    tree["decoder"]["cleanup"] = False
    return tree


def roberta():
    tokenizer = train(models.BPE(), byte_level(), 1000, ["<s>", "<pad>", "</s>", "<unk>"], alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    return tree_of(tokenizer)


def flags():
    """Added tokens of all kinds, behind normalizers; a model with unknown characters."""
    # Strip would treat the ends of runs that are no UTF-8 in its own way.
    normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                       normalizers.Replace("3.14", "pi"), normalizers.Replace(Regex(r"\p{Sc}+"), "$")])
    pre = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous"),
                                   pre_tokenizers.Digits(individual_digits=False)])
    tokenizer = train(models.BPE(unk_token="[unk]"), pre, 800, ["[unk]"], normalizer)
    tokenizer.add_tokens([
        AddedToken("[mask]", lstrip=True, rstrip=True, normalized=False),
        AddedToken("day", single_word=True, normalized=True),
        AddedToken("YesterDay", normalized=True, rstrip=True),
        AddedToken("<s>", lstrip=True, normalized=False, special=True),
        AddedToken("</s>", rstrip=True, normalized=False, special=True),
        AddedToken("the", single_word=True, normalized=False, lstrip=True),
        AddedToken("\u4f60\u597d", normalized=False),
    ])
    return tree_of(tokenizer)


def splits(folder):
    """Pieces of single pre-tokenizers."""
    cases = []
    texts = ["", " ", "the-final--countdown", "-", "--", "a-", "-a", "a b  c ", " lead", "x1y22z333", "a.b, c!!d ", "\u00e9\u4f60 \u597d",
             "12 34", "\n\nx \n", "<<>>", "a\u0301 \u0661\u0662 \u00bd_x"]
    behaviors = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
    patterns = [("String", "-"), ("String", " "), ("String", "."), ("String", "--"), ("Regex", "-"), ("Regex", r"\s+"), ("Regex", r"\p{L}+"),
                ("Regex", r"\d{1,2}"), ("Regex", r"x*"), ("Regex", r"(?=\p{L})"), ("Regex", r"[a-w&&[^aeiou]]"), ("Regex", r"\d{1,2}+"),
                ("Regex", r"(?i)STRASSE|X"), ("Regex", r"(?m:.)\z"), ("Regex", r"\h"), ("Regex", r"\w+|[^\w\s]"), ("Regex", r"y{,2}1?")]
    for kind, pattern in patterns:
        for behavior in behaviors:
            for invert in (False, True):
                split = pre_tokenizers.Split(pattern if kind == "String" else Regex(pattern), behavior, invert)
                for text in texts:
                    pieces = [piece for piece, _ in split.pre_tokenize_str(text)]
                    cases.append([kind, pattern, behaviors_json(behavior), invert, text, pieces])
    for name, pre in [("Whitespace", pre_tokenizers.Whitespace()), ("WhitespaceSplit", pre_tokenizers.WhitespaceSplit()),
                      ("Digits", pre_tokenizers.Digits(False)), ("IndividualDigits", pre_tokenizers.Digits(True))]:
        for text in texts:
            cases.append([name, "", "", False, text, [piece for piece, _ in pre.pre_tokenize_str(text)]])
    for behavior in behaviors:
        for text in texts:
            pieces = [piece for piece, _ in pre_tokenizers.Punctuation(behavior).pre_tokenize_str(text)]
            cases.append(["Punctuation", "", behaviors_json(behavior), False, text, pieces])
    dump(folder, "splits.json", cases)


def behaviors_json(name):
    return "".join(word.capitalize() for word in name.split("_"))


def normals(folder):
    """What single normalizers make of a text."""
    kinds = [("NFC", normalizers.NFC()), ("NFD", normalizers.NFD()), ("NFKC", normalizers.NFKC()), ("NFKD", normalizers.NFKD()),
             ("Lowercase", normalizers.Lowercase()), ("StripAccents", normalizers.StripAccents()),
             ("Strip", normalizers.Strip()), ("StripLeft", normalizers.Strip(True, False)),
             ("StripRight", normalizers.Strip(False, True)), ("Prepend", normalizers.Prepend("> ")),
             ("ReplaceText", normalizers.Replace("  ", "\u2581")), ("ReplacePattern", normalizers.Replace(Regex(r"\s*\d*"), "#"))]
    texts = [hostile(i * 4).decode() for i in range(5)] + ["", " ", "  a  ", "\u00a0x\u2003", "a" + "\u0323\u0307" * 40]
    cases = [[name, text.encode().hex(), kind.normalize_str(text).encode().hex()] for name, kind in kinds for text in texts]
    dump(folder, "normals.json", cases)


def dump(folder, name, cases):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for family in (gpt2, qwen2, llama3, neox, llama2, mistral, metaspace, flags, bert, bert_cased, roberta):
        write(folder, family.__name__, family())
    splits(folder)
    normals(folder)


if __name__ == "__main__":
    main()

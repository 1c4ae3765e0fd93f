// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A block is a row of chunks, each by itself: a head, zeros to a multiple of 8 bytes, words of 16
// bits, and the last states of rANS (Duda, arXiv:1311.2540). Number i is in state i % STATES; its
// frequencies are those of its old exponent's class.
//
// A change is now - old modulo 2^16: units in the last place while the sign stays. A symbol is a
// range of them, the place in it even bits. 0 is an escape: the next word is the new number. 1 is
// no change. Growing and shrinking numbers take turns: 8 of one change, 4 to each power of two.
#include "delta.h"
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are sent as they lie in memory");

enum { CLASSES = 8, SYMBOLS = 58, ESCAPES = INT16_MIN };
enum { REACH = 256, OTHER = 2 * REACH + 1 }; // changes from -REACH to REACH have a symbol
enum {
    CHUNK = 1 << 17, // old and new numbers stay in a core's L2 cache
    BITS = 11,       // of a frequency; a word has these and the 5 of a place
    TOTAL = 1 << BITS,
    STATES = 4,    // several, to keep a CPU's pipelines busy
    GROUP = 32,    // numbers whose changes are found at once
    LOW = 1 << 16, // states are in [LOW, LOW << 16) between numbers
    SHORT_HEAD = 8 // bytes
};

// Of a chunk. It ends behind SHORT_HEAD if no number changed or all follow as they are (no
// classes), else behind freq[classes - 1].
typedef struct head {
    uint32_t bytes; // of the chunk
    uint8_t classes, zero_words, unused[2];
    uint8_t lowest[CLASSES];         // exponent of a class, falling; the last class has all below
    uint16_t freq[CLASSES][SYMBOLS]; // a class's come to TOTAL; changes without one escape
} head;

typedef struct symbol {
    uint16_t freq, start; // start: the frequencies of those before it
    int16_t first;        // of its changes; or ESCAPES
    uint8_t bits, mask;   // of a place
} symbol;

typedef struct divisor {
    uint64_t inverse; // of a symbol's freq, for encoding
    uint32_t limit;   // states from it on give away a word first
    uint32_t rest;    // TOTAL - freq
} divisor;

typedef struct table {
    uint8_t by_state[TOTAL]; // by a state's low bits
    symbol symbols[SYMBOLS];
    divisor divisors[SYMBOLS];
} table;

typedef struct coder {
    table tables[CLASSES];
    const table *by_top[512];     // by sign and exponent
    uint8_t by_change[OTHER + 1]; // symbols, by change_index
} coder;

static const uint32_t first_states[STATES] = {LOW, LOW, LOW, LOW};

static size_t head_bytes(const head *h)
{
    return offsetof(head, freq) + h->classes * sizeof h->freq[0];
}

static inline uint16_t change_index(uint16_t old, uint16_t now)
{
    const uint16_t index = (uint16_t)(now - old + REACH);
    return index < OTHER ? index : OTHER;
}

static symbol symbol_of(int32_t number, uint32_t freq, uint32_t start)
{
    const int32_t range = number / 2 - 1, bits = range < 8 ? 0 : range / 4 - 1;
    const int32_t from = range < 8 ? range : (4 + range % 4) << bits;
    const int32_t first = number % 2 == 0 ? from + 1 : -from - (1 << bits);
    return (symbol){.freq = (uint16_t)freq,
                    .start = (uint16_t)start,
                    .first = (int16_t)(number == 0 ? ESCAPES : first),
                    .bits = (uint8_t)bits,
                    .mask = (uint8_t)((1 << bits) - 1)};
}

// False if the frequencies do not come to TOTAL.
static bool set_table(const uint16_t freq[SYMBOLS], table *t)
{
    uint32_t start = 0;
    for (int32_t number = 0; number < SYMBOLS; number++) {
        const uint32_t f = freq[number];
        if (f > TOTAL - start)
            return false;
        const symbol s = f > 0 ? symbol_of(number, f, start) : symbol_of(0, freq[0], 0);
        t->symbols[number] = s;
        if (s.freq > 0)
            t->divisors[number] =
                (divisor){((1ULL << (32 + BITS)) + s.freq - 1) / s.freq,
                          (uint32_t)s.freq << (32 - BITS - s.bits), TOTAL - (uint32_t)s.freq};
        memset(t->by_state + start, number, f);
        start += f;
    }
    return start == TOTAL;
}

static bool set_tables(coder *c, const head *h)
{
    int32_t k = 0;
    for (int32_t exponent = 255; exponent >= 0; exponent--) {
        while (k < h->classes - 1 && exponent < h->lowest[k])
            k++;
        c->by_top[exponent] = c->by_top[256 + exponent] = &c->tables[k];
    }
    for (k = 0; k < h->classes && set_table(h->freq[k], &c->tables[k]);)
        k++;
    return k > 0 && k == h->classes;
}

// The largest takes what rounding leaves. Two symbols have some in any case, so that none has all
// of TOTAL, whose limit would be 2^32.
static void choose_frequencies(const uint32_t *counts, uint32_t total, uint16_t freq[SYMBOLS])
{
    int32_t left = TOTAL, largest = 1;
    for (int32_t number = 0; number < SYMBOLS; number++) {
        const uint32_t share = total > 0 ? (counts[number] * TOTAL + total / 2) / total : 0;
        freq[number] = (uint16_t)(share == 0 && (counts[number] > 0 || number < 2) ? 1 : share);
        left -= freq[number];
        largest = freq[number] > freq[largest] ? number : largest;
    }
    freq[largest] = (uint16_t)(freq[largest] + left);
}

// Classes but the last have 1 / 64 of the sample or more: a table must be worth its bytes.
static void choose_classes(uint16_t counts[256][SYMBOLS], uint32_t total, int64_t most, head *h)
{
    uint32_t sums[SYMBOLS] = {0}, inside = 0;
    for (int32_t exponent = 255; exponent >= 0; exponent--) {
        for (int32_t number = 0; number < SYMBOLS; number++) {
            sums[number] += counts[exponent][number];
            inside += counts[exponent][number];
        }
        if (exponent > 0 && (inside <= total / 64 || h->classes == most - 1))
            continue;
        h->lowest[h->classes] = (uint8_t)exponent;
        choose_frequencies(sums, inside, h->freq[h->classes++]);
        memset(sums, 0, sizeof sums);
        inside = 0;
    }
}

// Sets by_change, and counts a sample of many numbers: stretches long enough for a CPU to prefetch,
// at multiples of a prime, as columns of a matrix may differ.
static head choose(coder *c, const uint16_t *old, const uint16_t *now, int64_t elems)
{
    const int64_t stretch = 512, stride = elems <= 1 << 14 ? stretch : 3671;
    uint16_t counts[256][SYMBOLS] = {{0}};
    uint32_t total = 0;
    head h = {0};
    c->by_change[OTHER] = 0;
    for (int32_t number = 1; number < SYMBOLS; number++)
        memset(c->by_change + REACH + symbol_of(number, 0, 0).first, number,
               1U << symbol_of(number, 0, 0).bits);
    for (int64_t i = 0; i < elems; i += stride)
        for (int64_t k = i; k < elems && k < i + stretch; k++, total++)
            counts[old[k] >> 7 & 255][c->by_change[change_index(old[k], now[k])]]++;
    choose_classes(counts, total, elems / 1024 < CLASSES ? elems / 1024 + 1 : CLASSES, &h);
    return h;
}

// Writes two words at most, downwards. Returns where the last one is.
static inline uint16_t *encode(const coder *c, uint32_t *state, uint16_t old, uint16_t now,
                               uint32_t index, uint16_t *last)
{
    const table *t = c->by_top[old >> 7];
    const symbol *s = &t->symbols[c->by_change[index]];
    const divisor *d = &t->divisors[c->by_change[index]];
    uint32_t x = *state;
    if (s->first == ESCAPES)
        *--last = now;
    last[-1] = (uint16_t)x;
    const uint32_t full = x >= d->limit; // not a branch: nobody could predict it
    last -= full;
    x ^= (x ^ x >> 16) & -full;
    x = x << s->bits | ((index - (uint32_t)(REACH + s->first)) & s->mask);
    // x < freq << (32 - BITS), and freq < TOTAL: the quotient is exact, and nothing overflows.
    *state = x + s->start + (uint32_t)(x * d->inverse >> (32 + BITS)) * d->rest;
    return last;
}

static uint16_t *encode_group(const coder *c, uint32_t states[STATES], const uint16_t *old,
                              const uint16_t *now, uint16_t *last)
{
    uint16_t index[GROUP];
    for (int32_t i = 0; i < GROUP; i++)
        index[i] = change_index(old[i], now[i]);
    for (int32_t i = GROUP - STATES; i >= 0; i -= STATES)
        for (int32_t k = STATES - 1; k >= 0; k--)
            last = encode(c, &states[k], old[i + k], now[i + k], index[i + k], last);
    return last;
}

// From the last number to the first, and from the end of the memory. Returns the chunk's bytes; 0
// where it may not fit into `bound`.
static size_t encode_changes(const uint16_t *old, const uint16_t *now, int64_t elems, uint16_t *to,
                             size_t bound)
{
    uint32_t states[STATES];
    int64_t i = elems;
    coder c;
    memcpy(states, first_states, sizeof states);
    head h = choose(&c, old, now, elems);
    const size_t words_at = head_bytes(&h);
    if (bound < words_at + sizeof states + 4 * GROUP || !set_tables(&c, &h))
        return 0;
    uint16_t *const words = to + words_at / 2, *const end = to + (bound - sizeof states) / 2,
                    *last = end;
    for (; i % GROUP != 0; i--)
        last = encode(&c, &states[(i - 1) % STATES], old[i - 1], now[i - 1],
                      change_index(old[i - 1], now[i - 1]), last);
    for (; i > 0 && last - words >= 2 * GROUP; i -= GROUP)
        last = encode_group(&c, states, old + i - GROUP, now + i - GROUP, last);
    if (i > 0)
        return 0;
    memcpy(end, states, sizeof states);
    const size_t behind = (size_t)(end - last) * 2 + sizeof states;
    h.zero_words = -(words_at + behind) % 8 / 2;
    h.bytes = (uint32_t)(words_at + 2U * h.zero_words + behind);
    memmove(words + h.zero_words, last, behind);
    memset(words, 0, 2U * h.zero_words);
    memcpy(to, &h, words_at);
    return h.bytes;
}

static size_t encode_chunk(const uint16_t *old, const uint16_t *now, int64_t elems, uint16_t *to)
{
    const size_t numbers = (size_t)elems * sizeof *now, bound = mics_delta_bound(elems);
    const bool same = memcmp(old, now, numbers) == 0;
    const size_t used = same ? 0 : encode_changes(old, now, elems, to, bound);
    if (used > 0)
        return used;
    const head h = {.bytes = same ? SHORT_HEAD : (uint32_t)bound};
    memset(to + h.bytes / 2 - 4, 0, 8);
    memcpy(to, &h, SHORT_HEAD);
    memcpy(to + SHORT_HEAD / 2, now, same ? 0 : numbers);
    return h.bytes;
}

size_t mics_delta_bound(int64_t elems)
{
    const size_t chunks = ((size_t)elems + CHUNK - 1) / CHUNK;
    return chunks * SHORT_HEAD + ((size_t)elems * sizeof(uint16_t) + 7) / 8 * 8;
}

size_t mics_delta_encode(const uint16_t *old, const uint16_t *now, int64_t elems, void *coded)
{
    size_t used = 0;
    for (int64_t i = 0; i < elems; i += CHUNK) {
        const int64_t count = elems - i < CHUNK ? elems - i : CHUNK;
        used += encode_chunk(old + i, now + i, count, (uint16_t *)coded + used / 2);
    }
    return used;
}

// Reads two words at most. Returns where the next one is.
static inline const uint16_t *decode(const coder *c, uint32_t *state, uint16_t *value,
                                     const uint16_t *from)
{
    const table *t = c->by_top[*value >> 7];
    const uint32_t slot = *state % TOTAL;
    const symbol *s = &t->symbols[t->by_state[slot]];
    uint32_t x = s->freq * (*state >> BITS) + slot - s->start;
    const uint32_t place = x & s->mask;
    x >>= s->bits;
    const uint32_t empty = x < LOW; // not a branch: nobody could predict it
    *state = x << 16 * empty | (*from & -empty);
    from += empty;
    if (s->first == ESCAPES) {
        *value = *from;
        return from + 1;
    }
    *value = (uint16_t)(*value + (uint32_t)s->first + place);
    return from;
}

static bool decode_changes(uint16_t *values, int64_t elems, const head *h, const uint16_t *from)
{
    uint32_t states[STATES];
    const size_t words_at = head_bytes(h) + 2U * h->zero_words;
    int64_t i = 0;
    coder c;
    if (h->classes > CLASSES || h->bytes < words_at + sizeof states || !set_tables(&c, h))
        return false;
    const uint16_t *const end = from + (h->bytes - sizeof states) / 2;
    memcpy(states, end, sizeof states);
    from += words_at / 2;
    for (; i + STATES <= elems && from <= end; i += STATES) // reads the states at most too far
        for (int32_t k = 0; k < STATES; k++)
            from = decode(&c, &states[k], &values[i + k], from);
    for (int32_t k = 0; i + k < elems && from <= end; k++)
        from = decode(&c, &states[k], &values[i + k], from);
    return from == end && memcmp(states, first_states, sizeof states) == 0;
}

bool mics_delta_decode(uint16_t *values, int64_t elems, const void *coded, size_t bytes)
{
    const uint16_t *from = coded;
    for (int64_t i = 0; i < elems; i += CHUNK) {
        const int64_t count = elems - i < CHUNK ? elems - i : CHUNK;
        head h = {0};
        if (bytes < SHORT_HEAD)
            return false;
        memcpy(&h, from, bytes < sizeof h ? bytes : sizeof h);
        if (h.bytes < SHORT_HEAD || h.bytes % 8 != 0 || h.bytes > bytes)
            return false;
        if (h.classes == 0 && h.bytes == mics_delta_bound(count))
            memcpy(values + i, from + SHORT_HEAD / 2, (size_t)count * sizeof *values);
        else if ((h.classes > 0 || h.bytes > SHORT_HEAD) &&
                 !decode_changes(values + i, count, &h, from))
            return false;
        from += h.bytes / 2;
        bytes -= h.bytes;
    }
    return bytes == 0;
}

// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Texts that end a text, however it is cut into tokens, against a search in the whole of it.
#include "base/rng.h"
#include "run/text/stops.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

static mics_memory *memory;

// Writes a text in pieces of up to `most` bytes; what came out is in `shown`.
static char shown[256];

static bool write_in_pieces(const char *text, size_t most, const mics_sampling *sampling,
                            uint64_t stream)
{
    run_stops held = {0};
    FILE *out = fmemopen(shown, sizeof shown, "w");
    bool stopped = false;
    assert_non_null(out);
    for (size_t at = 0, i = 0; text[at] != '\0' && !stopped; i++) {
        const size_t left = strlen(text + at), piece = mics_rng_bits(3, stream, i) % (most + 1);
        const size_t count = piece < left ? piece : left;
        ASSERT_OK(run_stops_write(&held, memory, sampling, text + at, count, out, &stopped));
        at += count;
    }
    ASSERT_OK(run_stops_end(&held, out));
    run_stops_fini(&held, memory);
    fputc('\0', out);
    fclose(out);
    return stopped;
}

static void test_cuts(void **state)
{
    (void)state;
    static const char *const stops[] = {"abab", "bb", "\n\n", "aabaaab"};
    char text[64], want[64];
    for (uint64_t i = 0; i < 3000; i++) {
        const mics_sampling sampling = {.stops = stops, .stop_count = (int32_t)(i % 5)};
        const size_t bytes = mics_rng_bits(1, i, 0) % 40;
        for (size_t b = 0; b < bytes; b++)
            text[b] = "aab\n"[mics_rng_bits(2, i, b) % 4];
        text[bytes] = '\0';
        strcpy(want, text);
        const char *first = NULL;
        for (int32_t s = 0; s < sampling.stop_count; s++) {
            const char *found = strstr(text, stops[s]);
            if (found != NULL && (first == NULL || found < first))
                first = found;
        }
        // A stop that ends earlier is seen earlier, though another one began before it.
        const char *end = NULL;
        for (size_t upto = 1; first != NULL && end == NULL; upto++) {
            char part[64];
            snprintf(part, sizeof part, "%.*s", (int)upto, text);
            for (int32_t s = 0; s < sampling.stop_count; s++) {
                const char *found = strstr(part, stops[s]);
                if (found != NULL && (end == NULL || found - part < end - text))
                    end = text + (found - part);
            }
        }
        if (end != NULL)
            want[end - text] = '\0';
        assert_int_equal(write_in_pieces(text, 1, &sampling, i), first != NULL);
        assert_string_equal(shown, want);
    }
}

// What cannot begin a stop is written at once.
static void test_held_as_long_as_needed(void **state)
{
    (void)state;
    static const char *const stops[] = {"###"};
    const mics_sampling sampling = {.stops = stops, .stop_count = 1};
    run_stops held = {0};
    bool stopped = false;
    FILE *out = fmemopen(shown, sizeof shown, "w");
    ASSERT_OK(run_stops_write(&held, memory, &sampling, "ab##", 4, out, &stopped));
    assert_int_equal(ftell(out), 2);
    ASSERT_OK(run_stops_write(&held, memory, &sampling, "c#", 2, out, &stopped));
    assert_int_equal(ftell(out), 5);
    ASSERT_OK(run_stops_write(&held, memory, &sampling, "##d", 3, out, &stopped));
    assert_true(stopped);
    assert_int_equal(ftell(out), 5);
    ASSERT_OK(run_stops_end(&held, out));
    assert_int_equal(ftell(out), 5);
    run_stops_fini(&held, memory);
    fclose(out);
    assert_memory_equal(shown, "ab##c", 5);
}

static int setup(void **state)
{
    (void)state;
    return mics_memory_open(&memory) == MICS_OK ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    return mics_memory_close(memory) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cuts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_held_as_long_as_needed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

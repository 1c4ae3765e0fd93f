// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The progress display: plain lines, the live line, colours, and a terminal of a given width.
#include "base/clock.h"
#include "mics/report.h"
#include "test.h"
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static mics_memory *memory;
static char shown[65536];

static mics_metrics metrics_of(int64_t step)
{
    return (mics_metrics){.step = step,
                          .steps = 200,
                          .loss = 2.25,
                          .lr = 3e-4,
                          .grad_norm = 1.5,
                          .tokens = step * 1024,
                          .tokens_per_s = 15300.0,
                          .step_ms = 120.0};
}

// Displays steps 1 to `last` on a file and leaves what it printed in `shown`.
static void show(mics_progress_mode mode, int64_t log_every, int64_t last)
{
    mics_progress *progress = NULL;
    FILE *stream = tmpfile();
    assert_non_null(stream);
    ASSERT_OK(mics_progress_open(memory, stream, mode, log_every, &progress));
    for (int64_t step = 1; step <= last; step++) {
        mics_metrics metrics = metrics_of(step);
        mics_progress_step(progress, &metrics);
        if (step == 3)
            mics_progress_note(progress, "validation loss %.2f", 2.5);
    }
    mics_progress_close(progress);
    rewind(stream);
    shown[fread(shown, 1, sizeof shown - 1, stream)] = '\0';
    fclose(stream);
}

// Likewise, once more where the machine stood still for so long that more is due.
static void show_within(mics_progress_mode mode, int64_t log_every, int64_t last, double limit_us)
{
    double begin_us = 0;
    do {
        begin_us = mics_clock_us();
        show(mode, log_every, last);
    } while (mics_clock_us() - begin_us > limit_us);
}

static int lines_with(const char *part)
{
    int count = 0;
    for (const char *at = strstr(shown, part); at != NULL; at = strstr(at + 1, part))
        count++;
    return count;
}

static void test_plain_lines(void **state)
{
    (void)state;
    show(MICS_PROGRESS_AUTO, 50, 200);        // a file is no terminal
    assert_int_equal(lines_with("tok/s"), 5); // 1, 50, 100, 150, 200
    assert_non_null(strstr(
        shown, "step 50/200  loss 2.2500  lr 3.00e-04  norm 1.500  15.3k tok/s  120 ms/step  "));
    assert_int_equal(lines_with("\nvalidation loss 2.50\n"), 1);
    assert_int_equal(lines_with("\r"), 0);
    assert_int_equal(lines_with("\033"), 0);
    show_within(MICS_PROGRESS_AUTO, 0, 200, 4e6); // by time, 5 s: the first and the last
    assert_int_equal(lines_with("tok/s"), 2);
    assert_non_null(strstr(shown, "step 200/200"));
    assert_non_null(strstr(shown, " 0s left\n"));
    show(MICS_PROGRESS_AUTO, 0, 1);
    assert_non_null(strstr(shown, "24s left\n")); // 199 steps of 120 ms
}

static void test_live_line(void **state)
{
    (void)state;
    show_within(MICS_PROGRESS_LIVE, 0, 5, 8e4); // by time, 0.1 s: the first and the last
    assert_int_equal(lines_with("\n"), 2);      // the note's, and the one that ends the live line
    assert_int_equal(lines_with("\033[3"), 0);  // no colour on a file
    // The note clears the live line, and the live line comes again.
    const char *note = strstr(shown, "\r\033[Kvalidation loss 2.50\n");
    assert_non_null(note);
    assert_non_null(strstr(note, "\n1/200  loss 2.25"));
    assert_int_equal(shown[strlen(shown) - 1], '\n');
}

// Short work shows nothing; longer work a line that is gone when it ends. In a file the first line
// would come after seconds. Returns how long it took.
static double show_work(mics_progress_mode mode, int pause_ms)
{
    const double begin_us = mics_clock_us();
    mics_progress *progress = NULL;
    FILE *stream = tmpfile();
    assert_non_null(stream);
    ASSERT_OK(mics_progress_open(memory, stream, mode, 0, &progress));
    mics_progress_work(progress, "evaluating", 0, 200);
    assert_int_equal(poll(NULL, 0, pause_ms), 0);
    mics_progress_work(progress, "evaluating", 199, 200);
    mics_progress_note(progress, "a note");
    mics_progress_work(progress, "evaluating", 200, 200);
    mics_progress_work(progress, "writing", 1, 1); // begins and ends
    mics_progress_close(progress);
    rewind(stream);
    shown[fread(shown, 1, sizeof shown - 1, stream)] = '\0';
    fclose(stream);
    return mics_clock_us() - begin_us;
}

static void test_work(void **state)
{
    (void)state;
    // Work that is short is so only where the machine does not stand still.
    while (show_work(MICS_PROGRESS_LIVE, 0) > 4e5)
        continue;
    assert_string_equal(shown, "a note\n");
    show_work(MICS_PROGRESS_LIVE, 700);
    assert_int_equal(lines_with("] evaluating: 99 %, 0s left\033[K"), 1);
    assert_int_equal(lines_with("\r\033[Ka note\n"), 1);
    assert_string_equal(shown + strlen(shown) - 4, "\r\033[K"); // and nothing behind it
    while (show_work(MICS_PROGRESS_PLAIN, 700) > 4e6)
        continue;
    assert_string_equal(shown, "a note\n");
}

static void test_odd_numbers(void **state)
{
    (void)state;
    mics_progress *progress = NULL;
    FILE *stream = tmpfile();
    assert_non_null(stream);
    mics_metrics metrics = {.step = INT64_MAX,
                            .steps = INT64_MAX,
                            .loss = 1e300,
                            .lr = -0.0,
                            .grad_norm = 1e308,
                            .tokens_per_s = 1e300,
                            .step_ms = 1e300};
    ASSERT_OK(mics_progress_open(memory, stream, MICS_PROGRESS_LIVE, 0, &progress));
    mics_progress_step(progress, &metrics);
    metrics = (mics_metrics){0}; // 0 of 0 steps
    mics_progress_step(progress, &metrics);
    mics_progress_break(progress);
    mics_progress_break(progress);
    mics_progress_close(progress);
    mics_progress_close(NULL);
    fclose(stream);
}

// What a terminal shows up to the end of a live line.
static void read_line(int master)
{
    size_t bytes = 0;
    shown[0] = '\0';
    while (strstr(shown, "\033[K") == NULL) {
        struct pollfd ready = {.fd = master, .events = POLLIN};
        assert_int_equal(poll(&ready, 1, 60 * 1000), 1);
        const ssize_t got = read(master, shown + bytes, sizeof shown - 1 - bytes);
        assert_true(got > 0);
        bytes += (size_t)got;
        shown[bytes] = '\0';
    }
}

// On a terminal the bar shrinks before any number goes, a line too long is cut to its width less
// one, and the bar is coloured unless NO_COLOR is set.
static void show_terminal(int master, FILE *stream, bool colour, const char *numbers)
{
    mics_progress *progress = NULL;
    mics_metrics metrics = metrics_of(100);
    assert_int_equal(colour ? unsetenv("NO_COLOR") : setenv("NO_COLOR", "1", 1), 0);
    ASSERT_OK(mics_progress_open(memory, stream, MICS_PROGRESS_AUTO, 0, &progress));
    mics_progress_step(progress, &metrics);
    read_line(master);
    assert_non_null(strstr(shown, numbers));
    mics_progress_close(progress);
    char rest[16];
    assert_true(read(master, rest, sizeof rest) > 0);
}

static void test_terminal(void **state)
{
    (void)state;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        skip();
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    static const struct {
        unsigned short columns;
        const char *numbers; // as far as they do not depend on time
    } cases[] = {
        {60, "\r100/200 loss 2.25 lr 3e-04 norm 1.5 15.3k tok/s 120 ms/step"},
        {80, "\r100/200 loss 2.2500 lr 3.0e-04 norm 1.500 15.3k tok/s 120 ms/step "},
        {100, "..] 100/200  loss 2.2500  lr 3.00e-04  norm 1.500  15.3k tok/s  120 ms/step"},
        {120, "[##########..........] 100/200  loss 2.2500  lr 3.00e-04  norm 1.500  15.3k tok/s"},
    };
    if (slave < 0)
        skip();
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    FILE *stream = fdopen(slave, "w");
    assert_non_null(stream);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct winsize size = {.ws_row = 24, .ws_col = cases[i].columns};
        if (ioctl(slave, TIOCSWINSZ, &size) != 0)
            skip();
        const int colours = cases[i].columns > 80; // of the bar
        show_terminal(master, stream, true, colours ? "norm 1.500" : cases[i].numbers);
        assert_int_equal(lines_with("\033[36m"), colours);
        show_terminal(master, stream, false, cases[i].numbers);
        assert_int_equal(lines_with("\033[36m"), 0);
        assert_true(strlen(shown) <= 1 + (size_t)cases[i].columns - 1 + 3); // return, erase
        if (cases[i].columns >= 80)
            assert_non_null(strstr(shown, "s left\033[K"));
    }
    fclose(stream);
    close(master);
}

static void test_allocation_fails(void **state)
{
    (void)state;
    mics_progress *progress = NULL;
    mics_memory_fail_after(memory, 1);
    ASSERT_STATUS(MICS_ERR_MEMORY,
                  mics_progress_open(memory, NULL, MICS_PROGRESS_AUTO, 0, &progress));
    assert_null(progress);
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
        cmocka_unit_test(test_plain_lines),      cmocka_unit_test(test_live_line),
        cmocka_unit_test(test_odd_numbers),      cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_allocation_fails), cmocka_unit_test(test_work),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

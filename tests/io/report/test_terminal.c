// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a terminal or a shell would take for a command.
#include "io/report/terminal.h"
#include "test.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_word(const char *text, const char *expected)
{
    char out[128];
    assert_string_equal(mics_terminal_word(text, out, sizeof out), expected);
}

static void test_words(void **state)
{
    (void)state;
    check_word("runs/demo-1.5_x", "runs/demo-1.5_x");
    check_word("my run", "'my run'");
    check_word("it's", "'it'\\''s'");
    check_word("$(reboot)", "'$(reboot)'");
    check_word("", "''");
    check_word("caf\xc3\xa9", "'caf\xc3\xa9'");
    check_word("a\x1b[31m'b", "$'a\\x1b[31m\\x27b'");
}

// A word that does not fit is cut, and its quote closed.
static void test_long_words(void **state)
{
    char out[16];
    (void)state;
    const char *word = mics_terminal_word("a long word that has no end", out, sizeof out);
    assert_true(strlen(word) < sizeof out);
    assert_int_equal(word[strlen(word) - 1], '\'');
}

// A pseudo-terminal in place of standard output: what the model writes arrives without what steers it.
static void test_texts_on_a_terminal(void **state)
{
    char got[256] = "";
    (void)state;
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        skip();
    const int slave = open(ptsname(master), O_RDWR | O_NOCTTY), kept = dup(STDOUT_FILENO);
    assert_true(slave >= 0 && kept >= 0);
    fflush(stdout);
    assert_true(dup2(slave, STDOUT_FILENO) >= 0);
    FILE *out = mics_terminal_open();
    fputs("one\x1b[2Jtwo\tthree\xc2", out);
    fflush(out);
    fputs("\x9b"
          "4\xc3\xa9.\n",
          out);
    mics_terminal_close(out);
    fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    // The system hands over what was written in as many parts as it likes.
    for (size_t used = 0; strchr(got, '\n') == NULL;) {
        const ssize_t more = read(master, got + used, sizeof got - 1 - used);
        assert_true(more > 0);
        used += (size_t)more;
    }
    assert_string_equal(got, "one.[2Jtwo\tthree.4\xc3\xa9.\r\n");
    close(slave);
    close(master);
    close(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_texts_on_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

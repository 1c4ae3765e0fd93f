// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a file is, its content says: tables, JSON arrays, JSON Lines by any name; byte order marks,
// pointers and programs; bad lines; special tokens that texts name.
#include "io/data/cached.h"
#include "io/data/data.h"
#include <stdbool.h>
#include <zlib.h>

static mics_tokenizer *tokenizer;

static int setup_bytes(void **state)
{
    return setup_cached(state) == 0 && mics_tokenizer_open(memory, "bytes", &tokenizer) == MICS_OK
               ? 0
               : 1;
}

static int teardown_bytes(void **state)
{
    mics_tokenizer_close(tokenizer);
    return teardown(state);
}

static mics_corpus_spec spec_of(const char **path)
{
    return (mics_corpus_spec){.patterns = path,
                              .pattern_count = 1,
                              .vocab = mics_tokenizer_vocab(tokenizer),
                              .tokenizer = tokenizer,
                              .cache_dir = cache};
}

static void expect_tokens(const mics_corpus_spec *spec, const char *want, size_t count)
{
    mics_corpus *corpus = NULL;
    ASSERT_OK(mics_corpus_open(memory, spec, &corpus));
    int32_t tokens[1024];
    assert_int_equal(mics_corpus_tokens(corpus), count);
    ASSERT_OK(mics_corpus_read(corpus, 0, (int64_t)count, tokens));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(tokens[i], (unsigned char)want[i]);
    mics_corpus_close(corpus);
}

// Each byte is a token, and each text stands behind a NUL: so a corpus is a text itself.
static void expect_text(const char *name, const char *field, const char *want, size_t bytes)
{
    const char *path = files_path(name);
    mics_corpus_spec spec = spec_of(&path);
    spec.text_field = field;
    expect_tokens(&spec, want, bytes);
}

static void expect_error(const char *name, const char *said)
{
    const char *path = files_path(name);
    const mics_corpus_spec spec = spec_of(&path);
    mics_corpus *corpus = NULL;
    assert_true(mics_corpus_open(memory, &spec, &corpus) != MICS_OK);
    ASSERT_SAID(&seen, said);
}

#define WRITE(name, text) files_write(files_path(name), text, sizeof(text) - 1)
#define EXPECT(name, field, text) expect_text(name, field, text, sizeof(text) - 1)

static void test_tables(void **state)
{
    (void)state;
    WRITE("a.csv", "id,text\n1,one\n\n2,\"two, \"\"quoted\"\"\nand a line\"\n3,\n4,5\" wide\n");
    EXPECT("a.csv", NULL,
           "\0one\0two, \"quoted\"\nand a line\0"
           "5\" wide");
    EXPECT("a.csv", "id",
           "\0"
           "1\0"
           "2\0"
           "3\0"
           "4");
    WRITE("windows.CSV", "\xef\xbb\xbf\"text\",id\r\n\"first\r\nsecond\",1\r\nlast,2");
    EXPECT("windows.CSV", NULL, "\0first\r\nsecond\0last");
    WRITE("blank.csv", "\n\r\ntext,id\none,1\n");
    EXPECT("blank.csv", NULL, "\0one");
    WRITE("mac.csv", "text,id\rone,1\rtwo,2\r");
    EXPECT("mac.csv", NULL, "\0one\0two");
    WRITE("a.tsv", "id\ttext\n1\ta, b\n2\t\"tab\there\"\n");
    EXPECT("a.tsv", NULL, "\0a, b\0tab\there");
    gzFile packed = gzopen(files_path("p.csv.gz"), "wb");
    assert_true(gzputs(packed, "text\npacked\n") > 0 && gzclose(packed) == Z_OK);
    EXPECT("p.csv.gz", NULL, "\0packed");
    WRITE("semicolon.csv", "id;body\n1;x\n");
    expect_error("semicolon.csv", "has no column \"text\"; its first row names \"id;body\"");
    WRITE("other.csv", "id,body\n1,x\n");
    expect_error("other.csv", "its first row names \"id\", \"body\"");
    WRITE("wide.csv", "id,text\n1,x\n2,y,z\n");
    expect_error("wide.csv", "wide.csv, line 3: has 3 fields, but the first row names 2");
    WRITE("open.csv", "id,text\n1,x\n2,\"y\n3,z\n");
    expect_error("open.csv", "open.csv, line 3: a quote that begins in this row is not closed");
}

// Rows that windows cut, in quotes and between them.
static void test_long_table(void **state)
{
    (void)state;
    enum { ROWS = 40000 };
    char *file = malloc(ROWS * 64), *want = malloc(ROWS * 64);
    size_t bytes = (size_t)sprintf(file, "n,text\r\n"), count = 0;
    for (int row = 0; row < ROWS; row++) {
        bytes += (size_t)sprintf(file + bytes, "%d,\"r\"\"%d\n,%0*d\"\r\n", row, row, row % 23, 7);
        want[count++] = '\0';
        count += (size_t)sprintf(want + count, "r\"%d\n,%0*d", row, row % 23, 7);
    }
    files_write(files_path("long.csv"), file, bytes);
    const char *path = files_path("long.csv");
    const mics_corpus_spec spec = spec_of(&path);
    mics_corpus *corpus = NULL;
    int32_t *tokens = malloc(count * sizeof *tokens);
    ASSERT_OK(mics_corpus_open(memory, &spec, &corpus));
    assert_int_equal(mics_corpus_tokens(corpus), count);
    ASSERT_OK(mics_corpus_read(corpus, 0, (int64_t)count, tokens));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(tokens[i], (unsigned char)want[i]);
    mics_corpus_close(corpus);
    free(tokens);
    free(want);
    free(file);
}

static void test_arrays(void **state)
{
    (void)state;
    WRITE("a.json",
          "[\n {\n  \"text\": \"a } \\\" {\"\n },\n {\"text\": \"b\"} ,{\"text\":\"c\"}\n]\n");
    EXPECT("a.json", NULL, "\0a } \" {\0b\0c");
    WRITE("any.txt", " [{\"id\": {\"n\": 1}, \"text\": \"x\"}]");
    EXPECT("any.txt", NULL, "\0x");
    WRITE("prose.txt", "[1] a reference {\"is\": none}");
    EXPECT("prose.txt", NULL, "\0[1] a reference {\"is\": none}");
    WRITE("cut.json", "[{\"text\": \"a\"},\n");
    expect_error("cut.json", "the array has no end");
    WRITE("comma.json", "[{\"text\": \"a\"}\n{\"text\": \"b\"}]");
    expect_error("comma.json", "comma.json, line 2: a \",\" is missing");
    WRITE("more.json", "[{\"text\": \"a\"}]\n{\"text\": \"b\"}");
    expect_error("more.json", "line 1: more follows the array's end");
    WRITE("one.json", "{\r\n  \"text\": \"a\"\r\n}\r\n");
    expect_error("one.json",
                 "one.json, line 1: an object begins here that goes on in the next line");
    WRITE("under.json", "{\"data\": [\n{\"text\": \"a\"}]}");
    expect_error("under.json", "jq -c '.KEY[]' those in an array at KEY");
    WRITE("short.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b");
    expect_error("short.jsonl", "short.jsonl, line 2, column");
    WRITE("texts.json", "[\n\"a\", \"b\"]");
    expect_error("texts.json", "line 2: is no JSON object, as each element must be");
    WRITE("field.json", "[{\"text\": \"a\"},\n{\"body\": \"b\"}]");
    expect_error("field.json", "field.json, line 2: has no \"text\"");
}

static void test_lines_by_any_name(void **state)
{
    (void)state;
    WRITE("rows.txt", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    EXPECT("rows.txt", NULL, "\0one\0two");
    WRITE("code.txt", "{\"a\": 1,\n \"b\": 2}\n"); // no object in a line
    EXPECT("code.txt", NULL, "\0{\"a\": 1,\n \"b\": 2}\n");
}

static void test_what_is_no_text(void **state)
{
    (void)state;
    WRITE("bom.txt", "\xef\xbb\xbf"
                     "First");
    EXPECT("bom.txt", NULL, "\0First");
    WRITE("elf", "\x7f"
                 "ELF\x02\x01");
    expect_error("elf", "is a program (ELF), and no text");
    WRITE("pickle.txt", "\x80\x04\x95");
    expect_error("pickle.txt", "is a pickle of Python's");
    WRITE("image.md", "\x89PNG\r\n\x1a\n");
    expect_error("image.md", "is a PNG image");
    WRITE("nul.txt", "some\0thing");
    expect_error("nul.txt", "is binary, and no text: there is a NUL at offset 4");
    WRITE("wide.txt", "\xff\xfe\0\0a\0\0\0");
    expect_error("wide.txt", "is UTF-32, and no text; convert it, as by iconv -f UTF-32");
    WRITE("two.txt", "\xff\xfe"
                     "a\0");
    expect_error("two.txt", "is UTF-16, and no text; convert it, as by iconv -f UTF-16");
}

// Such texts are trained as they are, and that is said.
static void test_line_ends(void **state)
{
    (void)state;
    WRITE("dos.txt", "a\r\nb\r\n");
    EXPECT("dos.txt", NULL, "\0a\r\nb\r\n");
    assert_int_equal(seen.warnings, 1);
    EXPECT("dos.txt", NULL, "\0a\r\nb\r\n"); // from the cache
    assert_int_equal(seen.warnings, 2);
    WRITE("unix.txt", "a\nb\r\n");
    EXPECT("unix.txt", NULL, "\0a\nb\r\n");
    WRITE("dos.jsonl", "{\"text\": \"a\"}\r\n");
    EXPECT("dos.jsonl", NULL, "\0a");
    assert_int_equal(seen.warnings, 2);
}

#define POINTER                                                                                    \
    "version https://git-lfs.github.com/spec/v1\noid sha256:"                                      \
    "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"

static void test_pointers(void **state)
{
    (void)state;
    static const char *const names[] = {"p.txt", "p.jsonl", "p.bin", "p.csv", "p.txt.gz", "p.zst"};
    mics_tokenizer *none = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        WRITE(names[i], POINTER);
        expect_error(names[i], "is a pointer of git-lfs, and not the file, which has 12345 bytes");
    }
    WRITE("tokenizer.json", POINTER);
    ASSERT_STATUS(MICS_ERR_FORMAT,
                  mics_tokenizer_open(memory, files_path("tokenizer.json"), &none));
    ASSERT_SAID(&seen, "is a pointer of git-lfs");
}

static void test_bad_lines(void **state)
{
    (void)state;
    static const char want[] = "\0a\0b\0c";
    WRITE("bad.jsonl",
          "{\"text\": \"a\"}\nbroken\n{\"text\": \"b\"}\n{\"body\": 1}\n{\"text\": \"c\"}");
    const char *path = files_path("bad.jsonl");
    mics_corpus_spec spec = spec_of(&path);
    mics_corpus *corpus = NULL;
    spec.skip_bad_lines = 2;
    expect_tokens(&spec, want, sizeof want - 1);
    assert_int_equal(seen.warnings, 3); // two lines and their number
    expect_tokens(&spec, want, sizeof want - 1);
    assert_int_equal(seen.warnings, 4); // from the cache
    spec.skip_bad_lines = 1;
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_corpus_open(memory, &spec, &corpus));
    ASSERT_SAID(&seen, "with it 2 bad lines are passed over, but data.skip_bad_lines allows 1");
    WRITE("more.jsonl", "{\"text\": \"a\"}\nx\ny\n");
    path = files_path("more.jsonl");
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_corpus_open(memory, &spec, &corpus));
    ASSERT_SAID(&seen, "beyond the 1 that data.skip_bad_lines passes over");
    spec.skip_bad_lines = 0;
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_corpus_open(memory, &spec, &corpus));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tables, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_long_table, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_arrays, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_lines_by_any_name, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_what_is_no_text, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_line_ends, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_pointers, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_bad_lines, setup_bytes, teardown_bytes),
    };
    if (files_open() != 0)
        return 1;
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    files_close();
    return failures;
}

// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a file is, by its first bytes: archives, programs and the like are refused, as their
// bytes would be trained on without a word (whoever wants that gives them as a .bin, with data.dtype
// "uint8"); JSON Lines and a JSON array are known under any name. Tables are known by their names.
#include "base/text.h"
#include "io/data/reader.h"
#include "mics/log.h"
#include <string.h>
#include <strings.h>

enum { HEAD_BYTES = 1 << 16 };

#define MARK(text) text, sizeof(text) - 1
#define TABLE                                                                                      \
    "write its texts as JSON Lines, as pandas and datasets do: to_json(FILE, lines=True, "         \
    "orient=\"records\")"
#define PACKED "unpack it; gzip and Zstandard alone are read packed, by names in .gz and .zst"
#define NO_TEXT "extract its text first"
#define NOT_DATA "name the texts, and not what lies beside them"
#define UTF16 "convert it, as by iconv -f UTF-16 -t UTF-8"
#define UTF32 "convert it, as by iconv -f UTF-32 -t UTF-8"

typedef struct kind {
    const char *name, *mark;
    size_t bytes, at; // of the mark
    const char *advice;
} kind;

// Marks that no text in UTF-8 begins with, or that have a control character. The first one counts.
static const kind kinds[] = {
    {"an Arrow file", MARK("ARROW1\0"), 0, TABLE},
    {"an Arrow stream", MARK("\xff\xff\xff\xff"), 0, TABLE},
    {"an Avro file", MARK("Obj\x01"), 0, TABLE},
    {"an SQLite file", MARK("SQLite format 3\0"), 0, TABLE},
    {"an HDF5 file", MARK("\x89HDF\r\n"), 0, TABLE},
    {"a pickle of Python's", MARK("\x80\x02"), 0, TABLE},
    {"a pickle of Python's", MARK("\x80\x03"), 0, TABLE},
    {"a pickle of Python's", MARK("\x80\x04"), 0, TABLE},
    {"a pickle of Python's", MARK("\x80\x05"), 0, TABLE},
    {"a NumPy array", MARK("\x93NUMPY"), 0,
     "tokens alone can be a .bin, as tofile() writes them, with data.dtype"},
    {"a Megatron index", MARK("MMIDIDX\0"), 0, "name the .bin beside it"},
    {"packed with gzip", MARK("\x1f\x8b\x08"), 0, "let its name end in .gz"},
    {"packed with Zstandard", MARK("\x28\xb5\x2f\xfd"), 0, "let its name end in .zst"},
    {"packed with bzip2", MARK("BZh91AY&SY"), 0, PACKED},
    {"packed with xz", MARK("\xfd\x37zXZ\0"), 0, PACKED},
    {"packed with lz4", MARK("\x04\x22\x4d\x18"), 0, PACKED},
    {"packed with 7-Zip", MARK("7z\xbc\xaf\x27\x1c"), 0, PACKED},
    {"a ZIP archive", MARK("PK\x03\x04"), 0, PACKED},
    {"a ZIP archive", MARK("PK\x05\x06"), 0, PACKED},
    {"a RAR archive", MARK("Rar!\x1a\x07"), 0, PACKED},
    {"a tar archive", MARK("ustar\0"), 257, "unpack it, and give its folder"},
    {"a tar archive", MARK("ustar  \0"), 257, "unpack it, and give its folder"},
    {"a PDF", MARK("%PDF-"), 0, NO_TEXT},
    {"a document of Microsoft Office", MARK("\xd0\xcf\x11\xe0"), 0, NO_TEXT},
    {"a PNG image", MARK("\x89PNG\r\n"), 0, NOT_DATA},
    {"a JPEG image", MARK("\xff\xd8\xff"), 0, NOT_DATA},
    {"a program (ELF)",
     MARK("\x7f"
          "ELF"),
     0, NOT_DATA},
    {"a program (Mach-O)", MARK("\xcf\xfa\xed\xfe"), 0, NOT_DATA},
    {"a program (Mach-O)", MARK("\xca\xfe\xba\xbe"), 0, NOT_DATA},
    {"UTF-32", MARK("\xff\xfe\0\0"), 0, UTF32},
    {"UTF-32", MARK("\0\0\xfe\xff"), 0, UTF32},
    {"UTF-16", MARK("\xff\xfe"), 0, UTF16},
    {"UTF-16", MARK("\xfe\xff"), 0, UTF16},
};

static mics_status check_is_text(const char *path, const char *head, size_t bytes)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const kind *k = &kinds[i];
        if (bytes >= k->at + k->bytes && memcmp(head + k->at, k->mark, k->bytes) == 0)
            return mics_fail(MICS_ERR_INVALID, "%s: is %s, and no text; %s", path, k->name,
                             k->advice);
    }
    const char *nul = memchr(head, '\0', bytes);
    if (nul == NULL)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: is binary, and no text: there is a NUL at offset %zu; " NOT_DATA
                     "; of a text in UTF-16: iconv -f UTF-16 -t UTF-8; its bytes as they are: as a "
                     ".bin, with data.dtype \"uint8\"",
                     path, (size_t)(nul - head));
}

static bool ends_in(const char *path, const char *end)
{
    const size_t bytes = strlen(end), all = strlen(path) - strlen(mics_reader_packing(path));
    return all >= bytes && strncasecmp(path + all - bytes, end, bytes) == 0;
}

// Whether an object with a key begins.
static bool opens_object(const char *text, size_t bytes, size_t at)
{
    if (at == bytes || text[at] != '{')
        return false;
    at = mics_reader_skip_white(text, bytes, at + 1);
    return at < bytes && text[at] == '"';
}

// A first line from "{" to "}", or to beyond the head.
static bool opens_lines(const char *text, size_t bytes, size_t at)
{
    const char *end = memchr(text + at, '\n', bytes - at);
    size_t last = end != NULL ? (size_t)(end - text) : bytes;
    if (!opens_object(text, last, at))
        return false;
    while (last > at && strchr(" \t\r", text[last - 1]) != NULL)
        last--;
    return text[last - 1] == '}' || (end == NULL && bytes == HEAD_BYTES);
}

static mics_text_kind kind_of(const char *path, const char *head, size_t bytes, size_t at)
{
    const bool json = mics_reader_ends(path, ".jsonl") || mics_reader_ends(path, ".ndjson") ||
                      mics_reader_ends(path, ".json"); // as C4's files are called
    const bool list = at < bytes && head[at] == '[';
    if (list && (json || opens_object(head, bytes, mics_reader_skip_white(head, bytes, at + 1))))
        return MICS_TEXT_ARRAY;
    if (json || opens_lines(head, bytes, at))
        return MICS_TEXT_LINES;
    return ends_in(path, ".csv")   ? MICS_TEXT_CSV
           : ends_in(path, ".tsv") ? MICS_TEXT_TSV
                                   : MICS_TEXT_PLAIN;
}

// A text may begin with "PAR1", too, but not with what follows it there.
static bool is_parquet(const char *path, const char *head, size_t bytes)
{
    static const char mark[] = "PAR1\x15";
    return mics_text_ends(path, ".parquet") ||
           (bytes >= sizeof mark - 1 && memcmp(head, mark, sizeof mark - 1) == 0);
}

static mics_status open_parquet(mics_reader *reader, const char *const *columns)
{
    const mics_parquet_source source = {
        .path = reader->path, .file = reader->file, .bytes = reader->bytes, .columns = columns};
    if (reader->unpacker != NULL)
        return mics_fail(MICS_ERR_INVALID, "%s: is a Parquet file in a packed one; unpack it",
                         reader->path);
    reader->content.kind = MICS_TEXT_LINES;
    return mics_parquet_open(reader->memory, &source, &reader->parquet);
}

mics_status mics_reader_find_content(mics_reader *reader, const char *const *columns)
{
    char head[HEAD_BYTES];
    size_t got = 0;
    MICS_TRY(mics_reader_rewind(reader, 0));
    MICS_TRY(mics_reader_read(reader, head, sizeof head, &got));
    if (is_parquet(reader->path, head, got))
        return open_parquet(reader, columns);
    MICS_TRY(check_is_text(reader->path, head, got));
    reader->content.marked =
        got >= MICS_MARK_BYTES && memcmp(head, MICS_MARK, MICS_MARK_BYTES) == 0;
    const size_t begin = reader->content.marked ? MICS_MARK_BYTES : 0;
    reader->content.kind =
        kind_of(reader->path, head, got, mics_reader_skip_white(head, got, begin));
    const char *end = memchr(head, '\n', got);
    reader->content.crlf =
        reader->content.kind == MICS_TEXT_PLAIN && end != NULL && end > head && end[-1] == '\r';
    return MICS_OK;
}

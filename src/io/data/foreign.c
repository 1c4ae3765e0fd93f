// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files of other kinds that are easily given in place of a text. Their bytes would be trained on
// without a word; whoever wants that gives them as a .bin, with data.dtype "uint8".
#include "io/data/reader.h"
#include "mics/log.h"
#include <string.h>

#define MARK(text) text, sizeof(text) - 1
#define TABLE                                                                                      \
    "write its texts as JSON Lines, as pandas and datasets do: to_json(FILE, lines=True, "         \
    "orient=\"records\")"
#define PACKED "unpack it; gzip and Zstandard alone are read packed, by names in .gz and .zst"
#define NO_TEXT "extract its text first"

typedef struct kind {
    const char *name, *mark;
    size_t bytes, at; // of the mark
    const char *advice;
} kind;

// Marks that no text in UTF-8 begins with, or that have a control character.
static const kind kinds[] = {
    {"a Parquet file", MARK("PAR1\x15"), 0, TABLE},
    {"an Arrow file", MARK("ARROW1\0"), 0, TABLE},
    {"an Arrow stream", MARK("\xff\xff\xff\xff"), 0, TABLE},
    {"an SQLite file", MARK("SQLite format 3\0"), 0, TABLE},
    {"an HDF5 file", MARK("\x89HDF\r\n"), 0, TABLE},
    {"a NumPy array", MARK("\x93NUMPY"), 0,
     "tokens alone can be a .bin, as tofile() writes them, with data.dtype"},
    {"a Megatron index", MARK("MMIDIDX\0"), 0, "name the .bin beside it"},
    {"packed with gzip", MARK("\x1f\x8b\x08"), 0, "let its name end in .gz"},
    {"packed with Zstandard", MARK("\x28\xb5\x2f\xfd"), 0, "let its name end in .zst"},
    {"packed with bzip2", MARK("BZh91AY&SY"), 0, PACKED},
    {"packed with xz", MARK("\xfd\x37zXZ\0"), 0, PACKED},
    {"packed with 7-Zip", MARK("7z\xbc\xaf\x27\x1c"), 0, PACKED},
    {"a ZIP archive", MARK("PK\x03\x04"), 0, PACKED},
    {"a tar archive", MARK("ustar\0"), 257, "unpack it, and give its folder"},
    {"a tar archive", MARK("ustar  \0"), 257, "unpack it, and give its folder"},
    {"a PDF", MARK("%PDF-1."), 0, NO_TEXT},
    {"UTF-16", MARK("\xff\xfe"), 0, "convert it, as by iconv -f UTF-16 -t UTF-8"},
    {"UTF-16", MARK("\xfe\xff"), 0, "convert it, as by iconv -f UTF-16 -t UTF-8"},
};

mics_status mics_reader_check_text(mics_reader *reader)
{
    char head[512];
    size_t got = 0;
    MICS_TRY(mics_reader_rewind(reader, 0));
    MICS_TRY(mics_reader_read(reader, head, sizeof head, &got));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const kind *k = &kinds[i];
        if (got >= k->at + k->bytes && memcmp(head + k->at, k->mark, k->bytes) == 0)
            return mics_fail(MICS_ERR_INVALID, "%s: is %s, and no text; %s", reader->path, k->name,
                             k->advice);
    }
    return MICS_OK;
}

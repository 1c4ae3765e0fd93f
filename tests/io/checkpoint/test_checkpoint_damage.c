// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Damaged and hostile checkpoints: one line that names the file, never a crash or wrong numbers.
#include "base/capture.h"
#include "io/checkpoint/catalog.h"
#include "io/checkpoint/model.h"
#include "io/checkpoint/rank_file.h"
#include "io/checkpoint/scratch.h"
#include <fcntl.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const model_unit UNITS[] = {{"embed", 300001}, {"h.0", 50}};
enum { UNIT_COUNT = 2 }; // the first unit's elements come as two shards

// A saved checkpoint in `folder`, and its files as they were.
typedef struct victim {
    scratch place;
    mics_memory *memory;
    char manifest_path[SCRATCH_PATH * 2];
    char rank_path[SCRATCH_PATH * 2];
    char folder_path[SCRATCH_PATH * 2];
    unsigned char *manifest;
    size_t manifest_bytes;
    unsigned char *rank;
    size_t rank_bytes, header_bytes; // without the 8 bytes of its length
} victim;

#define BEGIN "{\"__metadata__\":{\"format\":\"mics-rank-file\",\"version\":\"3\",\"xxh3\":\""
enum { PREFIX = 8, HASH_AT = PREFIX + sizeof BEGIN - 1, HASHED_AT = HASH_AT + 16 };

static void victim_make(victim *it)
{
    *it = (victim){0};
    scratch_make_fast(&it->place);
    ASSERT_OK(mics_memory_open(&it->memory));
    const char *tokenizer = scratch_path(&it->place, "tokenizer.json");
    file_write(tokenizer, "{\"a\": 1}", 8);
    model_part part = {0};
    model_share(&part, UNITS, UNIT_COUNT, 0, 1, 4);
    mics_checkpoint_writer writer = {.dir = it->place.dir, .writers = 1};
    mics_checkpoint_meta meta = model_meta((mics_checkpoint_meta){
        .step = 5, .samples = 4, .model_json = "{\"n\": 1}", .tokenizer = tokenizer});
    ASSERT_OK(mics_checkpoint_save(it->memory, &writer, &meta, part.shards, part.count));
    model_free(&part);
    snprintf(it->folder_path, sizeof it->folder_path, "%s",
             scratch_path(&it->place, "step-00000005"));
    snprintf(it->manifest_path, sizeof it->manifest_path, "%s",
             scratch_path(&it->place, "step-00000005/manifest.json"));
    snprintf(it->rank_path, sizeof it->rank_path, "%s",
             scratch_path(&it->place, "step-00000005/rank-00000.safetensors"));
    it->manifest = file_read(it->manifest_path, &it->manifest_bytes);
    it->rank = file_read(it->rank_path, &it->rank_bytes);
    memcpy(&it->header_bytes, it->rank, PREFIX);
    assert_memory_equal(it->rank + PREFIX, BEGIN, sizeof BEGIN - 1);
    assert_int_equal((PREFIX + it->header_bytes) % 64, 0);
}

static void victim_end(victim *it)
{
    free(it->manifest);
    free(it->rank);
    scratch_remove(&it->place);
    assert_int_equal(mics_memory_close(it->memory), 0);
}

static mics_status try_open(victim *it)
{
    mics_checkpoint *checkpoint = NULL;
    mics_status status = mics_checkpoint_open(it->memory, it->folder_path, &checkpoint);
    mics_checkpoint_close(checkpoint);
    return status;
}

// Opening must fail as malformed, with one line that holds `said`.
static void expect_refused(victim *it, const char *said)
{
    capture seen;
    capture_begin(&seen);
    mics_status status = try_open(it);
    capture_end();
    if (status != MICS_ERR_FORMAT)
        fail_msg("%s, not MICS_ERR_FORMAT; expected \"%s\"", mics_status_name(status), said);
    ASSERT_SAID(&seen, said);
}

static void overwrite(const char *path, int64_t offset, const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, data, bytes, offset), bytes);
    close(fd);
}

// ---- manifest ----

static void a_manifest_cut_or_changed_anywhere(void **state)
{
    (void)state;
    victim it;
    victim_make(&it);
    for (size_t bytes = 0; bytes < it.manifest_bytes; bytes++) {
        file_write(it.manifest_path, it.manifest, bytes);
        expect_refused(&it, "manifest.json");
    }
    for (size_t at = 0; at < it.manifest_bytes; at++) {
        unsigned char kept = it.manifest[at];
        it.manifest[at] = (unsigned char)(kept ^ (1u << at % 8));
        file_write(it.manifest_path, it.manifest, it.manifest_bytes);
        expect_refused(&it, "manifest.json");
        it.manifest[at] = kept;
    }
    file_write(it.manifest_path, it.manifest, it.manifest_bytes);
    ASSERT_OK(try_open(&it));
    victim_end(&it);
}

// Replaces `from` in the manifest by `to`, with a checksum that is right.
static void forge_manifest(const victim *it, const char *from, const char *to)
{
    const char *text = (const char *)it->manifest;
    const char *at = strstr(text, from);
    const char *tail = strstr(text, "  \"xxh3\": \"");
    for (const char *next = tail; next != NULL; next = strstr(next + 1, "  \"xxh3\": \""))
        tail = next;
    assert_true(at != NULL && at < tail);
    size_t capacity = it->manifest_bytes + strlen(to) + 1;
    char *forged = malloc(capacity);
    if (forged == NULL)
        fail();
    int bytes = snprintf(forged, capacity, "%.*s%s%.*s", (int)(at - text), text, to,
                         (int)(tail - at - (int)strlen(from)), at + strlen(from));
    bytes += snprintf(forged + bytes, capacity - (size_t)bytes, "  \"xxh3\": \"%016llx\"\n}\n",
                      (unsigned long long)XXH3_64bits(forged, (size_t)bytes));
    file_write(it->manifest_path, forged, (size_t)bytes);
    free(forged);
}

static void a_manifest_with_wrong_contents(void **state)
{
    (void)state;
    victim it;
    victim_make(&it);
    static const char *const cases[][3] = {
        {"mics-checkpoint", "other", "format \"other\""},
        {"\"version\": 3", "\"version\": 2",
         "version 2; this program reads \"mics-checkpoint\", version 3"},
        {"\"version\": 3", "\"version\": 4", "is of version 4, and mics "},
        {"\"version\": 3,\n  \"program\": \"", "\"version\": 4,\n  \"program\": \"7.",
         "reads version 3; use mics 7."},
        {"\"program\": \"", "\"program\": [], \"other\": \"", "\"program\" is an array"},
        {"\"precision\"", "\"precise\"", "lacks \"precision\""},
        {"\"optimizer\": \"", "\"optimizer\": 3, \"other\": \"", "\"optimizer\" is"},
        {"\"layered_micro_steps\": 3", "\"layered_micro_steps\": 0",
         "\"layered_micro_steps\" is 0"},
        {"\"params\": 2", "\"params\": 2147483648", "\"params\" is 2147483648, not 1 to"},
        {"\"grads\": 4, ", "", "the sharding lacks \"grads\""},
        {"\"step\": 5", "\"step\": -5", "\"step\" is negative"},
        {"\"step\": 5", "\"step\": 6", "expected rank 0 of 1 at step 6"},
        {"\"step\": 5", "\"step\": \"5\"", "\"step\" is a string"},
        {"\"samples\": 4", "\"samplez\": 4", "lacks \"samples\""},
        {"\"seed\": \"0", "\"seed\": \"x", "16 hexadecimal digits"},
        {"\"name\": \"rank-00000.safetensors\"", "\"name\": \"../rank-00000.safetensors\"",
         "plain file name"},
        {"\"name\": \"rank-00000.safetensors\"", "\"name\": \"..\"", "plain file name"},
        {"\"name\": \"rank-00000.safetensors\"", "\"name\": \"/etc/passwd\"", "plain file name"},
        {"\"name\": \"tokenizer.json\"", "\"name\": \"../tokenizer.json\"", "plain file name"},
        {"\"name\": \"embed\"", "\"name\": \"embedding\"", "in the rank files it is embed"},
        {"\"name\": \"embed\"", "\"name\": \"z\"", "not in order"},
        {"\"elems\": 50", "\"elems\": 51", "of 51 elements"},
        {"\"elems\": 50}", "\"elems\": 50}, {\"name\": \"x\", \"elems\": 1}", "3 units"},
        {"\"files\": [", "\"files\": [], \"other\": [", "no files"},
        {"\"units\": [", "\"units\": 3, \"other\": [", "\"units\" is"},
        {"\"config\": \"", "\"config\": [], \"other\": \"", "\"config\" is an array"},
        {"\"run\": null", "\"run\": 1", "\"run\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        forge_manifest(&it, cases[i][0], cases[i][1]);
        expect_refused(&it, cases[i][2]);
    }
    victim_end(&it);
}

// ---- rank files ----

static void a_rank_file_cut_anywhere(void **state)
{
    (void)state;
    victim it;
    victim_make(&it);
    for (size_t bytes = 0; bytes < it.rank_bytes; bytes += bytes < 1000 ? 1 : 9973) {
        file_write(it.rank_path, it.rank, bytes);
        expect_refused(&it, "rank-00000.safetensors: offset");
    }
    file_write(it.rank_path, it.rank, it.rank_bytes - 1);
    expect_refused(&it, "rank-00000.safetensors: offset");
    it.rank[it.rank_bytes] = 0;
    file_write(it.rank_path, it.rank, it.rank_bytes + 1);
    expect_refused(&it, "rank-00000.safetensors: offset");
    unlink(it.rank_path);
    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_IO, try_open(&it));
    ASSERT_SAID(&seen, "rank-00000.safetensors");
    assert_int_equal(mkfifo(it.rank_path, 0600), 0);
    ASSERT_STATUS(MICS_ERR_IO, try_open(&it));
    ASSERT_SAID(&seen, "not a regular file");
    capture_end();
    victim_end(&it);
}

static void a_header_changed_anywhere(void **state)
{
    (void)state;
    victim it;
    victim_make(&it);
    for (size_t at = 0; at < PREFIX + it.header_bytes; at++) {
        unsigned char bad = (unsigned char)(it.rank[at] ^ (1u << at % 8));
        overwrite(it.rank_path, (int64_t)at, &bad, 1);
        expect_refused(&it, "rank-00000.safetensors: offset");
        overwrite(it.rank_path, (int64_t)at, &it.rank[at], 1);
    }
    ASSERT_OK(try_open(&it));
    victim_end(&it);
}

static void damaged_data_is_not_returned(void **state)
{
    (void)state;
    victim it;
    victim_make(&it);
    mics_rank_file file = {0};
    ASSERT_OK(mics_rank_file_load(it.memory, it.rank_path, &file));
    // The last element of the second chunk of `embed`'s second moment.
    const mics_rank_shard *shard = &file.shards[1];
    assert_string_equal(shard->unit, "embed");
    int64_t bad_elem = 300000;
    int64_t offset = shard->states[2].data_offset + (bad_elem - shard->begin) * 4;
    mics_rank_file_fini(it.memory, &file);
    unsigned char bad = (unsigned char)(it.rank[offset] ^ 1u);
    overwrite(it.rank_path, offset, &bad, 1);

    mics_checkpoint *checkpoint = NULL;
    float data[4];
    capture seen;
    ASSERT_OK(mics_checkpoint_open(it.memory, it.folder_path, &checkpoint));
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_checkpoint_read(checkpoint, "embed", 300001, "exp_avg_sq",
                                                        299990, 299994, data));
    ASSERT_SAID(&seen, "rank-00000.safetensors: offset");
    capture_end();
    model_check_range(checkpoint, UNITS, 0, 2, 0, 200000, 4); // the chunk before
    model_check_range(checkpoint, UNITS, 0, 1, 0, 300001, 4);
    // A file that is cut while the checkpoint is open.
    assert_int_equal(truncate(it.rank_path, offset - 4), 0);
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_checkpoint_read(checkpoint, "embed", 300001, "exp_avg_sq",
                                                        299990, 299994, data));
    ASSERT_SAID(&seen, "ends");
    capture_end();
    mics_checkpoint_close(checkpoint);
    victim_end(&it);
}

// Gives a header the length and the checksum that are right, whatever it says.
static void seal_header(unsigned char *rank, size_t header_bytes)
{
    char digits[17];
    const uint64_t hash = XXH3_64bits(rank + HASHED_AT, PREFIX + header_bytes - HASHED_AT);
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)hash);
    memcpy(rank + HASH_AT, digits, 16);
    memcpy(rank, &header_bytes, PREFIX);
}

// Writes the rank file with another header, without the data if there is none of it.
static void write_forged(const victim *it, const char *header, bool with_data)
{
    const size_t bytes = strlen(header), data = it->rank_bytes - PREFIX - it->header_bytes;
    unsigned char *forged = malloc(PREFIX + bytes + 1 + data);
    if (forged == NULL)
        fail();
    memcpy(forged + PREFIX, header, bytes + 1);
    seal_header(forged, bytes);
    memcpy(forged + PREFIX + bytes, it->rank + PREFIX + it->header_bytes, data);
    file_write(it->rank_path, forged, PREFIX + bytes + (with_data ? data : 0));
    free(forged);
}

// Replaces the first `from` in the header by `to`.
static void forge_header(const victim *it, const char *from, const char *to)
{
    char header[8192];
    const char *text = (const char *)it->rank + PREFIX;
    const char *at = memmem(text, it->header_bytes, from, strlen(from));
    if (at == NULL)
        fail_msg("the header has no %s", from);
    snprintf(header, sizeof header, "%.*s%s%.*s", (int)(at - text), text, to,
             (int)(it->header_bytes - (size_t)(at - text) - strlen(from)), at + strlen(from));
    write_forged(it, header, true);
}

static void hostile_headers(void **state)
{
    (void)state;
    victim it;
    victim_make(&it);
#define NAME(range) "\"embed.param" range "\":{"
#define FIRST NAME("[0:37 of 300001]")
#define NO_NAME "its name is not UNIT.STATE[BEGIN:END of ELEMS]"
    static const char *const cases[][3] = {
        {"mics-rank-file", "mics-rank-fill", "does not begin as rank files do"},
        {"\"version\":\"3\"", "\"version\":\"4\"", "is not of version 3"},
        {"\"step\":\"5\"", "\"step\":\"-5\"", "\"step\" is no number from 0 to"},
        {"\"step\":\"5\"", "\"step\":\"05\"", "\"step\" is no number from 0 to"},
        {"\"step\":\"5\"", "\"step\":\"99999999999999999999\"", "\"step\" is no number"},
        {"\"step\":\"5\",", "", "\"step\" is no number from 0 to"},
        {"\"step\":\"5\"", "\"step\":5", "is no object of strings"},
        {"\"writers\":\"1\"", "\"writers\":\"4294967297\"", "\"writers\" is no number"},
        {"\"writers\":\"1\"", "\"writers\":\"0\"", "\"rank\" is no number from 0 to -1"},
        {"\"rank\":\"0\"", "\"rank\":\"1\"", "\"rank\" is no number from 0 to 0"},
        {FIRST, NAME("[0:38 of 300001]"), "has not the shape that its name says"},
        {FIRST, NAME("[00:37 of 300001]"), NO_NAME},
        {FIRST, NAME("[-1:36 of 300001]"), NO_NAME},
        {FIRST, NAME("[38:37 of 300001]"), NO_NAME},
        {FIRST, NAME("[0:37 of 36]"), NO_NAME},
        {FIRST, NAME("[0:37 of 36028797018963969]"), NO_NAME}, // 2^55 + 1
        {FIRST, NAME("[0:37 of 18446744073709551653]"), NO_NAME},
        {FIRST, NAME("[0:37]"), NO_NAME},
        {FIRST, NAME("[0:37 of 300001] "), NO_NAME},
        {FIRST, NAME("[0:37 of 300001"), NO_NAME},
        {FIRST, NAME("["), NO_NAME},
        {FIRST, NAME(""), NO_NAME},
        {FIRST, "\"embed[0:37 of 300001]\":{", NO_NAME},
        {FIRST, "\".param[0:37 of 300001]\":{", NO_NAME},
        {FIRST, "\"embed.[0:37 of 300001]\":{", NO_NAME},
        {FIRST, "\"\":{", NO_NAME},
        {FIRST, NAME("s[0:37 of 300001]"), "has not 16 digits for each of its MiB"},
        {FIRST, "\"embed.exp_avg[0:37 of 300001]\":{", "duplicate"},
        {"37 of 300001]\":\"", "37 of 300001]\":\"0", "has not 16 digits"},
        {"\"h.0.exp_avg_sq[0:50 of 50]\":\"", "\"h.0.exp_avg_sq[0:50 of 50]\":\"\",\"x\":\"",
         "has not 16 digits"},
        {"\"dtype\":\"F32\"", "\"dtype\":\"I32\"", "is not of dtype F32"},
        {"\"dtype\":\"F32\"", "\"dtype\":\"BF16\"", "37 elements of BF16"},
        {"\"shape\":[37]", "\"shape\":[1,37]", "has not the shape that its name says"},
        {"\"shape\":[37]", "\"shape\":[36]", "has 148 bytes, but 36 elements"},
        {"[0,148]", "[4,152]", "a hole before tensor"},
        {"[148,296]", "[144,292]", "another tensor overlaps"},
        {"[148,296]", "[148,9223372036854775807]", "lies at 148 to"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        forge_header(&it, cases[i][0], cases[i][1]);
        expect_refused(&it, cases[i][2]);
    }
    // Other lengths of the header, sealed or not.
    static const int64_t changes[] = {-8, 8, -64, 64};
    unsigned char *kept = malloc(it.rank_bytes);
    assert_non_null(kept);
    for (size_t i = 0; i < 8; i++) {
        const uint64_t bytes = it.header_bytes + (uint64_t)changes[i % 4];
        memcpy(kept, it.rank, it.rank_bytes);
        memcpy(kept, &bytes, PREFIX);
        if (i < 4)
            seal_header(kept, bytes);
        file_write(it.rank_path, kept, it.rank_bytes);
        expect_refused(&it, "rank-00000.safetensors:");
    }
    free(kept);
    victim_end(&it);
}

static void too_many_states(void **state)
{
    (void)state;
    victim it;
    char header[4096];
    victim_make(&it);
    int used = snprintf(header, sizeof header,
                        BEGIN "0123456789abcdef\",\"step\":\"5\",\"rank\":\"0\",\"writers\":\"1\"");
    for (int i = 0; i < 9; i++)
        used +=
            snprintf(header + used, sizeof header - (size_t)used, ",\"a.s%d[3:3 of 9]\":\"\"", i);
    used += snprintf(header + used, sizeof header - (size_t)used, "}");
    for (int i = 0; i < 9; i++)
        used += snprintf(header + used, sizeof header - (size_t)used,
                         ",\"a.s%d[3:3 of 9]\":{\"dtype\":\"F32\",\"shape\":[0],"
                         "\"data_offsets\":[0,0]}",
                         i);
    snprintf(header + used, sizeof header - (size_t)used, "}");
    write_forged(&it, header, false);
    expect_refused(&it, "tensor \"a.s8[3:3 of 9]\": its shard has more than 8 states");
    victim_end(&it);
}

static void huge_headers(void **state)
{
    (void)state;
    victim it;
    victim_make(&it);
    uint64_t bytes = UINT64_MAX;
    overwrite(it.rank_path, 0, &bytes, PREFIX);
    expect_refused(&it, "a header of 18446744073709551615 bytes");
    // A file of holes costs its maker nothing; it must not cost its reader as much memory.
    bytes = (uint64_t)2 << 30;
    overwrite(it.rank_path, 0, &bytes, PREFIX);
    assert_int_equal(truncate(it.rank_path, (off_t)3 << 30), 0);
    expect_refused(&it, "a header of 2147483648 bytes");
    // So must its data not.
    char header[1024];
    snprintf(header, sizeof header,
             BEGIN
             "0123456789abcdef\",\"step\":\"5\",\"rank\":\"0\",\"writers\":\"1\",\"a.s[0:%lld of "
             "%lld]\":\"\"},\"a.s[0:%lld of %lld]\":{\"dtype\":\"F32\",\"shape\":[%lld],"
             "\"data_offsets\":[0,%lld]}}",
             1LL << 40, 1LL << 40, 1LL << 40, 1LL << 40, 1LL << 40, 4LL << 40);
    write_forged(&it, header, false);
    assert_int_equal(truncate(it.rank_path, (off_t)(PREFIX + strlen(header)) + ((off_t)4 << 40)),
                     0);
    expect_refused(&it, "has not 16 digits for each of its MiB");
    mics_memory_stats stats;
    mics_memory_stats_get(it.memory, &stats);
    assert_true(stats.total_peak < (size_t)16 << 20);
    victim_end(&it);
}

static void random_headers_never_crash(void **state)
{
    (void)state;
    victim it;
    victim_make(&it);
    const size_t head_bytes = PREFIX + it.header_bytes;
    unsigned char *kept = malloc(head_bytes);
    assert_non_null(kept);
    memcpy(kept, it.rank, head_bytes);
    uint64_t random = 7;
    capture seen;
    capture_begin(&seen);
    for (int round = 0; round < 3000; round++) {
        memcpy(it.rank, kept, head_bytes);
        for (uint64_t i = next_random(&random) % 4; i < 4; i++)
            it.rank[PREFIX + next_random(&random) % it.header_bytes] =
                next_random(&random) % 3 == 0
                    ? (unsigned char)next_random(&random)
                    : kept[PREFIX + next_random(&random) % it.header_bytes];
        seal_header(it.rank, it.header_bytes);
        overwrite(it.rank_path, 0, it.rank, head_bytes);
        mics_rank_file file = {0};
        seen.errors = 0;
        mics_status status = mics_rank_file_load(it.memory, it.rank_path, &file);
        assert_true(status == MICS_OK || status == MICS_ERR_FORMAT);
        assert_int_equal(seen.errors, status == MICS_OK ? 0 : 1);
        mics_rank_file_fini(it.memory, &file);
        assert_int_equal(try_open(&it) == MICS_OK,
                         memcmp(it.rank, kept, head_bytes) == 0); // the manifest knows
    }
    capture_end();
    free(kept);
    victim_end(&it);
}

// ---- other files ----

static void a_changed_tokenizer_is_noticed(void **state)
{
    (void)state;
    victim it;
    victim_make(&it);
    file_write(scratch_path(&it.place, "step-00000005/tokenizer.json"), "{\"a\": 2}", 8);
    expect_refused(&it, "tokenizer.json");
    unlink(scratch_path(&it.place, "step-00000005/tokenizer.json"));
    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_IO, try_open(&it));
    ASSERT_SAID(&seen, "tokenizer.json");
    capture_end();
    victim_end(&it);
}

static void files_of_two_saves_do_not_mix(void **state)
{
    (void)state;
    victim it;
    victim_make(&it);
    model_part part = {0};
    model_share(&part, UNITS, UNIT_COUNT, 0, 1, 5);
    mics_rank_file_id id = {5, 0, 1};
    ASSERT_OK(mics_rank_file_write(it.memory, it.rank_path, id, part.shards, part.count, NULL));
    expect_refused(&it, "another save");
    model_free(&part);
    victim_end(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_cut_or_changed_anywhere),
        cmocka_unit_test(a_manifest_with_wrong_contents),
        cmocka_unit_test(a_rank_file_cut_anywhere),
        cmocka_unit_test(a_header_changed_anywhere),
        cmocka_unit_test(damaged_data_is_not_returned),
        cmocka_unit_test(hostile_headers),
        cmocka_unit_test(too_many_states),
        cmocka_unit_test(huge_headers),
        cmocka_unit_test(random_headers_never_crash),
        cmocka_unit_test(a_changed_tokenizer_is_noticed),
        cmocka_unit_test(files_of_two_saves_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

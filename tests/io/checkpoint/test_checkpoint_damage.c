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
enum { UNIT_COUNT = 2, SHARDS = 3 }; // the first unit's elements come as two shards

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
    size_t rank_bytes;
} victim;

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
             scratch_path(&it->place, "step-00000005/rank-00000.mics"));
    it->manifest = file_read(it->manifest_path, &it->manifest_bytes);
    it->rank = file_read(it->rank_path, &it->rank_bytes);
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
        {"\"version\": 2", "\"version\": 0", "version 0; this program reads"},
        {"\"version\": 2", "\"version\": 3", "is of version 3, and mics "},
        {"\"version\": 2,\n  \"program\": \"", "\"version\": 4,\n  \"program\": \"7.",
         "reads versions 1 to 2; use mics 7."},
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
        {"\"samples\": 4", "\"sample\": 4", "lacks \"samples\""},
        {"\"seed\": \"0", "\"seed\": \"x", "16 hexadecimal digits"},
        {"\"name\": \"rank-00000.mics\"", "\"name\": \"../rank-00000.mics\"", "plain file name"},
        {"\"name\": \"rank-00000.mics\"", "\"name\": \"..\"", "plain file name"},
        {"\"name\": \"rank-00000.mics\"", "\"name\": \"/etc/passwd\"", "plain file name"},
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
        expect_refused(&it, "rank-00000.mics: offset");
    }
    file_write(it.rank_path, it.rank, it.rank_bytes - 1);
    expect_refused(&it, "rank-00000.mics: offset");
    it.rank[it.rank_bytes] = 0;
    file_write(it.rank_path, it.rank, it.rank_bytes + 1);
    expect_refused(&it, "rank-00000.mics: offset");
    unlink(it.rank_path);
    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_IO, try_open(&it));
    ASSERT_SAID(&seen, "rank-00000.mics");
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
    size_t header_end = 24 + (size_t)it.rank[8] + ((size_t)it.rank[9] << 8);
    for (size_t at = 0; at < header_end; at++) {
        unsigned char bad = (unsigned char)(it.rank[at] ^ (1u << at % 8));
        overwrite(it.rank_path, (int64_t)at, &bad, 1);
        expect_refused(&it, "rank-00000.mics: offset");
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
    ASSERT_SAID(&seen, "rank-00000.mics: offset");
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

// Writes the rank file with a header whose checksum is right, whatever it says.
static void forge_header(victim *it, size_t header_bytes)
{
    uint64_t hash = XXH3_64bits(it->rank + 24, header_bytes);
    memcpy(it->rank + 16, &hash, 8);
    memcpy(it->rank + 8, &header_bytes, 8);
}

static void set_u64(victim *it, size_t at, uint64_t value)
{
    memcpy(it->rank + at, &value, 8);
}

static void hostile_headers(void **state)
{
    (void)state;
    victim it;
    victim_make(&it);
    uint64_t header_bytes = 0;
    memcpy(&header_bytes, it.rank + 8, 8);
    unsigned char *kept = malloc(24 + header_bytes);
    assert_non_null(kept);
    memcpy(kept, it.rank, 24 + header_bytes);
    const size_t shard = 24 + 40, states = shard + (size_t)40 * SHARDS;
    static const uint64_t far = UINT64_MAX;
    uint64_t twice = 0; // the name of the first state, for the second
    memcpy(&twice, kept + states + 8, 8);
    const struct {
        size_t at;
        uint64_t value;
        const char *said;
    } cases[] = {
        {24, far, "step is negative"},
        {32, (uint64_t)1 << 32 | 1, "rank is not below"},
        {40, 1, "chunks"},
        {40, (uint64_t)0xffffffff << 32 | 1 << 20, "do not fit"},
        {48, 1, "its header says 1"},
        {56, (uint64_t)0x7fffffff, "do not fit"},
        {56, (uint64_t)0xffffffff << 32 | SHARDS, "do not fit"},
        {shard, far, "of a unit of"},
        {shard, 0, "of a unit of 0"},
        {shard + 8, far, "elements 18446744073709551615"},
        {shard + 16, (uint64_t)1 << 54, "of a unit of"},
        {shard + 24, (uint64_t)6 << 32 | 0, "does not end"},
        {shard + 24, (uint64_t)5 << 32 | 0xffffff00u, "outside the names"},
        {shard + 24, (uint64_t)0xffffffff << 32, "outside the names"},
        {shard + 32, 0, "a shard with 0 states"},
        {shard + 32, 9, "a shard with 9 states; 1 to 8"},
        {shard + 32, far >> 32, "a shard with 4294967295 states"},
        {shard + 32, 2, "does not lie"},
        {shard + 32, (uint64_t)1 << 32 | 3, "a shard with 3 states"},
        {shard + 80 + 32, 4, "more states than the header says"},
        {shard + 80 + 32, 2, "more states than the shards have"},
        {states, 64, "does not lie"},
        {states + 24, far - 63, "does not lie"},
        {states + 8, (uint64_t)5 << 32 | 0xffffff00u, "outside the names"},
        {states + 8, (uint64_t)4 << 32 | 6, "does not end"},
        {states + 24 + 8, twice, "name of another of its shard"},
        {states + 16, 0x36314642, "state param is of dtype \"BF16\"; this program reads \"F32\""},
        {states + 16, 0x0a0a0a0a, "of dtype \"????\""},
        {states + 16, (uint64_t)1 << 32 | 0x323346, "ends in no 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(it.rank, kept, 24 + header_bytes);
        set_u64(&it, cases[i].at, cases[i].value);
        forge_header(&it, header_bytes);
        overwrite(it.rank_path, 0, it.rank, 24 + header_bytes);
        expect_refused(&it, cases[i].said);
    }
    // Other lengths of the header.
    memcpy(it.rank, kept, 24 + header_bytes);
    static const int64_t changes[] = {-8, 8, -64, 64};
    for (size_t i = 0; i < 4; i++) {
        forge_header(&it, (size_t)((int64_t)header_bytes + changes[i]));
        overwrite(it.rank_path, 0, it.rank, 24 + header_bytes);
        expect_refused(&it, "rank-00000.mics: offset");
    }
    set_u64(&it, 8, far);
    overwrite(it.rank_path, 0, it.rank, 24);
    expect_refused(&it, "a header of 18446744073709551615 bytes");
    // A file of holes costs its maker nothing; it must not cost its reader as much memory.
    set_u64(&it, 8, (uint64_t)2 << 30);
    overwrite(it.rank_path, 0, it.rank, 24);
    assert_int_equal(truncate(it.rank_path, (off_t)3 << 30), 0);
    expect_refused(&it, "a header of 2147483648 bytes");
    mics_memory_stats stats;
    mics_memory_stats_get(it.memory, &stats);
    assert_true(stats.total_peak < (size_t)1 << 30);
    free(kept);
    victim_end(&it);
}

static void random_headers_never_crash(void **state)
{
    (void)state;
    victim it;
    victim_make(&it);
    uint64_t header_bytes = 0;
    memcpy(&header_bytes, it.rank + 8, 8);
    unsigned char *kept = malloc(24 + header_bytes);
    assert_non_null(kept);
    memcpy(kept, it.rank, 24 + header_bytes);
    uint64_t random = 7;
    capture seen;
    capture_begin(&seen);
    for (int round = 0; round < 3000; round++) {
        memcpy(it.rank, kept, 24 + header_bytes);
        for (uint64_t i = next_random(&random) % 4; i < 4; i++)
            it.rank[24 + next_random(&random) % header_bytes] =
                (unsigned char)(next_random(&random) % 3 == 0 ? 0xff : next_random(&random));
        forge_header(&it, header_bytes);
        overwrite(it.rank_path, 0, it.rank, 24 + header_bytes);
        mics_rank_file file = {0};
        seen.errors = 0;
        mics_status status = mics_rank_file_load(it.memory, it.rank_path, &file);
        assert_true(status == MICS_OK || status == MICS_ERR_FORMAT);
        assert_int_equal(seen.errors, status == MICS_OK ? 0 : 1);
        mics_rank_file_fini(it.memory, &file);
        assert_int_equal(try_open(&it) == MICS_OK,
                         memcmp(it.rank, kept, 24 + header_bytes) == 0); // the manifest knows
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
        cmocka_unit_test(random_headers_never_crash),
        cmocka_unit_test(a_changed_tokenizer_is_noticed),
        cmocka_unit_test(files_of_two_saves_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

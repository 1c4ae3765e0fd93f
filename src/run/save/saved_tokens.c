// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What text a run's tokens are, and what stands around it.
#include "base/file.h"
#include "base/text.h"
#include "mics/log.h"
#include "run/hf_metadata.h"
#include "run/job.h"
#include "saved.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

mics_status run_saved_frame(const mics_saved *saved, mics_token_frame *frame_out)
{
    *frame_out = (mics_token_frame){0};
    return saved->frames_texts ? mics_tokenizer_frame(saved->tokenizer, frame_out) : MICS_OK;
}

bool run_is_shard(const char *path)
{
    char index[RUN_PATH_BYTES]; // Megatron's arguments leave the ending away
    snprintf(index, sizeof index, "%s.idx", path);
    return mics_text_ends(path, ".bin") || access(index, F_OK) == 0;
}

bool run_tokens_unknown(const char *tokenizer, bool only_shards, int64_t vocab)
{
    enum { BYTES = 256 };
    return only_shards && strcmp(tokenizer, "bytes") == 0 && vocab != BYTES;
}

mics_status run_is_byte_tokenizer(mics_memory *memory, const char *path, bool *is_out)
{
    char *read = NULL;
    size_t bytes = 0;
    mics_text text = {.memory = memory};
    mics_status status = run_hf_metadata_byte_tokenizer(&text);
    if (status == MICS_OK)
        status = mics_file_read_whole(memory, path, MICS_FILE_MAX_WHOLE, &read, &bytes);
    *is_out = status == MICS_OK && bytes == text.used && memcmp(read, text.bytes, bytes) == 0;
    mics_free(memory, read);
    mics_text_fini(&text);
    return status;
}

// With these switches classes of transformers 4 put a token around a text, whatever the
// tokenizer.json says. Tokenizers of DeepSeek's models are published so.
static void warn_of_switch(const mics_json *config, const char *key, const char *where,
                           int64_t tokens)
{
    if (tokens == 0 && mics_json_bool(mics_json_at(config, key)))
        mics_log(MICS_LOG_WARNING,
                 "%s:%d: %s is true, but the tokenizer.json puts no token %s a text, and counts "
                 "here; where the model expects one, save the tokenizer with transformers 4 "
                 "(save_pretrained), which writes it there",
                 mics_json_name(config), (int)mics_json_line(config, key), key, where);
}

// A tokenizer_config.json that cannot be read is no error: nothing else is taken from it.
void run_warn_of_frame(mics_memory *memory, const char *folder, const mics_tokenizer *tokenizer)
{
    char *path = NULL;
    mics_json *config = NULL;
    mics_token_frame frame = {0};
    const bool muted = mics_log_mute(true);
    mics_status status = mics_file_join(memory, folder, "tokenizer_config.json", &path);
    if (status == MICS_OK)
        status = mics_json_load(memory, path, MICS_FILE_MAX_WHOLE, &config);
    if (status == MICS_OK)
        status = mics_tokenizer_frame(tokenizer, &frame);
    mics_log_mute(muted);
    if (status == MICS_OK) {
        warn_of_switch(config, "add_bos_token", "before", frame.before_count);
        warn_of_switch(config, "add_eos_token", "behind", frame.after_count);
    }
    mics_json_close(config);
    mics_free(memory, path);
}

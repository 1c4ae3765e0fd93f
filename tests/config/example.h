// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A run file with a key of most kinds.
#pragma once

static const char example[] =
    "{\n"
    "  \"model\": {\"config\": \"model.json\", \"init\": \"random\", \"dropout\": 0},\n"
    "  \"data\":  {\"train\": [\"corpus/*.txt\", \"b.bin\"], \"validation\": \"v.txt\",\n"
    "             \"tokenizer\": \"bytes\", \"sequence_length\": 256},\n"
    "  \"run\":   {\"steps\": 200, \"seed\": 7, \"out\": \"runs/x\", \"checkpoint_every\": 100,\n"
    "             \"precision\": \"fp32\", \"device\": \"auto\", \"memory_limit\": \"2GiB\",\n"
    "             \"recompute\": true, \"threads\": 2},\n"
    "  \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 2,\n"
    "  \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-4, \"betas\": [0.9, 0.95],\n"
    "                \"eps\": 1e-8, \"weight_decay\": 0.1}},\n"
    "  \"scheduler\": {\"type\": \"WarmupCosineLR\",\n"
    "                \"params\": {\"warmup_num_steps\": 20, \"total_num_steps\": 200}},\n"
    "  \"gradient_clipping\": 1.0,\n"
    "  \"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 2,\n"
    "                        \"mics_hierarchical_params_gather\": true}\n"
    "}\n";

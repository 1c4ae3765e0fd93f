// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Flags of other programs. Names that are keys of files, ours or others', are known by those tables; here are the rest.
#include "base/text.h"
#include "config/adopt.h"
#include <string.h>

enum { NAME_BYTES = 64 };

static const char launched[] =
    "a launcher starts the ranks, one a GPU: mpirun -n 16 --hostfile FILE mics train RUN.json, or "
    "srun; without one --ranks N --nodes M makes them threads of this process";

// A text without a blank is a key, or one with its value.
static const struct {
    const char *flags, *means;
} rows[] = {
    {"b|bs|batch|batch_size|global_batch_size|train_batch", "train_batch_size"},
    {"mbs|device_batch_size|per_device_batch_size", "train_micro_batch_size_per_gpu"},
    {"grad_accum|grad_accum_steps|accumulate_grad_batches|gradient_accumulation",
     "gradient_accumulation_steps"},
    {"e|epoch|epochs|n_epochs|max_epochs|num_epochs", "num_train_epochs"},
    {"iters|max_iters|train_iters|num_steps|num_iterations|total_steps|max_train_steps",
     "run.steps"},
    {"sequence|seq|seq_len|seq_length|max_seq_len|max_len|context_length|ctx_len|model_max_length|"
     "n_ctx",
     "data.sequence_length"},
    {"wd", "optimizer.params.weight_decay"},
    {"opt|optimizer|optimizer_type", "optimizer.type"},
    {"scheduler|lr_schedule|lr_decay_style", "scheduler.type"},
    {"warmup|warmup_iters|num_warmup_steps|lr_warmup_iters", "scheduler.params.warmup_num_steps"},
    {"clip|clip_grad|grad_clip|gradient_clip_val|max_norm", "gradient_clipping"},
    {"save|save_dir|save_path|output|output_path|o", "run.out"},
    {"save_interval|save_every|ckpt_every|checkpoint_interval", "run.checkpoint_every"},
    {"eval_interval|eval_every|val_check_interval|val_every", "run.validate_every"},
    {"log_interval|log_freq|print_every", "run.log_every"},
    {"log_dir|tensorboard_dir|logging_dir", "run.tensorboard"},
    {"train_data|data_path|data_dir|train_data_path|dataset_path", "data.train"},
    {"val_data|valid_data|eval_data|validation_data|eval_file", "data.validation"},
    {"tokenizer_path|tokenizer_model|vocab_file", "data.tokenizer"},
    {"model_path|model_name|pretrained|checkpoint_path|m", "model.config"},
    {"zero|zero_stage|stage|use_zero", "zero_optimization.stage"},
    {"mics|shard_size|partition_size|hsdp_shard_size|fsdp_size",
     "zero_optimization.mics_shard_size"},
    {"amp|bf16|bfloat16|use_bf16", "run.precision=bf16"},
    {"fp16|float16|half", "run.precision=fp16"},
    {"tf32", "run.precision=tf32"},
    {"cuda|use_cuda", "run.device=cuda"},
    {"cpu|use_cpu|no_cuda", "run.device=cpu"},
    {"accelerator|device_map", "run.device"},
    {"num_threads|omp_num_threads", "run.threads"},
    {"gradient_checkpointing|activation_checkpointing|recompute_activations|grad_checkpoint",
     "run.recompute=true"},
    {"use_lora|lora_dim", "adapter.r"},
    {"hostfile|hosts|host|n|np|ntasks|include|exclude|launcher|master_addr|master_port|node_rank|"
     "rdzv_endpoint|rdzv_id|rdzv_conf|standalone|ssh_port|multi_gpu|num_nodes|nnodes|"
     "nproc_per_node|num_gpus|gpus|gpu|n_gpus|ngpus|num_devices|devices|world_size|num_processes|"
     "num_machines|machine_rank|main_process_ip|main_process_port|local_rank|rdzv_backend",
     launched},
    {"c|config|config_file|cfg|deepspeed|deepspeed_config|ds_config|run_file|yaml",
     "the file is the argument: mics train RUN.json; DeepSpeed's, accelerate's, axolotl's and the "
     "Trainer's run as they are"},
    {"resume_from_checkpoint|resume_from|load|load_dir|load_checkpoint|ckpt|checkpoint|restore|"
     "auto_resume|init_from",
     "--resume auto is the default; --resume DIR takes a checkpoint, and --model FOLDER begins "
     "from "
     "weights"},
    {"tp|tp_size|tensor_parallel|tensor_parallel_size|tensor_model_parallel_size|pp|pp_size|"
     "pipeline_parallel_size|pipeline_model_parallel_size",
     "tensor and pipeline parallelism are not built; mics plan says what to do instead"},
    {"dry_run", "mics explain shows what a run would do, and runs nothing"},
    {"list_keys|keys", "mics explain RUN.json --keys lists all keys"},
};

static bool is_name(const char *path, const char *name)
{
    return strcmp(path, name) == 0 || strcmp(mics_config_leaf(path), name) == 0;
}

// A key of ours by its last name, or of another program's files.
static mics_run_flag known(const char *name)
{
    const adopted_key *adopted = mics_config_adopted(name);
    for (int32_t i = 0; i < mics_config_key_count() && adopted == NULL; i++) {
        const key *row = mics_config_key(i);
        if (row->type != KEY_SECTION && is_name(row->path, name))
            return (mics_run_flag){.key = row->path};
    }
    foreign_key row = mics_config_foreign(0);
    for (int32_t i = 0; row.path != NULL && adopted == NULL; row = mics_config_foreign(++i)) {
        if (is_name(row.path, name))
            return (mics_run_flag){.says = row.why};
    }
    return (mics_run_flag){.key = adopted != NULL ? adopted->target : NULL};
}

mics_run_flag mics_run_flag_row(size_t index)
{
    const char *means = index < sizeof rows / sizeof *rows ? rows[index].means : NULL;
    const bool is_key = means == NULL || strchr(means, ' ') == NULL;
    const mics_run_flag flag = {.key = is_key ? means : NULL, .says = is_key ? NULL : means};
    return flag;
}

mics_run_flag mics_run_flag_of(const char *flag)
{
    char name[NAME_BYTES];
    mics_text_format(name, sizeof name, "%s", flag);
    for (char *at = name; *at != '\0'; at++)
        *at = *at == '-' ? '_' : *at;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (mics_text_is_among(name, rows[i].flags))
            return mics_run_flag_row(i);
    }
    return known(name);
}

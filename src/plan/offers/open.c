// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan is asked: run file, model, cluster, precision.
#include "base/json.h"
#include "base/size.h"
#include "base/text.h"
#include "config/config.h"
#include "mics/log.h"
#include "model/from_config.h"
#include "plan/offers/planning.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

// What a config.json is planned with where nothing else is said: as Llama 2 was trained.
enum { BARE_LENGTH = 4096, BARE_TOKENS = 1 << 22, KERNELS_BYTES = 96 };

// ---- run ----

// What of a run file a plan can do without, as files of other systems have it in their programs.
typedef struct given {
    bool bare; // a model's configuration, or its folder, rather than a run file
    bool data, steps;
} given;

// As elsewhere in a run file, null is as if it were absent.
static bool is_there(const mics_json *json, const char *path)
{
    return mics_json_type_of(mics_json_at(json, path)) != MICS_JSON_NULL;
}

// A model's sizes without its family; no run file has them.
static bool lacks_type(const mics_json *json)
{
    return !is_there(json, "model_type") && !is_there(json, "model") &&
           (is_there(json, "num_hidden_layers") || is_there(json, "n_layer")) &&
           (is_there(json, "hidden_size") || is_there(json, "n_embd"));
}

static mics_status look_into(mics_memory *memory, const char *path, given *given_out)
{
    struct stat found;
    mics_json *json = NULL;
    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode)) {
        given_out->bare = true;
        return MICS_OK;
    }
    MICS_TRY(mics_json_load(memory, path, MICS_MODEL_CONFIG_MAX_BYTES, &json));
    if (lacks_type(json)) {
        const mics_status status =
            mics_json_fail(json, "model_type", MICS_ERR_FORMAT,
                           "missing from a model's configuration; add it, as in \"llama\"");
        mics_json_close(json);
        return status;
    }
    given_out->bare = mics_run_is_model(json);
    given_out->data = is_there(json, "data.train");
    given_out->steps = is_there(json, "run.steps") || is_there(json, "max_steps") ||
                       is_there(json, "num_train_epochs");
    mics_json_close(json);
    return MICS_OK;
}

// What the file lacks stands before the caller's sets, which go before it.
static mics_status load_file(mics_plan *plan, const mics_plan_spec *spec, const given *in_file)
{
    void *block = NULL;
    int32_t count = 0;
    MICS_TRY(mics_alloc(plan->memory, MICS_MEM_HOST,
                        ((size_t)spec->set_count + 2) * sizeof(const char *), &block));
    const char **sets = block;
    if (!in_file->data)
        sets[count++] = "data.train=[\"none\"]";
    if (!in_file->steps)
        sets[count++] = "num_train_epochs=1";
    for (int32_t i = 0; i < spec->set_count; i++)
        sets[count++] = spec->sets[i];
    const mics_status status = mics_run_load(plan->memory, spec->file, sets, count, &plan->run);
    mics_free(plan->memory, block);
    return status;
}

static mics_status load_run(mics_plan *plan, const mics_plan_spec *spec)
{
    mics_text text = {.memory = plan->memory};
    given has = {.bare = false};
    MICS_TRY(look_into(plan->memory, spec->file, &has));
    plan->bare = has.bare;
    if (!plan->bare)
        return load_file(plan, spec, &has);
    mics_text_printf(&text, "{\"model\": {\"config\": ");
    mics_text_quoted(&text, spec->file);
    mics_text_printf(&text, "}, \"data\": {\"train\": [\"none\"]}, \"run\": {\"steps\": 1}, "
                            "\"train_micro_batch_size_per_gpu\": 1}");
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_run_parse(plan->memory, spec->file, text.bytes, spec->sets, spec->set_count,
                                &plan->run);
    mics_text_fini(&text);
    return status;
}

// ---- cluster ----

// The price that counts. Spot nodes are taken away, which costs more than their price.
static mics_status choose_price(mics_plan *plan, const char *text)
{
    mics_cluster *c = &plan->cluster;
    mics_price price = MICS_PRICE_ON_DEMAND;
    while (price < MICS_PRICE_SPOT &&
           (text != NULL ? strcmp(text, mics_price_text(price)) != 0 : c->prices[price] == 0))
        price++;
    if (price == MICS_PRICE_SPOT && text != NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "--price %s is not known; on-demand, reserved and marketplace are%s", text,
                         strcmp(text, mics_price_text(price)) == 0
                             ? "; spot nodes stand beside them, with --preemptions-per-node-day"
                             : "");
    plan->price = price == MICS_PRICE_SPOT ? MICS_PRICE_ON_DEMAND : price;
    c->usd_per_node_hour = c->prices[plan->price];
    return MICS_OK;
}

static mics_status open_cluster(mics_plan *plan, const mics_plan_spec *spec)
{
    MICS_TRY(mics_cluster_open(plan->memory, spec->cluster, &plan->cluster, &plan->nodes));
    if (plan->nodes == 0 && !spec->any_nodes)
        return mics_fail(MICS_ERR_INVALID,
                         "--cluster %s does not say how many nodes; write %s:8 for eight, or "
                         "--sweep nodes=1..64 for a curve",
                         spec->cluster, spec->cluster);
    return choose_price(plan, spec->price);
}

// ---- precision ----

// Of 16 bits what the accelerator is faster in; bf16 in doubt.
static mics_math half_math(const mics_accelerator *device)
{
    return device->flops_per_s[MICS_MATH_FP16] > device->flops_per_s[MICS_MATH_BF16]
               ? MICS_MATH_FP16
               : MICS_MATH_BF16;
}

// What the run file computes in; "auto" where it leaves that open.
static const char *file_precision(const mics_run *run)
{
    const mics_json_value *bf16 = mics_json_at(run->json, "bf16.enabled");
    const bool off = mics_json_type_of(bf16) == MICS_JSON_BOOL && !mics_json_bool(bf16);
    if (run->precision != MICS_RUN_PRECISION_AUTO)
        return mics_run_precision_text(run->precision);
    return off || run->device == MICS_RUN_DEVICE_CPU ? "fp32" : "auto";
}

// What only GPUs run, or what the file asks for, or where that is open what the cluster's ranks
// are.
static bool on_accelerators(const mics_plan *plan)
{
    if (plan->math == MICS_MATH_TF32 || plan->math == MICS_MATH_FP16)
        return true;
    if (plan->run->device == MICS_RUN_DEVICE_AUTO)
        return mics_accelerator_is_gpu(&plan->cluster.accelerator);
    return plan->run->device == MICS_RUN_DEVICE_CUDA;
}

// With "auto" 16 bits on accelerators.
static mics_status choose_precision(mics_plan *plan, const char *text, bool any)
{
    static const mics_math maths[] = {MICS_MATH_FP32, MICS_MATH_TF32, MICS_MATH_BF16,
                                      MICS_MATH_FP16, MICS_MATH_FP8};
    const mics_accelerator *device = &plan->cluster.accelerator;
    const mics_math half = half_math(device);
    bool known = false;
    if (strcmp(text, "auto") == 0) {
        plan->math = mics_accelerator_is_gpu(device) ? half : MICS_MATH_FP32;
        known = true;
    } else if (strcmp(text, "mixed") == 0) {
        plan->math = half;
        known = true;
    }
    for (size_t i = 0; !known && i < sizeof maths / sizeof maths[0]; i++) {
        known = strcmp(text, mics_math_text(maths[i])) == 0;
        plan->math = maths[i];
    }
    if (!known)
        return mics_fail(
            MICS_ERR_INVALID,
            "--precision %s is not known; fp32, tf32, bf16, fp16, fp8, mixed or auto work", text);
    if (!any && plan->math == MICS_MATH_FP8 && device->flops_per_s[MICS_MATH_FP8] == 0)
        return mics_fail(MICS_ERR_INVALID, "--precision fp8: %s has no tflops_fp8",
                         device->name[0] != '\0' ? device->name : plan->cluster.name);
    plan->precision = plan->math == MICS_MATH_FP32 || plan->math == MICS_MATH_TF32
                          ? MICS_PRECISION_FP32
                          : MICS_PRECISION_MIXED;
    plan->accelerator = on_accelerators(plan);
    return MICS_OK;
}

// Rates that were measured are of one kind of device alone.
static mics_status check_device(const mics_plan *plan, const mics_plan_spec *spec)
{
    const char *of = plan->cluster.accelerator.device;
    if (of[0] == '\0' || mics_accelerator_is_gpu(&plan->cluster.accelerator) == plan->accelerator)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "--cluster %s was measured on %s, and the plan is for %s (%s, run.device %s); "
                     "give a file that was measured there, or set run.device and --precision",
                     spec->cluster, plan->accelerator ? "CPUs" : "GPUs",
                     plan->accelerator ? "GPUs" : "CPUs", mics_math_text(plan->math),
                     mics_run_device_text(plan->run->device));
}

// ---- attention ----

// The kernels that a chip has rates of, or all: "unfused, flash2 and cudnn".
static const char *kernels_text(const mics_accelerator *chip, char text[KERNELS_BYTES])
{
    const char *names[MICS_ATTENTION_KERNELS] = {NULL};
    int32_t count = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < MICS_ATTENTION_KERNELS; i++) {
        if (chip == NULL || chip->attention_kernels[i].count > 0)
            names[count++] = mics_attention_kernel_text((mics_attention_kernel)i);
    }
    for (int32_t i = 0; i < count && used < KERNELS_BYTES; i++)
        used += (size_t)snprintf(text + used, KERNELS_BYTES - used, "%s%s",
                                 i == 0 ? "" : (i + 1 < count ? ", " : " and "), names[i]);
    return text;
}

static bool is_same(const mics_curve *a, const mics_curve *b)
{
    bool same = a->count == b->count;
    for (int32_t i = 0; same && i < a->count; i++)
        same = a->size[i] == b->size[i] && a->value[i] == b->value[i];
    return same;
}

// The kernel whose rates are taken where nobody chooses; NULL: none.
static const char *own_kernel(const mics_accelerator *chip)
{
    for (int i = 0; i < MICS_ATTENTION_KERNELS; i++) {
        const char *name = mics_attention_kernel_text((mics_attention_kernel)i);
        if (strcmp(chip->attention, name) == 0 && chip->attention_kernels[i].count > 0 &&
            is_same(&chip->attention_kernels[i], &chip->attention_efficiency))
            return name;
    }
    return NULL;
}

static mics_status take_kernel(mics_plan *plan, const mics_plan_spec *spec, int kernel)
{
    mics_accelerator *chip = &plan->cluster.accelerator;
    char there[KERNELS_BYTES];
    plan->attention = mics_attention_kernel_text((mics_attention_kernel)kernel);
    plan->lacks_attention = chip->attention_kernels[kernel].count == 0;
    if (!plan->lacks_attention)
        chip->attention_efficiency = chip->attention_kernels[kernel];
    else if (!spec->any_precision)
        return mics_fail(MICS_ERR_INVALID, "--attention %s: no rates of it are known on %s; of %s",
                         spec->attention, chip->name[0] != '\0' ? chip->name : plan->cluster.name,
                         *kernels_text(chip, there) != '\0' ? there : "no kernel by its name");
    return MICS_OK;
}

static mics_status choose_attention(mics_plan *plan, const mics_plan_spec *spec)
{
    char all[KERNELS_BYTES];
    plan->attention = own_kernel(&plan->cluster.accelerator);
    if (spec->attention == NULL) { // what the run file says, where its rates are known
        const int cudnn = MICS_ATTENTION_CUDNN;
        const bool known = plan->cluster.accelerator.attention_kernels[cudnn].count > 0;
        return known && plan->accelerator && plan->run->attention == MICS_RUN_ATTENTION_CUDNN
                   ? take_kernel(plan, spec, cudnn)
                   : MICS_OK;
    }
    for (int i = 0; i < MICS_ATTENTION_KERNELS; i++) {
        if (strcmp(spec->attention, mics_attention_kernel_text((mics_attention_kernel)i)) == 0)
            return take_kernel(plan, spec, i);
    }
    return mics_fail(MICS_ERR_INVALID, "--attention %s is not known; %s are", spec->attention,
                     kernels_text(NULL, all));
}

static mics_status choose_kernels(mics_plan *plan, const char *kernels)
{
    mics_accelerator *chip = &plan->cluster.accelerator;
    if (kernels == NULL)
        return MICS_OK;
    if (strcmp(kernels, "separate") != 0 && strcmp(kernels, "fused") != 0)
        return mics_fail(MICS_ERR_INVALID, "--kernels %s is not known; separate and fused are",
                         kernels);
    snprintf(chip->kernels, sizeof chip->kernels, "%s", kernels);
    return MICS_OK;
}

// "mics" is what plans are of anyway.
static mics_status choose_software(mics_plan *plan, const char *name)
{
    char names[256];
    if (name == NULL || strcmp(name, "mics") == 0)
        return MICS_OK;
    plan->software = mics_software_find(name);
    return plan->software != NULL
               ? MICS_OK
               : mics_fail(MICS_ERR_INVALID, "--software %s is not known; %s are", name,
                           mics_software_names(names, sizeof names));
}

// ---- reserve ----

static mics_status take_reserve(mics_plan *plan, const mics_plan_spec *spec)
{
    mics_accelerator *chip = &plan->cluster.accelerator;
    const double there = chip->memory_bytes - chip->reserve_bytes;
    char text[32];
    plan->reserve_bytes = spec->has_reserve ? spec->reserve_bytes : MICS_PLAN_RESERVE * there;
    if (plan->reserve_bytes >= there)
        return mics_fail(MICS_ERR_INVALID,
                         "--reserve: a rank of %s has %s for the run; leave some of it",
                         plan->cluster.name, mics_size_text(there, text, sizeof text));
    chip->reserve_bytes += plan->reserve_bytes;
    if (!spec->has_reserve && plan->run->memory_limit_bytes == 0)
        plan->margin_bytes = fmin(MICS_PLAN_MARGIN_BYTES, MICS_PLAN_MARGIN * chip->memory_bytes);
    return MICS_OK;
}

// ---- model ----

static int32_t count_experts(const mics_model *model)
{
    int32_t most = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t i = 0; i < model->units[u].op_count; i++) {
            const int32_t count = model->units[u].ops[i].experts.count;
            most = count > most ? count : most;
        }
    }
    return most;
}

// The family decides what its config.json does not say.
static void warn_guess(const mics_plan *plan, const mics_plan_spec *spec, const char *type)
{
    char text[256];
    if (!spec->silent_guess && mics_model_is_guess(plan->config, text, sizeof text))
        mics_log(MICS_LOG_WARNING,
                 "%s:%d: model_type: %.64s is not known, and taken for %s; check the number of "
                 "parameters",
                 mics_json_name(plan->config), (int)mics_json_line(plan->config, "model_type"),
                 type, text);
}

static void log_outer(const mics_plan *plan)
{
    if (plan->run->outer.every > 0)
        mics_log(MICS_LOG_INFO, "outer: plans are of synchronous training, but for the run file's "
                                "own row; --local plans local steps");
}

// A family that cannot be trained yet is planned by its shapes.
static mics_status open_model(mics_plan *plan, const mics_plan_spec *spec)
{
    const char *type = mics_json_string(mics_json_at(plan->config, "model_type"));
    mics_family family;
    plan->by_shapes = type != NULL && !mics_model_family(type, &family);
    if (plan->by_shapes)
        MICS_TRY(mics_model_from_shapes(plan->memory, plan->config, &plan->model));
    if (plan->by_shapes)
        warn_guess(plan, spec, type);
    else
        MICS_TRY(mics_model_from_config(plan->memory, plan->config, plan->run->ignore_dropout,
                                        &plan->model));
    MICS_TRY(mics_run_adapt(plan->run, plan->model));
    if (plan->precision == MICS_PRECISION_MIXED)
        MICS_TRY(mics_run_widen_residual(plan->run, plan->model));
    return mics_run_mask_documents(plan->run, plan->model);
}

// ---- batch ----

// A batch key's number; 0 when it is absent or "auto". mics_run_load has checked its range.
static int64_t batch_key(const mics_run *run, const char *key)
{
    const mics_json_value *value = mics_json_at(run->json, key);
    if (value == NULL)
        return 0;
    return mics_json_type_of(value) == MICS_JSON_INT    ? mics_json_int(value)
           : mics_json_type_of(value) == MICS_JSON_REAL ? (int64_t)mics_json_real(value)
                                                        : 0;
}

// The global batch is what must stay; how it is cut is what is searched for.
static mics_status read_batch(mics_plan *plan)
{
    const int64_t micro = batch_key(plan->run, "train_micro_batch_size_per_gpu");
    int64_t steps = batch_key(plan->run, "gradient_accumulation_steps");
    plan->train_batch = batch_key(plan->run, "train_batch_size");
    if (steps < 1)
        steps = 1;
    if (plan->train_batch > 0)
        return MICS_OK;
    return mics_size_mul(micro > 0 ? micro : 1, steps, &plan->rank_batch);
}

static mics_status read_step(mics_plan *plan)
{
    plan->length = mics_plan_request_of(plan->run, plan->model).length;
    return read_batch(plan);
}

// Of phases the one whose steps have most tokens.
static mics_status enter_largest(mics_plan *plan)
{
    mics_run *run = plan->run;
    int64_t largest = 0;
    double most = 0;
    for (int64_t begin = 0;; begin = run->phase_end) {
        mics_run_enter(run, begin);
        MICS_TRY(mics_run_keep(run, mics_json_name(run->json), "{}"));
        MICS_TRY(read_step(plan));
        const int64_t batch = plan->train_batch > 0 ? plan->train_batch : plan->rank_batch;
        const double tokens = (double)batch * (double)plan->length;
        largest = tokens > most ? begin : largest;
        most = tokens > most ? tokens : most;
        if (run->phase_end == 0)
            break;
    }
    mics_run_enter(run, largest);
    return mics_run_keep(run, mics_json_name(run->json), "{}");
}

// ---- from outside ----

static mics_status fill(mics_plan *plan, const mics_plan_spec *spec)
{
    MICS_TRY(load_run(plan, spec));
    MICS_TRY(open_cluster(plan, spec));
    MICS_TRY(choose_precision(plan,
                              spec->precision != NULL ? spec->precision : file_precision(plan->run),
                              spec->any_precision));
    MICS_TRY(check_device(plan, spec));
    MICS_TRY(choose_attention(plan, spec));
    MICS_TRY(choose_kernels(plan, spec->kernels));
    MICS_TRY(choose_software(plan, spec->software));
    MICS_TRY(take_reserve(plan, spec));
    plan->pipeline = spec->pipeline;
    if (plan->software != NULL)
        plan->pipeline.era = plan->software->era;
    MICS_TRY(mics_json_load(plan->memory, plan->run->model_config, MICS_MODEL_CONFIG_MAX_BYTES,
                            &plan->config));
    MICS_TRY(open_model(plan, spec));
    plan->experts = count_experts(plan->model);
    if (plan->run->phase_count > 0)
        MICS_TRY(enter_largest(plan));
    log_outer(plan);
    MICS_TRY(read_step(plan));
    if (plan->bare && plan->run->sequence_length == 0 && plan->length > BARE_LENGTH)
        plan->length = BARE_LENGTH;
    return MICS_OK;
}

mics_status mics_plan_open(mics_memory *memory, const mics_plan_spec *spec, mics_plan **plan_out)
{
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, sizeof(mics_plan), &block));
    mics_plan *plan = block;
    plan->memory = memory;
    plan->listener = spec->listener;
    const mics_status status = fill(plan, spec);
    if (status == MICS_OK)
        *plan_out = plan;
    else
        mics_plan_close(plan);
    return status;
}

void mics_plan_close(mics_plan *plan)
{
    if (plan == NULL)
        return;
    mics_model_close(plan->model);
    mics_json_close(plan->config);
    mics_run_close(plan->run);
    mics_free(plan->memory, plan);
}

mics_plan_request mics_plan_request_of(const mics_run *run, const mics_model *model)
{
    return (mics_plan_request){
        .model = model,
        .length = mics_run_length(run, model->positions),
        .global_batch = run->global_batch,
        .micro_batch = run->micro_batch,
        .preference = run->preference,
        .optimizer = run->optimizer.kind,
        .state_dtype = run->state_dtype,
        .rounded_sums = run->rounded_sums,
        .param_persistence_threshold = run->param_persistence_threshold,
        .coalesce_below = run->coalesce_below,
        .params_dtype = run->params_dtype,
        .delta_sync = run->delta_sync,
        .grads_dtype = run->grads_dtype,
        .boundary_dtype = run->boundary_dtype,
        .threads = run->threads,
        .library = run->attention != MICS_RUN_ATTENTION_OWN,
        .min_replicas = run->min_replicas,
        .node_memory = run->memory_checkpoint_every > 0,
    };
}

// Whether nobody said how large the batch is.
static bool has_usual_batch(const mics_plan *plan)
{
    return plan->train_batch == 0 && plan->bare && plan->rank_batch == 1;
}

// What no number holds becomes the largest, which the planner refuses.
int64_t mics_plan_batch_asked(const mics_plan *plan, int32_t nodes)
{
    const int64_t ranks = (int64_t)nodes * mics_cluster_ranks_per_node(&plan->cluster);
    if (plan->train_batch > 0)
        return plan->train_batch;
    if (has_usual_batch(plan))
        return (BARE_TOKENS + plan->length - 1) / plan->length;
    return plan->rank_batch > INT64_MAX / ranks ? INT64_MAX : plan->rank_batch * ranks;
}

// Sequences a step on so many nodes.
static int64_t global_batch(const mics_plan *plan, int32_t nodes)
{
    const int64_t ranks = (int64_t)nodes * mics_cluster_ranks_per_node(&plan->cluster);
    const int64_t asked = mics_plan_batch_asked(plan, nodes);
    return has_usual_batch(plan) ? mics_size_round_up(asked, ranks) : asked;
}

// What run.memory_limit says. No GPU has more than its own memory; of CPUs the limit knows better.
static double memory_limit(const mics_plan *plan)
{
    const mics_accelerator *device = &plan->cluster.accelerator;
    const double limit = (double)plan->run->memory_limit_bytes;
    const double there = device->memory_bytes - device->reserve_bytes;
    return plan->accelerator && limit > there ? there : limit;
}

mics_plan_request mics_plan_request_get(const mics_plan *plan, int32_t nodes)
{
    const mics_run *run = plan->run;
    mics_plan_request request = mics_plan_request_of(run, plan->model);
    request.cluster = plan->cluster;
    request.length = plan->length;
    request.nodes = nodes;
    request.global_batch = global_batch(plan, nodes);
    request.precision = plan->precision;
    request.math = plan->math;
    request.accelerator = plan->accelerator;
    request.share_params = run->share_params;
    request.memory_bytes = memory_limit(plan);
    request.margin_bytes = plan->margin_bytes;
    const bool ring = run->collectives == MICS_COLLECTIVES_RING &&
                      mics_cluster_ranks_per_node(&plan->cluster) > 1;
    if (run->boundary_auto && plan->math == MICS_MATH_BF16 && !plan->accelerator && !ring)
        request.boundary_dtype.inter = MICS_COMM_BF16; // as mics_run_resolve has it
    return request;
}

mics_plan_request mics_plan_rivals_get(const mics_plan *plan, int32_t nodes)
{
    mics_plan_request request = mics_plan_request_get(plan, nodes);
    request.software = plan->software;
    if (plan->software != NULL)
        mics_software_apply(plan->software, &request.cluster);
    return request;
}

const char *mics_plan_precision_text(const mics_plan *plan)
{
    static const char *const texts[MICS_MATHS] = {
        [MICS_MATH_BF16] = "bf16 with fp32 masters",
        [MICS_MATH_FP16] = "fp16 with fp32 masters",
        [MICS_MATH_FP8] = "GEMMs in fp8, bf16 with fp32 masters",
        [MICS_MATH_TF32] = "fp32, GEMMs in tf32",
    };
    return texts[plan->math] != NULL ? texts[plan->math] : "fp32";
}

// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files have a tensor an expert and matrix, or one of all experts of a layer; here one parameter
// holds the rows of an expert's gate and up, another those of its down. The experts of a layer are
// a unit of their own.
#include "model/mixture.h"
#include "mics/builder.h"
#include <stdio.h>
#include <string.h>

// Far beyond any model; files have three tensors an expert.
enum { MODULE_BYTES = 2 * MICS_NAME_BYTES, MAX_EXPERTS = 4096, MAX_EXPERTS_OF_ALL = 1 << 17 };

// ---- configuration ----

// Numbers beyond the last layer are of no effect: a configuration may have fewer layers than its
// list was made for.
static void check_only_dense(config_reader *reader)
{
    static const char key[] = "mlp_only_layers";
    const mics_json_value *list = mics_json_at(reader->json, key);
    const mics_json_type type = mics_json_type_of(list);
    bool right = type == MICS_JSON_NULL || type == MICS_JSON_ARRAY;
    for (int32_t i = 0; type == MICS_JSON_ARRAY && i < mics_json_count(list); i++) {
        const mics_json_value *layer = mics_json_element(list, i);
        right = right && mics_json_type_of(layer) == MICS_JSON_INT && mics_json_int(layer) >= 0 &&
                mics_json_int(layer) < CONFIG_MAX_LAYERS;
    }
    if (reader->status == MICS_OK && !right)
        reader->status =
            mics_json_fail(reader->json, key, MICS_ERR_INVALID,
                           "must be an array of numbers of layers, 0 to %d", CONFIG_MAX_LAYERS - 1);
}

// Adds the losses' factors where the model gives them out.
static void read_losses(config_reader *reader, int64_t with_experts, mics_router_spec *router)
{
    const double balance = config_real(reader, "router_aux_loss_coef", 0, 1e6, 0.001);
    const double z = config_real(reader, "router_z_loss_coef", 0, 1e6, 0);
    if (!config_bool(reader, "output_router_logits", false) || with_experts == 0)
        return;
    router->balance = (float)(balance / (double)with_experts);
    router->z = (float)(z / (double)with_experts);
}

// Refuses what is nearly a key of ours: transformers passes over keys that it does not know, and a run
// would drop nothing where somebody meant it to.
static void check_near(config_reader *reader)
{
    static const char *const ours[] = {"expert_capacity_factor", "expert_eval_capacity_factor",
                                       "expert_min_capacity", "second_expert_policy",
                                       "router_z_loss_coef"};
    // Of transformers, and near.
    static const char *const others[] = {"router_aux_loss_coef", "router_jitter_noise"};
    const char *key = NULL;
    const mics_json_value *root = mics_json_root(reader->json);
    while (reader->status == MICS_OK && mics_json_next(root, &key) != NULL) {
        const char *near = mics_json_nearest(key, ours, sizeof ours / sizeof ours[0]);
        bool known = near == NULL || strcmp(near, key) == 0;
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
            known = known || strcmp(others[i], key) == 0;
        if (!known)
            reader->status = mics_json_fail(reader->json, key, MICS_ERR_INVALID,
                                            "unknown key; did you mean %s?", near);
    }
}

// Capacity, and what is random in training: keys of ours, but for the jitter's.
static void read_recipe(config_reader *reader, mixture *self)
{
    static const char training[] = "expert_capacity_factor", second[] = "second_expert_policy";
    static const char evaluation[] = "expert_eval_capacity_factor", least[] = "expert_min_capacity";
    mics_experts *experts = &self->experts;
    check_near(reader);
    experts->capacity = config_real(reader, training, 0, 1e6, 0);
    experts->eval_capacity = config_real(reader, evaluation, 0, 1e6, experts->capacity);
    experts->min_capacity = (int32_t)config_int(reader, least, 1, 1 << 30, 1);
    self->router.jitter = (float)config_real(reader, "router_jitter_noise", 0, 0.99, 0);
    config_require(reader, second, "all|random");
    const char *policy = mics_json_string(mics_json_at(reader->json, second));
    self->router.random_second = policy != NULL && strcmp(policy, "random") == 0;
    if (reader->status == MICS_OK && self->router.random_second && experts->chosen != 2)
        reader->status = mics_json_fail(reader->json, second, MICS_ERR_INVALID,
                                        "\"random\" is for num_experts_per_tok = 2, not %d",
                                        (int)experts->chosen);
}

// The key that says how many experts there are: one of two names, or both with one number.
static const char *count_key(config_reader *reader)
{
    static const char *const names[] = {"num_experts", "num_local_experts"};
    if (config_is_said(reader, names[0]) && config_is_said(reader, names[1]))
        config_int_of(reader, names, 1, MAX_EXPERTS);
    return config_is_said(reader, names[0]) ? names[0] : names[1];
}

void mixture_read(config_reader *reader, const mixture_family *family, int64_t layers,
                  mixture *mixture_out)
{
    mixture *self = mixture_out;
    const char *count = count_key(reader);
    *self = (mixture){.family = family, .every = 1};
    self->inner = config_int(reader, family->inner_key, 1, 1 << 26, family->inner);
    if (family->shared_key != NULL)
        self->shared = config_int(reader, family->shared_key, 1, 1 << 26, family->shared);
    self->experts.count = (int32_t)config_int(reader, count, 1, MAX_EXPERTS, family->experts);
    self->experts.chosen =
        (int32_t)config_int(reader, "num_experts_per_tok", 1, MAX_EXPERTS, family->chosen);
    if (reader->status == MICS_OK && self->experts.chosen > self->experts.count)
        reader->status = mics_json_fail(reader->json, "num_experts_per_tok", MICS_ERR_INVALID,
                                        "a token cannot go to %d of %d experts",
                                        (int)self->experts.chosen, (int)self->experts.count);
    self->router.normalised = family->normalised || config_bool(reader, "norm_topk_prob", false);
    if (family->some_layers) {
        self->every = config_int(reader, "decoder_sparse_step", 1, CONFIG_MAX_LAYERS, 1);
        check_only_dense(reader);
    }
    read_recipe(reader, self);
    if (reader->status == MICS_OK && self->experts.count * layers > MAX_EXPERTS_OF_ALL)
        reader->status =
            mics_json_fail(reader->json, count, MICS_ERR_INVALID,
                           "%d experts in each of %lld layers; at most %d in all layers "
                           "work",
                           (int)self->experts.count, (long long)layers, (int)MAX_EXPERTS_OF_ALL);
    int64_t with_experts = 0;
    for (int64_t layer = 0; reader->status == MICS_OK && layer < layers; layer++)
        with_experts += mixture_has_layer(reader, self, layer);
    read_losses(reader, with_experts, &self->router);
}

bool mixture_has_layer(const config_reader *reader, const mixture *of, int64_t index)
{
    const mics_json_value *list = mics_json_at(reader->json, "mlp_only_layers");
    for (int32_t i = 0; of->family->some_layers && mics_json_type_of(list) == MICS_JSON_ARRAY &&
                        i < mics_json_count(list);
         i++) {
        if (mics_json_int(mics_json_element(list, i)) == index)
            return false;
    }
    return (index + 1) % of->every == 0;
}

// ---- a layer ----

static int32_t add_router(mics_model *model, const mixture *of, const char *layer, int32_t in,
                          int64_t hidden, double init_std)
{
    char module[MODULE_BYTES];
    snprintf(module, sizeof module, "%s.%s.gate", layer, of->family->module);
    const mics_param_ref weight = model_matrix(model, module, of->experts.count, hidden, init_std);
    return mics_op_router(model, in, weight, of->experts, of->router);
}

// The weights of one expert; the first one's are what ops name.
typedef struct expert_weights {
    mics_param_ref up, down;
} expert_weights;

// Its place where all experts of a layer are one tensor.
static void add_slice(mics_model *model, const mixture *of, const char *layer, const char *matrix,
                      int32_t index)
{
    char module[MODULE_BYTES];
    snprintf(module, sizeof module, "%s.mlp.experts.%s_proj", layer, matrix);
    mics_model_add_stack(model, module, index, of->experts.count);
}

static expert_weights add_expert(mics_model *model, const mixture *of, const char *layer,
                                 int32_t index, int64_t hidden, double init_std)
{
    const char *const inputs[] = {of->family->gate, of->family->up};
    char expert[MODULE_BYTES], module[2 * MODULE_BYTES];
    expert_weights made;
    snprintf(expert, sizeof expert, "%s.%s.experts.%d", layer, of->family->module, (int)index);
    snprintf(module, sizeof module, "%s.gate_up", expert);
    made.up = model_matrix(model, module, 2 * of->inner, hidden, init_std);
    for (int i = 0; i < 2; i++) {
        snprintf(module, sizeof module, "%s.%s.weight", expert, inputs[i]);
        mics_model_add_part(model, module, i * of->inner, of->inner);
    }
    add_slice(model, of, layer, "gate_up", index);
    snprintf(module, sizeof module, "%s.%s", expert, of->family->down);
    made.down = model_matrix(model, module, hidden, of->inner, init_std);
    add_slice(model, of, layer, "down", index);
    return made;
}

static expert_weights add_experts(mics_model *model, const mixture *of, const char *layer,
                                  int64_t hidden, double init_std)
{
    char module[MODULE_BYTES];
    expert_weights first = {mics_param_none(), mics_param_none()};
    snprintf(module, sizeof module, "%s.%s.experts", layer, of->family->module);
    mics_model_experts(model, module, of->experts.count);
    for (int32_t i = 0; i < of->experts.count; i++) {
        const expert_weights made = add_expert(model, of, layer, i, hidden, init_std);
        first = i == 0 ? made : first;
    }
    mics_model_experts_end(model);
    return first;
}

// A SwiGLU of all tokens, times the sigmoid of a number a token.
static int32_t add_shared(mics_model *model, const mixture *of, const char *layer, int32_t in,
                          int64_t hidden, double init_std)
{
    const char *const inputs[] = {of->family->gate, of->family->up};
    char module[MODULE_BYTES];
    snprintf(module, sizeof module, "%s.%s.shared_expert.gate_up", layer, of->family->module);
    const mics_param_ref weight = model_matrix(model, module, 2 * of->shared, hidden, init_std);
    for (int32_t i = 0; i < 2; i++) {
        snprintf(module, sizeof module, "%s.%s.shared_expert.%s.weight", layer, of->family->module,
                 inputs[i]);
        mics_model_add_part(model, module, i * of->shared, of->shared);
    }
    int32_t x = mics_op_linear(model, in, weight, mics_param_none(), true);
    x = mics_op_swiglu(model, x);
    const model_linear_spec down = {of->shared, hidden, init_std, false, true};
    snprintf(module, sizeof module, "%s.shared_expert.%s", of->family->module, of->family->down);
    x = model_linear(model, layer, module, x, &down);
    const model_linear_spec gate = {hidden, 1, init_std, false, true};
    snprintf(module, sizeof module, "%s.shared_expert_gate", of->family->module);
    return mics_op_sigmoid_gate(model, x, model_linear(model, layer, module, in, &gate));
}

int32_t mixture_add(mics_model *model, const mixture *of, const char *layer, int32_t in,
                    int64_t hidden, double init_std)
{
    const int32_t routes = add_router(model, of, layer, in, hidden, init_std);
    const expert_weights first = add_experts(model, of, layer, hidden, init_std);
    int32_t x = mics_op_experts(model, MICS_OP_EXPERTS_IN, in, routes, first.up, of->experts);
    x = mics_op_experts_swiglu(model, x, of->experts);
    x = mics_op_experts(model, MICS_OP_EXPERTS_OUT, x, routes, first.down, of->experts);
    return of->shared > 0
               ? mics_op_add(model, x, add_shared(model, of, layer, in, hidden, init_std))
               : x;
}

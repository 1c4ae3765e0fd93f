// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Runs the ops and gradient calls of a schedule on symbols instead of numbers. Each float of the
// activation arena holds what it would be: an activation of a unit, or a gradient as a sum of
// terms. Whatever is overwritten too early, added twice or forgotten is then read as something
// else than it must be.
//
// Terms of a gradient in a unit: one an op, what that op's backward gives to its input, and one for
// the gradient of the unit's output, which the next unit left. A sum hands its gradient on as it
// is.
#include "mics/builder.h"
#include "mics/core/schedule.h"
#include "mics/log.h"
#include "models.h"
#include "schedule/rules.h"
#include <stdlib.h>

enum { OPS = 24, TENSORS = 32, UNITS = 10, PARAMS = 24, IN_FLIGHT = 3, VALUES = 100000 };

typedef struct terms {
    int32_t of_op[OPS + 1]; // how often; the last one is the output's gradient
} terms;

static const terms no_terms;

typedef struct value {
    bool gradient;
    int32_t unit, micro_step;
    int32_t tensor; // activations
    terms terms;    // gradients
} value;

typedef struct machine {
    const mics_schedule *schedule;
    const mics_model *model;
    int64_t tokens;
    int32_t micro_step, in_flight;
    int32_t *cells; // (activation_elems) index of a value; 0: nothing
    int32_t *host;  // (offload_elems) of each micro-batch in flight, likewise
    value *values;
    int32_t value_count;
    bool written[IN_FLIGHT][UNITS][PARAMS]; // gradients, in the micro-step of each place in flight
    // Where it is.
    int32_t unit, op;
    const char *doing;
} machine;

static void fail_in(const machine *m, const char *why)
{
    fail_msg("unit %d (%s), op %d, %s%s: %s", (int)m->unit, m->model->units[m->unit].name,
             (int)m->op, m->doing,
             mics_recomputes(m->schedule->spec.recompute) ? " (recomputing)" : "", why);
}

// ---- the arena ----

static void check_place(const machine *m, int64_t at, int64_t elems)
{
    if (at < 0 || at % 16 != 0 || at + elems > m->schedule->activation_elems)
        fail_in(m, "a place outside of the arena, or not aligned");
}

static void put(machine *m, int64_t at, int64_t elems, value what)
{
    at = mics_schedule_in_flight_at(m->schedule, at, m->in_flight);
    check_place(m, at, elems);
    assert_true(m->value_count < VALUES);
    what.micro_step = m->micro_step;
    m->values[m->value_count] = what;
    for (int64_t i = 0; i < elems; i++)
        m->cells[at + i] = m->value_count;
    m->value_count++;
}

// The one value that fills a place.
static const value *get(const machine *m, int64_t at, int64_t elems)
{
    at = mics_schedule_in_flight_at(m->schedule, at, m->in_flight);
    check_place(m, at, elems);
    for (int64_t i = 1; i < elems; i++) {
        if (m->cells[at + i] != m->cells[at])
            fail_in(m, "reads a place that was partly overwritten");
    }
    const value *what = &m->values[m->cells[at]];
    if (m->cells[at] == 0 || what->micro_step != m->micro_step)
        fail_in(m, "reads what is not from this micro-step");
    return what;
}

static void must_be_apart(const machine *m, int64_t a, int64_t a_elems, int64_t b, int64_t b_elems)
{
    if (a < b + b_elems && b < a + a_elems)
        fail_in(m, "writes into what it reads");
}

// ---- activations ----

static const mics_unit *unit_of(const machine *m)
{
    return &m->model->units[m->unit];
}

static int64_t place(const machine *m, int32_t tensor)
{
    return m->schedule->units[m->unit].tensor_at[tensor];
}

static int64_t elems_of(const machine *m, int32_t tensor)
{
    return unit_of(m)->tensors[tensor].width * m->tokens;
}

static bool is_activation(const machine *m, int32_t tensor)
{
    return tensor >= 0 && elems_of(m, tensor) > 0;
}

// A unit's input is the output of the unit before.
static void name_of(const machine *m, int32_t tensor, int32_t *unit_out, int32_t *tensor_out)
{
    const bool input = tensor == 0 && m->unit > 0;
    *unit_out = input ? m->unit - 1 : m->unit;
    *tensor_out = input ? m->model->units[m->unit - 1].out : tensor;
}

static void read_tensor(const machine *m, int32_t tensor)
{
    int32_t unit = 0, own = 0;
    if (!is_activation(m, tensor))
        return;
    const value *what = get(m, place(m, tensor), elems_of(m, tensor));
    name_of(m, tensor, &unit, &own);
    if (what->gradient || what->unit != unit || what->tensor != own)
        fail_in(m, "an activation it reads was overwritten");
}

static void write_tensor(machine *m, int32_t tensor)
{
    if (is_activation(m, tensor))
        put(m, place(m, tensor), elems_of(m, tensor), (value){.unit = m->unit, .tensor = tensor});
}

static void keep_apart(const machine *m, int32_t read, int32_t written)
{
    if (is_activation(m, read) && is_activation(m, written))
        must_be_apart(m, place(m, read), elems_of(m, read), place(m, written),
                      elems_of(m, written));
}

static void run_forward(machine *m, int32_t index, const char *doing)
{
    const mics_op *op = &unit_of(m)->ops[index];
    m->op = index;
    m->doing = doing;
    for (int i = 0; i < MICS_OP_INPUTS; i++) {
        read_tensor(m, op->in[i]);
        keep_apart(m, op->in[i], op->out);
        keep_apart(m, op->in[i], op->stats);
    }
    keep_apart(m, op->out, op->stats);
    write_tensor(m, op->out);
    write_tensor(m, op->stats);
}

static void run_unit_forward(machine *m, int32_t unit)
{
    m->unit = unit;
    for (int32_t o = 0; o < unit_of(m)->op_count; o++)
        run_forward(m, o, "forward");
}

// ---- gradients ----

static bool same_terms(const terms *a, const terms *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static terms sum_of(const terms *a, const terms *b)
{
    terms sum = *a;
    for (int o = 0; o <= OPS; o++)
        sum.of_op[o] += b->of_op[o];
    return sum;
}

// What the gradient of each tensor of a unit must be in the end, from the ops alone.
static void expect_gradients(const mics_unit *unit, terms expected_out[TENSORS])
{
    assert_true(unit->tensor_count <= TENSORS && unit->op_count <= OPS);
    for (int32_t t = 0; t < unit->tensor_count; t++)
        expected_out[t] = no_terms;
    if (unit->out >= 0)
        expected_out[unit->out].of_op[OPS] = 1;
    for (int32_t o = unit->op_count - 1; o >= 0; o--) {
        const mics_op *op = &unit->ops[o];
        if (op->kind == MICS_OP_ADD) {
            for (int i = 0; i < MICS_OP_INPUTS; i++)
                expected_out[op->in[i]] = sum_of(&expected_out[op->in[i]], &expected_out[op->out]);
        } else if (op->in[0] >= 0) {
            expected_out[op->in[0]].of_op[o] += 1;
        }
    }
}

// The terms of a gradient as this unit sees them: what the next unit left of its input's is one
// term, if it is whole.
static terms terms_of(const machine *m, const value *what)
{
    terms expected[TENSORS], outer = no_terms;
    if (!what->gradient)
        fail_in(m, "a gradient it reads was overwritten");
    if (what->unit == m->unit)
        return what->terms;
    expect_gradients(&m->model->units[m->unit + 1], expected);
    if (what->unit != m->unit + 1 || !same_terms(&what->terms, &expected[0]))
        fail_in(m, "the gradient of the unit's output is not the next unit's input's");
    outer.of_op[OPS] = 1;
    return outer;
}

static void put_gradient(machine *m, int64_t at, int64_t elems, terms sum)
{
    put(m, at, elems, (value){.gradient = true, .unit = m->unit, .terms = sum});
}

static bool reads_in(const mics_op *op)
{
    return op->kind != MICS_OP_EMBEDDING && op->kind != MICS_OP_ROTARY;
}

// What the kernels read beside the output's gradient (op.h).
static void read_saved(const machine *m, const mics_op *op)
{
    if (reads_in(op))
        read_tensor(m, op->in[0]);
    if (op->kind == MICS_OP_ATTENTION)
        read_tensor(m, op->out);
    read_tensor(m, op->stats);
}

// Kernels of these ops may write the input's gradient over the output's.
static bool may_be_in_place(const mics_op *op)
{
    return op->kind == MICS_OP_GELU || op->kind == MICS_OP_LAYERNORM ||
           op->kind == MICS_OP_RMSNORM || op->kind == MICS_OP_HEAD_NORM ||
           op->kind == MICS_OP_ROTARY;
}

static void check_apart(const machine *m, const mics_op *op, const mics_grad_call *call)
{
    const int64_t din_elems = elems_of(m, op->in[0]);
    if (op->out >= 0 && !(call->din == call->dout && may_be_in_place(op)))
        must_be_apart(m, call->din, din_elems, call->dout, elems_of(m, op->out));
    if (reads_in(op))
        must_be_apart(m, call->din, din_elems, place(m, op->in[0]), din_elems);
    if (op->out >= 0 && op->kind == MICS_OP_ATTENTION)
        must_be_apart(m, call->din, din_elems, place(m, op->out), elems_of(m, op->out));
    if (op->stats >= 0)
        must_be_apart(m, call->din, din_elems, place(m, op->stats), elems_of(m, op->stats));
}

// The first op to write a parameter's gradient in a micro-step overwrites, others add.
static void check_params(machine *m, const mics_op *op, const mics_grad_call *call)
{
    for (int p = 0; p < MICS_OP_PARAMS; p++) {
        const mics_param_ref ref = op->params[p];
        if (ref.unit < 0)
            continue;
        assert_true(ref.unit < UNITS && ref.param < PARAMS);
        if (call->add_params[p] != m->written[m->in_flight][ref.unit][ref.param])
            fail_in(m, "a parameter's gradient is overwritten or added to something old");
        m->written[m->in_flight][ref.unit][ref.param] = true;
    }
}

static void run_op_backward(machine *m, const mics_grad_call *call, const terms *expected)
{
    const mics_op *op = &unit_of(m)->ops[call->op];
    terms given = no_terms;
    m->op = call->op;
    if (op->out >= 0) {
        const terms dout = terms_of(m, get(m, call->dout, elems_of(m, op->out)));
        if (!same_terms(&dout, &expected[op->out]))
            fail_in(m, "the gradient of its output is not whole");
    } else if (call->dout != -1) {
        fail_in(m, "has no output");
    }
    read_saved(m, op);
    check_params(m, op, call);
    if (!is_activation(m, op->in[0])) {
        if (call->din != -1)
            fail_in(m, "nobody wants its input's gradient");
        return;
    }
    check_apart(m, op, call);
    given.of_op[call->op] = 1;
    if (call->add_din) {
        const terms before = terms_of(m, get(m, call->din, elems_of(m, op->in[0])));
        given = sum_of(&given, &before);
    }
    put_gradient(m, call->din, elems_of(m, op->in[0]), given);
}

static void run_move(machine *m, const mics_grad_call *call)
{
    terms moved = terms_of(m, get(m, call->dout, call->elems));
    m->op = -1;
    must_be_apart(m, call->dout, call->elems, call->din, call->elems);
    if (call->kind == MICS_GRAD_ADD) {
        const terms before = terms_of(m, get(m, call->din, call->elems));
        moved = sum_of(&moved, &before);
    }
    put_gradient(m, call->din, call->elems, moved);
}

static void run_unit_backward(machine *m, int32_t unit)
{
    terms expected[TENSORS];
    int32_t called[OPS] = {0};
    m->unit = unit;
    const mics_unit_plan *plan = &m->schedule->units[unit];
    expect_gradients(unit_of(m), expected);
    for (int32_t o = 0; o < unit_of(m)->op_count; o++) {
        if (plan->again[o])
            run_forward(m, o, "forward again");
    }
    m->doing = "backward";
    for (int32_t i = 0; i < plan->grad_count; i++) {
        if (plan->grads[i].kind == MICS_GRAD_OP) {
            run_op_backward(m, &plan->grads[i], expected);
            called[plan->grads[i].op]++;
        } else {
            run_move(m, &plan->grads[i]);
        }
    }
    for (int32_t o = 0; o < unit_of(m)->op_count; o++) {
        m->op = o;
        if (called[o] != (unit_of(m)->ops[o].kind != MICS_OP_ADD))
            fail_in(m, "is not called once");
    }
}

// ---- a schedule ----

// A unit's block between the arena and host memory; what it leaves must not be needed.
static void copy_block(machine *m, int32_t unit, bool stores)
{
    const mics_unit_plan *plan = &m->schedule->units[unit];
    if (unit < 0 || plan->host_at < 0)
        return;
    int32_t *inner =
        m->cells + mics_schedule_in_flight_at(m->schedule, plan->kept_at, m->in_flight);
    int32_t *outer = m->host + plan->host_at + m->in_flight * m->schedule->offload_elems;
    const size_t bytes = (size_t)plan->kept_elems * sizeof *inner;
    memcpy(stores ? outer : inner, stores ? inner : outer, bytes);
    if (stores)
        memset(inner, 0, bytes);
}

// One unit for all of a layered group.
static void visit_unit(machine *m, int32_t turn, int32_t unit, bool backward)
{
    const int32_t in_flight_count = m->schedule->spec.layered_micro_steps;
    for (m->in_flight = 0; m->in_flight < in_flight_count; m->in_flight++) {
        m->micro_step = turn * in_flight_count + m->in_flight;
        if (backward)
            run_unit_backward(m, unit);
        else
            run_unit_forward(m, unit);
        copy_block(m, backward ? m->schedule->units[unit].displaced : unit, !backward);
    }
    m->in_flight = 0;
}

static void run_schedule(const mics_schedule *schedule)
{
    const mics_model *model = schedule->spec.model;
    machine m = {.schedule = schedule,
                 .model = model,
                 .tokens = schedule->spec.batch.sequences * schedule->spec.batch.length,
                 .value_count = 1};
    m.cells = calloc((size_t)schedule->activation_elems, sizeof *m.cells);
    m.values = calloc(VALUES, sizeof *m.values);
    m.host = calloc((size_t)(schedule->spec.layered_micro_steps * schedule->offload_elems) + 1,
                    sizeof *m.host);
    assert_non_null(m.cells);
    assert_non_null(m.host);
    assert_non_null(m.values);
    for (int32_t turn = 0; turn < 2; turn++) {
        memset(m.written, 0, sizeof m.written);
        for (int32_t u = 0; u < model->unit_count - 1; u++)
            visit_unit(&m, turn, u, false);
        for (int32_t u = model->unit_count - 1; u >= 0; u--)
            visit_unit(&m, turn, u, true);
    }
    m.micro_step++;
    for (int32_t u = 0; u < model->unit_count; u++) // an evaluation
        run_unit_forward(&m, u);
    free(m.cells);
    free(m.host);
    free(m.values);
}

static void must_equal(const mics_schedule *own, const mics_schedule *taken)
{
    assert_null(taken->spec.like);
    assert_int_equal(own->activation_elems, taken->activation_elems);
    assert_int_equal(own->in_flight_elems, taken->in_flight_elems);
    assert_int_equal(own->offload_elems, taken->offload_elems);
    assert_int_equal(own->workspace_losses, taken->workspace_losses);
    assert_memory_equal(&own->ledger, &taken->ledger, sizeof own->ledger);
    for (int32_t u = 0; u < own->spec.model->unit_count; u++) {
        const mics_unit_plan *a = &own->units[u], *b = &taken->units[u];
        assert_int_equal(a->grad_count, b->grad_count);
        assert_memory_equal(a->flops, b->flops, sizeof a->flops);
        for (int32_t t = 0; t < own->spec.model->units[u].tensor_count; t++)
            assert_int_equal(a->tensor_at[t], b->tensor_at[t]);
        for (int32_t c = 0; c < a->grad_count; c++) {
            assert_int_equal(a->grads[c].dout, b->grads[c].dout);
            assert_int_equal(a->grads[c].din, b->grads[c].din);
            assert_int_equal(a->grads[c].din_second, b->grads[c].din_second);
        }
    }
}

// With what a schedule of one micro-step has found.
static void check_like(mics_memory *memory, mics_schedule_spec spec, const mics_schedule *own)
{
    mics_schedule *like = NULL, *taken = NULL;
    const int32_t micro_steps = spec.micro_steps;
    spec.micro_steps = 1;
    ASSERT_OK(mics_schedule_open(memory, &spec, &like));
    spec.micro_steps = micro_steps;
    spec.like = like;
    ASSERT_OK(mics_schedule_open(memory, &spec, &taken));
    mics_schedule_close(like);
    must_equal(own, taken);
    mics_schedule_close(taken);
}

static const mics_recompute forms[] = {
    {0, false, false, false}, {MICS_RECOMPUTE_ALL, false, false, false},
    {0, false, true, false},  {0, false, false, true},
    {0, false, true, true},   {1, false, false, false},
    {1, true, false, false},  {1, true, true, false},
    {2, false, false, true},  {2, true, true, true}};
enum { FORMS = sizeof forms / sizeof *forms };

static void check_model(mics_memory *memory, const mics_model *model)
{
    int64_t elems[IN_FLIGHT];
    static const int64_t lengths[] = {1, 3, 16};
    assert_true(model->unit_count <= UNITS);
    for (int i = 0; i < 6; i++) {
        mics_schedule *schedule = NULL;
        mics_schedule_spec spec = {
            .model = model,
            .batch = {.sequences = 1 + i % 2, .length = lengths[i / 2], .threads = 1},
            .micro_steps = 6};
        ASSERT_OK(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
        if (i % 4 == 3) // its backward computes the loss forward, too
            spec.preference = (mics_preference){MICS_PREFERENCE_DPO, 0.1, 0};
        for (int way = 0; way < FORMS * IN_FLIGHT; way++) {
            int64_t *kept = &elems[way / FORMS];
            spec.recompute = forms[way % FORMS];
            if (spec.recompute.units == 2 && mics_model_computing_units(model) == 3)
                spec.recompute.units = 1;
            spec.layered_micro_steps = 1 + way / FORMS;
            spec.offload_units = 0;
            for (int32_t most = 0; spec.offload_units <= most; spec.offload_units++) {
                ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
                most = schedule->offload_max;
                if (spec.offload_units == 0 && way % FORMS == 0)
                    *kept = schedule->in_flight_elems;
                assert_true(schedule->in_flight_elems <= *kept);
                run_schedule(schedule);
                check_like(memory, spec, schedule);
                mics_schedule_close(schedule);
            }
            const bool muted = mics_log_mute(true);
            assert_int_equal(mics_schedule_open(memory, &spec, &schedule), MICS_ERR_INVALID);
            (void)mics_log_mute(muted);
        }
    }
}

// What a part makes again: norms before GEMMs and attention, or norms and activations; rotary not, as
// its result takes what its input does.
static void test_parts_of_a_layer(void **state)
{
    (void)state;
    static const mics_op_kind parts[][2] = {{MICS_OP_RMSNORM, MICS_OP_ATTENTION},
                                            {MICS_OP_RMSNORM, MICS_OP_SWIGLU}};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model =
        model_build(memory, &(model_kind){"llama", {layer_llama, layer_llama}}, true);
    mics_schedule_spec spec = {
        .model = model, .batch = {.sequences = 2, .length = 3, .threads = 1}, .micro_steps = 1};
    ASSERT_OK(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
    for (int mlp = 0; mlp < 2; mlp++) {
        mics_schedule *schedule = NULL;
        int32_t count = 0;
        spec.recompute = (mics_recompute){1, false, mlp == 0, mlp == 1};
        ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
        assert_true(schedule->units[1].forward_in_backward);
        assert_false(schedule->units[2].forward_in_backward);
        for (int32_t o = 0; o < model->units[2].op_count; o++) {
            if (schedule->units[2].again[o])
                assert_int_equal(model->units[2].ops[o].kind, parts[mlp][count++]);
        }
        assert_int_equal(count, 2);
        mics_schedule_close(schedule);
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_gpt2(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int layers = 1; layers <= 6; layers++) {
        mics_model *model = model_gpt2(memory, layers, layers % 2 == 0);
        check_model(memory, model);
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_other_models(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < 2 * MODEL_KINDS; i++) {
        mics_model *model = model_build(memory, &model_kinds[i / 2], i % 2 == 0);
        check_model(memory, model);
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// A mixture of experts: the routes' weights get a gradient too.
static int32_t layer_mixture(mics_model *model)
{
    const mics_experts experts = {.count = 4, .chosen = 2};
    const int32_t x = model_norm(model, "ln", 0);
    const mics_param_ref gate = model_param(model, "gate", experts.count, MODEL_WIDTH);
    const int32_t routes = mics_op_router(model, x, gate, experts, (mics_router_spec){0});
    mics_param_ref up = mics_param_none(), down = mics_param_none();
    mics_model_experts(model, "experts", experts.count);
    for (int32_t e = 0; e < experts.count; e++) {
        char name[2][16];
        snprintf(name[0], sizeof name[0], "up%d", (int)e);
        snprintf(name[1], sizeof name[1], "down%d", (int)e);
        const mics_param_ref made = model_param(model, name[0], 2 * 5, MODEL_WIDTH);
        const mics_param_ref other = model_param(model, name[1], MODEL_WIDTH, 5);
        up = e == 0 ? made : up;
        down = e == 0 ? other : down;
    }
    mics_model_experts_end(model);
    int32_t y = mics_op_experts(model, MICS_OP_EXPERTS_IN, x, routes, up, experts);
    y = mics_op_experts_swiglu(model, y, experts);
    y = mics_op_experts(model, MICS_OP_EXPERTS_OUT, y, routes, down, experts);
    return mics_op_add(model, 0, y);
}

static void test_mixture_taken_over(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    const model_kind kind = {"mixture", {layer_mixture, layer_mixture}};
    mics_model *model = model_build(memory, &kind, true);
    mics_schedule_spec spec = {
        .model = model, .batch = {.sequences = 2, .length = 3, .threads = 1}, .micro_steps = 6};
    ASSERT_OK(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
    for (int way = 0; way < 2 * IN_FLIGHT; way++) {
        mics_schedule *schedule = NULL;
        spec.recompute = mics_recompute_all(way % 2 == 1);
        spec.layered_micro_steps = 1 + way / 2;
        ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
        check_like(memory, spec, schedule);
        mics_schedule_close(schedule);
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_of_a_layer),
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_other_models),
        cmocka_unit_test(test_mixture_taken_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

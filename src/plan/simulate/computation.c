// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What computing steps take: the model's ops one by one, run as the engine runs them. What a pass
// of an op consists of is said by its descriptor; a bias is added where its product is written.
#include "plan/simulate/internal.h"
#include "schedule/rules.h"

typedef struct pass {
    const mics_schedule *schedule;
    const mics_cluster *cluster;
    mics_math math;
    const mics_unit *unit;
    int32_t elem_bytes; // of activations and parameters
    bool separate;      // kernels
    double us, flops;
} pass;

static pass pass_begin(const mics_schedule *schedule, const mics_cluster *cluster, mics_math math,
                       int32_t unit)
{
    return (pass){.schedule = schedule,
                  .cluster = cluster,
                  .math = math,
                  .unit = &schedule->spec.model->units[unit],
                  .elem_bytes =
                      (int32_t)mics_precision_bytes(schedule->spec.precision, MICS_MEM_ACTIVATIONS),
                  .separate = mics_kernels_are(&cluster->accelerator, "separate")};
}

static void add_op(pass *p, const mics_cost_op *op)
{
    p->us += p->cluster->accelerator.call_us + mics_cost_op_us(p->cluster, op, NULL);
    p->flops += op->flops;
}

static void add_elementwise(pass *p, double flops, double bytes)
{
    const mics_cost_op op = {
        .kind = MICS_COST_ELEMENTWISE, .math = MICS_MATH_FP32, .flops = flops, .bytes = bytes};
    add_op(p, &op);
}

static void add_works(pass *p, const mics_op *op, const mics_op_pass *of)
{
    const mics_schedule_spec *spec = &p->schedule->spec;
    const mics_op_shape shape = mics_op_shape_get(spec->model, p->unit, op, spec->batch);
    mics_op_work works[MICS_OP_WORKS];
    const int32_t count = mics_op_works(&shape, of, works);
    p->us += p->cluster->accelerator.call_us;
    for (int32_t i = 0; i < count; i++) {
        const mics_cost_op cost = mics_cost_of_work(&works[i], p->elem_bytes, p->math);
        p->us += (double)works[i].times * mics_cost_op_us(p->cluster, &cost, NULL);
        p->flops += (double)works[i].times * cost.flops;
    }
}

static void add_forward(pass *p, const mics_op *op)
{
    const mics_op_pass of = {.elem_bytes = p->elem_bytes, .separate = p->separate};
    add_works(p, op, &of);
}

// A gradient begins as zeros unless another op has written it before. Without a slot it is added to
// from the second micro-step on.
static void add_backward(pass *p, const mics_grad_call *call)
{
    const mics_op *op = &p->unit->ops[call->op];
    mics_op_pass of = {.backward = true,
                       .input_gradient = call->din >= 0,
                       .separate = p->separate,
                       .elem_bytes = p->elem_bytes};
    for (int i = 0; i < MICS_OP_PARAMS; i++) {
        const int32_t unit = op->params[i].unit;
        of.zeroed[i] = unit >= 0 && !call->add_params[i] &&
                       !p->schedule->spec.model->units[unit].frozen &&
                       p->schedule->sharding[unit].grads > 1;
    }
    add_works(p, op, &of);
}

static double pass_end(const pass *p, double *flops_out)
{
    if (flops_out != NULL)
        *flops_out = p->flops;
    return p->us;
}

static void add_call(pass *p, const mics_grad_call *call)
{
    if (call->kind == MICS_GRAD_OP)
        add_backward(p, call);
    else // read one and write one, or read two
        add_elementwise(
            p, 0, (call->kind == MICS_GRAD_ADD ? 3.0 : 2.0) * (double)call->elems * p->elem_bytes);
}

double mics_simulate_part_us(const mics_schedule *schedule, const mics_cluster *cluster,
                             mics_math math, const mics_step *step)
{
    pass p = pass_begin(schedule, cluster, math, step->unit);
    for (int32_t op = step->part.op; op < step->part.op_end; op++) {
        if (mics_schedule_runs(schedule, step, op))
            add_forward(&p, &p.unit->ops[op]);
    }
    for (int32_t i = step->part.call; i < step->part.call_end; i++)
        add_call(&p, &schedule->units[step->unit].grads[i]);
    return p.us;
}

double unit_forward_us(const mics_schedule *schedule, const mics_cluster *cluster, mics_math math,
                       int32_t unit, double *flops_out)
{
    pass p = pass_begin(schedule, cluster, math, unit);
    for (int32_t op = 0; op < p.unit->op_count; op++)
        add_forward(&p, &p.unit->ops[op]);
    return pass_end(&p, flops_out);
}

double unit_backward_us(const mics_schedule *schedule, const mics_cluster *cluster, mics_math math,
                        int32_t unit, double *flops_out)
{
    const mics_unit_plan *plan = &schedule->units[unit];
    pass p = pass_begin(schedule, cluster, math, unit);
    // The loss's backward makes the logits itself; what comes before it is run again.
    for (int32_t op = 0; op < p.unit->op_count; op++) {
        if (plan->again[op])
            add_forward(&p, &p.unit->ops[op]);
    }
    for (int32_t i = 0; i < plan->grad_count; i++)
        add_call(&p, &plan->grads[i]);
    return pass_end(&p, flops_out);
}

// Elements of a unit that a rank owns.
static int64_t owned_elems(const mics_schedule *schedule, int32_t unit)
{
    return schedule->padded_elems[unit] / schedule->sharding[unit].optimizer;
}

static double squares_us(const mics_cluster *cluster, double elems, int32_t kernels)
{
    const mics_cost_op op = {.kind = MICS_COST_ELEMENTWISE,
                             .math = MICS_MATH_FP32,
                             .flops = 2 * elems,
                             .bytes = sizeof(float) * elems,
                             .kernels = kernels};
    return mics_cost_op_us(cluster, &op, NULL);
}

double norm_us(const mics_schedule *schedule, const mics_cluster *cluster)
{
    const mics_model *model = schedule->spec.model;
    double elems = 0;
    int32_t kernels = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        if (model->units[u].frozen)
            continue;
        elems += schedule->spec.all_reduces
                     ? (double)owned_elems(schedule, u)
                     : (double)schedule->padded_elems[u] / mics_schedule_unit_ranks(schedule, u);
        kernels++;
    }
    return squares_us(cluster, elems, kernels);
}

// ---- matrices that are made orthogonal ----

enum { ITERATIONS = 5 }; // of a matrix, as is usual

static double matrix_us(const mics_cluster *cluster, mics_math math, const mics_matrix *matrix)
{
    const int64_t rows = matrix->rows, columns = matrix->columns;
    const int64_t side = rows < columns ? rows : columns, length = rows < columns ? columns : rows;
    const int32_t bytes = math == MICS_MATH_BF16 ? 2 : sizeof(float);
    const mics_cost_op ops[] = {mics_cost_matmul(side, side, length, bytes, math),
                                mics_cost_matmul(side, side, side, bytes, math),
                                mics_cost_matmul(side, length, side, bytes, math),
                                {.kind = MICS_COST_ELEMENTWISE,
                                 .math = MICS_MATH_FP32,
                                 .bytes = (2.0 * sizeof(float) + bytes) * (double)(rows * columns) +
                                          (sizeof(float) + 2.0 * bytes) * (double)(side * side),
                                 .kernels = 2}};
    double us = 0;
    for (int i = 0; i < 4; i++)
        us += ITERATIONS * mics_cost_op_us(cluster, &ops[i], NULL);
    return us;
}

// Of the busiest owner of a round. GPUs multiply 16-bit numbers in bf16, CPUs in fp32.
double orthogonalise_us(const mics_schedule *schedule, const mics_cluster *cluster, mics_math math,
                        int32_t unit)
{
    const int32_t owner = schedule->rounds[unit].busiest;
    const int32_t owned = mics_schedule_owned_unit(schedule, unit, owner);
    double us = 0;
    if (!schedule->spec.accelerator)
        math = MICS_MATH_FP32;
    else if (schedule->spec.precision == MICS_PRECISION_MIXED)
        math = MICS_MATH_BF16;
    for (int32_t m = schedule->matrix_at[owned]; m < schedule->matrix_at[owned + 1]; m++) {
        if (schedule->matrices[m].owner == owner)
            us += matrix_us(cluster, math, &schedule->matrices[m]);
    }
    return us;
}

// Reads gradients and momentum, writes momentum and what is sent; copies that for further owners.
double momentum_us(const mics_schedule *schedule, const mics_cluster *cluster, int32_t unit)
{
    const mics_round *round = &schedule->rounds[unit];
    const int32_t owners =
        (schedule->sharding[unit].optimizer - round->index + round->count - 1) / round->count;
    const mics_cost_op op = {.kind = MICS_COST_UPDATE,
                             .math = MICS_MATH_FP32,
                             .bytes = (4.0 + 2.0 * (owners - 1)) * sizeof(float) *
                                      (double)owned_elems(schedule, unit)};
    return mics_cost_op_us(cluster, &op, NULL);
}

// What a rank reads and writes of a unit that meets, bytes: the change of its 1 / ranks, the outer step
// on its 1 / world, the adoption by its optimizer shard. Of a state only that and the message.
double meeting_us(const mics_schedule *schedule, const mics_cluster *cluster, const mics_step *step)
{
    const double elems = (double)schedule->padded_elems[step->unit];
    const double ranks = mics_schedule_unit_ranks(schedule, step->unit);
    const bool rounds = schedule->spec.outer.dtype != MICS_COMM_FP32;
    const bool mixed = schedule->spec.precision == MICS_PRECISION_MIXED;
    double floats = 2, share = schedule->sharding[step->unit].optimizer;
    if (step->kind == MICS_STEP_MEET_CHANGE) {
        share = ranks;
        floats = step->state > 0 ? 2 : 3 + rounds;
    } else if (step->kind == MICS_STEP_MEET_UPDATE) {
        share = ranks * schedule->spec.mesh.islands;
        floats = step->state > 0 ? 2 : 4 + rounds;
    } else if (step->state == 0) {
        floats = mixed ? 4.5 : 4;
    }
    const mics_cost_op op = {.kind = MICS_COST_UPDATE,
                             .math = MICS_MATH_FP32,
                             .bytes = floats * sizeof(float) * elems / share};
    return mics_cost_op_us(cluster, &op, NULL);
}

// Where it is deferred, the gradients that it takes are summed before it, for replicas to compare.
double update_us(const mics_schedule *schedule, const mics_cluster *cluster, int32_t unit)
{
    const double elems = (double)owned_elems(schedule, unit);
    const bool mixed = schedule->spec.precision == MICS_PRECISION_MIXED;
    const mics_cost_op op = {
        .kind = MICS_COST_UPDATE,
        .math = MICS_MATH_FP32,
        .bytes = mics_optimizer_moved_bytes(schedule->spec.optimizer, schedule->spec.state_dtype,
                                            mixed, mics_schedule_sum_bytes(&schedule->spec)) *
                 elems};
    const double compared_us = mics_schedule_defers(schedule) ? squares_us(cluster, elems, 1) : 0;
    return compared_us + mics_cost_op_us(cluster, &op, NULL);
}

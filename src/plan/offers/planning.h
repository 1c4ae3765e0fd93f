// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What `mics plan` answers: the plans of a run file, or of a model's config.json alone, on a
// cluster, beside the baselines and the run file's own choice; over several cluster sizes; or on
// several clusters, in a buyer's order.
#pragma once

#include "config/config.h"
#include "mics/log.h"
#include "plan/goodput/goodput.h"
#include "plan/search/baseline.h"
#include "plan/search/plan.h"

/* Share of a rank's memory that no plan counts on: allocators round, and drivers take some hundred
 * MiB more in one version than in another. The chip's own reserve is of one version. */
#define MICS_PLAN_RESERVE 0.01

/* Left free of the rest unless nothing else fits: a GiB, or 2 % of the memory where that is less. */
#define MICS_PLAN_MARGIN 0.02
#define MICS_PLAN_MARGIN_BYTES (1 << 30)

typedef struct mics_plan_spec {
    const char *file;        // the run file, or a model's config.json
    const char *const *sets; // "a.b=v"
    int32_t set_count;
    const char *cluster; // "NAME:NODES", or "FILE[:NODES]"
    const char *price;   // as mics_price_text; NULL: the first that is known and not of spot nodes
    bool any_nodes;      // NODES may be left out, as in a sweep over them
    bool
        any_precision; // also one, and a kernel, that the cluster's chip does not have: offers say so
    const char *software;        // of rivals' rows (mics_software_find); NULL: mics
    const char *kernels;         // "separate", "fused"; NULL: the chip's own (mics_accelerator)
    const char *attention;       // kernel, as mics_attention_kernel_text; NULL: the chip's own
    bool has_reserve;            // reserve_bytes holds; else 1 % of the chip's memory
    double reserve_bytes;        // of a rank's memory that plans leave free
    mics_plan_pipeline pipeline; // MEGATRON: degrees above 0 stand fixed
    const char *
        precision; // "auto", "mixed", or as mics_math_text; NULL: the run file's. fp8 can be planned, not trained
    double planning_s;           // of several clusters: none is begun later; 0: no such limit
    bool silent_guess;           // no warning of a family that is not known
    mics_work_listener listener; // hears of sweeps, and of plans for several clusters
} mics_plan_spec;

// What is planned, and where.
typedef struct mics_plan {
    mics_memory *memory;
    mics_work_listener listener;
    mics_run *run;
    mics_json *config; // the model's
    mics_model *model;
    mics_cluster cluster; // with the price that counts as usd_per_node_hour
    mics_price price;
    int32_t nodes; // 0: left out
    int64_t length;
    int64_t train_batch; // sequences a step; 0: rank_batch times the ranks
    int64_t rank_batch;
    bool by_shapes;  // a family that is planned by its shapes, and cannot be trained here yet
    int32_t experts; // of a layer; 0: none
    bool bare;       // a config.json: length and batch are usual ones, where no set gives them
    mics_precision precision;
    mics_math math;
    bool accelerator;      // ranks are taken to run on GPUs
    const char *attention; // kernel whose rates are taken; NULL: attention has rates of its own
    bool lacks_attention;  // the chip has no rates of it
    double reserve_bytes;  // left free; the cluster's reserve holds it too
    double margin_bytes;   // left free too unless nothing else fits
    const mics_software *software; // of rivals' rows; NULL: as mics
    mics_plan_pipeline pipeline;   // MEGATRON: degrees above 0 stand fixed
} mics_plan;

/* Reads the run file, its model and the cluster. A model's config.json stands for a run of it with
 * sequences of at most 4096 tokens, and some 4 million tokens a step.
 *
 * Returns: MICS_OK; what is wrong with one of them, logged; MICS_ERR_MEMORY.
 * Owns:    close with mics_plan_close.
 */
mics_status mics_plan_open(mics_memory *memory, const mics_plan_spec *spec, mics_plan **plan_out);
void mics_plan_close(mics_plan *plan);

/* How its precision is called: "fp32", "bf16 with fp32 masters"; never NULL. */
const char *mics_plan_precision_text(const mics_plan *plan);

/* What a run says of a request: batch, dtypes and thresholds; no cluster, nodes or precision. */
mics_plan_request mics_plan_request_of(const mics_run *run, const mics_model *model);

/* Sequences a step that are wanted on so many nodes. Of a bare config.json the request's are at
 * least as many: a multiple of the ranks. Else the same.   Needs: nodes >= 1. */
int64_t mics_plan_batch_asked(const mics_plan *plan, int32_t nodes);

/* The request for so many nodes, and that of rivals' rows.   Needs: nodes >= 1. */
mics_plan_request mics_plan_request_get(const mics_plan *plan, int32_t nodes);
mics_plan_request mics_plan_rivals_get(const mics_plan *plan, int32_t nodes);

// What was found for so many nodes. Begin with zeros.
typedef struct mics_plan_found {
    mics_planner *planner;
    mics_planner
        *rivals; // of other systems' rows and the run file's: the same, or their software's
    mics_plan_result *result;
    mics_plan_entry baselines[MICS_PLAN_BASELINES];
    mics_plan_entry file;  // as the run file says
    bool has_file;         // what it says can be honoured there
    mics_plan_entry twice; // of mics_plan_find_twice
    bool has_twice;
    mics_plan_local local; // of mics_planner_local, where that is asked for
} mics_plan_found;

/* The best plans, the baselines and the run file's own choice, each with its reasons. Where nothing
 * fits, result->count is 0 and nothing is logged.
 *
 * Needs:   nodes >= 1, top >= 0; 0: the best alone and the baselines, as for a point of a curve:
 *          not the run file's own choice, and nothing that does not fit.
 * Returns: as mics_planner_open and mics_planner_search.
 * Owns:    mics_plan_found_close, also after a failure.
 */
mics_status mics_plan_find(const mics_plan *plan, int32_t nodes, int32_t top,
                           mics_plan_found *found);
void mics_plan_found_close(mics_plan_found *found);

/* Fails where the plan fixes degrees of MEGATRON that these ranks, model and batch cannot have.
 *
 * Needs:   what mics_plan_find found.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged with degrees that would work.
 */
mics_status mics_plan_check_degrees(const mics_plan *plan, const mics_plan_found *found);

/* What run.min_replicas 2 would cost: found->twice is the fastest plan that keeps every state twice,
 * where the best plan does not. Without has_twice the best does, or no other fits.
 *
 * Needs:   mics_plan_find.
 * Returns: as mics_planner_search.
 */
mics_status mics_plan_find_twice(mics_plan_found *found);

/* The fastest baseline, if it fits and is more than 1 % faster than the best plan: what this library
 * cannot run.
 *
 * Needs:   found->result->count > 0.
 * Returns: one of found->baselines; NULL: none.      Pure.
 */
const mics_plan_entry *mics_plan_faster_baseline(const mics_plan_found *found);

/* Logs that nothing fits: what lacks how much, and what would work.
 *
 * Needs:   found->result->count is 0.
 * Returns: MICS_ERR_MEMORY.
 */
mics_status mics_plan_fail_fit(const mics_plan *plan, const mics_plan_found *found);

// ---- what a buyer asks ----

// How machines fail, and what checkpoints cost. 0: as the cluster file says, else a usual figure;
// below 0: none.
typedef struct mics_plan_losses {
    double failures_per_node_day;
    double checkpoint_bytes_per_s; // of a node
    double restart_s;
    double spot_usd_per_node_hour;
    double preemptions_per_node_day;
} mics_plan_losses;

// What is wanted. 0: not said.
typedef struct mics_plan_goal {
    double tokens, days, usd;
    mics_plan_losses losses;
} mics_plan_goal;

// Typical, and between what fast and slow trainings on such chips take.
typedef struct mics_plan_range {
    double typical, low, high;
} mics_plan_range;

// How a state is saved.
typedef enum mics_plan_saving {
    MICS_PLAN_SAVE_WAITING, // training waits until the checkpoint is written
    MICS_PLAN_SAVE_BEHIND,  // training waits for a copy on the host (run.checkpoint_every)
    MICS_PLAN_SAVE_MEMORY,  // in the memory of nodes too (run.memory_checkpoint_every)
    MICS_PLAN_SAVINGS
} mics_plan_saving;

// One way to save, on one cluster. Without `possible` the rest is 0.
typedef struct mics_plan_saves {
    bool possible;    // node memory survives a lost node only on other nodes
    double blocked_s; // that training waits for a save
    double write_s;   // to the disk, or from node to node
    double restart_s; // with what is read
    mics_goodput best;
} mics_plan_saves;

// What failures and saves leave of a training, and of one on spot nodes.
typedef struct mics_plan_goodput {
    mics_plan_range goodput; // of `saving`, at its best interval
    mics_plan_saving saving; // what the run file does: BEHIND, or MEMORY
    double simulated;        // goodput of BEHIND in a simulated training; 0: it does not end
    double failures_per_node_day;
    const char *failures_source; // "published", "assumed" or "given"
    double failure_hours;        // between two failures of the job; 0: there are none
    double state_bytes;          // of a checkpoint
    mics_plan_saves saves[MICS_PLAN_SAVINGS];
    // The run file's own interval; 0 steps: it has none, or saves only at the end.
    mics_goodput file;
    // Spot nodes; usd 0: no price is known. Above break_even preemptions a node and day they are
    // dearer; below 0: always.
    double spot_usd_per_node_hour, preemptions_per_node_day, spot_price_ratio;
    mics_goodput spot; // with an interval of its own
    bool preemptions_known;
    bool spot_waits_step;              // a save begins between steps alone, as a GPU's does
    bool spot_saves_in_time;           // spot_save_s < spot_notice_s
    double spot_save_s, spot_notice_s; // to end the step and save; until the run has ended or the
                                       // node is gone: the sooner of notice and run.grace_s
    double break_even;
} mics_plan_goodput;

// How far plans of a kind of run were off published ones: chip, precision, what ranks share beside
// data ("H100 fp8 data").
typedef struct mics_plan_kind {
    const char *name;
    int32_t rows;
    double ratio;             // time, predicted over measured; median
    double error, high_error; // shares of the measured time: median, 90th percentile
} mics_plan_kind;

// A plan as a buyer compares it. Figures that are not known are 0.
typedef struct mics_plan_offer {
    char cluster[MICS_CLUSTER_NAME_BYTES], chip[MICS_CLUSTER_NAME_BYTES];
    int32_t nodes, ranks;
    char price_date[MICS_PRICE_DATE_BYTES];
    char cannot[MICS_PLAN_WHY_BYTES]; // why mics cannot run it; else ""
    int64_t global_batch;
    int64_t batch_asked; // fewer: the batch was raised to a multiple of the ranks
    bool pairs;          // batches count pairs of sequences
    mics_plan_entry entry;
    const mics_plan_kind *kind; // the nearest
    int32_t published_rows;     // published trainings of its own kind
    mics_price price;           // that usd is of, where it is known
    // Why there is none on any chip: "in tf32", "with frozen parameters"; NULL: there are.
    const char *unpublished;
    // What this library cannot run, and is over 1 % faster: as mics_plan_faster_baseline. "": none.
    char faster[MICS_PLAN_NAME_BYTES];
    double faster_us;
    // Why MEGATRON cannot have the degrees that are fixed; else "".
    char no_cut[MICS_PLAN_WHY_BYTES];
    mics_plan_range step_s;
    double straggling;         // what the range's end is raised to for slow GPUs; 0: it is not
    mics_plan_goodput goodput; // days and money have it in them
    // That are trained: the goal's. Or as many as its money, or its days, are enough for: then
    // these are a range, and days and money exact.
    mics_plan_range tokens;
    mics_plan_range days, usd;
    // As typical, also where nothing is asked. Without a known price no budget is met.
    bool meets_days, meets_usd;
    bool meets; // both
    bool never; // training never gets done: no tokens, days or money, no goal met
    bool front; // of those compared that mics can run none is both faster and cheaper
    char note[MICS_PLAN_WHY_BYTES]; // why there is no plan; else ""
} mics_plan_offer;

/* Fewer published trainings of a kind say little of it. */
#define MICS_PLAN_FEW_ROWS 3

/* With less goodput training never gets done: there are no days and no price. */
#define MICS_PLAN_MIN_GOODPUT 1e-9

/* "950", "1.5M", "300B", "15T": a number as flags take it.
 *
 * Units:   count: any; capacity: bytes of `text`.
 * Needs:   capacity >= 1.
 * Returns: `text`.
 */
char *mics_plan_count_text(double count, char *text, size_t capacity);

/* A plan of `nodes` nodes as an offer.   Needs: an entry of that plan; a goal of figures >= 0. Pure.
 */
mics_plan_offer mics_plan_offer_get(const mics_plan *plan, int32_t nodes,
                                    const mics_plan_entry *entry, const mics_plan_goal *goal);

/* What failures and checkpoints leave of a training by that plan.
 *
 * The state is 4 bytes a parameter for masters and each of the optimizer's states. All nodes write
 * and read their parts at once. A lost node is replaced; restart_s is until ranks start to read.
 * Needs:   as mics_plan_offer_get.      Pure.
 */
mics_plan_goodput mics_plan_goodput_get(const mics_plan *plan, int32_t nodes,
                                        const mics_plan_entry *entry,
                                        const mics_plan_losses *losses);

enum { MICS_PLAN_MAX_OFFERS = 256 };

typedef struct mics_plan_offers {
    // Those that mics can run and that meet the goal first; of each kind the cheapest first.
    mics_plan_offer *items;
    int32_t count;
    int32_t
        compared; // the first so many are: those that mics can run, or if it can run none all plans
    mics_memory *memory;
    double until_us; // of mics_clock_us: no plan is begun later; 0: no such limit
} mics_plan_offers;

/* Whether a cluster is "all", all of the catalogue, or "all:8", 8 nodes of each. Pure. */
bool mics_plan_is_all(const char *cluster);

/* The best plan on each of several clusters. One without a number of nodes stands for 1, 2, 4 ...
 * 64 of them; each of "all" for the first of those by the offers' order. Without prices the
 * fastest comes first.
 *
 * A cluster that has no such precision or attention kernel, or fewer nodes, has a note, and so has one
 * whose turn comes after spec->planning_s.
 *
 * Needs:   clusters: (count), as mics_plan_spec.cluster, which is not read here; count >= 1.
 * Returns: MICS_OK, where one at least can be planned; as mics_plan_open; MICS_ERR_INVALID, logged:
 *          none can be planned, or more than MICS_PLAN_MAX_OFFERS.
 * Owns:    close with mics_plan_offers_close.
 */
mics_status mics_plan_offers_open(mics_memory *memory, const mics_plan_spec *spec,
                                  const char *const *clusters, int32_t count,
                                  const mics_plan_goal *goal, mics_plan_offers **offers_out);
void mics_plan_offers_close(mics_plan_offers *offers);

enum { MICS_PLAN_MAX_POINTS = 64, MICS_PLAN_MAX_CURVES = MICS_PLAN_BASELINES + 1 };

// One cluster size, or one P.
typedef struct mics_plan_point {
    int32_t size; // nodes, or P
    int32_t nodes, ranks;
    int64_t global_batch;
    mics_plan_entry curves[MICS_PLAN_MAX_CURVES]; // by curve
    bool has[MICS_PLAN_MAX_CURVES];               // there is one, and it fits
    char note[MICS_PLAN_WHY_BYTES];               // why there is none
} mics_plan_point;

typedef struct mics_plan_sweep {
    bool over_params;                        // else over nodes
    const char *names[MICS_PLAN_MAX_CURVES]; // the first is the planner's best
    int32_t curve_count;
    mics_plan_point points[MICS_PLAN_MAX_POINTS];
    int32_t point_count;
    mics_memory *memory;
} mics_plan_sweep;

/* Plans over cluster sizes ("nodes=1..64", "nodes=2,4,6") or over P ("P").
 *
 * Returns: MICS_OK, where one point at least can be planned; MICS_ERR_INVALID, logged; as
 *          mics_plan_find.
 * Owns:    close with mics_plan_sweep_close.
 */
mics_status mics_plan_sweep_open(const mics_plan *plan, const char *points,
                                 mics_plan_sweep **sweep_out);
void mics_plan_sweep_close(mics_plan_sweep *sweep);

/* Writes a picture of a sweep's curves, or of the offers' time and price, of the model in `file`, to
 * the SVG file `path`.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY; MICS_ERR_IO; MICS_ERR_INVALID where no offer has a price,
 *          logged.
 */
mics_status mics_plan_sweep_svg(const mics_plan *plan, const mics_plan_sweep *sweep,
                                const char *path);
mics_status mics_plan_offers_svg(const mics_plan_offers *offers, const char *file,
                                 const char *path);

// ---- clusters ----

/* A cluster by name or file ("p4d.24xlarge:8", "cluster.json:8"); *nodes_out is 0 when nobody says
 * how many.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, MICS_ERR_IO, MICS_ERR_FORMAT, logged.
 * Owns:    nothing is kept open.
 */
mics_status mics_cluster_open(mics_memory *memory, const char *text, mics_cluster *cluster_out,
                              int32_t *nodes_out);

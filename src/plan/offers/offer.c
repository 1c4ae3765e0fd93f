// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Plans as a buyer compares them: time and price of a whole training, on one cluster or several.
#include "base/clock.h"
#include "base/text.h"
#include "kinds.h"
#include "mics/log.h"
#include "plan/offers/planning.h"
#include "plan/search/baseline.h"
#include "rivals.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES_GUESSED = 64 };

static const double day_s = 86400, hour_s = 3600;

// The range where no published training is of the kind: the catalogue's of chips without any.
static const double unpublished_low = 0.8, unpublished_high = 1.35;

char *mics_plan_count_text(double count, char *text, size_t capacity)
{
    static const char *const units[] = {"", "K", "M", "B", "T"};
    int unit = 0;
    for (; count >= 999.95 && unit < 4; unit++)
        count /= 1000;
    mics_text_format(text, capacity, "%.4g%s", count, units[unit]);
    return text;
}

static mics_plan_range scaled(const mics_plan_range *range, double factor)
{
    return (mics_plan_range){range->typical * factor, range->low * factor, range->high * factor};
}

// As many as are asked for; else as many as the money, or the days, are enough for.
static double tokens_of(const mics_plan_goal *goal, double usd_per_s, double tokens_per_s)
{
    const double by_days = goal->days * day_s * tokens_per_s;
    const double by_usd = usd_per_s > 0 ? goal->usd / usd_per_s * tokens_per_s : 0;
    if (goal->tokens > 0)
        return goal->tokens;
    return by_usd > 0 && (by_days == 0 || by_usd < by_days) ? by_usd : by_days;
}

// Published speeds are of undisturbed steps. Slow GPUs and links delayed the jobs of a shared
// cluster of over 10000 GPUs "by 1.34x" on average: Wu et al., Falcon, October 2024,
// arXiv:2410.12588, abstract as the paper is set. arXiv's own listing prints "1.34%" there. The
// larger reading is taken, as the price's upper end; from how many ranks on is assumed.
static const double straggling_high = 1.34;
enum { STRAGGLING_RANKS = 1024 };

// All trainings of bench/plan/throughput.jsonl and throughput2.jsonl are in 16 or 8 bits, of all
// parameters.
static const char *unpublished(const mics_plan *plan)
{
    static const char *const maths[MICS_MATHS] = {
        [MICS_MATH_FP32] = "in fp32", [MICS_MATH_TF32] = "in tf32"};
    if (plan->run->preference.kind != MICS_PREFERENCE_NONE)
        return "on preference pairs";
    if (mics_model_trained_count(plan->model) < mics_model_param_count(plan->model))
        return "with frozen parameters";
    return maths[plan->math];
}

// Of a step; one time where nothing is known of the chip. Dense models in 16 bits have the chip's
// range. Of other kinds it is as wide as plans of the nearest were off, and where too few are of the
// same kind, at least as of chips without any.
static mics_plan_range step_range(const mics_plan *plan, double step_s,
                                  const mics_plan_offer *offer)
{
    const mics_accelerator *chip = &plan->cluster.accelerator;
    double low = chip->step_low > 0 ? chip->step_low : 1;
    double high = chip->step_high > 0 ? chip->step_high : 1;
    const bool usual = plan->math != MICS_MATH_FP8 && plan->experts == 0;
    if (low < high &&
        (offer->unpublished != NULL || (!usual && offer->published_rows < MICS_PLAN_FEW_ROWS))) {
        low = fmin(low, unpublished_low);
        high = fmax(high, unpublished_high);
    }
    if (low < high && offer->unpublished == NULL && !usual) {
        low = fmin(low, 1 / (1 + offer->kind->high_error));
        high = fmax(high, 1 + offer->kind->high_error);
    }
    return (mics_plan_range){step_s, step_s * low, step_s * high};
}

// Where so many ranks wait for each other, and rates are not measured.
static void add_straggling(mics_plan_offer *offer)
{
    const double high = straggling_high * offer->step_s.typical;
    if (offer->ranks < STRAGGLING_RANKS || offer->step_s.low == offer->step_s.high ||
        offer->step_s.high >= high)
        return;
    offer->step_s.high = high;
    offer->straggling = straggling_high;
}

// Failures and saves make it longer.
static void add_losses(mics_plan_range *days, const mics_plan_range *goodput)
{
    days->typical /= fmax(goodput->typical, MICS_PLAN_MIN_GOODPUT);
    days->low /= fmax(goodput->high, MICS_PLAN_MIN_GOODPUT);
    days->high /= fmax(goodput->low, MICS_PLAN_MIN_GOODPUT);
}

static double useful_tokens_per_s(const mics_plan_offer *offer)
{
    return offer->entry.tokens_per_s * fmax(offer->goodput.goodput.typical, MICS_PLAN_MIN_GOODPUT);
}

// The time is what is given: slow steps give fewer tokens in it, fast ones more.
static void range_in_tokens(mics_plan_range *days, mics_plan_range *tokens)
{
    if (days->typical == 0)
        return;
    tokens->low *= days->typical / days->high;
    tokens->high *= days->typical / days->low;
    days->low = days->high = days->typical;
}

// What never gets done has neither time nor price, and meets no goal.
static void take_nothing(const mics_plan_goal *goal, mics_plan_offer *offer)
{
    offer->tokens = offer->days = offer->usd = (mics_plan_range){0};
    offer->meets_days = offer->meets_days && goal->days == 0;
    offer->meets_usd = offer->meets_usd && goal->usd == 0;
}

// Plans are of more than this library runs.
static void note_cannot(const mics_plan *plan, mics_plan_offer *offer)
{
    const mics_accelerator *chip = &plan->cluster.accelerator;
    if (chip->unsupported[0] != '\0')
        snprintf(offer->cannot, sizeof offer->cannot, "%s is %s", offer->chip, chip->unsupported);
    else if (plan->math == MICS_MATH_FP8)
        snprintf(offer->cannot, sizeof offer->cannot, "GEMMs in fp8 can be planned, not trained");
    else if (plan->by_shapes)
        snprintf(offer->cannot, sizeof offer->cannot, "model_type %s is planned by its shapes",
                 plan->model->architecture);
}

mics_plan_offer mics_plan_offer_get(const mics_plan *plan, int32_t nodes,
                                    const mics_plan_entry *entry, const mics_plan_goal *goal)
{
    const mics_accelerator *chip = &plan->cluster.accelerator;
    const double step_s = entry->step_us * 1e-6;
    const double usd_per_s = plan->cluster.usd_per_node_hour * nodes / hour_s;
    mics_plan_offer offer = {.nodes = nodes,
                             .ranks = nodes * mics_cluster_ranks_per_node(&plan->cluster),
                             .global_batch = mics_plan_request_get(plan, nodes).global_batch,
                             .batch_asked = mics_plan_batch_asked(plan, nodes),
                             .price = plan->price,
                             .entry = *entry,
                             .pairs = plan->run->preference.kind != MICS_PREFERENCE_NONE,
                             .unpublished = unpublished(plan)};
    snprintf(offer.cluster, sizeof offer.cluster, "%s", plan->cluster.name);
    snprintf(offer.chip, sizeof offer.chip, "%s", chip->name[0] != '\0' ? chip->name : "this chip");
    memcpy(offer.price_date, plan->cluster.price_dates[plan->price], sizeof offer.price_date);
    note_cannot(plan, &offer);
    bool same = false;
    offer.kind = kind_find(plan, &same);
    offer.published_rows = same && offer.unpublished == NULL ? offer.kind->rows : 0;
    offer.step_s = step_range(plan, step_s, &offer);
    add_straggling(&offer);
    offer.goodput = mics_plan_goodput_get(plan, nodes, entry, &goal->losses);
    const double tokens = tokens_of(goal, usd_per_s, useful_tokens_per_s(&offer));
    offer.days = scaled(&offer.step_s, tokens / entry->tokens / day_s);
    add_losses(&offer.days, &offer.goodput.goodput);
    offer.tokens = (mics_plan_range){tokens, tokens, tokens};
    if (goal->tokens == 0)
        range_in_tokens(&offer.days, &offer.tokens);
    offer.usd = scaled(&offer.days, usd_per_s * day_s);
    // What was divided before is multiplied here: rounding is no reason to fail. A price that is
    // not known is within no budget.
    offer.meets_days = goal->days == 0 || offer.days.typical <= goal->days * (1 + 1e-9);
    offer.meets_usd =
        goal->usd == 0 || (usd_per_s > 0 && offer.usd.typical <= goal->usd * (1 + 1e-9));
    offer.never = offer.goodput.goodput.typical < MICS_PLAN_MIN_GOODPUT;
    if (offer.never)
        take_nothing(goal, &offer);
    offer.meets = offer.meets_days && offer.meets_usd;
    return offer;
}

// ---- several ----

// Price of what is trained, or where that is not said of 1e9 tokens.
static double price_of(const mics_plan_offer *offer)
{
    if (offer->never)
        return 0;
    return offer->tokens.typical > 0 ? offer->usd.typical / offer->tokens.typical
                                     : offer->entry.usd_per_gtoken;
}

static int compare_offers(const void *left, const void *right)
{
    const mics_plan_offer *a = left, *b = right;
    const double keys[][2] = {{a->note[0] != '\0', b->note[0] != '\0'},
                              {a->cannot[0] != '\0', b->cannot[0] != '\0'},
                              {a->never, b->never},
                              {!a->meets, !b->meets},
                              {price_of(a) == 0, price_of(b) == 0},
                              {price_of(a), price_of(b)},
                              {useful_tokens_per_s(b), useful_tokens_per_s(a)},
                              {a->nodes, b->nodes}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    }
    return 0;
}

// No worse in both, and better in one.
static bool beats(const mics_plan_offer *a, const mics_plan_offer *b)
{
    const double price = price_of(a), other = price_of(b);
    const double speed = useful_tokens_per_s(a), slower = useful_tokens_per_s(b);
    return price > 0 && other > 0 && price <= other && speed >= slower &&
           (price < other || speed > slower);
}

static void mark_front(mics_plan_offers *offers)
{
    // What mics cannot run is compared where it can run none.
    while (offers->compared < offers->count && offers->items[offers->compared].note[0] == '\0' &&
           !offers->items[offers->compared].cannot[0] == !offers->items[0].cannot[0])
        offers->compared++;
    for (int32_t i = 0; i < offers->compared; i++) {
        mics_plan_offer *offer = &offers->items[i];
        offer->front = price_of(offer) > 0;
        for (int32_t j = 0; offer->front && j < offers->compared; j++)
            offer->front = !beats(&offers->items[j], offer);
    }
}

static bool has_nodes(const mics_plan *plan, int32_t nodes)
{
    int32_t ranks = 0;
    const bool muted = mics_log_mute(true);
    const mics_status status = mics_cluster_ranks(&plan->cluster, nodes, &ranks);
    (void)mics_log_mute(muted);
    return status == MICS_OK;
}

// Whether there can be no plan, and why.
static bool note_impossible(const mics_plan *plan, mics_plan_offer *offer)
{
    const mics_accelerator *chip = &plan->cluster.accelerator;
    if (chip->flops_per_s[plan->math] == 0)
        snprintf(offer->note, sizeof offer->note, "%s has no tflops_%s",
                 chip->name[0] != '\0' ? chip->name : plan->cluster.name,
                 mics_math_text(plan->math));
    else if (plan->lacks_attention)
        snprintf(offer->note, sizeof offer->note, "no rates of attention %s are known on %s",
                 plan->attention, chip->name[0] != '\0' ? chip->name : plan->cluster.name);
    else if (!has_nodes(plan, offer->nodes))
        snprintf(offer->note, sizeof offer->note, "the cluster has fewer than %d nodes",
                 (int)offer->nodes);
    else if (plan->run->min_replicas > offer->ranks)
        snprintf(offer->note, sizeof offer->note,
                 "%d ranks cannot keep run.min_replicas %d copies of every state",
                 (int)offer->ranks, (int)plan->run->min_replicas);
    return offer->note[0] != '\0';
}

// What mics cannot run, and would be faster; or why it has no cut.
static void take_faster(const mics_plan *plan, const mics_plan_found *found, mics_plan_offer *offer)
{
    const mics_plan_entry *faster = mics_plan_faster_baseline(found);
    const mics_plan_entry *megatron = &found->baselines[MICS_PLAN_MEGATRON];
    if (offers_fixes_degrees(&plan->pipeline) && megatron->choice.micro_batch == 0)
        snprintf(offer->no_cut, sizeof offer->no_cut, "%s", megatron->why);
    if (faster == NULL)
        return;
    snprintf(offer->faster, sizeof offer->faster, "%s", faster->name);
    offer->faster_us = faster->step_us;
}

// Whether the time for planning is over; one offer there is always.
static const char late_note[] = "not planned: the time for planning was over (--planning-seconds)";

static bool note_late(const mics_plan_offers *offers, mics_plan_offer *offer)
{
    const bool late =
        offers->until_us > 0 && offers->count > 0 && mics_clock_us() > offers->until_us;
    if (late)
        snprintf(offer->note, sizeof offer->note, "%s", late_note);
    return late;
}

static bool is_late(const mics_plan_offer *offer)
{
    return strcmp(offer->note, late_note) == 0;
}

// `begun`: others of the cluster are planned, and are compared with this one whatever time is left.
static mics_status add_offer(mics_plan_offers *offers, const mics_plan *plan, int32_t nodes,
                             bool begun, const mics_plan_goal *goal)
{
    mics_plan_found found = {.planner = NULL};
    mics_plan_offer offer = {.nodes = nodes,
                             .ranks = nodes * mics_cluster_ranks_per_node(&plan->cluster)};
    mics_status status = MICS_OK;
    if (offers->count == MICS_PLAN_MAX_OFFERS)
        return mics_fail(MICS_ERR_INVALID, "more than %d clusters to compare",
                         (int)MICS_PLAN_MAX_OFFERS);
    snprintf(offer.cluster, sizeof offer.cluster, "%s", plan->cluster.name);
    if (!note_impossible(plan, &offer) && (begun || !note_late(offers, &offer))) {
        status = mics_plan_find(plan, nodes, 0, &found);
        if (status == MICS_OK && found.result->count > 0) {
            offer = mics_plan_offer_get(plan, nodes, &found.result->entries[0], goal);
            take_faster(plan, &found, &offer);
        } else if (status == MICS_OK) {
            status = offers_note_nothing(plan, &found, offer.note, sizeof offer.note);
        }
    }
    if (status == MICS_OK)
        offers->items[offers->count++] = offer;
    mics_plan_found_close(&found);
    return status;
}

static void sort_offers(mics_plan_offers *offers, int32_t first)
{
    qsort(&offers->items[first], (size_t)(offers->count - first), sizeof *offers->items,
          compare_offers);
}

// With one_size of several numbers of nodes the first by order.
static mics_status add_cluster(mics_plan_offers *offers, const mics_plan_spec *spec,
                               const mics_plan_goal *goal, bool one_size)
{
    mics_plan *plan = NULL;
    const int32_t first = offers->count;
    mics_status status = mics_plan_open(offers->memory, spec, &plan);
    if (status == MICS_OK && plan->nodes > 0)
        status = add_offer(offers, plan, plan->nodes, false, goal);
    else
        for (int32_t nodes = 1; status == MICS_OK && nodes <= MAX_NODES_GUESSED; nodes *= 2) {
            const bool begun =
                one_size && offers->count > first && !is_late(&offers->items[offers->count - 1]);
            if (has_nodes(plan, nodes))
                status = add_offer(offers, plan, nodes, begun, goal);
        }
    if (status == MICS_OK && one_size && offers->count > first) {
        sort_offers(offers, first);
        offers->count = first + 1;
    }
    mics_plan_close(plan);
    return status;
}

// All of the catalogue.
static mics_status add_all(mics_plan_offers *offers, const mics_plan_spec *spec,
                           const mics_plan_goal *goal)
{
    char text[MICS_CLUSTER_NAME_BYTES + 16];
    mics_plan_spec one = *spec;
    const char *nodes = spec->cluster + strlen("all");
    if (nodes[0] == '\0' && (goal->tokens == 0 || (goal->days == 0 && goal->usd == 0)))
        return mics_fail(MICS_ERR_INVALID,
                         "--cluster all does not say how many nodes; write all:8 for eight of "
                         "each, or give --tokens with --days or --budget, which choose");
    one.cluster = text;
    for (int32_t i = 0; i < mics_catalogue_count(); i++) {
        snprintf(text, sizeof text, "%s%s", mics_catalogue_name(i), nodes);
        MICS_TRY(add_cluster(offers, &one, goal, true));
        one.silent_guess = true;
        mics_work_tell(&spec->listener, "planning", i + 1, mics_catalogue_count());
    }
    return MICS_OK;
}

bool mics_plan_is_all(const char *cluster)
{
    return strcmp(cluster, "all") == 0 || strncmp(cluster, "all:", 4) == 0;
}

static mics_status fill(mics_plan_offers *offers, const mics_plan_spec *spec,
                        const char *const *clusters, int32_t count, const mics_plan_goal *goal)
{
    void *block = NULL;
    MICS_TRY(mics_alloc(offers->memory, MICS_MEM_HOST,
                        MICS_PLAN_MAX_OFFERS * sizeof(mics_plan_offer), &block));
    offers->items = block;
    if (spec->planning_s > 0)
        offers->until_us = mics_clock_us() + spec->planning_s * 1e6;
    for (int32_t i = 0; i < count; i++) {
        mics_plan_spec one = *spec;
        one.cluster = clusters[i];
        one.any_nodes = one.any_precision = true;
        one.silent_guess = i > 0; // said of the first
        if (mics_plan_is_all(one.cluster)) {
            MICS_TRY(add_all(offers, &one, goal));
            continue;
        }
        MICS_TRY(add_cluster(offers, &one, goal, false));
        mics_work_tell(&spec->listener, "planning", i + 1, count);
    }
    sort_offers(offers, 0);
    if (offers->items[0].note[0] != '\0')
        return mics_fail(MICS_ERR_INVALID, "%s: no cluster can be planned; %s:%d: %s", spec->file,
                         offers->items[0].cluster, (int)offers->items[0].nodes,
                         offers->items[0].note);
    mark_front(offers);
    return MICS_OK;
}

mics_status mics_plan_offers_open(mics_memory *memory, const mics_plan_spec *spec,
                                  const char *const *clusters, int32_t count,
                                  const mics_plan_goal *goal, mics_plan_offers **offers_out)
{
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, sizeof(mics_plan_offers), &block));
    mics_plan_offers *offers = block;
    offers->memory = memory;
    const mics_status status = fill(offers, spec, clusters, count, goal);
    if (status == MICS_OK)
        *offers_out = offers;
    else
        mics_plan_offers_close(offers);
    return status;
}

void mics_plan_offers_close(mics_plan_offers *offers)
{
    if (offers == NULL)
        return;
    mics_free(offers->memory, offers->items);
    mics_free(offers->memory, offers);
}

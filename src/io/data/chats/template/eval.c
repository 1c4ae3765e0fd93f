// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Runs statements and evaluates expressions.
//
// A scope sees those around it, and what is set goes to the innermost: bodies of loops, macros,
// blocks of set, filter, call and generation have one of their own, those of ifs do not.
// Text of macros and blocks is written to the output as all text is, and then cut off as a value.
#include "io/data/chats/template/text.h"
#include "io/data/chats/template/tree.h"
#include <string.h>

typedef struct scope {
    struct scope *outer;
    mics_value variables; // a dict
} scope;

typedef struct mics_macro {
    const mics_node *node;
    scope *scope; // where it was defined
} mics_macro;

typedef struct runner {
    mics_work *work;
    scope *scope;
    mics_value captured; // what MICS_NODE_CAPTURED stands for
    mics_template_spans *spans;
    int captures, generations; // around
} runner;

typedef enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } flow;

static mics_value eval(runner *r, const mics_node *node);
static flow run_all(runner *r, const mics_node *node);

static scope *push(runner *r, scope *outer)
{
    scope *before = r->scope;
    r->scope = mics_work_alloc(r->work, sizeof *r->scope);
    *r->scope = (scope){.outer = outer, .variables = mics_list(r->work, MICS_VALUE_DICT)};
    return before;
}

static void set(runner *r, mics_value name, mics_value value)
{
    mics_dict_set(r->work, r->scope->variables, name, value);
}

// ---- expressions ----

static mics_value eval_name(runner *r, mics_value name)
{
    for (const scope *at = r->scope; at != NULL; at = at->outer) {
        const mics_value *found = mics_dict_get(r->work, at->variables, name);
        if (found != NULL)
            return *found;
    }
    const mics_function *function = mics_function_find(MICS_IS_GLOBAL, name);
    if (function == NULL)
        return MICS_UNDEFINED(name.text, name.bytes);
    mics_bound *bound = mics_work_alloc(r->work, sizeof *bound);
    bound->function = function;
    return (mics_value){.type = MICS_VALUE_FUNCTION, .bound = bound};
}

static mics_value eval_list(runner *r, const mics_node *node)
{
    const mics_value list =
        mics_list(r->work, node->kind == MICS_NODE_TUPLE ? MICS_VALUE_TUPLE : MICS_VALUE_LIST);
    for (const mics_node *at = node->list; at != NULL; at = at->next)
        mics_list_add(r->work, list, eval(r, at));
    return list;
}

static mics_value eval_dict(runner *r, const mics_node *node)
{
    const mics_value dict = mics_list(r->work, MICS_VALUE_DICT);
    for (const mics_node *at = node->list; at != NULL; at = at->next->next) {
        const mics_value key = eval(r, at);
        mics_dict_set(r->work, dict, key, eval(r, at->next));
    }
    return dict;
}

static mics_arguments eval_arguments(runner *r, const mics_node *node)
{
    mics_work *work = r->work;
    mics_arguments given = {mics_list(work, MICS_VALUE_LIST), mics_list(work, MICS_VALUE_DICT)};
    for (const mics_node *at = node->list; at != NULL; at = at->next) {
        const bool part = at->kind >= MICS_NODE_KEYWORD && at->kind <= MICS_NODE_STARS;
        const mics_value value = eval(r, part ? at->a : at);
        if (at->kind == MICS_NODE_KEYWORD) {
            mics_dict_set(work, given.named, at->value, value);
        } else if (at->kind == MICS_NODE_STARS) {
            if (value.type != MICS_VALUE_DICT)
                mics_work_raise(work, MICS_ERR_INVALID, "** needs a dict of arguments");
            for (int64_t i = 0; i < value.list->count; i += 2)
                mics_dict_set(work, given.named, value.list->items[i], value.list->items[i + 1]);
        } else if (at->kind == MICS_NODE_STAR) {
            const mics_value_list *items = mics_value_items(work, value);
            for (int64_t i = 0; i < items->count; i++)
                mics_list_add(work, given.list, items->items[i]);
        } else {
            mics_list_add(work, given.list, value);
        }
    }
    return given;
}

// A body's text as a string; *flow_out: how it ended.
static mics_value capture(runner *r, const mics_node *body, flow *flow_out)
{
    const size_t mark = r->work->out->bytes;
    r->captures++;
    *flow_out = run_all(r, body);
    r->captures--;
    return mics_work_cut(r->work, mark);
}

static mics_value call_macro(runner *r, const mics_macro *macro, mics_arguments given)
{
    const mics_node *node = macro->node;
    scope *before = push(r, macro->scope);
    const mics_value caller = MICS_LITERAL("caller");
    int64_t place = 0, used = 0;
    flow ignored;
    for (const mics_node *at = node->list; at != NULL; at = at->next, place++) {
        const mics_value *named = mics_dict_get(r->work, given.named, at->value);
        const bool listed = place < given.list.list->count;
        used += named != NULL;
        if (named != NULL && listed)
            mics_work_raise(r->work, MICS_ERR_INVALID, "the macro '%.*s' gets '%.*s' twice",
                            MICS_SHOWN(node->value), MICS_SHOWN(at->value));
        set(r, at->value,
            listed          ? given.list.list->items[place]
            : named != NULL ? *named
            : at->a != NULL ? eval(r, at->a)
                            : MICS_UNDEFINED(at->value.text, at->value.bytes));
    }
    const mics_value *called = mics_dict_get(r->work, given.named, caller);
    if (node->calls_caller) {
        used += called != NULL;
        set(r, caller, called != NULL ? *called : MICS_UNDEFINED("caller", 6));
    }
    if (given.list.list->count > place || given.named.list->count > 2 * used)
        mics_work_raise(r->work, MICS_ERR_INVALID,
                        "the macro '%.*s' gets an argument that it has no parameter for",
                        MICS_SHOWN(node->value));
    const mics_value text = capture(r, node->body, &ignored);
    r->scope = before;
    return text;
}

static mics_value call(runner *r, mics_value callee, mics_arguments given)
{
    if (callee.type == MICS_VALUE_FUNCTION)
        return mics_function_call(r->work, callee.bound->function, callee.bound->self, given);
    if (callee.type == MICS_VALUE_MACRO)
        return call_macro(r, callee.macro, given);
    mics_value_raise(r->work, "cannot be called", callee);
}

static mics_value eval_call(runner *r, const mics_node *node)
{
    const mics_value callee = eval(r, node->a);
    const mics_arguments given = eval_arguments(r, node);
    r->work->line = node->line;
    return call(r, callee, given);
}

static mics_value eval_function(runner *r, const mics_node *node)
{
    const int kind = node->kind == MICS_NODE_FILTER ? MICS_IS_FILTER : MICS_IS_TEST;
    const mics_value self = eval(r, node->a);
    const mics_arguments given = eval_arguments(r, node);
    const mics_function *function = node->function;
    r->work->line = node->line;
    if (function == NULL)
        function = mics_function_need(r->work, kind, node->value);
    return mics_function_call(r->work, function, self, given);
}

static mics_value eval_item(runner *r, const mics_node *node)
{
    const mics_value value = eval(r, node->a);
    mics_value item;
    if (node->b->kind == MICS_NODE_SLICE) {
        const mics_node *const parts[3] = {node->b->a, node->b->b, node->b->c};
        mics_value bounds[3];
        for (int i = 0; i < 3; i++)
            bounds[i] = parts[i] != NULL ? eval(r, parts[i]) : MICS_NONE;
        r->work->line = node->line;
        item = mics_value_slice(r->work, value, bounds);
    } else {
        const mics_value key = eval(r, node->b);
        r->work->line = node->line;
        if (mics_is_string(key))
            return mics_value_member(r->work, value, key, false);
        item = mics_value_item(r->work, value, key);
    }
    return item.type != MICS_VALUE_ABSENT ? item : MICS_UNDEFINED("item", 4);
}

static bool holds(runner *r, char sign, mics_value a, mics_value b)
{
    if (sign == 'e' || sign == 'n')
        return mics_value_same(r->work, a, b) == (sign == 'e');
    if (sign == 'i' || sign == 'o')
        return mics_value_contains(r->work, b, a) == (sign == 'i');
    const int order = mics_value_order(r->work, a, b);
    return sign == '<' || sign == 'l' ? order < (sign == 'l') : order > -(sign == 'g');
}

// A comparison; *right_out: its right operand, with which a chain goes on.
static bool compare(runner *r, const mics_node *node, mics_value *right_out)
{
    mics_value left = MICS_NONE;
    bool holding = true;
    mics_work_enter(r->work);
    if (node->kind == MICS_NODE_CHAIN)
        holding = compare(r, node->a, &left);
    else
        left = eval(r, node->a);
    if (holding)
        *right_out = eval(r, node->b);
    r->work->line = node->line;
    r->work->depth--;
    return holding && holds(r, node->sign, left, *right_out);
}

static mics_value eval_binary(runner *r, const mics_node *node)
{
    mics_value right = MICS_NONE;
    if (strchr("en<>lgio", node->sign) != NULL)
        return MICS_BOOL(compare(r, node, &right));
    const mics_value left = eval(r, node->a);
    if (strchr("OA", node->sign) != NULL)
        return mics_value_truth(left) == (node->sign == 'O') ? left : eval(r, node->b);
    right = eval(r, node->b);
    r->work->line = node->line;
    if (node->sign != '~')
        return mics_value_compute(r->work, node->sign, left, right);
    const size_t mark = r->work->out->bytes;
    mics_print(r->work, left);
    mics_print(r->work, right);
    return mics_work_cut(r->work, mark);
}

static mics_value eval_kind(runner *r, const mics_node *node)
{
    switch (node->kind) {
    case MICS_NODE_CONST:
        return node->value;
    case MICS_NODE_NAME:
        return eval_name(r, node->value);
    case MICS_NODE_CAPTURED:
        return r->captured;
    case MICS_NODE_TUPLE:
    case MICS_NODE_LIST:
        return eval_list(r, node);
    case MICS_NODE_DICT:
        return eval_dict(r, node);
    case MICS_NODE_ATTRIBUTE: {
        const mics_value value = eval(r, node->a);
        r->work->line = node->line;
        return mics_value_member(r->work, value, node->value, true);
    }
    case MICS_NODE_ITEM:
        return eval_item(r, node);
    case MICS_NODE_CALL:
        return eval_call(r, node);
    case MICS_NODE_FILTER:
    case MICS_NODE_TEST:
        return eval_function(r, node);
    case MICS_NODE_NOT:
        return MICS_BOOL(!mics_value_truth(eval(r, node->a)));
    case MICS_NODE_SIGN:
        return mics_value_compute(r->work, node->sign, MICS_INT(0), eval(r, node->a));
    case MICS_NODE_CHOICE:
        if (mics_value_truth(eval(r, node->a)))
            return eval(r, node->b);
        return node->c != NULL ? eval(r, node->c)
                               : MICS_UNDEFINED("value of an if without else", 27);
    default:
        return eval_binary(r, node);
    }
}

static mics_value eval(runner *r, const mics_node *node)
{
    mics_work_enter(r->work);
    mics_work_spend(r->work, 1);
    r->work->line = node->line;
    const mics_value value = eval_kind(r, node);
    r->work->depth--;
    return value;
}

// ---- statements ----

static void assign(runner *r, const mics_node *target, mics_value value)
{
    r->work->line = target->line;
    if (target->kind == MICS_NODE_NAME) {
        set(r, target->value, value);
        return;
    }
    if (target->kind == MICS_NODE_ATTRIBUTE) {
        const mics_value space = eval_name(r, target->a->value);
        if (space.type != MICS_VALUE_NAMESPACE || *target->value.text == '_')
            mics_work_raise(r->work, MICS_ERR_INVALID,
                            "'%.*s' cannot be set: only a namespace's "
                            "attributes can, whose names begin with no _",
                            MICS_SHOWN(target->value));
        mics_dict_set(r->work, space, target->value, value);
        return;
    }
    int64_t wanted = 0, at = 0;
    for (const mics_node *part = target->list; part != NULL; part = part->next)
        wanted++;
    const mics_value_list *items = mics_value_items(r->work, value);
    if (items->count != wanted)
        mics_work_raise(r->work, MICS_ERR_INVALID, "%d names are set to %d items", (int)wanted,
                        (int)items->count);
    for (const mics_node *part = target->list; part != NULL; part = part->next)
        assign(r, part, items->items[at++]);
}

// Items of a loop that its filter lets through.
static const mics_value_list *loop_items(runner *r, const mics_node *node)
{
    const mics_value of = eval(r, node->b);
    const mics_value_list *items = mics_value_items(r->work, of);
    r->work->line = node->line;
    if (node->c == NULL)
        return items;
    const mics_value chosen = mics_list(r->work, MICS_VALUE_LIST);
    scope *before = push(r, r->scope);
    for (int64_t i = 0; i < items->count; i++) {
        assign(r, node->a, items->items[i]);
        if (mics_value_truth(eval(r, node->c)))
            mics_list_add(r->work, chosen, items->items[i]);
    }
    r->scope = before;
    return chosen.list;
}

static flow run_for(runner *r, const mics_node *node)
{
    const mics_value_list *items = loop_items(r, node);
    scope *outer = r->scope;
    mics_loop *loop = mics_work_alloc(r->work, sizeof *loop);
    flow how = FLOW_NEXT;
    loop->items = items;
    for (; how != FLOW_BREAK && loop->at < items->count; loop->at++) {
        (void)push(r, outer);
        set(r, MICS_LITERAL("loop"), (mics_value){.type = MICS_VALUE_LOOP, .loop = loop});
        assign(r, node->a, items->items[loop->at]);
        how = run_all(r, node->body);
    }
    (void)push(r, outer);
    how = items->count == 0 ? run_all(r, node->list) : FLOW_NEXT;
    r->scope = outer;
    return how;
}

static void define_macro(runner *r, const mics_node *node)
{
    mics_macro *macro = mics_work_alloc(r->work, sizeof *macro);
    *macro = (mics_macro){.node = node, .scope = r->scope};
    set(r, node->value, (mics_value){.type = MICS_VALUE_MACRO, .macro = macro});
}

static void run_call_block(runner *r, const mics_node *node)
{
    scope *before = push(r, r->scope);
    define_macro(r, node->b);
    const mics_value macro = *mics_dict_get(r->work, r->scope->variables, node->b->value);
    r->scope = before;
    const mics_value callee = eval(r, node->a->a);
    const mics_arguments given = eval_arguments(r, node->a);
    mics_dict_set(r->work, given.named, node->b->value, macro);
    r->work->line = node->line;
    mics_print(r->work, call(r, callee, given));
}

static flow run_captured(runner *r, const mics_node *node)
{
    flow how = FLOW_NEXT;
    scope *before = push(r, r->scope);
    const mics_value text = capture(r, node->body, &how), outer = r->captured;
    r->scope = before;
    if (how != FLOW_NEXT)
        return how;
    r->captured = text;
    const mics_value value = eval(r, node->b);
    r->captured = outer;
    if (node->kind == MICS_NODE_SET_BLOCK)
        assign(r, node->a, value);
    else
        mics_print(r->work, value);
    return how;
}

static void add_span(runner *r, size_t begin, size_t end)
{
    mics_template_spans *spans = r->spans;
    if (spans == NULL || begin == end || r->generations > 0)
        return;
    if (r->captures > 0)
        mics_work_raise(r->work, MICS_ERR_UNSUPPORTED,
                        "a generation block in a macro or in a block of set, filter or call: where "
                        "its text goes is not known; write it outside of them");
    void *list = spans->list;
    mics_work_try(r->work, mics_realloc(spans->memory, MICS_MEM_HOST,
                                        (spans->count + 1) * sizeof *spans->list, &list));
    spans->list = list;
    spans->list[spans->count++] = (mics_template_span){begin, end};
}

static void run_generation(runner *r, const mics_node *node)
{
    const size_t begin = r->work->out->bytes;
    scope *before = push(r, r->scope);
    r->generations++;
    (void)run_all(r, node->body);
    r->generations--;
    r->scope = before;
    add_span(r, begin, r->work->out->bytes);
}

static flow run(runner *r, const mics_node *node)
{
    switch (node->kind) {
    case MICS_NODE_DATA:
        mics_print(r->work, node->value);
        return FLOW_NEXT;
    case MICS_NODE_OUTPUT:
        mics_print(r->work, eval(r, node->a));
        return FLOW_NEXT;
    case MICS_NODE_IF:
        return run_all(r, mics_value_truth(eval(r, node->a)) ? node->body : node->list);
    case MICS_NODE_FOR:
        return run_for(r, node);
    case MICS_NODE_SET:
        assign(r, node->a, eval(r, node->b));
        return FLOW_NEXT;
    case MICS_NODE_MACRO:
        define_macro(r, node);
        return FLOW_NEXT;
    case MICS_NODE_CALL_BLOCK:
        run_call_block(r, node);
        return FLOW_NEXT;
    case MICS_NODE_BREAK:
        return FLOW_BREAK;
    case MICS_NODE_CONTINUE:
        return FLOW_CONTINUE;
    case MICS_NODE_SET_BLOCK:
    case MICS_NODE_FILTER_BLOCK:
        return run_captured(r, node);
    default:
        run_generation(r, node);
        return FLOW_NEXT;
    }
}

static flow run_all(runner *r, const mics_node *node)
{
    flow how = FLOW_NEXT;
    mics_work_enter(r->work);
    for (; node != NULL && how == FLOW_NEXT; node = node->next) {
        mics_work_spend(r->work, 1);
        r->work->line = node->line;
        how = run(r, node);
    }
    r->work->depth--;
    return how;
}

void mics_template_run(mics_work *work, const mics_node *body, mics_value variables,
                       mics_template_spans *spans)
{
    scope around = {.variables = variables};
    runner r = {.work = work, .scope = &around, .spans = spans};
    (void)push(&r, &around);
    (void)run_all(&r, body);
}

// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tokens to a tree, by recursive descent in Jinja's order of precedence:
// if-else, or, and, not, comparisons, + -, ~, * / // %, **, signs, then what stands behind a value.
#include "base/text.h"
#include "io/data/chats/template/tree.h"
#include <string.h>

typedef struct parser {
    mics_work *work;
    const mics_token *token; // the next one
    int branches;            // ifs around: a function that is not known may never be called there
    int macros, loops;       // around
    bool calls_caller;       // the macro being parsed
    bool has_generation;
} parser;

static mics_node *parse_expression(parser *p);
static mics_node *parse_tuple(parser *p, bool choices);
static mics_node *parse_unary(parser *p, bool filters);
static mics_node *parse_body(parser *p, const char *ends);

// ---- tokens ----

static mics_node *new_node(parser *p, mics_node_kind kind, mics_node *a, mics_node *b)
{
    mics_node *node = mics_work_alloc(p->work, sizeof *node);
    *node = (mics_node){.kind = kind, .line = p->work->line, .a = a, .b = b};
    return node;
}

static void next(parser *p)
{
    p->token++;
    p->work->line = p->token->line;
}

static bool is_name(const mics_token *token, const char *name)
{
    return token->kind == 'N' && token->value.bytes == strlen(name) &&
           memcmp(token->value.text, name, token->value.bytes) == 0;
}

static bool skip(parser *p, char kind)
{
    const bool there = p->token->kind == kind;
    if (there)
        next(p);
    return there;
}

static bool skip_name(parser *p, const char *name)
{
    const bool there = is_name(p->token, name);
    if (there)
        next(p);
    return there;
}

static _Noreturn void fail(parser *p, const char *wanted)
{
    const mics_token *t = p->token;
    static const char kinds[] = "VvBbDSIRenlgfp";
    static const char *const texts[] = {
        "{{",       "}}", "{%", "%}", "text", "a string", "a number",
        "a number", "==", "!=", "<=", ">=",   "//",       "**"};
    const char *of = t->kind != '\0' ? strchr(kinds, t->kind) : NULL;
    const char sign[] = {t->kind, '\0'};
    const char *seen = t->kind == '\0' ? "the template's end"
                       : of != NULL    ? texts[of - kinds]
                                       : sign;
    const bool name = t->kind == 'N';
    mics_work_raise(p->work, MICS_ERR_FORMAT, "%s is expected here, and not %.*s", wanted,
                    name ? (int)(t->value.bytes % 100) : (int)strlen(seen),
                    name ? t->value.text : seen);
}

static void expect(parser *p, char kind, const char *wanted)
{
    if (!skip(p, kind))
        fail(p, wanted);
}

static mics_value expect_name(parser *p)
{
    const mics_value name = p->token->value;
    expect(p, 'N', "a name");
    return name;
}

// ---- expressions ----

static mics_node *parse_argument(parser *p)
{
    if (skip(p, '*'))
        return new_node(p, MICS_NODE_STAR, parse_expression(p), NULL);
    if (skip(p, 'p'))
        return new_node(p, MICS_NODE_STARS, parse_expression(p), NULL);
    if (p->token->kind != 'N' || p->token[1].kind != '=')
        return parse_expression(p);
    mics_node *node = new_node(p, MICS_NODE_KEYWORD, NULL, NULL);
    node->value = expect_name(p);
    next(p);
    node->a = parse_expression(p);
    return node;
}

// ( a, b, name=c ), behind the bracket; or [a, b], or {a: b}, as `end` says.
static mics_node *parse_list(parser *p, char end)
{
    mics_node *first = NULL, **last = &first;
    while (!skip(p, end)) {
        *last = end == ')' ? parse_argument(p) : parse_expression(p);
        last = &(*last)->next;
        if (end == '}') {
            expect(p, ':', ":");
            *last = parse_expression(p);
            last = &(*last)->next;
        }
        if (!skip(p, ',') && p->token->kind != end)
            fail(p, end == ')' ? ", or )" : end == ']' ? ", or ]" : ", or }");
    }
    return first;
}

static mics_node *parse_constant(parser *p, mics_value value)
{
    mics_node *node = new_node(p, MICS_NODE_CONST, NULL, NULL);
    node->value = value;
    return node;
}

static mics_node *parse_name(parser *p)
{
    const bool truth = skip_name(p, "true") || skip_name(p, "True");
    if (truth || skip_name(p, "false") || skip_name(p, "False"))
        return parse_constant(p, mics_bool(truth));
    if (skip_name(p, "none") || skip_name(p, "None"))
        return parse_constant(p, mics_none());
    if (p->macros > 0 && (is_name(p->token, "varargs") || is_name(p->token, "kwargs")))
        mics_work_raise(p->work, MICS_ERR_UNSUPPORTED,
                        "varargs and kwargs of a macro are not known here; name its parameters");
    p->calls_caller = p->calls_caller || is_name(p->token, "caller");
    mics_node *node = new_node(p, MICS_NODE_NAME, NULL, NULL);
    node->value = expect_name(p);
    return node;
}

static mics_node *parse_primary(parser *p)
{
    mics_node *node = NULL;
    const char kind = p->token->kind;
    if (kind == 'N')
        return parse_name(p);
    if (kind == 'S' || kind == 'I' || kind == 'R') {
        node = parse_constant(p, p->token->value);
        next(p);
        const size_t mark = p->work->out->bytes; // strings beside each other are one
        mics_work_write(p->work, node->value.text,
                        kind == 'S' && p->token->kind == 'S' ? node->value.bytes : 0);
        while (kind == 'S' && p->token->kind == 'S') {
            mics_work_write(p->work, p->token->value.text, p->token->value.bytes);
            next(p);
        }
        if (p->work->out->bytes > mark)
            node->value = mics_work_cut(p->work, mark);
        return node;
    }
    if (skip(p, '(')) {
        if (skip(p, ')'))
            return new_node(p, MICS_NODE_TUPLE, NULL, NULL);
        node = parse_tuple(p, true);
        expect(p, ')', ")");
        return node;
    }
    if (kind != '[' && kind != '{')
        fail(p, "a value");
    next(p);
    node = new_node(p, kind == '[' ? MICS_NODE_LIST : MICS_NODE_DICT, NULL, NULL);
    node->list = parse_list(p, kind == '[' ? ']' : '}');
    return node;
}

// Behind "[": an index or a slice.
static mics_node *parse_subscript(parser *p, mics_node *of)
{
    mics_node *item = new_node(p, MICS_NODE_ITEM, of, NULL);
    mics_node *parts[3] = {NULL};
    int part = 0;
    for (; part < 3; part++) {
        if (p->token->kind != ':' && p->token->kind != ']')
            parts[part] = parse_expression(p);
        if (!skip(p, ':'))
            break;
    }
    if (!skip(p, ']') || (part == 0 && parts[0] == NULL))
        fail(p, "an index or a slice, and ],");
    item->b = parts[0];
    if (part > 0) {
        item->b = new_node(p, MICS_NODE_SLICE, parts[0], parts[1]);
        item->b->c = parts[2];
    }
    return item;
}

static mics_node *parse_postfix(parser *p, mics_node *node)
{
    for (;;) {
        if (skip(p, '[')) {
            node = parse_subscript(p, node);
        } else if (skip(p, '(')) {
            node = new_node(p, MICS_NODE_CALL, node, NULL);
            node->list = parse_list(p, ')');
        } else if (skip(p, '.')) {
            const mics_value value = p->token->value;
            const bool index = skip(p, 'I');
            node = new_node(p, index ? MICS_NODE_ITEM : MICS_NODE_ATTRIBUTE, node, NULL);
            if (index)
                node->b = parse_constant(p, value);
            else
                node->value = expect_name(p);
        } else {
            return node;
        }
    }
}

// A filter's or test's name.
static mics_node *parse_function(parser *p, mics_node *of, int kind)
{
    const bool filter = kind == MICS_IS_FILTER;
    mics_node *node = new_node(p, filter ? MICS_NODE_FILTER : MICS_NODE_TEST, of, NULL);
    node->value = expect_name(p);
    node->function = mics_function_find(kind, node->value);
    if (node->function == NULL && p->branches == 0)
        mics_function_raise_unknown(p->work, kind, filter ? "filter" : "test", node->value);
    return node;
}

static mics_node *parse_filters(parser *p, mics_node *node)
{
    while (skip(p, '|')) {
        node = parse_function(p, node, MICS_IS_FILTER);
        node->list = skip(p, '(') ? parse_list(p, ')') : NULL;
    }
    return node;
}

static mics_node *parse_test(parser *p, mics_node *of)
{
    const bool negated = skip_name(p, "not");
    mics_node *node = parse_function(p, of, MICS_IS_TEST);
    const bool ends = is_name(p->token, "else") || is_name(p->token, "or") ||
                      is_name(p->token, "and") || is_name(p->token, "if") ||
                      is_name(p->token, "is") || is_name(p->token, "in") ||
                      is_name(p->token, "not");
    if (skip(p, '('))
        node->list = parse_list(p, ')');
    else if (p->token->kind != '\0' && strchr("NSIR[{", p->token->kind) != NULL && !ends)
        node->list = parse_postfix(p, parse_primary(p));
    return negated ? new_node(p, MICS_NODE_NOT, node, NULL) : node;
}

static mics_node *parse_unary(parser *p, bool filters)
{
    const char sign = p->token->kind;
    mics_node *node = NULL;
    mics_work_enter(p->work);
    if (sign == '-' || sign == '+') {
        next(p);
        node = new_node(p, MICS_NODE_SIGN, parse_unary(p, false), NULL);
        node->sign = sign;
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    while (filters && (p->token->kind == '|' || p->token->kind == '(' || is_name(p->token, "is"))) {
        if (p->token->kind == '(')
            node = parse_postfix(p, node);
        else
            node = skip_name(p, "is") ? parse_test(p, node) : parse_filters(p, node);
    }
    p->work->depth--;
    return node;
}

// Arithmetic of a level: 0 for + and -, 1 for ~, 2 for * / // %, 3 for **.
static mics_node *parse_level(parser *p, int level)
{
    static const char *const signs[] = {"+-", "~", "*/f%", "p"};
    if (level == 4)
        return parse_unary(p, true);
    mics_node *node = parse_level(p, level + 1), **last = NULL;
    while (p->token->kind != '\0' && strchr(signs[level], p->token->kind) != NULL) {
        const char sign = p->token->kind;
        next(p);
        mics_node *right = parse_level(p, level + 1);
        if (sign != '~') {
            node = new_node(p, MICS_NODE_COMPUTE, node, right);
            node->sign = sign;
            continue;
        }
        if (last == NULL) {
            mics_node *all = new_node(p, MICS_NODE_CONCAT, NULL, NULL);
            all->list = node;
            last = &node->next;
            node = all;
        }
        *last = right;
        last = &right->next;
    }
    return node;
}

static mics_node *parse_compare(parser *p)
{
    mics_node *node = parse_level(p, 0), *compare = NULL, **last = NULL;
    for (;;) {
        char sign = p->token->kind;
        if (is_name(p->token, "not") && is_name(p->token + 1, "in")) {
            next(p);
            sign = 'o';
        } else if (is_name(p->token, "in")) {
            sign = 'i';
        } else if (sign == '\0' || strchr("en<>lg", sign) == NULL) {
            return compare != NULL ? compare : node;
        }
        next(p);
        if (compare == NULL) {
            compare = new_node(p, MICS_NODE_COMPARE, node, NULL);
            last = &compare->list;
        }
        *last = new_node(p, MICS_NODE_COMPARE, parse_level(p, 0), NULL);
        (*last)->sign = sign;
        last = &(*last)->next;
    }
}

static mics_node *parse_not(parser *p)
{
    if (!skip_name(p, "not"))
        return parse_compare(p);
    mics_work_enter(p->work);
    mics_node *node = new_node(p, MICS_NODE_NOT, parse_not(p), NULL);
    p->work->depth--;
    return node;
}

static mics_node *parse_and(parser *p)
{
    mics_node *node = parse_not(p);
    while (skip_name(p, "and"))
        node = new_node(p, MICS_NODE_AND, node, parse_not(p));
    return node;
}

static mics_node *parse_or(parser *p)
{
    mics_node *node = parse_and(p);
    while (skip_name(p, "or"))
        node = new_node(p, MICS_NODE_OR, node, parse_and(p));
    return node;
}

static mics_node *parse_expression(parser *p)
{
    mics_work_enter(p->work);
    mics_node *node = parse_or(p);
    while (skip_name(p, "if")) {
        mics_node *choice = new_node(p, MICS_NODE_CHOICE, parse_or(p), node);
        choice->c = skip_name(p, "else") ? parse_expression(p) : NULL;
        node = choice;
    }
    p->work->depth--;
    return node;
}

// One expression, or several with commas as a tuple; `choices`: they may be a if b else c.
static mics_node *parse_tuple(parser *p, bool choices)
{
    mics_node *first = choices ? parse_expression(p) : parse_or(p), **last = &first->next;
    if (p->token->kind != ',')
        return first;
    mics_node *tuple = new_node(p, MICS_NODE_TUPLE, NULL, NULL);
    tuple->list = first;
    while (skip(p, ',') && p->token->kind != '\0' && strchr("vb)", p->token->kind) == NULL) {
        *last = choices ? parse_expression(p) : parse_or(p);
        last = &(*last)->next;
    }
    return tuple;
}

// ---- statements ----

// A name, a name's attribute, or several with commas.
static mics_node *parse_target(parser *p, bool attributes)
{
    mics_node *first = NULL, **last = &first;
    bool many = false;
    do {
        if (many && (p->token->kind == '=' || is_name(p->token, "in")))
            break;
        const bool bracket = skip(p, '(');
        *last = bracket ? parse_target(p, attributes) : parse_name(p);
        if (bracket)
            expect(p, ')', ")");
        else if ((*last)->kind != MICS_NODE_NAME)
            fail(p, "a name to set");
        if (attributes && !bracket && skip(p, '.')) {
            *last = new_node(p, MICS_NODE_ATTRIBUTE, *last, NULL);
            (*last)->value = expect_name(p);
        }
        last = &(*last)->next;
        many = many || p->token->kind == ',';
    } while (skip(p, ','));
    if (!many)
        return first;
    mics_node *tuple = new_node(p, MICS_NODE_TUPLE, NULL, NULL);
    tuple->list = first;
    return tuple;
}

static mics_node *parse_if(parser *p)
{
    mics_work_enter(p->work);
    mics_node *node = new_node(p, MICS_NODE_IF, NULL, NULL);
    p->branches++;
    node->a = parse_tuple(p, false);
    node->body = parse_body(p, "elif|else|endif");
    if (skip_name(p, "elif"))
        node->list = parse_if(p);
    else if (skip_name(p, "else"))
        node->list = parse_body(p, "endif");
    skip_name(p, "endif");
    p->branches--;
    p->work->depth--;
    return node;
}

static mics_node *parse_for(parser *p)
{
    mics_node *node = new_node(p, MICS_NODE_FOR, NULL, NULL);
    node->a = parse_target(p, false);
    if (!skip_name(p, "in"))
        fail(p, "in");
    node->b = parse_tuple(p, false);
    node->c = skip_name(p, "if") ? parse_expression(p) : NULL;
    if (is_name(p->token, "recursive"))
        mics_work_raise(p->work, MICS_ERR_UNSUPPORTED,
                        "a recursive loop is not known here; use a macro");
    p->loops++;
    node->body = parse_body(p, "else|endfor");
    p->loops--;
    node->list = skip_name(p, "else") ? parse_body(p, "endfor") : NULL;
    skip_name(p, "endfor");
    return node;
}

static mics_node *parse_set(parser *p)
{
    mics_node *node = new_node(p, MICS_NODE_SET, parse_target(p, true), NULL);
    if (skip(p, '=')) {
        node->b = parse_tuple(p, true);
        return node;
    }
    node->kind = MICS_NODE_SET_BLOCK;
    node->b = parse_filters(p, new_node(p, MICS_NODE_CAPTURED, NULL, NULL));
    node->body = parse_body(p, "endset");
    next(p);
    return node;
}

// Parameters and body of a macro, or of what a call block's `caller` is.
static void parse_macro(parser *p, mics_node *node, const char *end)
{
    const bool outer = p->calls_caller;
    const int loops = p->loops;
    mics_node **last = &node->list;
    p->macros++;
    p->loops = 0;
    p->calls_caller = false;
    if (skip(p, '(')) {
        while (!skip(p, ')')) {
            *last = parse_name(p);
            (*last)->a = skip(p, '=') ? parse_expression(p) : NULL;
            last = &(*last)->next;
            if (!skip(p, ',') && p->token->kind != ')')
                fail(p, ", or )");
        }
    }
    if (*end == 'e') // of a call block the call stands in between
        node->body = parse_body(p, end);
    node->calls_caller = p->calls_caller;
    p->calls_caller = outer;
    p->loops = loops;
    p->macros--;
}

static mics_node *parse_call_block(parser *p)
{
    mics_node *node = new_node(p, MICS_NODE_CALL_BLOCK, NULL, NULL);
    const int loops = p->loops;
    node->b = new_node(p, MICS_NODE_MACRO, NULL, NULL);
    node->b->value = mics_string("caller", 6);
    parse_macro(p, node->b, "");
    node->a = parse_unary(p, false);
    if (node->a->kind != MICS_NODE_CALL)
        fail(p, "a call");
    p->loops = 0;
    node->body = NULL;
    node->b->body = parse_body(p, "endcall");
    p->loops = loops;
    next(p);
    return node;
}

static mics_node *parse_with(parser *p)
{
    mics_node *node = new_node(p, MICS_NODE_WITH, NULL, NULL), **last = &node->list;
    while (p->token->kind != 'b') {
        *last = new_node(p, MICS_NODE_SET, parse_target(p, false), NULL);
        expect(p, '=', "=");
        (*last)->b = parse_expression(p);
        last = &(*last)->next;
        if (!skip(p, ',') && p->token->kind != 'b')
            fail(p, ", or %}");
    }
    node->body = parse_body(p, "endwith");
    next(p);
    return node;
}

static mics_node *parse_block(parser *p, mics_node_kind kind, const char *end)
{
    mics_node *node = new_node(p, kind, NULL, NULL);
    const int loops = p->loops;
    if (kind == MICS_NODE_FILTER_BLOCK) {
        node->b = parse_function(p, new_node(p, MICS_NODE_CAPTURED, NULL, NULL), MICS_IS_FILTER);
        node->b->list = skip(p, '(') ? parse_list(p, ')') : NULL;
        node->b = parse_filters(p, node->b);
    } else {
        p->has_generation = true;
        p->loops = 0;
    }
    node->body = parse_body(p, end);
    p->loops = loops;
    next(p);
    return node;
}

static mics_node *parse_statement(parser *p)
{
    const mics_value name = p->token->value;
    if (skip_name(p, "if"))
        return parse_if(p);
    if (skip_name(p, "for"))
        return parse_for(p);
    if (skip_name(p, "set"))
        return parse_set(p);
    if (skip_name(p, "call"))
        return parse_call_block(p);
    if (skip_name(p, "with"))
        return parse_with(p);
    if (skip_name(p, "filter"))
        return parse_block(p, MICS_NODE_FILTER_BLOCK, "endfilter");
    if (skip_name(p, "generation"))
        return parse_block(p, MICS_NODE_GENERATION, "endgeneration");
    if (is_name(p->token, "macro")) {
        next(p);
        mics_node *node = new_node(p, MICS_NODE_MACRO, NULL, NULL);
        node->value = expect_name(p);
        parse_macro(p, node, "endmacro");
        next(p);
        return node;
    }
    const bool breaks = is_name(p->token, "break");
    if (breaks || is_name(p->token, "continue")) {
        if (p->loops == 0)
            fail(p, "a loop around break and continue");
        next(p);
        return new_node(p, breaks ? MICS_NODE_BREAK : MICS_NODE_CONTINUE, NULL, NULL);
    }
    if (p->token->kind != 'N')
        fail(p, "a statement's name");
    mics_work_raise(p->work, MICS_ERR_UNSUPPORTED,
                    "the statement '%.*s' is not known here; known are if, for, set, macro, call, "
                    "filter, generation, with, raw, break, continue",
                    (int)(name.bytes % 100), name.text);
}

// Statements up to one of `ends` ("else|endif"), which is then the next token; NULL: the template's
// end. From the end of the tag that opens the body.
static mics_node *parse_body(parser *p, const char *ends)
{
    mics_node *first = NULL, **last = &first;
    mics_work_enter(p->work);
    if (ends != NULL) {
        skip(p, ':');
        expect(p, 'b', "%}");
    }
    for (;;) {
        const mics_value value = p->token->value;
        if (skip(p, 'D')) {
            *last = parse_constant(p, value);
            (*last)->kind = MICS_NODE_DATA;
        } else if (skip(p, 'V')) {
            *last = new_node(p, MICS_NODE_OUTPUT, parse_tuple(p, true), NULL);
            expect(p, 'v', "}}");
        } else if (skip(p, 'B')) {
            char name[32];
            snprintf(name, sizeof name, "%.*s",
                     p->token->kind == 'N' ? (int)(p->token->value.bytes % 100) : 0,
                     p->token->kind == 'N' ? p->token->value.text : "");
            if (ends != NULL && mics_text_is_among(name, ends))
                break;
            *last = parse_statement(p);
            expect(p, 'b', "%}");
        } else if (ends == NULL && p->token->kind == '\0') {
            break;
        } else {
            fail(p, ends != NULL ? ends : "text");
        }
        while (*last != NULL)
            last = &(*last)->next;
    }
    p->work->depth--;
    return first;
}

mics_node *mics_template_parse(mics_work *work, const mics_token *tokens, bool *has_generation_out)
{
    parser p = {.work = work, .token = tokens};
    work->line = tokens->line;
    mics_node *body = parse_body(&p, NULL);
    *has_generation_out = p.has_generation;
    return body;
}

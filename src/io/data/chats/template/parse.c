// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tokens to a tree, by recursive descent in Jinja's order of precedence:
// if-else, or, and, not, comparisons, + -, ~, * / // %, **, signs, then what stands behind a value.
#include "base/text.h"
#include "io/data/chats/template/tree.h"
#include <stdio.h>
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
static mics_node *parse_body(parser *p, const char *ends);

// ---- tokens ----

static mics_node *new_node(parser *p, mics_node_kind kind, mics_node *a, mics_node *b)
{
    mics_node *node = mics_work_alloc(p->work, sizeof *node);
    *node = (mics_node){.kind = kind, .line = p->work->line, .a = a, .b = b};
    return node;
}

static bool skip(parser *p, char kind)
{
    if (p->token->kind != kind)
        return false;
    p->token++;
    p->work->line = p->token->line;
    return true;
}

static bool is_name(const mics_token *token, const char *name)
{
    return token->kind == 'N' && token->value.bytes == strlen(name) &&
           memcmp(token->value.text, name, token->value.bytes) == 0;
}

static bool skip_name(parser *p, const char *name)
{
    return is_name(p->token, name) && skip(p, 'N');
}

// Whether the next token is one of several operators.
static bool sees(const parser *p, const char *kinds)
{
    return p->token->kind != '\0' && strchr(kinds, p->token->kind) != NULL;
}

static __attribute__((noreturn)) void fail(parser *p, const char *wanted)
{
    static const char kinds[] = "VvBbDSIRenlgfp";
    static const char *const texts[] = {
        "{{",       "}}", "{%", "%}", "text", "a string", "a number",
        "a number", "==", "!=", "<=", ">=",   "//",       "**"};
    const mics_token *t = p->token;
    const char sign[] = {t->kind, '\0'};
    const char *seen = t->kind == '\0'  ? "the template's end"
                       : sees(p, kinds) ? texts[strchr(kinds, t->kind) - kinds]
                                        : sign;
    const mics_value shown = t->kind == 'N' ? t->value : MICS_STRING(seen, strlen(seen));
    mics_work_raise(p->work, MICS_ERR_FORMAT, "%s is expected here, and not %.*s", wanted,
                    MICS_SHOWN(shown));
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
    skip(p, '=');
    node->a = parse_expression(p);
    return node;
}

// Behind a bracket: a, b, name=c ) or a, b ] or a: b, c: d }, as `end` says.
static mics_node *parse_list(parser *p, char end)
{
    mics_node *first = NULL, **last = &first;
    bool named = false;
    while (!skip(p, end)) {
        *last = end == ')' ? parse_argument(p) : parse_expression(p);
        if (named && ((*last)->kind < MICS_NODE_KEYWORD || (*last)->kind > MICS_NODE_STARS))
            fail(p, "an argument without a name stands first; behind it ,");
        named = named || (*last)->kind == MICS_NODE_KEYWORD || (*last)->kind == MICS_NODE_STARS;
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

static mics_node *new_constant(parser *p, mics_value value)
{
    mics_node *node = new_node(p, MICS_NODE_CONST, NULL, NULL);
    node->value = value;
    return node;
}

static mics_node *parse_name(parser *p)
{
    const bool truth = skip_name(p, "true") || skip_name(p, "True");
    if (truth || skip_name(p, "false") || skip_name(p, "False"))
        return new_constant(p, MICS_BOOL(truth));
    if (skip_name(p, "none") || skip_name(p, "None"))
        return new_constant(p, MICS_NONE);
    if (p->macros > 0 && (is_name(p->token, "varargs") || is_name(p->token, "kwargs")))
        mics_work_raise(p->work, MICS_ERR_UNSUPPORTED,
                        "varargs and kwargs of a macro are not known here; name its parameters");
    p->calls_caller = p->calls_caller || is_name(p->token, "caller");
    mics_node *node = new_node(p, MICS_NODE_NAME, NULL, NULL);
    node->value = expect_name(p);
    return node;
}

// A number, or strings beside each other, which are one.
static mics_node *parse_constant(parser *p)
{
    const size_t mark = p->work->out->bytes;
    mics_node *node = new_constant(p, p->token->value);
    if (skip(p, 'I') || skip(p, 'R'))
        return node;
    for (mics_value part = p->token->value; skip(p, 'S'); part = p->token->value)
        mics_work_write(p->work, part.text, part.bytes);
    node->value = mics_work_cut(p->work, mark);
    return node;
}

static mics_node *parse_primary(parser *p)
{
    if (p->token->kind == 'N')
        return parse_name(p);
    if (sees(p, "SIR"))
        return parse_constant(p);
    if (skip(p, '(')) {
        mics_node *node = skip(p, ')') ? NULL : parse_tuple(p, true);
        if (node == NULL)
            return new_node(p, MICS_NODE_TUPLE, NULL, NULL);
        expect(p, ')', ")");
        return node;
    }
    mics_node *node = new_node(p, MICS_NODE_LIST, NULL, NULL);
    if (skip(p, '[')) {
        node->list = parse_list(p, ']');
    } else {
        expect(p, '{', "a value");
        node->kind = MICS_NODE_DICT;
        node->list = parse_list(p, '}');
    }
    return node;
}

// Behind "[": an index or a slice.
static mics_node *parse_subscript(parser *p, mics_node *of)
{
    mics_node *item = new_node(p, MICS_NODE_ITEM, of, NULL), *parts[3] = {NULL};
    int part = 0;
    for (; part < 3; part++) {
        if (!sees(p, ":]"))
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
            node->b = index ? new_constant(p, value) : NULL;
            node->value = index ? value : expect_name(p);
        } else {
            return node;
        }
    }
}

static mics_node *parse_function(parser *p, mics_node *of, mics_node_kind kind)
{
    const int found = kind == MICS_NODE_FILTER ? MICS_IS_FILTER : MICS_IS_TEST;
    mics_node *node = new_node(p, kind, of, NULL);
    node->value = expect_name(p);
    node->function = p->branches > 0 ? mics_function_find(found, node->value)
                                     : mics_function_need(p->work, found, node->value);
    node->list = skip(p, '(') ? parse_list(p, ')') : NULL;
    return node;
}

static mics_node *parse_filters(parser *p, mics_node *node)
{
    while (skip(p, '|'))
        node = parse_function(p, node, MICS_NODE_FILTER);
    return node;
}

static mics_node *parse_test(parser *p, mics_node *of)
{
    static const char *const ends[] = {"else", "or", "and", "if", "is", "in", "not"};
    const bool negated = skip_name(p, "not");
    mics_node *node = parse_function(p, of, MICS_NODE_TEST);
    bool argument = sees(p, "NSIR[{") && p->token[-1].kind != ')';
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        argument = argument && !is_name(p->token, ends[i]);
    if (argument)
        node->list = parse_postfix(p, parse_primary(p));
    return negated ? new_node(p, MICS_NODE_NOT, node, NULL) : node;
}

static mics_node *parse_unary(parser *p, bool filters)
{
    const char sign = p->token->kind;
    mics_node *node = NULL;
    mics_work_enter(p->work);
    if (skip(p, '-') || skip(p, '+')) {
        node = new_node(p, MICS_NODE_SIGN, parse_unary(p, false), NULL);
        node->sign = sign;
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    while (filters && (sees(p, "|(") || is_name(p->token, "is"))) {
        if (p->token->kind == '(')
            node = parse_postfix(p, node);
        else
            node = skip_name(p, "is") ? parse_test(p, node) : parse_filters(p, node);
    }
    p->work->depth--;
    return node;
}

// The operator that is next, if it is of a level of precedence; else '\0'.
static char operator_at(const parser *p, int level)
{
    static const char *const signs[] = {"O", "A", "", "en<>lgio", "+-", "~", "*/f%", "p"};
    static const char *const names[] = {"or", "and", "in", "not"};
    char sign = p->token->kind;
    for (int i = 0; i < 4; i++)
        sign = is_name(p->token, names[i]) ? "OAio"[i] : sign;
    if (sign == 'o' && !is_name(p->token + 1, "in"))
        return '\0';
    return sign != '\0' && strchr(signs[level], sign) != NULL ? sign : '\0';
}

// Operators of a level and those that bind more tightly.
static mics_node *parse_level(parser *p, int level)
{
    enum { NOT = 2, COMPARISONS = 3, UNARY = 8 };
    if (level == UNARY)
        return parse_unary(p, true);
    if (level == NOT && skip_name(p, "not")) {
        mics_work_enter(p->work);
        mics_node *node = new_node(p, MICS_NODE_NOT, parse_level(p, NOT), NULL);
        p->work->depth--;
        return node;
    }
    mics_node *node = parse_level(p, level + 1), *const first = node;
    for (char sign = operator_at(p, level); sign != '\0'; sign = operator_at(p, level)) {
        skip(p, sign == 'o' ? 'N' : '\0');
        skip(p, p->token->kind);
        const bool chained = level == COMPARISONS && node != first;
        node = new_node(p, chained ? MICS_NODE_CHAIN : MICS_NODE_BINARY, node, NULL);
        node->b = parse_level(p, level + 1);
        node->sign = sign;
    }
    return node;
}

static mics_node *parse_expression(parser *p)
{
    mics_work_enter(p->work);
    mics_node *node = parse_level(p, 0);
    while (skip_name(p, "if")) {
        node = new_node(p, MICS_NODE_CHOICE, parse_level(p, 0), node);
        node->c = skip_name(p, "else") ? parse_expression(p) : NULL;
    }
    p->work->depth--;
    return node;
}

// One expression, or several with commas as a tuple; `choices`: they may be a if b else c.
static mics_node *parse_tuple(parser *p, bool choices)
{
    mics_node *first = choices ? parse_expression(p) : parse_level(p, 0), **last = &first->next;
    if (p->token->kind != ',')
        return first;
    while (skip(p, ',') && !sees(p, "vb)")) {
        *last = choices ? parse_expression(p) : parse_level(p, 0);
        last = &(*last)->next;
    }
    mics_node *tuple = new_node(p, MICS_NODE_TUPLE, NULL, NULL);
    tuple->list = first;
    return tuple;
}

// ---- statements ----

static mics_node *parse_variable(parser *p)
{
    mics_node *node = parse_name(p);
    if (node->kind != MICS_NODE_NAME)
        fail(p, "a name to set, which is none of Jinja's own,");
    return node;
}

// A name, a name's attribute, or several with commas.
static mics_node *parse_target(parser *p, bool attributes)
{
    mics_node *first = NULL, **last = &first;
    bool many = false;
    do {
        if (many && (p->token->kind == '=' || is_name(p->token, "in")))
            break;
        const bool bracket = skip(p, '(');
        *last = bracket ? parse_target(p, attributes) : parse_variable(p);
        if (bracket)
            expect(p, ')', ")");
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
    mics_node *node = new_node(p, MICS_NODE_IF, NULL, NULL);
    mics_work_enter(p->work);
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
    mics_node *node = new_node(p, MICS_NODE_FOR, parse_target(p, false), NULL);
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
    skip(p, 'N');
    return node;
}

// A body that is run elsewhere: no loop is around it.
static mics_node *parse_apart(parser *p, const char *end)
{
    const int loops = p->loops;
    p->loops = 0;
    mics_node *body = parse_body(p, end);
    p->loops = loops;
    skip(p, 'N');
    return body;
}

static mics_node *parse_macro(parser *p, bool call)
{
    mics_node *node = new_node(p, MICS_NODE_MACRO, NULL, NULL), **last = &node->list;
    mics_node *block = call ? new_node(p, MICS_NODE_CALL_BLOCK, NULL, node) : node;
    const bool outer = p->calls_caller;
    node->value = call ? MICS_LITERAL("caller") : expect_name(p);
    p->macros++;
    const bool listed = skip(p, '(');
    if (!call && !listed)
        fail(p, "(");
    while (listed && !skip(p, ')')) {
        *last = parse_variable(p);
        (*last)->a = skip(p, '=') ? parse_expression(p) : NULL;
        last = &(*last)->next;
        if (!skip(p, ',') && p->token->kind != ')')
            fail(p, ", or )");
    }
    if (call) {
        block->a = parse_unary(p, false);
        if (block->a->kind != MICS_NODE_CALL)
            fail(p, "a call");
    }
    p->calls_caller = call && outer;
    node->body = parse_apart(p, call ? "endcall" : "endmacro");
    node->calls_caller = !call && p->calls_caller;
    p->calls_caller = outer || (call && p->calls_caller);
    p->macros--;
    return block;
}

static mics_node *parse_filter_block(parser *p)
{
    mics_node *node = new_node(p, MICS_NODE_FILTER_BLOCK, NULL, NULL);
    node->b = new_node(p, MICS_NODE_CAPTURED, NULL, NULL);
    node->b = parse_filters(p, parse_function(p, node->b, MICS_NODE_FILTER));
    node->body = parse_body(p, "endfilter");
    skip(p, 'N');
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
    if (skip_name(p, "filter"))
        return parse_filter_block(p);
    if (skip_name(p, "macro") || is_name(p->token, "call"))
        return parse_macro(p, skip_name(p, "call"));
    if (skip_name(p, "generation")) {
        mics_node *node = new_node(p, MICS_NODE_GENERATION, NULL, NULL);
        p->has_generation = true;
        node->body = parse_apart(p, "endgeneration");
        return node;
    }
    const bool breaks = is_name(p->token, "break");
    if (breaks || is_name(p->token, "continue")) {
        if (p->loops == 0)
            fail(p, "a loop around break and continue");
        skip(p, 'N');
        return new_node(p, breaks ? MICS_NODE_BREAK : MICS_NODE_CONTINUE, NULL, NULL);
    }
    if (p->token->kind != 'N')
        fail(p, "a statement's name");
    mics_work_raise(p->work, MICS_ERR_UNSUPPORTED,
                    "the statement '%.*s' is not known here; known are if, for, set, macro, call, "
                    "filter, generation, raw, break, continue",
                    MICS_SHOWN(name));
}

// Statements up to one of `ends` ("else|endif"), which is then the next token, or, if NULL, to the
// template's end. From the end of the tag that opens the body.
static mics_node *parse_body(parser *p, const char *ends)
{
    mics_node *first = NULL, **last = &first;
    mics_work_enter(p->work);
    skip(p, ':');
    if (ends != NULL)
        expect(p, 'b', "%}");
    for (;;) {
        const mics_value value = p->token->value;
        if (skip(p, 'D')) {
            *last = new_constant(p, value);
            (*last)->kind = MICS_NODE_DATA;
        } else if (skip(p, 'V')) {
            *last = new_node(p, MICS_NODE_OUTPUT, parse_tuple(p, true), NULL);
            expect(p, 'v', "}}");
        } else if (skip(p, 'B')) {
            char name[32] = "";
            if (p->token->kind == 'N')
                snprintf(name, sizeof name, "%.*s", MICS_SHOWN(p->token->value));
            if (ends != NULL && mics_text_is_among(name, ends))
                break;
            *last = parse_statement(p);
            expect(p, 'b', "%}");
        } else if (ends == NULL && p->token->kind == '\0') {
            break;
        } else {
            fail(p, ends != NULL ? ends : "text");
        }
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

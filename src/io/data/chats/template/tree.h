// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A template as tokens, and as a tree of statements and expressions. All lives in a work's arena.
#pragma once

#include "io/data/chats/template/functions.h"

// Kinds of tokens: D data, V v begin and end of {{ }}, B b of {% %}, N name, S string, I integer, R
// real, '\0' the end. An operator is its own character, but e == n != l <= g >= f // p **.
typedef struct mics_token {
    char kind;
    int32_t line;
    mics_value value; // of D, N, S, I, R
} mics_token;

typedef enum mics_node_kind {
    // expressions
    MICS_NODE_CONST,     // value
    MICS_NODE_NAME,      // value
    MICS_NODE_CAPTURED,  // the text of the block that a filter stands at
    MICS_NODE_TUPLE,     // list
    MICS_NODE_LIST,      // list
    MICS_NODE_DICT,      // list: in turn keys and values
    MICS_NODE_ATTRIBUTE, // a . value
    MICS_NODE_ITEM,      // a [ b ]
    MICS_NODE_SLICE,     // a : b : c, each may be NULL
    MICS_NODE_CALL,      // a ( list ), whose nodes may be the next three
    MICS_NODE_KEYWORD,   // value = a
    MICS_NODE_STAR,      // * a
    MICS_NODE_STARS,     // ** a
    MICS_NODE_FILTER,    // a | function ( list )
    MICS_NODE_TEST,      // a is function ( list )
    MICS_NODE_NOT,       // a
    MICS_NODE_SIGN,      // sign a
    MICS_NODE_CHOICE,    // b if a else c, which may be NULL
    MICS_NODE_BINARY,    // a sign b, of which O is or, A and, i in, o not in
    MICS_NODE_CHAIN,     // a comparison whose left operand is the right one of a, sign, b
    // statements
    MICS_NODE_DATA,         // value
    MICS_NODE_OUTPUT,       // a
    MICS_NODE_IF,           // a, body, list: else
    MICS_NODE_FOR,          // a: target, b: items, c: filter or NULL, body, list: else
    MICS_NODE_SET,          // a: target, b
    MICS_NODE_SET_BLOCK,    // a: target, b: filters around the captured text, body
    MICS_NODE_MACRO,        // value: name; list: parameters, of which a is the default; body
    MICS_NODE_CALL_BLOCK,   // a: call, b: macro `caller`
    MICS_NODE_FILTER_BLOCK, // b, body
    MICS_NODE_GENERATION,   // body
    MICS_NODE_BREAK,
    MICS_NODE_CONTINUE,
} mics_node_kind;

typedef struct mics_node {
    mics_node_kind kind;
    int32_t line;
    char sign;
    bool calls_caller; // a macro
    mics_value value;
    const mics_function *function;
    struct mics_node *a, *b, *c, *list, *body, *next;
} mics_node;

/* The tokens of a template, which is changed and must stay; the last is '\0'. */
const mics_token *mics_template_scan(mics_work *work, char *text, size_t bytes);

/* Its statements; *has_generation_out: whether a generation block is among them. */
mics_node *mics_template_parse(mics_work *work, const mics_token *tokens, bool *has_generation_out);

/* Runs statements: `variables` is a dict; what generation blocks write is added to `spans`, unless
 * NULL. */
void mics_template_run(mics_work *work, const mics_node *body, mics_value variables,
                       mics_template_spans *spans);

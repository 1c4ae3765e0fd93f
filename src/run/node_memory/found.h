// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a run that resumes has found of the copy in node memory that it may go on from.
#pragma once

#include "io/checkpoint/node.h"
#include "node_memory.h"

// The copy that the run may go on from, and who has what of it.
struct run_found_copy {
    mics_node_key key;
    mics_node_copies copies; // that this machine has, of any step
    char *folder;            // stands for it
    uint8_t *places; // [process][file]: 1 + which of its copies has the file, undamaged; 0: none
    int32_t processes;
    int32_t group; // processes of a node
};

// Where a process has a file among its copies; 0: nowhere.
static inline uint8_t *run_found_at(const run_found_copy *found, int32_t process, int32_t file)
{
    return &found->places[(size_t)process * (size_t)found->key.files + (size_t)file];
}

// The same of any process of a node.
static inline int32_t run_found_place(const run_found_copy *found, int32_t node, int32_t file)
{
    int32_t place = 0;
    for (int32_t p = node * found->group; place == 0 && p < (node + 1) * found->group; p++)
        place = *run_found_at(found, p, file);
    return place;
}

// The folder of such a place.
static inline const char *run_found_folder(const run_found_copy *found, int32_t place)
{
    return found->copies.list[place - 1].folder;
}

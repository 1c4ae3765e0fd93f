// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a run that resumes has found of the copy in node memory that it may go on from.
#ifndef MICS_RUN_NODE_MEMORY_FOUND_H
#define MICS_RUN_NODE_MEMORY_FOUND_H

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

// Where the processes of a node have a file among their copies; 0: nowhere.
static inline int32_t run_found_place(const run_found_copy *found, int32_t node, int32_t file)
{
    for (int32_t p = node * found->group; p < (node + 1) * found->group; p++) {
        const uint8_t place = found->places[(size_t)p * (size_t)found->key.files + (size_t)file];
        if (place != 0)
            return place;
    }
    return 0;
}

#endif

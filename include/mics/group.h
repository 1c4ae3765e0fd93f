// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A group of ranks, as one rank sees it. Every group of the family is an arithmetic progression: a
// nested range (stride 1) or a column of the mesh.
#ifndef MICS_GROUP_H
#define MICS_GROUP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mics_group {
    int32_t first;  // world rank of member 0
    int32_t stride; // world ranks between neighbours; >= 1
    int32_t size;   // members; >= 1
    int32_t index;  // which member this rank is
} mics_group;

/* World rank of a member. Needs 0 <= member < group.size. */
static inline int32_t mics_group_rank(mics_group group, int32_t member)
{
    return group.first + member * group.stride;
}

#ifdef __cplusplus
}
#endif
#endif

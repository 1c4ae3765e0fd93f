// SPDX-FileCopyrightText: The mics authors
// Steps that make a unit's parameters readable.
#pragma once

#include "schedule/builder.h"

// Units whose parameters' values the pass reads, and whose gradients it writes.
static inline const unit_set *units_read(const builder *b, pass p)
{
    return &b->facts[p.unit].reads[p.backward];
}

static inline const unit_set *units_written(const builder *b, pass p)
{
    static const unit_set none = {.count = 0};
    return p.backward ? &b->facts[p.unit].writes : &none;
}

/* Lists the gathers of all units that a pass reads. A unit whose update is deferred is updated
 * first, if its updated parameters are sent to other ranks. */
mics_status list_gathers(builder *b, pass p);

/* Whether the gathers of a pass begin with updates, which are not listed yet. */
bool sends_updated(const builder *b, pass p);

mics_status list_replica_gathers(builder *b, pass p);

/* Directly before a pass: deferred updates of all that it touches. */
mics_status list_late_updates(builder *b, pass p);

// SPDX-FileCopyrightText: The mics authors
// The accumulation boundary: the steps that a list has once a training step.
#pragma once

#include "schedule/builder.h"

/* Lists the parameter sync of what was updated last, once a list, before the unit is first read;
 * small units in one message. */
mics_status list_param_sync(builder *b, int32_t unit);

/* Whether the list that is made has the updates of the step before at its head. */
bool defers_updates(const builder *b);

/* Of such a list: a unit's replica gather, with what shares its message, and its update behind its
 * own. Once a list; of other lists nothing. */
mics_status list_replica_gather(builder *b, int32_t unit);
mics_status list_deferred_update(builder *b, int32_t unit);

/* Whether updates are deferred, and what sends the updated units goes between nodes. */
bool sends_far(const builder *b);

/* Whether others wait for a unit's update: its gather, or its parameter sync. */
bool is_sent_when_updated(const builder *b, int32_t unit);

/* Lists the second hop of a unit whose gradient is whole inside its gradient group; or notes it, to
 * share a message with others. */
mics_status list_second_hop(builder *b, int32_t unit);

/* Lists what is left of it, then norm, agreement, and updates where they are not deferred. */
mics_status list_boundary(builder *b);

mics_status list_agreement(builder *b, int32_t *agree_out);

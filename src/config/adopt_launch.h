// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys of a launcher.
#pragma once

#include "config/adopt.h"

/* FSDP's options, accelerate's file, torchtitan's degrees. */
extern const adopted_keys mics_adopt_launch;

// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the plugin for GPUs exports, and libmics calls, of devices. Each side is compiled with these
// declarations; plugin.c takes the addresses by name. Other modules have their own
// (mics_plugin_symbol).
#pragma once

#include "mics/core/device.h"

/* The plugin's build: version, and a number made of the headers that both sides share. */
extern const char mics_plugin_build[];

/* Fills devices, driver, runtime and why_not. Opens no device. */
void mics_plugin_find(mics_cuda_findings *findings);

/* As mics_cuda_device_info, mics_cuda_link and mics_device_cuda_open. */
mics_status mics_plugin_device_info(int32_t index, mics_device_info *info_out);
mics_cuda_link_kind mics_plugin_link(int32_t a, int32_t b);
mics_status mics_plugin_device_open(int32_t index, int32_t events, mics_device **device_out);

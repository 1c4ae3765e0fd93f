// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Machines as the software of 2021 and 2022 used them, as cluster files. What they change of the catalogue's
// machines follows from how that software worked, and from no curve that is predicted with it:
//
// attention_efficiency  Scores were written to memory and read again by every kernel between the two products: six
//   times forward (product, mask and softmax in and out, dropout in and out, product). For head dimension 128, 2048
//   tokens: 8.4 MB x 6 / 1.7 TB/s = 30 us, and both products in full (causal
//   masks saved nothing) 2.1 GFLOP at half of the peak = 14 us. The catalogue counts the causal half, 1.07 GFLOP: in 44 us
//   24 TFLOP/s, 0.08 of the A100's peak. The share is the same for other lengths, as both terms grow with their
//   square. V100: 8.4 MB x 6 / 0.77 TB/s + 2.1 GFLOP / 62 TFLOP/s = 99 us, 0.09 of its peak.
// rings 1  All rings leave a node through one of its network cards. NCCL can do better; ZeRO-3's published curves
//   are flat where three gathers and a reduction pass one card. So for ZeRO-3's long ends this choice, one card or all,
//   is read off the curves; no figure is.
#pragma once

#define SELENE_2021                                                                                \
    "{\"base\": \"selene\", \"name\": \"selene-2021\", "                                           \
    "\"accelerator\": {\"attention_efficiency\": 0.08}}"
#define SELENE_2021_ONE_CARD                                                                       \
    "{\"base\": \"selene\", \"name\": \"selene-2021-one-card\", \"rings\": 1, "                    \
    "\"accelerator\": {\"attention_efficiency\": 0.08}}"
#define P3DN_2022                                                                                  \
    "{\"base\": \"p3dn.24xlarge\", \"name\": \"p3dn-2022\", "                                      \
    "\"accelerator\": {\"attention_efficiency\": 0.09}}"
#define P4D_2022                                                                                   \
    "{\"base\": \"p4d.24xlarge\", \"name\": \"p4d-2022\", "                                        \
    "\"accelerator\": {\"attention_efficiency\": 0.08}}"

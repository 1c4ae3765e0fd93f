// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics_op_kernels.decode of the ops that divide their work in generation. It computes in fp32, from
// weights of fp32 or bf16, so the tables of fp32 alone have it; each is compiled once an
// instruction set.
#pragma once

#include "ops/common/kernels_isa.h"

void MICS_ISA_OP(attention_decode)(const mics_op_call *call);
void MICS_ISA_OP(embedding_decode)(const mics_op_call *call);
void MICS_ISA_OP(experts_in_decode)(const mics_op_call *call);
void MICS_ISA_OP(experts_out_decode)(const mics_op_call *call);
void MICS_ISA_OP(linear_decode)(const mics_op_call *call);
void MICS_ISA_OP(lm_head_decode)(const mics_op_call *call);
void MICS_ISA_OP(lora_decode)(const mics_op_call *call);
void MICS_ISA_OP(router_decode)(const mics_op_call *call);

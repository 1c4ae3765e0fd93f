// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Machines of the catalogue: what joins the accelerators of a node, and the nodes. Units are in the
// keys; every figure names its source.
//
// Note on links. A line rate is what is sold: inside a node one way, half the duplex figure; between
// nodes all cards together. `rank_gbit_per_s` are the cards that one accelerator uses by itself. The
// efficiency is the share of the line rate that NCCL's rings reach with long messages; half_kib comes
// from how measured bus bandwidth grows with size: what a phase takes beyond latency and bytes at the
// full rate, times that rate. "nccl-tests" are public runs, collected in November 2026 from
// stas00/ml-engineering and awslabs/awsome-distributed-training.
#include "plan/cost/catalogue.h"

// ---- sources ----

static const catalogue_source aws = {"AWS instance pages (P3, P4, P5, P6), as listed", "2026-11",
                                     false};
static const catalogue_source aws_price = {"AWS on demand, us-east-1", "2025-12", false};
static const catalogue_source gcp = {"Google Cloud, GPU machine types", "2026-11", false};
static const catalogue_source gcp_price = {"Google Cloud on demand (SkyPilot catalogue)", "2025-12",
                                           false};
static const catalogue_source azure = {"Microsoft Learn, ND-series sizes", "2026-11", false};
static const catalogue_source azure_price = {"Azure pay as you go (SkyPilot catalogue)", "2025-12",
                                             false};
static const catalogue_source gcp_price_assumed = {
    "Google Cloud on demand: from memory, not looked up", "2025-12", true};
static const catalogue_source azure_price_assumed = {
    "Azure pay as you go: from memory, not looked up", "2025-12", true};
static const catalogue_source dgx_a100 = {"NVIDIA DGX A100 data sheet and Narayanan et al. (SC21, "
                                          "arXiv:2104.04473): eight 200 Gb/s links a node "
                                          "for training",
                                          "2021-08", false};
static const catalogue_source dgx_h100 = {"NVIDIA DGX H100 data sheet: eight 400 Gb/s links a node",
                                          "2023-03", false};
static const catalogue_source v100_ring = {"NCCL 2.11, graph/topo.h: 20 of 25 GB/s a link of V100",
                                           "2021-09", false};
static const catalogue_source a100_ring = {
    "nccl-tests: all-reduce of 16 GiB on 8 A100: 235 of 300 GB/s", "2026-11", false};
static const catalogue_source h100_ring = {
    "nccl-tests: all-gather of 16 GiB on 8 H200: 361 of 450 GB/s; sums "
    "in the switch (all-reduce 482) are left out",
    "2026-11", false};
static const catalogue_source b200_ring = {
    "the share that H200 reaches; nccl-tests: all-reduce with sums in the switch 846 of 900 GB/s",
    "2026-11", true};
static const catalogue_source nvlink_latency = {
    "NCCL 2.11, graph/tuning.cc: a ring's step over NVLink, simple protocol", "2021-09", false};
static const catalogue_source v100_half = {"the A100's time: estimated", "2026-11", true};
static const catalogue_source a100_half = {"from nccl-tests: all-reduce on 8 A100, 16 MiB to 1 GiB",
                                           "2026-11", true};
static const catalogue_source h100_half = {"from nccl-tests: all-reduce on 8 H200, 64 MiB to 1 GiB",
                                           "2026-11", true};
static const catalogue_source b200_half = {"from nccl-tests: all-reduce on 8 B200, 64 MiB to 1 GiB",
                                           "2026-11", true};
static const catalogue_source nvlink_slowdown = {
    "Calculon (SC23), systems/a100_80g.json: NVLink traffic takes 15 % of the processor; measured "
    "slowdown of overlapped computation 18.9 % on average (arXiv:2507.03114)",
    "2023-11", true};
static const catalogue_source network_slowdown = {
    "Calculon (SC23), systems/a100_80g.json: the network takes 2 % of the processor", "2023-11",
    true};
static const catalogue_source efa1 = {
    "about 340 of 400 Gb/s on p4d (awslabs/awsome-distributed-training)", "2026-11", false};
static const catalogue_source efa1_p3dn = {"EFA's share on p4d", "2026-11", true};
static const catalogue_source efa2 = {"EFA's share on p4d; two p5 are not limited by it", "2026-11",
                                      true};
static const catalogue_source efa1_latency = {
    "from nccl-tests: all-reduce of 8 B on two p4de takes 161 us; less 28 steps inside the nodes, "
    "halved",
    "2026-11", true};
static const catalogue_source efa1_half = {"from nccl-tests: all-reduce on two p4de, 4 to 256 MiB",
                                           "2026-11", true};
static const catalogue_source efa2_latency = {"from nccl-tests: all-reduce of 8 B on two p5 takes "
                                              "70 us; less 28 steps inside the nodes, halved",
                                              "2026-11", true};
static const catalogue_source efa2_half = {"from nccl-tests: all-reduce on two p5, 16 to 256 MiB",
                                           "2026-11", true};
static const catalogue_source efa3_latency = {"from nccl-tests: all-reduce of 8 B on two p6-b200 "
                                              "takes 51 us (dstackai/dstack 3961); likewise",
                                              "2026-06", true};
static const catalogue_source infiniband = {
    "Calculon (SC23), systems/a100_80g.json: 0.9 of the line rate", "2023-11", false};
static const catalogue_source infiniband_latency = {
    "NCCL 2.11, graph/tuning.cc: a ring's step over the network, simple protocol", "2021-09",
    false};
static const catalogue_source infiniband_half = {"a third of EFA's on p4d: estimated", "2026-11",
                                                 true};
static const catalogue_source gvnic = {"TCP through gVNIC: estimated", "2026-11", true};
static const catalogue_source fastrak = {"GPUDirect-TCPX: estimated between TCP and EFA", "2026-11",
                                         true};
static const catalogue_source nccl_rings = {
    "NCCL runs rings through every network card: as many as accelerators have cards to themselves",
    "2021-09", true};
static const catalogue_source nccl_start = {"NCCL 2.11, graph/tuning.cc: base latency of a ring",
                                            "2021-09", false};

// ---- what machines share ----

#define NCCL(rings)                                                                                \
    {"pipelined", 1, NULL, &nccl_rings}, {"rings", rings, NULL, &nccl_rings},                      \
    {                                                                                              \
        "collective_us", 8.4, NULL, &nccl_start                                                    \
    }

#define NODE(ranks, gb, sheet, share, chip, half)                                                  \
    {"tiers.node.fan_out", ranks, NULL, sheet}, {"tiers.node.gb_per_s", gb, NULL, sheet},          \
        {"tiers.node.efficiency", share, NULL, &chip##_ring},                                      \
        {"tiers.node.latency_us", 3.4, NULL, &nvlink_latency},                                     \
        {"tiers.node.half_kib", half, NULL, &chip##_half},                                         \
    {                                                                                              \
        "tiers.node.slowdown", 0.15, NULL, &nvlink_slowdown                                        \
    }

#define NODE_V100(sheet) NODE(8, 150, sheet, 0.80, v100, 4096)
#define NODE_A100(ranks, sheet) NODE(ranks, 300, sheet, 0.78, a100, 8192)
#define NODE_H100(sheet) NODE(8, 450, sheet, 0.80, h100, 7168)
#define NODE_B200(sheet) NODE(8, 900, sheet, 0.80, b200, 24576)

#define NETWORK(gbit, card, sheet)                                                                 \
    {"tiers.network.gbit_per_s", gbit, NULL, sheet},                                               \
        {"tiers.network.rank_gbit_per_s", card, NULL, sheet},                                      \
    {                                                                                              \
        "tiers.network.slowdown", 0.02, NULL, &network_slowdown                                    \
    }

#define EFA1(share_source)                                                                         \
    {"tiers.network.efficiency", 0.85, NULL, share_source},                                        \
        {"tiers.network.latency_us", 65, NULL, &efa1_latency},                                     \
    {                                                                                              \
        "tiers.network.half_kib", 3072, NULL, &efa1_half                                           \
    }
#define EFA2(us, us_source)                                                                        \
    {"tiers.network.efficiency", 0.85, NULL, &efa2},                                               \
        {"tiers.network.latency_us", us, NULL, us_source},                                         \
    {                                                                                              \
        "tiers.network.half_kib", 5632, NULL, &efa2_half                                           \
    }
#define INFINIBAND                                                                                 \
    {"tiers.network.efficiency", 0.9, NULL, &infiniband},                                          \
        {"tiers.network.latency_us", 9.6, NULL, &infiniband_latency},                              \
    {                                                                                              \
        "tiers.network.half_kib", 1024, NULL, &infiniband_half                                     \
    }
#define ESTIMATED(share, us, half, source)                                                         \
    {"tiers.network.efficiency", share, NULL, source},                                             \
        {"tiers.network.latency_us", us, NULL, source},                                            \
    {                                                                                              \
        "tiers.network.half_kib", half, NULL, source                                               \
    }
#define PRICE(usd, source)                                                                         \
    {                                                                                              \
        "usd_per_node_hour", usd, NULL, source                                                     \
    }

// ---- machines ----

static const catalogue_machine machines[] = {
    {{"p3dn.24xlarge"},
     "V100-SXM2-32GB",
     {NODE_V100(&aws), NETWORK(100, 100, &aws), EFA1(&efa1_p3dn), NCCL(1),
      PRICE(31.21, &aws_price)}},
    {{"p4d.24xlarge"},
     "A100-SXM4-40GB",
     {NODE_A100(8, &aws), NETWORK(400, 100, &aws), EFA1(&efa1), NCCL(4), PRICE(21.96, &aws_price)}},
    {{"p4de.24xlarge"},
     "A100-SXM4-80GB",
     {NODE_A100(8, &aws), NETWORK(400, 100, &aws), EFA1(&efa1), NCCL(4), PRICE(27.45, &aws_price)}},
    {{"p5.48xlarge"},
     "H100-SXM5-80GB",
     {NODE_H100(&aws), NETWORK(3200, 400, &aws), EFA2(21, &efa2_latency), NCCL(8),
      PRICE(55.04, &aws_price)}},
    {{"p5en.48xlarge"},
     "H200-SXM5-141GB",
     {NODE_H100(&aws), NETWORK(3200, 400, &aws), EFA2(21, &efa2_latency), NCCL(8),
      PRICE(63.30, &aws_price)}},
    {{"p6-b200.48xlarge"},
     "B200-SXM6-180GB",
     {NODE_B200(&aws), NETWORK(3200, 400, &aws), EFA2(12, &efa3_latency), NCCL(8),
      PRICE(113.93, &aws_price)}},
    {{"a2-highgpu-8g"},
     "A100-SXM4-40GB",
     {NODE_A100(8, &gcp), NETWORK(100, 100, &gcp), ESTIMATED(0.8, 50, 2048, &gvnic), NCCL(1),
      PRICE(29.39, &gcp_price)}},
    {{"a2-megagpu-16g"},
     "A100-SXM4-40GB",
     {NODE_A100(16, &gcp), NETWORK(100, 100, &gcp), ESTIMATED(0.8, 50, 2048, &gvnic), NCCL(1),
      PRICE(55.74, &gcp_price_assumed)}},
    {{"a3-highgpu-8g"},
     "H100-SXM5-80GB",
     {NODE_H100(&gcp), NETWORK(800, 200, &gcp), ESTIMATED(0.8, 40, 2048, &fastrak), NCCL(4),
      PRICE(87.83, &gcp_price)}},
    {{"a3-megagpu-8g"},
     "H100-SXM5-80GB",
     {NODE_H100(&gcp), NETWORK(1600, 200, &gcp), ESTIMATED(0.8, 40, 2048, &fastrak), NCCL(8)}},
    {{"a3-ultragpu-8g"},
     "H200-SXM5-141GB",
     {NODE_H100(&gcp), NETWORK(3200, 400, &gcp), INFINIBAND, NCCL(8)}},
    {{"Standard_ND96asr_v4", "ND96asr_v4", "nd-a100-v4"},
     "A100-SXM4-40GB",
     {NODE_A100(8, &azure), NETWORK(1600, 200, &azure), INFINIBAND, NCCL(8),
      PRICE(27.20, &azure_price)}},
    {{"Standard_ND96amsr_A100_v4", "ND96amsr_A100_v4", "ndm-a100-v4"},
     "A100-SXM4-80GB",
     {NODE_A100(8, &azure), NETWORK(1600, 200, &azure), INFINIBAND, NCCL(8),
      PRICE(32.77, &azure_price_assumed)}},
    {{"Standard_ND96isr_H100_v5", "ND96isr_H100_v5", "nd-h100-v5"},
     "H100-SXM5-80GB",
     {NODE_H100(&azure), NETWORK(3200, 400, &azure), INFINIBAND, NCCL(8),
      PRICE(98.32, &azure_price)}},
    {{"Standard_ND96isr_H200_v5", "ND96isr_H200_v5", "nd-h200-v5"},
     "H200-SXM5-141GB",
     {NODE_H100(&azure), NETWORK(3200, 400, &azure), INFINIBAND, NCCL(8)}},
    {{"dgx-a100-80gb", "dgx-a100", "selene"},
     "A100-SXM4-80GB",
     {NODE_A100(8, &dgx_a100), NETWORK(1600, 200, &dgx_a100), INFINIBAND, NCCL(8)}},
    {{"dgx-h100"},
     "H100-SXM5-80GB",
     {NODE_H100(&dgx_h100), NETWORK(3200, 400, &dgx_h100), INFINIBAND, NCCL(8)}},
};

const catalogue_machine *catalogue_machines(int32_t *count_out)
{
    *count_out = (int32_t)(sizeof machines / sizeof *machines);
    return machines;
}

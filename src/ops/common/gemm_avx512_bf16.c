// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs of bf16 numbers by AVX512_BF16's dot products of pairs (vdpbf16ps), in the manner of Goto
// and van de Geijn (2008): blocks of B, and of A where it is transposed, are packed; then tiles of C
// are computed from them. It is for CPUs without AMX: there oneDNN 2.6 takes 1.5 to 3 times as long
// for weight gradients and the LM head, whose operands it reads against the grain.
//
// Packed B: panels of 64 columns, each (depth / 2, 64) pairs of numbers that follow each other down
// a column; of a narrower one only the vectors that are read. Packed A: panels of 6 rows, each
// (depth / 2, 6) pairs; A that is not transposed has its pairs side by side, and is read where it
// lies.
//
// Each element of C is summed in one order, whatever the number of threads. Denormals count as 0.
#include "ops/common/gemm_dnnl.h"
#include "ops/common/gemm_packed.h"
#include "ops/common/pairs_avx512.h"
#include "ops/common/threads.h"
#include "ops/gemm/def.h"
#include <string.h>

enum {
    TILE_ROWS = MICS_GEMM_TILE_ROWS,
    COLUMNS = MICS_GEMM_TILE_COLUMNS, // of a panel
    VECTORS = COLUMNS / LANES,
    TASK_TILES = 16,  // rows of a task, in tiles: with a panel of B they fit the L2 cache
    TASK_PANELS = 4,  // and its panels
    FETCH_PAIRS = 64, // of a tile that may fetch those of the next one
    LINE_PAIRS = 16,  // of a cache line
};

// A GEMM, and the block of it that is at hand.
typedef struct work {
    const mics_gemm_spec *gemm;
    mics_gemm_blocks size;
    pair *a, *b;
    float *sums;
    int64_t row, rows, column, columns, first, depth;
    int32_t threads;
    int64_t panel_pairs; // from one panel of packed B to the next, in pairs of a column
} work;

// ---- packing ----

// A panel of B as it is stored: (depth, columns).
TARGET static void pack_panel(pair *to, const uint16_t *from, int64_t stride, int64_t depth,
                              int64_t columns)
{
    for (int64_t k = 0; k < depth; k += 2, to += COLUMNS)
        for (int64_t n = 0; n < columns; n += 2 * LANES)
            interleave(to + n, from + k * stride + n, stride, k + 1 < depth, columns - n);
}

// A panel of B as it is stored transposed: (columns, depth).
TARGET static void pack_transposed(pair *to, const uint16_t *from, int64_t stride, int64_t depth,
                                   int64_t columns)
{
    for (int64_t n = 0; n < columns; n += LANES)
        for (int64_t k = 0; k < depth; k += 2 * LANES)
            turn(to + k / 2 * COLUMNS + n, COLUMNS, from + n * stride + k, stride, columns - n,
                 depth - k);
}

// Some panels of A, stored (depth, rows): the pairs of a row of panels are made side by side, and
// then cut.
TARGET static void pack_rows(pair *to, const uint16_t *from, int64_t stride, int64_t depth,
                             int64_t rows)
{
    pair line[TASK_TILES * TILE_ROWS + 2] = {0};
    const int64_t pairs = (depth + 1) / 2, tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int64_t k = 0; k < pairs; ++k) {
        for (int64_t m = 0; m < TASK_TILES * TILE_ROWS && m < rows; m += 32)
            interleave(line + m, from + 2 * k * stride + m, stride, 2 * k + 1 < depth, rows - m);
        for (int64_t tile = 0; tile < tiles; ++tile) {
            pair *six = to + (tile * pairs + k) * TILE_ROWS;
            const pair *from_line = line + tile * TILE_ROWS;
            if (k + 1 < pairs)
                memcpy(six, from_line, 8 * sizeof *to); // one vector: the next six overwrite two
            else
                memcpy(six, from_line, TILE_ROWS * sizeof *to);
        }
    }
}

// ---- tiles ----

// The tile's sums so far, or 0, and where they go.
typedef struct tile {
    const uint16_t *a; // its first row
    const pair *b;
    float *sums; // (TILE_ROWS, size.columns) of the block, where there are several depths
    bool begins, ends;
    int64_t row, column, rows, columns; // in C; how many of the tile are there
    const uint16_t *tail;               // A of a term of low rank, whose B follows b
    int64_t tail_pairs, tail_row;
} tile;

INLINE __m512 widened(__m256i half)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// The first of a vector's lanes.
INLINE __mmask16 lanes(int64_t count)
{
    return count >= LANES ? (__mmask16)0xffff : count > 0 ? (__mmask16)((1U << count) - 1) : 0;
}

// Sums of numbers that lie side by side in C, from `at` on.
INLINE void finish_vector(const mics_gemm_spec *gemm, int64_t at, __mmask16 seen, __m512 value)
{
    if (gemm->wide) {
        float *c = (float *)gemm->c + at;
        if (gemm->add)
            value += _mm512_maskz_loadu_ps(seen, c);
        _mm512_mask_storeu_ps(c, seen, value);
    } else {
        uint16_t *c = (uint16_t *)gemm->c + at;
        if (gemm->add)
            value += widened(_mm256_maskz_loadu_epi16(seen, c));
        _mm256_mask_storeu_epi16(c, seen, (__m256i)_mm512_cvtneps_pbh(value));
    }
}

// One row's sums to C.
INLINE void finish(const mics_gemm_spec *gemm, const tile *t, int r, int vectors,
                   const __m512 sum[VECTORS])
{
    const int64_t at = (t->row + r) * gemm->ldc + t->column;
    UNROLL
    for (int v = 0; v < vectors; ++v) {
        const __mmask16 seen = lanes(t->columns - v * LANES);
        __m512 value = sum[v];
        if (gemm->bias)
            value += widened(_mm256_maskz_loadu_epi16(seen, (const uint16_t *)gemm->bias +
                                                                t->column + v * LANES));
        finish_vector(gemm, at + v * LANES, seen, value);
    }
}

INLINE void multiply(__m512 sum[][VECTORS], int rows, int vectors, const pair *b, const uint16_t *a,
                     int64_t a_row)
{
    __m512bh of_b[VECTORS];
    UNROLL
    for (int v = 0; v < vectors; ++v)
        of_b[v] = (__m512bh)_mm512_loadu_si512(b + v * LANES);
    UNROLL
    for (int r = 0; r < rows; ++r) {
        const __m512bh of_a = (__m512bh)_mm512_set1_epi32(*(const pair_anywhere *)(a + r * a_row));
        UNROLL
        for (int v = 0; v < vectors; ++v)
            sum[r][v] = _mm512_dpbf16_ps(sum[r][v], of_a, of_b[v]);
    }
}

// A tile of so many rows and vectors, constants. Numbers from one row of A, and from one pair, to
// the next: constants where A is packed.
INLINE void compute_wide(const work *w, const tile *t, int rows, int vectors, int64_t a_row,
                         int64_t a_pair)
{
    const int64_t pairs = (w->depth + 1) / 2, stride = w->size.columns;
    const uint16_t *a = t->a;
    const pair *b = t->b;
    __m512 sum[TILE_ROWS][VECTORS];
    UNROLL
    for (int r = 0; r < rows; ++r) {
        UNROLL
        for (int v = 0; v < vectors; ++v)
            sum[r][v] =
                t->begins ? _mm512_setzero_ps() : _mm512_loadu_ps(t->sums + r * stride + v * LANES);
    }
    const bool fetches = a_pair == 2 && pairs >= FETCH_PAIRS; // of the next tile's A
    for (int64_t k = 0; k < pairs;) {
        const int64_t end = pairs - k < LINE_PAIRS ? pairs : k + LINE_PAIRS;
        if (fetches) {
            UNROLL
            for (int r = 0; r < rows; ++r)
                __builtin_prefetch(a + (rows + r) * a_row);
        }
        for (; k < end; ++k, a += a_pair, b += COLUMNS)
            multiply(sum, rows, vectors, b, a, a_row);
    }
    a = t->tail;
    for (int64_t k = 0; k < t->tail_pairs; ++k, a += 2, b += COLUMNS)
        multiply(sum, rows, vectors, b, a, t->tail_row);
    UNROLL
    for (int r = 0; r < rows; ++r) {
        if (!t->ends) {
            UNROLL
            for (int v = 0; v < vectors; ++v)
                _mm512_storeu_ps(t->sums + r * stride + v * LANES, sum[r][v]);
        } else if (r < t->rows) {
            finish(w->gemm, t, r, vectors, sum[r]);
        }
    }
}

// Of adapters' GEMMs many are narrower than a panel.
INLINE void compute(const work *w, const tile *t, int64_t a_row, int64_t a_pair)
{
    switch ((t->columns + LANES - 1) / LANES) {
    case 1:
        compute_wide(w, t, TILE_ROWS, 1, a_row, a_pair);
        break;
    case 2:
        compute_wide(w, t, TILE_ROWS, 2, a_row, a_pair);
        break;
    case 3:
        compute_wide(w, t, TILE_ROWS, 3, a_row, a_pair);
        break;
    default:
        compute_wide(w, t, TILE_ROWS, VECTORS, a_row, a_pair);
    }
}

TARGET static void compute_packed(const work *w, const tile *t)
{
    compute(w, t, 2, 2 * TILE_ROWS);
}

// Returns: false where a tile has other rows than most.
TARGET static bool compute_stored(const work *w, const tile *t)
{
    const int64_t lda = w->gemm->lda;
    if (t->rows == TILE_ROWS)
        compute(w, t, lda, 2);
    else if (t->rows == 4)
        compute_wide(w, t, 4, VECTORS, lda, 2);
    else if (t->rows == 2)
        compute_wide(w, t, 2, VECTORS, lda, 2);
    return t->rows % 2 == 0;
}

// Of A as it is stored, a tile with an odd number of rows, or whose last pair is half one: packed,
// with 0 for what is not there.
static void compute_edge(const work *w, const tile *t)
{
    uint16_t packed[MICS_GEMM_WHOLE_DEPTH / 2 * TILE_ROWS][2];
    const int64_t pairs = (w->depth + 1) / 2;
    memset(packed, 0, (size_t)(pairs * TILE_ROWS) * sizeof packed[0]);
    for (int64_t r = 0; r < t->rows; ++r)
        for (int64_t k = 0; k < w->depth; ++k)
            packed[k / 2 * TILE_ROWS + r][k % 2] = t->a[r * w->gemm->lda + k];
    tile edge = *t;
    edge.a = packed[0];
    compute_packed(w, &edge);
}

// ---- blocks ----

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t parts(int64_t whole, int64_t part)
{
    return (whole + part - 1) / part;
}

// The term of low rank that is added to a column of C with the last depth; NULL: none.
static const mics_gemm_tail *tail_at(const work *w, int64_t column)
{
    const mics_gemm_spec *g = w->gemm;
    for (int32_t i = 0; w->first + w->depth == g->K && i < g->tail_count; ++i) {
        const mics_gemm_tail *tail = &g->tails[i];
        if (column >= tail->first && column < tail->first + tail->columns)
            return tail;
    }
    return NULL;
}

static void pack_b(const work *w, int64_t panel, pair *to)
{
    const mics_gemm_spec *g = w->gemm;
    const int64_t n = w->column + panel * COLUMNS;
    const int64_t columns = smaller(w->column + w->columns - n, COLUMNS);
    const uint16_t *b = g->b;
    const mics_gemm_tail *tail = tail_at(w, n);
    if (g->transpose_b)
        pack_transposed(to, b + n * g->ldb + w->first, g->ldb, w->depth, columns);
    else
        pack_panel(to, b + w->first * g->ldb + n, g->ldb, w->depth, columns);
    if (tail != NULL)
        pack_transposed(to + parts(w->depth, 2) * COLUMNS,
                        (const uint16_t *)tail->b + (n - tail->first) * tail->rank, tail->rank,
                        tail->rank, columns);
}

static void pack_a(const work *w, int64_t task)
{
    const int64_t begin = task * TASK_TILES * TILE_ROWS;
    const int64_t rows = smaller(w->rows - begin, TASK_TILES * TILE_ROWS);
    pack_rows(w->a + begin * parts(w->depth, 2),
              (const uint16_t *)w->gemm->a + w->first * w->gemm->lda + w->row + begin, w->gemm->lda,
              w->depth, rows);
}

static void compute_tile(const work *w, int64_t row, int64_t panel, const pair *b)
{
    const mics_gemm_spec *g = w->gemm;
    const int64_t pairs = parts(w->depth, 2), column = panel * COLUMNS;
    tile t = {.b = b,
              .a = g->transpose_a ? (const uint16_t *)(w->a + row * pairs)
                                  : (const uint16_t *)g->a + (w->row + row) * g->lda + w->first,
              .sums = w->sums + row * w->size.columns + column,
              .begins = w->first == 0,
              .ends = w->first + w->depth == g->K,
              .row = w->row + row,
              .column = w->column + column,
              .rows = smaller(w->rows - row, TILE_ROWS),
              .columns = smaller(w->columns - column, COLUMNS)};
    const mics_gemm_tail *tail = tail_at(w, t.column);
    if (tail != NULL) {
        t.tail = (const uint16_t *)tail->a + t.row * tail->lda;
        t.tail_pairs = tail->rank / 2;
        t.tail_row = tail->lda;
    }
    if (g->transpose_a)
        compute_packed(w, &t);
    else if (w->depth % 2 != 0 || !compute_stored(w, &t))
        compute_edge(w, &t);
}

// A packed panel's place.
static pair *place(const work *w, int64_t panel)
{
    return w->b + panel * COLUMNS * w->panel_pairs;
}

// Some rows of tiles against some panels, panel by panel.
static void compute_task(const work *w, int64_t task)
{
    const int64_t row_tasks = parts(w->rows, TASK_TILES * TILE_ROWS);
    const int64_t begin = task % row_tasks * TASK_TILES * TILE_ROWS;
    const int64_t end = smaller(begin + TASK_TILES * TILE_ROWS, w->rows);
    const int64_t first = task / row_tasks * TASK_PANELS;
    const int64_t last = smaller(first + TASK_PANELS, parts(w->columns, COLUMNS));
    for (int64_t panel = first; panel < last; ++panel)
        for (int64_t row = begin; row < end; row += TILE_ROWS)
            compute_tile(w, row, panel, place(w, panel));
}

// All rows against a panel, which is packed into the thread's own place: it stays in that core's
// cache.
static void compute_panel(const work *w, int64_t panel)
{
    pair *own = place(w, mics_op_thread());
    pack_b(w, panel, own);
    for (int64_t row = 0; row < w->rows; row += TILE_ROWS)
        compute_tile(w, row, panel, own);
}

// Called by all threads of a team, which share the loops.
static void compute_block(const work *w)
{
    const int64_t panels = parts(w->columns, COLUMNS);
    const int64_t row_tasks = parts(w->rows, TASK_TILES * TILE_ROWS);
    if (w->gemm->transpose_a) {
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < row_tasks; ++task)
            pack_a(w, task);
    }
    if (panels % w->threads == 0 || panels >= 8 * w->threads) { // then shared out evenly
#pragma omp for schedule(dynamic)
        for (int64_t panel = 0; panel < panels; ++panel)
            compute_panel(w, panel);
        return;
    }
#pragma omp for schedule(dynamic)
    for (int64_t panel = 0; panel < panels; ++panel)
        pack_b(w, panel, place(w, panel));
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < row_tasks * parts(panels, TASK_PANELS); ++task)
        compute_task(w, task);
}

// ---- few rows or columns ----

// C (M, N) = A^T B, of A (K, M) and B (K, N) as they are stored, with few rows; or the transpose of
// that. So are the gradients of adapters: to make pairs of B's rows costs less than to transpose
// them.
typedef struct narrow {
    const mics_gemm_spec *gemm;
    const uint16_t *a, *b;
    int64_t lda, ldb, M, N;
    bool turned; // C is (N, M)
} narrow;

enum { NARROW_ROWS = COLUMNS, NARROW_TILE = 4, NARROW_DEPTH = 128 };

static bool is_narrow(const mics_gemm_spec *g)
{
    return g->transpose_a && !g->transpose_b && g->bias == NULL &&
           smaller(g->M, g->N) <= NARROW_ROWS;
}

// Sums (NARROW_ROWS, COLUMNS) of the columns from n on to C, turned.
TARGET static void finish_turned(const narrow *w, const float *sums, int64_t n, int64_t columns)
{
    for (int64_t m = 0; m < w->M; m += LANES)
        for (int64_t v = 0; v < columns; v += LANES) {
            __m512i r[LANES];
            UNROLL
            for (int i = 0; i < LANES; ++i)
                r[i] = _mm512_loadu_si512(sums + (m + i) * COLUMNS + v);
            transpose(r);
            for (int i = 0; i < LANES && v + i < columns; ++i)
                finish_vector(w->gemm, (n + v + i) * w->gemm->ldc + m, lanes(w->M - m),
                              _mm512_castsi512_ps(r[i]));
        }
}

// The columns from n on.
TARGET static void compute_narrow(const narrow *w, int64_t n)
{
    pair a[NARROW_DEPTH / 2 * NARROW_ROWS], b[NARROW_DEPTH / 2 * COLUMNS];
    float sums[NARROW_ROWS * COLUMNS];
    const int64_t K = w->gemm->K, columns = smaller(w->N - n, COLUMNS);
    work of = {.gemm = w->gemm, .size = {.columns = COLUMNS}};
    if (columns < COLUMNS)
        memset(b, 0, sizeof b);
    for (int64_t k = 0; k < K; k += NARROW_DEPTH) {
        of.depth = smaller(K - k, NARROW_DEPTH);
        pack_panel(a, w->a + k * w->lda, w->lda, of.depth, w->M);
        pack_panel(b, w->b + k * w->ldb + n, w->ldb, of.depth, columns);
        for (int64_t m = 0; m < w->M; m += NARROW_TILE) {
            const tile t = {.a = (const uint16_t *)(a + m),
                            .b = b,
                            .sums = sums + m * COLUMNS,
                            .begins = k == 0,
                            .ends = !w->turned && k + of.depth == K,
                            .row = m,
                            .column = n,
                            .rows = w->M - m,
                            .columns = columns};
            compute_wide(&of, &t, NARROW_TILE, VECTORS, 2, 2 * NARROW_ROWS);
        }
    }
    if (w->turned)
        finish_turned(w, sums, n, columns);
}

static void multiply_narrow(const mics_exec *at, const mics_gemm_spec *g)
{
    const narrow w = g->M <= g->N ? (narrow){g, g->a, g->b, g->lda, g->ldb, g->M, g->N, false}
                                  : (narrow){g, g->b, g->a, g->ldb, g->lda, g->N, g->M, true};
    const int32_t threads = at->threads;
    (void)threads; // used by the pragma alone, which may be off
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t n = 0; n < w.N; n += COLUMNS)
        compute_narrow(&w, n);
}

bool mics_gemm_packed(const mics_exec *at, const mics_gemm_spec *gemm)
{
    if (is_narrow(gemm)) {
        multiply_narrow(at, gemm);
        return true;
    }
    const mics_gemm_blocks size = mics_gemm_blocks_of(gemm->M, gemm->N, gemm->K);
    char *aligned = gemm->space;
    aligned += (64 - (uintptr_t)aligned % 64) % 64;
    float *space = (float *)(void *)aligned;
    const int64_t tail_pairs = gemm->tail_count > 0 ? gemm->tails[0].rank / 2 : 0;
    const int32_t threads = at->threads;
    (void)threads; // used by the pragma alone, which may be off
#pragma omp parallel num_threads(threads)
    {
        work w = {.gemm = gemm,
                  .threads = threads,
                  .size = size,
                  .a = (pair *)(void *)space,
                  .b = (pair *)(void *)(space + size.a),
                  .sums = space + size.a + size.b + tail_pairs * size.columns};
        for (w.row = 0; w.row < gemm->M; w.row += size.rows)
            for (w.column = 0; w.column < gemm->N; w.column += size.columns)
                for (w.first = 0; w.first < gemm->K; w.first += size.depth) {
                    w.rows = smaller(gemm->M - w.row, size.rows);
                    w.columns = smaller(gemm->N - w.column, size.columns);
                    w.depth = smaller(gemm->K - w.first, size.depth);
                    w.panel_pairs = parts(w.depth, 2) + tail_pairs;
                    compute_block(&w);
                }
    }
    return true;
}

// A panel of B has one term of low rank at most, in whole pairs; no tile is one of
// compute_edge().
bool mics_gemm_takes_tails(const mics_gemm_spec *gemm)
{
    bool takes =
        mics_gemm_has_pairs() && !gemm->transpose_a && gemm->M % 2 == 0 && gemm->K % 2 == 0;
    for (int32_t i = 0; i < gemm->tail_count; ++i) {
        const mics_gemm_tail *tail = &gemm->tails[i];
        const int64_t end = tail->first + tail->columns;
        takes = takes && tail->rank == gemm->tails[0].rank && tail->rank % 2 == 0 &&
                tail->first % COLUMNS == 0 && (end % COLUMNS == 0 || end == gemm->N);
    }
    return takes;
}

/* Averages of tokens over rows and then over columns, for all heads, and their backward pass.
 *
 * x is (n, H, W, D), rows (heads, h, H), columns (heads, w, W), z (n, h, w, heads, D): heads side by side, so that one
 * large product maps all of them. D is a multiple of LANES. One image after another, and of it so many channels that
 * what a head needs of them stays in the nearest cache. Averages over rows are t, (h, W, channels); the backward pass
 * makes them again, which is cheaper than to keep them.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "product.h"

enum { NEAR = 4096, STEP = 2 * LANES, LINE = 64 }; /* numbers of t; channels that go together; bytes */

/* Channels at a time. */
static int channels(int h, int W, int D) {
    long some = NEAR / ((long)h * W) / STEP * STEP;
    if (some < STEP) some = STEP;
    return some < D ? some : D;
}

/* From the start of a line of the cache: a vector that lies in two costs twice. */
static float *aligned(void *room) { return (float *)(((uintptr_t)room + LINE - 1) / LINE * LINE); }

/* sums[y][x] += a[y] b[x], kept apart by lane, for m by v rows of vectors (both constants) that lie in `parts` pieces. */
INLINE void inner_tile(const int m, const int v, float *sums, long ss, const float *a, long ay, long at,
                       const float *b, long bx, long bt, int parts, int size) {
    vec sum[4][2];
    for (int y = 0; y < m; y++)
        for (int x = 0; x < v; x++) sum[y][x] = load(sums + y * ss + x * LANES);
    for (int t = 0; t < parts; t++, a += at, b += bt)
        for (int l = 0; l < size; l += LANES) {
            vec other[2];
            for (int x = 0; x < v; x++) other[x] = load(b + x * bx + l);
            for (int y = 0; y < m; y++) {
                vec one = load(a + y * ay + l);
                for (int x = 0; x < v; x++) sum[y][x] += one * other[x];
            }
        }
    for (int y = 0; y < m; y++)
        for (int x = 0; x < v; x++) store(sums + y * ss + x * LANES, sum[y][x]);
}

INLINE void inner_rows(const int v, int m, float *sums, long ss, const float *a, long ay, long at, const float *b,
                       long bx, long bt, int parts, int size) {
    for (; m >= 4; m -= 4, sums += 4 * ss, a += 4 * ay) inner_tile(4, v, sums, ss, a, ay, at, b, bx, bt, parts, size);
    if (m == 3) inner_tile(3, v, sums, ss, a, ay, at, b, bx, bt, parts, size);
    if (m == 2) inner_tile(2, v, sums, ss, a, ay, at, b, bx, bt, parts, size);
    if (m == 1) inner_tile(1, v, sums, ss, a, ay, at, b, bx, bt, parts, size);
}

/* The same for any m and n: all inner products of m rows with n others. */
static void inner(int m, int n, float *sums, const float *a, long ay, long at, const float *b, long bx, long bt,
                  int parts, int size) {
    long ss = (long)n * LANES;
    for (; n >= 2; n -= 2, sums += 2 * LANES, b += 2 * bx) inner_rows(2, m, sums, ss, a, ay, at, b, bx, bt, parts, size);
    if (n) inner_rows(1, m, sums, ss, a, ay, at, b, bx, bt, parts, size);
}

/* Some channels of an image's rows: W pieces of as many numbers, or one piece where all channels are taken. */
typedef struct { int count, size; } Pieces;

static Pieces pieces(int W, int D, int some) { return some == D ? (Pieces){1, W * D} : (Pieces){W, some}; }

static void over_rows(float *t, const float *x, const float *row, int H, int W, int h, int D, int some) {
    Pieces p = pieces(W, D, some);
    for (int j = 0; j < p.count; j++)
        set(h, p.size, H, t + (long)j * some, (long)W * some, row, H, 1, x + (long)j * D, (long)W * D);
}

void forward(const float *x, const float *rows, const float *columns, float *z, int n, int heads, int H, int W, int h,
             int w, int D) {
    int most = channels(h, W, D);
    long wide = (long)heads * D;
    void *room = malloc(LINE + sizeof(float) * h * W * most);
    float *t = aligned(room);
    for (int i = 0; i < n; i++)
        for (int from = 0; from < D; from += most)
            for (int e = 0; e < heads; e++) {
                int some = D - from < most ? D - from : most;
                const float *in = x + (long)i * H * W * D + from, *column = columns + (long)e * w * W;
                float *to = z + (long)i * h * w * wide + (long)e * D + from;
                over_rows(t, in, rows + (long)e * h * H, H, W, h, D, some);
                for (int r = 0; r < h; r++)
                    set(w, some, W, to + r * w * wide, wide, column, W, 1, t + (long)r * W * some, some);
            }
    free(room);
}

/* Adds what the lanes hold. */
static void collect(float *to, const float *sums, long count) {
    for (long l = 0; l < count; l++) to[l] += total(load(sums + l * LANES));
}

/* Gradients of x are written, those of rows and columns are added to what is there. */
void backward(const float *x, const float *rows, const float *columns, const float *gz, float *gx, float *grows,
              float *gcolumns, int n, int heads, int H, int W, int h, int w, int D) {
    int most = channels(h, W, D);
    long wide = (long)heads * D, size = (long)h * W * most, of_rows = (long)h * H, of_columns = (long)w * W;
    long sums = heads * (of_rows + of_columns) * LANES;
    void *room = malloc(LINE + sizeof(float) * (sums + 2 * size));
    float *row_sums = aligned(room), *column_sums = row_sums + heads * of_rows * LANES;
    float *t = row_sums + sums, *gt = t + size;
    memset(row_sums, 0, sizeof(float) * sums);
    for (int i = 0; i < n; i++)
        for (int from = 0; from < D; from += most)
            for (int e = 0; e < heads; e++) {
                int some = D - from < most ? D - from : most;
                Pieces p = pieces(W, D, some);
                const float *in = x + (long)i * H * W * D + from, *g = gz + (long)i * h * w * wide + (long)e * D + from;
                const float *row = rows + e * of_rows, *column = columns + e * of_columns;
                float *to = gx + (long)i * H * W * D + from, *rs = row_sums + e * of_rows * LANES;
                float *cs = column_sums + e * of_columns * LANES;
                long line = (long)W * some, xline = (long)W * D;
                over_rows(t, in, row, H, W, h, D, some);
                inner(w, W, cs, g, wide, w * wide, t, some, line, h, some);
                for (int r = 0; r < h; r++) set(W, some, w, gt + r * line, some, column, 1, W, g + r * w * wide, wide);
                inner(h, H, rs, gt, line, some, in, xline, D, p.count, p.size);
                for (int j = 0; j < p.count; j++)
                    (e ? add : set)(H, p.size, h, to + (long)j * D, xline, row, 1, H, gt + (long)j * some, line);
            }
    collect(grows, row_sums, heads * of_rows);
    collect(gcolumns, column_sums, heads * of_columns);
    free(room);
}

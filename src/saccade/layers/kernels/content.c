/* Attention of h by w tokens with content and relative positions, linear maps included: one (image, head) after
 * another, all of it in cache. Small products run faster here than in torch, which packs what it multiplies.
 *
 * Each head maps a token x, one of T = h w, to W numbers `asked`, by maps (heads, d, W) and what is added (heads, W).
 * The score of query (a, b) for key (k, l) is the product of its first d numbers with the key, plus its number for row
 * shift k - a, plus that for column shift l - b. These follow the first d, shifts from 1 - size to size - 1, rows
 * before columns. The means of v under the softmax are mapped by values (heads, d, out) and summed over heads. x, k, v
 * are (n, T, d).
 *
 * d, W and out are multiples of LANES: the caller fills up with zeros, W behind the last shift. `norm` is as in
 * few_tokens.c; asked and means, (n, heads, T, ...), are kept for the backward pass too.
 */
#include <stdlib.h>
#include "attention.h"

typedef struct { int h, w, d, W, size; } Shape;

/* Where the numbers of row shifts begin for a query in row a, and of column shifts for one in column b. */
static int of_rows(Shape g, int a) { return g.d + g.size - 1 - a; }
static int of_columns(Shape g, int b) { return g.d + 3 * g.size - 2 - b; }

/* asked = x map + added. */
static void ask(float *asked, const float *x, const float *map, const float *added, int T, Shape g) {
    for (int t = 0; t < T; t++) memcpy(asked + t * g.W, added, sizeof(float) * g.W);
    add(T, g.W, g.d, asked, g.W, x, g.d, 1, map, g.W);
}

/* s[i][j] = log2 of what the map holds before it is divided by its row's sum; FAR beyond the last token. kt: keys,
 * turned, times LOG2_E. */
static void scores(float *s, const float *asked, const float *kt, Shape g) {
    int T = g.h * g.w, S = whole(T);
    float *row = s;
    for (int a = 0; a < g.h; a++)
        for (int b = 0; b < g.w; b++, row += S) {
            const float *query = asked + (a * g.w + b) * g.W, *by_row = query + of_rows(g, a);
            const float *by_column = query + of_columns(g, b);
            int l = 0;
            for (; l + LANES <= g.w; l += LANES) {
                vec column = load(by_column + l);
                for (int k = 0; k < g.h; k++) store(row + k * g.w + l, (column + by_row[k]) * LOG2_E);
            }
            for (; l < g.w; l++)
                for (int k = 0; k < g.h; k++) row[k * g.w + l] = (by_column[l] + by_row[k]) * LOG2_E;
            for (int j = T; j < S; j++) row[j] = FAR;
        }
    add(T, S, g.d, s, S, asked, g.W, 1, kt, S);
}

/* The gradient of the numbers of shifts: sums of that of the scores, gs, over columns and over rows of keys. */
static void sums_by_shift(float *gasked, const float *gs, Shape g) {
    int S = whole(g.h * g.w);
    const float *row = gs;
    for (int a = 0; a < g.h; a++)
        for (int b = 0; b < g.w; b++, row += S) {
            float *query = gasked + (a * g.w + b) * g.W, *by_row = query + of_rows(g, a);
            float *by_column = query + of_columns(g, b);
            memset(query + g.d, 0, sizeof(float) * (g.W - g.d));
            int l = 0;
            for (; l + LANES <= g.w; l += LANES) {
                vec column = {0};
                for (int k = 0; k < g.h; k++) {
                    vec part = load(row + k * g.w + l);
                    column += part;
                    by_row[k] += total(part);
                }
                store(by_column + l, column);
            }
            for (; l < g.w; l++)
                for (int k = 0; k < g.h; k++) {
                    by_row[k] += row[k * g.w + l];
                    by_column[l] += row[k * g.w + l];
                }
        }
}

/* to[l] += the sum of column l of m rows. */
static void add_rows(float *to, const float *from, int m, int n) {
    for (int l = 0; l < n; l += LANES) {
        vec sum = load(to + l);
        for (int t = 0; t < m; t++) sum += load(from + (long)t * n + l);
        store(to + l, sum);
    }
}

/* y: (n, T, out). */
void forward(const float *x, const float *k, const float *v, const float *maps, const float *added, const float *values,
             float *asked, float *means, float *norm, float *y, int n, int heads, int h, int w, int d, int W, int out,
             int size) {
    Shape g = {h, w, d, W, size};
    int T = h * w, S = whole(T);
    float *kt = malloc(sizeof(float) * ((long)d * S + (long)T * S)), *s = kt + (long)d * S;
    for (int i = 0; i < n; i++, x += T * d, k += T * d, v += T * d, y += T * out) {
        turn(kt, S, k, d, T, d, LOG2_E);
        for (int e = 0; e < heads; e++, asked += T * W, means += T * d, norm += 2 * T) {
            ask(asked, x, maps + (long)e * d * W, added + e * W, T, g);
            scores(s, asked, kt, g);
            soft_max(s, norm, T, S);
            set(T, d, T, means, d, s, S, 1, v, d);
            (e ? add : set)(T, out, d, y, out, means, d, 1, values + (long)e * d * out, out);
        }
    }
    free(kt);
}

/* Maps and values are turned here: (heads, W, d) and (heads, out, d). gmaps, gadded and gvalues have the shapes that
 * the forward pass takes; they are added to, image after image: the same bits every time. */
void backward(const float *x, const float *k, const float *v, const float *maps, const float *values,
              const float *asked, const float *means, const float *norm, const float *gy, float *gx, float *gk,
              float *gv, float *gmaps, float *gadded, float *gvalues, int n, int heads, int h, int w, int d, int W,
              int out, int size) {
    Shape g = {h, w, d, W, size};
    int T = h * w, S = whole(T);
    long map = (long)T * S;
    float *kt = malloc(sizeof(float) * (2L * d * S + 2 * map + (long)T * d + (long)T * W)), *vt = kt + (long)d * S;
    float *p = vt + (long)d * S, *gs = p + map, *gmean = gs + map, *gasked = gmean + (long)T * d;
    for (int i = 0; i < n; i++, x += T * d, k += T * d, v += T * d, gy += T * out) {
        turn(kt, S, k, d, T, d, LOG2_E);
        turn(vt, S, v, d, T, d, 1);
        for (int e = 0; e < heads; e++, asked += T * W, means += T * d, norm += 2 * T) {
            add(d, out, T, gvalues + (long)e * d * out, out, means, 1, d, gy, out);
            set(T, d, out, gmean, d, gy, out, 1, values + (long)e * out * d, d);
            scores(p, asked, kt, g);
            set(T, S, d, gs, S, gmean, d, 1, vt, S);
            again(p, gs, norm, 1, T, S);
            (e ? add : set)(T, d, T, gv, d, p, 1, S, gmean, d);
            (e ? add : set)(T, d, T, gk, d, gs, 1, S, asked, W);
            set(T, d, T, gasked, W, gs, S, 1, k, d);
            sums_by_shift(gasked, gs, g);
            add_rows(gadded + e * W, gasked, T, W);
            add(d, W, T, gmaps + (long)e * d * W, W, x, 1, d, gasked, W);
            (e ? add : set)(T, d, W, gx, d, gasked, W, 1, maps + (long)e * W * d, d);
        }
        gx += T * d, gk += T * d, gv += T * d;
    }
    free(kt);
}

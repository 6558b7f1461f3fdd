/* What a transformer does to each token by itself: layer norm, linear map, GELU, linear map, a sum; and all gradients.
 *
 * A few rows at a time go through all of it and stay in cache. Weights are packed once a call into panels of columns.
 * Rows of intermediate results are filled up to whole vectors, so that any width will do. Sums over rows run in the order
 * of the rows: the same bits every time.
 */
#include <stdlib.h>
#include <string.h>
#include "product.h"

#ifdef __AVX512F__
enum { PANEL = 32 }; /* two vectors */
#else
enum { PANEL = 16 };
#endif

static int least(int a, int b) { return a < b ? a : b; }
static int panels(int n) { return (n + PANEL - 1) / PANEL * PANEL; }
/* Rows at a time, a multiple of the tile's: as many as leave room for the weights beside them. */
static int chunk(int widest) { return widest <= 128 ? 96 : widest <= 512 ? 48 : 24; }

/* w (O, I), turned: for products x w^T. */
static void pack_turned(float *to, const float *w, int O, int I) {
    for (int o = 0; o < O; o += PANEL, to += (long)I * PANEL)
        turn(to, PANEL, w + (long)o * I, I, least(PANEL, O - o), I, 1);
}

/* w (O, I) as it is: for products g w. */
static void pack(float *to, const float *w, int O, int I) {
    for (int i = 0; i < I; i += PANEL)
        for (int o = 0; o < O; o++, to += PANEL)
            for (int l = 0; l < PANEL; l++) to[l] = i + l < I ? w[(long)o * I + i + l] : 0;
}

/* c = a p for m rows of a, `depth` wide, and n columns of packed p; rows of c are whole(n) long. */
static void product(float *c, int m, int n, int depth, const float *a, long stride, const float *p) {
    int wide = whole(n);
    for (; n > 0; n -= PANEL, c += PANEL, p += (long)depth * PANEL)
        set(m, whole(least(PANEL, n)), depth, c, wide, a, stride, 1, p, PANEL);
}

/* Rows of whole vectors, with zeros at their ends. */
static void widen(float *to, const float *from, int m, int n) {
    int wide = whole(n);
    for (int r = 0; r < m; r++) {
        memcpy(to + (long)r * wide, from + (long)r * n, sizeof(float) * n);
        for (int l = n; l < wide; l++) to[(long)r * wide + l] = 0;
    }
}

static void narrow(float *to, const float *from, int m, int n) {
    for (int r = 0; r < m; r++) memcpy(to + (long)r * n, from + (long)r * whole(n), sizeof(float) * n);
}

/* Layer norm of m rows into z, rows of whole vectors; mean and 1 / deviation of each row into `stats`. */
static void norm(float *z, float *stats, const float *x, const float *weight, const float *bias, int m, int n,
                 float eps) {
    int wide = whole(n);
    for (int r = 0; r < m; r++) {
        float *row = z + (long)r * wide;
        const float *from = x + (long)r * n;
        for (int l = 0; l < n; l++) row[l] = from[l];
        for (int l = n; l < wide; l++) row[l] = 0;
        float mean = sum_of(row, wide) / n;
        vec squares = {0};
        for (int l = 0; l < n; l++) row[l] -= mean;
        for (int l = 0; l < wide; l += LANES) squares += load(row + l) * load(row + l);
        float rate = 1 / sqrtf(total(squares) / n + eps);
        for (int l = 0; l < n; l++) row[l] = row[l] * rate * weight[l] + bias[l];
        stats[2 * r] = mean;
        stats[2 * r + 1] = rate;
    }
}

static void normed_again(float *z, const float *stats, const float *x, const float *weight, const float *bias, int m,
                         int n) {
    int wide = whole(n);
    for (int r = 0; r < m; r++) {
        float mean = stats[2 * r], rate = stats[2 * r + 1], *row = z + (long)r * wide;
        for (int l = 0; l < n; l++) row[l] = (x[(long)r * n + l] - mean) * rate * weight[l] + bias[l];
        for (int l = n; l < wide; l++) row[l] = 0;
    }
}

/* From the gradient g of the normed rows, whole(n) long, to that of x; `spare` holds two such rows. */
static void norm_back(float *gx, float *gweight, float *gbias, const float *g, const float *stats, const float *x,
                      const float *weight, int m, int n, float *spare) {
    int wide = whole(n);
    float *unit = spare, *scaled = spare + wide;
    for (int l = 0; l < 2 * wide; l++) spare[l] = 0;
    for (int r = 0; r < m; r++) {
        const float *row = g + (long)r * wide;
        float mean = stats[2 * r], rate = stats[2 * r + 1];
        for (int l = 0; l < n; l++) {
            unit[l] = (x[(long)r * n + l] - mean) * rate;
            scaled[l] = row[l] * weight[l];
            gweight[l] += row[l] * unit[l];
            gbias[l] += row[l];
        }
        vec along = {0};
        for (int l = 0; l < wide; l += LANES) along += load(unit + l) * load(scaled + l);
        float level = sum_of(scaled, wide) / n, slope = total(along) / n;
        for (int l = 0; l < n; l++) gx[(long)r * n + l] = rate * (scaled[l] - level - unit[l] * slope);
    }
}

/* The share of a normal distribution below -|x|, relative error below 5e-7: its density, up to a constant in `bell`,
 * times a minimax polynomial of our own in 1 / (1 + 0.305 |x|). Beyond 14 it is 0; NaN stays NaN. */
INLINE float tail(float x, float *bell) {
    float size = fabsf(x) > 14 ? 14 : fabsf(x), t = 1 / (1 + 0.305f * size), e = power_of_two(-0.72134752044f * size * size);
    float p = fmaf(fmaf(0.03669862821698189f, t, -0.1529860496520996f), t, 0.18571315705776215f);
    p = fmaf(fmaf(fmaf(p, t, -0.037973493337631226f), t, 0.12101996690034866f), t, 0.10342136770486832f);
    p = fmaf(fmaf(p, t, 0.12246673554182053f), t, 0.12163973599672318f);
    *bell = e;
    return p * t * e;
}

/* h + bias in place, and its GELU. */
static void gelu(float *restrict a, float *restrict h, const float *restrict bias, int m, int n) {
    int wide = whole(n);
    for (int r = 0; r < m; r++, a += wide, h += wide)
        for (int l = 0; l < n; l++) {
            float bell, x = h[l] + bias[l], below = tail(x, &bell);
            h[l] = x;
            a[l] = x * (x > 0 ? 1 - below : below);
        }
}

/* GELU of h again, and g times its slope in place of g. h has rows of n, the others whole ones. */
static void gelu_back(float *restrict a, float *restrict g, const float *restrict h, int m, int n) {
    int wide = whole(n);
    for (int r = 0; r < m; r++, a += wide, g += wide, h += n) {
        for (int l = 0; l < n; l++) {
            float bell, x = h[l], below = tail(x, &bell), share = x > 0 ? 1 - below : below;
            a[l] = x * share;
            g[l] *= share + x * 0.39894228040f * bell;
        }
        for (int l = n; l < wide; l++) a[l] = g[l] = 0;
    }
}

static void sum_rows(float *to, const float *g, long stride, int m, int n) {
    for (int r = 0; r < m; r++) for (int l = 0; l < n; l++) to[l] += g[r * stride + l];
}

/* y = linear2(gelu(linear1(norm x))) + sum, or linear1(norm x) + sum where H is 0. norm, biases of a single map and sum
 * may be null. h (n, H) and stats (n, 2) are for the backward pass. */
void forward(const float *x, const float *nw, const float *nb, const float *w1, const float *b1, const float *w2,
             const float *b2, const float *sum, float *stats, float *h, float *y, int n, int I, int H, int O, float eps) {
    int first = H ? H : O, widest = I > first ? I : first, many = chunk(widest > O ? widest : O);
    long room = (long)panels(first) * I + (long)panels(O) * H + (long)many * (whole(I) + 2 * whole(first) + whole(O));
    float *p1 = malloc(sizeof(float) * room), *p2 = p1 + (long)panels(first) * I, *z = p2 + (long)panels(O) * H;
    float *inner = z + (long)many * whole(I), *a = inner + (long)many * whole(first), *out = a + (long)many * whole(first);
    pack_turned(p1, w1, first, I);
    if (H) pack_turned(p2, w2, O, H);
    for (int r = 0; r < n; r += many) {
        int m = least(many, n - r);
        const float *from = x + (long)r * I, *last = H ? b2 : b1;
        if (nw) norm(z, stats + 2L * r, from, nw, nb, m, I, eps);
        product(H ? inner : out, m, first, I, nw ? z : from, nw ? whole(I) : I, p1);
        if (H) {
            gelu(a, inner, b1, m, H);
            narrow(h + (long)r * H, inner, m, H);
            product(out, m, O, H, a, whole(H), p2);
        }
        for (int i = 0; i < m; i++) {
            float *to = y + (long)(r + i) * O, *made = out + (long)i * whole(O);
            if (last) for (int l = 0; l < O; l++) made[l] += last[l];
            if (sum) for (int l = 0; l < O; l++) made[l] += sum[(long)(r + i) * O + l];
            memcpy(to, made, sizeof(float) * O);
        }
    }
    free(p1);
}

/* gx is null where nobody asks for it. Gradients of null parameters are null. With `same`, sum was x, and gx has its
 * part of the gradient too. */
void backward(const float *x, const float *nw, const float *nb, const float *w1, const float *w2, const float *stats,
              const float *h, const float *g, float *gx, float *gnw, float *gnb, float *gw1, float *gb1, float *gw2,
              float *gb2, int same, int n, int I, int H, int O) {
    int first = H ? H : O, widest = I > first ? I : first, many = chunk(widest > O ? widest : O);
    long sums = (long)first * whole(I) + (long)O * whole(H);
    long room = (long)first * panels(I) + (long)O * panels(H) + sums
              + (long)many * (2 * whole(I) + 2 * whole(first)) + 2L * whole(I);
    float *p1 = malloc(sizeof(float) * room), *p2 = p1 + (long)first * panels(I), *s1 = p2 + (long)O * panels(H);
    float *s2 = s1 + (long)first * whole(I), *z = s1 + sums, *gz = z + (long)many * whole(I);
    float *a = gz + (long)many * whole(I), *ginner = a + (long)many * whole(first);
    float *spare = ginner + (long)many * whole(first);
    if (gx || nw) pack(p1, w1, first, I);
    if (H) pack(p2, w2, O, H);
    memset(s1, 0, sizeof(float) * sums);
    if (nw) { memset(gnw, 0, sizeof(float) * I); memset(gnb, 0, sizeof(float) * I); }
    if (gb1) memset(gb1, 0, sizeof(float) * first);
    if (gb2) memset(gb2, 0, sizeof(float) * O);
    for (int r = 0; r < n; r += many) {
        int m = least(many, n - r);
        const float *from = x + (long)r * I, *top = g + (long)r * O, *given = from, *inner = top;
        long stride = O;
        if (H) {
            product(ginner, m, H, O, top, O, p2);
            gelu_back(a, ginner, h + (long)r * H, m, H);
            add(O, whole(H), m, s2, whole(H), top, 1, O, a, whole(H));
            if (gb2) sum_rows(gb2, top, O, m, O);
            inner = ginner;
            stride = whole(H);
        }
        if (nw) normed_again(z, stats + 2L * r, from, nw, nb, m, I);
        else if (whole(I) != I) widen(z, from, m, I);
        if (nw || whole(I) != I) given = z;
        add(first, whole(I), m, s1, whole(I), inner, 1, stride, given, whole(I));
        if (gb1) sum_rows(gb1, inner, stride, m, first);
        if (!gx && !nw) continue;
        product(gz, m, I, first, inner, stride, p1);
        float *to = gx + (long)r * I;
        if (nw) norm_back(to, gnw, gnb, gz, stats + 2L * r, from, nw, m, I, spare);
        else narrow(to, gz, m, I);
        if (same) for (long l = 0; l < (long)m * I; l++) to[l] += top[l];
    }
    narrow(gw1, s1, first, I);
    if (H) narrow(gw2, s2, O, H);
    free(p1);
}

/* SAN's pairwise attention from queries, keys and values on, eight pixels of a row at a time.
 *
 * t = relu(phi - psi shifted), z = relu(first [t; 1]), p = softmax over shifts of last z, out = sum of p beta shifted.
 * Nothing with a value for each pixel and shift is ever written: on the way back it is computed again, from `top` and
 * `part`, the softmax's greatest logit (in powers of two) and one over its sum. phi: (n, C, h, w); psi and beta: C and
 * G S channels, as `pad` leaves them; first: (R, C + 1); last: (S, R). Channel c of beta has weight c mod S. R and S
 * are set by the build; two of the C channels are positions.
 *
 * What a row of pixels sends back to its neighbourhoods is collected by the receiver, over the shifts along the row,
 * from lines with zeros at both ends: adding it at every shift would wait for the store of the shift before. Relu keeps
 * NaN.
 */
#include <math.h>
#include <stdlib.h>
#include "rows.h"

#define C (R + 2)
typedef int I __attribute__((vector_size(32)));

/* wide: the length of a padded row; N and P: of a map and a padded map; line: see `lines`. */
typedef struct { int n, h, w, size, G, wide, N, P, before, line; } Shape;

static Shape shape(int n, int h, int w, int size, int G) {
    int wide = whole(whole(w) + size - 1), before = whole(size - 1); /* any eight pixels can be read at any shift */
    return (Shape){n, h, w, size, G, wide, h * w, (h + size - 1) * wide, before, before + wide};
}

int padded_row(int w, int size) { return shape(1, 1, w, size, 0).wide; }

static int reflected(int at, int length) {
    int period = length > 1 ? 2 * length - 2 : 1;
    at = (at % period + period) % period;
    return at < period - at ? at : period - at;
}

/* (planes, h, w) -> (planes, h + size - 1, padded row), by reflection, back and forth where a map is too small. */
void pad(const float *from, float *to, int planes, int h, int w, int size) {
    Shape s = shape(1, h, w, size, 0);
    int more = size / 2, around[2 * more + 1];
    for (int x = 0; x < 2 * more; x++) around[x] = reflected(x < more ? x - more : w + x - more, w);
    for (int y = 0; y < planes * (h + size - 1); y++, to += s.wide) {
        const float *row = from + (long)(y / (h + size - 1)) * s.N + reflected(y % (h + size - 1) - more, h) * w;
        for (int x = 0; x < more; x++) {
            to[x] = row[around[x]];
            to[w + more + x] = row[around[more + x]];
        }
        memcpy(to + more, row, sizeof(float) * w);
        for (int x = w + 2 * more; x < s.wide; x++) to[x] = 0;
    }
}

/* The way back: adds what arrives at a padded map to the map. */
void fold(const float *from, float *to, int planes, int h, int w, int size) {
    Shape s = shape(1, h, w, size, 0);
    int more = size / 2, around[2 * more + 1];
    for (int x = 0; x < 2 * more; x++) around[x] = reflected(x < more ? x - more : w + x - more, w);
    for (int y = 0; y < planes * (h + size - 1); y++, from += s.wide) {
        float *row = to + (long)(y / (h + size - 1)) * s.N + reflected(y % (h + size - 1) - more, h) * w;
        for (int x = 0; x < w; x++) row[x] += from[more + x];
        for (int x = 0; x < more; x++) {
            row[around[x]] += from[x];
            row[around[more + x]] += from[w + more + x];
        }
    }
}

static inline V only(V v, int k) {
    const I lane = {0, 1, 2, 3, 4, 5, 6, 7};
    return k == WIDTH ? v : (V)((I)v & (lane < k));
}

static inline V choose(I which, V x, V y) { return (V)(((I)x & which) | ((I)y & ~which)); }
static inline V relu(V x) { return (V)((I)x & ~(x < 0.0f)); }
static inline V where_positive(V x, V y) { return (V)((I)y & ~(x <= 0.0f)); }

/* 2^x for x <= 0, as in short_heads.c. */
static inline V power_of_two(V x) {
    const V least = {-126, -126, -126, -126, -126, -126, -126, -126};
    x = choose(x < least, least, x);
    I n = __builtin_convertvector(x - 0.5f, I); /* cut off, so this rounds */
    V f = x - __builtin_convertvector(n, V), p = 0.001326472731307149f * f + 0.009671512991189957f;
    p = p * f + 0.05550733581185341f;
    p = p * f + 0.24022242426872253f;
    p = p * f + 0.6931470036506653f;
    p = p * f + 1.0f;
    return p * (V)((n + 127) << 23);
}

static inline void differ(const V *q, const float *psi, long plane, V *t) {
    for (int c = 0; c < C; c++) t[c] = relu(q[c] - *(const Loose *)(psi + c * plane));
}

/* z and the logits in powers of two; last is scaled for that. */
static inline void weigh(const V *t, const float *first, const float *last, V *z, V *logit) {
    for (int r = 0; r < R; r++, first += C + 1) {
        z[r] = first[0] * t[0] + first[C];
        for (int d = 1; d < C; d++) z[r] += first[d] * t[d];
        z[r] = relu(z[r]);
    }
    for (int s = 0; s < S; s++) {
        logit[s] = last[s * R] * z[0];
        for (int r = 1; r < R; r++) logit[s] += last[s * R + r] * z[r];
    }
}

static inline double across(V v) {
    double sum = 0;
    for (int i = 0; i < WIDTH; i++) sum += v[i];
    return sum;
}

/* Runs body(x, k) over a row of `width`; k is a constant 8 wherever eight pixels are left. */
#define ALONG(width, body) do { \
    int x = 0; \
    for (; x + WIDTH <= (width); x += WIDTH) body(WIDTH); \
    if (x < (width)) body((width) - x); \
} while (0)

/* sums: C of t - middle, then C x C of its products, from the diagonal on. */
static inline void moments_block(const float *phi, const float *psi, const float *middle, V *sums, Shape s, int k) {
    int wide = s.wide, N = s.N, P = s.P;
    V q[C], t[C];
    for (int c = 0; c < C; c++) q[c] = get(phi + c * N, k);
    for (int i = 0; i < s.size; i++)
        for (int j = 0; j < s.size; j++) {
            differ(q, psi + i * wide + j, P, t);
            for (int c = 0; c < C; c++) {
                t[c] = only(t[c] - middle[c], k);
                sums[c] += t[c];
            }
            for (int c = 0; c < C; c++)
                for (int d = c; d < C; d++) sums[C + c * C + d] += t[c] * t[d];
        }
}

/* The average (C) and the covariance (C x C) of t over all pixels and shifts. Sums are taken about the average at the
 * first shift: squares keep their digits near zero. */
void moments(const float *phi, const float *psi, double *average, double *cov, int n, int h, int w, int size) {
    Shape s = shape(n, h, w, size, 0);
    int wide = s.wide, N = s.N, P = s.P;
    double sums[C + C * C] = {0}, count = (double)n * N;
    float middle[C];
    for (int c = 0; c < C; c++) {
        double sum = 0;
        for (int k = c; k < n * C; k += C)
            for (int y = 0; y < h; y++) {
                const float *from = phi + (long)k * N + y * w, *keys = psi + (long)k * P + y * wide;
                float row = 0;
                for (int x = 0; x < w; x++) row += from[x] > keys[x] ? from[x] - keys[x] : 0;
                sum += row;
            }
        middle[c] = sum / count;
    }
    count *= size * size;
    for (int k = 0; k < n; k++, phi += C * N, psi += C * P)
        for (int y = 0; y < h; y++) {
            V part[C + C * C] = {0};
            #define BODY(k) moments_block(phi + y * w + x, psi + y * wide + x, middle, part, s, k)
            ALONG(w, BODY);
            #undef BODY
            for (int c = 0; c < C + C * C; c++) sums[c] += across(part[c]);
        }
    for (int c = 0; c < C; c++) {
        average[c] = middle[c] + sums[c] / count;
        for (int d = 0; d < C; d++)
            cov[c * C + d] = sums[C + (c < d ? c * C + d : d * C + c)] / count - sums[c] / count * (sums[d] / count);
    }
}

static inline void sum_channels(int B, const float *beta, const V *p, const V *part, float *out, Shape s, int k) {
    int wide = s.wide, N = s.N, P = s.P;
    V sum[MOST] = {0};
    for (int i = 0; i < s.size; i++)
        for (int j = 0; j < s.size; j++)
            for (int b = 0; b < B; b++)
                sum[b] += p[(i * s.size + j) * S] * *(const Loose *)(beta + b * S * P + i * wide + j);
    for (int b = 0; b < B; b++) put(out + b * S * N, sum[b] * *part, k);
}

static inline void forward_block(const float *phi, const float *psi, const float *beta, const float *first,
                                 const float *last, float *out, float *top, float *part, V *p, Shape s, int k) {
    int wide = s.wide, N = s.N, P = s.P, area = s.size * s.size;
    V q[C], t[C], z[R], most[S];
    for (int d = 0; d < C; d++) q[d] = get(phi + d * N, k);
    for (int j = 0; j < S; j++) most[j] = (V){0} - INFINITY;
    for (int o = 0; o < area; o++) {
        differ(q, psi + o / s.size * wide + o % s.size, P, t);
        weigh(t, first, last, z, p + o * S);
        for (int j = 0; j < S; j++) most[j] = choose(p[o * S + j] > most[j], p[o * S + j], most[j]);
    }
    for (int j = 0; j < S; j++) {
        V sum = {0};
        for (int o = 0; o < area; o++) sum += p[o * S + j] = power_of_two(p[o * S + j] - most[j]);
        sum = 1.0f / sum;
        put(top + j * N, most[j], k);
        put(part + j * N, sum, k);
        #define BODY(b, B) sum_channels(B, beta + (b * S + j) * P, p + j, &sum, out + (b * S + j) * N, s, k)
        TOGETHER(s.G, BODY);
        #undef BODY
    }
}

static void to_powers_of_two(const float *last, float *scaled) {
    for (int i = 0; i < S * R; i++) scaled[i] = last[i] * 1.44269504089f;
}

void forward(const float *phi, const float *psi, const float *beta, const float *first, const float *last,
             float *out, float *top, float *part, int n, int h, int w, int size, int G) {
    Shape s = shape(n, h, w, size, G);
    int wide = s.wide, N = s.N, P = s.P;
    float scaled[S * R];
    V p[size * size * S];
    to_powers_of_two(last, scaled);
    for (int k = 0; k < n; k++) {
        for (int y = 0; y < h; y++) {
            int at = y * w, far = y * wide;
            #define BODY(k) forward_block(phi + at + x, psi + far + x, beta + far + x, first, scaled, out + at + x, \
                                          top + at + x, part + at + x, p, s, k)
            ALONG(w, BODY);
            #undef BODY
        }
        phi += C * N; psi += C * P; beta += G * S * P; out += G * S * N; top += S * N; part += S * N;
    }
}

/* Rows that are collected from, with room for at least size - 1 zeros before and after: `before` comes first. */
static float *lines(int count, Shape s) {
    size_t bytes = sizeof(float) * count * s.line;
    return memset(aligned_alloc(sizeof(V), bytes), 0, bytes);
}

/* to[x] -= the sum over j of lines[j][x - j], for a padded row of each of C channels. */
static void collect(const float *lines, float *to, Shape s) {
    int wide = s.wide, L = s.line;
    for (int c = 0; c < C; c++, lines += s.size * L, to += s.P)
        for (int x = 0; x < wide; x += WIDTH) {
            V sum = *(Loose *)(to + x);
            for (int j = 0; j < s.size; j++) sum -= *(const Loose *)(lines + j * (L - 1) + x);
            *(Loose *)(to + x) = sum;
        }
}

/* to[x] += the sum over j of p[j][x - j] g[x - j], for B channels of beta with one weight. */
static inline void collect_channels(int B, const float *p, const float *g, float *to, Shape s) {
    int wide = s.wide, P = s.P, L = s.line;
    for (int x = 0; x < wide; x += WIDTH) {
        V sum[MOST];
        for (int b = 0; b < B; b++) sum[b] = *(Loose *)(to + b * S * P + x);
        for (int j = 0; j < s.size; j++)
            for (int b = 0; b < B; b++)
                sum[b] += *(const Loose *)(p + j * (L - 1) + x) * *(const Loose *)(g + b * S * L - j + x);
        for (int b = 0; b < B; b++) *(Loose *)(to + b * S * P + x) = sum[b];
    }
}

/* Of eight pixels, the gradient of p at shifts (i, 0) ... (i, size - 1), for B channels with one weight. */
static inline void meet(int B, const float *beta, const float *g, V *gp, Shape s) {
    int P = s.P, L = s.line;
    V grad[MOST];
    for (int b = 0; b < B; b++) grad[b] = *(const Loose *)(g + b * S * L);
    for (int j = 0; j < s.size; j++)
        for (int b = 0; b < B; b++) gp[j * S] += grad[b] * *(const Loose *)(beta + b * S * P + j);
}

typedef struct { V t[C], z[R], gz[R], g[S]; } Place;

/* Sums of a row: S x R of g z, then R x (C + 1) of gz t and of gz itself. */
#define SUMS (S * R + R * (C + 1))

static inline void gather_block(const float *phi, const float *psi, const float *beta, const float *first,
                                const float *last, const float *scaled, const float *top, const float *part,
                                const float *inner, const float *g, float *gphi, float *p, float *gt, V *sums, V *gp,
                                Place *at, Shape s, int k) {
    int N = s.N, P = s.P, L = s.line;
    V q[C], gq[C], most[S], share[S], less[S];
    for (int d = 0; d < C; d++) { q[d] = get(phi + d * N, k); gq[d] = get(gphi + d * N, k); }
    for (int m = 0; m < S; m++) {
        most[m] = get(top + m * N, k); share[m] = get(part + m * N, k); less[m] = get(inner + m * L, k);
        for (int j = 0; j < s.size; j++) gp[j * S + m] = -less[m];
        #define BODY(b, B) meet(B, beta + (b * S + m) * P, g + (b * S + m) * L, gp + m, s)
        TOGETHER(s.G, BODY);
        #undef BODY
    }
    /* In three loops: one would be a single long chain, too long for the processor to see the next shift behind it. */
    for (int j = 0; j < s.size; j++) {
        differ(q, psi + j, P, at[j].t);
        weigh(at[j].t, first, scaled, at[j].z, at[j].g);
    }
    for (int j = 0; j < s.size; j++)
        for (int m = 0; m < S; m++) {
            V e = power_of_two(at[j].g[m] - most[m]) * share[m];
            put(p + (m * s.size + j) * L, e, k);
            at[j].g[m] = only(e * gp[j * S + m], k);
        }
    for (int j = 0; j < s.size; j++) {
        for (int r = 0; r < R; r++) {
            V sum = last[r] * at[j].g[0];
            for (int m = 1; m < S; m++) sum += last[m * R + r] * at[j].g[m];
            at[j].gz[r] = where_positive(at[j].z[r], sum);
        }
        for (int d = 0; d < C; d++) {
            V back = first[d] * at[j].gz[0];
            for (int r = 1; r < R; r++) back += first[r * (C + 1) + d] * at[j].gz[r];
            back = where_positive(at[j].t[d], back);
            gq[d] += back;
            put(gt + (d * s.size + j) * L, back, k);
        }
    }
    for (int d = 0; d < C; d++) put(gphi + d * N, gq[d], k);
    for (int r = 0; r < R; r++) {
        V *to = sums + S * R + r * (C + 1), one = to[C], by_last[S], by_mix[C];
        for (int m = 0; m < S; m++) by_last[m] = sums[m * R + r];
        for (int d = 0; d < C; d++) by_mix[d] = to[d];
        for (int j = 0; j < s.size; j++) {
            one += at[j].gz[r];
            for (int m = 0; m < S; m++) by_last[m] += at[j].g[m] * at[j].z[r];
            for (int d = 0; d < C; d++) by_mix[d] += at[j].gz[r] * at[j].t[d];
        }
        to[C] = one;
        for (int m = 0; m < S; m++) sums[m * R + r] = by_last[m];
        for (int d = 0; d < C; d++) to[d] = by_mix[d];
    }
}

/* From the gradient g of out: those of beta, of phi and psi as far as they do not go through the statistics of the
 * normalisation, and that of last, and products (see SUMS) from which the others follow. Adds to all of them. */
void gather(const float *phi, const float *psi, const float *beta, const float *first, const float *last,
            const float *out, const float *top, const float *part, const float *g, double *glast,
            double *products, float *gphi, float *gpsi, float *gbeta, int n, int h, int w, int size, int G) {
    Shape s = shape(n, h, w, size, G);
    int wide = s.wide, N = s.N, P = s.P, L = s.line, before = s.before;
    float scaled[S * R];
    float *grad = lines(G * S + S + S * size + C * size, s);
    float *inner = grad + L * G * S, *p = inner + L * S, *gt = p + L * S * size;
    V gp[S * size];
    Place at[size];
    to_powers_of_two(last, scaled);
    for (int k = 0; k < n; k++) {
        for (int y = 0; y < h; y++) {
            V sum[SUMS] = {0};
            memset(inner, 0, sizeof(float) * L * S);
            for (int m = 0; m < G * S; m++) {
                const float *one = g + m * N + y * w, *two = out + m * N + y * w;
                float *to = inner + m % S * L + before;
                memcpy(grad + m * L + before, one, sizeof(float) * w);
                for (int x = 0; x < w; x++) to[x] += one[x] * two[x];
            }
            for (int i = 0; i < size; i++) {
                int here = y * w, far = (y + i) * wide;
                #define BODY(k) gather_block(phi + here + x, psi + far + x, beta + far + x, first, last, scaled, \
                    top + here + x, part + here + x, inner + before + x, grad + before + x, gphi + here + x, \
                    p + before + x, gt + before + x, sum, gp, at, s, k)
                ALONG(w, BODY);
                #undef BODY
                collect(gt + before, gpsi + far, s);
                for (int m = 0; m < S; m++) {
                    #define BODY(b, B) collect_channels(B, p + m * size * L + before, \
                        grad + (b * S + m) * L + before, gbeta + (b * S + m) * P + far, s)
                    TOGETHER(G, BODY);
                    #undef BODY
                }
            }
            for (int r = 0; r < S * R; r++) glast[r] += across(sum[r]);
            for (int r = 0; r < R * (C + 1); r++) products[r] += across(sum[S * R + r]);
        }
        phi += C * N; gphi += C * N; psi += C * P; gpsi += C * P; beta += G * S * P; gbeta += G * S * P;
        g += G * S * N; out += G * S * N; top += S * N; part += S * N;
    }
    free(grad);
}

static inline void spread_block(const float *phi, const float *psi, const float *by_t, float *gphi, float *gt, Shape s,
                                int k) {
    int N = s.N, P = s.P, L = s.line;
    V q[C], gq[C], t[C];
    for (int d = 0; d < C; d++) { q[d] = get(phi + d * N, k); gq[d] = get(gphi + d * N, k); }
    for (int j = 0; j < s.size; j++) {
        differ(q, psi + j, P, t);
        for (int d = 0; d < C; d++) {
            const float *by = by_t + d * (C + 1);
            V back = by[0] * t[0] + by[C];
            for (int e = 1; e < C; e++) back += by[e] * t[e];
            back = where_positive(t[d], back);
            gq[d] += back;
            put(gt + (d * s.size + j) * L, back, k);
        }
    }
    for (int d = 0; d < C; d++) put(gphi + d * N, gq[d], k);
}

/* What comes back through the statistics: a gradient by_t [t; 1] of t, by_t: (C, C + 1). Adds to gphi and gpsi. */
void spread(const float *phi, const float *psi, const float *by_t, float *gphi, float *gpsi, int n, int h, int w,
            int size) {
    Shape s = shape(n, h, w, size, 0);
    int wide = s.wide, N = s.N, P = s.P, before = s.before;
    float *gt = lines(C * size, s);
    for (int k = 0; k < n; k++, phi += C * N, gphi += C * N, psi += C * P, gpsi += C * P)
        for (int y = 0; y < h; y++)
            for (int i = 0; i < size; i++) {
                int here = y * w, far = (y + i) * wide;
                #define BODY(k) spread_block(phi + here + x, psi + far + x, by_t, gphi + here + x, \
                                             gt + before + x, s, k)
                ALONG(w, BODY);
                #undef BODY
                collect(gt + before, gpsi + far, s);
            }
    free(gt);
}

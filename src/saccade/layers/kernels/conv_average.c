/* Convolution with padding, ReLU and 2x2 average as one function, for images of 8, 16 or 32 pixels a side; its gradients.
 *
 * Images lie as torch has them, (n, channels, S, S), so that a vector holds neighbours in a row: no channel is padded,
 * however few there are. Inside, planes have a border of zeros; a row is then PAD floats longer, and a patch that hangs
 * over the edge needs no question. Weights are torch's own, (O, C, K, K). K, the side of a patch, is odd, at most 9 and
 * set by the build. `maps` (n, O, S, S) keeps what ReLU let through: the way back asks where it is above 0. Comparisons
 * are written so that NaN stays NaN.
 */
#include <stdlib.h>
#include <string.h>
#include "product.h"

#define P (K / 2)   /* zeros on each side */
#define PAD 8       /* floats by which a row is longer: the last vector of a row may begin K - 1 further right */
#define FEW 4       /* images at a time in the gradient of weights: sums stay in registers for as long as this gives */
#define WIDE 3      /* output channels at a time: with four vectors of places twelve sums */
#define SPOTS 4     /* vectors of places at a time */

static inline int plane(int S) { return (S + 2 * P) * (S + PAD); }

/* Planes of S x S into planes with a border; the border is zero already. */
static void fill(float *to, const float *from, int count, int S) {
    for (int c = 0; c < count; c++)
        for (int y = 0; y < S; y++)
            memcpy(to + c * plane(S) + (y + P) * (S + PAD) + P, from + (c * S + y) * S, S * sizeof(float));
}

/* out[o] = start[o] + the convolution of `in` with w[c][tap][o]: O output channels, SPOTS vectors of places from row y
 * on, both constants. Where `cut` is set, ReLU. Planes of `in` have a border, those of `out` do not. */
INLINE void patch(const int O, const int S, const int cut, const float *in, int C, const float *w, const float *start,
                  float *out, int y) {
    const int across = S / LANES, row = S + PAD;
    vec sum[SPOTS][WIDE];
    for (int s = 0; s < SPOTS; s++)
        for (int o = 0; o < O; o++) sum[s][o] = (vec){0} + (start ? start[o] : 0.0f);
    for (int c = 0; c < C; c++, in += plane(S))
        for (int ky = 0; ky < K; ky++)
            for (int kx = 0; kx < K; kx++, w += O) {
                vec by[WIDE];
                for (int o = 0; o < O; o++) by[o] = (vec){0} + w[o];
                for (int s = 0; s < SPOTS; s++) {
                    vec x = load(in + (y + s / across + ky) * row + s % across * LANES + kx);
                    for (int o = 0; o < O; o++) sum[s][o] += x * by[o];
                }
            }
    for (int o = 0; o < O; o++)
        for (int s = 0; s < SPOTS; s++) {
            vec x = sum[s][o];
            if (cut) x = (vec)((mask)x & ~(x <= 0));
            store(out + (o * S + y + s / across) * S + s % across * LANES, x);
        }
}

INLINE void patches(const int O, const int S, const int cut, const float *in, int C, const float *w, const float *start,
                    float *out) {
    for (int y = 0; y < S; y += SPOTS * LANES / S) patch(O, S, cut, in, C, w, start, out, y);
}

/* So many output channels are taken together when `left` are to do; four are two twice. */
static inline int together(int left) { return left == 4 || left == 2 ? 2 : left == 1 ? 1 : WIDE; }

INLINE void convolve(const int S, const int cut, const float *in, int C, const float *w, const float *start, float *out,
                     int O) {
    for (int o = 0, some; o < O; o += some) {
        const float *from = w + o * C * K * K, *first = start ? start + o : 0;
        float *to = out + o * S * S;
        some = together(O - o);
        if (some == 3) patches(3, S, cut, in, C, from, first, to);
        else if (some == 2) patches(2, S, cut, in, C, from, first, to);
        else patches(1, S, cut, in, C, from, first, to);
    }
}

/* Weights as `convolve` reads them; turned: for the gradient of images, with channels in and out changed. */
static void pack(float *to, const float *w, int C, int O, int turned) {
    int outs = turned ? C : O, ins = turned ? O : C;
    for (int o = 0, some; o < outs; o += some) {
        some = together(outs - o);
        for (int c = 0; c < ins; c++)
            for (int t = 0; t < K * K; t++)
                for (int i = 0; i < some; i++)
                    *to++ = turned ? w[(c * C + o + i) * K * K + K * K - 1 - t] : w[((o + i) * C + c) * K * K + t];
    }
}

INLINE void forward_of(const int S, const float *x, const float *w, const float *bias, float *maps, float *out, int n,
                       int C, int O, float *packed, float *wide) {
    const int H = S / 2;
    pack(packed, w, C, O, 0);
    for (int i = 0; i < n; i++) {
        float *m = maps + (long)i * O * S * S, *to = out + (long)i * O * H * H;
        fill(wide, x + (long)i * C * S * S, C, S);
        convolve(S, 1, wide, C, packed, bias, m, O);
        for (int r = 0; r < O * H; r++, m += 2 * S, to += H)
            for (int p = 0; p < H; p++) to[p] = 0.25f * ((m[2 * p] + m[2 * p + 1]) + (m[S + 2 * p] + m[S + 2 * p + 1]));
    }
}

/* The gradient of maps, in planes with a border: a quarter of that of the average, where ReLU let something through. */
INLINE void spread(const int S, float *to, const float *grad, const float *maps, int O) {
    const int H = S / 2, row = S + PAD;
    for (int o = 0; o < O; o++)
        for (int y = 0; y < S; y++) {
            float *r = to + o * plane(S) + (y + P) * row + P;
            const float *g = grad + (o * H + y / 2) * H, *m = maps + (o * S + y) * S;
            for (int x = 0; x < S; x++) r[x] = m[x] <= 0 ? 0 : 0.25f * g[x / 2];
        }
}

/* A row of taps of B output channels of the gradient of weights, over some images whose planes lie `xs`, `gs` apart. */
INLINE void gather(const int B, const int S, const float *x, long xs, const float *g, long gs, int images, vec *to,
                   long ts) {
    const int row = S + PAD;
    vec sum[2][K];
    for (int b = 0; b < B; b++)
        for (int k = 0; k < K; k++) sum[b][k] = to[b * ts + k];
    for (int i = 0; i < images; i++)
        for (int y = 0; y < S; y++)
            for (int v = 0; v < S; v += LANES) {
                const float *at = x + i * xs + y * row + v, *from = g + i * gs + y * row + v;
                vec grad[2];
                for (int b = 0; b < B; b++) grad[b] = load(from + b * plane(S));
                for (int k = 0; k < K; k++) {
                    vec in = load(at + k);
                    for (int b = 0; b < B; b++) sum[b][k] += in * grad[b];
                }
            }
    for (int b = 0; b < B; b++)
        for (int k = 0; k < K; k++) to[b * ts + k] = sum[b][k];
}

INLINE void backward_of(const int S, const float *x, const float *w, const float *maps, const float *grad, float *gw,
                        float *gbias, float *gx, int n, int C, int O, float *packed, float *wide, float *grads,
                        vec *sums) {
    const long mine = plane(S), inside = P * (S + PAD) + P;
    if (gx) pack(packed, w, C, O, 1);
    for (int first = 0; first < n; first += FEW) {
        int images = first + FEW < n ? FEW : n - first;
        for (int i = 0; i < images; i++) {
            long at = first + i;
            float *g = grads + i * O * mine;
            fill(wide + i * C * mine, x + at * C * S * S, C, S);
            spread(S, g, grad + at * O * S * S / 4, maps + at * O * S * S, O);
            if (gx) convolve(S, 0, g, O, packed, 0, gx + at * C * S * S, C);
            for (int o = 0; gbias && o < O; o++)
                for (int y = 0; y < S; y++) gbias[o] += sum_of(g + o * mine + inside + y * (S + PAD), S);
        }
        for (int c = 0; c < C; c++)
            for (int ky = 0; ky < K; ky++) {
                const float *from = wide + c * mine + ky * (S + PAD);
                for (int o = 0; o < O; o += 2) {
                    vec *to = sums + ((long)o * C + c) * K * K + ky * K;
                    const float *g = grads + o * mine + inside;
                    if (o + 1 < O) gather(2, S, from, C * mine, g, O * mine, images, to, (long)C * K * K);
                    else gather(1, S, from, C * mine, g, O * mine, images, to, 0);
                }
            }
    }
    for (long t = 0; t < (long)O * C * K * K; t++) gw[t] = total(sums[t]);
}

/* Zeros, for borders and sums, from the start of a cache line on. */
static float *room(long count) {
    size_t size = (count * sizeof(float) + 127) / 64 * 64;
    void *found = aligned_alloc(64, size);
    return found ? memset(found, 0, size) : 0;
}

/* 0 when there was no memory. bias may be null. */
int forward(const float *x, const float *w, const float *bias, float *maps, float *out, int n, int C, int O, int S) {
    float *packed = room((long)O * C * K * K), *wide = room((long)C * plane(S));
    int done = packed && wide;
    if (done && S == 8) forward_of(8, x, w, bias, maps, out, n, C, O, packed, wide);
    if (done && S == 16) forward_of(16, x, w, bias, maps, out, n, C, O, packed, wide);
    if (done && S == 32) forward_of(32, x, w, bias, maps, out, n, C, O, packed, wide);
    free(packed);
    free(wide);
    return done;
}

/* gbias and gx may be null; gbias starts at zero. */
int backward(const float *x, const float *w, const float *maps, const float *grad, float *gw, float *gbias, float *gx,
             int n, int C, int O, int S) {
    float *packed = room((long)O * C * K * K), *wide = room((long)FEW * C * plane(S));
    float *grads = room((long)FEW * O * plane(S)), *sums = room((long)O * C * K * K * LANES);
    int done = packed && wide && grads && sums;
    if (done && S == 8) backward_of(8, x, w, maps, grad, gw, gbias, gx, n, C, O, packed, wide, grads, (vec *)sums);
    if (done && S == 16) backward_of(16, x, w, maps, grad, gw, gbias, gx, n, C, O, packed, wide, grads, (vec *)sums);
    if (done && S == 32) backward_of(32, x, w, maps, grad, gw, gbias, gx, n, C, O, packed, wide, grads, (vec *)sums);
    free(packed);
    free(wide);
    free(grads);
    free(sums);
    return done;
}

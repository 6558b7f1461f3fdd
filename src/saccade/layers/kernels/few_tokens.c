/* Softmax attention for few tokens, T, in heads of any width, W: one (image, head) after another, all of it in cache.
 *
 * q, k, v are read where a linear map left them, (n, T, ...) with the heads of a token side by side, and gradients are
 * written to where its backward pass wants them: nothing is copied apart or together in between. All three have the
 * same strides. The backward pass computes the map again from `norm`, (n, heads, 2, T): the largest score of each row,
 * and one over the sum of the row. Tokens are filled up to a multiple of LANES in the maps, channels in copies of what
 * is no such multiple wide.
 */
#include <stdlib.h>
#include "attention.h"

/* Rows of whole vectors: those of x itself where it has such, else a copy in `room`. */
static const float *padded(const float *x, long *stride, int T, int W, float *room) {
    int wide = whole(W);
    if (wide == W) return x;
    for (int t = 0; t < T; t++) {
        memcpy(room + t * wide, x + t * *stride, sizeof(float) * W);
        for (int d = W; d < wide; d++) room[t * wide + d] = 0;
    }
    *stride = wide;
    return room;
}

static void narrow(float *to, long stride, const float *from, int T, int W) {
    for (int t = 0; t < T; t++) memcpy(to + t * stride, from + t * whole(W), sizeof(float) * W);
}

static float scale(int W) { return LOG2_E / sqrtf((float)W); }

/* s[i][j] = log2 of what the map holds before it is divided by its row's sum; FAR beyond the last token. */
static void scores(float *s, const float *q, long stride, const float *kt, int T, int W) {
    int S = whole(T);
    set(T, S, W, s, S, q, stride, 1, kt, S);
    for (int i = 0; i < T; i++) for (int j = T; j < S; j++) s[i * S + j] = FAR;
}

void forward(const float *q, const float *k, const float *v, float *out, float *norm, int n, int heads, int T, int W,
             long by_image, long by_token) {
    int S = whole(T), wide = whole(W);
    float *kt = malloc(sizeof(float) * ((long)W * S + (long)T * S + 2L * T * wide));
    float *s = kt + (long)W * S, *vs = s + (long)T * S, *o = vs + (long)T * wide;
    for (int i = 0; i < n; i++)
        for (int e = 0; e < heads; e++) {
            long at = i * by_image + (long)e * W, vstride = by_token;
            float *to = out + (long)i * T * heads * W + (long)e * W, *tops = norm + ((long)i * heads + e) * 2 * T;
            turn(kt, S, k + at, by_token, T, W, scale(W));
            scores(s, q + at, by_token, kt, T, W);
            soft_max(s, tops, T, S);
            const float *values = padded(v + at, &vstride, T, W, vs);
            if (wide == W) set(T, W, T, to, (long)heads * W, s, S, 1, values, vstride);
            else {
                set(T, wide, T, o, wide, s, S, 1, values, vstride);
                narrow(to, (long)heads * W, o, T, W);
            }
        }
    free(kt);
}

void backward(const float *q, const float *k, const float *v, const float *norm, const float *grad, float *gq,
              float *gk, float *gv, int n, int heads, int T, int W, long by_image, long by_token) {
    int S = whole(T), wide = whole(W);
    long map = (long)T * S, rows = (long)T * wide;
    float *kt = malloc(sizeof(float) * (2L * W * S + 2 * map + 5 * rows));
    float *vt = kt + (long)W * S, *p = vt + (long)W * S, *g = p + map, *room = g + map, *one = room + 4 * rows;
    for (int i = 0; i < n; i++)
        for (int e = 0; e < heads; e++) {
            long at = i * by_image + (long)e * W, out = (long)heads * W, qs = by_token, ks = by_token, gs = out;
            const float *go = grad + (long)i * T * out + (long)e * W, *tops = norm + ((long)i * heads + e) * 2 * T;
            turn(kt, S, k + at, by_token, T, W, scale(W));
            turn(vt, S, v + at, by_token, T, W, 1);
            scores(p, q + at, by_token, kt, T, W);
            set(T, S, W, g, S, go, out, 1, vt, S);
            again(p, g, tops, scale(W) * LN_2, T, S); /* d 2^x = ln 2 2^x dx */
            const float *qrows = padded(q + at, &qs, T, W, room), *krows = padded(k + at, &ks, T, W, room + rows);
            const float *grows = padded(go, &gs, T, W, room + 2 * rows);
            if (wide == W) {
                set(T, W, T, gv + at, by_token, p, 1, S, grows, gs);
                set(T, W, T, gk + at, by_token, g, 1, S, qrows, qs);
                set(T, W, T, gq + at, by_token, g, S, 1, krows, ks);
            } else {
                set(T, wide, T, one, wide, p, 1, S, grows, gs);
                narrow(gv + at, by_token, one, T, W);
                set(T, wide, T, one, wide, g, 1, S, qrows, qs);
                narrow(gk + at, by_token, one, T, W);
                set(T, wide, T, one, wide, g, S, 1, krows, ks);
                narrow(gq + at, by_token, one, T, W);
            }
        }
    free(kt);
}

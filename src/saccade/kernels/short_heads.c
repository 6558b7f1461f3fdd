/* Softmax attention for heads of a few channels: o = softmax2(q k^T) v, one (sample, head) after another.
 *
 * Every array is (heads, W, T), channel-major, so that the loops over keys run over contiguous floats and
 * vectorise. q comes scaled by log2(e) / sqrt(W): powers of two are cheaper than powers of e. Nothing of size
 * T x T is written: the backward pass computes the probabilities again from `norm`, the log2 of the row's sum.
 * W, the channels of a head, is set by the build. Handling several query rows at once was tried and is slower
 * (2 rows 1.4 times, 4 rows 4 times): it spills registers.
 */
#include <math.h>
#include <string.h>

/* 2^x for x <= 0, relative error below 2e-7. Unlike exp2f it vectorises. The polynomial is a minimax fit on
 * [-1/2, 1/2] of our own; a degree less gives 3e-6. */
static inline float power_of_two(float x) {
    x = x < -126.0f ? -126.0f : x;
    float n = rintf(x), f = x - n;
    float p = 0.001326472731307149f;
    p = fmaf(p, f, 0.009671512991189957f);
    p = fmaf(p, f, 0.05550733581185341f);
    p = fmaf(p, f, 0.24022242426872253f);
    p = fmaf(p, f, 0.6931470036506653f);
    p = fmaf(p, f, 1.0f);
    union { int bits; float value; } scale = { ((int)n + 127) << 23 };
    return p * scale.value;
}

static float row(const float *restrict query, const float *restrict k, const float *restrict v,
                 float *restrict acc, float top, int T) {
    float sum = 0;
    for (int d = 0; d < W; d++) acc[d] = 0;
    for (int j = 0; j < T; j++) {
        float s = -top;
        for (int d = 0; d < W; d++) s += query[d] * k[d * T + j];
        float e = power_of_two(s);
        sum += e;
        for (int d = 0; d < W; d++) acc[d] += e * v[d * T + j];
    }
    return sum;
}

static void forward_head(const float *restrict q, const float *restrict k, const float *restrict v,
                         float *restrict o, float *restrict norm, int T) {
    float longest = 0;
    for (int j = 0; j < T; j++) {
        float length = 0;
        for (int d = 0; d < W; d++) length += k[d * T + j] * k[d * T + j];
        longest = length > longest ? length : longest;
    }
    longest = sqrtf(longest);
    for (int i = 0; i < T; i++) {
        float query[W], acc[W], length = 0, sum;
        for (int d = 0; d < W; d++) { query[d] = q[d * T + i]; length += query[d] * query[d]; }
        /* |q||k| bounds every score and spares a pass for the maximum, unless it is so far above it that
         * the sum loses digits: then the maximum is looked for after all. */
        float top = sqrtf(length) * longest;
        if (top < 60.0f) {
            sum = row(query, k, v, acc, top, T);
        } else {
            top = -3e38f;
            for (int j = 0; j < T; j++) {
                float s = 0;
                for (int d = 0; d < W; d++) s += query[d] * k[d * T + j];
                top = s > top ? s : top;
            }
            sum = row(query, k, v, acc, top, T);
        }
        norm[i] = top + log2f(sum);
        for (int d = 0; d < W; d++) o[d * T + i] = acc[d] / sum;
    }
}

static void backward_head(const float *restrict q, const float *restrict k, const float *restrict v,
                          const float *restrict o, const float *restrict norm, const float *restrict go,
                          float *restrict gq, float *restrict gk, float *restrict gv, int T) {
    memset(gk, 0, sizeof(float) * W * T);
    memset(gv, 0, sizeof(float) * W * T);
    for (int i = 0; i < T; i++) {
        float query[W], grad[W], acc[W], inner = 0;
        for (int d = 0; d < W; d++) {
            query[d] = q[d * T + i]; grad[d] = go[d * T + i]; acc[d] = 0;
            inner += grad[d] * o[d * T + i];
        }
        /* Inlined, `restrict` is forgotten: from 4 channels on gcc then gives up on this loop, six times slower. */
        #pragma GCC ivdep
        for (int j = 0; j < T; j++) {
            float s = -norm[i], t = -inner;
            for (int d = 0; d < W; d++) { s += query[d] * k[d * T + j]; t += grad[d] * v[d * T + j]; }
            float p = power_of_two(s), g = p * t;
            for (int d = 0; d < W; d++) {
                gv[d * T + j] += p * grad[d];
                gk[d * T + j] += g * query[d];
                acc[d] += g * k[d * T + j];
            }
        }
        for (int d = 0; d < W; d++) gq[d * T + i] = acc[d];
    }
    /* d 2^x = ln 2 2^x dx; the caller's scaling of q carries the rest. */
    for (int n = 0; n < W * T; n++) { gq[n] *= 0.69314718056f; gk[n] *= 0.69314718056f; }
}

void forward(const float *q, const float *k, const float *v, float *o, float *norm, int heads, int T) {
    for (int h = 0; h < heads; h++) {
        long at = (long)h * W * T;
        forward_head(q + at, k + at, v + at, o + at, norm + (long)h * T, T);
    }
}

void backward(const float *q, const float *k, const float *v, const float *o, const float *norm, const float *go,
              float *gq, float *gk, float *gv, int heads, int T) {
    for (int h = 0; h < heads; h++) {
        long at = (long)h * W * T;
        backward_head(q + at, k + at, v + at, o + at, norm + (long)h * T, go + at, gq + at, gk + at, gv + at, T);
    }
}

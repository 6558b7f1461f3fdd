/* Softmax attention for heads of a few channels: o = softmax2(q k^T) v, one (sample, head) after another.
 *
 * Every array is (heads, W, S), channel-major; S is T, the tokens, with zeros up to the next multiple of 32. q comes
 * scaled by log2(e) / sqrt(W): powers of two are cheaper than powers of e. Nothing of size T x T is written: the
 * backward pass computes the probabilities again from `norm`, the log2 of the row's sum. W is set by the build.
 *
 * The map is made in pieces of ROWS x LINE that stay in the first cache, and used up at once, in products of small
 * matrices whose sums stay in registers. Going row by row over all keys takes twice the time: keys, values and
 * their gradients, 75 kB for 784 tokens of 6 channels, then come from the second cache for every row.
 */
#include <string.h>
#include "powers.h"

enum { ROWS = 32, LINE = 64, FEW = W <= 6 ? W : 4 }; /* FEW channels: their 2 FEW sums fit in 16 registers */
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* Volatile, or gcc fetches a value again for each of its uses, and fetching is what there is least time for. */
INLINE vec load(const float *from) { return *(const volatile vec *)from; }
INLINE void store(float *to, vec x) { *(vec *)to = x; }

/* c[y][l] = sum_t a(y, t) b[t][l] for m rows and n lanes, or added to c. a(y, t) is at y * ay + t * at. */
INLINE void product(int add, int m, float *c, long cs, const float *a, long ay, long at, const float *b, long bs,
                    int depth, int n) {
    for (int l = 0; l < n; l += 2 * LANES) {
        vec left[8] = {0}, right[8] = {0};
        #pragma GCC unroll 1 /* unrolled, gcc makes several sums of each, of which there are enough already */
        for (long t = 0; t < depth; t++) {
            vec one = load(b + t * bs + l), two = load(b + t * bs + l + LANES);
            for (int y = 0; y < m; y++) {
                left[y] += one * a[y * ay + t * at];
                right[y] += two * a[y * ay + t * at];
            }
        }
        for (int y = 0; y < m; y++) {
            float *to = c + y * cs + l;
            if (add) { left[y] += load(to); right[y] += load(to + LANES); }
            store(to, left[y]); store(to + LANES, right[y]);
        }
    }
}

/* c[r][l] = sum_d a[d][r] b[d][l], four rows at a time: up to three beyond m are written, which nobody reads. */
static void scores(float (*restrict c)[LINE], const float *restrict a, const float *restrict b, int m, int n, long S) {
    for (int r = 0; r < m; r += 4) product(0, 4, c[r], LINE, a + r, 1, S, b, S, W, n);
}

/* c[d][l] += sum_r a[d][r] b[r][l] */
static void mix(float *restrict c, const float *restrict a, float (*restrict b)[LINE], int m, int n, long S) {
    int d = 0;
    for (; d + FEW <= W; d += FEW) product(1, FEW, c + d * S, S, a + d * S, S, 1, b[0], LINE, m, n);
    if (W % FEW) product(1, W % FEW, c + d * S, S, a + d * S, S, 1, b[0], LINE, m, n);
}

/* c[r][d] += sum_l a[d][l] b[r][l] for some d, two rows at a time. The lanes of c are left for the end to add up. */
INLINE void some_dots(int some, float *c, const float *a, float (*b)[LINE], int m, int n, long S) {
    for (int r = 0; r < m; r += 2, c += 2 * W * LANES) {
        vec left[8], right[8];
        for (int y = 0; y < some; y++) { left[y] = load(c + y * LANES); right[y] = load(c + (W + y) * LANES); }
        for (int l = 0; l < n; l += LANES) {
            vec one = load(b[r] + l), two = load(b[r + 1] + l);
            for (int y = 0; y < some; y++) {
                vec channel = load(a + y * S + l);
                left[y] += channel * one;
                right[y] += channel * two;
            }
        }
        for (int y = 0; y < some; y++) { store(c + y * LANES, left[y]); store(c + (W + y) * LANES, right[y]); }
    }
}

static void dots(float (*restrict c)[W][LANES], const float *restrict a, float (*restrict b)[LINE], int m, int n,
                 long S) {
    int d = 0;
    for (; d + FEW <= W; d += FEW) some_dots(FEW, c[0][d], a + d * S, b, m, n, S);
    if (W % FEW) some_dots(W % FEW, c[0][d], a + d * S, b, m, n, S);
}

static int least(int a, int b) { return a < b ? a : b; }
static float length(const float *x, long S) {
    float sum = 0;
    for (int d = 0; d < W; d++) sum += x[d * S] * x[d * S];
    return sqrtf(sum);
}

static void forward_head(const float *restrict q, const float *restrict k, const float *restrict v,
                         float *restrict o, float *restrict norm, int T, long S) {
    float x[ROWS][LINE], top[LINE], sum[LINE], longest = 0;
    memset(o, 0, sizeof(float) * W * S);
    for (int j = 0; j < T; j++) longest = fmaxf(longest, length(k + j, S));
    for (int i = 0; i < T; i += LINE) { /* rows are keys and lanes are queries: no sum runs across lanes */
        int n = least(LINE, T - i), near = 1;
        for (int l = 0; l < n; l++) { sum[l] = 0; top[l] = length(q + i + l, S) * longest; near &= top[l] < 60.0f; }
        /* |q||k| bounds every score and spares a pass for the maximum, unless it is so far above it that
         * the sum loses digits: then the maximum is looked for after all. */
        if (!near) for (int l = 0; l < n; l++) top[l] = -3e38f;
        for (int pass = near; pass < 2; pass++)
            for (int j = 0; j < T; j += ROWS) {
                int m = least(ROWS, T - j);
                scores(x, k + j, q + i, m, n, S);
                for (int r = 0; r < m; r++)
                    if (pass) for (int l = 0; l < n; l++) sum[l] += x[r][l] = power_of_two(x[r][l] - top[l]);
                    else for (int l = 0; l < n; l++) top[l] = x[r][l] > top[l] ? x[r][l] : top[l];
                if (pass) mix(o + i, v + j, x, m, n, S);
            }
        for (int l = 0; l < n; l++) norm[i + l] = top[l] + log2f(sum[l]);
        for (int d = 0; d < W; d++) for (int l = 0; l < n; l++) o[d * S + i + l] /= sum[l];
    }
}

static void backward_head(const float *restrict q, const float *restrict k, const float *restrict v,
                          const float *restrict o, const float *restrict norm, const float *restrict go,
                          float *restrict gq, float *restrict gk, float *restrict gv, int T, long S) {
    float p[ROWS][LINE], g[ROWS][LINE];
    memset(gk, 0, sizeof(float) * W * S);
    memset(gv, 0, sizeof(float) * W * S);
    for (int i = 0; i < T; i += ROWS) { /* rows are queries and lanes are keys: two of three sums as one wants them */
        int m = least(ROWS, T - i);
        float lanes[ROWS][W][LANES] = {0}, inner[ROWS] = {0};
        for (int d = 0; d < W; d++) for (int r = 0; r < m; r++) inner[r] += go[d * S + i + r] * o[d * S + i + r];
        for (int j = 0; j < T; j += LINE) {
            int n = least(LINE, T - j);
            scores(p, q + i, k + j, m, n, S);
            scores(g, go + i, v + j, m, n, S);
            for (int r = 0; r < m; r++) for (int l = 0; l < n; l++) { /* lanes beyond T stay zero and add nothing */
                p[r][l] = power_of_two(p[r][l] - norm[i + r]);
                g[r][l] = p[r][l] * (g[r][l] - inner[r]);
            }
            mix(gk + j, q + i, g, m, n, S);
            mix(gv + j, go + i, p, m, n, S);
            dots(lanes, k + j, g, m, n, S);
        }
        for (int r = 0; r < m; r++) for (int d = 0; d < W; d++) {
            float sum = 0;
            for (int l = 0; l < LANES; l++) sum += lanes[r][d][l];
            gq[d * S + i + r] = sum * 0.69314718056f; /* d 2^x = ln 2 2^x dx; the caller's scaling of q does the rest */
        }
    }
    for (int n = 0; n < W * S; n++) gk[n] *= 0.69314718056f;
}

void forward(const float *q, const float *k, const float *v, float *o, float *norm, int heads, int T) {
    long S = (T + 31L) / 32 * 32;
    for (long h = 0, at = 0; h < heads; h++, at += W * S)
        forward_head(q + at, k + at, v + at, o + at, norm + h * S, T, S);
}

void backward(const float *q, const float *k, const float *v, const float *o, const float *norm, const float *go,
              float *gq, float *gk, float *gv, int heads, int T) {
    long S = (T + 31L) / 32 * 32;
    for (long h = 0, at = 0; h < heads; h++, at += W * S)
        backward_head(q + at, k + at, v + at, o + at, norm + h * S, go + at, gq + at, gk + at, gv + at, T, S);
}

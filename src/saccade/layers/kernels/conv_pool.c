/* Convolution without padding, ReLU and 2x2 max-pooling as one function, for a few channels; and its gradients.
 *
 * Pictures lie with their channels innermost, (n, h, w, D), so that the numbers of a row of a patch lie side by side.
 * `where` is (n, h', w', O): the corner in x of the patch that won its window, or -1 where ReLU cut it off. Only these
 * patches have a gradient: three quarters of the backward work is never done. Weights are torch's own, (O, C, K, K).
 * C, O and K, channels in and out and the side of a patch, are set by the build. Pictures have 8 floats to spare at
 * their end, since the last vector of a row may reach beyond it. Comparisons are written so that NaN stays NaN.
 */
#include <stdlib.h>
#include <string.h>

/* The sums are laid out by hand; told that it may regroup them, gcc takes fused multiply-adds apart. */
#pragma GCC optimize ("no-associative-math")

#define D (C <= 4 ? C : (C + 7) / 8 * 8)  /* channels in memory: whole vectors do not straddle cache lines */
#define ROW (K * D)             /* numbers in a row of a patch */
#define V ((O + 7) / 8)         /* vectors of output channels */
#define L ((ROW + 7) / 8)       /* vectors in a row of a patch */
#define WIDE (V == 1 ? 2 : 1)   /* pooled places at once: eight sums hide the latency of an addition */
#define ROWS (L > 12 ? 1 : 12 / L < K ? 12 / L : K)  /* rows of a weight gradient at once, all in registers */
#define FEW 4                   /* pictures in turn */

typedef float f8 __attribute__((vector_size(32)));
typedef float f8u __attribute__((vector_size(32), aligned(4)));
typedef int i8 __attribute__((vector_size(32)));
typedef struct { int place; float g; } Spot;  /* where a map has a gradient, and how much */

/* Where torch keeps the weight for number t of a row, or -1 for padding. */
static inline int at(int o, int ky, int t) {
    return o < O && t < ROW && t % D < C ? ((o * C + t % D) * K + ky) * K + t / D : -1;
}

static inline i8 choose(i8 when, i8 yes, i8 no) { return (when & yes) | (~when & no); }

static inline f8 larger(f8 a, f8 b, i8 *place, int other) {
    i8 second = (b > a) | (b != b);
    *place = choose(second, (i8){0} + other, *place);
    return (f8)choose(second, (i8)b, (i8)a);
}

/* P pooled places, one beside the other: the sums of 2 x 2P places stay in registers. */
static inline __attribute__((always_inline))
void block(const int P, const float *x, int place, int w, f8 weights[K][K][C][V], const f8 *bias, float *out,
           int *where) {
    f8 sum[2][2 * WIDE][V];
    for (int r = 0; r < 2; r++)
        for (int j = 0; j < 2 * P; j++)
            for (int v = 0; v < V; v++) sum[r][j][v] = bias[v];
    for (int ky = 0; ky < K; ky++) {
        const float *top = x + place + ky * w * D, *low = top + w * D;
        for (int kx = 0; kx < K; kx++)
            #pragma GCC unroll 2
            for (int c = 0; c < C; c++)
                for (int j = 0; j < 2 * P; j++)
                    for (int v = 0; v < V; v++) {
                        sum[0][j][v] += top[(j + kx) * D + c] * weights[ky][kx][c][v];
                        sum[1][j][v] += low[(j + kx) * D + c] * weights[ky][kx][c][v];
                    }
    }
    for (int p = 0; p < P; p++)
        for (int v = 0; v < V; v++) {
            int here = place + 2 * p * D;
            i8 won = (i8){0} + here;
            f8 m = larger(sum[0][2 * p][v], sum[0][2 * p + 1][v], &won, here + D);
            m = larger(m, sum[1][2 * p][v], &won, here + w * D);
            m = larger(m, sum[1][2 * p + 1][v], &won, here + w * D + D);
            won |= m <= 0;
            m = (f8)(~(m <= 0) & (i8)m);
            size_t some = (O - v * 8 < 8 ? O - v * 8 : 8) * 4;
            memcpy(out + p * O + v * 8, &m, some);
            memcpy(where + p * O + v * 8, &won, some);
        }
}

void forward(const float *x, const float *weights, const float *bias, float *out, int *where, int n, int h, int w) {
    int ph = (h - K + 1) / 2, pw = (w - K + 1) / 2;
    f8 packed[K][K][C][V], start[V];
    for (int o = 0; o < 8 * V; o++) {
        start[o / 8][o % 8] = o < O ? bias[o] : 0;
        for (int t = 0; t < C * K * K; t++)
            packed[t / K % K][t % K][t / K / K][o / 8][o % 8] = o < O ? weights[o * C * K * K + t] : 0;
    }
    for (int i = 0; i < n; i++)
        for (int y = 0; y < ph; y++)
            for (int p = 0; p < pw; ) {
                int from = ((i * h + 2 * y) * w + 2 * p) * D, to = ((i * ph + y) * pw + p) * O;
                if (p + WIDE <= pw) { block(WIDE, x, from, w, packed, start, out + to, where + to); p += WIDE; }
                else { block(1, x, from, w, packed, start, out + to, where + to); p += 1; }
            }
}

/* B rows of the gradient of one channel's weights. */
static inline __attribute__((always_inline))
void gather(const int B, const float *x, int stride, const Spot *spots, int m, f8 to[][L]) {
    f8 sum[ROWS][L];
    for (int b = 0; b < B; b++)
        for (int l = 0; l < L; l++) sum[b][l] = (f8){0};
    for (int s = 0; s < m; s++)
        for (int b = 0; b < B; b++)
            for (int l = 0; l < L; l++)
                sum[b][l] += spots[s].g * *(const f8u *)(x + spots[s].place + b * stride + l * 8);
    for (int b = 0; b < B; b++)
        for (int l = 0; l < L; l++) to[b][l] += sum[b][l];
}

/* gx starts at zero, or is null where nobody asks for it. A few pictures at a time, so that they stay in the first cache
 * while every channel visits them; and these in turn, since a sum just written is slow to read back. */
void backward(const float *x, const float *weights, const int *where, const float *grad, float *gweights, float *gbias,
              float *gx, int n, int h, int w) {
    int ph = (h - K + 1) / 2, pw = (w - K + 1) / 2, stride = w * D;
    Spot *spots = malloc(sizeof(Spot) * (FEW * ph * pw + 1));
    f8 mine[O][K][L], sum[O][K][L];
    for (int o = 0; o < O; o++) {
        gbias[o] = 0;
        for (int t = 0; t < K * 8 * L; t++) {
            int ky = t / (8 * L), j = t % (8 * L), from = at(o, ky, j);
            mine[o][ky][j / 8][j % 8] = from < 0 ? 0 : weights[from];
            sum[o][ky][j / 8][j % 8] = 0;
        }
    }
    for (int first = 0; first < n; first += FEW)
        for (int o = 0; o < O; o++) {
            int m = 0, ky = 0, last = first + FEW < n ? first + FEW : n;
            for (int y = 0; y < ph; y++)
                for (int p = 0; p < pw; p++)
                    for (int i = first; i < last; i++) {
                        int from = ((i * ph + y) * pw + p) * O + o;
                        spots[m] = (Spot){where[from], grad[from]};
                        m += where[from] >= 0;
                    }
            for (; ky + ROWS <= K; ky += ROWS) gather(ROWS, x + ky * stride, stride, spots, m, sum[o] + ky);
            if (K % ROWS) gather(K % ROWS, x + ky * stride, stride, spots, m, sum[o] + ky);
            for (int s = 0; s < m; s++) gbias[o] += spots[s].g;
            for (int s = 0; gx && s < m; s++) {
                float g = spots[s].g, *to = gx + spots[s].place;
                for (int k = 0; k < K; k++, to += stride) {
                    f8 row[L];
                    for (int l = 0; l < L; l++) row[l] = *(f8u *)(to + l * 8) + g * mine[o][k][l];
                    for (int l = 0; l < L; l++) *(f8u *)(to + l * 8) = row[l];
                }
            }
        }
    for (int t = 0; t < O * K * ROW; t++) {
        int o = t / (K * ROW), ky = t / ROW % K, j = t % ROW;
        if (at(o, ky, j) >= 0) gweights[at(o, ky, j)] = sum[o][ky][j / 8][j % 8];
    }
    free(spots);
}

/* Any of torch's layouts to ours: strides of pictures, places and channels. */
void turn(const float *x, float *to, int n, int places, long by_picture, long by_place, long by_channel) {
    for (int i = 0; i < n; i++)
        for (int p = 0; p < places; p++)
            for (int c = 0; c < D; c++)
                to[((long)i * places + p) * D + c] = c < C ? x[i * by_picture + p * by_place + c * by_channel] : 0;
}

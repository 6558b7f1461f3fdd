/* Products of small matrices that lie in a near cache, eight floats at a time (sixteen where the machine has such vectors),
 * and what such kernels need around them.
 */
#include "powers.h"

/* The sums are laid out by hand; told that it may regroup them, gcc takes fused multiply-adds apart. */
#pragma GCC optimize ("no-associative-math")

enum { LANES = 8, DEEP = 6 };
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int mask __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE vec load(const float *from) { return *(const vec *)from; }
INLINE void store(float *to, vec x) { *(vec *)to = x; }
static inline int whole(int n) { return (n + LANES - 1) / LANES * LANES; }

#define VEC vec
#define NAME(what) what
#include "tile.h"
#undef VEC
#undef NAME

#ifdef __AVX512F__ /* half as many of these do the same work: rows of 8 alone ran behind torch's own products */
typedef float wide_vec __attribute__((vector_size(8 * LANES), aligned(4), may_alias));
#define VEC wide_vec
#define NAME(what) wide_##what
#include "tile.h"
#undef VEC
#undef NAME
#endif

/* c[y][l] = sum_t a(y, t) b[t][l], or added to c, for m rows and n columns, a multiple of LANES. */
INLINE void columns(const int add, int m, int n, int depth, float *c, long cs, const float *a, long ay, long at,
                    const float *b, long bs) {
#ifdef __AVX512F__
    for (; n >= 4 * LANES; n -= 4 * LANES, c += 4 * LANES, b += 4 * LANES)
        wide_rows(add, 2, m, c, cs, a, ay, at, b, bs, depth);
    if (n >= 2 * LANES) {
        wide_rows(add, 1, m, c, cs, a, ay, at, b, bs, depth);
        n -= 2 * LANES, c += 2 * LANES, b += 2 * LANES;
    }
#else
    for (; n >= 2 * LANES; n -= 2 * LANES, c += 2 * LANES, b += 2 * LANES)
        rows(add, 2, m, c, cs, a, ay, at, b, bs, depth);
#endif
    if (n) rows(add, 1, m, c, cs, a, ay, at, b, bs, depth);
}

static void set(int m, int n, int depth, float *c, long cs, const float *a, long ay, long at, const float *b, long bs) {
    columns(0, m, n, depth, c, cs, a, ay, at, b, bs);
}

static void add(int m, int n, int depth, float *c, long cs, const float *a, long ay, long at, const float *b, long bs) {
    columns(1, m, n, depth, c, cs, a, ay, at, b, bs);
}

/* to[d][j] = factor from[j][d] for m rows j and n columns d; rows of `to` are S long, with zeros behind the m. */
static void turn(float *restrict to, long S, const float *restrict from, long stride, int m, int n, float factor) {
    int j = 0;
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
    for (; j + 8 <= m; j += 8)
        for (int d = 0; d + 8 <= n; d += 8) { /* eight by eight: neighbours, then pairs, then halves change places */
            vec a[8], b[8];
            for (int r = 0; r < 8; r++) a[r] = load(from + (j + r) * stride + d) * factor;
            for (int r = 0; r < 8; r += 2) {
                b[r] = __builtin_shufflevector(a[r], a[r + 1], 0, 8, 2, 10, 4, 12, 6, 14);
                b[r + 1] = __builtin_shufflevector(a[r], a[r + 1], 1, 9, 3, 11, 5, 13, 7, 15);
            }
            for (int r = 0; r < 8; r += 4)
                for (int s = r; s < r + 2; s++) {
                    a[s] = __builtin_shufflevector(b[s], b[s + 2], 0, 1, 8, 9, 4, 5, 12, 13);
                    a[s + 2] = __builtin_shufflevector(b[s], b[s + 2], 2, 3, 10, 11, 6, 7, 14, 15);
                }
            for (int r = 0; r < 4; r++) {
                store(to + (d + r) * S + j, __builtin_shufflevector(a[r], a[r + 4], 0, 1, 2, 3, 8, 9, 10, 11));
                store(to + (d + r + 4) * S + j, __builtin_shufflevector(a[r], a[r + 4], 4, 5, 6, 7, 12, 13, 14, 15));
            }
        }
#endif
#endif
    for (int d = 0; d < n; d++) {
        for (int i = d < n / 8 * 8 ? j : 0; i < m; i++) to[d * S + i] = factor * from[i * stride + d];
        for (int i = m; i < S; i++) to[d * S + i] = 0;
    }
}

INLINE float total(vec x) {
    float sum = 0;
    for (int l = 0; l < LANES; l++) sum += x[l];
    return sum;
}

/* Of a row of n numbers, a multiple of LANES. */
INLINE float sum_of(const float *x, int n) {
    vec sum = {0};
    for (int l = 0; l < n; l += LANES) sum += load(x + l);
    return total(sum);
}

INLINE float largest(const float *x, int n) {
    vec top = load(x);
    for (int l = LANES; l < n; l += LANES) {
        vec other = load(x + l);
        mask more = other > top;
        top = (vec)(((mask)other & more) | ((mask)top & ~more));
    }
    float most = top[0];
    for (int y = 1; y < LANES; y++) most = top[y] > most ? top[y] : most;
    return most;
}

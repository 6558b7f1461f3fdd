/* Powers of two, which are cheaper than powers of e. */
#include <math.h>

/* Where a processor has vectors of sixteen, gcc takes eight at a time all the same, for fear of a lower clock. Measured
 * on such a machine: attention of 784 tokens in heads of 3 channels takes 1.5 times as long that way. */
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("prefer-vector-width=512")
#endif

#define INLINE static inline __attribute__((always_inline))

/* 2^x for x <= 0, relative error below 2e-7; 0 below -127. Unlike exp2f it vectorises. The polynomial is a minimax
 * fit on [-1/2, 1/2] of our own; a degree less gives 3e-6. A limit on the exponent is cheaper than one on x. */
INLINE float power_of_two(float x) {
    float n = rintf(x), f = x - n;
    float p = fmaf(fmaf(0.001326472731307149f, f, 0.009671512991189957f), f, 0.05550733581185341f);
    p = fmaf(fmaf(fmaf(p, f, 0.24022242426872253f), f, 0.6931470036506653f), f, 1.0f);
    int exponent = (int)n + 127;
    union { int bits; float value; } scale = { (exponent < 0 ? 0 : exponent) << 23 };
    return p * scale.value;
}

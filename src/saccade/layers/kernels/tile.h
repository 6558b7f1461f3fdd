/* A tile of a product, for one width of vector: VEC is its type, and NAME gives functions a name of their own.
 *
 * Up to six rows by two vectors of sums stay in registers: twelve independent sums hide the latency of an addition.
 */

/* c[y][l] = sum_t a(y, t) b[t][l] for m rows and v vectors, both constants, or added to c. a(y, t) is at y ay + t at. */
INLINE void NAME(tile)(const int add, const int m, const int v, float *c, long cs, const float *a, long ay, long at,
                       const float *b, long bs, int depth) {
    enum { SIZE = sizeof(VEC) / sizeof(float) };
    VEC sum[DEEP][2];
    for (int y = 0; y < m; y++)
        for (int x = 0; x < v; x++) sum[y][x] = add ? *(const VEC *)(c + y * cs + x * SIZE) : (VEC){0};
    for (int t = 0; t < depth; t++, a += at, b += bs) {
        VEC row[2];
        for (int x = 0; x < v; x++) row[x] = *(const VEC *)(b + x * SIZE);
        for (int y = 0; y < m; y++)
            for (int x = 0; x < v; x++) sum[y][x] += row[x] * a[y * ay];
    }
    for (int y = 0; y < m; y++)
        for (int x = 0; x < v; x++) *(VEC *)(c + y * cs + x * SIZE) = sum[y][x];
}

/* The same for any number of rows. */
INLINE void NAME(rows)(const int add, const int v, int m, float *c, long cs, const float *a, long ay, long at,
                       const float *b, long bs, int depth) {
    for (; m >= DEEP; m -= DEEP, c += DEEP * cs, a += DEEP * ay)
        NAME(tile)(add, DEEP, v, c, cs, a, ay, at, b, bs, depth);
    if (m == 5) NAME(tile)(add, 5, v, c, cs, a, ay, at, b, bs, depth);
    if (m == 4) NAME(tile)(add, 4, v, c, cs, a, ay, at, b, bs, depth);
    if (m == 3) NAME(tile)(add, 3, v, c, cs, a, ay, at, b, bs, depth);
    if (m == 2) NAME(tile)(add, 2, v, c, cs, a, ay, at, b, bs, depth);
    if (m == 1) NAME(tile)(add, 1, v, c, cs, a, ay, at, b, bs, depth);
}

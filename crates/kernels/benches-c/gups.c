/* gups TABLE_BYTES UPDATES: random updates of the polynomial sequence, in 128 streams per thread. */
#include "common.h"
#include <omp.h>

enum { STREAMS = 128 };

static inline uint64_t step(uint64_t x) { return x << 1 ^ ((int64_t)x < 0 ? 7 : 0); }

static uint64_t multiply(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    for (; b; b >>= 1, a = step(a))
        if (b & 1)
            product ^= a;
    return product;
}

static uint64_t element(uint64_t n) {
    uint64_t result = 1, power = 2;
    for (; n; n >>= 1, power = multiply(power, power))
        if (n & 1)
            result = multiply(result, power);
    return result;
}

static void update(uint64_t *table, uint64_t mask, uint64_t first, uint64_t end) {
    const uint64_t each = (end - first) / STREAMS;
    uint64_t x[STREAMS];
    for (int j = 0; j < STREAMS; j++)
        x[j] = element(first + (uint64_t)j * each);
    for (uint64_t i = 0; i < each; i++)
        for (int j = 0; j < STREAMS; j++) {
            x[j] = step(x[j]);
            table[x[j] & mask] ^= x[j];
        }
    uint64_t last = element(first + STREAMS * each);
    for (uint64_t i = first + STREAMS * each; i < end; i++) {
        last = step(last);
        table[last & mask] ^= last;
    }
}

int main(int argc, char **argv) {
    const uint64_t words = argument(argc, argv, 1) / 8, updates = argument(argc, argv, 2);
    uint64_t *table = huge_memory(words * 8);
#pragma omp parallel for
    for (uint64_t i = 0; i < words; i++)
        table[i] = i;
    const double start = now_s();
#pragma omp parallel
    {
        const uint64_t t = (uint64_t)omp_get_thread_num(), threads = (uint64_t)omp_get_num_threads();
        update(table, words - 1, updates / threads * t, t + 1 == threads ? updates : updates / threads * (t + 1));
    }
    const double time = now_s() - start;
    update(table, words - 1, 0, updates);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < words; i++)
        wrong += table[i] != i;
    if (wrong > words / 100) {
        fprintf(stderr, "%llu errors\n", (unsigned long long)wrong);
        return 3;
    }
    metric("rate", (double)updates / time);
    return 0;
}

/* A dense system of linear equations by LAPACK's dgesv: order and repetitions as arguments; the median rate, counted as LINPACK does. */
#include "common.h"

extern void dgesv_(const int *n, const int *columns, double *a, const int *lda, int *pivots, double *b, const int *ldb,
                   int *info);

static uint64_t state = 88172645463325252u;

/* Xorshift, in [-1/2, 1/2). */
static double uniform(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0 - 0.5;
}

int main(int argc, char **argv) {
    const int n = (int)argument(argc, argv, 1), one = 1, repetitions = (int)argument(argc, argv, 2);
    const int stride = (n + 7) / 8 * 8 + (n % 512 ? 0 : 8);
    double *a = huge_memory((size_t)stride * (size_t)n * sizeof *a), *b = huge_memory((size_t)n * sizeof *b);
    int *pivots = malloc((size_t)n * sizeof *pivots);
    double *times = malloc((size_t)repetitions * sizeof *times);
    pin_to_first_cpu();
    for (int repetition = 0; repetition < repetitions; repetition++) {
        for (size_t i = 0; i < (size_t)stride * (size_t)n; i++)
            a[i] = uniform();
        for (int i = 0; i < n; i++)
            b[i] = uniform();
        int info;
        double start = now_s();
        dgesv_(&n, &one, a, &stride, pivots, b, &n, &info);
        times[repetition] = now_s() - start;
        if (info != 0) {
            fprintf(stderr, "dgesv: info %d\n", info);
            return 1;
        }
    }
    double order = n;
    metric("rate", (2.0 / 3.0 * order * order * order + 2.0 * order * order) / median(times, repetitions));
    return 0;
}

/* stream REPETITIONS: the four loops as anybody would write them, for the compiler to make the best of. ELEMENTS, a
   multiple of 262144, is known to it, and the arrays are static: it sees that they do not overlap. */
#include "common.h"
#include <math.h>

static double a[ELEMENTS] __attribute__((aligned(2 << 20)));
static double b[ELEMENTS] __attribute__((aligned(2 << 20)));
static double c[ELEMENTS] __attribute__((aligned(2 << 20)));

int main(int argc, char **argv) {
    const size_t n = ELEMENTS;
    const int repetitions = (int)argument(argc, argv, 1);
    const double s = 0.41421356237309504880;
    double best[4] = {1e30, 1e30, 1e30, 1e30};
    madvise(a, sizeof a, MADV_HUGEPAGE);
    madvise(b, sizeof b, MADV_HUGEPAGE);
    madvise(c, sizeof c, MADV_HUGEPAGE);

#pragma omp parallel for
    for (size_t i = 0; i < n; i++) {
        a[i] = 1;
        b[i] = 2;
        c[i] = 0;
    }
    for (int r = 0; r < repetitions; r++) {
        double t[5];
        t[0] = now_s();
#pragma omp parallel for
        for (size_t i = 0; i < n; i++)
            c[i] = a[i];
        t[1] = now_s();
#pragma omp parallel for
        for (size_t i = 0; i < n; i++)
            b[i] = s * c[i];
        t[2] = now_s();
#pragma omp parallel for
        for (size_t i = 0; i < n; i++)
            c[i] = a[i] + b[i];
        t[3] = now_s();
#pragma omp parallel for
        for (size_t i = 0; i < n; i++)
            a[i] = b[i] + s * c[i];
        t[4] = now_s();
        for (int k = 0; r > 0 && k < 4; k++)
            if (t[k + 1] - t[k] < best[k])
                best[k] = t[k + 1] - t[k];
    }
    double ea = 1, eb = 2, ec = 0, error = 0;
    for (int r = 0; r < repetitions; r++) {
        ec = ea;
        eb = s * ec;
        ec = ea + eb;
        ea = eb + s * ec;
    }
    for (size_t i = 0; i < n; i++)
        error += fabs(a[i] - ea) / ea + fabs(b[i] - eb) / eb + fabs(c[i] - ec) / ec;
    if (!(error / (double)n < 1e-13)) {
        fprintf(stderr, "wrong arrays\n");
        return 3;
    }
    const double bytes = (double)n * sizeof(double);
    metric("copy", 2 * bytes / best[0]);
    metric("scale", 2 * bytes / best[1]);
    metric("add", 3 * bytes / best[2]);
    metric("triad", 3 * bytes / best[3]);
    return 0;
}

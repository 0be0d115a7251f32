/* noploop NOPS REPETITIONS: median time of a loop of 1000 NOPs. */
#include "common.h"

int main(int argc, char **argv) {
    const uint64_t turns = argument(argc, argv, 1) / 1000;
    const int repetitions = (int)argument(argc, argv, 2);
    double *times = calloc((size_t)repetitions, sizeof *times);
    for (int r = -1; r < repetitions; r++) {
        const double start = now_s();
        for (uint64_t i = 0; i < turns; i++)
            __asm__ volatile(".rept 1000\n\tnop\n\t.endr");
        if (r >= 0)
            times[r] = now_s() - start;
    }
    metric("duration", median(times, repetitions));
    return 0;
}

/* What the C counterparts of the kernels share: a clock, memory on huge pages, one way to print. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Zeroed memory, aligned to 2 MiB, on huge pages where the kernel has them. */
static inline void *huge_memory(size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    char *mapping = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(mapping, bytes + huge, MADV_HUGEPAGE);
    return (void *)(((uintptr_t)mapping + huge - 1) / huge * huge);
}

static inline void pin_to_first_cpu(void) {
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    for (int cpu = 0, found = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus) && found++)
            CPU_CLR(cpu, &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
}

static uint64_t argument(int argc, char **argv, int which) {
    if (which >= argc) {
        fprintf(stderr, "%s: argument %d is missing\n", argv[0], which);
        exit(2);
    }
    return strtoull(argv[which], NULL, 10);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void metric(const char *name, double value) { printf("%s %.9g\n", name, value); }

/* chase BYTES LOADS BATCHES: median time of a dependent load along a random cycle, a pointer per cache line. */
#include "common.h"

struct line {
    struct line *next;
    char rest[56];
};

static uint64_t state = 88172645463325252ULL;

static uint64_t random_number(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int main(int argc, char **argv) {
    const size_t lines = argument(argc, argv, 1) / sizeof(struct line);
    const uint64_t loads = argument(argc, argv, 2);
    const int batches = (int)argument(argc, argv, 3);
    pin_to_first_cpu();
    struct line *memory = huge_memory(lines * sizeof *memory);
    for (size_t i = 0; i < lines; i++)
        memory[i].next = &memory[i];
    for (size_t i = lines - 1; i > 0; i--) {
        const size_t j = random_number() % i;
        struct line *swapped = memory[i].next;
        memory[i].next = memory[j].next;
        memory[j].next = swapped;
    }
    struct line *volatile sink;
    struct line *at = memory;
    double *times = calloc((size_t)batches, sizeof *times);
    for (int b = -1; b < batches; b++) {
        const double start = now_s();
        for (uint64_t i = 0; i < loads; i += 8) {
            at = at->next;
            at = at->next;
            at = at->next;
            at = at->next;
            at = at->next;
            at = at->next;
            at = at->next;
            at = at->next;
        }
        sink = at;
        if (b >= 0)
            times[b] = (now_s() - start) / (double)loads;
    }
    (void)sink;
    metric("latency", median(times, batches));
    return 0;
}

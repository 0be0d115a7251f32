/* syscall GETPID READ MMAP SWITCH BATCHES: median time of single requests to the operating system. */
#include "common.h"
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_BATCHES = 1000 };
static double times[MOST_BATCHES];
static int batches;

#define REPEAT(name, total, weight, operation)                              \
    do {                                                                    \
        const uint64_t count = ((total) + (uint64_t)batches - 1) / (uint64_t)batches; \
        for (int b = -1; b < batches; b++) {                                \
            const double start = now_s();                                   \
            for (uint64_t i = 0; i < count; i++)                            \
                operation;                                                  \
            if (b >= 0)                                                     \
                times[b] = (now_s() - start) / (double)(count * (weight));  \
        }                                                                   \
        metric(name, median(times, batches));                               \
    } while (0)

static void fail(const char *what) {
    perror(what);
    exit(3);
}

static void map_page(void) {
    volatile char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        fail("mmap");
    page[0] = 7;
    munmap((void *)page, 4096);
}

int main(int argc, char **argv) {
    batches = (int)argument(argc, argv, 5);
    if (batches < 1 || batches > MOST_BATCHES)
        return 2;
    pin_to_first_cpu();

    REPEAT("getpid", argument(argc, argv, 1), 1, syscall(SYS_getpid));
    const int zero = open("/dev/zero", O_RDONLY);
    char byte = 0;
    REPEAT("read", argument(argc, argv, 2), 1, if (read(zero, &byte, 1) != 1) fail("read"));
    REPEAT("mmap_munmap", argument(argc, argv, 3), 1, map_page());

    int there[2], back[2];
    if (pipe(there) || pipe(back))
        fail("pipe");
    if (fork() == 0) {
        close(there[1]);
        while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1) {}
        _exit(0);
    }
    REPEAT("context_switch", argument(argc, argv, 4) / 2, 2,
           if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) fail("pipe"));
    close(there[1]);
    wait(NULL);
    return 0;
}

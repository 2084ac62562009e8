/* Loads a kernel as a runtime would, and serves the mailbox of one software NPU with it until its parent ends.
 *
 *   driver KERNEL.so ENTRY MEMORY NPU NPUS WINDOW_BYTES BASE... [--log FILE] [--only-log]
 *   driver KERNEL.so ENTRY --load
 *
 * MEMORY is the file of all windows, BASE the device address of each. The data plane is in plane.c; this program
 * exports it to what it loads. Exit codes: 2 usage, 3 the memory, 4 the kernel does not load, 5 it has no entry.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "aicpu_ts/kernel_param.h"
#include "npu.h"

enum { MAX_NPUS = 256 };
Window windows[MAX_NPUS];
uint32_t own_npu, npus;
uint64_t window_bytes;

static int fail(int code, const char *what, const char *why) {
    fprintf(stderr, "driver: %s: %s\n", what, why);
    return code;
}

static int map_memory(const char *path, char **bases) {
    int file = open(path, O_RDWR);
    if (file < 0) return 0;
    uint8_t *first = mmap(NULL, npus * window_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (first == MAP_FAILED) return 0;
    for (uint32_t i = 0; i < npus; i++) windows[i] = (Window){first + i * window_bytes, strtoull(bases[i], NULL, 0)};
    return 1;
}

/* A pointer to bytes of the own window by their device address; NULL where they are not all there. */
static void *at(uint64_t addr, uint64_t len) {
    uint64_t offset = addr - windows[own_npu].base;
    return offset <= window_bytes && len <= window_bytes - offset ? windows[own_npu].bytes + offset : NULL;
}

static Ring ring_of(uint64_t ring, uint32_t depth, uint16_t queue, int is_pair) {
    uint32_t tail = (uint32_t)load_word(&windows[own_npu], TAILS + 8 * queue);
    return (Ring){at(ring, 64ull * depth), depth, tail, tail, queue, is_pair, 0};
}

/* Makes the handles of a context, as the host does on silicon when it creates threads and channels. The table of
 * handles goes where a text log would be, which this build does not write. */
static int make_handles(const LaunchArgs *args, AicpuTsParam *param) {
    const uint8_t *bytes = at(args->context, args->context_len);
    if (!bytes || args->context_len < sizeof context) return 0;
    memcpy(&context, bytes, sizeof context);
    if (context.threads.count > MAX_HANDLES || context.channels.count > MAX_HANDLES) return 0;
    uint64_t *handles = (uint64_t *)(windows[own_npu].bytes + LOG_TEXT);
    for (uint32_t i = 0; i < context.threads.count; i++) {
        ThreadEntry entry;
        memcpy(&entry, bytes + context.threads.offset + i * sizeof entry, sizeof entry);
        threads[i] = (Thread){ring_of(entry.ring, entry.depth, entry.queue, 0), entry.notify_base, i};
        *handles++ = (uintptr_t)&threads[i];
    }
    for (uint32_t i = 0; i < context.channels.count; i++) {
        ChannelEntry entry;
        memcpy(&entry, bytes + context.channels.offset + i * sizeof entry, sizeof entry);
        ChannelSlot *slots = (ChannelSlot *)(windows[own_npu].bytes + CHANNELS);
        Window *peer = &windows[slots[entry.index].peer_npu % npus];
        channels[i] = (Channel){entry, ring_of(entry.ring, entry.depth, entry.queue, 1), peer, entry.depth > 0};
        *handles++ = (uintptr_t)&channels[i];
    }
    param->threads = windows[own_npu].base + LOG_TEXT;
    param->channels = param->threads + 8 * context.threads.count;
    param->thread_count = context.threads.count;
    param->channel_count = context.channels.count;
    return 1;
}

static void serve(AicpuTsEntry entry, uint64_t slot) {
    Window *own = &windows[own_npu];
    uint64_t args_at = LAUNCHES + slot * LAUNCH_BYTES, status_at = STATUSES + slot * STATUS_BYTES;
    const LaunchArgs *args = (const LaunchArgs *)(own->bytes + args_at);
    static AicpuTsParam param __attribute__((aligned(64)));
    param = (AicpuTsParam){
        .magic = AICPU_TS_PARAM_MAGIC, .abi = 1, .size = sizeof param, .args = own->base + args_at,
        .status = own->base + status_at, .host_thread = (uintptr_t)&host_thread, .memory = own->base,
        .mapped = (uintptr_t)own->bytes, .memory_len = window_bytes, .flags = AICPU_TS_PARAM_REDUCES_ALL,
        .acquire_ms = 1000, .comm = "group",
    };
    memset(own->bytes + status_at, 0, STATUS_BYTES);
    sequence = args->sequence;
    /* A context that is not there is the kernel's to refuse. */
    if (!make_handles(args, &param)) param.threads = own->base, param.thread_count = 1;
    plane_begin();
    uint32_t code = entry(&param);
    uint8_t *status = own->bytes + status_at;
    memcpy(status, &args->sequence, 4);
    memcpy(status + 4, &code, 2);
}

static AicpuTsEntry load(const char *path, const char *name, int *code) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        *code = fail(4, path, dlerror());
        return NULL;
    }
    AicpuTsEntry entry = (AicpuTsEntry)(uintptr_t)dlsym(library, name);
    if (!entry) {
        *code = fail(5, path, dlerror());
        return NULL;
    }
    unsigned int refused = entry(NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double us = (double)(end.tv_sec - start.tv_sec) * 1e6 + (double)(end.tv_nsec - start.tv_nsec) / 1e3;
    printf("loaded and called in %.0f us: %u\n", us, refused);
    fflush(stdout);
    return entry;
}

int main(int count, char **arguments) {
    int code = 0;
    if (count < 4) return fail(2, "usage", "driver KERNEL.so ENTRY MEMORY NPU NPUS WINDOW_BYTES BASE...");
    AicpuTsEntry entry = load(arguments[1], arguments[2], &code);
    if (!entry || !strcmp(arguments[3], "--load")) return code;
    if (count < 7) return fail(2, "usage", "too few arguments");
    own_npu = (uint32_t)atoi(arguments[4]);
    npus = (uint32_t)atoi(arguments[5]);
    window_bytes = strtoull(arguments[6], NULL, 0);
    if (npus > MAX_NPUS || own_npu >= npus || count < 7 + (int)npus) return fail(2, "usage", "NPUS and BASE");
    if (!map_memory(arguments[3], arguments + 7)) return fail(3, arguments[3], "cannot be mapped");
    const char *log = NULL;
    int only_log = 0;
    for (int i = 7 + (int)npus; i < count; i++) {
        if (!strcmp(arguments[i], "--log") && i + 1 < count) log = arguments[++i];
        if (!strcmp(arguments[i], "--only-log")) only_log = 1;
    }
    plane_log_to(log, only_log);

    Window *own = &windows[own_npu];
    uint64_t answered = load_word(own, LAUNCH_HEAD), beats = 0;
    pid_t parent = getppid();
    struct timespec pause = {0, 20000};
    store_word(own, KERNEL_STATE, READY);
    while (getppid() == parent) {
        if (load_word(own, LAUNCH_TAIL) == answered) {
            store_word(own, HEARTBEAT, ++beats);
            nanosleep(&pause, NULL);
            if (pause.tv_nsec < 500000) pause.tv_nsec += pause.tv_nsec / 8;
            continue;
        }
        pause.tv_nsec = 20000;
        serve(entry, answered % LAUNCH_SLOTS);
        store_word(own, LAUNCH_HEAD, ++answered);
    }
    return 0;
}

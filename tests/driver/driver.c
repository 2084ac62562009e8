/* Loads a kernel as a runtime would, and serves the mailbox of one software NPU with it until its parent ends.
 *
 *   driver [--relaxed] [--fences] KERNEL.so ENTRY MEMORY NPU NPUS WINDOW_BYTES BASE... [--log FILE] [--only-log]
 *   driver KERNEL.so ENTRY --load
 *
 * A relaxed data plane lets notifies overtake transfers and threads their reads where no fence is between; --fences
 * tells the kernel so.
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
static Ring rings[MAX_QUEUES];
static uint32_t kernel_flags = AICPU_TS_PARAM_REDUCES_ALL;

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

/* Contexts that share a queue share its ring. */
static Ring *ring_of(uint64_t ring, uint32_t depth, uint16_t queue, int is_pair) {
    uint32_t tail = (uint32_t)load_word(&windows[own_npu], TAILS + 8 * queue);
    rings[queue] = (Ring){at(ring, 64ull * depth), depth, tail, tail, queue, is_pair, 0};
    return &rings[queue];
}

/* Makes the handles of a context behind those there are, as the host does on silicon when it creates threads and
 * channels. */
static int make_handles(uint64_t addr, uint32_t len, AicpuTsParam *param) {
    const uint8_t *bytes = at(addr, len);
    if (!bytes || len < sizeof context) return 0;
    memcpy(&context, bytes, sizeof context);
    uint32_t thread = param->thread_count, channel = param->channel_count;
    if (context.threads.count > MAX_HANDLES - thread || context.channels.count > MAX_HANDLES - channel) return 0;
    for (uint32_t i = 0; i < context.threads.count; i++, thread++) {
        ThreadEntry entry;
        memcpy(&entry, bytes + context.threads.offset + i * sizeof entry, sizeof entry);
        threads[thread] = (Thread){ring_of(entry.ring, entry.depth, entry.queue % MAX_QUEUES, 0), entry.notify_base, i};
    }
    for (uint32_t i = 0; i < context.channels.count; i++, channel++) {
        ChannelEntry entry;
        memcpy(&entry, bytes + context.channels.offset + i * sizeof entry, sizeof entry);
        ChannelSlot *slots = (ChannelSlot *)(windows[own_npu].bytes + CHANNELS);
        Window *peer = &windows[slots[entry.index].peer_npu % npus];
        Ring *ring = entry.depth ? ring_of(entry.ring, entry.depth, entry.queue % MAX_QUEUES, 1) : NULL;
        channels[channel] = (Channel){entry, ring, peer, entry.depth > 0};
    }
    param->thread_count = thread;
    param->channel_count = channel;
    return 1;
}

/* Makes the handles of all operations of a launch. */
static int make_all_handles(const LaunchArgs *args, AicpuTsParam *param) {
    if (args->kind != REPLAY) return make_handles(args->context, args->context_len, param);
    const uint8_t *program = at(args->context, args->context_len);
    if (!program || args->context_len < sizeof(ProgramHeader)) return 0;
    ProgramHeader header;
    memcpy(&header, program, sizeof header);
    if (header.count > (args->context_len - sizeof header) / sizeof(ProgramEntry)) return 0;
    for (uint32_t i = 0; i < header.count; i++) {
        ProgramEntry entry;
        memcpy(&entry, program + sizeof header + i * sizeof entry, sizeof entry);
        if (!make_handles(entry.context, entry.context_len, param)) return 0;
    }
    return 1;
}

/* Writes the lists of handles where a text log would be, which this build does not write. */
static void write_handles(AicpuTsParam *param) {
    uint64_t *handles = (uint64_t *)(windows[own_npu].bytes + LOG_TEXT);
    param->threads = windows[own_npu].base + LOG_TEXT;
    param->channels = param->threads + 8 * param->thread_count;
    for (uint32_t i = 0; i < param->thread_count; i++) *handles++ = (uintptr_t)&threads[i];
    for (uint32_t i = 0; i < param->channel_count; i++) *handles++ = (uintptr_t)&channels[i];
}

static void serve(AicpuTsEntry entry, uint64_t slot) {
    Window *own = &windows[own_npu];
    uint64_t args_at = LAUNCHES + slot * LAUNCH_BYTES, status_at = STATUSES + slot * STATUS_BYTES;
    const LaunchArgs *args = (const LaunchArgs *)(own->bytes + args_at);
    static AicpuTsParam param __attribute__((aligned(64)));
    param = (AicpuTsParam){
        .magic = AICPU_TS_PARAM_MAGIC, .abi = 1, .size = sizeof param, .args = own->base + args_at,
        .status = own->base + status_at, .host_thread = (uintptr_t)&host_thread, .memory = own->base,
        .mapped = (uintptr_t)own->bytes, .memory_len = window_bytes, .flags = kernel_flags,
        .acquire_ms = 1000, .comm = "group",
    };
    memset(own->bytes + status_at, 0, STATUS_BYTES);
    sequence = args->sequence;
    /* A context that is not there is the kernel's to refuse. */
    if (!make_all_handles(args, &param)) param.thread_count = 1, param.channel_count = 0;
    write_handles(&param);
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
    for (; count > 1 && arguments[1][0] == '-'; count--, arguments++) {
        if (!strcmp(arguments[1], "--relaxed")) plane_relax();
        if (!strcmp(arguments[1], "--fences")) kernel_flags |= AICPU_TS_PARAM_FENCES;
    }
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

/* The data plane twice: every call is written down where a log is wanted, and becomes entries in the rings of a
 * software NPU unless only the log is. Entries become visible at the end of a batch, or when a ring is full.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "aicpu_ts/hcomm.h"
#include "npu.h"

Thread threads[MAX_HANDLES], host_thread;
Channel channels[MAX_HANDLES];
ContextHeader context;
uint32_t sequence;

static FILE *lines;
static int log_only;
static uint32_t tasks;
static int acquired, in_batch;
static Ring *touched[MAX_QUEUES];
static uint32_t touched_count;

/* Work requests that no fence has brought forward yet, where queue pairs keep no order. */
typedef struct {
    Thread *thread;
    Channel *channel;
    Entry entry;
} Held;
enum { MAX_HELD = 4096 };
static Held held[MAX_HELD];
static uint32_t held_count;
static int relaxed;

/* Longest wait for room in a ring, seconds; the kernel would say that it is overdue a little later. */
enum { ROOM_DEADLINE_S = 40 };

void plane_log_to(const char *path, int only) {
    lines = path ? fopen(path, "w") : NULL;
    log_only = only;
}

void plane_relax(void) {
    relaxed = 1;
}

void plane_begin(void) {
    tasks = held_count = 0;
    acquired = in_batch = 0;
    touched_count = 0;
}

static void note(const char *format, ...) {
    if (!lines) return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(lines, format, arguments);
    va_end(arguments);
    fputc('\n', lines);
}

static void publish(Ring *ring) {
    __atomic_thread_fence(__ATOMIC_RELEASE);
    while (!ring->is_pair && ring->announced != ring->tail) {
        uint32_t left = ring->tail - ring->announced;
        ring->announced += left < DOORBELL_BATCH ? left : DOORBELL_BATCH;
        store_word(&windows[own_npu], DOORBELLS + 8 * ring->queue, ring->announced);
    }
    store_word(&windows[own_npu], TAILS + 8 * ring->queue, ring->tail);
}

/* Announces what every ring has, work requests before the posts that let them run. */
static void flush(void) {
    for (int pairs = 1; pairs >= 0; pairs--)
        for (uint32_t i = 0; i < touched_count; i++)
            if (touched[i]->is_pair == pairs) publish(touched[i]);
}

/* Waits until the device has taken something out of a full ring; everything is announced first. */
static int make_room(Ring *ring) {
    struct timespec pause = {0, 50000}, start, now;
    uint64_t head;
    flush();
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (head = load_word(&windows[own_npu], HEADS + 8 * ring->queue), ring->tail - (uint32_t)head >= ring->depth) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > ROOM_DEADLINE_S) return HCOMM_E_UNAVAIL;
        nanosleep(&pause, NULL);
    }
    return HCOMM_SUCCESS;
}

static int push(Ring *ring, Entry entry, uint16_t peer, uint32_t timeout_s) {
    if (!acquired || !in_batch) return HCOMM_E_PARA;
    if (log_only) return HCOMM_SUCCESS;
    uint32_t head = (uint32_t)load_word(&windows[own_npu], HEADS + 8 * ring->queue);
    if (ring->tail - head >= ring->depth) {
        int full = make_room(ring);
        if (full) return full;
    }
    entry.task = (uint64_t)sequence << 32 | tasks++;
    entry.peer = peer;
    entry.timeout_ms = timeout_s * 1000;
    ring->entries[ring->tail++ & (ring->depth - 1)] = entry;
    if (!ring->touched) {
        ring->touched = 1;
        touched[touched_count++] = ring;
    }
    return HCOMM_SUCCESS;
}

/* The token of the registered region that holds these bytes of a device; 0 where there is none. */
static uint32_t token(Window *window, uint64_t addr, uint64_t len) {
    RegionSlot *slots = (RegionSlot *)(window->bytes + REGIONS);
    for (int i = 0; i < MAX_REGIONS; i++)
        if (slots[i].token && addr >= slots[i].addr && addr + len <= slots[i].addr + slots[i].len) return slots[i].token;
    return 0;
}

static uint64_t element(HcommDataType type) {
    static const uint8_t sizes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2, 16, 0, 1, 1, 1, 1};
    return type < sizeof sizes ? sizes[type] : 0;
}

static int no_peer = 0xffff;

static int32_t local(Thread *thread, uint64_t dst, uint64_t src, uint64_t len, int type, int op) {
    Window *own = &windows[own_npu];
    Entry entry = {.opcode = COPY, .src = src, .dst = dst, .len = len};
    entry.src_token = token(own, src, len);
    entry.dst_token = token(own, dst, len);
    if (!log_only && (!entry.src_token || !entry.dst_token)) return HCOMM_E_MEMORY;
    if (type >= 0) {
        int inline_reduce = context.sdma_reduce_types >> type & 1 && context.sdma_reduce_ops >> op & 1;
        entry.flags = REDUCE | (inline_reduce ? 0 : BY_AICPU);
        entry.dtype = (uint8_t)type;
        entry.reduce = (uint8_t)op;
    }
    return push(thread->ring, entry, (uint16_t)no_peer, 0);
}

static int post(Thread *thread, Channel *channel) {
    Entry entry = {.opcode = POST, .channel = channel->entry.index, .wqe_tail = channel->ring->tail};
    return push(thread->ring, entry, (uint16_t)channel->entry.peer, 0);
}

/* Puts a work request into the ring of its queue pair. */
static int32_t request(Thread *thread, Channel *channel, Entry entry) {
    int full = push(channel->ring, entry, (uint16_t)channel->entry.peer, 0);
    return full ? full : post(thread, channel);
}

/* Brings forward what is held of a queue pair, or of all. */
static int32_t bring_forward(const Ring *ring) {
    uint32_t kept = 0;
    int32_t failed = 0;
    for (uint32_t i = 0; i < held_count; i++) {
        if (ring && held[i].channel->ring != ring)
            held[kept++] = held[i];
        else if (!failed)
            failed = request(held[i].thread, held[i].channel, held[i].entry);
    }
    held_count = kept;
    return failed;
}

/* A task of a queue pair. A relaxed one holds transfers back until a fence, and lets what tells the peer overtake. */
static int32_t pair_task(Thread *thread, Channel *channel, Entry entry, int tells) {
    if (relaxed && !tells) {
        if (held_count == MAX_HELD) return HCOMM_E_UNAVAIL;
        held[held_count++] = (Held){thread, channel, entry};
        return HCOMM_SUCCESS;
    }
    return request(thread, channel, entry);
}

static int32_t transfer(Thread *thread, Channel *channel, int is_write, uint64_t dst, uint64_t src, uint64_t len,
                        int type, int op, int notify) {
    Window *own = &windows[own_npu];
    uint64_t near = is_write ? src : dst, far = is_write ? dst : src;
    uint32_t near_token = token(own, near, len), far_token = token(channel->peer, far, len);
    uint8_t flags = (type >= 0 ? REDUCE : 0) | (notify >= 0 ? NOTIFY : 0);
    Entry entry = {.flags = flags, .len = len};
    if (!log_only && (!near_token || !far_token)) return HCOMM_E_MEMORY;
    if (type >= 0) {
        entry.dtype = (uint8_t)type;
        entry.reduce = (uint8_t)op;
    }
    if (notify >= 0) entry.notify = channel->entry.remote_notify + (uint32_t)notify;
    if (channel->is_pair) {
        entry.opcode = is_write ? PAIR_WRITE : PAIR_READ;
        entry.src = near, entry.src_token = near_token;
        entry.dst = far, entry.dst_token = far_token;
        return pair_task(thread, channel, entry, notify >= 0);
    }
    entry.opcode = is_write ? WRITE : READ;
    entry.channel = channel->entry.index;
    entry.src = src, entry.src_token = is_write ? near_token : far_token;
    entry.dst = dst, entry.dst_token = is_write ? far_token : near_token;
    return push(thread->ring, entry, (uint16_t)channel->entry.peer, 0);
}

#define THREAD(handle) ((Thread *)(uintptr_t)(handle))
#define CHANNEL(handle) ((Channel *)(uintptr_t)(handle))
#define T THREAD(thread)->index
#define PEER CHANNEL(channel)->entry.peer
#define HEX(pointer) (unsigned long long)(uintptr_t)(pointer)
#define LEN(value) (unsigned long long)(value)

int32_t HcommLocalCopyOnThread(HcommThread thread, void *dst, const void *src, uint64_t len) {
    note("copy %u 0x%llx 0x%llx %llu", T, HEX(dst), HEX(src), LEN(len));
    return local(THREAD(thread), (uintptr_t)dst, (uintptr_t)src, len, -1, 0);
}

int32_t HcommLocalReduceOnThread(HcommThread thread, void *dst, const void *src, uint64_t count, HcommDataType type,
                                 HcommReduceOp op) {
    note("reduce %u 0x%llx 0x%llx %llu %u %u", T, HEX(dst), HEX(src), LEN(count), type, op);
    return local(THREAD(thread), (uintptr_t)dst, (uintptr_t)src, count * element(type), (int)type, (int)op);
}

int32_t HcommThreadNotifyRecordOnThread(HcommThread thread, HcommThread waiter, uint32_t index) {
    Thread *dst = THREAD(waiter);
    Entry entry = {.opcode = RECORD_HOST, .notify = index};
    if (dst == &host_thread) {
        note("record %u host %u", T, index);
    } else {
        note("record %u %u %u", T, dst->index, index);
        entry.opcode = RECORD;
        entry.notify += dst->notify_base;
    }
    return push(THREAD(thread)->ring, entry, (uint16_t)no_peer, 0);
}

int32_t HcommThreadNotifyWaitOnThread(HcommThread thread, uint32_t index, uint32_t timeout) {
    note("wait %u %u %u", T, index, timeout);
    Entry entry = {.opcode = WAIT, .notify = THREAD(thread)->notify_base + index};
    return push(THREAD(thread)->ring, entry, (uint16_t)no_peer, timeout);
}

int32_t HcommWriteOnThread(HcommThread thread, HcommChannel channel, void *dst, const void *src, uint64_t len) {
    note("write %u %u 0x%llx 0x%llx %llu -", T, PEER, HEX(dst), HEX(src), LEN(len));
    return transfer(THREAD(thread), CHANNEL(channel), 1, (uintptr_t)dst, (uintptr_t)src, len, -1, 0, -1);
}

int32_t HcommWriteWithNotifyOnThread(HcommThread thread, HcommChannel channel, void *dst, const void *src,
                                     uint64_t len, uint32_t notify) {
    note("write %u %u 0x%llx 0x%llx %llu %u", T, PEER, HEX(dst), HEX(src), LEN(len), notify);
    return transfer(THREAD(thread), CHANNEL(channel), 1, (uintptr_t)dst, (uintptr_t)src, len, -1, 0, (int)notify);
}

int32_t HcommWriteReduceOnThread(HcommThread thread, HcommChannel channel, void *dst, const void *src, uint64_t count,
                                 HcommDataType type, HcommReduceOp op) {
    note("write-reduce %u %u 0x%llx 0x%llx %llu %u %u -", T, PEER, HEX(dst), HEX(src), LEN(count), type, op);
    return transfer(THREAD(thread), CHANNEL(channel), 1, (uintptr_t)dst, (uintptr_t)src, count * element(type),
                    (int)type, (int)op, -1);
}

int32_t HcommWriteReduceWithNotifyOnThread(HcommThread thread, HcommChannel channel, void *dst, const void *src,
                                           uint64_t count, HcommDataType type, HcommReduceOp op, uint32_t notify) {
    note("write-reduce %u %u 0x%llx 0x%llx %llu %u %u %u", T, PEER, HEX(dst), HEX(src), LEN(count), type, op, notify);
    return transfer(THREAD(thread), CHANNEL(channel), 1, (uintptr_t)dst, (uintptr_t)src, count * element(type),
                    (int)type, (int)op, (int)notify);
}

int32_t HcommReadOnThread(HcommThread thread, HcommChannel channel, void *dst, const void *src, uint64_t len) {
    note("read %u %u 0x%llx 0x%llx %llu", T, PEER, HEX(dst), HEX(src), LEN(len));
    return transfer(THREAD(thread), CHANNEL(channel), 0, (uintptr_t)dst, (uintptr_t)src, len, -1, 0, -1);
}

int32_t HcommReadReduceOnThread(HcommThread thread, HcommChannel channel, void *dst, const void *src, uint64_t count,
                                HcommDataType type, HcommReduceOp op) {
    note("read-reduce %u %u 0x%llx 0x%llx %llu %u %u", T, PEER, HEX(dst), HEX(src), LEN(count), type, op);
    return transfer(THREAD(thread), CHANNEL(channel), 0, (uintptr_t)dst, (uintptr_t)src, count * element(type),
                    (int)type, (int)op, -1);
}

int32_t HcommChannelNotifyRecordOnThread(HcommThread thread, HcommChannel handle, uint32_t index) {
    Channel *channel = CHANNEL(handle);
    note("channel-record %u %u %u", T, channel->entry.peer, index);
    Entry entry = {.opcode = PAIR_RECORD, .notify = channel->entry.remote_notify + index};
    if (channel->is_pair) {
        return pair_task(THREAD(thread), channel, entry, 1);
    }
    entry.opcode = RECORD_PEER;
    entry.channel = channel->entry.index;
    return push(THREAD(thread)->ring, entry, (uint16_t)channel->entry.peer, 0);
}

int32_t HcommChannelNotifyWaitOnThread(HcommThread thread, HcommChannel handle, uint32_t index, uint32_t timeout) {
    Channel *channel = CHANNEL(handle);
    note("channel-wait %u %u %u %u", T, channel->entry.peer, index, timeout);
    Entry entry = {.opcode = WAIT, .notify = channel->entry.local_notify + index};
    return push(THREAD(thread)->ring, entry, (uint16_t)channel->entry.peer, timeout);
}

int32_t HcommChannelFenceOnThread(HcommThread thread, HcommChannel channel) {
    note("channel-fence %u %u", T, PEER);
    return CHANNEL(channel)->is_pair ? bring_forward(CHANNEL(channel)->ring) : HCOMM_SUCCESS;
}

int32_t HcommChannelDrainOnThread(HcommThread thread, HcommChannel channel) {
    note("channel-drain %u %u", T, PEER);
    return CHANNEL(channel)->is_pair ? bring_forward(CHANNEL(channel)->ring) : HCOMM_SUCCESS;
}

int32_t HcommBatchModeStart(const char *tag) {
    note("batch-start \"%s\"", tag);
    if (in_batch) return HCOMM_E_PARA;
    in_batch = 1;
    return HCOMM_SUCCESS;
}

int32_t HcommBatchModeEnd(const char *tag) {
    note("batch-end \"%s\"", tag);
    if (!in_batch) return HCOMM_E_PARA;
    int32_t failed = bring_forward(NULL);
    in_batch = 0;
    flush();
    return failed;
}

int32_t HcommAcquireComm(const char *comm) {
    note("acquire \"%s\"", comm);
    if (acquired) return HCOMM_E_AGAIN;
    acquired = 1;
    return HCOMM_SUCCESS;
}

int32_t HcommReleaseComm(const char *comm) {
    note("release \"%s\"", comm);
    if (lines) fflush(lines);
    if (!acquired) return HCOMM_E_PARA;
    acquired = 0;
    return HCOMM_SUCCESS;
}

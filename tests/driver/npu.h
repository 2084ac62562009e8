/* The window of an NPU and its entries, from docs/wire-format.md sections 2 to 7: written apart from the Rust side. */
#ifndef NPU_H
#define NPU_H

#include <stdint.h>

enum {
    LAUNCH_TAIL = 0x000, LAUNCH_HEAD = 0x040, HEARTBEAT = 0x080, KERNEL_STATE = 0x0c0, LAUNCHES = 0x1000,
    STATUSES = 0x2000, DOORBELLS = 0x3000, HEADS = 0x4000, TAILS = 0x5000, REGIONS = 0x1a000, CHANNELS = 0x22000,
    LOG_TEXT = 0x30010, LAUNCH_SLOTS = 16, LAUNCH_BYTES = 256, STATUS_BYTES = 64, MAX_REGIONS = 1024,
    DOORBELL_BATCH = 128, READY = 1
};

/* Opcodes and flags of submission entries and work requests. */
enum { COPY = 1, WRITE = 2, READ = 3, RECORD = 4, WAIT = 5, RECORD_PEER = 6, RECORD_HOST = 7, POST = 8 };
enum { PAIR_WRITE = 0x21, PAIR_READ = 0x22, PAIR_RECORD = 0x23 };
enum { REDUCE = 1, NOTIFY = 2, BY_AICPU = 4 };

typedef struct {
    uint8_t opcode, flags, dtype, reduce, phase, reserved;
    uint16_t step;
    uint64_t task;
    uint64_t src, dst; /* of a work request: local, remote */
    uint64_t len;
    uint32_t src_token, dst_token;
    uint32_t notify;
    uint16_t channel; /* of a work request: 0 */
    uint16_t peer;
    uint32_t timeout_ms, wqe_tail;
} Entry;
_Static_assert(sizeof(Entry) == 64, "an entry has 64 bytes");

typedef struct { uint64_t addr, len; uint32_t token, access, generation, reserved; } RegionSlot;
typedef struct { uint32_t peer_npu; uint8_t connected, protocol; uint16_t queue; uint8_t rest[24]; } ChannelSlot;
_Static_assert(sizeof(RegionSlot) == 32 && sizeof(ChannelSlot) == 32, "slots have 32 bytes");

typedef struct { uint32_t offset, count, stride, reserved; } TableRef;
typedef struct {
    uint64_t magic;
    uint16_t abi_major, abi_minor;
    uint32_t total_len, header_crc, body_crc;
    uint64_t instance[2];
    uint32_t epoch, rank, ranks, device;
    uint64_t topology_digest, sdma_max_len;
    uint32_t sdma_reduce_types, sdma_reduce_ops;
    TableRef threads, regions, channels;
    uint8_t rest[80];
} ContextHeader;
typedef struct {
    uint64_t ring;
    uint32_t depth;
    uint16_t queue, reserved;
    uint32_t notify_base, notify_count;
    uint64_t reserved1;
} ThreadEntry;
typedef struct {
    uint32_t peer;
    uint16_t index;
    uint8_t protocol, reserved;
    uint32_t local_notify, remote_notify, reduce_types, reduce_ops;
    uint64_t max_len, ring;
    uint32_t depth;
    uint16_t queue, reserved1;
    uint64_t reserved2[2];
} ChannelEntry;
_Static_assert(sizeof(ContextHeader) == 208 && sizeof(ThreadEntry) == 32 && sizeof(ChannelEntry) == 64, "as documented");

/* Of the replay of a program, context is the program. */
typedef struct {
    uint8_t head[8]; /* magic, abi, blocks */
    uint32_t sequence, checksum;
    uint64_t instance[2];
    uint8_t what[32]; /* epoch to piece */
    uint64_t context;
    uint32_t context_len;
    uint8_t staging, cache, kind, rest[177];
} LaunchArgs;
enum { REPLAY = 1 };
typedef struct {
    uint8_t head[20]; /* magic to checksum */
    uint32_t count;
    uint8_t rest[40];
} ProgramHeader;
typedef struct {
    uint8_t what[48]; /* op to piece */
    uint64_t context;
    uint32_t context_len, start_base;
    uint8_t operands[48];
} ProgramEntry;
_Static_assert(sizeof(ProgramHeader) == 64 && sizeof(ProgramEntry) == 112, "as documented");
_Static_assert(sizeof(LaunchArgs) == LAUNCH_BYTES, "launch arguments have 256 bytes");

/* The windows of all NPUs, one behind the other in shared memory. */
typedef struct {
    uint8_t *bytes;
    uint64_t base;
} Window;
extern Window windows[];
extern uint32_t own_npu, npus;
extern uint64_t window_bytes;

static inline uint64_t load_word(Window *window, uint64_t offset) {
    return __atomic_load_n((uint64_t *)(window->bytes + offset), __ATOMIC_ACQUIRE);
}
static inline void store_word(Window *window, uint64_t offset, uint64_t value) {
    __atomic_store_n((uint64_t *)(window->bytes + offset), value, __ATOMIC_RELEASE);
}

/* One of this NPU's rings, as its producer sees it. */
typedef struct Ring {
    Entry *entries;
    uint32_t depth, tail, announced;
    uint16_t queue;
    int is_pair, touched;
} Ring;

/* What the handles of the data plane point to. */
typedef struct {
    Ring *ring;
    uint32_t notify_base, index;
} Thread;
typedef struct {
    ChannelEntry entry;
    Ring *ring;
    Window *peer;
    int is_pair;
} Channel;

/* Threads or channels of all operations of a launch, and queues. */
enum { MAX_HANDLES = 2048, MAX_QUEUES = 512 };
extern Thread threads[MAX_HANDLES], host_thread;
extern Channel channels[MAX_HANDLES];
extern ContextHeader context;
extern uint32_t sequence;

/* Prepares the plane for the launch whose context has been read. */
void plane_begin(void);
void plane_log_to(const char *path, int log_only);
/* From now on queue pairs keep no order but that of fences. */
void plane_relax(void);

#endif

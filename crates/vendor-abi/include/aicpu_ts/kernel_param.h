/* What a runtime hands to the entry of an aicpu-ts kernel: layout of our own, specified in docs/wire-format.md
 * section 11. Addresses in it are device addresses, but for `mapped`.
 */
#ifndef AICPU_TS_KERNEL_PARAM_H
#define AICPU_TS_KERNEL_PARAM_H

#include <stdint.h>

#define AICPU_TS_PARAM_MAGIC 0x50535441u /* "ATSP" */
#define AICPU_TS_PARAM_REDUCES_ALL 1u
#define AICPU_TS_PARAM_FENCES 2u

typedef struct {
    uint32_t magic;
    uint16_t abi;
    uint16_t size;
    uint64_t args;
    uint64_t status;
    uint64_t threads;
    uint64_t channels;
    uint32_t thread_count;
    uint32_t channel_count;
    uint64_t host_thread;
    uint64_t memory;
    uint64_t mapped;
    uint64_t memory_len;
    uint32_t flags;
    uint32_t acquire_ms;
    char comm[128];
    uint64_t reserved[5];
} AicpuTsParam;

/* Returns 0, or an error code of docs/errors.md. */
typedef unsigned int (*AicpuTsEntry)(AicpuTsParam *param);

#endif

/* The public C data plane of HCOMM, as far as an AICPU kernel calls it.
 *
 * Written for this project from interface facts alone: names, the order of parameters, numbers of enums and result
 * codes. No text or layout is taken from a vendor header. What the public descriptions do not say is marked PRESUMED;
 * docs/silicon.md lists it.
 */
#ifndef AICPU_TS_HCOMM_H
#define AICPU_TS_HCOMM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An ordered queue of tasks on the device, and a connection to one peer. Opaque. */
typedef uint64_t HcommThread;
typedef uint64_t HcommChannel;

/* What every call returns. */
typedef enum {
    HCOMM_SUCCESS = 0,
    HCOMM_E_PARA = 1,
    HCOMM_E_PTR = 2,
    HCOMM_E_MEMORY = 3,
    HCOMM_E_INTERNAL = 4,
    HCOMM_E_NOT_SUPPORT = 5,
    HCOMM_E_NOT_FOUND = 6,
    HCOMM_E_UNAVAIL = 7,
    HCOMM_E_SYSCALL = 8,
    HCOMM_E_TIMEOUT = 9,
    HCOMM_E_OPEN_FILE = 10,
    HCOMM_E_TCP_CONNECT = 11,
    HCOMM_E_ROCE_CONNECT = 12,
    HCOMM_E_TCP_TRANSFER = 13,
    HCOMM_E_ROCE_TRANSFER = 14,
    HCOMM_E_RUNTIME = 15,
    HCOMM_E_DRV = 16,
    HCOMM_E_PROFILING = 17,
    HCOMM_E_CCE = 18,
    HCOMM_E_NETWORK = 19,
    HCOMM_E_AGAIN = 20,
    HCOMM_E_REMOTE = 21,
    HCOMM_E_SUSPENDING = 22,
    HCOMM_E_OPRETRY_FAIL = 23,
    HCOMM_E_OOM = 24,
} HcommResult;

typedef enum {
    HCOMM_INT8 = 0,
    HCOMM_INT16 = 1,
    HCOMM_INT32 = 2,
    HCOMM_FP16 = 3,
    HCOMM_FP32 = 4,
    HCOMM_INT64 = 5,
    HCOMM_UINT64 = 6,
    HCOMM_UINT8 = 7,
    HCOMM_UINT16 = 8,
    HCOMM_UINT32 = 9,
    HCOMM_FP64 = 10,
    HCOMM_BFP16 = 11,
    HCOMM_INT128 = 12,
    HCOMM_HIF8 = 14,
    HCOMM_FP8E4M3 = 15,
    HCOMM_FP8E5M2 = 16,
    HCOMM_FP8E8M0 = 17,
} HcommDataType;

typedef enum {
    HCOMM_SUM = 0,
    HCOMM_PROD = 1,
    HCOMM_MAX = 2,
    HCOMM_MIN = 3,
} HcommReduceOp;

typedef enum {
    HCOMM_ENGINE_CPU = 0,
    HCOMM_ENGINE_CPU_TS = 1,
    HCOMM_ENGINE_AICPU = 2,
    HCOMM_ENGINE_AICPU_TS = 3,
    HCOMM_ENGINE_AIV = 4,
    HCOMM_ENGINE_CCU = 5,
} HcommEngine;

typedef enum {
    HCOMM_PROTOCOL_HCCS = 0,
    HCOMM_PROTOCOL_ROCE = 1,
    HCOMM_PROTOCOL_PCIE = 2,
    HCOMM_PROTOCOL_SIO = 3,
    HCOMM_PROTOCOL_UB_CTP = 4,
    HCOMM_PROTOCOL_UB_MEM = 6,
    HCOMM_PROTOCOL_UBOE = 7,
} HcommProtocol;

/* Local tasks. Lengths are bytes, counts are elements. */
int32_t HcommLocalCopyOnThread(HcommThread thread, void *dst, const void *src, uint64_t len);
int32_t HcommLocalReduceOnThread(HcommThread thread, void *dst, const void *src, uint64_t count,
                                 HcommDataType dataType, HcommReduceOp reduceOp);

/* Notifies of threads; timeouts are seconds. */
int32_t HcommThreadNotifyRecordOnThread(HcommThread thread, HcommThread dstThread, uint32_t dstNotifyIdx);
int32_t HcommThreadNotifyWaitOnThread(HcommThread thread, uint32_t notifyIdx, uint32_t timeout);

/* Tasks on a channel. */
int32_t HcommWriteOnThread(HcommThread thread, HcommChannel channel, void *dst, const void *src, uint64_t len);
int32_t HcommWriteReduceOnThread(HcommThread thread, HcommChannel channel, void *dst, const void *src,
                                 uint64_t count, HcommDataType dataType, HcommReduceOp reduceOp);
int32_t HcommWriteWithNotifyOnThread(HcommThread thread, HcommChannel channel, void *dst, const void *src,
                                     uint64_t len, uint32_t remoteNotifyIdx);
int32_t HcommWriteReduceWithNotifyOnThread(HcommThread thread, HcommChannel channel, void *dst, const void *src,
                                           uint64_t count, HcommDataType dataType, HcommReduceOp reduceOp,
                                           uint32_t remoteNotifyIdx);
int32_t HcommReadOnThread(HcommThread thread, HcommChannel channel, void *dst, const void *src, uint64_t len);
int32_t HcommReadReduceOnThread(HcommThread thread, HcommChannel channel, void *dst, const void *src,
                                uint64_t count, HcommDataType dataType, HcommReduceOp reduceOp);
int32_t HcommChannelNotifyRecordOnThread(HcommThread thread, HcommChannel channel, uint32_t remoteNotifyIdx);
int32_t HcommChannelNotifyWaitOnThread(HcommThread thread, HcommChannel channel, uint32_t localNotifyIdx,
                                       uint32_t timeout);

/* Order among tasks of one thread or one channel. PRESUMED: the parameters. */
int32_t HcommFenceOnThread(HcommThread thread);
int32_t HcommChannelFenceOnThread(HcommThread thread, HcommChannel channel);
int32_t HcommChannelDrainOnThread(HcommThread thread, HcommChannel channel);

/* Tasks between start and end become visible to the device together, at the end. An empty tag is a temporary batch.
 * Both calls come from one OS thread. */
int32_t HcommBatchModeStart(const char *tag);
int32_t HcommBatchModeEnd(const char *tag);

/* A communicator is used only between these two. */
int32_t HcommAcquireComm(const char *commId);
int32_t HcommReleaseComm(const char *commId);

/* The task cache. A library may lack these five. PRESUMED: all their parameters; what they do is public.
 * Lookup sets *hit to 1 where there is a finished recording. Execute wants as many buffers of the same sizes as Start
 * was given. Clear succeeds where there is nothing to forget. */
int32_t HcommAicpuTsTaskCacheLookup(const char *tag, uint32_t *hit);
int32_t HcommAicpuTsTaskCacheStart(const char *tag, const uint64_t *addrs, const uint64_t *sizes, uint32_t count);
int32_t HcommAicpuTsTaskCacheEnd(const char *tag);
int32_t HcommAicpuTsTaskCacheExecute(const char *tag, const uint64_t *addrs, const uint64_t *sizes, uint32_t count);
int32_t HcommAicpuTsTaskCacheClear(const char *tag);

#ifdef __cplusplus
}
#endif

#endif

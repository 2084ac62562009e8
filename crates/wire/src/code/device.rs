//! 5xxx device and DMA, 6xxx synchronization: what the device refuses, and what does not come in time.

super::codes! {
    5101 SQ_OVERRUN CommPoisoned hccl 16 ei 7
        "a doorbell announced more descriptors than the ring holds"
        "the doorbell register or the ring was overwritten; destroy the communicator"
    5102 SQE_OPCODE CommPoisoned hccl 16 ei 7
        "a descriptor has an opcode the device does not know"
        "kernel and device are of different versions, or the ring was overwritten"
    5104 SQE_FIELD CommPoisoned hccl 16 ei 7
        "a descriptor has a reserved or contradictory field"
        "kernel and device are of different versions, or the ring was overwritten"
    5105 SQE_LENGTH CommPoisoned hccl 16 ei 12
        "a transfer has length zero, is longer than its engine can move, or is no whole number of elements"
        "the kernel must split it; report the operation and count"
    5106 SQE_ALIGNMENT CommPoisoned hccl 16 ei 12
        "a transfer's address is not aligned to its element"
        "align the buffers to the size of their data type"
    5107 SQE_REDUCE CommPoisoned hccl 5 ei 12
        "this engine has no such reduction"
        "the kernel must use another engine; report the data type, reduction and link"
    5108 SQE_OVERLAP CommPoisoned hccl 16 ei 12
        "source and destination of a transfer overlap"
        "use the same buffer for both (in place) or two buffers that do not touch"
    5109 SQE_CHANNEL CommPoisoned hccl 16 ei 7
        "a descriptor names a channel, queue pair or notify that does not exist"
        "the context is of another communicator; create it anew"
    5120 DOORBELL_LOST CommPoisoned hccl 16 ei 7
        "a kernel has written and announced entries, and its device does not know of them"
        "look at the device of that rank; create the communicator anew"
    5201 DMA_UNREGISTERED CommPoisoned hccl 3 ei 12
        "a transfer names memory that is not registered, or no longer"
        "register the buffer with the communicator and keep it until the operation is done"
    5202 DMA_BOUNDS CommPoisoned hccl 3 ei 12
        "a transfer reaches beyond the registered region"
        "pass a larger buffer"
    5203 DMA_TOKEN CommPoisoned hccl 3 ei 13
        "a transfer carries the wrong token for its region"
        "the region was registered again: refresh the token by creating the communicator anew"
    5204 DMA_ACCESS CommPoisoned hccl 3 ei 12
        "a transfer is of a kind the region was not registered for"
        "register the region with the access it needs"
    5205 DMA_LINK CommPoisoned hccl 5 ei 12
        "an SDMA transfer names a device in another server"
        "the channel table is wrong: create the communicator from a correct rank table"
    5206 QP_ERROR CommPoisoned hccl 14 ei 13
        "a queue pair has stopped after an earlier error"
        "look at the first error of this queue pair"
    5207 DMA_CORRUPT CommPoisoned hccl 15 ei 12
        "the check code of a link shows that bytes changed on their way"
        "look at the link between the two ranks; run the operation again on a new communicator"
    5208 LINK_DOWN CommPoisoned hccl 15 ei 13
        "the link to a peer is down"
        "look at the link between the two ranks first"
    5301 DEVICE_MEMORY NoEffect hccl 15 ei 7
        "the shared memory of the NPUs cannot be created, or is not what the opener expects"
        "look at the cause given; free memory, or pass the configuration the memory was created with"
    5302 DEVICE_RANGE NoEffect hccl 1 ei 3
        "a range of device memory is not inside the NPU it was given to"
        "pass an address of this NPU and no more bytes than were allocated there"
    5303 DEVICE_HANDLE NoEffect hccl 1 ei 3
        "a resource of an NPU does not exist, or was released before"
        "release each resource once, at the NPU it was taken from"
    5304 DEVICE_ARGUMENT NoEffect hccl 1 ei 3
        "the driver of an NPU was asked for something that cannot exist"
        "depths and alignments are powers of two, peers exist, sizes are not zero"
    5401 PLANE_PARAMETER CommPoisoned hccl 1 ei 3
        "the data plane refused an argument of a call"
        "a handle or address is not of this communicator; look at the call and task in the detail"
    5402 PLANE_MEMORY CommPoisoned hccl 3 ei 12
        "the data plane ran out of memory, or refused a memory range"
        "register the buffer with the communicator, or free memory"
    5403 PLANE_UNSUPPORTED CommPoisoned hccl 5 ei 12
        "the data plane does not offer a call that the operation needs"
        "correct what the context says of engine and links, or take another library"
    5404 PLANE_MISSING CommPoisoned hccl 6 ei 7
        "the data plane does not know a handle, notify or communicator"
        "create the communicator anew, and the handles after it"
    5405 PLANE_UNAVAILABLE CommPoisoned hccl 7 ei 7
        "the data plane has no queue entry or resource for a task, or is suspended"
        "wait for operations before starting more; destroy the communicator"
    5406 PLANE_TIMEOUT CommPoisoned hccl 9 ei 2
        "a call of the data plane timed out"
        "look at the peer of the task in the detail first"
    5407 PLANE_TRANSFER CommPoisoned hccl 19 ei 13
        "the data plane reports a failure of the network or of the peer"
        "look at the link and the peer of the task in the detail"
    5408 PLANE_FAILED CommPoisoned hccl 4 ei 0
        "a call of the data plane failed for a reason of its own"
        "read the library's log; the detail has its result code"
    5409 PLANE_BUSY NoEffect hccl 20 ei 0
        "the communicator was in use for longer than the kernel may wait"
        "another operation holds it: wait for that, or raise acquire_ms"
    5410 PLANE_REDUCE NoEffect hccl 5 ei 12
        "the copy engine does not reduce this type so, and the data plane has nothing else that does"
        "choose a type and reduction of the engine (docs/numerics.md), or a library whose local reduction takes all"
    6101 HOST_NOTIFY_TIMEOUT CommPoisoned hccl 9 ei 2
        "the operation was not done at its deadline"
        "raise HCCL_EXEC_TIMEOUT if the operation is only slow"
    6102 NOTIFY_TIMEOUT CommPoisoned hccl 9 ei 2
        "a task waited for a signal that did not come before the deadline"
        "look at the rank named as the cause first"
    6103 NOTIFY_TWICE CommPoisoned hccl 4 ei 2
        "a signal was recorded again before its waiter had taken the first"
        "two operations share a notify: report the algorithm and the step"
    6104 NOTIFY_LEFT CommPoisoned hccl 4 ei 2
        "a signal is left over when all ranks are done: the result cannot be trusted"
        "look at the rank named, which sent it; run the operation again on a new communicator"
    6105 WAIT_CIRCLE CommPoisoned hccl 4 ei 2
        "ranks wait for each other in a circle"
        "no rank is late: this is a defect of the algorithm; report the operation, ranks and count"
    6106 COMM_ORDER CommPoisoned hccl 4 ei 2
        "communicators that share devices wait for each other: their operations come in different orders"
        "launch the operations of communicators that share NPUs in one order on all of them"
    6201 PEER_NOT_STARTED CommPoisoned hccl 9 ei 2
        "a peer never started this operation"
        "look at that rank first: why did it not call the operation?"
    6202 PEER_DIFFERS CommPoisoned hccl 9 ei 5
        "ranks launched different operations where all must launch the same"
        "look at what decides, at the rank named, which operation or program comes next"
    6203 PEER_LOST CommPoisoned hccl 9 ei 2
        "nothing is known of a rank that others wait for"
        "look at that rank first: did its process end, is its host reachable?"
    6210 OPERATION_SLOW NoEffect hccl 9 ei 2
        "an operation takes long; this is a warning, nothing has failed"
        "wait, or look at the rank named"
    6301 ARGUMENTS_DIFFER CommPoisoned hccl 1 ei 5
        "ranks launched one operation with different arguments"
        "pass the same count, data type, reduction and algorithm on all ranks; look at the rank named first"
    7010 REGIONS_FULL NoEffect hccl 7 ei 7
        "an NPU has no free slot for a registered region"
        "register fewer, larger regions, or release those of communicators that are done"
    7011 QUEUES_FULL NoEffect hccl 7 ei 7
        "an NPU has no free queue"
        "use fewer threads and queue pairs, or destroy communicators that are done"
    7012 NOTIFIES_FULL NoEffect hccl 7 ei 7
        "an NPU has no free run of notifies that long"
        "destroy communicators that are done"
    7013 DEVICE_MEMORY_FULL NoEffect hccl 7 ei 7
        "an NPU has no free block of memory that large"
        "lower HCCL_BUFFSIZE or the message size, or give the NPUs more memory"
    7014 CHANNELS_FULL NoEffect hccl 7 ei 7
        "an NPU has no free channel"
        "destroy communicators that are done"
    7015 HOST_NOTIFIES_FULL NoEffect hccl 7 ei 7
        "an NPU has no free host notify"
        "wait for operations before starting more, or destroy communicators that are done"
    7016 LAUNCHES_FULL NoEffect hccl 7 ei 7
        "an NPU has more launches posted than its mailbox holds"
        "wait for an operation before launching another"
    7017 NPU_HELD NoEffect hccl 7 ei 7
        "an NPU belongs to another process, which is alive"
        "wait for that process to end, or use other NPUs"
    9003 KERNEL_BUSY NoEffect hccl 20 ei 0
        "another thread of the process has this kernel"
        "launch again; one launch at a time is served for each communicator"
    9101 KERNEL_SILENT DeviceLost hccl 4 ei 0
        "the kernel did not answer its launch before the deadline"
        "look at the emulator's log; the device needs a restart"
    9102 NPU_DEAD DeviceLost hccl 4 ei 0
        "an NPU is dead: it executes nothing, and its AI CPU does not answer"
        "restart the NPU of the rank named, then create the communicator"
}

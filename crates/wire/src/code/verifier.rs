//! 311x and 312x, one for each obligation of the graph verifier: a task graph is not right, and nothing of it runs.

super::codes! {
    3111 VERIFY_STRUCTURE NoEffect hccl 4 ei 0
        "a task names a rank, thread, notify or buffer that there is not"
        "this is a defect of the template: report the operation, ranks, count and algorithm"
    3112 VERIFY_BOUNDS NoEffect hccl 4 ei 0
        "a task reaches beyond a buffer, has no bytes, or cuts an element"
        "this is a defect of the template: report the operation, ranks, count and algorithm"
    3113 VERIFY_OVERLAP NoEffect hccl 4 ei 0
        "source and destination of one task overlap"
        "this is a defect of the template: report the operation, ranks, count and algorithm"
    3114 VERIFY_PAIRING NoEffect hccl 4 ei 0
        "a notify may be set twice before it is taken, or is never taken"
        "this is a defect of the template: report the operation, ranks, count and algorithm"
    3115 VERIFY_DEADLOCK NoEffect hccl 4 ei 0
        "the graph cannot finish"
        "this is a defect of the template, or its rings are too short for it: report both"
    3116 VERIFY_RACE NoEffect hccl 4 ei 0
        "two tasks touch the same bytes and nothing orders them"
        "this is a defect of the template: report the operation, ranks, count and algorithm"
    3117 VERIFY_UNDEFINED NoEffect hccl 4 ei 0
        "a task reads bytes that nothing has written"
        "this is a defect of the template: report the operation, ranks, count and algorithm"
    3118 VERIFY_RESULT NoEffect hccl 4 ei 0
        "an output byte is not what the operation defines"
        "this is a defect of the template: report the operation, ranks, count and algorithm"
    3119 VERIFY_WRITES NoEffect hccl 4 ei 0
        "a task writes where the operation may not write"
        "this is a defect of the template: report the operation, ranks, count and algorithm"
    3120 VERIFY_ORDER NoEffect hccl 4 ei 0
        "an output element is reduced in another order than the documented one"
        "this is a defect of the template: report the operation, ranks, count and algorithm"
    3121 VERIFY_EXIT NoEffect hccl 4 ei 0
        "a rank is done while its buffers are still in use"
        "this is a defect of the template: report the operation, ranks, count and algorithm"
    3122 VERIFY_COMPOSITION NoEffect hccl 4 ei 0
        "one operation disturbs the next one of its communicator"
        "this is a defect of one of the two templates: report both operations"
    3123 VERIFY_LABELS NoEffect hccl 4 ei 0
        "phases or steps of the tasks are labelled out of order"
        "this is a defect of the template: report the operation, ranks, count and algorithm"
}

//! 20xx context, 11xx launch arguments, 3xxx plan, 4xxx bindings, 7xxx capacities: refused by the kernel before
//! anything is submitted.

super::codes! {
    1101 LAUNCH_MAGIC NoEffect hccl 1 ei 3
        "the launch arguments are not launch arguments"
        "launcher and kernel are from different builds, or the mailbox was overwritten; rebuild both"
    1102 LAUNCH_CHECKSUM NoEffect hccl 1 ei 3
        "the launch arguments do not match their checksum"
        "the mailbox was overwritten while the kernel read it; create a new communicator"
    1103 LAUNCH_VERSION NoEffect hccl 5 ei 8
        "the launch arguments are of another ABI version"
        "build launcher and kernel from the same commit"
    1104 LAUNCH_BLOCKS NoEffect hccl 1 ei 3
        "the kernel was launched with another number of blocks than one"
        "launch with exactly one block"
    1105 LAUNCH_OP NoEffect hccl 5 ei 3
        "the operation or algorithm number is unknown to this kernel"
        "build launcher and kernel from the same commit"
    1106 LAUNCH_DTYPE NoEffect hccl 1 ei 3
        "the data type number is unknown"
        "use one of the public data type numbers"
    1107 LAUNCH_ALIGNMENT NoEffect hccl 1 ei 3
        "a buffer is not aligned to its element size"
        "align the buffer to the size of its data type"
    1108 LAUNCH_REDUCE NoEffect hccl 5 ei 3
        "this reduction is not defined for this data type"
        "int128 and the 8-bit floats can be moved but not reduced; choose another type"
    1109 LAUNCH_COUNT NoEffect hccl 1 ei 3
        "count times element size times ranks does not fit 64 bits"
        "pass the number of elements, not bytes"
    1110 LAUNCH_RESERVED NoEffect hccl 1 ei 3
        "a reserved field of the launch arguments is not zero"
        "build launcher and kernel from the same commit"
    1111 LAUNCH_BUFFER NoEffect hccl 2 ei 3
        "a buffer is too small for the operation, or wraps the address space"
        "pass buffers of at least count × element size (× ranks where the operation says so) bytes"
    1112 LAUNCH_TIMEOUT NoEffect hccl 1 ei 3
        "a timeout of zero reached the device"
        "the device never waits for ever: pass a timeout of at least 1 ms"
    1113 LAUNCH_NOTIFY NoEffect hccl 4 ei 3
        "the start or done notify of a launch does not exist"
        "the launch arguments were not written by this launcher; create a new communicator"
    1114 LAUNCH_OVERLAP NoEffect hccl 1 ei 3
        "input and output overlap without being the same buffer"
        "use two buffers that do not touch or, where the operation works in place, the same one"
    1115 LAUNCH_CACHE NoEffect hccl 1 ei 3
        "the cache mode number is unknown"
        "build launcher and kernel from the same commit"
    1116 LAUNCH_ROOT NoEffect hccl 1 ei 3
        "the root is not a rank, or the operation has none"
        "name a root below the number of ranks, and 0 for operations without one"
    1117 LAUNCH_VECTOR NoEffect hccl 1 ei 3
        "counts and places per rank are missing, superfluous or contradict the operation"
        "give a row for every rank, and a count of 0 beside them; only v operations and send-recv have rows"
    1121 PARAM_MAGIC NoEffect hccl 2 ei 3
        "the entry was given something else than a kernel param"
        "pass the address of a param, 64-byte aligned, and not null"
    1122 PARAM_VERSION NoEffect hccl 5 ei 8
        "the kernel param is of another ABI version"
        "build runtime and shared object from the same commit"
    1123 PARAM_FIELD NoEffect hccl 1 ei 3
        "a field of the kernel param is out of range"
        "fill the param as docs/wire-format.md says; all reserved fields are zero"
    1124 PARAM_HANDLES NoEffect hccl 1 ei 3
        "there is not a handle for each thread and channel of the context"
        "create the handles from the context that the launch names"
    2001 CONTEXT_MAGIC NoEffect hccl 4 ei 8
        "these bytes are not a resource context"
        "the context address in the launch arguments is wrong; create the communicator anew"
    2002 CONTEXT_VERSION NoEffect hccl 5 ei 8
        "the resource context is of another ABI version"
        "build launcher and kernel from the same commit"
    2003 CONTEXT_LENGTH NoEffect hccl 4 ei 8
        "the resource context is shorter or longer than it says"
        "it was cut off or joined; create the communicator anew"
    2004 CONTEXT_CHECKSUM NoEffect hccl 4 ei 8
        "the resource context does not match its checksum"
        "its bytes changed after the launcher wrote them; create the communicator anew"
    2005 CONTEXT_RESERVED NoEffect hccl 4 ei 8
        "a reserved field of the resource context is not zero"
        "build launcher and kernel from the same commit"
    2006 CONTEXT_TABLE NoEffect hccl 4 ei 8
        "a table of the resource context is not where the format says"
        "the context was not written by this launcher; create the communicator anew"
    2007 CONTEXT_FIELD NoEffect hccl 4 ei 8
        "a field of the resource context is out of range or contradicts another"
        "report the byte offset with the context file; create the communicator anew"
    2008 CONTEXT_CAPACITY NoEffect hccl 7 ei 7
        "the resource context has more ranks, threads or queues than this kernel was built for"
        "use fewer ranks or threads, or a kernel built with larger capacities"
    2010 CONTEXT_STALE NoEffect hccl 6 ei 3
        "the resource context belongs to another communicator or epoch"
        "the communicator was destroyed or re-created; use the new one"
    2011 CONTEXT_ADDRESS NoEffect hccl 2 ei 3
        "the context or a table it names lies outside the memory this kernel may read"
        "the address in the launch arguments is wrong; create the communicator anew"
    2201 PROGRAM_MAGIC NoEffect hccl 4 ei 8
        "these bytes are not a program"
        "the program was freed, or its address in the launch arguments is wrong; capture it anew"
    2202 PROGRAM_VERSION NoEffect hccl 5 ei 8
        "the program is of another ABI version"
        "build launcher and kernel from the same commit"
    2203 PROGRAM_LENGTH NoEffect hccl 4 ei 8
        "the program is shorter or longer than it says"
        "it was cut off or joined; capture it anew"
    2204 PROGRAM_CHECKSUM NoEffect hccl 4 ei 8
        "the program does not match its checksum"
        "its bytes changed after the launcher wrote them; capture it anew"
    2205 PROGRAM_FIELD NoEffect hccl 4 ei 8
        "a field of the program is out of range"
        "build launcher and kernel from the same commit"
    2206 PROGRAM_CAPACITY NoEffect hccl 7 ei 7
        "the program has no operation, or more operations or bindings than a kernel holds"
        "capture 1 to 128 operations on at most 128 buffers"
    2207 PROGRAM_BINDINGS NoEffect hccl 1 ei 3
        "the replay brings another number of buffers than the program names"
        "bind one buffer to each slot that was named during the capture"
    2208 PROGRAM_STALE NoEffect hccl 6 ei 3
        "the program belongs to another communicator or epoch, or has been freed"
        "capture it anew on the communicator that is to replay it"
    2209 PROGRAM_BUSY NoEffect hccl 6 ei 3
        "the program cannot be freed while a replay of it is in flight"
        "call synchronize first"
    2301 SCRIPT_FORMAT NoEffect hccl 4 ei 8
        "the script of an algorithm file is none, is of another version, or has another length than it says"
        "use a host launcher and a kernel of one build"
    2302 SCRIPT_DIGEST NoEffect hccl 4 ei 8
        "the script of an algorithm file has changed since it was written"
        "do not write to memory that belongs to the communicator"
    2303 SCRIPT_ENTRY NoEffect hccl 4 ei 8
        "an entry of a script says nothing, or names a place, part, peer, thread or notify that there is none of"
        "use a host launcher and a kernel of one build"
    2304 SCRIPT_CAPACITY NoEffect hccl 7 ei 7
        "a script has more entries than a kernel keeps"
        "use an algorithm file with fewer steps, or fewer chunks"
    2305 SCRIPT_MISMATCH NoEffect hccl 1 ei 3
        "a script is of another operation, rank, number of ranks or use of buffers than the launch"
        "launch the operation that the algorithm file is for"
    3101 PLAN_RANKS NoEffect hccl 5 ei 3
        "this algorithm is not defined for this number of ranks"
        "choose another with --algo, or leave the choice to the launcher"
    3102 PLAN_SCRATCH NoEffect hccl 7 ei 7
        "the scratch buffer cannot hold one element of every slice the algorithm needs"
        "raise HCCL_BUFFSIZE"
    3103 PLAN_THREADS NoEffect hccl 4 ei 7
        "the context has fewer threads or notifies than the algorithm uses"
        "the launcher computed the resources for another algorithm; create the communicator anew"
    3104 PLAN_INTERNAL OpFailed hccl 4 ei 0
        "the template emitted a task that its context cannot express"
        "this is a defect: report the operation, ranks, count and algorithm"
    3105 PLAN_OP NoEffect hccl 5 ei 3
        "this operation cannot be carried out by this algorithm"
        "choose another with --algo, or leave the choice to the launcher"
    3106 PLAN_STAGING NoEffect hccl 5 ei 3
        "this algorithm cannot work without scratch for this operation, link or aliasing"
        "leave the choice to the launcher, or let it work in scratch"
    4101 BINDING_MISSING NoEffect hccl 3 ei 3
        "a task names a region that this launch does not bind"
        "register the buffers of all ranks before the zero-copy algorithms use them"
    4102 BINDING_EXTENT NoEffect hccl 3 ei 3
        "a task reaches beyond the end of the region it names"
        "pass a larger buffer"
    4103 BINDING_STALE NoEffect hccl 3 ei 3
        "a buffer that is bound to a replay is not registered any more"
        "it was freed, moved or deregistered since; bind the new one"
    4201 CACHE_BUSY NoEffect hccl 6 ei 3
        "the same operation is being recorded already"
        "record an operation from one thread, or give each its own tag; the operation ran uncached"
    4202 CACHE_STALE NoEffect hccl 6 ei 3
        "the cache entry is no longer there"
        "it was cleared or gave way meanwhile; look the operation up again"
    4203 CACHE_PRESENT NoEffect hccl 6 ei 3
        "the operation is recorded already"
        "look it up, or clear it before recording it anew"
    4204 CACHE_STATE NoEffect hccl 1 ei 3
        "the cache entry is not in the state this call needs"
        "call in order: start, end, execute; verify before publish; unpin what was pinned"
    4205 CACHE_ABSENT NoEffect hccl 6 ei 3
        "there is no finished recording of this tag"
        "look the tag up first, and record where it misses"
    4206 CACHE_ARGUMENTS NoEffect hccl 1 ei 3
        "the number of buffers is not that of the recording"
        "pass as many addresses and sizes as at the start of the recording"
    4207 CACHE_SIZES NoEffect hccl 1 ei 3
        "a buffer's size is not that of the recording"
        "record operations of another size under another tag"
    4208 CACHE_TAG NoEffect hccl 1 ei 3
        "the tag is longer than 255 bytes"
        "shorten it"
    4209 CACHE_COLLISION NoEffect hccl 7 ei 3
        "another tag has the same digest"
        "change one of the two tags; the operation ran uncached"
    5103 QUEUE_HEAD CommPoisoned hccl 16 ei 7
        "a ring's head is not between the last head and the tail"
        "the ring's memory was overwritten; destroy the communicator"
    5110 QUEUE_FULL CommPoisoned hccl 9 ei 2
        "a ring stayed full until the deadline"
        "the task at its head waits for a peer: look at that peer first"
    7001 GRAPH_FULL NoEffect hccl 7 ei 7
        "one chunk of the operation needs more descriptors than the kernel can record"
        "use a kernel built with larger capacities, fewer ranks, or a larger chunk"
    7002 PATTERNS_FULL NoEffect hccl 7 ei 7
        "one chunk of the operation uses more pairs of regions than the kernel can rebind"
        "use a kernel built with larger capacities, or fewer ranks"
    7003 PAGES_FULL NoEffect hccl 7 ei 7
        "one chunk of the operation needs more pages than the kernel has for graphs"
        "use a kernel built with more pages, fewer ranks, or a larger chunk"
    7020 CACHE_TOO_LARGE NoEffect hccl 7 ei 7
        "the recording is larger than the whole cache"
        "the operation ran uncached; give the cache more memory, or use larger chunks"
    7021 CACHE_QUOTA NoEffect hccl 7 ei 7
        "the recording is larger than one communicator's share of the cache"
        "the operation ran uncached; give the cache more memory, or a communicator a larger share"
    7022 CACHE_FULL NoEffect hccl 7 ei 7
        "nothing that may give way makes enough room in the cache"
        "the operation ran uncached; replays under way hold the rest, or eviction is off"
    7023 CACHE_BUFFERS NoEffect hccl 7 ei 7
        "the recording has more buffers than this build keeps"
        "the operation ran uncached; use a build with larger capacities"
    9001 KERNEL_PANIC DeviceLost hccl 4 ei 0
        "the kernel stopped at a defect of its own"
        "report it with the record in the status area; the device needs a restart"
    9002 KERNEL_FAULT DeviceLost hccl 15 ei 0
        "the kernel stopped at a processor exception"
        "report ESR, ELR and FAR; the device needs a restart"
}
